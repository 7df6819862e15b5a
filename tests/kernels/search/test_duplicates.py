import numpy as np
import pytest

from orbithash.kernels.plain_search import as_words, connected_reference
from orbithash.kernels.search import duplicates
from orbithash.kernels.search.duplicates import connected_words


@pytest.fixture(params=["as chosen", "by sets of bits", "all pairs"])
def way(request, monkeypatch):
    """Fewer codes than the first pass compares would leave the later ones nothing to find."""
    if request.param != "as chosen":
        sort_words = 0 if request.param == "by sets of bits" else 1 << 40
        monkeypatch.setattr(duplicates, "SORT_WORDS", sort_words)
        monkeypatch.setattr(duplicates, "WINDOW", 1)
        monkeypatch.setattr(duplicates, "CALL_WORDS", 1 << 16)  # several calls


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("n_bits", [4, 63, 64, 65, 300])
@pytest.mark.parametrize("radius", [0, 3, 10])
@pytest.mark.parametrize("kind", ["random", "clustered", "rarely set", "equal"])
def test_groups_match_brute_force(n_bits, radius, kind):
    assert_groups_match(codes_of(kind, 700, n_bits), n_bits, min(radius, n_bits))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("share", [0.2, 0.35, 0.5, 1])
def test_large_radii_match_brute_force(share):
    for n_bits in (9, 64, 100):
        assert_groups_match(codes_of("random", 500, n_bits), n_bits, int(share * n_bits))


@pytest.mark.usefixtures("way")
def test_a_chain_is_one_group_though_its_ends_are_far_apart():
    steps = np.tri(65, 64, k=-1, dtype=bool)  # each differs from the one before in one bit
    codes = np.packbits(np.random.default_rng(0).permutation(steps), axis=1)
    np.testing.assert_array_equal(connected_words(as_words(codes), 64, 1), np.zeros(65))
    np.testing.assert_array_equal(connected_words(as_words(codes), 64, 0), np.arange(65))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("n", [0, 1, 2, 33, 64, 65, 2100])
def test_any_number_of_codes(n):
    assert_groups_match(codes_of("clustered", n, 32), 32, 2)


def test_bits_that_never_differ_do_not_make_all_codes_share_a_set():
    """Half of the bits are constant: without a choice of bits, two of four sets would be equal."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 32, (1, 300_000), dtype=np.uint64)
    sets = duplicates.bit_sets(words, 64, 3)
    assert [np.count_nonzero(bits < 32) for bits in sets] == [8, 8, 8, 8]


def test_equal_codes_are_compared_once():
    words = np.array([[5, 7, 5, 7, 7], [1, 1, 1, 2, 1]], dtype=np.uint64)
    numbers = np.empty(5, dtype=np.int32)
    assert duplicates.distinct_words(words, numbers).shape == (2, 3)
    assert numbers[0] == numbers[2] != numbers[1] == numbers[4] != numbers[3]


def codes_of(kind: str, n: int, n_bits: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "random":
        bits = rng.random((n, n_bits)) < 0.5
    elif kind == "clustered":
        centres = rng.random((12, n_bits)) < 0.5
        bits = centres[rng.integers(0, 12, n)] ^ (rng.random((n, n_bits)) < 3 / n_bits)
    elif kind == "rarely set":
        bits = rng.random((n, n_bits)) < 0.05
    else:
        bits = np.ones((n, n_bits), dtype=bool)
    return np.packbits(bits, axis=1)


def assert_groups_match(codes: np.ndarray, n_bits: int, radius: int) -> None:
    expected = literal_groups(codes, radius) if len(codes) <= 100 else None
    reference = connected_reference(codes, radius)
    if expected is not None:
        assert reference.tolist() == expected
    np.testing.assert_array_equal(connected_words(as_words(codes), n_bits, radius), reference)


def literal_groups(codes: np.ndarray, radius: int) -> list[int]:
    """Compare each code with each other, one bit at a time, until nothing changes."""
    bits = np.unpackbits(codes, axis=1).tolist()
    groups = list(range(len(bits)))
    changed = True
    while changed:
        changed = False
        for i, left in enumerate(bits):
            for j, right in enumerate(bits):
                distance = sum(a != b for a, b in zip(left, right, strict=True))
                if distance <= radius and groups[j] < groups[i]:
                    groups[i], changed = groups[j], True
    return groups
