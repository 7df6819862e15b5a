"""GoogLeNet, the paper's network, as the Berkeley Vision and Learning Center trained it.

Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, in the form that BVLC published for
Caffe: true 5 × 5 convolutions, local response normalisation, a bias in every convolution, no batch
normalisation, and pools that round their size up. The two auxiliary classifiers are left out.
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

    Takes RGB images with values 0 … 255. That the network was trained on blue, green, red minus a
    mean is its own affair: it is the first step here, so nobody can forget it, and it stays inside
    wherever the network goes.
    """

    n_features = 1024
    view = View(resize=256, crop=224)
    weights_source = (
        "a safetensors file of BVLC's Caffe model bvlc_googlenet, with the names of this class"
    )
    # The 1000-way ImageNet classifier is in the file of weights but is no part of the backbone.
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
        """The features of each place of the image: 7 × 7 of them for 224 pixels."""
        x = images.flip(1) - self.mean
        x = normalise_across_channels(halve(self.conv1(x)))
        x = halve(normalise_across_channels(self.conv3(self.conv2(x))))
        x = halve(self.inception3b(self.inception3a(x)))
        x = self.inception4c(self.inception4b(self.inception4a(x)))
        x = halve(self.inception4e(self.inception4d(x)))
        features: Tensor = self.inception5b(self.inception5a(x))
        return features


class Convolution(nn.Module):
    """A convolution that keeps the image's size (up to its stride), and a ReLU."""

    def __init__(self, inputs: int, outputs: int, *, kernel_size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel_size, stride, padding=kernel_size // 2)

    def forward(self, x: Float[Tensor, "n _ _ _"]) -> Float[Tensor, "n _ _ _"]:
        result: Tensor = self.conv(x)
        return result.relu_()


class Inception(nn.Module):
    """Four views of the same input, side by side: 1 × 1, 3 × 3, 5 × 5, and its local maxima.

    The pairs are the channels of a 1 × 1 convolution that makes the large one cheap, and of that.
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


def halve(x: Float[Tensor, "n channels _ _"]) -> Float[Tensor, "n channels _ _"]:
    """Maxima of 3 × 3 places, every other one; Caffe rounds the size up."""
    return functional.max_pool2d(x, kernel_size=3, stride=2, ceil_mode=True)


def normalise_across_channels(
    x: Float[Tensor, "n channels rows columns"],
) -> Float[Tensor, "n channels rows columns"]:
    """Divide by (1 + 0.0001 · the mean square of the five nearest channels) ^ 0.75.

    Beyond the first and the last channel the squares count as 0. The same numbers as torch's
    `local_response_norm` in a third of its time: the sum over neighbours is a 1 × 1 convolution.
    """
    normalised: Tensor = AcrossChannels.apply(x)  # type: ignore[no-untyped-call]
    return normalised


class AcrossChannels(torch.autograd.Function):
    """The normalisation, with its gradient written out.

    The one that autograd makes of these operations takes four times as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        base = functional.conv2d(x * x, neighbours(x), bias=torch.ones_like(x[0, :, 0, 0]))
        # base ^ 0.75 from square roots, which processors have; powers they have not.
        root = base.sqrt()
        divisor = root * root.sqrt()
        ctx.save_for_backward(x, base, divisor)
        return x / divisor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, base, divisor = ctx.saved_tensors
        direct: Tensor = gradients[0] / divisor
        # Every x is in its neighbours' bases too: 2 · 0.75 · x · the sum of what they pass on.
        passed_on = functional.conv2d(direct * x / base, neighbours(x))
        return direct.addcmul_(x, passed_on, value=-1.5)


def neighbours(x: Float[Tensor, "n channels _ _"]) -> Float[Tensor, "channels channels 1 1"]:
    """The 1 × 1 convolution that adds up 0.0001 / 5 of each of the five nearest channels."""
    channel = torch.arange(x.shape[1], device=x.device)
    nearest = (channel[:, None] - channel).abs() <= 2
    return (nearest * (1e-4 / 5)).to(x)[:, :, None, None]
