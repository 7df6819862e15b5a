"""The relatives of the order-aware loss: the same triplets with one part, or both, left out."""

from orbithash.losses.order_aware import OrderAwareTripletLoss


class TripletLoss(OrderAwareTripletLoss):
    """Plain triplet hinge, every triplet counting the same.

    TripletH: Lai et al., "Simultaneous Feature Learning and Hash Coding with Deep Neural
    Networks", CVPR 2015, with a fully connected layer in place of its divide-and-encode module.
    """

    def __init__(self, *, margin: float | None = None, reduction: str = "active") -> None:
        super().__init__(margin=margin, gamma=1, weighting="none", reduction=reduction)


class SquaredTripletLoss(OrderAwareTripletLoss):
    """Squared triplet hinge without weights: the paper's ablation "Squared Loss".

    Other powers are those of the paper's last figure.
    """

    def __init__(
        self, *, margin: float | None = None, gamma: float = 2.0, reduction: str = "active"
    ) -> None:
        super().__init__(margin=margin, gamma=gamma, weighting="none", reduction=reduction)


class OrderAwareLinearTripletLoss(OrderAwareTripletLoss):
    """Plain triplet hinge with order-aware weights: the paper's ablation "Order-aware Weight"."""

    def __init__(
        self,
        *,
        margin: float | None = None,
        weighting: str = "ap",
        ties: str = "distance",
        reduction: str = "active",
    ) -> None:
        super().__init__(
            margin=margin, gamma=1, weighting=weighting, ties=ties, reduction=reduction
        )
