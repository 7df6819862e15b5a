"""Sources and plans of a few quick runs."""

from pathlib import Path

from feature_files import write_clouds
from orbithash.data import read_features
from orbithash.experiments.tables.plan import PlannedRun, plan_runs
from orbithash.experiments.tables.sources import TableSource, features_source
from orbithash.experiments.tables.spec import read_table


def clouds_source(folder: Path, name: str = "clouds", **options) -> TableSource:
    file = write_clouds(folder / f"{name}.npz", **options)
    return features_source(name, file, read_features(file))


def quick_runs(
    source: TableSource, table: str = "ablation", n_seeds: int = 1, **options
) -> list[PlannedRun]:
    options = {"bits": (8,), "epochs": 2, **options}
    return plan_runs(read_table(table), [source], seeds=range(n_seeds), **options)
