"""Train on arrays of feature vectors, and on a torch Dataset of images."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import orbithash

digits = load_digits()
features, labels = digits.data, digits.target  # vectors of any network; here 64 pixels
encoder = orbithash.train((features[::2], labels[::2]), bits=32, epochs=20)
scores = orbithash.evaluate(encoder, (features[1::2], labels[1::2]))  # each against all others
print(f"features: MAP {scores.map:.4f}")

images = torch.tensor(digits.images / 16).unsqueeze(1)  # (n, channels, height, width) in [0, 1]
dataset = TensorDataset(images, torch.tensor(labels))  # or any other Dataset of (image, label)
encoder = orbithash.train(dataset, bits=32, backbone="small-cnn", epochs=3, workers=0)
for epoch in encoder.history:
    print(f"images: epoch {epoch.number + 1}, loss {epoch.loss:.4f}")
