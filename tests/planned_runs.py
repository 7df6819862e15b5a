"""Sources and plans of a few quick runs, for tests of what is made of them."""

from pathlib import Path

from feature_files import write_clouds
from orbithash.data import read_features
from orbithash.experiments.tables.plan import Run, plan_runs
from orbithash.experiments.tables.sources import Source, as_source
from orbithash.experiments.tables.spec import read_table


def clouds_source(folder: Path, name: str = "clouds", **options) -> Source:
    file = write_clouds(folder / f"{name}.npz", **options)
    return as_source(name, file, read_features(file))


def quick_runs(source: Source, table: str = "ablation", n_seeds: int = 1, **options) -> list[Run]:
    asked = {"bits": (8,), "epochs": 2, **options}
    return plan_runs(read_table(table), [source], seeds=range(n_seeds), **asked)
