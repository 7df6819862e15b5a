"""Convert BVLC's GoogLeNet from Caffe's format to the safetensors file that `--weights` takes.

    python examples/5_convert_googlenet.py bvlc_googlenet.caffemodel bvlc_googlenet.safetensors

The model is `bvlc_googlenet` from Caffe's model zoo. Caffe is not needed: its files are Protocol
Buffers, and this reads the few fields that hold names and weights, both of today's layers and of
the layers of 2014.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from orbithash.networks import load_photo_backbone

# Number of the file's field with the layers: numbers of a layer's fields with name and weights.
LAYER_FIELDS = {100: (1, 7), 2: (4, 6)}

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
        module = module_name(name)
        if module and len(arrays) == 2:
            weights[f"{module}.weight"], weights[f"{module}.bias"] = arrays[0], arrays[1].ravel()
    save_file(weights, out)
    load_photo_backbone("googlenet", Path(out))  # raises unless names and shapes are right
    print(f"{len(weights)} arrays in {out}")


def module_name(name: str) -> str | None:
    """Return the name of our module for a layer of Caffe; None for the classifiers."""
    block, _, layer = name.partition("/")
    if block.startswith("inception_") and layer in BLOCKS:
        return f"{block.replace('_', '')}.{BLOCKS[layer]}"
    return STEM.get(name)


def layers(model: memoryview) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield the name and the weights of each layer."""
    for number, layer in fields(model):
        if number not in LAYER_FIELDS or isinstance(layer, int):
            continue
        name_field, weights_field = LAYER_FIELDS[number]
        contents = list(fields(layer))
        names = [bytes(value).decode() for field, value in contents if field == name_field]
        yield names[0], [array(value) for field, value in contents if field == weights_field]


def array(blob: memoryview) -> np.ndarray:
    """Return the array of a BlobProto.

    Fields 1 to 4 are its dimensions in the format of 2014, field 7 all dimensions in today's, and
    field 5 its values.
    """
    old_shape, shape, values = {}, [], []
    for number, value in fields(blob):
        if number in (1, 2, 3, 4):
            old_shape[number] = value
        elif number == 5:  # once with all values, or once for each
            values.append(np.frombuffer(value, dtype="<f4"))
        elif number == 7:
            for _, dimensions in fields(value):
                shape += [dimensions] if isinstance(dimensions, int) else varints(dimensions)
    return np.concatenate(values).reshape(shape or [old_shape[number] for number in (1, 2, 3, 4)])


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and the content of each field of a Protocol Buffers message."""
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, position = varint(message, position)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire_type)
        if size is None:
            size, position = varint(message, position)
        yield number, message[position : position + size]
        position += size


def varint(message: memoryview, position: int) -> tuple[int, int]:
    """Decode an integer, seven bits per byte, lowest first; also return the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


def varints(message: memoryview) -> list[int]:
    values, position = [], 0
    while position < len(message):
        value, position = varint(message, position)
        values.append(value)
    return values


if __name__ == "__main__":
    main(*sys.argv[1:])
