import numpy as np
import pytest

import orbithash
from feature_files import clouds
from indexed_runs import feature_run
from orbithash.data import LabelledFeatures, Split
from orbithash.errors import InputError
from orbithash.index import Metadata, Where
from orbithash.retrieval import encode_in_memory, split_rows


@pytest.fixture
def index(tmp_path):
    encoder = orbithash.load(feature_run(tmp_path / "run", n_bits=16))
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        codes = np.array([[0, 0], [0, 1], [0, 1], [255, 0], [255, 0]], np.uint8)
        places = ("/a/1.jpg", "/a/2.jpg", "/b/3.jpg", "/ab/4.jpg", "row 5")
        sources = ("/a", "/a", "/b", "/ab", "camera")
        metadata = [
            Metadata(path, ("wren",) if source == "/a" else (), source)
            for path, source in zip(places, sources, strict=True)
        ]
        index.add(codes=codes, metadata=metadata)
        yield index


@pytest.mark.parametrize(
    ("across", "expected"),
    [
        (None, [[0, 1, 2], [3, 4]]),
        (("/a", "/b"), [[0, 1, 2]]),
        (("/a/2.jpg", "/b/"), [[0, 1, 2]]),  # files and folders
        (("camera", "/ab"), [[3, 4]]),  # the name of a source
        (("/a", "/ab"), []),  # one folder's name begins as the other's
        (("/", "/b"), [[0, 1, 2]]),
    ],
)
def test_groups_across_two_sources_hold_items_of_both(index, across, expected):
    groups = index.duplicates(1, across=across)
    assert [group.ids.tolist() for group in groups] == expected


def test_a_filter_selects_the_items_that_are_grouped(index):
    (group,) = index.duplicates(1, Where(labels=("wren",)))
    assert group.ids.tolist() == [0, 1]


def test_a_source_that_the_index_does_not_have_is_an_error_that_names_those_it_has(index):
    with pytest.raises(InputError, match="from /c; its sources are /a, /b, /ab, camera: give two"):
        index.duplicates(1, across=("/a", "/c"))


def test_rows_of_a_source_are_indexed_in_memory_with_paths_and_labels(tmp_path):
    arrays = clouds(classes=2, per_class=3)
    data = LabelledFeatures(
        arrays["features"], arrays["labels"], Split(arrays["train"]), tuple(arrays["paths"])
    )
    encoder = orbithash.load(feature_run(tmp_path / "run"))
    engine, unreadable = encode_in_memory(encoder, data, np.array([1, 4]))
    items = engine.get([1, 4])
    np.testing.assert_array_equal(items.codes, encoder.encode(arrays["features"][[1, 4]]))
    assert [(item.path, item.labels) for item in items.metadata] == [
        ("1.jpg", ("0",)),
        ("4.jpg", ("1",)),
    ]
    assert unreadable == {}
    with pytest.raises(InputError, match="has no query images"):
        split_rows(data, ("train", "query"))
