"""CUB-200-2011: 11,788 photographs of 200 species of birds.

Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", 2011. Published layout: images/,
images.txt, image_class_labels.txt, train_test_split.txt.
"""

from pathlib import Path

import numpy as np

from orbithash.data.benchmarks.published_files import HOMES, read_lines, require_files
from orbithash.data.images import ImageFiles
from orbithash.data.splits import Split
from orbithash.errors import InputError

ADVICE = f"give the folder that CUB_200_2011.tgz from {HOMES['cub200_2011']} unpacks to"


def read_cub200_2011(folder: Path) -> ImageFiles:
    """CUB-200-2011, birds of 200 species: the official training images are also the database.

    The official test images are the queries.
    """
    names = read_table(folder / "images.txt")
    labels = read_numbers(folder / "image_class_labels.txt", ids=names)
    in_training = read_numbers(folder / "train_test_split.txt", ids=names)
    paths = tuple(f"images/{path}" for path in names.values())
    require_files(folder, paths, what="images", advice=ADVICE)

    # Classes are numbered from 1; the folder of an image has the name of its class.
    class_names = {
        label: Path(path).parent.name for label, path in zip(labels, names.values(), strict=True)
    }
    numbers = sorted(class_names)
    train = np.flatnonzero(np.array(in_training) == 1)
    return ImageFiles(
        root=folder,
        paths=paths,
        labels=np.searchsorted(numbers, labels),
        classes=tuple(class_names[number] for number in numbers),
        split=Split(train=train, query=np.flatnonzero(np.array(in_training) == 0), database=train),
    )


def read_table(file: Path) -> dict[str, str]:
    """Return the values of a file of lines "id value", by image id, in the order of the file."""
    table = {}
    for number, line in enumerate(read_lines(file, advice=ADVICE), start=1):
        fields = line.split(maxsplit=1)
        if len(fields) != 2 or fields[0] in table:
            raise InputError(
                f"line {number} of {file} is {line!r}; it must be an id that occurs once, a space "
                "and a value: download the file again"
            )
        table[fields[0]] = fields[1]
    return table


def read_numbers(file: Path, *, ids: dict[str, str]) -> list[int]:
    """Return a table's number for each image, in the order of images.txt."""
    table = read_table(file)
    if table.keys() != ids.keys():
        differing = sorted(table.keys() ^ ids.keys())
        raise InputError(
            f"{file.name} and images.txt in {file.parent} differ in {len(differing)} images, for "
            f"example id {differing[0]}; download the files again"
        )
    try:
        return [int(table[image]) for image in ids]
    except ValueError as error:
        raise InputError(f"{file}: {error}; download the file again") from None
