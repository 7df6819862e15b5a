"""The loss as the paper describes it: swap two items and score the whole list again.

Slow, and simple enough to check by eye. Gradients come from autograd.
"""

import itertools
import math

import torch


def literal_loss(
    embeddings,
    labels,
    *,
    margin,
    gamma,
    weighting,
    ties,
    reduction,
    memory=None,
    memory_labels=None,
    only=None,
    grades=None,
):
    """`ties` is "distance" or "index"; `only` is a set of (anchor, positive, negative).

    `grades` take the place of the labels in common; without labels, equal embeddings are copies.
    """
    if labels is None:
        labels = torch.zeros(len(embeddings), dtype=torch.int64)
        memory_labels = None if memory is None else torch.zeros(len(memory), dtype=torch.int64)
    graded = weighting == "ndcg" or grades is not None
    score = ndcg if graded else average_precision
    items = embeddings if memory is None else torch.cat([embeddings, memory])
    item_labels = labels if memory is None else torch.cat([labels, memory_labels])
    total, weights, triplets, active, anchors = embeddings.sum() * 0, 0.0, 0, 0, set()
    for i in range(len(embeddings)):
        others = [
            j for j in range(len(items)) if not is_anchor(i, j, items, item_labels, len(labels))
        ]
        distance = {j: ((embeddings[i] - items[j]) ** 2).sum() for j in others}
        if grades is None:
            grade = {j: labels_in_common(labels[i], item_labels[j]) for j in others}
        else:
            grade = {j: grades[i, j].item() for j in others}
        ranked = rank(i, others, items, distance, ties)
        for j, k in itertools.permutations(others, 2):
            exists = grade[j] > grade[k] if graded else grade[j] > 0 and grade[k] == 0
            if not exists or (only is not None and (i, j, k) not in only):
                continue
            weight = 1.0
            if weighting != "none":
                swapped = [{j: k, k: j}.get(item, item) for item in ranked]
                before = score([grade[item] for item in ranked])
                weight = abs(before - score([grade[item] for item in swapped]))
            hinge = (margin + distance[j] - distance[k]).clamp_min(0)
            total = total + weight * hinge**gamma
            weights, triplets, active = weights + weight, triplets + 1, active + int(hinge > 0)
            anchors.add(i)
    divisor = {
        "sum": 1,
        "mean": triplets,
        "active": active,
        "weight": weights,
        "anchor": len(anchors),
    }[reduction]
    return total / (divisor or 1)


def is_anchor(i, j, items, item_labels, batch_size):
    if j < batch_size:
        return i == j
    return bool((items[i] == items[j]).all() and (item_labels[i] == item_labels[j]).all())


def labels_in_common(first, second):
    return int(first == second) if first.ndim == 0 else int((first * second).sum())


def rank(i, others, items, distance, ties):
    def hamming(j):
        return int(((items[i] > 0.5) != (items[j] > 0.5)).sum())

    if ties == "distance":
        return sorted(others, key=lambda j: (hamming(j), distance[j].item(), j))
    return sorted(others, key=lambda j: (hamming(j), j))


def average_precision(grades):
    found, total = 0, 0.0
    for position, grade in enumerate(grades, start=1):
        if grade > 0:
            found += 1
            total += found / position
    return total / found


def ndcg(grades):
    def dcg(grades):
        return sum((2**grade - 1) / math.log2(1 + p) for p, grade in enumerate(grades, start=1))

    return dcg(grades) / dcg(sorted(grades, reverse=True))
