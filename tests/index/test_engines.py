"""One contract for all engines of the registry, checked against brute force."""

import numpy as np
import pytest

from milvus_servers import new_collection
from orbithash.errors import CodeLengthError, InputError
from orbithash.index import ENGINES, Metadata, SearchEngine, Where, create_index
from orbithash.kernels.plain_search import nearest_reference

ORDERED = (
    "exact",
    "exact-mih",
    "faiss",
    "folder",
)  # ties in the order of ids, and cut in that order
EXACT = (*ORDERED, "milvus")  # exact distances
RECALL = 0.9  # of the others, by distance

# An index in a folder has the same contract.
pytestmark = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if "milvus" in name else ())
        for name in (*ENGINES, "folder")
    ],
)


@pytest.fixture
def make_index(name, tmp_path, request):
    """Return a function that creates an empty index of the engine under test."""
    if name == "folder":
        return lambda n_bits: create_index(tmp_path / "index.orbit", n_bits)
    if "milvus" not in name:
        return ENGINES[name]
    server = request.getfixturevalue("milvus_server").address
    return lambda n_bits: ENGINES[name](n_bits, server=server, collection=new_collection())


def random_codes(n: int, n_bits: int, seed: int = 0) -> np.ndarray:
    bits = np.random.default_rng(seed).random((n, n_bits)) > 0.5
    return np.packbits(bits, axis=1)


def random_ids(n: int, seed: int = 2) -> np.ndarray:
    """Return unsorted ids with gaps, some negative, -1 among them."""
    ids = np.random.default_rng(seed).permutation(1000)[:n] - 500
    ids[n // 2] = -1 if -1 not in ids else ids[n // 2]
    return ids


def brute_force(queries, ids, codes):
    """Compare every query with every code in plain Python: sorted pairs (distance, id)."""
    return [
        sorted(
            (sum(int(a ^ b).bit_count() for a, b in zip(query, code, strict=True)), int(i))
            for i, code in zip(ids, codes, strict=True)
        )
        for query in queries
    ]


def assert_nearest(name, found, queries, ids, codes, k):
    """Check results as exactly as the engine promises."""
    expected = np.array([pairs[:k] for pairs in brute_force(queries, ids, codes)])
    assert found.ids.dtype == found.distances.dtype == np.int64
    assert found.ids.shape == found.distances.shape == expected.shape[:2]
    assert_missing_results_come_last(found)
    true_distances = [dict((i, d) for d, i in pairs) for pairs in brute_force(queries, ids, codes)]
    for row, true in enumerate(true_distances):
        pairs = list(zip(found.distances[row].tolist(), found.ids[row].tolist(), strict=True))
        present = [pair for pair in pairs if pair[0] >= 0]
        assert present == sorted(present)
        assert all(true[i] == distance for distance, i in present)
    if name in EXACT:
        assert np.array_equal(found.distances, expected[:, :, 0])
    if name in ORDERED:
        assert np.array_equal(found.ids, expected[:, :, 1])
    near = (found.distances >= 0) & (found.distances <= expected[:, -1:, 0])
    assert near.mean() >= RECALL


def assert_missing_results_come_last(found):
    """Missing results have distance -1 and id -1, at the end of a row."""
    missing = found.distances < 0
    assert np.array_equal(missing, np.sort(missing, axis=1))
    assert np.all(found.distances[missing] == -1)
    assert np.all(found.ids[missing] == -1)


@pytest.mark.parametrize("n_bits", [4, 13, 64, 1024])
@pytest.mark.parametrize("k", [1, 10, 60])
def test_search_equals_brute_force_with_ties_in_the_order_of_ids(make_index, name, n_bits, k):
    codes, queries = random_codes(60, n_bits), random_codes(7, n_bits, seed=1)
    ids = random_ids(60)
    index = make_index(n_bits)
    index.add(ids[:25], codes[:25])
    index.add(ids[25:], codes[25:])
    assert_nearest(name, index.search(queries, k), queries, ids, codes, k)


@pytest.mark.parametrize("seed", range(6))
def test_search_equals_a_stable_sort_for_any_sizes(make_index, name, seed):
    rng = np.random.default_rng(seed)
    n_bits, n, k = (int(rng.integers(*bounds)) for bounds in ((4, 1025), (1, 300), (1, 320)))
    # Few different codes, so that most distances are ties.
    codes = random_codes(20, n_bits, seed=seed)[rng.integers(0, 20, n)]
    queries, ids = random_codes(5, n_bits, seed=seed + 100), np.sort(rng.choice(9999, n, False))
    index = make_index(n_bits)
    order = rng.permutation(n)
    index.add(ids[order], codes[order])
    found = index.search(queries, k)
    assert_missing_results_come_last(found)
    distances, positions = nearest_reference(queries, codes, k)
    if name in EXACT:
        assert np.array_equal(found.distances, distances)
    if name in ORDERED:
        assert np.array_equal(found.ids, ids[positions])
    assert found.ids.shape == distances.shape


@pytest.mark.parametrize("n_bits", [4, 13, 64, 1024])
@pytest.mark.parametrize("k", [1, 60])
def test_embeddings_are_searched_by_asymmetric_distance(make_index, name, n_bits, k):
    codes, embeddings = random_codes(60, n_bits), eighths(7, n_bits)
    ids = random_ids(60)
    index = make_index(n_bits)
    index.add(ids, codes)
    found = index.search(embeddings, k)
    expected = np.array([pairs[:k] for pairs in literal_asymmetric(embeddings, ids, codes)])
    assert found.ids.dtype == np.int64
    assert found.distances.dtype == np.float64
    if name not in EXACT:  # ties too: of so few items, all are fetched from Milvus
        near = (found.distances >= 0) & (found.distances <= expected[:, -1:, 0])
        assert near.mean() >= RECALL
        return
    np.testing.assert_array_equal(found.ids, expected[:, :, 1])
    np.testing.assert_allclose(found.distances, expected[:, :, 0], rtol=0, atol=n_bits / 2**32)
    as_lists = index.search(embeddings.astype(np.float32).tolist(), k)
    np.testing.assert_array_equal(as_lists.distances, found.distances)


def test_only_admitted_items_are_near_an_embedding(make_index):
    index, codes, embeddings = make_index(16), random_codes(40, 16), eighths(3, 16)
    labels = [Metadata(labels=("cat" if i % 3 else "dog",)) for i in range(40)]
    index.add(np.arange(40), codes, labels)
    found = index.search(embeddings, k=5, where=Where(labels=("dog",)))
    expected = literal_asymmetric(embeddings, np.arange(0, 40, 3), codes[::3])
    np.testing.assert_array_equal(found.ids, [[i for _, i in pairs[:5]] for pairs in expected])
    assert index.search(embeddings, k=5, where=Where(labels=("bird",))).ids.shape == (3, 0)


def test_embeddings_that_are_none_are_refused(make_index):
    index = make_index(16)
    index.add(np.arange(2), random_codes(2, 16))
    with pytest.raises(InputError, match="embeddings of 12 bits but the index holds codes of 16"):
        index.search(np.full((1, 12), 0.5), k=1)
    for value in (np.nan, -0.1, 1.1):
        with pytest.raises(InputError, match=r"NaN or outside \[0, 1\]"):
            index.search(np.full((1, 16), value), k=1)
    with pytest.raises(InputError, match="pass floats of shape"):
        index.search(np.full(16, 0.5), k=1)


@pytest.mark.parametrize("n_bits", [13, 64])
def test_many_and_few_codes_are_searched_with_the_same_result(make_index, n_bits, monkeypatch):
    index, codes, embeddings = make_index(n_bits), random_codes(60, n_bits), eighths(7, n_bits)
    index.add(random_ids(60), codes)
    few = index.search(embeddings, k=20)
    monkeypatch.setattr("orbithash.index.code_table.FEW_BITS", 0)  # which numpy would search
    many = index.search(embeddings, k=20)
    np.testing.assert_array_equal(few.ids, many.ids)
    np.testing.assert_array_equal(few.distances, many.distances)


@pytest.mark.parametrize("k", [None, 1, 7, 100])
def test_a_radius_selects_by_bits_and_embeddings_order(make_index, k):
    index, codes, ids, embeddings = (
        *(make_index(16), random_codes(60, 16), random_ids(60)),
        eighths(7, 16),
    )
    index.add(ids, codes)
    hamming = np.unpackbits(codes ^ np.packbits(embeddings > 0.5, axis=1)[:, None], axis=2).sum(2)
    for radius in (0, 5, 16):
        balls = index.within(embeddings, radius, k=k)
        for ball, literal, bits in zip(
            balls, literal_asymmetric(embeddings, ids, codes), hamming, strict=True
        ):
            near = {int(i) for i, n in zip(ids, bits, strict=True) if n <= radius}
            expected = [(distance, i) for distance, i in literal if i in near][:k]
            assert ball.ids.tolist() == [i for _, i in expected]
            assert ball.distances.tolist() == [distance for distance, _ in expected]


@pytest.mark.parametrize("k", [1, 7, 100])
def test_the_nearest_codes_within_a_radius_are_cut_at_k(make_index, k):
    index, codes, ids = make_index(16), random_codes(60, 16), random_ids(60)
    index.add(ids, codes)
    for ball, first in zip(
        index.within(codes[:5], 6), index.within(codes[:5], 6, k=k), strict=True
    ):
        assert first.distances.tolist() == ball.distances[:k].tolist()
        # Milvus cuts a tie at k as it likes; what is nearer is in order.
        nearer = first.distances < first.distances[-1]
        assert first.ids[nearer].tolist() == ball.ids[: nearer.sum()].tolist()
        assert set(first.ids.tolist()) <= set(ball.ids.tolist())


def literal_asymmetric(embeddings, ids, codes):
    """Sum |value − bit| over the bits in plain Python: sorted pairs (distance, id)."""
    bits = np.unpackbits(codes, axis=1).tolist()
    return [
        sorted(
            (sum(abs(h - b) for h, b in zip(embedding, row, strict=False)), int(i))
            for i, row in zip(ids, bits, strict=True)
        )
        for embedding in embeddings.tolist()
    ]


def eighths(n: int, n_bits: int) -> np.ndarray:
    """Return embeddings of nine different values, so that sums are exact and many are equal."""
    return np.random.default_rng(5).integers(0, 9, (n, n_bits)) / 8


@pytest.mark.parametrize("n_bits", [4, 13, 64, 1024])
def test_within_a_radius_equals_brute_force(make_index, n_bits):
    codes, queries = random_codes(60, n_bits), random_codes(4, n_bits, seed=1)
    ids = random_ids(60)
    index = make_index(n_bits)
    index.add(ids, codes)
    for radius in (0, n_bits // 2, n_bits):
        expected = brute_force(queries, ids, codes)
        for ball, pairs in zip(index.within(queries, radius), expected, strict=True):
            near = [pair for pair in pairs if pair[0] <= radius]
            assert list(zip(ball.distances.tolist(), ball.ids.tolist(), strict=True)) == near


def test_after_any_changes_the_index_holds_the_items_of_a_dictionary(make_index, name):
    index, model = make_index(20), {}
    rng = np.random.default_rng(0)
    for step in range(12):
        ids = rng.choice(np.arange(-40, 40), rng.integers(1, 25), replace=False)
        codes = random_codes(len(ids), 20, seed=step)
        notes = [Metadata(path=f"{step}/{i}.jpg", labels=(f"class {i % 3}",)) for i in ids]
        if step % 3 == 2:
            assert index.remove(ids) == sum(int(i) in model for i in ids)
            model = {i: item for i, item in model.items() if i not in ids}
        elif step % 3 == 1:
            index.update(ids, codes, notes)
            model |= {int(i): item for i, *item in zip(ids, codes, notes, strict=True)}
        else:
            free = np.array([int(i) not in model for i in ids])
            index.add(ids[free], codes[free], [n for n, f in zip(notes, free, strict=True) if f])
            new = zip(ids[free], codes[free], np.array(notes, object)[free], strict=True)
            model |= {int(i): [code, note] for i, code, note in new}
        assert len(index) == len(model)
    stored = list(index.iterate(batch_size=7))
    assert [i for items in stored for i in items.ids.tolist()] == sorted(model)
    for items in [*stored, index.get(np.array(sorted(model))[::-1])]:
        for i, code, note in zip(items.ids.tolist(), items.codes, items.metadata, strict=True):
            assert np.array_equal(code, model[i][0])
            assert note == model[i][1]
    queries, ids = random_codes(3, 20, seed=99), np.array(sorted(model))
    codes = np.array([model[i][0] for i in ids])
    assert_nearest(name, index.search(queries, 5), queries, ids, codes, 5)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Where(labels=("cat",)), [0, 2]),
        (Where(labels=("dog", "bird")), [1, 2, 3]),
        (Where(labels=('say "miau"',)), [4]),
        (Where(labels=("fish",)), []),
        (Where(fields={"camera": "it's"}), [1, 3]),
        (Where(fields={"year": 2020}), [0, 1]),
        (Where(fields={"year": 2020, "sharp": True}), [0]),
        (Where(fields={"sharp": 1}), []),
        (Where(labels=("dog",), fields={"year": 2020}), [1]),
        (Where(), [0, 1, 2, 3, 4, 5]),
    ],
)
def test_only_items_that_the_filter_admits_are_found(make_index, where, expected):
    index = make_index(16)
    codes = random_codes(6, 16)
    index.add(
        np.arange(6),
        codes,
        [
            Metadata(labels=("cat",), fields={"year": 2020, "sharp": True}),
            Metadata(labels=("dog",), fields={"year": 2020, "camera": "it's", "sharp": False}),
            Metadata(labels=("cat", "bird"), fields={"exposure": 0.5}),
            Metadata(labels=("bird",), fields={"camera": "it's"}),
            Metadata(labels=('say "miau"',)),
            Metadata(),
        ],
    )
    found = index.search(codes[:1], k=6, where=where)
    assert sorted(found.ids[0].tolist()) == expected
    (ball,) = index.within(codes[:1], radius=16, where=where)
    assert ball.ids.tolist() == found.ids[0].tolist()


def test_fewer_columns_are_returned_if_fewer_codes_are_stored(make_index):
    index = make_index(16)
    assert index.search(random_codes(3, 16), k=5).ids.shape == (3, 0)
    index.add(np.arange(2), random_codes(2, 16))
    assert index.search(random_codes(3, 16), k=5).ids.shape == (3, 2)
    assert index.search(random_codes(0, 16), k=5).ids.shape == (0, 2)
    assert index.search(eighths(3, 16), k=5).ids.shape == (3, 2)
    assert index.search(eighths(0, 16), k=5).distances.dtype == np.float64
    assert index.within(random_codes(0, 16), radius=5) == []
    assert len(index) == 2


def test_codes_of_another_length_are_refused(make_index):
    index = make_index(16)
    with pytest.raises(CodeLengthError, match="the codes have 3 bytes where 16 bits need 2"):
        index.add(np.arange(1), random_codes(1, 24))
    index.add(np.arange(1), random_codes(1, 16))
    with pytest.raises(CodeLengthError):
        index.search(random_codes(1, 8), k=1)
    with pytest.raises(CodeLengthError):
        index.within(random_codes(1, 8), radius=1)


def test_an_id_can_be_added_only_once(make_index):
    index = make_index(16)
    index.add(np.array([3]), random_codes(1, 16))
    with pytest.raises(InputError, match="id 3 is stored already"):
        index.add(np.array([4, 3]), random_codes(2, 16))
    with pytest.raises(InputError, match="id 5 is given twice"):
        index.update(np.array([5, 5]), random_codes(2, 16))
    assert len(index) == 1
    with pytest.raises(InputError, match="there is no item with id 4"):
        index.get(np.array([3, 4]))


def test_ids_are_assigned_if_none_are_given(make_index):
    index, codes = make_index(16), random_codes(7, 16)
    assigned = index.add(codes=codes[:2], metadata=[Metadata("a.jpg"), Metadata("b.jpg")])
    assert assigned.dtype == np.int64
    assert assigned.tolist() == [0, 1]
    given = index.add(np.array([9, -4], dtype=np.int32), codes[2:4])
    assert given.dtype == np.int64
    assert given.tolist() == [9, -4]
    assert index.add(codes=codes[4:]).tolist() == [10, 11, 12]
    assert index.add(codes=codes[:0]).tolist() == []
    assert index.next_id() == 13
    stored = index.get(np.array([0, 1, 9, -4, 10, 11, 12]))
    assert np.array_equal(stored.codes, codes)
    assert [metadata.path for metadata in stored.metadata[:3]] == ["a.jpg", "b.jpg", ""]


def test_negative_ids_are_never_assigned(make_index):
    index, codes = make_index(16), random_codes(2, 16)
    index.add([-7], codes[:1])
    assert index.add(codes=codes[1:]).tolist() == [0]


def test_codes_must_be_given(make_index):
    index = make_index(16)
    for arguments in ((), (random_codes(1, 16),)):
        with pytest.raises(InputError, match=r"got no codes; call add\(codes=codes\)"):
            index.add(*arguments)


def test_lists_are_accepted_wherever_arrays_are(make_index):
    index, codes = make_index(16), random_codes(5, 16)
    rows = codes.tolist()
    assert index.add([3, 1], rows[:2]).tolist() == [3, 1]
    assert index.add(codes=list(codes[2:4])).tolist() == [4, 5]
    index.update([1], [rows[4]])
    assert np.array_equal(index.get([1, 3, 4]).codes, codes[[4, 0, 2]])
    assert index.search([rows[4]], k=1).ids.tolist() == [[1]]
    (ball,) = index.within([rows[4]], radius=0)
    assert 1 in ball.ids
    assert index.remove([]) == 0
    assert index.remove([3, 99]) == 1
    assert len(index.get([])) == 0
    assert len(index) == 3


@pytest.mark.parametrize("rows", [[[1, 256]], [[-1, 0]], [[0.5, 1.0]], [[1, 2], [3]], [1, 2], []])
def test_lists_that_are_not_codes_are_refused(make_index, rows):
    with pytest.raises(InputError, match="got codes"):
        make_index(16).add(codes=rows)


def test_inconsistent_arguments_are_refused(make_index):
    index = make_index(16)
    with pytest.raises(InputError, match="got 2 ids for 1 codes"):
        index.add(np.arange(2), random_codes(1, 16))
    with pytest.raises(InputError, match="metadata of 1 items for 2 codes"):
        index.add(np.arange(2), random_codes(2, 16), [Metadata()])
    with pytest.raises(InputError, match="whole numbers"):
        index.remove(np.array([0.5]))
    with pytest.raises(InputError, match="at least 1 neighbour"):
        index.search(random_codes(1, 16), k=0)
    for radius in (-1, 17):
        with pytest.raises(InputError, match="a whole number from 0 to 16"):
            index.within(random_codes(1, 16), radius)
    with pytest.raises(InputError, match="at least 1 neighbour"):
        index.within(random_codes(1, 16), radius=2, k=0)


def test_engine_satisfies_the_protocol_and_reports_its_size(make_index, name):
    index = make_index(16)
    assert isinstance(index, SearchEngine)
    index.add(np.arange(50), random_codes(50, 16))
    assert index.stats().recall is None  # stats build nothing
    index.search(random_codes(1, 16), k=1)
    stats = index.stats()
    expected_name = "exact" if name == "folder" else name
    assert (stats.engine, stats.n_bits, stats.count) == (expected_name, 16, 50)
    assert (stats.recall is not None) == (name in ("faiss-ivf", "faiss-hnsw"))
    assert stats.recall_at == (10 if name in ("faiss-ivf", "faiss-hnsw") else None)
    index.close()


def test_duplicates_are_the_groups_that_steps_within_the_radius_connect(make_index, name):
    index = make_index(16)
    centres = random_codes(20, 16)
    codes = np.concatenate([centres, centres[:8], centres[:3] ^ np.array([1, 0], np.uint8)])
    ids = random_ids(len(codes))
    index.add(ids, codes, [Metadata(labels=("a" if i < 25 else "b",)) for i in range(len(codes))])
    for radius, where in ((0, None), (2, None), (1, Where(labels=("a",))), (16, None)):
        admitted = np.arange(len(codes)) < (25 if where else len(codes))
        groups = index.duplicates(radius, where)
        expected = literal_groups(ids[admitted], codes[admitted], radius)
        assert [group.ids.tolist() for group in groups] == expected
    index.close()


def literal_groups(ids, codes, radius):
    """Return groups of two ids or more by brute force, the largest first, then by smallest id."""
    groups = {int(i): {int(i)} for i in ids}
    for balls in zip(ids, brute_force(codes, ids, codes), strict=True):
        first, pairs = balls
        for distance, i in pairs:
            if distance <= radius:
                joined = groups[int(first)] | groups[i]
                groups |= {member: joined for member in joined}
    distinct = {tuple(sorted(group)) for group in groups.values() if len(group) > 1}
    return sorted(map(list, distinct), key=lambda group: (-len(group), group[0]))
