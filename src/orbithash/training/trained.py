"""An encoder and how it came about."""

from dataclasses import dataclass

from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.training.epoch import Epoch


@dataclass(frozen=True)
class Trained:
    """An encoder and how it came about; a hasher has no epochs."""

    encoder: FeatureEncoder | ImageEncoder
    history: tuple[Epoch, ...]
    seconds: float

    def best_epoch(self) -> Epoch | None:
        """The epoch whose weights were kept: the best that was validated, or else the last."""
        validated = [epoch for epoch in self.history if epoch.validation_map is not None]
        if validated:
            return max(validated, key=lambda epoch: epoch.validation_map or 0.0)
        return self.history[-1] if self.history else None
