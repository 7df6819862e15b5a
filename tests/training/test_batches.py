import time
from pathlib import Path

import numpy as np
import pytest
import torch

from clean_processes import call
from coloured_images import coloured
from orbithash.data import ShuffledBatches
from orbithash.data.transforms import read_view
from orbithash.training import Processes
from orbithash.training.batches import ImageBatches, ImageReader, several_views, single_views
from process_memory import descendants
from stalled_training import take_one_batch_and_stall

IMAGES = torch.arange(3.0)[:, None]  # image i shows i, its views i + 10, i + 20


def test_every_view_of_an_image_is_drawn_about_as_often():
    views = torch.tensor([[12.0], [10.0], [22.0]])
    inputs = several_views(IMAGES, views, np.array([2, 0, 2]), seed=0)
    drawn = torch.cat([inputs.draw(np.arange(3), epoch, 0) for epoch in range(600)])
    counts = {view: int((drawn == view).sum()) for view in (0, 10, 1, 2, 12, 22)}
    assert sum(counts.values()) == 3 * 600  # and an image never gets another one's view
    assert counts[1] == 600
    assert all(250 < counts[view] < 350 for view in (0, 10))
    assert all(150 < counts[view] < 250 for view in (2, 12, 22))


def test_the_same_batch_gets_the_same_views_at_every_call():
    inputs = several_views(IMAGES, IMAGES + 10, np.arange(3), seed=1)
    positions = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    assert torch.equal(inputs.draw(positions, 4, 2), inputs.draw(positions, 4, 2))
    assert not torch.equal(inputs.draw(positions, 4, 2), inputs.draw(positions, 4, 3))


def test_without_views_every_image_is_seen_as_it_is():
    assert torch.equal(single_views(IMAGES).draw(np.array([2, 0]), 0, 0), IMAGES[[2, 0]])


def read(path, *, rng):
    """The image, and in its first pixel what was drawn for it."""
    view = read_view(path, resize=8, crop=8).copy()
    view[0, 0] = rng.integers(0, 256, 3)
    return view


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return coloured(tmp_path_factory.mktemp("images"))


def source(images, processes=None):
    rows = np.arange(len(images))
    reader = ImageReader(
        images, rows, images.labels, read, seed=3, processes=processes or Processes()
    )
    return ImageBatches(reader, ShuffledBatches(len(images), 10), epochs=3)


def test_the_rest_of_an_epoch_is_the_same_as_after_its_beginning(images):
    whole = list(source(images)(1))
    rest = list(source(images)(1, 1))
    assert (len(whole), len(rest)) == (3, 2)
    for expected, batch in zip(whole[1:], rest, strict=True):
        assert torch.equal(batch.inputs, expected.inputs)
        assert torch.equal(batch.labels, expected.labels)
    assert not torch.equal(whole[0].inputs, next(source(images)(2)).inputs)


def test_inputs_have_their_channels_last_in_memory(images):
    batch = next(source(images)(0))
    assert batch.inputs.shape == (10, 3, 8, 8)
    assert batch.inputs.is_contiguous(memory_format=torch.channels_last)


def test_processes_see_together_what_one_sees_alone(images):
    alone = next(source(images)(0))
    parts = [next(source(images, Processes(rank, 3))(0)) for rank in range(3)]
    assert torch.equal(torch.cat([part.inputs for part in parts]), alone.inputs)
    assert torch.equal(torch.cat([part.labels for part in parts]), alone.labels)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    "start_method", ["fork", pytest.param("forkserver", marks=pytest.mark.slow)]
)
def test_workers_end_when_their_parent_is_killed(start_method, tmp_path):
    process = call(take_one_batch_and_stall, tmp_path, start_method)
    try:
        wait_until((tmp_path / "taken").exists)
        workers = descendants(process.pid)
    finally:
        process.kill()
        process.join()
    assert len(workers) >= 2
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def wait_until(condition, *, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
