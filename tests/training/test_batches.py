import numpy as np
import torch

from orbithash.training.batches import only_look, several_looks

IMAGES = torch.arange(3.0)[:, None]  # image i shows i, its views i + 10, i + 20


def test_every_look_at_an_image_is_drawn_about_as_often():
    views = torch.tensor([[12.0], [10.0], [22.0]])
    looks = several_looks(IMAGES, views, np.array([2, 0, 2]), seed=0)
    drawn = torch.cat([looks.draw(np.arange(3), epoch, 0) for epoch in range(600)])
    counts = {look: int((drawn == look).sum()) for look in (0, 10, 1, 2, 12, 22)}
    assert sum(counts.values()) == 3 * 600  # and an image never gets another one's view
    assert counts[1] == 600
    assert all(250 < counts[look] < 350 for look in (0, 10))
    assert all(150 < counts[look] < 250 for look in (2, 12, 22))


def test_the_same_batch_sees_the_same_looks_whenever_asked():
    looks = several_looks(IMAGES, IMAGES + 10, np.arange(3), seed=1)
    positions = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    assert torch.equal(looks.draw(positions, 4, 2), looks.draw(positions, 4, 2))
    assert not torch.equal(looks.draw(positions, 4, 2), looks.draw(positions, 4, 3))


def test_without_views_every_image_is_seen_as_it_is():
    assert torch.equal(only_look(IMAGES).draw(np.array([2, 0]), 0, 0), IMAGES[[2, 0]])
