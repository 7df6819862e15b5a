import itertools
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from literal_loss import literal_loss
from orbithash.errors import InputError
from orbithash.kernels.triplets.sweeps import sweeping_pays
from orbithash.losses import LOSSES, OrderAwareTripletLoss, order_aware
from orbithash.losses.batch import pairs, triplet_tensors

PATHS = ["compiled", "tensors"]
TRIPLET_LOSSES = [
    name
    for name in LOSSES
    if name.startswith(("order-aware", "triplet")) and name != "order-aware-proxies"
]
REDUCTIONS = ["sum", "mean", "active", "weight", "anchor"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("ties", ["distance", "index"])
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_loss_and_gradient_equal_the_literal_triple_loop(
    use_path, gamma, weighting, ties, many_labels, path
):
    use_path(path)
    embeddings, labels = batch(9, 5, many_labels=many_labels)
    assert_same_loss_and_gradient(
        embeddings,
        labels,
        margin=1.0,
        gamma=gamma,
        weighting=weighting,
        ties=ties,
        reduction="sum",
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
def test_each_reduction_divides_by_its_divisor(use_path, weighting, reduction, path):
    use_path(path)
    embeddings, labels = batch(8, 5, many_labels=True)
    assert_same_loss_and_gradient(
        embeddings,
        labels,
        margin=1.0,
        gamma=2.0,
        weighting=weighting,
        ties="distance",
        reduction=reduction,
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
def test_memory_extends_the_lists_without_copies_of_the_anchor(
    use_path, weighting, many_labels, path
):
    use_path(path)
    embeddings, labels = batch(6, 5, many_labels=many_labels)
    others, other_labels = batch(5, 5, many_labels=many_labels, seed=1)
    memory = torch.cat([embeddings.detach()[2:5], others])
    memory_labels = torch.cat([labels[2:5], other_labels])
    assert_same_loss_and_gradient(
        embeddings,
        labels,
        memory=memory,
        memory_labels=memory_labels,
        margin=1.0,
        gamma=2,
        weighting=weighting,
        ties="distance",
        reduction="weight",
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
def test_only_the_given_triplets_count_with_weights_from_full_lists(use_path, weighting, path):
    use_path(path)
    embeddings, labels = batch(8, 5)
    same = labels[:, None] == labels[None, :]
    triplets = [
        (i, j, k)
        for i, j, k in itertools.product(range(8), repeat=3)
        if i != j and same[i, j] and not same[i, k] and (i + j + k) % 3 == 0
    ]
    chosen = tuple(torch.tensor(part) for part in zip(*triplets, strict=True))
    for reduction in REDUCTIONS:
        options = {"margin": 1.0, "gamma": 2.0, "weighting": weighting, "reduction": reduction}
        loss = OrderAwareTripletLoss(**options)
        ours = value_and_gradient(partial(loss, labels=labels, indices_tuple=chosen), embeddings)
        literal = partial(literal_loss, labels=labels, only=set(triplets), ties="distance")
        theirs = value_and_gradient(partial(literal, **options), embeddings)
        assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_given_triplets_index_the_memory_and_take_weights_from_batch_and_memory():
    embeddings, labels = batch(8, 5)
    memory, memory_labels = batch(7, 5, seed=1)
    related = labels[:, None] == memory_labels[None, :]
    chosen = torch.nonzero(related[:, :, None] & ~related[:, None, :], as_tuple=True)
    options = {"margin": 1.0, "gamma": 2.0, "weighting": "ap", "reduction": "sum"}
    ours = OrderAwareTripletLoss(**options)(embeddings, labels, chosen, memory, memory_labels)
    literal = literal_loss(
        embeddings,
        labels,
        memory=memory,
        memory_labels=memory_labels,
        only={(i, 8 + j, 8 + k) for i, j, k in zip(*(t.tolist() for t in chosen), strict=True)},
        ties="distance",
        **options,
    )
    assert_close(ours, literal)


def test_given_triplets_with_a_copy_of_the_anchor_are_skipped():
    embeddings, labels = batch(6, 5)
    memory, memory_labels = embeddings.detach()[:4], labels[:4]
    anchor, copy = torch.tensor([1]), torch.tensor([1])
    unrelated = (memory_labels != labels[1]).nonzero()[0]
    loss = OrderAwareTripletLoss()
    assert loss(embeddings, labels, (anchor, copy, unrelated), memory, memory_labels) == 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
@pytest.mark.parametrize("gamma", [1.0, 1.5, 2.0, 3.0])
def test_gradcheck_passes_for_batch_and_memory(use_path, gamma, weighting, path):
    use_path(path)
    embeddings, labels = batch(7, 4)
    memory, memory_labels = batch(5, 4, seed=1)
    # Clear of bit thresholds and of the hinge's kink, where there is no derivative.
    loss = OrderAwareTripletLoss(margin=0.7, gamma=gamma, weighting=weighting, reduction="sum")
    torch.autograd.gradcheck(
        lambda e, m: loss(e, labels, ref_emb=m, ref_labels=memory_labels),
        (embeddings, memory.requires_grad_()),
    )


def test_both_paths_agree_in_float32(use_path):
    embeddings, labels = batch(200, 32, classes=7, dtype=torch.float32)
    for weighting in ("ap", "ndcg", "none"):
        loss = OrderAwareTripletLoss(weighting=weighting, reduction="mean")
        results = []
        for path in PATHS:
            use_path(path)
            results.append(value_and_gradient(lambda e, loss=loss: loss(e, labels), embeddings))
        assert_close(*results, rtol=1e-4, atol=1e-6)


def test_both_paths_break_ties_alike(use_path):
    """Tenths make many distances equal except for the last bit."""
    embeddings, labels = batch(150, 16, classes=6)
    embeddings = (embeddings.detach() * 10).round() / 10
    loss = OrderAwareTripletLoss(reduction="mean")
    results = []
    for path in PATHS:
        use_path(path)
        results.append(value_and_gradient(lambda e: loss(e, labels), embeddings))
    assert_close(*results, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("ties", ["distance", "index"])
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
@pytest.mark.parametrize("gamma", [1, 2])
def test_long_lists_with_many_positives_give_the_same_on_both_paths(
    use_path, gamma, weighting, ties
):
    """The compiled path then sweeps through a list instead of going through its triplets."""
    embeddings, memory, labels, memory_labels = long_lists()
    common = labels @ memory_labels.T
    assert all(sweeping_pays((row == 1).sum().item(), (row == 0).sum().item()) for row in common)
    loss = OrderAwareTripletLoss(gamma=gamma, weighting=weighting, ties=ties, reduction="weight")
    results = []
    for path in PATHS:
        use_path(path)
        value = value_and_gradient(
            lambda e: loss(e, labels, ref_emb=memory, ref_labels=memory_labels), embeddings
        )
        results.append((value, loss.last))
    assert_close(*results, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("gamma", "weighting"), [(1, "ap"), (2, "ap"), (2, "ndcg")])
def test_gradcheck_passes_for_long_lists(gamma, weighting):
    embeddings, memory, labels, memory_labels = long_lists()
    loss = OrderAwareTripletLoss(margin=0.7, gamma=gamma, weighting=weighting, reduction="mean")
    torch.autograd.gradcheck(
        lambda e: loss(e, labels[:1], ref_emb=memory, ref_labels=memory_labels),
        embeddings[:1].detach().requires_grad_(),
    )


@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
def test_tensor_path_gives_the_same_in_many_chunks(use_path, monkeypatch, weighting):
    embeddings, labels = batch(9, 5)
    loss = OrderAwareTripletLoss(margin=1.0, weighting=weighting)
    whole = value_and_gradient(lambda e: loss(e, labels), embeddings)
    use_path("tensors")
    for chunk in (1, 20, 200):
        monkeypatch.setattr(triplet_tensors, "CHUNK", chunk)
        assert_close(value_and_gradient(lambda e: loss(e, labels), embeddings), whole)


@pytest.mark.parametrize("path", PATHS)
def test_many_labels_in_common_do_not_overflow(use_path, path):
    use_path(path)
    labels = torch.ones(6, 1100, dtype=torch.int64)
    labels[3:, :550] = 0
    labels[5] = 0
    value, gradient = value_and_gradient(
        lambda e: OrderAwareTripletLoss(weighting="ndcg")(e, labels), torch.rand(6, 8)
    )
    assert value > 0
    assert gradient.isfinite().all()


def test_a_copy_with_another_label_counts_as_another_image():
    embeddings, labels = batch(6, 5)
    memory, other = embeddings.detach()[:3], (labels[:3] + 1) % 3
    assert_same_loss_and_gradient(
        embeddings,
        labels,
        memory=memory,
        memory_labels=other,
        margin=1.0,
        gamma=1.0,
        weighting="ap",
        ties="index",
        reduction="sum",
    )


def test_random_ties_keep_the_hamming_order():
    codes = torch.tril(torch.ones(8, 8))  # the first image is 1, 2, … 7 bits from the others
    labels = torch.tensor([0, 1, 0, 1, 1, 0, 1, 0])
    first = (torch.zeros(1, dtype=torch.int64), torch.tensor([7]), torch.tensor([1]))
    by_index = OrderAwareTripletLoss(ties="index", margin=9.0)(codes, labels, first)
    assert OrderAwareTripletLoss(ties="random", margin=9.0)(codes, labels, first) == by_index


def test_autocast_does_not_affect_the_ranking():
    embeddings, labels = torch.rand(40, 1024, generator=torch.manual_seed(0)), torch.arange(40) % 4
    loss = OrderAwareTripletLoss(reduction="mean")
    expected = value_and_gradient(lambda e: loss(e, labels), embeddings)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocasted = value_and_gradient(lambda e: loss(e, labels), embeddings)
    assert_close(autocasted, expected)


def test_a_memory_in_another_precision_is_converted():
    embeddings, labels = batch(6, 5)
    memory, memory_labels = batch(5, 5, seed=1, dtype=torch.float32)
    loss = partial(OrderAwareTripletLoss(), embeddings, labels, ref_labels=memory_labels)
    assert_close(loss(ref_emb=memory), loss(ref_emb=memory.double()))


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int32])
def test_labels_may_be_of_any_integer_type(kind):
    embeddings, labels = batch(12, 6)
    loss = OrderAwareTripletLoss()
    assert loss(embeddings, labels.to(kind)) == loss(embeddings, labels)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.uint8])
def test_label_tables_may_be_of_any_type(kind):
    embeddings, labels = batch(12, 6, many_labels=True)
    loss = OrderAwareTripletLoss(weighting="ndcg")
    assert loss(embeddings, labels.to(kind)) == loss(embeddings, labels)


def test_strided_embeddings_give_the_same_loss():
    embeddings, labels = batch(12, 8)
    strided = embeddings.detach().T.contiguous().T
    assert OrderAwareTripletLoss()(strided, labels) == OrderAwareTripletLoss()(embeddings, labels)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_loss_does_not_depend_on_the_order_of_the_batch(reduction):
    embeddings, labels = batch(60, 8, classes=5)
    loss = OrderAwareTripletLoss(ties="distance", reduction=reduction)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    value, gradient = value_and_gradient(lambda e: loss(e, labels), embeddings)
    shuffled = value_and_gradient(lambda e: loss(e, labels[order]), embeddings.detach()[order])
    assert_close(shuffled, (value, gradient[order]), rtol=1e-12, atol=1e-12)


def test_random_ties_depend_on_torchs_seed_and_differ_between_calls():
    embeddings, labels = batch(40, 4, classes=4)
    loss = OrderAwareTripletLoss(ties="random", reduction="sum")
    torch.manual_seed(0)
    first, second = loss(embeddings, labels), loss(embeddings, labels)
    torch.manual_seed(0)
    assert loss(embeddings, labels) == first
    assert first != second


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", TRIPLET_LOSSES)
@pytest.mark.parametrize(
    ("embeddings", "labels"),
    [
        (torch.rand(6, 8), torch.zeros(6, dtype=torch.int64)),
        (torch.rand(6, 8), torch.arange(6)),
        (torch.rand(1, 8), torch.zeros(1, dtype=torch.int64)),
        (torch.rand(0, 8), torch.zeros(0, dtype=torch.int64)),
        (torch.rand(6, 8), torch.zeros(6, 3)),
    ],
    ids=["one class", "all different", "one image", "no image", "no labels at all"],
)
def test_a_batch_without_triplets_gives_zero_and_a_zero_gradient(
    use_path, embeddings, labels, name, path
):
    use_path(path)
    value, gradient = value_and_gradient(lambda e: LOSSES[name]()(e, labels), embeddings)
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("weighting", ["ap", "ndcg", "none"])
def test_identical_embeddings_give_a_finite_loss(use_path, weighting, path):
    use_path(path)
    embeddings, labels = torch.full((6, 8), 0.3), torch.tensor([0, 0, 1, 1, 2, 2])
    loss = OrderAwareTripletLoss(margin=2.0, weighting=weighting, reduction="weight")
    value, gradient = value_and_gradient(lambda e: loss(e, labels), embeddings)
    assert_close(value, torch.tensor(4.0))  # every hinge is the margin
    assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-5)


def test_weights_are_those_of_the_example_in_the_documentation():
    """Relevance by rank 0 1 0 1: swapping the first two takes AP from 0.5 to 0.75."""
    hamming = torch.tensor([[1, 2, 3, 4]], dtype=torch.int16)
    grades = torch.tensor([[0, 1, 0, 1]], dtype=torch.int16)
    ranked = triplet_tensors.rank_items(hamming, grades, None, torch.float64)
    anchor, second, first = torch.tensor(0), torch.tensor(1), torch.tensor(0)
    weight = triplet_tensors.swap_weights(
        ranked.take(anchor, second), ranked.take(anchor, first), "ap"
    )
    assert_close(weight.item(), 0.25)


def test_half_precision_embeddings_are_ranked_in_float32():
    embeddings, labels = batch(20, 16, dtype=torch.bfloat16)
    loss = OrderAwareTripletLoss()
    value, gradient = value_and_gradient(lambda e: loss(e, labels), embeddings)
    assert gradient.dtype == torch.bfloat16
    assert_close(value, loss(embeddings.detach().float(), labels))


def test_margin_defaults_to_an_eighth_of_the_bits():
    embeddings, labels = batch(12, 16)
    assert_close(
        OrderAwareTripletLoss()(embeddings, labels),
        OrderAwareTripletLoss(margin=2.0)(embeddings, labels),
    )


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.rand(4, 8), torch.arange(3), "got 3 labels for 4 embeddings"),
        (torch.rand(4, 8), torch.rand(4), "must be integers"),
        (torch.rand(4, 8), torch.full((4, 2), 2), "must be 0 or 1"),
        (torch.rand(4, 8), torch.zeros(4, 2, 2), r"\(images,\) or \(images, classes\)"),
        (torch.rand(4), torch.arange(4), r"shape \(images, bits\); got \(4,\)"),
        (torch.ones(4, 8, dtype=torch.int64), torch.arange(4), "must be floats"),
        (torch.rand(4, 1025), torch.arange(4), "1025 bits; codes have at most 1024"),
        (torch.rand(4, 8) + 0.5, torch.arange(4), r"must lie in \[0, 1\].*sigmoid"),
        (-torch.rand(4, 8), torch.arange(4), r"must lie in \[0, 1\]"),
        (torch.tensor([[0.1, float("nan")], [0.2, 0.3]]), torch.arange(2), "NaN in 1 of 2 rows"),
        (torch.tensor([[0.1, float("inf")], [0.2, 0.3]]), torch.arange(2), "from 0.1 to inf"),
    ],
)
def test_invalid_batches_are_refused_with_the_reason(embeddings, labels, message):
    with pytest.raises(InputError, match=message):
        OrderAwareTripletLoss()(embeddings, labels)


@pytest.mark.parametrize(
    ("memory", "memory_labels", "message"),
    [
        (torch.rand(3, 8), None, "needs both ref_emb and ref_labels; got only ref_emb"),
        (None, torch.arange(3), "got only ref_labels"),
        (torch.rand(3, 9), torch.arange(3), "9 bits and the batch 8"),
        (torch.rand(3, 8), torch.arange(2), "got 2 ref_labels for 3 embeddings"),
        (torch.rand(3, 8), torch.zeros(3, 4), "both must be integers, or tables"),
        (torch.rand(3, 8) - 1, torch.arange(3), "ref_emb must lie in"),
    ],
)
def test_an_invalid_memory_is_refused_with_the_reason(memory, memory_labels, message):
    with pytest.raises(InputError, match=message):
        OrderAwareTripletLoss()(
            torch.rand(4, 8), torch.arange(4), ref_emb=memory, ref_labels=memory_labels
        )


@pytest.mark.parametrize(
    ("triplets", "message"),
    [
        ((torch.tensor([0]), torch.tensor([1])), "use a miner of triplets"),
        ((torch.tensor([0]), torch.tensor([1, 2]), torch.tensor([3])), "same length"),
        ((torch.tensor([0]), torch.tensor([1]), torch.tensor([4])), "from 0 to 3; got 4 to 4"),
        ((torch.tensor([0]), torch.tensor([2]), torch.tensor([1])), "not .anchor, related"),
        ((torch.tensor([0]), torch.tensor([0]), torch.tensor([2])), "not .anchor, related"),
        ((torch.tensor([0]), torch.tensor([1.0]), torch.tensor([2])), "row numbers; got torch.f"),
    ],
)
def test_invalid_triplets_are_refused_with_the_reason(triplets, message):
    with pytest.raises(InputError, match=message):
        OrderAwareTripletLoss()(torch.rand(4, 8), torch.tensor([0, 0, 1, 1]), triplets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "stable"}, "ties must be one of distance, index, random; got 'stable'"),
        ({"weighting": "map"}, "weighting must be one of ap, ndcg, none"),
        ({"reduction": "average"}, "reduction must be one of sum, mean"),
        ({"gamma": 0.5}, "gamma must be finite and at least 1"),
        ({"gamma": float("nan")}, "gamma must be finite and at least 1"),
        ({"margin": -1.0}, "margin must be a number of bits"),
    ],
)
def test_invalid_options_are_refused_with_the_valid_ones(options, message):
    with pytest.raises(InputError, match=message):
        OrderAwareTripletLoss(**options)


@pytest.fixture
def use_path(monkeypatch):
    """Compute the loss with the compiled kernels, or with tensor operations."""

    def use(path):
        monkeypatch.undo()
        if path == "tensors":
            for module in (order_aware, pairs):
                monkeypatch.setattr(module, "uses_kernels", lambda device: False)

    return use


def batch(n, bits, *, classes=3, many_labels=False, seed=0, dtype=torch.float64):
    """Random embeddings; the first image has no positive; of many labels, the last has all."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.rand(n, bits, generator=generator, dtype=torch.float64).to(dtype)
    if many_labels:
        labels = (torch.rand(n, classes, generator=generator) < 0.4).long()
        labels[0], labels[-1] = 0, 1
    else:
        labels = torch.randint(classes, (n,), generator=generator)
        labels[0] = classes + seed
    return embeddings.requires_grad_(), labels


def long_lists():
    """A few anchors with lists of 700, in which hundreds share one label with the anchor."""
    embeddings, _ = batch(4, 16)
    memory, memory_labels = batch(700, 16, classes=4, many_labels=True, seed=1)
    labels = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]])
    return embeddings, (memory.detach() * 20).round() / 20, labels, memory_labels


def value_and_gradient(function, embeddings):
    leaf = embeddings.detach().clone().requires_grad_()
    value = function(leaf)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def assert_same_loss_and_gradient(embeddings, labels, memory=None, memory_labels=None, **options):
    loss = OrderAwareTripletLoss(**options)
    ours = value_and_gradient(
        lambda e: loss(e, labels, ref_emb=memory, ref_labels=memory_labels), embeddings
    )
    theirs = value_and_gradient(
        lambda e: literal_loss(e, labels, memory=memory, memory_labels=memory_labels, **options),
        embeddings,
    )
    assert_close(ours, theirs, rtol=0, atol=1e-10)
