import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import orbithash
from coloured_images import coloured
from feature_files import clouds, write_clouds
from image_files import noise, save
from indexed_runs import feature_run, image_run
from orbithash.cli import run
from orbithash.errors import InputError, UnreadableImageError
from orbithash.index import Metadata, Where


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search_index") / "photos"
    coloured(folder, classes=2, per_class=4)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return orbithash.load(image_run(tmp_path_factory.mktemp("run") / "run"))


def test_a_missing_index_is_created_with_its_encoder(photos, encoder, tmp_path):
    with orbithash.open_index(tmp_path / "new.orbit", encoder=encoder) as index:
        assert (len(index), index.n_bits) == (0, encoder.n_bits)
        index.add_images(photos)
    with orbithash.open_index(tmp_path / "new.orbit") as index:
        assert len(index) == 8
        images = [photos / "0" / "1.png"]
        np.testing.assert_array_equal(index.encoder.encode(images), encoder.encode(images))


def test_without_an_encoder_a_missing_index_is_an_error(tmp_path):
    with pytest.raises(InputError, match="there is no index"):
        orbithash.open_index(tmp_path / "none.orbit")
    assert list(tmp_path.iterdir()) == []


def test_the_index_of_another_encoder_is_rejected(encoder, tmp_path):
    orbithash.open_index(tmp_path / "x.orbit", encoder=encoder).close()
    other = orbithash.load(image_run(tmp_path / "other", seed=1))
    with pytest.raises(InputError, match="holds codes of another encoder"):
        orbithash.open_index(tmp_path / "x.orbit", encoder=other)


def test_the_index_of_the_same_run_is_opened(photos, tmp_path):
    folder = image_run(tmp_path / "run")
    assert run(["index", str(folder), str(photos), "--out", str(tmp_path / "x.orbit")]) == 0
    with orbithash.open_index(tmp_path / "x.orbit", encoder=orbithash.load(folder)) as index:
        assert len(index) == 8
        report = index.add_images(photos)
        assert (report.new, report.changed, report.unchanged) == (0, 0, 8)


def test_images_that_are_added_twice_are_stored_once(photos, encoder, tmp_path):
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        assert index.add_images(photos).new == 8
        before = list(index.iterate())
        report = index.add_images(str(photos))
        assert (report.new, report.changed, report.unchanged, report.gone) == (0, 0, 8, {})
        (after,) = index.iterate()
        np.testing.assert_array_equal(after.ids, before[0].ids)
        np.testing.assert_array_equal(after.codes, before[0].codes)
        assert after.metadata == before[0].metadata


def test_missing_images_are_reported_and_removed_only_on_request(encoder, tmp_path):
    for name in ("a", "b"):
        save(noise((20, 20)), tmp_path / "photos" / f"{name}.png")
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        index.add_images(tmp_path / "photos")
        (tmp_path / "photos" / "b.png").unlink()
        gone = index.add_images(tmp_path / "photos").gone
        assert gone == {str(tmp_path / "photos" / "b.png"): 1}
        assert len(index) == 2
        assert index.add_images(tmp_path / "photos", prune=True).pruned
        assert len(index) == 1


def test_a_path_a_picture_and_its_pixels_are_the_same_query(photos, encoder, tmp_path):
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        index.add_images(photos)
        path = photos / "1" / "2.png"
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        by_path = index.query(path)
        assert by_path[0].hamming == 0
        assert 0 < by_path[0].distance < encoder.n_bits / 2  # the embedding is not a corner
        assert index.query(str(path)) == index.query(picture) == by_path
        assert index.query(np.asarray(picture)) == by_path


def test_a_dataset_is_indexed(encoder, tmp_path):
    pixels = torch.randint(0, 256, (6, 3, 20, 20), dtype=torch.uint8)
    dataset = TensorDataset(pixels, torch.tensor([0, 0, 0, 1, 1, 1]))
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        assert index.add_images(dataset).new == 6
        assert index.label_counts() == {"0": 3, "1": 3}
        hits = index.query(pixels[4].permute(1, 2, 0).numpy(), k=1)
        assert [(hit.hamming, hit.path) for hit in hits] == [(0, "item 4")]


def test_data_in_memory_are_known_by_their_content(encoder, tmp_path):
    pixels = torch.randint(0, 256, (6, 3, 20, 20), dtype=torch.uint8)
    first, second = (TensorDataset(part, torch.arange(3)) for part in (pixels[:3], pixels[3:]))
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        assert [index.add_images(part).new for part in (first, second, first)] == [3, 3, 0]
        assert len(index) == 6
    features = orbithash.load(feature_run(tmp_path / "run"))
    vectors = clouds()["features"]
    with orbithash.open_index(tmp_path / "y.orbit", encoder=features) as index:
        parts = (vectors[:9], vectors[9:], vectors[:9])
        assert [index.add_images(part).new for part in parts] == [9, len(vectors) - 9, 0]
        (items,) = index.iterate()
        assert all(len(metadata.source) < 30 for metadata in items.metadata)


def test_features_are_indexed_and_queried_by_vectors(tmp_path):
    encoder = orbithash.load(feature_run(tmp_path / "run"))
    vectors = clouds()["features"]
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        index.add_images(write_clouds(tmp_path / "clouds.npz"))
        hits = index.query(vectors[5])
        assert hits == index.query(vectors[5].tolist())
        assert hits[0].hamming == 0
        by_code = index.query(code=encoder.encode(vectors[5:6]))
        assert by_code == index.query(vectors[5], symmetric=True)
        assert by_code[0].distance == 0
        with pytest.raises(InputError, match="floats of shape"):
            index.query(vectors[5, :3])
        with pytest.raises(InputError, match="got 2 vectors as one query"):
            index.query(vectors[:2])
        several = [list(result.hits) for _, result in index.query_many(vectors[:3])]
        assert several == [index.query(vector) for vector in vectors[:3]]


def test_an_unreadable_image_among_several_queries_is_an_error_or_left_out(
    photos, encoder, tmp_path
):
    good, missing = photos / "0" / "1.png", tmp_path / "none.jpg"
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        index.add_images(photos)
        with pytest.raises(UnreadableImageError, match="No such file or directory; check the path"):
            index.query_many([good, missing])
        unreadable = []
        ((name, result),) = index.query_many([missing, good], on_unreadable=unreadable.append)
        assert (name, list(result.hits)) == (str(good), index.query(good))
        assert [error.path for error in unreadable] == [missing]
        assert index.query_many([missing], on_unreadable=unreadable.append) == []


def test_own_codes_are_stored_under_new_ids(encoder, tmp_path):
    codes = np.random.default_rng(0).integers(0, 256, (8, 3), dtype=np.uint8)
    notes = [Metadata(f"{i}.jpg", ("even" if i % 2 == 0 else "odd",)) for i in range(8)]
    with orbithash.open_index(tmp_path / "x.orbit", encoder=encoder) as index:
        first = index.add(codes=codes[:4].tolist(), metadata=notes[:4])
        second = index.add(codes=codes[4:], metadata=notes[4:])
        assert [*first, *second] == list(range(8))
        odd = index.query(code=codes[0], where=Where(labels=("odd",)))
        assert sorted(hit.id for hit in odd) == [1, 3, 5, 7]
        assert index.query(code=codes[0].tolist(), where=Where(labels=("odd",))) == odd
        assert index.search(codes[:2], k=1).ids.tolist() == [[0], [1]]
        assert [ball.ids.tolist() for ball in index.within(codes[:2], 0)] == [[0], [1]]
        assert index.get([3]).metadata == (notes[3],)
        assert index.remove([3]) == 1
        assert index.stats().count == len(index) == 7
