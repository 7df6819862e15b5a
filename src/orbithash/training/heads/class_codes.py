"""The start of class codes: fitted to the training features and their views, before training."""

import numpy as np
import torch
from jaxtyping import Float32, Int64

from orbithash.hashers.discriminant_quantization import (
    DiscriminantQuantization,
    whitening_matrix,
    within_class_scatter,
)
from orbithash.networks import ClassCodeHead, power_normalized
from orbithash.training.batches import InputViews
from orbithash.training.methods import TrainingPlan
from orbithash.training.optimization import ParameterGroup

MAX_START_ROWS = 1 << 15  # images, and views as far as there is room, from which class codes start


def labelled_views(
    views: InputViews, plan: TrainingPlan
) -> tuple[Float32[torch.Tensor, "m d"], Int64[np.ndarray, " m"]]:
    """Return the images with labels and their further views, and the label of each.

    The images come first. Of the views of many images, every second or third is enough.
    """
    n = plan.n_labelled
    owners = np.repeat(np.arange(n), views.count[:n])
    room = max(MAX_START_ROWS - n, 0)
    kept = np.arange(len(owners))[:: -(-len(owners) // room) or 1] if room else np.arange(0)
    inputs = torch.cat([views.inputs[:n], views.further[torch.from_numpy(kept)].float()])
    return inputs, plan.labels[np.concatenate([np.arange(n), owners[kept]])]


def fit_class_codes(
    head: ClassCodeHead,
    inputs: Float32[torch.Tensor, "n d"],
    labels: Int64[np.ndarray, " n"],
    *,
    n_images: int,
    seed: int,
) -> None:
    """Start the head from LDA-ITQ of the training features, and from the means of the classes."""
    features = power_normalized(inputs).numpy()
    quantization = DiscriminantQuantization(head.n_bits, random_state=seed)
    quantization.fit(features, labels)
    members = labels[:, None] == np.arange(head.n_classes)
    scatter = within_class_scatter(features - quantization.mean_, members)
    whitening = whitening_matrix(scatter, quantization.shrinkage)
    head.fit_start(
        inputs,
        torch.from_numpy(labels),
        center=torch.from_numpy(quantization.mean_).float(),
        whitening=torch.from_numpy(whitening).float(),
        projection=torch.from_numpy(quantization.projection_).float(),
        n_images=n_images,
    )


def weights_and_scalars(network: torch.nn.Module) -> list[ParameterGroup]:
    """Return matrices, which decay, apart from biases and single numbers, which do not."""
    return [
        ParameterGroup(
            tuple(p for p in network.parameters() if (p.ndim > 1) == decays), decays=decays
        )
        for decays in (True, False)
    ]
