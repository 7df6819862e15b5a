"""An index of a folder's images, kept on disk, and the images in it that are most like another.

    python examples/2_search.py runs/photos photos/ photos.orbit query.jpg

Again, it encodes only what is new. With milvus:http://localhost:19530/photos in place of
photos.orbit it speaks to a Milvus server.
"""

import sys
from pathlib import Path

import orbithash
from orbithash.data import class_folders
from orbithash.encoders.runs.run_folder import MODEL
from orbithash.files import absolute_name
from orbithash.retrieval import answers, index_of_run, index_source


def main(run: str, folder: str, address: str, query: str) -> None:
    images = class_folders(Path(folder))
    encoder = orbithash.load(run)
    with index_of_run(address, Path(run) / MODEL, n_bits=encoder.n_bits) as index:
        # The same name as `orbithash index` gives it: what that has stored is known here.
        report = index_source(index, encoder, images, source=absolute_name(folder))
        print(f"{report.new} new, {report.changed} changed, {report.unchanged} as before")

        (answer,) = answers(index, [query], encoder=encoder, k=5)
        for hit in answer.hits:
            print(f"{hit.rank}. {hit.distance} bits: {hit.path} ({', '.join(hit.labels)})")


if __name__ == "__main__":
    main(*sys.argv[1:])
