import itertools

import numpy as np
import pytest

from orbithash.codes import pack
from orbithash.errors import CodeLengthError, InputError
from orbithash.evaluation import Scores, evaluate_codes
from orbithash.kernels.plain_search import hamming_distances_reference
from orbithash.metrics import scoring
from orbithash.relevance import labels_in_common

TIES = ["expected", "stable", "optimistic", "pessimistic"]
EXTRA = {"map_at": (1, 5, 400), "recall_at": (1, 10), "map_at_r": True}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("n_bits", [4, 20, 130])
def test_stable_map_equals_that_of_a_stable_argsort(n_bits, several):
    split = random_split(n_bits, several)
    scores = evaluate_codes(*split, n_bits=n_bits, ties="stable", map_at=(1, 10, 500))
    lists = [relevance for relevance in sorted_relevance(*split) if relevance.any()]
    assert scores.map == pytest.approx(np.mean([average_precision(r) for r in lists]))
    for n in (1, 10, 500):
        by_min = [average_precision(r[:n], divisor=min(n, r.sum())) for r in lists]
        by_found = [average_precision(r[:n]) if r[:n].any() else 0.0 for r in lists]
        assert scores.map_at[n] == pytest.approx(np.mean(by_min))
        assert scores.map_at_found[n] == pytest.approx(np.mean(by_found))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("ties", ["stable", "argsort"])
def test_scores_in_an_order_are_those_of_the_sorted_lists(ties, several):
    split = random_split(8, several)
    scores = evaluate_codes(*split, n_bits=8, ties=ties, **EXTRA)
    kind = "stable" if ties == "stable" else None
    lists = [relevance for relevance in sorted_relevance(*split, kind=kind) if relevance.any()]
    assert scores.map == pytest.approx(np.mean([average_precision(r) for r in lists]))
    by_r = [average_precision(r[: r.sum()], divisor=r.sum()) for r in lists]
    assert scores.map_at_r == pytest.approx(np.mean(by_r))
    for n in EXTRA["map_at"]:
        by_min = [average_precision(r[:n], divisor=min(n, r.sum())) for r in lists]
        by_found = [average_precision(r[:n]) if r[:n].any() else 0.0 for r in lists]
        assert scores.map_at[n] == pytest.approx(np.mean(by_min))
        assert scores.map_at_found[n] == pytest.approx(np.mean(by_found))
        assert scores.nothing_found_at[n] == pytest.approx(
            np.mean([not r[:n].any() for r in lists])
        )


def test_expected_recall_and_map_at_r_are_means_over_all_orders_of_the_database():
    queries, database, query_labels, database_labels = random_split(4, several=False, n=5)
    extra = {"n_bits": 4, "recall_at": (1, 2), "map_at_r": True}
    expected = evaluate_codes(queries, database, query_labels, database_labels, **extra)
    hits, by_r = {1: [], 2: []}, []
    for order in map(list, itertools.permutations(range(5))):
        split = queries, database[order], query_labels, database_labels[order]
        for n, found in hits.items():
            found += [r[:n].any() for r in sorted_relevance(*split) if r.any()]
        by_r.append(evaluate_codes(*split, ties="stable", **extra).map_at_r)
    assert expected.recall_at == pytest.approx({n: np.mean(found) for n, found in hits.items()})
    assert expected.map_at_r == pytest.approx(np.mean(by_r))
    assert 0 < expected.recall_at[1] < expected.recall_at[2] < 1


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("ties", [*TIES, "argsort"])
def test_leaving_one_out_equals_scoring_each_item_against_the_others(ties, several):
    _, codes, _, labels = random_split(8, several, n=60)
    options = {"n_bits": 8, "ties": ties, **EXTRA}
    scores = evaluate_codes(codes, codes, labels, labels, leave_one_out=True, **options)
    alone = [
        evaluate_codes(
            codes[[row]],
            np.delete(codes, row, 0),
            labels[[row]],
            np.delete(labels, row, 0),
            **options,
        )
        for row in range(60)
        if (labels_in_common(labels[[row]], np.delete(labels, row, 0)) > 0).any()
    ]
    assert scores.queries - scores.queries_without_relevant == len(alone)
    assert scores.map == pytest.approx(np.mean([each.map for each in alone]))
    assert scores.map_at_r == pytest.approx(np.mean([each.map_at_r for each in alone]))
    for name in ("map_at", "map_at_found", "nothing_found_at", "recall_at"):
        for n, value in getattr(scores, name).items():
            assert value == pytest.approx(np.mean([getattr(each, name)[n] for each in alone]))


def test_empty_balls_are_left_out_or_counted_as_0():
    split = random_split(20, several=False)
    scores = evaluate_codes(*split, n_bits=20)
    queries, database, query_labels, database_labels = split
    distances = hamming_distances_reference(queries, database)
    related = labels_in_common(query_labels, database_labels) > 0
    precisions = [
        related[row][distances[row] <= 2].mean() if (distances[row] <= 2).any() else np.nan
        for row in range(len(queries))
    ]
    curves = scores.precision_recall
    assert 0 < curves.empty[2] == np.isnan(precisions).mean() < 1
    assert curves.precision[2] == pytest.approx(np.nanmean(precisions))
    assert curves.precision_or_zero[2] == pytest.approx(np.nan_to_num(precisions).mean())
    assert curves.empty[-1] == 0


def test_scores_that_are_not_asked_for_are_left_out():
    scores = evaluate_codes(*random_split(8, several=False), n_bits=8)
    assert (scores.map_at_r, scores.recall_at, scores.map_at, scores.nothing_found_at) == (
        None,
        {},
        {},
        {},
    )


@pytest.mark.parametrize("several", [False, True])
def test_expected_map_is_the_mean_over_all_orders_of_the_database(several):
    queries, database, query_labels, database_labels = random_split(4, several, n=5)
    expected = evaluate_codes(
        queries, database, query_labels, database_labels, n_bits=4, map_at=(3,)
    )
    ordered = [
        evaluate_codes(
            queries,
            database[list(order)],
            query_labels,
            database_labels[list(order)],
            n_bits=4,
            ties="stable",
            map_at=(3,),
        )
        for order in itertools.permutations(range(5))
    ]
    assert np.mean([scores.map for scores in ordered]) == pytest.approx(expected.map)
    assert np.mean([scores.map_at[3] for scores in ordered]) == pytest.approx(expected.map_at[3])
    lowest, highest = expected.map_bounds
    assert all(lowest - 1e-12 <= scores.map <= highest + 1e-12 for scores in ordered)
    assert lowest < expected.map < highest


def test_scores_of_a_list_checked_by_hand():
    # Distances 0, 1, 1, 2; the first, the last and one of the tied items are relevant.
    query = np.zeros((1, 8), dtype=bool)
    database = np.zeros((4, 8), dtype=bool)
    database[[1, 2, 3, 3], [0, 1, 0, 1]] = True
    labels = np.array([1, 1, 0, 1])
    scores = evaluate_codes(pack(query), pack(database), np.array([1]), labels, n_bits=8)
    first, last = (1 + 2 / 2 + 3 / 4) / 3, (1 + 2 / 3 + 3 / 4) / 3
    assert scores.map == pytest.approx((first + last) / 2)
    assert scores.map_bounds == pytest.approx((last, first))
    np.testing.assert_allclose(scores.precision_recall.precision[:3], [1, 2 / 3, 3 / 4])
    np.testing.assert_allclose(scores.precision_recall.recall[:3], [1 / 3, 2 / 3, 1])
    assert scores.precision_at == {1: 1.0, 2: 0.75}  # no N beyond the four items


def test_modes_differ_only_in_map():
    split = random_split(8, several=True)
    by_mode = {ties: evaluate_codes(*split, n_bits=8, ties=ties, map_at=(5,)) for ties in TIES}
    lowest, highest = by_mode["expected"].map_bounds
    assert by_mode["pessimistic"].map == lowest
    assert by_mode["optimistic"].map == highest
    for left, right in itertools.pairwise(by_mode.values()):
        assert left.map != right.map
        assert left.map_at != right.map_at
        for name in ("map_bounds", "ndcg", "precision_recall", "precision_at", "map_at_found"):
            assert getattr(left, name) == getattr(right, name)


def test_ndcg_counts_the_labels_in_common():
    # One label in common at distance 0, two at distance 1.
    query, database = np.zeros((1, 4), dtype=bool), np.array([[0, 0, 0, 0], [1, 0, 0, 0]], bool)
    labels = np.array([[1, 0, 0], [1, 1, 0]])
    scores = evaluate_codes(pack(query), pack(database), np.array([[1, 1, 0]]), labels, n_bits=4)
    assert scores.ndcg == pytest.approx((1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3)))


def test_one_hot_labels_score_like_class_numbers():
    queries, database, query_labels, database_labels = random_split(24, several=False)
    marks = np.eye(query_labels.max() + 1, dtype=bool)
    single = evaluate_codes(
        queries, database, query_labels, database_labels, n_bits=24, map_at=(9,)
    )
    several = evaluate_codes(
        queries, database, marks[query_labels], marks[database_labels], n_bits=24, map_at=(9,)
    )
    assert several == single


def test_queries_without_relevant_items_are_counted_and_change_no_mean():
    queries, database, query_labels, database_labels = random_split(16, several=False)
    has_relevant = query_labels < 3
    query_labels[~has_relevant] = 99
    scores = evaluate_codes(queries, database, query_labels, database_labels, n_bits=16)
    without = evaluate_codes(
        queries[has_relevant], database, query_labels[has_relevant], database_labels, n_bits=16
    )
    assert scores.queries == len(queries)
    assert scores.queries_without_relevant == (~has_relevant).sum() > 0
    assert scores.map == pytest.approx(without.map)
    assert scores.precision_at == pytest.approx(without.precision_at)


@pytest.mark.parametrize("ties", TIES)
def test_scoring_in_chunks_changes_nothing(monkeypatch, ties):
    split = random_split(16, several=True)
    whole = evaluate_codes(*split, n_bits=16, ties=ties, map_at=(5,))
    monkeypatch.setattr(scoring, "CHUNK_NUMBERS", 1000)
    chunked = evaluate_codes(*split, n_bits=16, ties=ties, map_at=(5,))
    assert chunked.map == pytest.approx(whole.map)
    assert chunked.map_at == pytest.approx(whole.map_at)
    assert chunked.ndcg == pytest.approx(whole.ndcg)
    np.testing.assert_allclose(chunked.precision_recall.recall, whole.precision_recall.recall)
    np.testing.assert_allclose(chunked.precision_recall.precision, whole.precision_recall.precision)


def test_scores_of_empty_balls_survive_json():
    query, database = np.zeros((1, 4), dtype=bool), np.ones((2, 4), dtype=bool)
    scores = evaluate_codes(
        pack(query), pack(database), np.array([1]), np.array([1, 1]), n_bits=4, map_at=(3,)
    )
    assert np.isnan(scores.precision_recall.precision[:4]).all()
    assert Scores.from_json(scores.to_json()) == scores


def test_map_of_random_codes_is_the_fraction_of_relevant_items():
    rng = np.random.default_rng(0)
    queries, database = (np.packbits(rng.random((n, 32)) < 0.5, axis=1) for n in (200, 20_000))
    labels = rng.integers(0, 4, 200), rng.integers(0, 4, 20_000)
    assert evaluate_codes(queries, database, *labels, n_bits=32).map == pytest.approx(
        0.25, abs=0.01
    )


CODES, LABELS = np.zeros((3, 2), dtype=np.uint8), np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query_labels": LABELS[:2]}, "got 2 query labels for 3 query codes"),
        ({"database_labels": np.arange(4)}, "got 4 database labels for 3 database codes"),
        ({"database_labels": np.eye(3)}, "one class number per image"),
        ({"query_labels": LABELS.astype(float)}, "integers"),
        ({"query_codes": CODES.astype(float)}, "float64; pass uint8"),
        ({"query_codes": CODES[0]}, r"shape \(2,\)"),
        ({"query_codes": CODES[:0], "query_labels": LABELS[:0]}, "no query codes"),
        ({"database_codes": CODES[:0], "database_labels": LABELS[:0]}, "no database codes"),
        ({"query_labels": LABELS + 5}, "none shares a label"),
        ({"ties": "best"}, "choose one of expected, optimistic, pessimistic, stable, argsort"),
        ({"map_at": (0,)}, "map_at=.*whole numbers from 1 on"),
        ({"recall_at": (0,)}, "recall_at=.*whole numbers from 1 on"),
        ({"leave_one_out": True, "database_codes": CODES + 1}, "different queries and database"),
        ({"n_bits": 3}, "4 to 1024"),
        ({"database_codes": CODES + 1, "n_bits": 12}, "last 4 bits are not 0"),
    ],
)
def test_invalid_input_is_refused_with_one_clear_error(changed, message):
    arguments = {
        "query_codes": CODES,
        "database_codes": CODES,
        "query_labels": LABELS,
        "database_labels": LABELS,
        "n_bits": 16,
    }
    with pytest.raises(InputError, match=message):
        evaluate_codes(**(arguments | changed))


@pytest.mark.parametrize("n_bits", [16, 32])
def test_codes_of_different_lengths_are_refused(n_bits):
    with pytest.raises(CodeLengthError, match=f"where {n_bits} bits need {n_bits // 8}"):
        evaluate_codes(CODES, np.zeros((3, 4), np.uint8), LABELS, LABELS, n_bits=n_bits)


def random_split(n_bits, several, n=300):
    """Codes and labels of 50 queries and n database items; shared labels make codes nearer."""
    rng = np.random.default_rng(n_bits)
    marks = rng.random((50 + n, 5)) < 0.3 if several else np.eye(5)[rng.integers(0, 5, 50 + n)]
    bits = marks @ rng.standard_normal((5, n_bits)) + rng.standard_normal((50 + n, n_bits)) > 0
    labels = marks.astype(int) if several else marks.argmax(axis=1)
    codes = pack(bits)
    return codes[:50], codes[50:], labels[:50], labels[50:]


def sorted_relevance(queries, database, query_labels, database_labels, kind="stable"):
    """Yield each query's relevance of the database items, in the order of an argsort."""
    distances = hamming_distances_reference(queries, database).astype(np.float32)
    relevant = labels_in_common(query_labels, database_labels) > 0
    for row, is_relevant in zip(distances, relevant, strict=True):
        yield is_relevant[np.argsort(row, kind=kind)]


def average_precision(relevance, divisor=None):
    ranks = np.flatnonzero(relevance) + 1
    return (np.arange(1, len(ranks) + 1) / ranks).sum() / (divisor or len(ranks))


@pytest.mark.parametrize("ties", TIES)
def test_average_precision_of_each_query_is_that_of_the_query_alone(ties):
    queries, database, query_labels, database_labels = random_split(16, several=False)
    query_labels = np.append(query_labels[:-1], 99)  # the last has no match
    scores = evaluate_codes(queries, database, query_labels, database_labels, n_bits=16, ties=ties)
    alone = [
        evaluate_codes(
            queries[[row]], database, query_labels[[row]], database_labels, n_bits=16, ties=ties
        ).map
        for row in range(len(queries) - 1)
    ]
    assert scores.average_precision == pytest.approx([*alone, np.nan], nan_ok=True)
    by_class = {
        str(label): np.mean(
            [ap for ap, own in zip(alone, query_labels, strict=False) if own == label]
        )
        for label in np.unique(query_labels[:-1])
    }
    assert scores.map_by_class == pytest.approx(by_class)


def test_a_query_with_several_labels_counts_for_each_of_its_classes():
    codes = np.array([[0b00000000], [0b10000000], [0b11000000]], np.uint8)
    labels = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]], bool)
    query_labels = np.array([[1, 1, 0], [1, 0, 0]], bool)
    scores = evaluate_codes(codes[:2], codes, query_labels, labels, n_bits=8)
    first, second = scores.average_precision
    assert scores.map_by_class == pytest.approx({"0": (first + second) / 2, "1": first})


def test_precision_beyond_the_size_of_the_database_is_left_out():
    rng = np.random.default_rng(0)
    codes, labels = rng.integers(0, 256, (60, 2), dtype=np.uint8), np.arange(60) % 3
    scores = evaluate_codes(codes[:5], codes, labels[:5], labels, n_bits=16)
    assert list(scores.precision_at) == [1, 2, 5, 10, 20, 50]
    others = evaluate_codes(
        codes, codes, labels, labels, n_bits=16, precision_at=(59, 60), leave_one_out=True
    )
    assert list(others.precision_at) == [59]
