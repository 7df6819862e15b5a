"""CUB-200-2011: 11,788 photographs of 200 species of birds.

Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", 2011. The folder as its authors publish it:
images/, images.txt, image_class_labels.txt, train_test_split.txt.
"""

from pathlib import Path

import numpy as np

from orbithash.data.benchmarks.published_files import HOMES, read_lines, require_files
from orbithash.data.images import ImageFiles
from orbithash.data.splits import Split
from orbithash.errors import InputError

ADVICE = f"give the folder that CUB_200_2011.tgz from {HOMES['cub200_2011']} unpacks to"


def read_cub200_2011(folder: Path) -> ImageFiles:
    """CUB-200-2011, birds of 200 species: official training images train and are the database.

    The official test images are the queries.
    """
    names = read_table(folder / "images.txt")
    labels = read_numbers(folder / "image_class_labels.txt", ids=names)
    in_training = read_numbers(folder / "train_test_split.txt", ids=names)
    paths = tuple(f"images/{path}" for path in names.values())
    require_files(folder, paths, what="images", advice=ADVICE)

    # Classes are numbered from 1, and the images of a class lie in the folder of its name.
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
    """Lines of an image's id and one value, by id, in the order of the file."""
    table = {}
    for number, line in enumerate(read_lines(file, advice=ADVICE), start=1):
        fields = line.split(maxsplit=1)
        if len(fields) != 2 or fields[0] in table:
            raise InputError(
                f"line {number} of {file} is {line!r}; it must be an id that occurs once, a space "
                "and a value: get the file again"
            )
        table[fields[0]] = fields[1]
    return table


def read_numbers(file: Path, *, ids: dict[str, str]) -> list[int]:
    """The number that a table gives each of the images of images.txt, in their order."""
    table = read_table(file)
    if table.keys() != ids.keys():
        odd = sorted(table.keys() ^ ids.keys())
        raise InputError(
            f"{file.name} and images.txt in {file.parent} differ in {len(odd)} images, as that of "
            f"id {odd[0]}; get the files again"
        )
    try:
        return [int(table[image]) for image in ids]
    except ValueError as error:
        raise InputError(f"{file}: {error}; get the file again") from None
