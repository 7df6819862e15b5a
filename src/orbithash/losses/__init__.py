"""Deep methods: losses that train a network, by name."""

from torch import nn

from orbithash.losses.order_aware import OrderAwareTripletLoss
from orbithash.losses.triplet import OrderAwareLinearTripletLoss, SquaredTripletLoss, TripletLoss

__all__ = [
    "LOSSES",
    "OrderAwareLinearTripletLoss",
    "OrderAwareTripletLoss",
    "SquaredTripletLoss",
    "TripletLoss",
]

LOSSES: dict[str, type[nn.Module]] = {
    "order-aware": OrderAwareTripletLoss,
    "order-aware-linear": OrderAwareLinearTripletLoss,
    "triplet": TripletLoss,
    "triplet-squared": SquaredTripletLoss,
}
