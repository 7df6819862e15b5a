"""Codes of a folder's images by an encoder that `orbithash train` made, and how alike they are.

python examples/1_encode_a_folder.py runs/photos photos/
"""

import sys
from pathlib import Path

import orbithash
from orbithash.data import all_images
from orbithash.encoders import encode_source
from orbithash.kernels.hamming import hamming_distances


def main(run: str, folder: str) -> None:
    encoder = orbithash.load(run)
    images = all_images(Path(folder))
    encoded = encode_source(encoder, images)
    for path, reason in encoded.unreadable.items():
        print(f"left out {path}: {reason}")

    distances = hamming_distances(encoded.codes, encoded.codes)
    for place, row in enumerate(encoded.rows):
        others = distances[place].argsort(kind="stable")
        nearest = next(other for other in others if other != place)
        print(
            f"{encoded.codes[place].tobytes().hex()}  {images.paths[row]}, "
            f"{distances[place, nearest]} bits from {images.paths[encoded.rows[nearest]]}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
