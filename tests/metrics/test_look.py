import itertools

import numpy as np
import pytest

from orbithash.codes import asymmetric_distances, binarize, pack
from orbithash.errors import InputError
from orbithash.kernels.hamming import hamming_distances
from orbithash.metrics import look
from orbithash.metrics.look import count_distinct, look_score, nearest_by_cosine
from orbithash.metrics.scoring import evaluate_codes


def problem(*, n=40, n_queries=12, n_bits=6, d=5, seed=0):
    """Embeddings with few bits, so many ties, and features with some equal rows."""
    rng = np.random.default_rng(seed)
    features = np.round(rng.standard_normal((n, d)), 1)
    features[n // 2 :: 3] = features[3]
    embeddings = rng.integers(1, 4, (n, n_bits)) / 4
    return embeddings, features, np.arange(n) < n_queries


def nearest_by_loop(query, database, *, left_out=None):
    """The positions of the ten nearest by centred cosine, equal ones in database order."""
    mean = np.mean(database, axis=0)

    def cosine(a, b):
        lengths = np.sqrt(np.sum(a * a)) * np.sqrt(np.sum(b * b))
        return np.sum(a * b) / lengths if lengths else 0.0

    cosines = [round(cosine(query - mean, row - mean), 9) for row in database]
    order = sorted(range(len(database)), key=lambda item: (-cosines[item], item))
    return [item for item in order if item != left_out][:10]


def share_by_loop(distances, nearest, *, left_out=None):
    """The mean share of `nearest` among the first ten: each item by its chance to be there."""
    others = [item for item in range(len(distances)) if item != left_out]
    total = 0.0
    for item in nearest:
        n_before = sum(distances[other] < distances[item] for other in others)
        n_tied = sum(distances[other] == distances[item] for other in others)
        total += min(1.0, max(0.0, (len(nearest) - n_before) / n_tied))
    return total / len(nearest)


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_look_is_the_share_of_the_visually_nearest_among_the_nearest_by_code(
    asymmetric, chunked, monkeypatch
):
    if chunked:
        monkeypatch.setattr(look, "CHUNK_PAIRS", 100)
        monkeypatch.setattr(look, "TILE_ROWS", 7)
    embeddings, features, is_query = problem()
    codes = pack(binarize(embeddings))
    nearest = nearest_by_cosine(features[is_query], features[~is_query])
    given = embeddings[is_query] if asymmetric else None
    shares = look_score(codes[is_query], codes[~is_query], nearest, query_embeddings=given)
    distances = (
        asymmetric_distances(embeddings[is_query], codes[~is_query])
        if asymmetric
        else hamming_distances(codes[is_query], codes[~is_query])
    )
    for query, share in enumerate(shares):
        expected = nearest_by_loop(features[query], features[~is_query])
        assert nearest[query].tolist() == expected
        assert share == pytest.approx(share_by_loop(distances[query], expected), abs=1e-12)
    assert 0 < shares.mean() < 1


def test_look_is_the_mean_over_all_orders_of_the_ties():
    codes = np.array([[0], [1 << 4], [1 << 5], [1 << 6], [3 << 4]], dtype=np.uint8)
    nearest = np.array([[4, 2, 1]])
    found = []
    for order in itertools.permutations(range(5)):
        distances = hamming_distances(codes[:1], codes)[0]
        first = sorted(range(5), key=lambda item: (distances[item], order[item]))[:3]
        found.append(len(set(first) & {4, 2, 1}) / 3)
    assert look_score(codes[:1], codes, nearest) == pytest.approx(np.mean(found))


@pytest.mark.parametrize("asymmetric", [False, True])
def test_no_item_is_its_own_neighbour(asymmetric, monkeypatch):
    monkeypatch.setattr(look, "TILE_ROWS", 16)
    embeddings, features, _ = problem()
    codes, labels = pack(binarize(embeddings)), np.arange(len(features)) % 3
    given = {"query_embeddings": embeddings} if asymmetric else {}
    scores = evaluate_codes(
        *(codes, codes, labels, labels),
        n_bits=6,
        leave_one_out=True,
        query_teacher=features,
        database_teacher=features,
        **given,
    )
    distances = (
        asymmetric_distances(embeddings, codes) if asymmetric else hamming_distances(codes, codes)
    )
    shares = [
        share_by_loop(
            distances[row], nearest_by_loop(features[row], features, left_out=row), left_out=row
        )
        for row in range(len(features))
    ]
    value = scores.look_asymmetric if asymmetric else scores.look
    assert value == pytest.approx(np.mean(shares), abs=1e-12)
    assert (scores.look_asymmetric is None) == (not asymmetric)


def test_queries_that_are_some_of_the_database_do_not_find_themselves():
    embeddings, features, is_query = problem()
    codes, labels = pack(binarize(embeddings)), np.arange(len(features)) % 3
    rows = np.flatnonzero(is_query)[::-2]
    options = {"n_bits": 6, "map_at": (5,), "ties": "stable"}
    some = evaluate_codes(
        *(codes[rows], codes, labels[rows], labels),
        leave_one_out=rows,
        query_embeddings=embeddings[rows],
        query_teacher=features[rows],
        database_teacher=features,
        **options,
    )
    for field in ("map", "map_asymmetric", "look", "look_asymmetric", "ndcg"):
        values = []
        for row in rows:
            others = np.delete(np.arange(len(codes)), row)
            nearest = [nearest_by_loop(features[row], features, left_out=row)]
            one = evaluate_codes(
                *(codes[[row]], codes[others], labels[[row]], labels[others]),
                query_embeddings=embeddings[[row]],
                **options,
            )
            if field.startswith("look"):
                given = embeddings[[row]] if "asymmetric" in field else None
                own = {"query_embeddings": given, "own": np.array([row])}
                values += look_score(codes[[row]], codes, np.array(nearest), **own).tolist()
            else:
                values.append(getattr(one, field))
        assert getattr(some, field) == pytest.approx(np.mean(values), abs=1e-12)
    assert some.database == len(codes) - 1


def test_a_small_database_is_found_whole():
    embeddings, features, _ = problem(n=8)
    codes = pack(binarize(embeddings))
    nearest = nearest_by_cosine(features[:2], features[2:])
    assert nearest.shape == (2, 6)
    assert look_score(codes[:2], codes[2:], nearest).tolist() == [1.0, 1.0]


def test_equal_codes_find_the_nearest_by_chance_alone():
    _, features, is_query = problem()
    codes = np.zeros((len(features), 1), np.uint8)
    labels = np.arange(len(features)) % 2
    n_database = np.count_nonzero(~is_query)
    scores = evaluate_codes(
        *(codes[is_query], codes[~is_query], labels[is_query], labels[~is_query]),
        n_bits=8,
        query_teacher=features[is_query],
        database_teacher=features[~is_query],
    )
    assert scores.look == pytest.approx(10 / n_database)
    assert scores.distinct_codes == 1


def test_codes_without_features_have_distinct_codes_and_no_look():
    codes, labels = np.array([[1, 3], [1, 2], [1, 3], [0, 3]], np.uint8), np.array([0, 0, 1, 1])
    scores = evaluate_codes(codes, codes, labels, labels, n_bits=16)
    assert (scores.look, scores.look_asymmetric, scores.distinct_codes) == (None, None, 3)
    long = np.random.default_rng(0).integers(0, 2, (50, 20), dtype=np.uint8)
    long[:, :18] = long[0, :18]  # they differ only in the last of several words
    assert count_distinct(long) == len({row.tobytes() for row in long})


def test_an_item_that_equals_the_mean_is_as_near_to_everything():
    database = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    assert nearest_by_cosine([[2.0, 0.0]], database).tolist() == [[0, 1, 2]]
    assert nearest_by_cosine([[0.0, 0.0]], database).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("query", "database", "message"),
    [
        (np.zeros((3, 4)), None, "give both or neither"),
        (np.zeros((2, 4)), np.zeros((3, 4)), "one row of features per code"),
        (np.zeros((3, 4)), np.zeros((3, 5)), "take both from the same network"),
        (np.zeros(3), np.zeros((3, 5)), r"numbers of shape \(images, d\)"),
        (np.full((3, 5), np.nan), np.zeros((3, 5)), "NaN or infinite"),
    ],
)
def test_features_that_do_not_fit_the_codes_are_refused(query, database, message):
    codes, labels = np.zeros((3, 2), np.uint8), np.zeros(3, int)
    given = {"query_teacher": query, "database_teacher": database}
    with pytest.raises(InputError, match=message):
        evaluate_codes(codes, codes, labels, labels, n_bits=16, **given)
