"""A loss by labels with a term by a teacher's neighbours."""

import math

import pytest
import torch
from torch.testing import assert_close

from literal_loss import literal_loss
from loss_batches import assert_same_value_and_gradient, random_batch
from orbithash.errors import InputError
from orbithash.losses import (
    DeepSupervisedLoss,
    LookLoss,
    NestedLoss,
    OrderAwareTripletLoss,
    ProxyOrderAwareTripletLoss,
)
from orbithash.losses.teacher import neighbour_grades, takes_teacher
from orbithash.training.state import CountsTriplets


def teacher_of(n, seed=0):
    return torch.rand(n, 6, generator=torch.Generator().manual_seed(seed))


def literal_term(
    embeddings, labels, teacher, *, by_labels=None, margin=5 / 16, shares=(0.015, 0.04, 0.1)
):
    """The weighted mean of the squared hinges by the teacher, times the scale of the labels'."""
    of_look = literal_sums(
        embeddings, None, "ndcg", margin, neighbour_grades(teacher, None, shares)
    )
    scale = 1.0
    if by_labels is not None:
        of_labels = literal_sums(embeddings, labels, by_labels, embeddings.shape[1] / 8)
        scale = of_labels["weight"] / max(1, of_labels["active"])
    return scale * of_look["total"] / of_look["weight"]


def literal_sums(embeddings, labels, weighting, margin, grades=None):
    """Σ λ·hinge², Σ λ and the number of triplets within the margin, by a loop over triplets."""
    options = {"margin": margin, "gamma": 2, "weighting": weighting, "ties": "distance"}
    by = {
        reduction: literal_loss(embeddings, labels, **options, reduction=reduction, grades=grades)
        for reduction in ("sum", "weight", "active")
    }
    counts = {name: (by["sum"] / by[name]).item() for name in ("weight", "active")}
    return {"total": by["sum"], **counts}


@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
def test_the_term_by_the_teacher_has_the_scale_of_the_weights_by_labels(weighting, many_labels):
    embeddings, labels, _ = random_batch(n=12, many_labels=many_labels)
    teacher, loss = teacher_of(12), OrderAwareTripletLoss(weighting=weighting)
    assert_same_value_and_gradient(
        LookLoss(loss, weight=5)(embeddings, labels, teacher=teacher),
        loss(embeddings, labels)
        + 5 * literal_term(embeddings, labels, teacher, by_labels=weighting),
        embeddings,
    )


def test_beside_other_losses_the_term_by_the_teacher_is_not_scaled():
    embeddings, labels, _ = random_batch(n=12)
    teacher, loss = teacher_of(12), DeepSupervisedLoss()
    assert_same_value_and_gradient(
        LookLoss(loss, weight=5)(embeddings, labels, teacher=teacher),
        loss(embeddings, labels) + 5 * literal_term(embeddings, labels, teacher),
        embeddings,
    )


@pytest.mark.parametrize("reduction", ["sum", "mean", "active", "weight", "anchor"])
def test_the_weight_means_the_same_for_every_reduction_of_the_loss_by_labels(reduction):
    embeddings, labels, _ = random_batch(n=12)
    loss = OrderAwareTripletLoss(reduction=reduction)
    by_labels = loss(embeddings, labels)
    added = LookLoss(loss, weight=3)(embeddings, labels, teacher=teacher_of(12)) - by_labels
    expected = OrderAwareTripletLoss(reduction="weight")
    of_weight = expected(embeddings, labels)
    of_added = LookLoss(expected, weight=3)(embeddings, labels, teacher=teacher_of(12)) - of_weight
    assert_close(added / by_labels, of_added / of_weight, rtol=1e-10, atol=0)


def test_proxies_scale_the_term_by_the_teacher_too():
    embeddings, labels, _ = random_batch(n=12)
    loss = ProxyOrderAwareTripletLoss(n_classes=3, n_bits=5)
    teacher = teacher_of(12)
    by_labels = loss(embeddings, labels)
    assert_same_value_and_gradient(
        LookLoss(loss, weight=2)(embeddings, labels, teacher=teacher),
        by_labels + 2 * loss.weight_scale * literal_term(embeddings, labels, teacher),
        embeddings,
    )


def test_shares_and_margin_are_those_given():
    embeddings, labels, _ = random_batch(n=12, bits=8)
    teacher, loss = teacher_of(12), OrderAwareTripletLoss()
    given = {"margin": 4.0, "shares": (0.2, 0.6)}
    assert_same_value_and_gradient(
        LookLoss(loss, weight=2, margin_of_bits=1 / 2, shares=(0.2, 0.6))(
            embeddings, labels, teacher=teacher
        ),
        loss(embeddings, labels)
        + 2 * literal_term(embeddings, labels, teacher, by_labels="ap", **given),
        embeddings,
    )


def test_a_memory_lengthens_the_lists_of_both_terms():
    embeddings, labels, _ = random_batch(n=12)
    others, other_labels, _ = random_batch(n=9, seed=6)
    memory = torch.cat([others.detach(), embeddings.detach()[:4]])
    memory_labels = torch.cat([other_labels, labels[:4]])
    of_memory = {"ref_emb": memory, "ref_labels": memory_labels}
    teachers = {"teacher": teacher_of(12), "ref_teacher": teacher_of(13, seed=1)}
    loss = OrderAwareTripletLoss()
    by_teacher = OrderAwareTripletLoss(weighting="ndcg", margin=5 / 16, reduction="weight")
    by_labels = loss(embeddings, labels, **of_memory)
    assert_same_value_and_gradient(
        LookLoss(OrderAwareTripletLoss(), weight=5)(embeddings, labels, **of_memory, **teachers),
        by_labels + 5 * loss.weight_scale * by_teacher(embeddings, labels, **of_memory, **teachers),
        embeddings,
    )


def test_without_a_loss_by_labels_the_teacher_is_enough():
    embeddings, _, _ = random_batch(n=12)
    teacher = teacher_of(12)
    loss = LookLoss(None, weight=2)
    assert_same_value_and_gradient(
        loss(embeddings, teacher=teacher), 2 * literal_term(embeddings, None, teacher), embeddings
    )
    assert loss.n_triplets > 0


@pytest.mark.parametrize("with_memory", [False, True, "unlabelled"])
@pytest.mark.parametrize("many_labels", [False, True])
def test_images_without_labels_take_part_in_the_term_by_the_teacher_alone(many_labels, with_memory):
    embeddings, labels, _ = random_batch(n=14, many_labels=many_labels)
    memory, memory_labels, _ = random_batch(n=9, many_labels=many_labels, seed=6)
    memory, rows, memory_rows = memory.detach(), torch.arange(14) < 11, torch.arange(9) % 3 > 0
    if with_memory == "unlabelled":
        memory_rows[:] = False
    labels[~rows] = -1
    memory_labels[~memory_rows] = -1
    teacher, of_memory, kept, of_teacher = teacher_of(14), {}, {}, {}
    if with_memory:
        of_memory = {"ref_emb": memory, "ref_labels": memory_labels}
        if memory_rows.any():
            kept = {name: tensor[memory_rows] for name, tensor in of_memory.items()}
        of_teacher = {"ref_teacher": teacher_of(9, seed=1)}
    loss = OrderAwareTripletLoss()
    by_labels = loss(embeddings[rows], labels[rows], **kept)
    by_teacher = OrderAwareTripletLoss(weighting="ndcg", margin=5 / 16, reduction="weight")
    term = by_teacher(
        embeddings, ref_emb=memory if with_memory else None, teacher=teacher, **of_teacher
    )
    scale = loss.weight_scale
    assert_same_value_and_gradient(
        LookLoss(loss, weight=2)(embeddings, labels, teacher=teacher, **of_memory, **of_teacher),
        by_labels + 2 * scale * term,
        embeddings,
    )


def test_weight_0_leaves_the_loss_by_labels_as_it_is():
    embeddings, labels, _ = random_batch(n=12)
    loss = LookLoss(OrderAwareTripletLoss(), weight=0)
    assert loss(embeddings, labels) == OrderAwareTripletLoss()(embeddings, labels)
    assert not takes_teacher(loss)


def test_the_triplets_of_the_loss_by_labels_are_counted():
    embeddings, labels, _ = random_batch(n=12)
    by_labels = OrderAwareTripletLoss()
    loss = LookLoss(by_labels, weight=5)
    loss(embeddings, labels, teacher=teacher_of(12))
    assert isinstance(loss, CountsTriplets)
    assert (loss.n_triplets, loss.active_share) == (by_labels.n_triplets, by_labels.active_share)
    uncounted = LookLoss(DeepSupervisedLoss(), weight=5)
    uncounted(embeddings, labels, teacher=teacher_of(12))
    assert not isinstance(uncounted, CountsTriplets)


def test_only_losses_that_declare_it_are_given_a_teacher():
    assert takes_teacher(LookLoss(None, weight=1))
    assert not takes_teacher(OrderAwareTripletLoss())
    assert not takes_teacher(DeepSupervisedLoss())
    assert takes_teacher(NestedLoss({4: LookLoss(None, weight=1), 8: DeepSupervisedLoss()}))
    assert not takes_teacher(NestedLoss({4: OrderAwareTripletLoss()}))


def test_nested_losses_pass_the_teacher_to_those_that_take_one():
    embeddings, labels, _ = random_batch(n=12, bits=8)
    memory, memory_labels, _ = random_batch(n=9, bits=8, seed=6)
    memory = memory.detach()
    teachers = {"teacher": teacher_of(12), "ref_teacher": teacher_of(9, seed=1)}
    losses = {4: LookLoss(OrderAwareTripletLoss(), weight=5), 8: OrderAwareTripletLoss()}
    assert_same_value_and_gradient(
        NestedLoss(losses)(
            embeddings, labels, ref_emb=memory, ref_labels=memory_labels, **teachers
        ),
        losses[4](embeddings[:, :4], labels, memory[:, :4], memory_labels, **teachers)
        + losses[8](embeddings, labels, ref_emb=memory, ref_labels=memory_labels),
        embeddings,
    )


def test_gradcheck_passes():
    embeddings, labels, _ = random_batch(n=9)
    loss = LookLoss(OrderAwareTripletLoss(margin=0.7), weight=5, margin_of_bits=1 / 4)
    torch.autograd.gradcheck(lambda e: loss(e, labels, teacher=teacher_of(9)), embeddings)


def test_a_missing_teacher_is_named():
    with pytest.raises(InputError, match="needs a teacher; pass teacher="):
        LookLoss(OrderAwareTripletLoss(), weight=5)(torch.rand(4, 8), torch.arange(4) % 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1}, "weight is -1; give a finite number"),
        ({"weight": math.nan}, "weight is nan"),
        ({"weight": 1, "margin_of_bits": 0}, "margin_of_bits is 0; give a number above 0"),
        ({"weight": 1, "shares": (2.0,)}, "shares must be parts of a list"),
        ({"loss": None, "weight": 0}, "above 0 without a loss by labels"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        LookLoss(**({"loss": OrderAwareTripletLoss()} | options))
