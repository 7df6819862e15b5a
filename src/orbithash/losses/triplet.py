"""Ablations of the order-aware loss: without its weights, its square, or both."""

from orbithash.losses.order_aware import OrderAwareTripletLoss


class TripletLoss(OrderAwareTripletLoss):
    """Triplet hinge with equal weights.

    TripletH: Lai et al., "Simultaneous Feature Learning and Hash Coding with Deep Neural
    Networks", CVPR 2015, with a fully connected layer in place of its divide-and-encode module.
    """

    def __init__(self, *, margin: float | None = None, reduction: str = "active") -> None:
        super().__init__(margin=margin, gamma=1, weighting="none", reduction=reduction)


class SquaredTripletLoss(OrderAwareTripletLoss):
    """Squared triplet hinge with equal weights: "Squared Loss" in the paper's ablation.

    Other values of `gamma` are those of the paper's last figure.
    """

    def __init__(
        self, *, margin: float | None = None, gamma: float = 2.0, reduction: str = "active"
    ) -> None:
        super().__init__(margin=margin, gamma=gamma, weighting="none", reduction=reduction)


class OrderAwareLinearTripletLoss(OrderAwareTripletLoss):
    """Triplet hinge with order-aware weights: "Order-aware Weight" in the paper's ablation."""

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
