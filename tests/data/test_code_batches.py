import numpy as np
import pytest

from orbithash.data.code_batches import open_codes
from orbithash.errors import InputError

CODES = np.random.default_rng(0).integers(0, 256, (50, 6), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed", "bits", "signs"])
def test_codes_are_read_in_batches(tmp_path, kind):
    file = tmp_path / ("codes.npy" if kind == "npy" else "codes.npz")
    bits = np.unpackbits(CODES, axis=1)
    stored = {"bits": bits, "signs": 2.0 * bits - 1}.get(kind, CODES)
    if kind == "npy":
        np.save(file, stored)
    else:
        save = np.savez_compressed if kind == "compressed" else np.savez
        save(file, codes=stored, n_bits=48)
    codes = open_codes(file, 48 if kind == "npy" else None)
    batches = list(codes.batches(7))
    assert (len(codes), codes.n_bits, [len(batch) for batch in batches]) == (50, 48, [7] * 7 + [1])
    np.testing.assert_array_equal(np.concatenate(batches), CODES)


def test_ids_paths_and_names_of_labels_are_read(tmp_path):
    file = tmp_path / "codes.npz"
    labels = np.arange(50) % 2
    np.savez(
        *(file,),
        codes=CODES,
        n_bits=48,
        ids=np.arange(50, 100),
        paths=np.array([f"{i}.jpg" for i in range(50)]),
        labels=labels,
        classes=np.array(["wren", "gull"]),
    )
    codes = open_codes(file)
    assert codes.ids.tolist() == list(range(50, 100))
    assert codes.paths[3] == "3.jpg"
    assert codes.label_names(3) == ("gull",)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"codes": CODES}, "does not say how many bits its codes have; add --bits"),
        ({"n_bits": 48}, "has no array 'codes'"),
        ({"codes": CODES[0], "n_bits": 48}, r"its codes have shape \(6,\)"),
        ({"codes": CODES, "n_bits": 48, "ids": np.arange(3)}, "got ids of shape"),
        ({"codes": CODES, "n_bits": 48, "labels": np.arange(3)}, "got 3 labels for 50 codes"),
        ({"codes": np.asfortranarray(CODES), "n_bits": 48}, "column by column"),
    ],
)
def test_a_file_that_is_none_is_one_clear_error(tmp_path, arrays, message):
    np.savez(tmp_path / "codes.npz", **arrays)
    with pytest.raises(InputError, match=message):
        open_codes(tmp_path / "codes.npz")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.npz").write_text("no arrays")
    for name, message in (
        ("text.npz", "cannot read .* it is not an .npz file"),
        ("none.npz", "there is no file"),
    ):
        with pytest.raises(InputError, match=message):
            open_codes(tmp_path / name)
    np.savez(tmp_path / "codes.npz", codes=CODES, n_bits=48)
    with pytest.raises(InputError, match="holds codes of 48 bits, not 64"):
        open_codes(tmp_path / "codes.npz", 64)


def test_a_file_that_was_cut_off_is_noticed(tmp_path):
    file = tmp_path / "codes.npy"
    np.save(file, CODES)
    file.write_bytes(file.read_bytes()[:-6])
    with pytest.raises(InputError, match="takes 300 bytes, but has 294"):
        open_codes(file, 48)
