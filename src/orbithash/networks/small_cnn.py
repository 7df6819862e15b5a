"""A small network for tiny images, trained from scratch."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from orbithash.networks.backbones import PhotoBackbone, View


class SmallCNN(PhotoBackbone):
    """Two convolutions and a hidden layer, for images of 8 × 8 to 32 × 32 pixels; from scratch.

    Values may have any scale: batch normalisation follows the first convolution. `size` is the side
    of the images in pixels if it is trained on arrays; image files are averaged down to it.
    """

    n_features = 128
    view = View(resize=32, crop=32)
    weights_source = "those of a run, because it is trained from scratch"
    from_scratch = True

    def __init__(self, channels: int = 1, size: int | None = None) -> None:
        super().__init__()
        self.channels, self.size = channels, size
        if size is not None:
            self.view = View(resize=size, crop=size, interpolation="box")
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, kernel_size=3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            # 4 × 4 for any size of image, so that the hidden layer fits.
            nn.AdaptiveMaxPool2d(4),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            # Datasets of tiny images are often small. This much suits training on random views of
            # them; without views, more dropout is better.
            nn.Dropout(0.1),
            nn.Linear(32 * 4 * 4, self.n_features),
            nn.ReLU(),
            nn.Dropout(0.1),
        )

    @property
    def arguments(self) -> dict[str, Any]:
        size = {} if self.size is None else {"size": self.size}
        return {"channels": self.channels, **size}

    def forward(
        self, images: Float[Tensor, "n channels height width"]
    ) -> Float[Tensor, "n {self.n_features}"]:
        features: Tensor = self.layers(images)
        return features
