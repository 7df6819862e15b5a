"""A few steps of a tiny network on batches that several processes share."""

import os
from pathlib import Path

import torch
from safetensors.torch import save_file


def three_steps(environment: dict[str, str], labels_per_image: str, out: Path) -> None:
    """Train, and write the losses of all steps, the last gradients and the weights to a file."""
    os.environ |= environment
    torch.set_num_threads(1)
    from orbithash.data import ShuffledBatches
    from orbithash.losses import LOSSES
    from orbithash.training import (
        TensorBatches,
        TrainingSettings,
        joined_processes,
        only_look,
        train,
    )

    torch.manual_seed(0)
    inputs = torch.rand(27, 6)
    labels = torch.arange(27) % 3 if labels_per_image == "one" else torch.rand(27, 4) < 0.4
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Sigmoid())
    loss = LOSSES["order-aware"]()
    losses = []
    loss.register_forward_hook(lambda module, given, value: losses.append(value.detach()))
    # Nine images: the two processes' shares differ.
    settings = TrainingSettings(
        epochs=1, batch_size=9, optimizer="sgd", learning_rate=0.1, memory=5
    )
    with joined_processes() as processes:
        source = TensorBatches(only_look(inputs), labels, ShuffledBatches(27, 9), processes)
        train(network, loss, source, settings, processes=processes)
    results = {"losses": torch.stack(losses)}
    for name, parameter in network.named_parameters():
        results[f"gradient of {name}"] = parameter.grad.clone()
        results[name] = parameter.detach()
    save_file(results, out)
