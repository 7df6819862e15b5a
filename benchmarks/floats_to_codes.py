"""MAP of codes learned from labels, and of codes made without, at equal bytes on equal features.

    python benchmarks/floats_to_codes.py FEATURES [--unseen]

FEATURES is an .npz with labels and a split. Vectors are centred and scaled to length 1. Sign bits
are the signs of the vector's own numbers (sentence-transformers' binary quantisation). faiss's
RaBitQ stores a bit per dimension and 8 bytes of factors; for fewer bytes, PCA reduces the vectors
first. It ranks with the query's floats, so the asymmetric MAP of learned codes stands beside the
Hamming one. The order-aware loss trains a head on the features, everything else is fitted to them.
With --unseen, half of the classes (seed 0) train, and queries and database are of the other half.
"""

import sys
from pathlib import Path

import faiss
import numpy as np
from sklearn.decomposition import PCA

import orbithash
from orbithash.codes import pack
from orbithash.data import open_source
from orbithash.metrics.floats import evaluate_floats
from orbithash.relevance import labels_in_common

LEARNED = {"lsh": {}, "itq": {}, "lda-itq": {}, "order-aware": {"head": "layers"}}
LEARNED_BYTES = (8, 16)
RABITQ_BYTES = (16, 32, 64)
FACTORS = 8  # bytes beside RaBitQ's bits


def main() -> int:
    data = open_source(Path(sys.argv[1]))
    train, query, database = data.split.train, data.split.query, data.split.database
    if "--unseen" in sys.argv:
        classes = np.random.default_rng(0).permutation(np.unique(data.labels))
        unseen = np.isin(data.labels, classes[: len(classes) // 2])
        train, query, database = (
            train[~unseen[train]],
            query[unseen[query]],
            database[unseen[database]],
        )
    raw = data.features
    vectors = raw - raw[train].mean(axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = data.labels
    kinds = (labels[query], labels[database])
    print(
        f"{Path(sys.argv[1]).stem}: {len(train)} train, {len(query)} queries, {len(database)} items"
    )
    print("\n| bytes | codes | learned from | MAP | MAP asymmetric |")
    print("| ---: | --- | --- | ---: | ---: |")
    floats = evaluate_floats(
        vectors[query], vectors[database], *kinds, centre=np.zeros(raw.shape[1])
    )
    show(4 * raw.shape[1], "float32", "–", None, floats.map)
    signs = pack(vectors > 0)
    scores = orbithash.evaluate_codes(
        signs[query], signs[database], *kinds, n_bits=raw.shape[1], query_embeddings=None
    )
    show(signs.shape[1], "sign bits", "–", scores.map, None)
    rabitq(vectors, database, query, kinds, "–")
    for n_bytes in RABITQ_BYTES:
        reduced = (
            PCA(8 * (n_bytes - FACTORS), random_state=0).fit(vectors[train]).transform(vectors)
        )
        rabitq(reduced.astype(np.float32), database, query, kinds, "vectors")
    several = labels.ndim == 2
    for method, options in LEARNED.items():
        if several and method == "lda-itq":
            continue  # it is for one label per image
        for n_bytes in LEARNED_BYTES:
            encoder = orbithash.train(
                (raw[train], labels[train]), 8 * n_bytes, method=method, **options
            )
            embeddings = encoder.embed(raw)
            codes = pack(embeddings > 0.5)
            scores = orbithash.evaluate_codes(
                codes[query],
                codes[database],
                *kinds,
                n_bits=8 * n_bytes,
                query_embeddings=embeddings[query],
            )
            source = "labels" if method in ("order-aware", "lda-itq") else "vectors"
            show(n_bytes, method, source, scores.map, scores.map_asymmetric)
    return 0


def rabitq(vectors, database, query, kinds, source) -> None:
    index = faiss.IndexRaBitQ(vectors.shape[1], faiss.METRIC_L2)
    index.train(vectors[database])
    index.add(vectors[database])
    order = index.search(vectors[query], len(database))[1]
    relevant = labels_in_common(*kinds) > 0
    ranked = np.take_along_axis(relevant, order, axis=1)
    found = ranked.cumsum(axis=1)
    precision = found / np.arange(1, ranked.shape[1] + 1)
    total = relevant.sum(axis=1)
    average = (precision * ranked).sum(axis=1)[total > 0] / total[total > 0]
    show(index.code_size, f"RaBitQ, {vectors.shape[1]} dimensions", source, None, average.mean())


def show(n_bytes, name, source, hamming, asymmetric) -> None:
    cells = ("–" if score is None else f"{score:.4f}" for score in (hamming, asymmetric))
    print(f"| {n_bytes} | {name} | {source} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
