"""Where the loss of triplets falls: on how few of them, and on which negatives.

    python experiments/weights.py FEATURES.npz RUN …

For every run on these features, batches of training rows are ranked by its codes, and what the
active triplets add to the loss is looked at in four ways: hinge or squared hinge, alone or times
ΔAP. Printed of each: how many triplets of equal size would add up to the same (the squared sum over
the sum of squares), as a share of the active ones; and the share that falls on the four nearest
negatives of an anchor, which is all that the choice of hard negatives keeps.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

from orbithash import load
from orbithash.data import batches_by_labels, read_features
from orbithash.losses.batch.pairs import grades_of_lists, hamming_distances, squared_distances
from orbithash.losses.batch.triplet_tensors import RankedItems, rank_items, swap_weights

BATCH, IMAGES_OF_A_CLASS, BATCHES = 500, 5, 3
NEAREST = 4
MARGIN = 1 / 8  # of the bits, for all, so that all look at the same triplets


def main(file: Path, runs: list[Path]) -> None:
    data = read_features(file)
    rows, labels = data.split.train, data.labels[data.split.train]
    batcher = batches_by_labels(
        labels, batch_size=BATCH, images_per_class=IMAGES_OF_A_CLASS, seed=0
    )
    batches = list(batcher(0))[:BATCHES]
    for run in runs:
        encoder = load(run)
        parts = [
            triplets_of(
                torch.from_numpy(encoder.embed(data.features[rows[batch]])),
                torch.from_numpy(labels[batch]),
            )
            for batch in batches
        ]
        hinge, weight, near, related = (torch.cat(part) for part in zip(*parts, strict=True))
        print(f"\n{run}")
        print(f"  related images in a list {float(related.mean()):14.1f}")
        print(f"  active triplets of an anchor {len(hinge) / BATCHES / len(batches[0]):10.1f}")
        print("  loss of a triplet      equal triplets   on the nearest negatives")
        for name, size in {
            "hinge": hinge,
            "hinge²": hinge**2,
            "ΔAP · hinge": weight * hinge,
            "ΔAP · hinge²": weight * hinge**2,
        }.items():
            equal = float(size.sum() ** 2 / size.square().sum() / len(size))
            print(f"  {name:<20} {equal:16.1%} {float(size[near].sum() / size.sum()):25.1%}")


def triplets_of(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hinge, ΔAP and nearness of the active triplets, and how many are related to each anchor."""
    margin = MARGIN * embeddings.shape[1]
    grades = grades_of_lists(embeddings, labels)
    distances = squared_distances(embeddings, embeddings)
    hamming = hamming_distances(embeddings, embeddings)
    places = rank_items(hamming, grades, distances, torch.float64)
    found = []
    for anchor in range(len(embeddings)):
        positives, negatives = (grades[anchor] > 0).nonzero()[:, 0], grades[anchor] == 0
        negatives = negatives.nonzero()[:, 0]
        negatives = negatives[distances[anchor, negatives].argsort()]
        hinge = margin + distances[anchor, positives, None] - distances[anchor, negatives]
        active = hinge > 0
        weight = swap_weights(
            RankedItems(*(table[anchor, positives, None] for table in places)),
            RankedItems(*(table[anchor, negatives] for table in places)),
            "ap",
        )
        near = torch.arange(len(negatives)).expand_as(hinge) < NEAREST
        found.append((hinge[active].double(), weight[active], near[active]))
    hinges, weights, nears = (torch.cat(part) for part in zip(*found, strict=True))
    return hinges, weights, nears, (grades > 0).sum(dim=1).double()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(run) for run in sys.argv[2:]])
