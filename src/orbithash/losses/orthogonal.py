"""OrthoHash: one loss for all."""

from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.centers import hash_centers, memberships
from orbithash.losses.inputs import check_embeddings


class OrthogonalTargetLoss(nn.Module):
    """Classifies by the angle to each class's code, with a margin on the right one.

    Cosines between 2h − 1 and the fixed codes of all classes go through a softmax; the cosine of
    the image's own class is lowered by `margin` first, so that it must win clearly. A code near in
    angle is near in Hamming distance too, so nothing else is needed. An image of several classes
    shares its target equally among them; an image of no class does not count.

    Hoe et al., "One Loss for All: Deep Hashing with a Single Cosine Similarity based Learning
    Objective", NeurIPS 2021.

    Args:
        scale: Of the cosines before the softmax; the square root of the bits if not given.
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
                f"margin={margin}, scale={scale}; the margin is of a cosine, from 0 to below 1, "
                "and the scale above 0"
            )
        self.margin = margin
        self.scale = n_bits**0.5 if scale is None else scale
        self.register_buffer("centers", hash_centers(n_classes, n_bits, seed))

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        centers = self.centers.to(embeddings)
        members = memberships(labels, len(embeddings), len(centers)).to(embeddings)
        labelled = members.any(dim=1)
        members = members[labelled]
        outputs = nn.functional.normalize(2 * embeddings[labelled] - 1)
        cosines = outputs @ nn.functional.normalize(centers).T
        logits = self.scale * (cosines - self.margin * members)
        shares = members / members.sum(dim=1, keepdim=True)
        return -(shares * logits.log_softmax(dim=1)).sum() / max(1, len(logits))
