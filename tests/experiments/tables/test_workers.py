import multiprocessing
from dataclasses import replace

import pytest

from orbithash.experiments.tables import workers
from orbithash.experiments.tables.run import find_finished, run_folder
from orbithash.experiments.tables.workers import execute_runs
from planned_runs import clouds_source, quick_runs


def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    runs = quick_runs(clouds_source(tmp_path))
    runs[1] = replace(runs[1], source=replace(runs[1].source, file=tmp_path / "gone.npz"))
    ends = last_events(runs, tmp_path, jobs=1)
    assert "there is no features file" in ends.pop(runs[1].key).failure
    assert len(ends) == 3
    assert all(event.failure is None for event in ends.values())


def test_an_unexpected_error_is_written_to_a_file(tmp_path):
    (run, *_) = quick_runs(clouds_source(tmp_path))
    run_folder(run, tmp_path).parent.mkdir(parents=True)
    run_folder(run, tmp_path).write_text("in the way")
    (end,) = last_events([run], tmp_path, jobs=1).values()
    assert "NotADirectoryError" in end.failure or "FileExistsError" in end.failure
    (file,) = tmp_path.rglob("*.failed.txt")
    assert "Traceback" in file.read_text()


@pytest.mark.slow
def test_a_process_that_dies_costs_one_run_and_is_replaced(tmp_path):
    runs = quick_runs(clouds_source(tmp_path), n_seeds=2)
    kills = iter([True])

    def kill_one():
        if next(kills, False):
            multiprocessing.active_children()[0].kill()

    ends = last_events(runs, tmp_path, jobs=2, at_each_event=kill_one)
    failed = [key for key, event in ends.items() if event.failure]
    assert len(failed) == 1
    assert "ended with code -9" in ends[failed[0]].failure
    assert len(ends) == len(runs)
    for run in runs:
        assert (find_finished(run, tmp_path) is None) == (run.key in failed)
    assert multiprocessing.active_children() == []


def test_a_single_remaining_run_has_no_more_threads_than_one_of_many(tmp_path, monkeypatch):
    runs = quick_runs(clouds_source(tmp_path))
    thread_counts = []

    class StartedError(Exception):
        """Enough is known: no process is needed."""

    def record(out, threads):
        thread_counts.append(threads)
        raise StartedError

    monkeypatch.setattr(workers, "Worker", record)
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 8)
    with pytest.raises(StartedError):
        last_events(runs[:1], tmp_path, jobs=4)
    assert thread_counts == [2]


def last_events(runs, out, *, jobs, at_each_event=lambda: None):
    """Execute the runs; return the last event of each."""
    ends = {}

    def on_event(run, event):
        at_each_event()
        if event.is_end:
            ends[run.key] = event

    execute_runs(runs, out, jobs=jobs, on_event=on_event)
    return ends
