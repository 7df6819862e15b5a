import numpy as np
import torch

from orbithash.training.batches import several_views, single_views

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
