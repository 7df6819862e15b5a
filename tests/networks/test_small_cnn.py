import torch

from orbithash.networks import SmallCNN


def test_images_of_several_sizes_and_channels_are_accepted():
    for channels, size in [(1, 8), (3, 8), (3, 28)]:
        features = SmallCNN(channels)(torch.rand(2, channels, size, size))
        assert features.shape == (2, SmallCNN.n_features)
