"""What the losses read from a device: the host would wait for it at every step.

There is no such device here, so tensors of the CPU take its path and every read is counted, or
tensors are on "meta", which has no values to be read.
"""

from functools import partial

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from loss_batches import assert_same_value_and_gradient, random_batch
from orbithash.errors import InputError
from orbithash.losses import LookLoss, NestedLoss, OrderAwareTripletLoss, order_aware
from orbithash.losses.batch import pairs

aten = torch.ops.aten
READS = {
    aten._local_scalar_dense,
    aten.bincount,
    aten.equal,
    aten.masked_select,
    aten.nonzero,
    aten.repeat_interleave,
    aten._unique2,
    aten.unique_consecutive,
    aten.unique_dim,
}


class CountReads(TorchDispatchMode):
    """Count the operations that need values on the host, or that copy between devices."""

    def __init__(self):
        super().__init__()
        self.reads = []

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        result = operation(*arguments, **(options or {}))
        packet = operation.overloadpacket
        by_mask = packet in (aten.index, aten.index_put, aten.index_put_) and any(
            index is not None and index.dtype == torch.bool for index in arguments[1]
        )
        copied = packet in (aten._to_copy, aten.copy_) and len(devices(arguments, result)) > 1
        if packet in READS or by_mask or copied:
            self.reads.append(str(operation))
        return result


def devices(arguments, result):
    return {each.device.type for each in (*arguments, result) if isinstance(each, torch.Tensor)}


def reads_of(function):
    with CountReads() as counter:
        function().backward()
    return counter.reads


@pytest.fixture
def on_device(monkeypatch):
    """Treat tensors of the CPU as those of another device, of which labels are not known."""
    for module in (order_aware, pairs):
        monkeypatch.setattr(module, "uses_kernels", lambda device: False)
    monkeypatch.setattr(order_aware, "most_related", lambda labels, others: None)


OPTIONS = [
    {},
    {"gamma": 1, "ties": "random"},
    {"gamma": 3, "ties": "index", "reduction": "weight"},
    {"weighting": "ndcg"},
    {"weighting": "none", "reduction": "anchor"},
]
ONE = ["aten._local_scalar_dense.default"]


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_one_number_is_read_from_a_device_and_none_if_it_is_given(options, many_labels):
    embeddings, labels, _ = random_batch(n=12, many_labels=many_labels)
    memory, memory_labels, _ = random_batch(n=9, many_labels=many_labels, seed=6)
    loss = OrderAwareTripletLoss(**options)
    for of_memory in ({}, {"ref_emb": memory, "ref_labels": memory_labels}):
        assert reads_of(partial(loss, embeddings, labels, **of_memory)) == ONE
        assert reads_of(partial(loss, embeddings, labels, **of_memory, max_positives=20)) == []


@pytest.mark.usefixtures("on_device")
def test_given_grades_and_triplets_are_not_read():
    embeddings, _, _ = random_batch(n=12)
    grades = torch.arange(144).reshape(12, 12) % 5 % 3
    loss = partial(OrderAwareTripletLoss(), embeddings, grades=grades)
    assert reads_of(loss) == ONE
    triplets = torch.nonzero(grades[:, :, None] > grades[:, None], as_tuple=True)
    different = (triplets[0] != triplets[1]) & (triplets[0] != triplets[2])
    chosen = tuple(part[different] for part in triplets)
    assert reads_of(partial(loss, indices_tuple=chosen)) == []


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("many_labels", [False, True])
def test_the_look_of_images_reads_no_more_than_the_loss_by_labels(many_labels, marked):
    embeddings, labels, _ = random_batch(n=12, bits=8, many_labels=many_labels)
    memory, memory_labels, _ = random_batch(n=9, bits=8, many_labels=many_labels, seed=6)
    if marked:
        labels[7:], memory_labels[2:4] = -1, -1
    teacher = {"teacher": torch.rand(12, 6), "ref_teacher": torch.rand(9, 6)}
    of_memory = {"ref_emb": memory, "ref_labels": memory_labels}
    alone = LookLoss(None, weight=1)
    assert reads_of(partial(alone, embeddings, ref_emb=memory, **teacher)) == []
    loss = LookLoss(OrderAwareTripletLoss(), weight=2)
    assert reads_of(partial(loss, embeddings, labels, **of_memory, **teacher)) == ONE
    nested = NestedLoss({4: OrderAwareTripletLoss(), 8: LookLoss(OrderAwareTripletLoss(), 1)})
    if not marked:
        assert reads_of(partial(nested, embeddings, labels, **of_memory, **teacher)) == 2 * ONE
        assert nested.n_triplets > 0


@pytest.mark.parametrize("many_labels", [False, True])
def test_the_look_of_images_is_the_same_on_a_device(request, many_labels):
    embeddings, labels, _ = random_batch(n=14, many_labels=many_labels)
    memory, memory_labels, _ = random_batch(n=9, many_labels=many_labels, seed=6)
    labels[9:], memory_labels[2:4] = -1, -1
    memory = torch.cat([memory.detach(), embeddings.detach()[4:12]])
    of_memory = {"ref_emb": memory, "ref_labels": torch.cat([memory_labels, labels[4:12]])}
    vectors = torch.randint(3, (31, 2)).float()  # many equal similarities
    teacher = {"teacher": vectors[:14], "ref_teacher": vectors[14:]}
    loss = LookLoss(OrderAwareTripletLoss(), weight=2)
    on_cpu = loss(embeddings, labels, **of_memory, **teacher)
    counts = loss.n_triplets, loss.active_share
    request.getfixturevalue("on_device")
    assert_same_value_and_gradient(
        loss(embeddings, labels, **of_memory, **teacher), on_cpu, embeddings
    )
    assert (loss.n_triplets, loss.active_share) == counts


@pytest.mark.parametrize("many_labels", [False, True])
def test_nothing_is_read_where_the_labels_are_on_the_cpu(many_labels):
    _, labels, _ = random_batch(n=12, many_labels=many_labels)
    _, memory_labels, _ = random_batch(n=9, many_labels=many_labels, seed=6)
    embeddings = torch.rand(12, 8, device="meta", requires_grad=True)
    memory = torch.rand(9, 8, device="meta")
    OrderAwareTripletLoss()(embeddings, labels).backward()
    OrderAwareTripletLoss()(embeddings, labels, None, memory, memory_labels).backward()
    labels[3] = -1
    look = LookLoss(OrderAwareTripletLoss(), weight=1)
    look(embeddings, labels, teacher=torch.rand(12, 5, device="meta")).backward()


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize(
    ("embeddings", "options"),
    [
        (torch.rand(6, 8) + 0.5, {"labels": torch.arange(6) % 2}),
        (torch.full((6, 8), torch.nan), {"labels": torch.arange(6) % 2}),
        (torch.rand(6, 8), {"labels": torch.arange(12).reshape(6, 2)}),
        (torch.rand(6, 8), {"grades": torch.full((6, 6), -1)}),
        (torch.rand(6, 8), {"teacher": torch.full((6, 3), torch.inf)}),
        (torch.rand(6, 8), {"labels": torch.arange(6) % 2, "max_positives": 1}),
        (torch.rand(6, 8), {"labels": torch.arange(6) % 2, "ref_emb": -torch.rand(2, 8)}),
        (torch.rand(6, 8), {"labels": torch.arange(6) % 2, "indices_tuple": [0, 2, 9]}),
        (torch.rand(6, 8), {"labels": torch.arange(6) % 2, "indices_tuple": [0, 1, 2]}),
    ],
)
def test_invalid_values_on_a_device_give_nan(embeddings, options):
    if "ref_emb" in options:
        options = options | {"ref_labels": torch.arange(2)}
    if "indices_tuple" in options:
        options = options | {
            "indices_tuple": tuple(map(torch.tensor, zip(options["indices_tuple"])))
        }
    leaf = embeddings.clone().requires_grad_()
    value = OrderAwareTripletLoss()(leaf, **options)
    value.backward()
    assert value.isnan()
    assert leaf.grad.isnan().any()


@pytest.mark.usefixtures("on_device")
def test_shapes_and_types_are_refused_on_every_device():
    with pytest.raises(InputError, match="got 3 labels for 4 embeddings"):
        OrderAwareTripletLoss()(torch.rand(4, 8), torch.arange(3))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_copies_are_found_without_a_read_as_with_it(monkeypatch, kind):
    rows = torch.tensor([[0.0, 1], [0.5, 1], [-0.0, 1], [0.5, 1], [1, 0]]).to(kind)
    others = torch.tensor([[0.5, 1.0], [0, 0], [0, 1]]).to(kind)
    with_read = pairs._equal_rows(rows, others)
    monkeypatch.setattr(pairs, "uses_kernels", lambda device: False)
    assert_close(pairs._equal_rows(rows, others), with_read)


@pytest.mark.parametrize("many_labels", [False, True])
def test_labels_on_the_cpu_tell_the_most_positives_of_a_list(many_labels):
    _, labels, related = random_batch(n=20, many_labels=many_labels)
    most = max(sum(row) - row[i] for i, row in enumerate(related))
    assert most <= pairs.most_related(labels, None) <= most + 1
    assert pairs.most_related(labels, labels) >= 2 * most
    assert pairs.most_related(labels.to("meta"), None) is None
