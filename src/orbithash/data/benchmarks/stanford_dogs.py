"""Stanford Dogs: 20,580 photographs of dogs of 120 breeds.

Khosla et al., "Novel Dataset for Fine-Grained Image Categorization", 2011. Both archives
unpacked into one folder: Images/, train_list.mat and test_list.mat.
"""

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from orbithash.data.benchmarks.published_files import HOMES, require_file, require_files
from orbithash.data.images import ImageFiles
from orbithash.data.splits import Split
from orbithash.errors import InputError

ADVICE = (
    f"unpack images.tar and lists.tar from {HOMES['stanford_dogs']} into the folder that you give"
)


def read_stanford_dogs(folder: Path) -> ImageFiles:
    """Stanford Dogs, 120 breeds: the official training images are also the database.

    The official test images are the queries. The folder of an image is its breed.
    """
    train, test = (listed_files(folder, name) for name in ("train_list.mat", "test_list.mat"))
    files = [*train, *test]
    if len(set(files)) < len(files):
        raise InputError(
            f"{len(files) - len(set(files))} images in {folder} are listed more than once; "
            "download lists.tar again"
        )
    paths = tuple(f"Images/{file}" for file in files)
    require_files(folder, paths, what="images", advice=ADVICE)
    breeds = [PurePosixPath(file).parent.name for file in files]
    classes = tuple(sorted(set(breeds)))
    training = np.arange(len(train))
    return ImageFiles(
        root=folder,
        paths=paths,
        labels=np.searchsorted(classes, breeds),
        classes=classes,
        split=Split(
            train=training, query=np.arange(len(train), len(files)), database=training.copy()
        ),
    )


def listed_files(folder: Path, name: str) -> list[str]:
    """Return the paths of a list, in its order; lists.tar may be unpacked into lists/."""
    from scipy.io import loadmat  # here: other datasets must not wait for it

    inner = folder / "lists" / name
    file = inner if inner.is_file() else folder / name
    require_file(file, advice=ADVICE)
    try:
        cells = loadmat(file, variable_names=["file_list"])["file_list"]
    except KeyError:
        raise InputError(f"{file} has no variable file_list; download lists.tar again") from None
    except Exception as error:  # scipy raises all kinds of errors on damaged files
        raise InputError(f"cannot read {file}: {error}; download lists.tar again") from None
    paths = [text_in(cell).replace("\\", "/").strip() for cell in np.ravel(cells)]
    for path in paths:
        if path.count("/") != 1:
            raise InputError(
                f"{file} lists {path!r}; it must be a breed's folder and a file in it: "
                "download lists.tar again"
            )
    return paths


def text_in(cell: Any) -> str:
    """Return the text of a MATLAB cell, which scipy reads as an array of one string."""
    content = np.ravel(cell)
    return str(content[0]) if len(content) else ""
