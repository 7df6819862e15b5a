from dataclasses import asdict

import numpy as np
import torch
from PIL import Image

from orbithash.data.transforms import view_of
from orbithash.networks import SmallCNN


def test_images_of_several_sizes_and_channels_are_accepted():
    for channels, size in [(1, 8), (3, 8), (3, 28)]:
        features = SmallCNN(channels)(torch.rand(2, channels, size, size))
        assert features.shape == (2, SmallCNN.n_features)


def test_an_enlarged_image_is_read_as_the_array_that_the_network_was_trained_on():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    enlarged = Image.fromarray(pixels).resize((64, 64), Image.Resampling.NEAREST)
    network = SmallCNN(3, size=8)
    np.testing.assert_array_equal(view_of(enlarged, **asdict(network.view)), pixels)
    assert SmallCNN(**network.arguments).view == network.view
    assert SmallCNN(3).arguments == {"channels": 3}
