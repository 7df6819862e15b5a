"""Index a folder of images, and find the images nearest to another one.

    python examples/2_search.py runs/photos photos/ photos.orbit query.jpg

The second time only new and changed images are encoded. An address such as
milvus:http://localhost:19530/photos in place of photos.orbit uses a Milvus server.
"""

import sys

import orbithash


def main(run: str, photos: str, address: str, query: str) -> None:
    with orbithash.open_index(address, encoder=orbithash.load(run)) as index:
        report = index.add_images(photos)
        print(f"{report.new} new, {report.changed} changed, {report.unchanged} as before")
        for hit in index.query(query, k=5):
            print(f"{hit.rank}. {hit.distance:.2f}: {hit.path} ({', '.join(hit.labels)})")


if __name__ == "__main__":
    main(*sys.argv[1:])
