"""Damaged and hostile files of arrays: each is refused in one line, before memory is used."""

import io
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from orbithash.data.array_files import read_arrays, read_one_array
from orbithash.data.code_batches import open_codes
from orbithash.data.features import read_features
from orbithash.errors import InputError
from process_memory import peak_memory

PLAIN = st.sampled_from([np.dtype(name) for name in ("f4", ">f8", "i8", "u1", "?", "U5", "f2")])


@given(st.data(), st.booleans(), st.booleans())
def test_arrays_are_read_as_numpy_wrote_them(tmp_path_factory, data, compressed, fortran):
    array = data.draw(arrays(data.draw(PLAIN), array_shapes(min_dims=0, min_side=0)))
    array = np.asarray(array, order="F" if fortran else "C")
    file = tmp_path_factory.getbasetemp() / "arrays.npz"
    (np.savez_compressed if compressed else np.savez)(file, wanted=array, other=np.arange(3))
    read = read_arrays(file, ("wanted", "missing"))
    np.testing.assert_array_equal(read.pop("wanted"), array, strict=True)
    assert not read


def features_file(folder, **members):
    """Write a features file, some of whose members have other bytes."""
    whole = {
        "features": npy(np.eye(4, dtype=np.float32)),
        "labels": npy(np.arange(4)),
        "train": npy(np.arange(4)),
    }
    file = folder / "features.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (whole | members).items():
            archive.writestr(f"{name}.npy", content)
    return file


def npy(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def header(text):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def with_shape(shape, dtype="<f4"):
    return header(str({"descr": dtype, "fortran_order": False, "shape": shape}) + "\n")


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (b"no array", "no valid header"),
        (b"", "no valid header"),
        (with_shape((10**13, 1)), "takes 40,000,000,000,000 bytes, but has 0"),
        (with_shape((10**13, 0, 10**13)), "too big"),
        (with_shape((-1, 4)), "but has 0"),
        (with_shape((4, 4)) + bytes(63), "takes 64 bytes, but has 63"),
        (with_shape((4, 4)) + bytes(65), "takes 64 bytes, but has 65"),
        (with_shape((10**13,), "<U0"), "save numbers or strings"),
        (with_shape((4,), "|O") + bytes(32), "save numbers or strings"),
        (header("(" * 5000 + ")" * 5000), "no valid header"),
        (header("-" * 9000 + "1"), "no valid header"),
        (header("{'descr': '<f4', 'shape': (4, 4)}"), "no valid header"),
        (header("[" + "1," * 6000 + "]"), "no valid header"),
    ],
)
def test_an_array_that_is_none_is_refused_in_one_line(member, message, tmp_path):
    file = features_file(tmp_path, features=member)
    with pytest.raises(InputError, match=message) as caught:
        read_features(file)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith((f"cannot read {file}", str(file)))


def test_arrays_that_are_not_needed_are_not_read(tmp_path):
    file = tmp_path / "features.npz"
    zeros = np.zeros(400_000_000, np.uint8)
    before = peak_memory()
    np.savez_compressed(
        file, unused=zeros[:200_000_000], features=np.eye(4), labels=np.arange(4),
        train=np.arange(4),
    )  # fmt: skip
    del zeros
    assert len(read_features(file)) == 4
    assert peak_memory() - before < 100_000_000


@pytest.mark.parametrize("damage", ["encrypted", "lzma", "size", "checksum", "cut"])
def test_a_damaged_archive_is_refused_in_one_line(damage, tmp_path):
    file = features_file(tmp_path)
    content = bytearray(file.read_bytes())
    entry = content.index(b"PK\x01\x02")  # of the first member, in the directory at the end
    if damage == "encrypted":
        content[entry + 8] |= 1
    elif damage == "lzma":
        content[entry + 10] = 14
    elif damage == "size":
        content[entry + 24 : entry + 28] = struct.pack("<I", 3_200_000_000)
    elif damage == "checksum":
        content[entry + 16] ^= 1
    else:
        del content[-30:]
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read .* as arrays of numbers and strings"):
        read_features(file)


def test_strings_that_are_no_text_are_refused(tmp_path):
    classes = np.array(["abcd"])
    for numbers in ([0x110000, 1, 1, 1], [0xD800, 65, 65, 65], [65, 0, 65, 65]):
        content = npy(classes)[: -classes.nbytes] + np.array(numbers, np.uint32).tobytes()
        file = features_file(tmp_path, labels=npy(np.zeros(4, int)), classes=content)
        with pytest.raises(InputError, match="text"):
            read_features(file)


def test_codes_that_end_early_are_refused_when_the_file_is_opened(tmp_path):
    file = tmp_path / "codes.npy"
    np.save(file, np.zeros((50, 6), np.uint8))
    file.write_bytes(file.read_bytes()[:-6])
    for read in (lambda: open_codes(file, 48), lambda: read_one_array(file, "file of codes")):
        with pytest.raises(InputError, match="takes 300 bytes, but has 294"):
            read()
