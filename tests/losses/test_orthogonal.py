import pytest
import torch

from loss_batches import assert_same_value_and_gradient, random_batch
from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.losses.central_similarity import hash_centers


def literal_loss(embeddings, labels, centers, margin, scale):
    terms = []
    for row, label in zip(embeddings, labels, strict=True):
        classes = [int(label)] if label.ndim == 0 else label.nonzero().flatten().tolist()
        if not classes:
            continue
        v = 2 * row - 1
        logits = []
        for c, center in enumerate(centers):
            cosine = (v * center).sum() / ((v**2).sum() * (center**2).sum()).sqrt()
            logits.append(scale * (cosine - (margin if c in classes else 0)))
        normaliser = sum(logit.exp() for logit in logits).log()
        terms.append(sum(normaliser - logits[c] for c in classes) / len(classes))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize(("margin", "scale"), [(0.2, None), (0.0, 5.0)])
def test_loss_and_gradient_equal_the_literal_loop(many_labels, margin, scale):
    embeddings, labels, _ = random_batch(many_labels=many_labels, bits=8)
    loss = LOSSES["orthohash"](n_classes=3, n_bits=8, margin=margin, scale=scale)
    centers = hash_centers(3, 8, seed=0).double()
    theirs = literal_loss(embeddings, labels, centers, margin, 8**0.5 if scale is None else scale)
    assert_same_value_and_gradient(loss(embeddings, labels), theirs, embeddings)


def test_gradcheck_passes():
    embeddings, labels, _ = random_batch(bits=8)
    loss = LOSSES["orthohash"](n_classes=3, n_bits=8)
    torch.autograd.gradcheck(lambda e: loss(e, labels), embeddings)


@pytest.mark.parametrize("options", [{"margin": 1.0}, {"scale": 0.0}])
def test_invalid_options_are_refused(options):
    with pytest.raises(InputError):
        LOSSES["orthohash"](n_classes=3, n_bits=8, **options)
