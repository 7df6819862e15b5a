"""Image folders with one subfolder per class, whose name is the label, and images by pattern."""

import glob
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from orbithash.data.images import ImageFiles, is_unicode
from orbithash.data.splits import default_split, split_to_encode
from orbithash.errors import InputError

logger = logging.getLogger(__name__)

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"})
HEIF_SUFFIXES = frozenset({".heic", ".heif", ".hif"})
SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini"})  # of Windows, as hidden as .DS_Store
BROKEN_LINK = "broken link"
NOT_UTF8 = "whose name is not UTF-8 (rename it)"
MAX_KINDS = 6  # of skipped files that are named; the rest is counted


def class_folders(folder: Path, *, seed: int = 0) -> ImageFiles:
    """Open all images beneath `folder`, each labelled with its top-level subfolder.

    Classes and images are in alphabetical order. Other files, hidden files and folders without
    images are skipped, with a warning that counts them. `default_split` makes the split.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; give a folder that contains one folder per class"
        )
    files, skipped, unlisted = list_images(folder)
    for path, reason in unlisted.items():
        if reason != BROKEN_LINK:
            raise InputError(
                f"cannot list {folder / path}: {reason}; the images in it would be left out: make "
                f"it readable, or move it out of {folder}"
            )
    relative = [file.relative_to(folder) for file in files]
    in_class = [path for path in relative if len(path.parts) > 1]
    classes = tuple(sorted({path.parts[0] for path in in_class}))
    loose = len(relative) - len(in_class)
    if not classes:
        raise InputError(
            f"{folder} has {loose} images but no folder with images{only(skipped)}; put the images "
            "of each class into a subfolder with the name of the class; only train --labels none "
            "needs no classes"
        )
    warn_about_skipped(folder, len(in_class), skipped)
    folders = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if empty := [name for name in folders if name not in classes and not name.startswith(".")]:
        logger.warning(
            "%s: %d folders without images, for example %s", folder, len(empty), empty[0]
        )
    if loose:
        logger.warning("%s: %d images outside of any class folder are skipped", folder, loose)
    label_of = {name: label for label, name in enumerate(classes)}
    labels = np.array([label_of[path.parts[0]] for path in in_class], dtype=np.int64)
    paths = tuple(path.as_posix() for path in in_class)
    return ImageFiles(
        root=folder,
        paths=paths,
        labels=labels,
        classes=classes,
        split=default_split(labels, paths, seed=seed),
    )


def all_images(folder: Path) -> ImageFiles:
    """Open all images beneath `folder` for encoding; neither classes nor queries are needed.

    Images outside of any class folder have the class "" and are neither queries nor database; the
    others are divided as by `class_folders`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a folder that contains images")
    files, skipped, unlisted = list_images(folder)
    for path, reason in unlisted.items():
        if reason != BROKEN_LINK:
            logger.warning(
                "cannot list %s: %s; the images in it are left out", folder / path, reason
            )
    if not files:
        raise InputError(f"there are no images in {folder}{only(skipped)}; check the path")
    warn_about_skipped(folder, len(files), skipped)
    paths = [file.relative_to(folder) for file in files]
    names = [path.parts[0] if len(path.parts) > 1 else "" for path in paths]
    classes = tuple(sorted(set(names)))
    label_of = {name: label for label, name in enumerate(classes)}
    labels = np.array([label_of[name] for name in names], dtype=np.int64)
    relative = tuple(path.as_posix() for path in paths)
    in_class = np.flatnonzero([bool(name) for name in names])
    return ImageFiles(
        root=folder,
        paths=relative,
        labels=labels,
        classes=classes,
        split=split_to_encode(labels, relative, in_class),
        unlisted=unlisted,
    )


def images_named(names: Iterable[str]) -> list[str]:
    """Return the files that paths, folders and patterns name, in this order.

    A folder stands for all images beneath it, and a pattern such as `photos/*.jpg` for the files
    that match it. Any other name is returned as it is, also if there is no such file.
    """
    found: list[str] = []
    for name in names:
        # A file may have a name that looks like a pattern.
        matches = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))  # noqa: PTH110, PTH207
        for match in matches or [name]:
            if os.path.isdir(match):  # noqa: PTH112 — Path.is_dir raises for a name too long
                images = all_images(Path(match))
                found += [str(images.file(row)) for row in range(len(images))]
            else:
                found.append(match)
    return found


def list_images(folder: Path) -> tuple[list[Path], Counter[str], dict[str, str]]:
    """Return the images beneath a folder, in alphabetical order, and how many files are not images.

    These are counted by extension; hidden files are not counted. Images must have names in UTF-8,
    which tables, records and indexes are written in. Links to folders are followed in
    the folder itself, and not deeper, where they may form a loop. Folders that cannot be listed,
    and broken links, are returned by relative path, with the reason.
    """
    images: list[Path] = []
    skipped: Counter[str] = Counter()
    unlisted: dict[str, str] = {}

    def note(error: OSError) -> None:
        path = Path(error.filename).relative_to(folder)
        unlisted[path.as_posix()] = error.strerror or type(error).__name__

    for entry in entries_of(folder):
        for path in paths_beneath(entry, note) if os.path.isdir(entry) else [entry]:  # noqa: PTH112
            try:
                if is_hidden(path.relative_to(folder)):
                    continue
                is_file = not path.is_dir() or path.is_symlink()
                if is_file and not is_unicode(str(path.relative_to(folder))):
                    skipped[NOT_UTF8] += 1
                elif is_image(path):
                    images.append(path)
                elif is_file:
                    skipped[kind := kind_of(path)] += 1
                    if kind == BROKEN_LINK:
                        unlisted[path.relative_to(folder).as_posix()] = kind
            except OSError as error:  # the folder can be listed, and nothing in it looked at
                note(error)
    return sorted(images), skipped, unlisted


def entries_of(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if not is_hidden(entry.relative_to(folder))]
    except OSError as error:
        raise InputError(f"cannot list {folder}: {error.strerror}; check its permissions") from None


def paths_beneath(folder: Path, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    """Yield the files and folders beneath a folder, without hidden folders and what is in them."""
    for parent, folders, files in os.walk(folder, onerror=on_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in (*folders, *files))


def is_image(path: Path) -> bool:
    """Return whether a file has the name of an image; it is not opened."""
    suffix = path.suffix.lower()
    readable = suffix in IMAGE_SUFFIXES or (suffix in HEIF_SUFFIXES and reads_heif())
    return readable and not path.name.startswith(".") and path.is_file()


def reads_heif() -> bool:
    return find_spec("pillow_heif") is not None  # without importing it


def is_hidden(path: Path) -> bool:
    return path.name.lower() in SYSTEM_FILES or any(part.startswith(".") for part in path.parts)


def kind_of(path: Path) -> str:
    """Return in which words a file that is not an image is counted."""
    if path.is_symlink() and not path.is_file():
        return "linked folder" if path.is_dir() else BROKEN_LINK
    return path.suffix.lower() or "without extension"


def warn_about_skipped(folder: Path, n_images: int, skipped: Counter[str]) -> None:
    if skipped:
        images, files = counted(n_images, "image"), counted(skipped.total(), "file")
        logger.warning("%s: %s; skipped %s: %s", folder, images, files, as_text(skipped))


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("s" if count != 1 else "")


def only(skipped: Counter[str]) -> str:
    return f", only {as_text(skipped)}" if skipped else ""


def as_text(skipped: Counter[str]) -> str:
    """Return how many files of each kind were skipped, the most frequent first.

    >>> as_text(Counter({".txt": 3, ".heic": 9}))
    '9 .heic (install orbithash[heif] to read them), 3 .txt'
    """
    kinds = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    texts = [
        f"{count:,} {kind}"
        + (" (install orbithash[heif] to read them)" if kind in HEIF_SUFFIXES else "")
        for kind, count in kinds[:MAX_KINDS]
    ]
    if rest := sum(count for _, count in kinds[MAX_KINDS:]):
        texts.append(f"{rest:,} others")
    return ", ".join(texts)
