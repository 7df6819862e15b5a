"""Deep methods: losses that train a network, and their registry `LOSSES`."""

from torch import nn

from orbithash.losses.central_similarity import CentralSimilarityLoss
from orbithash.losses.deep_pairwise import DeepPairwiseLoss
from orbithash.losses.deep_supervised import DeepSupervisedLoss
from orbithash.losses.fast_average_precision import FastAveragePrecisionLoss
from orbithash.losses.hashnet import HashNetLoss
from orbithash.losses.look import LookLoss
from orbithash.losses.mining import HardNegativeTripletLoss, SemiHardTripletLoss
from orbithash.losses.nested import NestedLoss
from orbithash.losses.order_aware import OrderAwareTripletLoss
from orbithash.losses.orthogonal import OrthogonalTargetLoss
from orbithash.losses.proxies import ProxyOrderAwareTripletLoss
from orbithash.losses.smooth_average_precision import SmoothAveragePrecisionLoss
from orbithash.losses.tie_aware import TieAwareAveragePrecisionLoss, TieAwareNDCGLoss
from orbithash.losses.triplet import OrderAwareLinearTripletLoss, SquaredTripletLoss, TripletLoss

__all__ = [
    "LOSSES",
    "CentralSimilarityLoss",
    "DeepPairwiseLoss",
    "DeepSupervisedLoss",
    "FastAveragePrecisionLoss",
    "HardNegativeTripletLoss",
    "HashNetLoss",
    "LookLoss",
    "NestedLoss",
    "OrderAwareLinearTripletLoss",
    "OrderAwareTripletLoss",
    "OrthogonalTargetLoss",
    "ProxyOrderAwareTripletLoss",
    "SemiHardTripletLoss",
    "SmoothAveragePrecisionLoss",
    "SquaredTripletLoss",
    "TieAwareAveragePrecisionLoss",
    "TieAwareNDCGLoss",
    "TripletLoss",
]

LOSSES: dict[str, type[nn.Module]] = {
    "order-aware": OrderAwareTripletLoss,
    "order-aware-linear": OrderAwareLinearTripletLoss,
    "triplet": TripletLoss,
    "triplet-squared": SquaredTripletLoss,
    "triplet-hard-negative": HardNegativeTripletLoss,
    "triplet-semi-hard": SemiHardTripletLoss,
    "dsh": DeepSupervisedLoss,
    "dpsh": DeepPairwiseLoss,
    "hashnet": HashNetLoss,
    "csq": CentralSimilarityLoss,
    "orthohash": OrthogonalTargetLoss,
    "tie-aware-ap": TieAwareAveragePrecisionLoss,
    "tie-aware-ndcg": TieAwareNDCGLoss,
    "fast-ap": FastAveragePrecisionLoss,
    "smooth-ap": SmoothAveragePrecisionLoss,
    "order-aware-proxies": ProxyOrderAwareTripletLoss,
}
