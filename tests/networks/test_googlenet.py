import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from orbithash.networks.googlenet import GoogLeNet, max_pool, normalise_across_channels

BLOCKS = ["3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"]


@pytest.fixture(scope="module")
def network() -> GoogLeNet:
    torch.manual_seed(0)
    network = GoogLeNet().eval()
    for parameter in network.parameters():
        # Large enough that activations do not vanish and the normalisation has an effect.
        if parameter.ndim == 4:
            nn.init.kaiming_normal_(parameter, nonlinearity="relu")
        else:
            nn.init.normal_(parameter)
    return network


def test_weights_have_the_names_of_bvlcs_layers(network):
    names = {name for name in network.state_dict() if name.endswith(".weight")}
    expected = {f"conv{number}.conv.weight" for number in (1, 2, 3)}
    branches = ["branch1", "branch2.0", "branch2.1", "branch3.0", "branch3.1", "branch4.1"]
    expected |= {f"inception{b}.{branch}.conv.weight" for b in BLOCKS for branch in branches}
    assert names == expected
    assert set(network.state_dict()) == expected | {
        name.replace(".weight", ".bias") for name in expected
    }


def test_the_number_of_parameters_is_bvlcs_without_the_classifier(network):
    # 6,998,552 in BVLC's network, of which the classifier has 1000 × 1025.
    assert sum(weight.numel() for weight in network.parameters()) == 6_998_552 - 1_025_000
    assert network.inception3a.branch3[1].conv.kernel_size == (5, 5)


def test_an_image_of_224_pixels_gives_a_7_by_7_map_of_1024_features(network):
    images = torch.rand(1, 3, 224, 224) * 255
    with torch.inference_mode():
        assert network.feature_map(images).shape == (1, 1024, 7, 7)
        assert network(images).shape == (1, GoogLeNet.n_features)


def test_features_equal_a_functional_forward_pass(network):
    images = torch.rand(1, 3, 75, 75) * 255
    with torch.inference_mode():
        torch.testing.assert_close(
            network(images), functional_forward(network.state_dict(), images), rtol=1e-3, atol=1e-3
        )


def test_channels_last_gives_the_same_features(network):
    images = torch.rand(2, 3, 64, 64) * 255
    with torch.inference_mode():
        expected = network(images)
        channels_last = network(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(channels_last, expected, rtol=1e-3, atol=1e-3)


def test_pooling_rounds_the_output_size_up():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    # Windows 0-2 and 2-3: the border cuts off the second one.
    assert max_pool(x).tolist() == [[[[10.0, 11.0], [14.0, 15.0]]]]


def test_normalisation_divides_by_the_mean_square_of_five_channels():
    x = np.random.default_rng(0).normal(scale=300, size=(2, 7, 2, 3))
    expected = np.empty_like(x)
    for n, c, i, j in np.ndindex(x.shape):
        nearest = x[n, max(0, c - 2) : c + 3, i, j]
        expected[n, c, i, j] = x[n, c, i, j] / (1 + 1e-4 * (nearest**2).sum() / 5) ** 0.75
    np.testing.assert_allclose(normalise_across_channels(torch.from_numpy(x)), expected)


def test_gradcheck_passes_for_the_normalisation():
    x = torch.randn(1, 6, 2, 2, dtype=torch.float64) * 100
    assert torch.autograd.gradcheck(normalise_across_channels, x.requires_grad_())


def functional_forward(weights: dict[str, torch.Tensor], rgb: torch.Tensor) -> torch.Tensor:
    """Reimplement BVLC's network with torch's normalisation and without modules."""

    def conv(x, name, **options):
        weight, bias = weights[f"{name}.conv.weight"], weights[f"{name}.conv.bias"]
        return functional.conv2d(x, weight, bias, **options).relu()

    def pool(x):
        return functional.max_pool2d(x, 3, 2, ceil_mode=True)

    def normalise(x):
        return functional.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)

    def inception(x, name):
        three = conv(conv(x, f"{name}.branch2.0"), f"{name}.branch2.1", padding=1)
        five = conv(conv(x, f"{name}.branch3.0"), f"{name}.branch3.1", padding=2)
        pooled = functional.max_pool2d(x, 3, 1, padding=1)
        return torch.cat(
            [conv(x, f"{name}.branch1"), three, five, conv(pooled, f"{name}.branch4.1")], 1
        )

    red, green, blue = rgb.unbind(1)
    x = torch.stack([blue - 104, green - 117, red - 123], 1)
    x = normalise(pool(conv(x, "conv1", stride=2, padding=3)))
    x = pool(normalise(conv(conv(x, "conv2"), "conv3", padding=1)))
    for block in BLOCKS:
        x = inception(x, f"inception{block}")
        if block in ("3b", "4e"):
            x = pool(x)
    return x.mean((2, 3))
