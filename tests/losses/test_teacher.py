"""The order-aware loss over given grades, or those of a teacher, against the literal loop."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from literal_loss import literal_loss
from orbithash.errors import InputError
from orbithash.losses import OrderAwareTripletLoss, order_aware
from orbithash.losses.batch import pairs
from orbithash.losses.teacher import neighbour_grades

PATHS = ["compiled", "tensors"]
REDUCTIONS = ["sum", "mean", "active", "weight", "anchor"]
GRADES = ["integers", "floats", "all different"]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Compute the loss with the compiled kernels, or with tensor operations."""
    if request.param == "tensors":
        for module in (order_aware, pairs):
            monkeypatch.setattr(module, "uses_kernels", lambda device: False)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
@pytest.mark.parametrize("kind", GRADES)
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_loss_and_gradient_equal_the_literal_triple_loop(gamma, kind, weighting):
    embeddings, grades = random_embeddings(9), random_grades(9, 9, kind)
    options = {"gamma": gamma, "weighting": weighting, "reduction": "sum"}
    assert_as_literal(embeddings, None, grades, **options)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighting", ["ndcg", "none"])
def test_each_reduction_divides_by_its_divisor(weighting, reduction):
    embeddings, grades = random_embeddings(8), random_grades(8, 8, "integers")
    options = {"gamma": 2.0, "weighting": weighting, "reduction": reduction}
    assert_as_literal(embeddings, None, grades, **options)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("labels", ["none", "one", "several"])
@pytest.mark.parametrize("weighting", ["ndcg", "none"])
def test_a_memory_is_graded_without_copies_of_the_anchor(weighting, labels):
    embeddings = random_embeddings(6)
    memory = torch.cat([embeddings.detach()[2:5], random_embeddings(5, seed=1).detach()])
    labels = {
        "none": None,
        "one": torch.arange(6) % 3,
        "several": torch.arange(18).reshape(6, 3) % 2,
    }[labels]
    memory_labels = None if labels is None else labels[[2, 0, 4, 0, 1, 2, 3, 4]]
    assert_as_literal(
        embeddings,
        labels,
        random_grades(6, 14, "integers"),
        memory=memory,
        memory_labels=memory_labels,
        gamma=2,
        weighting=weighting,
        reduction="weight",
    )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("weighting", ["ap", "none"])
def test_only_the_given_triplets_count_with_weights_from_full_lists(weighting):
    embeddings, grades = random_embeddings(8), random_grades(8, 8, "integers")
    triplets = [
        (i, j, k)
        for i, j, k in itertools.permutations(range(8), 3)
        if grades[i, j] > grades[i, k] and (i + j + k) % 3 == 0
    ]
    chosen = tuple(torch.tensor(part) for part in zip(*triplets, strict=True))
    options = {"margin": 1.0, "gamma": 2.0, "weighting": weighting, "reduction": "active"}
    loss = OrderAwareTripletLoss(**options)
    ours = value_and_gradient(partial(loss, indices_tuple=chosen, grades=grades), embeddings)
    literal = partial(literal_loss, labels=None, only=set(triplets), ties="distance", grades=grades)
    assert_close(ours, value_and_gradient(partial(literal, **options), embeddings))


def test_given_triplets_of_equal_grades_are_refused():
    grades = torch.tensor([[0, 1, 1], [1, 0, 2], [0, 0, 0]])
    triplet = (torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))
    with pytest.raises(InputError, match=r"not \(anchor, more related, less related\)"):
        OrderAwareTripletLoss()(torch.rand(3, 8), None, triplet, grades=grades)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("weighting", ["ndcg", "none"])
@pytest.mark.parametrize("gamma", [1.0, 1.5, 2.0, 3.0])
def test_gradcheck_passes_for_batch_and_memory(gamma, weighting):
    embeddings, memory = random_embeddings(7, bits=4), random_embeddings(5, bits=4, seed=1)
    grades = random_grades(7, 12, "floats")
    loss = OrderAwareTripletLoss(margin=0.7, gamma=gamma, weighting=weighting, reduction="sum")
    torch.autograd.gradcheck(
        lambda e, m: loss(e, ref_emb=m, grades=grades), (embeddings, memory.requires_grad_())
    )


@pytest.mark.parametrize("kind", GRADES)
@pytest.mark.parametrize("weighting", ["ndcg", "none"])
def test_both_paths_agree_in_float32(monkeypatch, weighting, kind):
    embeddings, grades = random_embeddings(200, bits=32).float(), random_grades(200, 200, kind)
    loss = partial(OrderAwareTripletLoss(weighting=weighting), grades=grades)
    compiled = value_and_gradient(loss, embeddings)
    for module in (order_aware, pairs):
        monkeypatch.setattr(module, "uses_kernels", lambda device: False)
    assert_close(value_and_gradient(loss, embeddings), compiled, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float32])
def test_grades_may_be_numbers_of_any_type(kind):
    embeddings, grades = random_embeddings(12), random_grades(12, 12, "integers") > 1
    loss = OrderAwareTripletLoss()
    expected = loss(embeddings, grades=grades.double())
    assert_close(loss(embeddings, grades=grades.to(kind)), expected)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("highest", [2000.0, 1e-20])
def test_high_and_low_grades_give_finite_numbers(highest):
    embeddings, grades = random_embeddings(6).float(), highest * torch.rand(6, 6)
    value, gradient = value_and_gradient(
        partial(OrderAwareTripletLoss(), grades=grades), embeddings
    )
    assert value >= 0
    assert gradient.isfinite().all()


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("weighting", ["ndcg", "none"])
@pytest.mark.parametrize("n", [0, 1, 2, 6])
@pytest.mark.parametrize("grade", [0, 2])
def test_a_batch_without_graded_triplets_gives_zero_and_a_zero_gradient(n, grade, weighting):
    grades = torch.full((n, n), grade)
    loss = partial(OrderAwareTripletLoss(weighting=weighting), grades=grades)
    value, gradient = value_and_gradient(loss, torch.rand(n, 8))
    assert value == 0
    assert (gradient == 0).all()


def test_the_grade_of_an_image_for_itself_is_not_used():
    embeddings, grades = random_embeddings(8), random_grades(8, 8, "floats")
    loss = OrderAwareTripletLoss()
    without = loss(embeddings, grades=grades.clone().fill_diagonal_(0))
    assert loss(embeddings, grades=grades.clone().fill_diagonal_(9)) == without


def test_labels_in_common_as_grades_give_the_loss_by_labels():
    embeddings = random_embeddings(12)
    labels = torch.arange(48).reshape(12, 4) ** 2 % 5 < 2
    loss = OrderAwareTripletLoss(weighting="ndcg")
    grades = labels.long() @ labels.long().T
    assert loss(embeddings, grades=grades) == loss(embeddings, labels)


def test_the_neighbours_of_a_teacher_give_the_grades():
    embeddings, memory = random_embeddings(8), random_embeddings(5, seed=1)
    teacher, ref_teacher = torch.rand(8, 6), torch.rand(5, 6)
    grades = neighbour_grades(teacher, ref_teacher)
    loss = OrderAwareTripletLoss()
    by_teacher = loss(embeddings, ref_emb=memory, teacher=teacher, ref_teacher=ref_teacher)
    assert by_teacher == loss(embeddings, ref_emb=memory, grades=grades) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "got no labels; pass labels, grades or teacher"),
        ({"grades": torch.zeros(4, 3)}, r"\(4, 4\); got \(4, 3\)"),
        ({"grades": torch.full((4, 4), -1)}, "finite numbers from 0 on"),
        ({"grades": torch.full((4, 4), math.nan)}, "finite numbers from 0 on"),
        ({"grades": torch.full((4, 4), math.inf)}, "finite numbers from 0 on"),
        ({"grades": torch.zeros(4, 4), "teacher": torch.rand(4, 2)}, "a teacher gives the grades"),
        ({"labels": torch.arange(4), "ref_teacher": torch.rand(4, 2)}, "belongs to teacher"),
        ({"teacher": torch.rand(3, 2)}, "got teacher vectors of 3 images and 0 of the memory"),
        ({"teacher": torch.rand(4, 2, 2)}, r"must have the shape \(images, d\); got \(4, 2, 2\)"),
        ({"teacher": torch.full((4, 2), math.nan)}, "teacher contains NaN or infinite"),
        (
            {"teacher": torch.rand(4, 2), "ref_emb": torch.rand(3, 8)},
            "4 embeddings and 3 of the memory; pass a vector for each",
        ),
        (
            {
                "teacher": torch.rand(4, 2),
                "ref_emb": torch.rand(3, 8),
                "ref_teacher": torch.rand(3, 5),
            },
            "vectors of 2 numbers and ref_teacher of 5",
        ),
        (
            {"teacher": torch.rand(4, 2), "ref_emb": torch.rand(3, 8), "ref_labels": torch.ones(3)},
            "got ref_labels without labels",
        ),
    ],
)
def test_invalid_grades_and_teachers_are_refused_with_the_reason(arguments, message):
    with pytest.raises(InputError, match=message):
        OrderAwareTripletLoss()(torch.rand(4, 8), **arguments)


# Grades by neighbours


@pytest.mark.parametrize("n_memory", [0, 30])
@pytest.mark.parametrize("shares", [(0.015, 0.04, 0.1), (0.1, 1.0), (0.5,)])
def test_grades_count_the_shares_that_an_image_is_in(shares, n_memory):
    generator = torch.Generator().manual_seed(2)
    vectors = torch.rand(25 + n_memory, 6, generator=generator, dtype=torch.float64)
    vectors[20:24] = vectors[3:7]  # ties
    teacher, memory = vectors[:25], vectors[25:] if n_memory else None
    grades = neighbour_grades(teacher, memory, shares)
    assert grades.tolist() == literal_grades(vectors, 25, shares)


def literal_grades(vectors, n, shares):
    centred = vectors - vectors.mean(dim=0)
    directions = centred / centred.norm(dim=1, keepdim=True)
    similarity = directions @ directions.T
    grades = [[0] * len(vectors) for _ in range(n)]
    for i in range(n):
        others = [j for j in range(len(vectors)) if j != i]
        ranked = sorted(others, key=lambda j: (-similarity[i, j].item(), j))
        for share in shares:
            for j in ranked[: math.ceil(round(share * len(others), 9))]:
                grades[i][j] += 1
    return grades


def test_images_that_are_skipped_are_neither_graded_nor_counted():
    generator = torch.Generator().manual_seed(2)
    teacher = torch.rand(12, 5, generator=generator)
    memory = torch.cat([teacher[:3], torch.rand(4, 5, generator=generator)])
    skipped = torch.eye(12, 19, dtype=torch.bool)
    skipped[:3, 12:15] = torch.eye(3, dtype=torch.bool)
    grades = neighbour_grades(teacher, memory, (0.3, 1.0), skipped=skipped)
    assert (grades[skipped] == 0).all()
    assert (grades[~skipped] >= 1).all()
    assert (grades == 2).sum(dim=1).tolist() == [6] * 12  # ceil(0.3 · 17) and ceil(0.3 · 18)


def test_of_equally_near_images_the_first_is_nearer():
    teacher = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [2.0, 0.0]])
    assert neighbour_grades(teacher, shares=(0.25, 0.75))[1].tolist() == [1, 0, 2, 1, 0]


def test_vectors_that_are_all_equal_are_graded_by_position():
    assert neighbour_grades(torch.ones(4, 3), shares=(0.5,)).tolist() == [
        [0, 1, 1, 0],
        [1, 0, 1, 0],
        [1, 1, 0, 0],
        [1, 1, 0, 0],
    ]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_short_lists_are_graded(n):
    assert neighbour_grades(torch.rand(n, 3)).sum() == 3 * n * (n - 1)


@pytest.mark.parametrize("shares", [(), (0.0, 0.1), (0.1, 1.5), (math.nan,)])
def test_invalid_shares_are_refused(shares):
    with pytest.raises(InputError, match="above 0 and at most 1"):
        neighbour_grades(torch.rand(4, 3), shares=shares)


def random_embeddings(n, *, bits=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, bits, generator=generator, dtype=torch.float64).requires_grad_()


def random_grades(n, n_list, kind):
    """Random grades; those of the first anchor are all 0."""
    drawn = torch.rand(n, n_list, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    if kind == "integers":
        drawn = (4 * drawn).long()
    elif kind == "floats":
        drawn = (4 * drawn).floor() * 0.75
    drawn[0] = 0
    return drawn


def value_and_gradient(function, embeddings):
    leaf = embeddings.detach().clone().requires_grad_()
    value = function(leaf)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def assert_as_literal(embeddings, labels, grades, memory=None, memory_labels=None, **options):
    options = {"margin": 1.0, "ties": "distance"} | options
    loss = OrderAwareTripletLoss(**options)
    ours = value_and_gradient(
        lambda e: loss(e, labels, ref_emb=memory, ref_labels=memory_labels, grades=grades),
        embeddings,
    )
    literal = partial(literal_loss, memory=memory, memory_labels=memory_labels, grades=grades)
    theirs = value_and_gradient(lambda e: literal(e, labels, **options), embeddings)
    assert_close(ours, theirs, rtol=0, atol=1e-10)
