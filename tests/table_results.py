"""Results of a table whose MAP are made up, for tests of what is made of them."""

import numpy as np

from orbithash.evaluation import Scores
from orbithash.experiments.tables.plan import plan_runs
from orbithash.experiments.tables.results import Results, make_results
from orbithash.experiments.tables.run import Finished
from orbithash.experiments.tables.spec import read_table
from orbithash.metrics.scores import PrecisionRecall


def made_up_results(sources, table="ablation", maps=None, *, n_seeds=3, bits=(32,)) -> Results:
    """MAP by row are lists by seed, None where a run or all of them failed; other rows get 0.5."""
    declared = read_table(table)
    runs = plan_runs(declared, sources, bits=bits, seeds=range(n_seeds), epochs=2)
    finished = {}
    for run in runs:
        of_seeds = (maps or {}).get(run.row, [0.5 + 0.01 * seed for seed in range(n_seeds)])
        if of_seeds is not None and of_seeds[run.seed] is not None:
            scores = made_up_scores(of_seeds[run.seed], run.n_bits)
            finished[run.key] = Finished(scores, seconds=1.0)
    return make_results(declared, runs, finished)


def made_up_scores(value: float, n_bits: int = 32) -> Scores:
    return Scores(
        map=value,
        map_bounds=(value - 0.1, value + 0.1),
        ndcg=value,
        precision_recall=PrecisionRecall(np.array([np.nan, 0.5]), np.array([0.0, 1.0])),
        precision_at={1: 0.5},
        map_at={},
        map_at_found={},
        ties="expected",
        n_bits=n_bits,
        queries=1,
        queries_without_relevant=0,
        database=1,
    )
