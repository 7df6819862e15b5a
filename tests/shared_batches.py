"""Short trainings of tiny networks, with batches divided among several processes."""

import os
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from orbithash.data import ImageFiles
from orbithash.networks import PhotoBackbone, View


def three_steps(environment: dict[str, str], labels_per_image: str, out: Path) -> None:
    """Train, and write the losses of all steps, the last gradients and the weights to a file."""
    os.environ |= environment
    torch.set_num_threads(1)
    from orbithash.data import ShuffledBatches
    from orbithash.losses import LookLoss, OrderAwareTripletLoss
    from orbithash.training import (
        TensorBatches,
        TrainingSettings,
        joined_processes,
        single_views,
        train_network,
    )

    torch.manual_seed(0)
    inputs = torch.rand(27, 6)
    labels = torch.rand(27, 4) < 0.4 if labels_per_image == "several" else torch.arange(27) % 3
    teacher = labels_per_image == "one, and a teacher"
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Sigmoid())
    loss = LookLoss(OrderAwareTripletLoss(), 5) if teacher else OrderAwareTripletLoss()
    losses = []
    loss.register_forward_hook(lambda module, arguments, value: losses.append(value.detach()))
    # With nine images, the parts of two processes differ in size.
    settings = TrainingSettings(
        epochs=1, batch_size=9, optimizer="sgd", learning_rate=0.1, memory=5
    )
    with joined_processes() as processes:
        batches = ShuffledBatches(27, 9)
        source = TensorBatches(single_views(inputs), labels, batches, processes, teacher)
        train_network(network, loss, source, settings, processes=processes)
    results = {"losses": torch.stack(losses)}
    for name, parameter in network.named_parameters():
        results[f"gradient of {name}"] = parameter.grad.clone()
        results[name] = parameter.detach()
    save_file(results, out)


class Patches(PhotoBackbone):
    """A backbone with optional batch normalisation; dropout would differ between processes."""

    n_features = 64
    view = View(resize=16, crop=16)

    def __init__(self, normalised: bool) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 4, kernel_size=4, stride=4)
        self.normalised = torch.nn.BatchNorm2d(4) if normalised else torch.nn.Identity()

    def forward(self, images):
        return self.normalised(self.patches(images / 255)).relu().flatten(1)


def two_epochs_on_images(
    environment: dict[str, str], arguments: tuple[ImageFiles, bool], out: Path
) -> None:
    """Fine-tune, and write every epoch's loss and validation score and the weights to a file."""
    os.environ |= environment
    torch.set_num_threads(1)
    from orbithash.training import IMAGE_PRESETS, as_method, joined_processes, train_on_images

    settings = replace(
        IMAGE_PRESETS["default"], epochs=2, batch_size=9, images_per_class=3, validate_every=1
    )
    torch.manual_seed(0)
    images, normalised = arguments
    with joined_processes() as processes:
        encoder, history = train_on_images(
            images,
            Patches(normalised),
            as_method("order-aware"),
            8,
            settings,
            n_workers=0,
            processes=processes,
        )
    scores = [[epoch.loss, epoch.validation_map] for epoch in history]
    parts = {"backbone": encoder.backbone, "head": encoder.head.network}
    results = {
        f"{part}.{name}": weight.contiguous()
        for part, module in parts.items()
        for name, weight in module.state_dict().items()
    }
    save_file({"scores": torch.tensor(scores), **results}, out)
