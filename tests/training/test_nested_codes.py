"""Nested codes: runs whose prefixes are codes of their own, and encoders of these."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import orbithash
from coloured_images import coloured
from feature_files import clouds
from orbithash.codes import pack, unpack
from orbithash.errors import InputError
from orbithash.hashers import IterativeQuantization
from orbithash.losses import LOSSES, CentralSimilarityLoss, OrderAwareTripletLoss
from orbithash.training import Hooks, Interrupted
from orbithash.training.methods import as_method, with_nested

QUICK = {"epochs": 3, "hidden": 16, "batch_size": 20}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def arrays():
    made = clouds()
    return made["features"], made["labels"]


def loss_of(method, n_bits, nested=(), **options):
    return with_nested(as_method(method, options), nested, n_bits).loss(
        n_bits=n_bits, n_classes=3, seed=0
    )


def first_bits(codes, n_bits, n):
    return pack(unpack(codes, n_bits)[:, :n])


# Training


@pytest.mark.parametrize("method", LOSSES)
@pytest.mark.parametrize(
    "many_labels",
    [
        pytest.param(False, id="one label"),
        pytest.param(True, id="several labels", marks=pytest.mark.slow),
    ],
)
def test_every_loss_trains_nested_codes(method, many_labels):
    made = clouds(many_labels=many_labels)
    data = made["features"], made["labels"]
    alone = orbithash.train(data, 16, method=method, **QUICK)
    nested = orbithash.train(data, 16, method=method, nested=(4, 8), **QUICK)
    assert nested.nested == (4, 8)
    assert all(np.isfinite(epoch.loss) for epoch in nested.history)
    assert not np.array_equal(alone.embed(data[0]), nested.embed(data[0]))


@pytest.mark.parametrize("method", LOSSES)
def test_the_loss_of_a_prefix_is_that_of_codes_of_its_length(method):
    nested, alone = loss_of(method, 16, nested=(8,)).loss_of(8), loss_of(method, 8)
    embeddings = torch.rand(12, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(12) % 3
    assert nested(embeddings, labels) == alone(embeddings, labels)


@pytest.mark.parametrize("method", ["order-aware", OrderAwareTripletLoss(margin=4.0)])
def test_a_margin_in_bits_is_scaled_to_each_length(method):
    options = {"margin": 4.0} if method == "order-aware" else {}
    nested = loss_of(method, 32, nested=(8, 16), **options)
    assert [nested.loss_of(n).margin for n in (8, 16, 32)] == [1.0, 2.0, 4.0]


def test_a_margin_of_the_cosine_is_not_scaled():
    nested = loss_of("orthohash", 32, nested=(8,), margin=0.3)
    assert nested.loss_of(8).margin == nested.loss_of(32).margin == 0.3


def test_a_loss_of_ones_own_is_called_with_every_prefix(arrays):
    widths = set()

    class Spread(nn.Module):
        def forward(self, embeddings, labels):
            widths.add(embeddings.shape[1])
            return (embeddings - labels[:, None] / 5).square().mean()

    orbithash.train(arrays, 16, method=Spread(), nested=(4, 8), **QUICK)
    assert widths == {4, 8, 16}


@pytest.mark.slow
def test_prefixes_of_nested_codes_are_better_than_those_of_other_codes():
    made = clouds(classes=16, per_class=12, d=32)
    data = made["features"], made["labels"]

    def prefix_map(nested):
        options = {"method": "csq", "epochs": 30, "hidden": 64, "batch_size": 48}
        codes = orbithash.train(data, 64, nested=nested, **options).encode(data[0])[:, :1]
        return orbithash.evaluate_codes(codes, codes, data[1], data[1], n_bits=8).map

    assert prefix_map(nested=(8,)) > prefix_map(nested=()) + 0.2


def test_nested_codes_are_trained_on_images(tmp_path):
    images = coloured(tmp_path / "images")
    options = {"backbone": "small-cnn", "workers": 0, "epochs": 1, "batch_size": 8}
    encoder = orbithash.train(images, 16, nested=(8,), **options)
    file = images.file(0)
    np.testing.assert_array_equal(encoder.prefix(8).encode([file]), encoder.encode([file])[:, :1])
    assert encoder.prefix(8).backbone is encoder.backbone


@pytest.mark.parametrize("method", ["order-aware", "hashnet", "csq"])
def test_a_resumed_run_has_the_same_weights(method, arrays, tmp_path):
    options = {"method": method, "nested": (4, 8), **QUICK}
    if method == "order-aware":
        options["memory"] = 30
    undisturbed = orbithash.train(arrays, 16, **options)
    stopped = Hooks(stopping=after_calls(5))
    with pytest.raises(Interrupted):
        orbithash.train(arrays, 16, out=tmp_path / "run", hooks=stopped, **options)
    resumed = orbithash.train(arrays, 16, out=tmp_path / "run", resume=True, **options)
    for name, weight in undisturbed.model()[1].items():
        np.testing.assert_array_equal(resumed.model()[1][name], weight, err_msg=name)
    losses = [[epoch.loss for epoch in run.history] for run in (undisturbed, resumed)]
    assert losses[0] == losses[1]


def after_calls(number):
    calls = iter(range(number))
    return lambda: next(calls, None) is None


def test_a_run_is_not_resumed_with_other_lengths(arrays, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        orbithash.train(
            arrays, 16, out=out, nested=(8,), hooks=Hooks(stopping=after_calls(3)), **QUICK
        )
    with pytest.raises(InputError, match="started with other nested"):
        orbithash.train(arrays, 16, out=out, nested=(4,), resume=True, **QUICK)
    orbithash.train(arrays, 16, out=out, nested=(8,), resume=True, **QUICK)
    with pytest.raises(InputError, match="is a finished run with nested=8, but here it is none"):
        orbithash.train(arrays, 16, out=out, resume=True, **QUICK)


@pytest.mark.parametrize(
    ("nested", "method", "complaint"),
    [
        ((8, 16), "triplet", "different lengths below the 16 bits"),
        ((8, 32), "triplet", "different lengths below the 16 bits"),
        ((8, 8), "triplet", "different lengths below the 16 bits"),
        ((2,), "triplet", "got 2 bits; codes have 4 to 1024"),
        ((8,), "itq", "itq is a hasher, and only losses train nested codes"),
        ((8,), IterativeQuantization(n_bits=16), "only losses train nested codes"),
        ((8,), CentralSimilarityLoss(n_classes=5, n_bits=16), "made for one number of bits"),
    ],
)
def test_what_cannot_be_nested_is_refused(nested, method, complaint, arrays):
    with pytest.raises(InputError, match=complaint):
        orbithash.train(arrays, 16, method=method, nested=nested, **QUICK)


def test_a_memory_is_refused_by_losses_that_take_none(arrays):
    with pytest.raises(InputError, match="csq takes no memory"):
        orbithash.train(arrays, 16, method="csq", nested=(8,), memory=10, **QUICK)


# Encoders of prefixes


@pytest.fixture(scope="module")
def encoder(arrays):
    return orbithash.train(arrays, 20, nested=(4, 12), **QUICK)


@pytest.mark.parametrize("n", [4, 12, 20])
def test_a_prefix_has_the_first_bits_of_the_codes(n, encoder, arrays):
    prefix = encoder.prefix(n)
    assert prefix.n_bits == n
    assert prefix.nested == tuple(length for length in (4, 12) if length < n)
    np.testing.assert_allclose(
        prefix.embed(arrays[0]), encoder.embed(arrays[0])[:, :n], rtol=0, atol=1e-6
    )
    np.testing.assert_array_equal(
        prefix.encode(arrays[0]), first_bits(encoder.encode(arrays[0]), 20, n)
    )


def test_a_prefix_is_saved_and_loaded_as_any_encoder(encoder, arrays, tmp_path):
    encoder.prefix(12).save(tmp_path / "run")
    loaded = orbithash.load(tmp_path / "run")
    assert (loaded.n_bits, loaded.nested) == (12, (4,))
    np.testing.assert_array_equal(loaded.encode(arrays[0]), encoder.prefix(12).encode(arrays[0]))
    np.testing.assert_array_equal(
        loaded.prefix(4).encode(arrays[0]), encoder.prefix(4).encode(arrays[0])
    )
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["n_bits"] == 12
    assert list(record["nested"]) == ["4", "12", "20"]


def test_a_prefix_leaves_the_encoder_as_it_was(encoder, arrays):
    before = encoder.embed(arrays[0])
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    encoder.prefix(4)
    assert torch.rand(1) == expected
    np.testing.assert_array_equal(encoder.embed(arrays[0]), before)


def test_a_network_on_small_images_has_prefixes():
    rng = np.random.default_rng(0)
    images, labels = rng.random((24, 1, 16, 16), dtype=np.float32), np.arange(24) % 3
    encoder = orbithash.train(
        (images, labels), 16, nested=(8,), backbone="small-cnn", epochs=1, batch_size=6
    )
    np.testing.assert_array_equal(encoder.prefix(8).encode(images), encoder.encode(images)[:, :1])


@pytest.mark.parametrize(
    ("n", "complaint"),
    [
        (8, r"first 8 bits .* not trained .* give 4 or 12 or 20, or train with --nested 8"),
        (32, "got 32 bits, but the codes of this encoder have 20"),
        (2, "got 2 bits; codes have 4 to 1024"),
    ],
)
def test_other_prefixes_are_refused(n, complaint, encoder):
    with pytest.raises(InputError, match=complaint):
        encoder.prefix(n)


def test_codes_that_are_not_nested_have_only_themselves_as_prefix(arrays):
    encoder = orbithash.train(arrays, 16, **QUICK)
    assert encoder.nested == ()
    assert encoder.prefix(16) is encoder
    with pytest.raises(InputError, match="give 16, or train with --nested 8"):
        encoder.prefix(8)


# Scores


def test_every_length_is_scored(encoder, arrays):
    scores = orbithash.evaluate(encoder, arrays)
    assert scores.prefixes.keys() == {4, 12}
    for n, of_prefix in scores.prefixes.items():
        alone = orbithash.evaluate(encoder.prefix(n), arrays)
        assert (of_prefix.n_bits, of_prefix.map) == (n, alone.map)
        assert of_prefix.precision_recall == alone.precision_recall
    assert type(scores).from_json(scores.to_json()) == scores


def test_scores_of_one_length_have_no_prefixes_in_their_json(encoder, arrays):
    scores = orbithash.evaluate(encoder.prefix(4), arrays)
    assert scores.prefixes == {}
    assert "prefixes" not in json.loads(scores.to_json())
