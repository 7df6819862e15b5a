"""Results of a table with made-up MAP, for tests of reports."""

from dataclasses import replace

import numpy as np

from orbithash.evaluation import Scores
from orbithash.experiments.tables.plan import plan_runs
from orbithash.experiments.tables.results import Results, make_results
from orbithash.experiments.tables.run import FinishedRun
from orbithash.experiments.tables.spec import read_table
from orbithash.metrics.scores import PrecisionRecall


def made_up_results(sources, table="ablation", maps=None, *, n_seeds=3, bits=(32,)) -> Results:
    """`maps` has a list by seed for each row, None if a run or all failed; other rows get 0.5."""
    declared = read_table(table)
    runs = plan_runs(declared, sources, bits=bits, seeds=range(n_seeds), epochs=2)
    finished = {}
    for run in runs:
        seed_maps = (maps or {}).get(run.row, [0.5 + 0.01 * seed for seed in range(n_seeds)])
        if seed_maps is not None and seed_maps[run.seed] is not None:
            scores = made_up_scores(seed_maps[run.seed], run.n_bits)
            if run.held_out:
                scores = replace(scores, transfer={"unseen in unseen": scores})
            finished[run.key] = FinishedRun(scores, seconds=1.0)
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
