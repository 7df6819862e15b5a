from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

import orbithash
from image_files import noise, save
from orbithash.data import ImageFiles, Split
from orbithash.encoders import ImageEncoder
from orbithash.encoders.runs.model_file import read_encoder, write_encoder
from orbithash.errors import InputError, UnreadableImageError
from orbithash.networks import HashingNetwork, SmallCNN


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    network = HashingNetwork(SmallCNN(channels=3), 12).eval()
    return ImageEncoder(network.backbone, network.head)


def test_paths_images_and_arrays_have_the_same_code(encoder, tmp_path):
    image = noise((60, 40))
    path = save(image, tmp_path / "a.png")
    codes = encoder.encode([path, str(path), image, np.asarray(image)])
    assert codes.shape == (4, 2)
    assert codes.dtype == np.uint8
    assert (codes == codes[0]).all()
    assert encoder.encode([]).shape == (0, 2)
    grey = np.asarray(image.convert("L"))
    expected = encoder.encode([Image.fromarray(grey)])
    np.testing.assert_array_equal(encoder.encode([grey]), expected)
    np.testing.assert_array_equal(encoder.encode([grey[:, :, None]]), expected)


def test_a_turned_photograph_is_encoded_upright_however_it_comes(encoder, tmp_path):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    path = save(noise((60, 40)), tmp_path / "turned.png", exif=exif)
    with Image.open(path) as opened:
        np.testing.assert_array_equal(encoder.embed([opened]), encoder.embed([path]))
        assert opened.size == (60, 40)  # whoever gave it keeps it as it was
    assert not np.array_equal(encoder.embed([noise((60, 40))]), encoder.embed([path]))


def test_what_is_no_image_is_refused(encoder, tmp_path):
    (tmp_path / "a.jpg").write_text("no image")
    with pytest.raises(UnreadableImageError):
        encoder.encode([tmp_path / "a.jpg"])
    with pytest.raises(InputError, match="give uint8 of shape"):
        encoder.encode([np.zeros((4, 4, 3))])
    with pytest.raises(InputError, match=r"shape \(4, 4, 5\)"):
        encoder.encode([np.zeros((4, 4, 5), np.uint8)])
    with pytest.raises(InputError, match="got a int"):
        encoder.encode([3])
    with pytest.raises(InputError, match="give a list"):
        encoder.encode(str(tmp_path / "a.jpg"))


def test_many_files_are_encoded_and_the_broken_ones_left_out(encoder, tmp_path, monkeypatch):
    files = [save(noise((40, 30), seed=seed), tmp_path / f"{seed}.png") for seed in range(7)]
    files[2].write_text("no image")
    done = []
    monkeypatch.setattr("orbithash.encoders.image_encoder.BATCH", 3)
    result = encoder.embed_rows(
        as_source(files), np.arange(7), progress=lambda n, total: done.append((n, total))
    )
    assert done == [(3, 7), (6, 7), (7, 7)]
    assert result.rows.tolist() == [0, 1, 3, 4, 5, 6]
    assert result.unreadable == {str(files[2]): "not an image of a known format"}
    readable = [file for file in files if file != files[2]]
    np.testing.assert_array_equal(result.codes, encoder.encode(readable))


def as_source(files):
    """The files as images to encode; their labels do not matter."""
    labels, split = np.zeros(len(files), np.int64), Split(train=np.arange(len(files)))
    return ImageFiles(Path("/"), tuple(map(str, files)), labels, ("any",), split)


def test_onnxruntime_gives_the_same_embeddings(encoder, tmp_path):
    pytest.importorskip("onnxruntime")
    files = [save(noise((40, 30), seed=seed), tmp_path / f"{seed}.png") for seed in range(5)]
    rows = np.arange(5)
    by_torch = encoder.embed_rows(as_source(files), rows)
    with encoder.running("onnxruntime") as run:
        by_onnx = encoder.embed_rows(as_source(files), rows, run=run)
    np.testing.assert_allclose(by_onnx.embeddings, by_torch.embeddings, atol=1e-5)


def test_a_network_in_training_stays_in_training(encoder, tmp_path):
    network = HashingNetwork(SmallCNN(channels=3), 12).train()
    ImageEncoder(network.backbone, network.head).encode([noise((20, 20))])
    assert network.backbone.training
    assert network.head.training


def test_an_encoder_is_read_as_it_was_written(encoder, tmp_path):
    write_encoder(encoder, tmp_path / "model.safetensors")
    again = read_encoder(tmp_path / "model.safetensors")
    images = [noise((30, 30), seed=seed) for seed in range(5)]
    assert isinstance(again, ImageEncoder)
    assert again.n_bits == 12
    np.testing.assert_array_equal(encoder.embed(images), again.embed(images))
    with pytest.raises(InputError, match="there is no run"):
        orbithash.load(tmp_path / "none")
