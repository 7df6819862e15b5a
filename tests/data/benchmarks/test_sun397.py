import numpy as np
import pytest

from image_files import sun_folder
from orbithash.data import image_table, write_image_table
from orbithash.data.benchmarks.sun397 import read_sun397
from orbithash.data.sources import open_source
from orbithash.errors import InputError

COUNTS = {
    "a/abbey": 12,
    "a/apartment_building/outdoor": 15,
    "c/church/indoor": 11,
    "c/church/outdoor": 10,
    "z/zoo": 4,
}


def small_sun(folder, **options):
    """Read with a protocol for ten images per class instead of five hundred."""
    return read_sun397(
        folder, **({"more_than": 10, "queries_per_class": 2, "train_per_class": 8} | options)
    )


@pytest.fixture
def folder(tmp_path):
    return sun_folder(tmp_path / "SUN397", COUNTS)


def test_only_categories_with_more_images_than_the_limit_are_used(folder):
    sun = small_sun(folder)
    assert sun.classes == ("a/abbey", "a/apartment_building/outdoor", "c/church/indoor")
    assert np.bincount(sun.labels).tolist() == [12, 15, 11]
    assert sun.paths[12] == "a/apartment_building/outdoor/sun_00000.jpg"


def test_each_category_has_the_given_number_of_queries_and_training_images(folder):
    sun = small_sun(folder)
    assert np.bincount(sun.labels[sun.split.query]).tolist() == [2, 2, 2]
    assert np.bincount(sun.labels[sun.split.database]).tolist() == [10, 13, 9]
    assert np.bincount(sun.labels[sun.split.train]).tolist() == [8, 8, 8]
    assert np.intersect1d(sun.split.query, sun.split.database).size == 0
    assert np.isin(sun.split.train, sun.split.database).all()


def test_the_papers_protocol_is_the_default(tmp_path):
    sun = open_source(
        f"sun397:{sun_folder(tmp_path, {'a/abbey': 501, 'b/bar': 510, 'c/cafe': 500})}"
    )
    assert sun.classes == ("a/abbey", "b/bar")
    assert (len(sun.split.query), len(sun.split.train)) == (200, 800)
    assert len(sun.split.database) == 501 + 510 - 200


def test_the_split_depends_only_on_the_seed_and_the_file_names(folder, tmp_path):
    first = small_sun(folder).split
    # Created in another order, in another folder.
    again = small_sun(sun_folder(tmp_path / "b", dict(reversed(COUNTS.items())))).split
    np.testing.assert_array_equal(first.query, again.query)
    np.testing.assert_array_equal(first.train, again.train)
    assert not np.array_equal(first.query, small_sun(folder, seed=1).split.query)


def test_the_split_can_be_written_to_a_table_and_read_back(folder, tmp_path):
    sun = small_sun(folder, seed=5)
    (tmp_path / "runs").mkdir()
    write_image_table(sun, tmp_path / "runs/split.csv")
    kept = image_table(tmp_path / "runs/split.csv")
    assert [kept.file(row).resolve() for row in range(len(kept))] == [
        sun.file(row).resolve() for row in range(len(sun))
    ]
    assert kept.classes == sun.classes
    for part in ("train", "query", "database"):
        np.testing.assert_array_equal(getattr(kept.split, part), getattr(sun.split, part))


def test_images_in_a_subfolder_belong_to_another_category(tmp_path):
    folder = sun_folder(tmp_path, {"a/arena": 11, "a/arena/indoor": 12})
    assert np.bincount(small_sun(folder).labels).tolist() == [11, 12]


def test_other_files_and_hidden_files_are_skipped(folder):
    for name in ("Thumbs.db", ".sun_99999.jpg", "notes.txt"):
        (folder / "a/abbey" / name).touch()
    assert np.bincount(small_sun(folder).labels)[0] == 12


def test_the_list_of_categories_may_have_windows_line_ends(folder):
    expected = small_sun(folder).paths
    names = folder / "ClassName.txt"
    names.write_bytes(b"\xef\xbb\xbf" + names.read_bytes().replace(b"\n", b"\r\n"))
    assert small_sun(folder).paths == expected


def test_missing_files_are_named(folder):
    (folder / "z/zoo").rename(folder / "z/zoos")
    with pytest.raises(InputError, match=r"the folder .*z/zoo is missing; give the folder SUN397"):
        small_sun(folder)
    (folder / "z/zoo").mkdir()
    with pytest.raises(InputError, match=r"the folder .*z/zoo has no images"):
        small_sun(folder)
    (folder / "ClassName.txt").unlink()
    with pytest.raises(InputError, match=r"ClassName.txt is missing"):
        small_sun(folder)


def test_a_folder_with_too_few_large_categories_is_refused(folder):
    with pytest.raises(InputError, match=r"0 of 5 categories .* have more than 500 images"):
        read_sun397(folder)
