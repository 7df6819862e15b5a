"""Small random batches for the tests of losses."""

import torch
from torch.testing import assert_close


def random_batch(*, many_labels=False, n=8, bits=5, classes=3, seed=5):
    """Return embeddings in double precision, labels, and the matrix of related pairs as lists."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.rand(n, bits, generator=generator, dtype=torch.float64).requires_grad_()
    if many_labels:
        labels = (torch.rand(n, classes, generator=generator) < 0.4).long()
        return embeddings, labels, (labels @ labels.T > 0).tolist()
    labels = torch.randint(classes, (n,), generator=generator)
    return embeddings, labels, (labels[:, None] == labels).tolist()


def assert_same_value_and_gradient(ours, theirs, embeddings, *, tolerance=1e-10):
    assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    gradients = [torch.autograd.grad(value, embeddings)[0] for value in (ours, theirs)]
    assert_close(*gradients, rtol=tolerance, atol=tolerance)
