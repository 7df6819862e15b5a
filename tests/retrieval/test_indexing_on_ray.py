"""An index of 2,000 images made on a Ray cluster of two workers, and without."""

import numpy as np
import pytest

import orbithash
from clean_processes import start
from image_files import class_folder, noise, save
from indexed_runs import image_run
from milvus_servers import new_collection
from orbithash.cli import run
from orbithash.data import all_images
from orbithash.index import open_index
from ray_clusters import RAYS_OWN_WARNINGS, KillsOneWorker

pytestmark = [pytest.mark.slow, *RAYS_OWN_WARNINGS]


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """A run, a folder of images, two of them unreadable, and their index made without Ray."""
    folder = tmp_path_factory.mktemp("birds")
    photos = class_folder(folder / "photos", {"0": 900, "1": 1100})
    for name in ("0/17.jpg", "1/1000.jpg"):
        (photos / name).write_text("no image")
    birds_run = image_run(folder / "run")
    command = ["index", str(birds_run), str(photos), "--out", str(folder / "alone.orbit")]
    assert run(command) == 0
    return folder


def items(address):
    with open_index(address) as index:
        parts = list(index.iterate())
        return (
            np.concatenate([part.ids for part in parts]).tolist(),
            np.concatenate([part.codes for part in parts]).tolist(),
            [metadata for part in parts for metadata in part.metadata],
        )


def test_the_index_equals_the_one_made_without_ray(
    birds, ray_address, capsys, tmp_path, monkeypatch
):
    """Also with a relative path, although workers run in another folder."""
    monkeypatch.chdir(birds)
    out = tmp_path / "x.orbit"
    assert run(["index", "run", "photos", "--out", str(out), "--ray", ray_address]) == 0
    printed = capsys.readouterr().out
    assert "1998 new, 0 changed, 0 as before, 0 gone." in printed
    assert "Left out 2 images that cannot be read" in printed
    assert items(out) == items(birds / "alone.orbit")


def test_a_command_can_start_a_cluster_of_its_own(birds, tmp_path):
    out = tmp_path / "x.orbit"
    command = ["index", str(birds / "run"), str(birds / "photos"), "--out", str(out)]
    process = start([*command, "--ray", "local"], output=tmp_path / "printed.txt")
    process.join()
    assert process.exitcode == 0, (tmp_path / "printed.txt").read_text()
    assert items(out) == items(birds / "alone.orbit")


def test_a_killed_worker_changes_nothing(birds, ray_address, tmp_path):
    killing = KillsOneWorker(after=512)
    encoder = orbithash.load(birds / "run")
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        report = index.add_images(birds / "photos", progress=killing, ray=ray_address)
    assert killing.killed
    assert report.new == 1998
    assert sorted(report.unreadable) == ["0/17.jpg", "1/1000.jpg"]
    assert items(tmp_path / "x.orbit") == items(birds / "alone.orbit")


def test_codes_of_a_file_equal_those_made_without_ray(birds, ray_address, tmp_path):
    for name, more in (("alone", []), ("ray", ["--ray", ray_address])):
        command = ["encode", str(birds / "run"), str(birds / "photos"), "--shard", "1/2", *more]
        assert run([*command, "--out", str(tmp_path / f"{name}.npz")]) == 0
    with np.load(tmp_path / "alone.npz") as alone, np.load(tmp_path / "ray.npz") as ray:
        assert set(alone) == set(ray)
        for name in alone:
            np.testing.assert_array_equal(alone[name], ray[name])
    lists = [tmp_path / f"{name}.unreadable.txt" for name in ("alone", "ray")]
    assert lists[0].read_text() == lists[1].read_text()


def test_workers_store_in_milvus_once_also_if_one_is_killed(
    birds,
    ray_address,
    milvus_server,
):
    address = f"milvus:{milvus_server.address}/{new_collection()}"
    killing = KillsOneWorker(after=512)
    encoder = orbithash.load(birds / "run")
    with orbithash.open_index(address, encoder=encoder) as index:
        report = index.add_images(birds / "photos", progress=killing, ray=ray_address)
    assert killing.killed
    assert (report.new, report.changed, len(report.unreadable)) == (1998, 0, 2)
    ids, *others = items(address)
    assert others == list(items(birds / "alone.orbit")[1:])
    paths = all_images(birds / "photos").paths
    assert ids == [row for row, path in enumerate(paths) if path not in report.unreadable]

    save(noise((30, 30), seed=7), birds / "photos" / "0" / "17.jpg")
    try:
        with orbithash.open_index(address, encoder=encoder) as index:
            report = index.add_images(birds / "photos", ray=ray_address)
            assert (report.new, report.changed, report.unchanged) == (1, 0, 1998)
            assert len(index) == 1999
    finally:
        (birds / "photos" / "0" / "17.jpg").write_text("no image")
