"""BVLC's GoogLeNet from Caffe's format into the safetensors file that `--weights` takes.

    python examples/5_convert_googlenet.py bvlc_googlenet.caffemodel bvlc_googlenet.safetensors

The model is `bvlc_googlenet` of Caffe's model zoo. Caffe itself is not needed: its files are
Protocol Buffers, of which this reads the few fields that hold names and weights, in the present
form of a layer and in that of 2014.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from orbithash.networks import load_photo_backbone

# Of the file: the field with the layers. Of a layer: those with its name and its weights.
FORMS = {100: (1, 7), 2: (4, 6)}

BLOCKS = {
    "1x1": "branch1.conv",
    "3x3_reduce": "branch2.0.conv",
    "3x3": "branch2.1.conv",
    "5x5_reduce": "branch3.0.conv",
    "5x5": "branch3.1.conv",
    "pool_proj": "branch4.1.conv",
}
STEM = {"conv1/7x7_s2": "conv1.conv", "conv2/3x3_reduce": "conv2.conv", "conv2/3x3": "conv3.conv"}


def main(model: str, out: str) -> None:
    weights = {}
    for name, arrays in layers(memoryview(Path(model).read_bytes())):
        ours = our_name(name)
        if ours and len(arrays) == 2:
            weights[f"{ours}.weight"], weights[f"{ours}.bias"] = arrays[0], arrays[1].reshape(-1)
    save_file(weights, out)
    load_photo_backbone("googlenet", Path(out))  # refuses what is missing or of another shape
    print(f"{len(weights)} arrays in {out}")


def our_name(name: str) -> str | None:
    """Of a layer that we use; the classifiers are left out."""
    block, _, layer = name.partition("/")
    if block.startswith("inception_") and layer in BLOCKS:
        return f"{block.replace('_', '')}.{BLOCKS[layer]}"
    return STEM.get(name)


def layers(model: memoryview) -> Iterator[tuple[str, list[np.ndarray]]]:
    for number, layer in fields(model):
        if number not in FORMS or isinstance(layer, int):
            continue
        name_field, weights_field = FORMS[number]
        found = list(fields(layer))
        names = [bytes(value).decode() for field, value in found if field == name_field]
        yield names[0], [array(value) for field, value in found if field == weights_field]


def array(blob: memoryview) -> np.ndarray:
    """A BlobProto: dimensions one by one (1 to 4) or in a list (7), and its numbers (5)."""
    old_shape, shape, numbers = {}, [], []
    for number, value in fields(blob):
        if number in (1, 2, 3, 4):
            old_shape[number] = value
        elif number == 5:  # all in one piece, or each by itself
            numbers.append(np.frombuffer(value, dtype="<f4"))
        elif number == 7:
            for _, dimensions in fields(value):
                shape += [dimensions] if isinstance(dimensions, int) else varints(dimensions)
    return np.concatenate(numbers).reshape(shape or [old_shape[number] for number in (1, 2, 3, 4)])


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and content of each field of a Protocol Buffers message."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(message, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, at = varint(message, at)
        yield number, message[at : at + size]
        at += size


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def varints(message: memoryview) -> list[int]:
    values, at = [], 0
    while at < len(message):
        value, at = varint(message, at)
        values.append(value)
    return values


if __name__ == "__main__":
    main(*sys.argv[1:])
