import itertools

import pytest
import torch
from torch.testing import assert_close

from orbithash.errors import InputError
from orbithash.losses import LOSSES


def mined_triplets(name, distances, related):
    """Yield (anchor, positive, negative) as the papers describe the selection."""
    n = len(distances)
    for a, p in itertools.permutations(range(n), 2):
        if not related[a][p]:
            continue
        negatives = [k for k in range(n) if k != a and not related[a][k]]
        if name == "triplet-hard-negative":
            negatives = sorted(negatives, key=lambda k: distances[a, k].item())[:4]
        else:
            negatives = [k for k in negatives if distances[a, k] > distances[a, p]]
        yield from ((a, p, k) for k in negatives)


def literal_loss(name, embeddings, related, margin, reduction):
    distances = ((embeddings[:, None] - embeddings[None]) ** 2).sum(dim=2)
    total, triplets, active, anchors = embeddings.sum() * 0, 0, 0, set()
    for a, p, k in mined_triplets(name, distances, related):
        hinge = (margin + distances[a, p] - distances[a, k]).clamp_min(0)
        total = total + hinge
        triplets, active = triplets + 1, active + int(hinge > 0)
        anchors.add(a)
    divisor = {"sum": 1, "mean": triplets, "active": active, "anchor": len(anchors)}[reduction]
    return total / (divisor or 1), active / max(1, triplets)


def batch(*, many_labels: bool, n: int = 11):
    generator = torch.Generator().manual_seed(3)
    embeddings = torch.rand(n, 6, generator=generator, dtype=torch.float64)
    if many_labels:
        labels = (torch.rand(n, 4, generator=generator) < 0.4).long()
        related = (labels @ labels.T > 0).tolist()
    else:
        labels = torch.randint(3, (n,), generator=generator)
        related = (labels[:, None] == labels).tolist()
    return embeddings.requires_grad_(), labels, related


MINERS = ["triplet-hard-negative", "triplet-semi-hard"]


@pytest.mark.parametrize("name", MINERS)
@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("reduction", ["sum", "mean", "active", "anchor"])
@pytest.mark.parametrize("margin", [0.0, 0.3, 2.0])
def test_loss_and_gradient_equal_the_literal_loop(name, many_labels, reduction, margin):
    embeddings, labels, related = batch(many_labels=many_labels)
    loss = LOSSES[name](margin=margin, reduction=reduction)
    ours = loss(embeddings, labels)
    theirs, active_share = literal_loss(name, embeddings, related, margin, reduction)
    assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert_close(
        torch.autograd.grad(ours, embeddings),
        torch.autograd.grad(theirs, embeddings),
        rtol=1e-10,
        atol=1e-10,
    )
    assert loss.active_share == pytest.approx(active_share)


@pytest.mark.parametrize("name", MINERS)
def test_gradcheck_passes(name):
    embeddings, labels, _ = batch(many_labels=False)
    torch.autograd.gradcheck(lambda e: LOSSES[name](margin=0.7)(e, labels), embeddings)


@pytest.mark.parametrize("name", MINERS)
def test_identical_embeddings_give_a_finite_loss(name):
    embeddings = torch.full((6, 8), 0.3, requires_grad=True)
    value = LOSSES[name](margin=2.0)(embeddings, torch.tensor([0, 0, 1, 1, 2, 2]))
    value.backward()
    assert value.isfinite()
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("name", MINERS)
@pytest.mark.parametrize("options", [{"margin": -1.0}, {"reduction": "weight"}])
def test_invalid_options_are_refused(name, options):
    with pytest.raises(InputError):
        LOSSES[name](**options)
