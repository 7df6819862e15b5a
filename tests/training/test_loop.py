import numpy as np
import pytest
import torch
from torch import nn

from orbithash.data import ShuffledBatches
from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.training import (
    Hooks,
    TensorBatches,
    TrainingSettings,
    single_views,
    train_network,
)
from orbithash.training.optimization import scheduled_rate, warmed_up


class TowardsLabels(nn.Module):
    """A loss with an obvious answer: the first output is the label."""

    def forward(self, embeddings, labels):
        return (embeddings[:, 0] - labels).square().mean()


def problem(seed: int = 0):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.Sigmoid())
    images = torch.rand(40, 1, 4, 4)
    return network, images, (images[:, 0, 0, 0] > 0.5).long()


def run(epochs: int = 30, **options):
    network, images, labels = problem()
    settings = TrainingSettings(epochs=epochs, learning_rate=0.05, weight_decay=0.0)
    batches = ShuffledBatches(40, 10)
    history = train_network(
        network,
        TowardsLabels(),
        TensorBatches(single_views(images), labels, batches),
        settings,
        **options,
    )
    return network, history


def test_training_lowers_the_loss():
    _, history = run()
    assert history[-1].loss < history[0].loss / 2


def test_the_same_start_and_batches_give_the_same_network():
    first, _ = run()
    again, _ = run()
    for left, right in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(left, right)


def test_after_epoch_sees_every_epoch_in_order():
    seen = []
    _, history = run(epochs=3, hooks=Hooks(after_epoch=seen.append))
    assert [epoch.number for epoch in seen] == [0, 1, 2]
    assert seen == history


def test_the_learning_rate_falls_from_its_full_value_towards_0():
    settings = TrainingSettings(epochs=10, learning_rate=0.1)
    rates = [scheduled_rate(settings, epoch) for epoch in range(10)]
    assert rates[0] == 0.1
    assert np.all(np.diff(rates) < 0)
    assert 0 < rates[-1] < 0.01


def test_a_loss_that_is_no_longer_a_number_stops_the_training():
    class Broken(nn.Module):
        def forward(self, embeddings, labels):
            return embeddings.sum() * float("nan")

    network, images, labels = problem()
    settings = TrainingSettings(epochs=1, learning_rate=0.1)
    with pytest.raises(InputError, match="train with a lower rate"):
        train_network(
            network,
            Broken(),
            TensorBatches(single_views(images), labels, ShuffledBatches(40, 10)),
            settings,
        )


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"learning_rate": 0.0}, {"learning_rate": float("nan")}]
)
def test_settings_that_cannot_train_are_refused(wrong):
    with pytest.raises(InputError):
        TrainingSettings(**{"epochs": 1, "learning_rate": 0.1, **wrong})


def test_the_rate_grows_while_warming_up():
    rates = [warmed_up(0.4, step, warmup_steps=4) for step in range(6)]
    np.testing.assert_allclose(rates, [0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert warmed_up(0.4, 0, warmup_steps=0) == 0.4


def test_a_gradient_is_clipped_to_the_length_asked_for():
    network, images, labels = problem()
    start = [parameter.clone() for parameter in network.parameters()]
    settings = TrainingSettings(
        epochs=1, learning_rate=1.0, optimizer="sgd", weight_decay=0.0, clip=1e-3
    )
    batches = ShuffledBatches(40, 40)
    source = TensorBatches(single_views(images), labels, batches)
    train_network(network, TowardsLabels(), source, settings)
    moved = [p - before for p, before in zip(network.parameters(), start, strict=True)]
    length = sum(part.square().sum() for part in moved).sqrt().item()
    assert length == pytest.approx(1e-3, rel=1e-3)


def test_after_step_is_told_how_far_training_is():
    told = []
    run(epochs=2, hooks=Hooks(after_step=lambda epochs, loss: told.append(epochs)))
    np.testing.assert_allclose(told, np.arange(1, 9) / 4)


def test_an_epoch_without_any_triplet_is_warned_of(caplog):
    network, images, labels = problem()
    settings = TrainingSettings(epochs=1)
    for those, warnings in ((torch.zeros_like(labels), 1), (labels, 0)):
        caplog.clear()
        source = TensorBatches(single_views(images), those, ShuffledBatches(40, 10))
        train_network(network, LOSSES["triplet"](), source, settings)
        assert caplog.text.count("held a triplet") == warnings
