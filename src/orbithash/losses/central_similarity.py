"""CSQ: central similarity quantization, and the hash centers that it shares with OrthoHash."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch.inputs import check_embeddings, check_labels

ATTEMPTS = 32  # to find codes of many classes
CANDIDATES = 512  # random vectors of each of two kinds that every step of an attempt compares


class CentralSimilarityLoss(nn.Module):
    """Binary cross-entropy between each embedding and the fixed code of its class.

    The mean over bits, plus `quantization` times the mean of log cosh(|2h − 1| − 1), a smooth
    quantization term. The target of an image with several labels is the majority of their codes,
    bit by bit; the first class breaks ties. Images without labels are ignored.

    Yuan et al., "Central Similarity Quantization for Efficient Image and Video Retrieval", CVPR
    2020.
    """

    centers: Tensor

    def __init__(
        self, *, n_classes: int, n_bits: int, quantization: float = 1e-4, seed: int = 0
    ) -> None:
        super().__init__()
        if not quantization >= 0:
            raise InputError(f"quantization={quantization}; it must be at least 0")
        self.quantization = quantization
        self.register_buffer("centers", hash_centers(n_classes, n_bits, seed))
        self.min_distance = smallest_distance(self.centers)  # of two classes, in bits

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        centers = self.centers.to(embeddings)
        classes = multi_hot(labels, len(embeddings), len(centers)).to(embeddings)
        labelled = classes.any(dim=1)
        votes = classes @ centers
        first_center = centers[classes.argmax(dim=1)]
        targets = torch.where(votes == 0, first_center, votes.sign())[labelled]
        h = embeddings[labelled]
        entropies = nn.functional.binary_cross_entropy(h, (targets + 1) / 2, reduction="sum")
        quantization = ((2 * h - 1).abs() - 1).cosh().log().sum()
        return (entropies + self.quantization * quantization) / max(1, h.numel())


def hash_centers(n_classes: int, n_bits: int, seed: int) -> Float[Tensor, "{n_classes} {n_bits}"]:
    """Return a code of ±1 for each class, such that the two nearest codes differ in many bits.

    The first codes are the rows of a Hadamard matrix and their complements, which differ in half of
    their bits, or in all. If `n_bits` is not a power of two, the matrix is that of its largest
    divisor that is one, repeated. If there are more classes, the codes found so far, or the first
    ones, are added again with some bits flipped in all of them. Of many random choices of these
    bits, the farthest from all codes so far is taken; of several attempts, the best result.

    >>> hash_centers(3, 4, seed=0) @ hash_centers(3, 4, seed=0).T
    tensor([[4., 0., 0.],
            [0., 4., 0.],
            [0., 0., 4.]])
    """
    if n_classes < 1 or n_bits < 1:
        raise InputError(f"n_classes={n_classes}, n_bits={n_bits}; both must be at least 1")
    size = n_bits & -n_bits  # the largest power of two that divides the bits
    rows = torch.ones(1, 1)
    while len(rows) < size:
        rows = torch.cat([torch.cat([rows, rows], 1), torch.cat([rows, -rows], 1)])
    first = torch.cat([rows, -rows]).repeat(1, n_bits // size)
    if n_classes <= len(first):
        return first[:n_classes].clone()

    generator = torch.Generator().manual_seed(seed)
    best, best_distance = first, -1
    for attempt in range(ATTEMPTS):
        codes, distance = first, n_bits // 2
        while len(codes) < n_classes and distance > best_distance:
            flips = random_flips(n_bits, generator)
            distances = (n_bits - (flips @ codes.T).amax(dim=1)) / 2
            farthest = int(distances.argmax())
            distance = min(distance, int(distances[farthest]))
            # The codes with some bits flipped are as far from each other as without.
            copied = codes if attempt % 2 == 0 else first
            codes = torch.cat([codes, copied * flips[farthest]])
        if distance > best_distance:
            best, best_distance = codes[:n_classes].clone(), distance
    return best


def random_flips(n_bits: int, generator: torch.Generator) -> Float[Tensor, "candidates {n_bits}"]:
    """Return random vectors of ±1, and as many that are quadratic functions of a bit's position.

    Linear functions modulo 2 of the digits of the position are the rows of a Hadamard matrix.
    Some of the quadratic ones are as far from all of these as any vector can be.
    """
    digits = torch.arange(n_bits)[:, None] >> torch.arange(max(1, (n_bits - 1).bit_length())) & 1
    products = (digits[:, :, None] & digits[:, None, :]).flatten(1).float()
    forms = torch.randint(2, (CANDIDATES, products.shape[1]), generator=generator).float()
    signs = torch.randint(2, (CANDIDATES, n_bits), generator=generator).float()
    return 1 - 2 * torch.cat([forms @ products.T % 2, signs])


def smallest_distance(centers: Float[Tensor, "classes bits"]) -> int:
    """Return the number of bits in which the two nearest codes differ; all bits for one code.

    >>> smallest_distance(torch.tensor([[1.0, 1, 1], [1, -1, -1], [1, -1, 1]]))
    1
    """
    inner = centers @ centers.T
    return int((centers.shape[1] - inner.fill_diagonal_(-centers.shape[1]).max()) / 2)


def multi_hot(labels: Tensor, n_images: int, n_classes: int) -> Float[Tensor, "n classes"]:
    """Return labels of either form as a 0-1 table with a column per class."""
    check_classes(labels, n_images, n_classes)
    if labels.ndim == 2:
        return labels.float()
    return nn.functional.one_hot(labels.long(), n_classes).float()


def check_classes(labels: Tensor, n_images: int, n_classes: int) -> None:
    """Check for labels of either form, of classes that the loss was made for."""
    check_labels(labels, n_images)
    if labels.ndim == 2:
        if labels.shape[1] != n_classes:
            raise InputError(f"got labels of {labels.shape[1]} classes; the loss has {n_classes}")
    elif n_images and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise InputError(
            f"got labels from {int(labels.min())} to {int(labels.max())}; the loss has "
            f"{n_classes} classes, numbered from 0"
        )
