"""GoogLeNet, the paper's backbone, as trained by the Berkeley Vision and Learning Center (BVLC).

Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, in BVLC's variant for Caffe: true 5 × 5
convolutions, local response normalisation, a bias in every convolution, no batch normalisation,
and pooling that rounds the output size up. The two auxiliary classifiers are omitted.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from orbithash.networks.backbones import PhotoBackbone, View


class GoogLeNet(PhotoBackbone):
    """GoogLeNet with BVLC's ImageNet weights: 1,024 features of a photograph (Szegedy 2015).

    Takes RGB images with values 0 … 255. The weights expect BGR minus a mean; `forward` does this
    conversion, so callers and exported networks cannot omit it.
    """

    n_features = 1024
    view = View(resize=256, crop=224)
    weights_source = "a safetensors file of BVLC's Caffe model bvlc_googlenet, with our key names"
    # The ImageNet classifier is in the weights file but not in the backbone.
    unused_weights = frozenset({"fc.weight", "fc.bias"})

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        blue_green_red = torch.tensor([104.0, 117.0, 123.0]).reshape(3, 1, 1)
        self.register_buffer("mean", blue_green_red, persistent=False)
        self.conv1 = Convolution(3, 64, kernel_size=7, stride=2)
        self.conv2 = Convolution(64, 64, kernel_size=1)
        self.conv3 = Convolution(64, 192, kernel_size=3)
        self.inception3a = Inception(192, 64, (96, 128), (16, 32), 32)
        self.inception3b = Inception(256, 128, (128, 192), (32, 96), 64)
        self.inception4a = Inception(480, 192, (96, 208), (16, 48), 64)
        self.inception4b = Inception(512, 160, (112, 224), (24, 64), 64)
        self.inception4c = Inception(512, 128, (128, 256), (24, 64), 64)
        self.inception4d = Inception(512, 112, (144, 288), (32, 64), 64)
        self.inception4e = Inception(528, 256, (160, 320), (32, 128), 128)
        self.inception5a = Inception(832, 256, (160, 320), (32, 128), 128)
        self.inception5b = Inception(832, 384, (192, 384), (48, 128), 128)

    def forward(
        self, images: Float[Tensor, "n 3 height width"]
    ) -> Float[Tensor, "n {self.n_features}"]:
        return self.feature_map(images).mean(dim=(2, 3))

    def feature_map(
        self, images: Float[Tensor, "n 3 height width"]
    ) -> Float[Tensor, "n {self.n_features} rows columns"]:
        """Return the feature map before pooling: 7 × 7 positions for 224 pixels."""
        x = images.flip(1) - self.mean
        x = normalise_across_channels(max_pool(self.conv1(x)))
        x = max_pool(normalise_across_channels(self.conv3(self.conv2(x))))
        x = max_pool(self.inception3b(self.inception3a(x)))
        x = self.inception4c(self.inception4b(self.inception4a(x)))
        x = max_pool(self.inception4e(self.inception4d(x)))
        features: Tensor = self.inception5b(self.inception5a(x))
        return features


class Convolution(nn.Module):
    """A convolution with "same" padding and a ReLU."""

    def __init__(self, inputs: int, outputs: int, *, kernel_size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel_size, stride, padding=kernel_size // 2)

    def forward(self, x: Float[Tensor, "n _ _ _"]) -> Float[Tensor, "n _ _ _"]:
        result: Tensor = self.conv(x)
        return result.relu_()


class Inception(nn.Module):
    """Four parallel branches, concatenated: 1 × 1, 3 × 3 and 5 × 5 convolutions, and max pooling.

    `threes` and `fives` are (channels of the 1 × 1 reduction, channels of the convolution).
    """

    def __init__(
        self, inputs: int, ones: int, threes: tuple[int, int], fives: tuple[int, int], pooled: int
    ) -> None:
        super().__init__()
        self.branch1 = Convolution(inputs, ones, kernel_size=1)
        self.branch2 = nn.Sequential(
            Convolution(inputs, threes[0], kernel_size=1), Convolution(*threes, kernel_size=3)
        )
        self.branch3 = nn.Sequential(
            Convolution(inputs, fives[0], kernel_size=1), Convolution(*fives, kernel_size=5)
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1), Convolution(inputs, pooled, kernel_size=1)
        )

    def forward(self, x: Float[Tensor, "n _ _ _"]) -> Float[Tensor, "n _ _ _"]:
        branches = [self.branch1, self.branch2, self.branch3, self.branch4]
        return torch.cat([branch(x) for branch in branches], dim=1)


def max_pool(x: Float[Tensor, "n channels _ _"]) -> Float[Tensor, "n channels _ _"]:
    """Max pooling, 3 × 3 with stride 2; like Caffe, it rounds the output size up."""
    return functional.max_pool2d(x, kernel_size=3, stride=2, ceil_mode=True)


def normalise_across_channels(
    x: Float[Tensor, "n channels rows columns"],
) -> Float[Tensor, "n channels rows columns"]:
    """Local response normalisation: x / (1 + 1e-4 · mean square of five channels) ^ 0.75.

    The five channels are centred on x; missing ones count as 0. The result equals torch's
    `local_response_norm` in a third of the time: the sum over channels is a 1 × 1 convolution.
    """
    normalised: Tensor = LocalResponseNorm.apply(x)  # type: ignore[no-untyped-call]
    return normalised


class LocalResponseNorm(torch.autograd.Function):
    """The normalisation with an explicit gradient, four times as fast as autograd's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        base = functional.conv2d(x * x, channel_window(x), bias=torch.ones_like(x[0, :, 0, 0]))
        # base ^ 0.75 from square roots, which are CPU instructions; powers are not.
        root = base.sqrt()
        divisor = root * root.sqrt()
        ctx.save_for_backward(x, base, divisor)
        return x / divisor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, base, divisor = ctx.saved_tensors
        direct: Tensor = gradients[0] / divisor
        # Every x is also in the bases of its neighbours: −2 · 0.75 · x · Σ of their terms.
        indirect = functional.conv2d(direct * x / base, channel_window(x))
        return direct.addcmul_(x, indirect, value=-1.5)


def channel_window(x: Float[Tensor, "n channels _ _"]) -> Float[Tensor, "channels channels 1 1"]:
    """Return a 1 × 1 convolution kernel that sums 1e-4 / 5 times the five nearest channels."""
    channel = torch.arange(x.shape[1], device=x.device)
    nearest = (channel[:, None] - channel).abs() <= 2
    return (nearest * (1e-4 / 5)).to(x)[:, :, None, None]
