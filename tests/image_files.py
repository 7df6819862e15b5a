"""Image files of random noise, and benchmark folders in their published layouts."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat


def noise(size: tuple[int, int], *, seed: int = 0) -> Image.Image:
    """Return coloured noise of a width and height."""
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def save(image: Image.Image, path: Path, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def save_as_heic(image: Image.Image, path: Path) -> Path:
    """Write a file that begins as a HEIC does; in it is a PNG, which the fake pillow_heif reads."""
    content = io.BytesIO()
    image.save(content, format="PNG")
    path.write_bytes(b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf" + content.getvalue())
    return path


FAKE_PILLOW_HEIF = """
import io
from PIL import Image

def register_heif_opener():
    Image.register_open("HEIF", opened, lambda start: start[4:12] == b"ftypheic")

def opened(file, name=None):
    with file:
        file.seek(28)
        image = Image.open(io.BytesIO(file.read()))
    image.format = "HEIF"
    return image
"""


def install_fake_heif(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `import pillow_heif` find a module that reads the files of `save_as_heic`."""
    folder.mkdir()
    (folder / "pillow_heif.py").write_text(FAKE_PILLOW_HEIF)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # so that it is forgotten at the end
    del sys.modules["pillow_heif"]
    Image.init()  # registers all other formats, which must stay when the test ends
    known = {name: opener for name, opener in Image.OPEN.items() if name != "HEIF"}
    monkeypatch.setattr(Image, "OPEN", known)
    monkeypatch.setattr(Image, "ID", [name for name in Image.ID if name != "HEIF"])


def class_folder(folder: Path, counts: dict[str, int]) -> Path:
    """Write class folders with the given numbers of small images."""
    seed = 0
    for name, count in counts.items():
        for number in range(count):
            save(noise((40, 30), seed=seed), folder / name / f"{number}.jpg")
            seed += 1
    return folder


def cub_folder(folder: Path, *, species: int = 3, images_each: int = 4) -> Path:
    """Write the layout of CUB-200-2011; every other image trains, ids are not in row order."""
    lines: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    number = species * images_each
    for label in range(1, species + 1):
        name = f"{label:03d}.Bird_{label}"
        for image in range(images_each):
            path = f"{name}/Bird_{label}_{image:04d}.jpg"
            save(noise((50, 40), seed=number), folder / "images" / path)
            lines["images"].append(f"{number} {path}")
            lines["image_class_labels"].append(f"{number} {label}")
            lines["train_test_split"].append(f"{number} {image % 2}")
            number -= 1
    for name, content in lines.items():
        # The tables need not list the images in the same order.
        ordered = content if name == "images" else content[::-1]
        (folder / f"{name}.txt").write_text("\n".join(ordered) + "\n")
    return folder


def voc_folder(folder: Path) -> Path:
    """Write the devkit of VOC2007 with six images; 000004 and 000006 are the test images."""
    objects_of: dict[str, list[tuple[str, int]]] = {
        "000001": [("dog", 0), ("person", 0), ("person", 1)],
        "000002": [("person", 0), ("chair", 1)],
        "000003": [("car", 0), ("car", 0)],
        "000004": [("dog", 0)],
        "000005": [("sofa", 1)],
        "000006": [("person", 0), ("tvmonitor", 0)],
    }
    for image, objects in objects_of.items():
        save(noise((50, 40), seed=int(image)), folder / "JPEGImages" / f"{image}.jpg")
        annotation = folder / "Annotations" / f"{image}.xml"
        annotation.parent.mkdir(exist_ok=True)
        # The names of a person's parts are not labels.
        part = "<part><name>head</name><bndbox/></part>"
        inside = "".join(
            f"<object>\n<name>{name}</name><pose>Left</pose><truncated>1</truncated>"
            f"<difficult>{difficult}</difficult>{part if name == 'person' else ''}</object>"
            for name, difficult in objects
        )
        annotation.write_text(
            f"<annotation><folder>VOC2007</folder><filename>{image}.jpg</filename>"
            f"<owner><name>?</name></owner>{inside}</annotation>\n"
        )
    lists = {
        "train": "000003\n000001\n",
        "val": "000002\n000005\n",
        "trainval": "000001\n000002\n000003\n000005\n",
        "test": "000004\r\n000006\r\n\r\n",  # Windows line ends
        "dog_train": "000001  1\n000003 -1\n",
        "chair_trainval": "000001 -1\n000002  0\n000003 -1\n000005 -1\n",
    }
    (folder / "ImageSets/Main").mkdir(parents=True)
    for name, text in lists.items():
        (folder / f"ImageSets/Main/{name}.txt").write_bytes(text.encode())
    return folder


def dogs_folder(folder: Path) -> Path:
    """Write the layout of Stanford Dogs: two breeds of three images, column cell arrays."""
    breeds = ("n02085620-Chihuahua", "n02085782-Japanese_spaniel")
    lists: dict[str, list[str]] = {"train_list": [], "test_list": []}
    for breed in breeds:
        for number in (0, 1, 2):
            path = f"{breed}/{breed[:9]}_{number}.jpg"
            save(noise((50, 40), seed=number), folder / "Images" / path)
            lists["test_list" if number == 1 else "train_list"].append(path)
    lists["train_list"].reverse()  # the official lists are in arbitrary order
    for name, paths in lists.items():
        labels = [[breeds.index(path.partition("/")[0]) + 1] for path in paths]
        write_cells(folder / f"{name}.mat", {"file_list": paths}, labels=labels)
    return folder


def write_cells(file: Path, cells: dict[str, list[str]], **arrays: object) -> None:
    """Write a MATLAB file in which each list of strings is a cell array with one column."""
    columns = {}
    for name, strings in cells.items():
        columns[name] = np.empty((len(strings), 1), dtype=object)
        columns[name][:, 0] = strings
    savemat(file, {**columns, **arrays})


def sun_folder(folder: Path, counts: dict[str, int]) -> Path:
    """Write the layout of SUN397; the images are empty files, because only names are used."""
    for category, count in counts.items():
        category_folder = folder / category
        category_folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (category_folder / f"sun_{number:05d}.jpg").touch()
    names = "".join(f"/{category}\n" for category in sorted(counts))
    (folder / "ClassName.txt").write_text(names)
    return folder
