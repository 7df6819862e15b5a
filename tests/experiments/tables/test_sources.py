import numpy as np
import pytest
import torch

from feature_files import write_clouds
from image_files import cub_folder
from orbithash.errors import InputError
from orbithash.experiments.tables import sources
from orbithash.experiments.tables.sources import NetworkSpec, prepare_sources
from orbithash.networks import PhotoBackbone, View

NO_NETWORK = NetworkSpec("googlenet", None)


def prepare(tmp_path, *arguments, frozen=False):
    return prepare_sources(arguments, tmp_path, network=NO_NETWORK, frozen=frozen)


def test_a_source_is_named_by_its_file_or_by_the_argument(tmp_path):
    birds, flowers = (
        str(write_clouds(tmp_path / name)) for name in ("voc2007_small.npz", "flowers.npz")
    )
    prepared = prepare(tmp_path, birds, f"cub200_2011={flowers}")
    assert [source.display_name for source in prepared] == ["VOC2007", "CUB-200-2011"]
    assert [source.name for source in prepared] == ["voc2007_small", "cub200_2011"]
    (unknown,) = prepare(tmp_path, flowers)
    assert unknown.dataset is None
    assert unknown.display_name == "flowers"


def test_sources_of_the_same_name_are_refused(tmp_path):
    file = str(write_clouds(tmp_path / "clouds.npz"))
    with pytest.raises(InputError, match="two sources are called 'clouds'"):
        prepare(tmp_path, file, file)


def test_the_digest_covers_labels_and_split_but_not_paths(tmp_path):
    file = write_clouds(tmp_path / "clouds.npz")
    (before,) = prepare(tmp_path, str(file))
    with np.load(file) as arrays:
        changed = dict(arrays)
    changed["paths"] = changed["paths"][::-1]
    np.savez(file, **changed)
    assert prepare(tmp_path, str(file))[0].digest == before.digest
    changed["query"] = changed["query"][1:]
    np.savez(file, **changed)
    assert prepare(tmp_path, str(file))[0].digest != before.digest


def test_features_of_images_are_extracted_once(tmp_path, monkeypatch):
    birds = f"cub200_2011:{cub_folder(tmp_path / 'birds')}"
    for frozen in (True, False):
        with pytest.raises(InputError, match="needs its weights"):
            prepare(tmp_path, birds, frozen=frozen)

    network = TinyBackbone()
    monkeypatch.setattr(
        sources, "load_photo_backbone", lambda name, weights, to_train=False: network
    )
    (first,) = prepare(tmp_path, birds, frozen=True)
    written = first.file.stat().st_mtime_ns
    assert (first.name, first.sizes) == ("cub200_2011", {"train": 6, "query": 6, "database": 6})
    assert prepare(tmp_path, birds, frozen=True) == [first]
    assert first.file.stat().st_mtime_ns == written


def test_fine_tuning_needs_features_only_for_hashers(tmp_path, monkeypatch):
    birds = f"cub200_2011:{cub_folder(tmp_path / 'birds')}"
    monkeypatch.setattr(
        sources, "load_photo_backbone", lambda name, weights, to_train=False: TinyBackbone()
    )
    options = {"network": NO_NETWORK, "frozen": False}
    (alone,) = prepare_sources([birds], tmp_path, hashers=False, **options)
    assert alone.file is None
    assert not (tmp_path / "features").exists()
    (both,) = prepare_sources([birds], tmp_path, hashers=True, **options)
    assert both.file.exists()
    assert both.fine_tuning == alone.fine_tuning
    assert both.sizes == alone.sizes


class TinyBackbone(PhotoBackbone):
    """The mean colour of an image."""

    n_features, view = 3, View(resize=8, crop=8)

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, images):
        return images.mean(dim=(2, 3)) * self.scale
