"""OrthoHash: one loss for all."""

from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch.inputs import check_embeddings
from orbithash.losses.central_similarity import hash_centers, multi_hot, smallest_distance


class OrthogonalTargetLoss(nn.Module):
    """Softmax cross-entropy of the cosines to the classes' fixed codes, with a margin.

    Cosines between 2h − 1 and the codes of all classes are the logits. The cosine of the image's
    own class is first reduced by `margin`. Codes that are near in angle are near in Hamming
    distance, so no other term is needed. The target of an image with several labels is uniform over
    them; images without labels are ignored.

    Hoe et al., "One Loss for All: Deep Hashing with a Single Cosine Similarity based Learning
    Objective", NeurIPS 2021.

    Args:
        scale: Factor from cosine to logit; default: the square root of the bits.
    """

    centers: Tensor

    def __init__(
        self,
        *,
        n_classes: int,
        n_bits: int,
        margin: float = 0.2,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not 0 <= margin < 1 or (scale is not None and not scale > 0):
            raise InputError(
                f"margin={margin}, scale={scale}; the margin of the cosine must be at least 0 and "
                "below 1, and the scale above 0"
            )
        self.margin = margin
        self.scale = n_bits**0.5 if scale is None else scale
        self.register_buffer("centers", hash_centers(n_classes, n_bits, seed))
        self.min_distance = smallest_distance(self.centers)  # of two classes, in bits

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        centers = self.centers.to(embeddings)
        classes = multi_hot(labels, len(embeddings), len(centers)).to(embeddings)
        labelled = classes.any(dim=1)
        classes = classes[labelled]
        outputs = nn.functional.normalize(2 * embeddings[labelled] - 1)
        cosines = outputs @ nn.functional.normalize(centers).T
        logits = self.scale * (cosines - self.margin * classes)
        targets = classes / classes.sum(dim=1, keepdim=True)
        return -(targets * logits.log_softmax(dim=1)).sum() / max(1, len(logits))
