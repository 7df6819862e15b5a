"""An encoder and how it came about."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.training.epoch import Epoch

Encoder = TypeVar("Encoder", bound=FeatureEncoder | ImageEncoder, covariant=True)


@dataclass(frozen=True)
class Trained(Generic[Encoder]):
    """An encoder and how it came about; a hasher has no epochs."""

    encoder: Encoder
    history: tuple[Epoch, ...]
    seconds: float

    def best_epoch(self) -> Epoch | None:
        """The epoch whose weights were kept: the best that was validated, or else the last."""
        validated = [epoch for epoch in self.history if epoch.validation_map is not None]
        if validated:
            return max(validated, key=lambda epoch: epoch.validation_map or 0.0)
        return self.history[-1] if self.history else None

    def outcome(self) -> dict[str, Any]:
        """What a run's scores.json holds: how training went, nothing of the queries."""
        best = self.best_epoch()
        return {
            "validation_map": best.validation_map if best else None,
            "best_epoch": best.number if best else None,
            "epochs": self.history[-1].number + 1 if self.history else 0,
            "seconds": round(self.seconds, 3),
        }
