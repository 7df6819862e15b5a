import multiprocessing
from dataclasses import replace

from orbithash.experiments.tables import workers
from orbithash.experiments.tables.run import find_finished, run_folder
from orbithash.experiments.tables.workers import execute_runs
from planned_runs import clouds_source, quick_runs


def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    runs = quick_runs(clouds_source(tmp_path))
    runs[1] = replace(runs[1], source=replace(runs[1].source, file=tmp_path / "gone.npz"))
    ends = run_quietly(runs, tmp_path, jobs=1)
    assert "there is no features file" in ends.pop(runs[1].key).failure
    assert len(ends) == 3
    assert all(event.failure is None for event in ends.values())


def test_what_nobody_foresaw_is_told_in_a_file(tmp_path):
    (run, *_) = quick_runs(clouds_source(tmp_path))
    run_folder(run, tmp_path).parent.mkdir(parents=True)
    run_folder(run, tmp_path).write_text("in the way")
    (end,) = run_quietly([run], tmp_path, jobs=1).values()
    assert "NotADirectoryError" in end.failure or "FileExistsError" in end.failure
    (story,) = tmp_path.rglob("*.failed.txt")
    assert "Traceback" in story.read_text()


def test_a_process_that_dies_costs_one_run_and_is_replaced(tmp_path):
    runs = quick_runs(clouds_source(tmp_path), n_seeds=2)
    kills = iter([True])

    def kill_one():
        if next(kills, False):
            multiprocessing.active_children()[0].kill()

    ends = run_quietly(runs, tmp_path, jobs=2, at_each_event=kill_one)
    failed = [key for key, event in ends.items() if event.failure]
    assert len(failed) == 1
    assert "ended with code -9" in ends[failed[0]].failure
    assert len(ends) == len(runs)
    for run in runs:
        assert (find_finished(run, tmp_path) is None) == (run.key in failed)
    assert multiprocessing.active_children() == []


def test_one_run_that_is_left_has_the_threads_of_many(tmp_path, monkeypatch):
    runs = quick_runs(clouds_source(tmp_path))
    made = []

    class Watched(workers.Worker):
        def __init__(self, out, threads):
            made.append(threads)
            super().__init__(out, threads)

    monkeypatch.setattr(workers, "Worker", Watched)
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 8)
    run_quietly(runs[:1], tmp_path, jobs=4)
    assert made == [2]


def run_quietly(runs, out, *, jobs, at_each_event=lambda: None):
    """How each run ended."""
    ends = {}

    def on_event(run, event):
        at_each_event()
        if event.is_end:
            ends[run.key] = event

    execute_runs(runs, out, jobs=jobs, on_event=on_event)
    return ends
