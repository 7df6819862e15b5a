"""The sum of the losses of every prefix, against a literal sum."""

import pytest
import torch

from loss_batches import assert_same_value_and_gradient, random_batch
from orbithash.errors import InputError
from orbithash.losses import (
    CentralSimilarityLoss,
    DeepSupervisedLoss,
    NestedLoss,
    OrderAwareTripletLoss,
)
from orbithash.losses.nested import length_weights
from orbithash.training.state import CountsTriplets


def test_the_loss_is_the_weighted_sum_of_the_losses_of_the_prefixes():
    embeddings, labels, _ = random_batch(bits=12)
    losses = {4: DeepSupervisedLoss(), 12: DeepSupervisedLoss(margin=9.0)}
    weighted = NestedLoss(losses, weights={4: 3.0, 12: 0.5})(embeddings, labels)
    literal = 3 * losses[4](embeddings[:, :4], labels) + 0.5 * losses[12](embeddings, labels)
    assert_same_value_and_gradient(weighted, literal, embeddings)


def test_without_weights_those_of_the_lengths_are_used():
    embeddings, labels, _ = random_batch(bits=12)
    nested = NestedLoss({4: DeepSupervisedLoss(), 12: DeepSupervisedLoss()})
    weights = length_weights((4, 12))
    assert_same_value_and_gradient(
        nested(embeddings, labels),
        sum(weights[n] * DeepSupervisedLoss()(embeddings[:, :n], labels) for n in (4, 12)),
        embeddings,
    )


def test_a_memory_is_cut_to_each_prefix():
    embeddings, labels, _ = random_batch(bits=12)
    memory, memory_labels, _ = random_batch(bits=12, seed=6)
    memory = memory.detach()
    nested = NestedLoss(
        {n: OrderAwareTripletLoss() for n in (4, 12)}, weights=dict.fromkeys((4, 12), 1.0)
    )
    assert_same_value_and_gradient(
        nested(embeddings, labels, ref_emb=memory, ref_labels=memory_labels),
        sum(
            OrderAwareTripletLoss()(
                embeddings[:, :n], labels, ref_emb=memory[:, :n], ref_labels=memory_labels
            )
            for n in (4, 12)
        ),
        embeddings,
    )


def test_triplets_are_counted_over_all_lengths_if_the_losses_count_them():
    embeddings, labels, _ = random_batch(bits=12)
    losses = {n: OrderAwareTripletLoss() for n in (4, 12)}
    nested = NestedLoss(losses)
    nested(embeddings, labels)
    assert isinstance(nested, CountsTriplets)
    assert nested.n_triplets == losses[4].n_triplets + losses[12].n_triplets > 0
    assert nested.active_share == (losses[4].active_share + losses[12].active_share) / 2
    uncounted = NestedLoss({n: DeepSupervisedLoss() for n in (4, 12)})
    uncounted(embeddings, labels)
    assert not isinstance(uncounted, CountsTriplets)


def test_the_state_of_every_loss_is_saved_under_its_length():
    losses = {n: CentralSimilarityLoss(n_classes=3, n_bits=n) for n in (4, 12)}
    state = NestedLoss(losses).state_dict()
    assert state.keys() == {"losses.4.centers", "losses.12.centers"}
    assert state["losses.4.centers"].shape == (3, 4)


@pytest.mark.parametrize("losses", [{}, {8: DeepSupervisedLoss()}])
def test_weights_must_be_those_of_the_losses(losses):
    with pytest.raises(InputError, match="a weight for each"):
        NestedLoss(losses, weights={4: 1.0} if losses else None)


def test_embeddings_of_another_length_are_refused():
    with pytest.raises(InputError, match=r"got embeddings of 5 bits; the longest .* is for 8"):
        NestedLoss({8: DeepSupervisedLoss()})(torch.rand(3, 5), torch.arange(3))
