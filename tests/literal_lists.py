"""Losses of a list's score as literal loops: each anchor's list, item by item."""

import torch

from literal_loss import is_anchor, labels_in_common


def literal_list_loss(score, embeddings, labels, memory=None, memory_labels=None):
    """1 − the mean of `score(anchor, [(item, grade), …])` over anchors with related items."""
    items = embeddings if memory is None else torch.cat([embeddings, memory])
    item_labels = labels if memory is None else torch.cat([labels, memory_labels])
    scores = []
    for i in range(len(embeddings)):
        others = [
            (items[j], labels_in_common(labels[i], item_labels[j]))
            for j in range(len(items))
            if not is_anchor(i, j, items, item_labels, len(labels))
        ]
        if any(grade > 0 for _, grade in others):
            scores.append(score(embeddings[i], others))
    return 1 - sum(scores) / len(scores)


def soft_counts(positions, weights, n_bins):
    """Triangular bins: an item counts by how near it is to the centre of the bin."""
    return [
        sum(
            weight * (1 - (position - centre).abs()).clamp_min(0)
            for position, weight in zip(positions, weights, strict=True)
        )
        for centre in range(n_bins)
    ]


def cosine(first, second):
    first, second = 2 * first - 1, 2 * second - 1
    return (first * second).sum() / ((first**2).sum() * (second**2).sum()).sqrt()


def batch_with_memory(*, many_labels=False, n=8, bits=6, seed=5):
    """A batch, and a memory that repeats three of its images and holds five others."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.rand(n + 5, bits, generator=generator, dtype=torch.float64)
    if many_labels:
        labels = (torch.rand(n + 5, 4, generator=generator) < 0.4).long()
    else:
        labels = torch.randint(3, (n + 5,), generator=generator)
    memory = torch.cat([embeddings[2:5], embeddings[n:]])
    memory_labels = torch.cat([labels[2:5], labels[n:]])
    return embeddings[:n].requires_grad_(), labels[:n], memory, memory_labels
