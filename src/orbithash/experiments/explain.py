"""One query seen by the loss: its rank list, and what each pair weighs with and without ΔAP.

The second figure of Chen et al., 2018, computed: a short list of real images, related and
unrelated, and for every pair of one of each its share of the loss, by the hinge alone and
weighted by how much the average precision of the list changes when the two swap places.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import nn

from orbithash.data import ImageFiles, LabelledFeatures
from orbithash.encoders import FeatureEncoder, ImageEncoder, RunRecord, encode_source
from orbithash.errors import InputError
from orbithash.experiments.tables.examples import label_of
from orbithash.kernels.hamming import hamming_distances as code_distances
from orbithash.losses import LOSSES, OrderAwareTripletLoss
from orbithash.losses.distances import hamming_distances, squared_distances
from orbithash.losses.mining import MinedTripletLoss
from orbithash.losses.triplet_tensors import rank_items, swap_weights
from orbithash.relevance import related
from orbithash.training.methods import make_loss

LENGTH, RELATED = 16, 6  # of the list, and how many of them are related


@dataclass(frozen=True)
class Item:
    """An image of the list."""

    row: int
    label: str
    related: bool
    hamming: int  # from the query, in bits
    rank: int  # in the whole database


@dataclass(frozen=True)
class Pair:
    """A related and an unrelated image, by their ranks in the list, and what they weigh."""

    positive: int
    negative: int
    swap: float  # ΔAP: how much the list's average precision changes if they swap places
    alone: float  # share of the loss without weights
    weighted: float  # share of the loss with ΔAP as weight

    @property
    def misranked(self) -> bool:
        return self.negative < self.positive


@dataclass(frozen=True)
class Explanation:
    """A query's short list, nearest first, and all pairs of it."""

    row: int
    label: str
    n_bits: int
    margin: float
    gamma: float
    items: tuple[Item, ...]
    pairs: tuple[Pair, ...]  # by positive, then by negative
    average_precision: float
    n_database: int


def explain(
    encoder: FeatureEncoder | ImageEncoder,
    record: RunRecord,
    data: ImageFiles | LabelledFeatures,
    query: int,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Explanation:
    """Rank the database for the query, take a short list of it, and weigh its pairs."""
    answering = data.split.database[data.split.database != query]
    encoded = encode_source(encoder, data, rows=answering, progress=progress)
    rows = encoded.rows
    asked = encode_source(encoder, data, rows=np.array([query]))
    if not len(asked.rows):
        raise InputError(f"the image of query {query} cannot be read; ask for another")
    order = np.argsort(code_distances(asked.codes, encoded.codes)[0], kind="stable")
    is_related = related(data.labels[[query]], data.labels[rows])[0][order]
    chosen = short_list(is_related)
    if chosen is None:
        raise InputError(
            f"no pair to weigh: query {query} has only {'' if is_related.any() else 'un'}related "
            "images in the database; ask for another"
        )
    of_list = rows[order[chosen]]
    margin, gamma = rule_of(record)
    embeddings = embed_rows(encoder, data, np.concatenate([[query], of_list]))
    ranked, pairs = weigh(embeddings, is_related[chosen], margin=margin, gamma=gamma)
    hamming = np.count_nonzero((embeddings[1:] > 0.5) != (embeddings[0] > 0.5), axis=1)
    items = tuple(
        Item(
            row=int(of_list[place]),
            label=label_of(data, int(of_list[place])),
            related=bool(is_related[chosen][place]),
            hamming=int(hamming[place]),
            rank=int(chosen[place]) + 1,
        )
        for place in ranked
    )
    return Explanation(
        row=query,
        label=label_of(data, query),
        n_bits=encoder.n_bits,
        margin=margin,
        gamma=gamma,
        items=items,
        pairs=pairs,
        average_precision=average_precision([item.related for item in items]),
        n_database=len(rows),
    )


def short_list(is_related: Bool[np.ndarray, " n"]) -> Int64[np.ndarray, " chosen"] | None:
    """Positions in a ranked list: related ones spread over their ranks, the nearest unrelated.

    So it shows the related images that are found first and last, and the unrelated ones in their
    way. None if there is none of either.

    >>> short_list(np.array([True, False, True, False]))
    array([0, 1, 2, 3])
    """
    positives, negatives = np.flatnonzero(is_related), np.flatnonzero(~is_related)
    if not len(positives) or not len(negatives):
        return None
    spread = np.linspace(0, len(positives) - 1, min(RELATED, len(positives))).round()
    kept = positives[spread.astype(np.int64)]
    return np.sort(np.concatenate([kept, negatives[: LENGTH - len(kept)]]))


def rule_of(record: RunRecord) -> tuple[float, float]:
    """Margin in bits and power of the run's triplet loss, or the order-aware loss's defaults."""
    loss: nn.Module = OrderAwareTripletLoss()
    if record.method in LOSSES and issubclass(
        LOSSES[record.method], OrderAwareTripletLoss | MinedTripletLoss
    ):
        loss = make_loss(
            record.method, record.options, n_bits=record.n_bits, n_classes=2, seed=record.seed
        )
    assert isinstance(loss, OrderAwareTripletLoss | MinedTripletLoss)
    margin = record.n_bits / 8 if loss.margin is None else loss.margin
    return margin, loss.gamma if isinstance(loss, OrderAwareTripletLoss) else 1.0


def embed_rows(
    encoder: FeatureEncoder | ImageEncoder,
    data: ImageFiles | LabelledFeatures,
    rows: Int64[np.ndarray, " n"],
) -> Float[np.ndarray, "n bits"]:
    if isinstance(data, ImageFiles):
        assert isinstance(encoder, ImageEncoder)
        return encoder.embed([data.file(int(row)) for row in rows])
    assert isinstance(encoder, FeatureEncoder)
    return encoder.embed(data.features[rows])


def weigh(
    embeddings: Float[np.ndarray, "query_and_list bits"],
    is_related: Bool[np.ndarray, " list"],
    *,
    margin: float,
    gamma: float,
) -> tuple[Int64[np.ndarray, " list"], tuple[Pair, ...]]:
    """The list in the order in which the loss ranks it, and every pair, by the loss's functions."""
    tensor = torch.from_numpy(np.asarray(embeddings, dtype=np.float64))
    distances = squared_distances(tensor[:1], tensor[1:])
    grades = torch.from_numpy(is_related)[None].to(torch.int16)
    hamming = hamming_distances(tensor[:1], tensor[1:])
    places = rank_items(hamming, grades, distances, torch.float64)
    order = places.rank[0].argsort()
    positives, negatives = (order[grades[0, order] == grade] for grade in (1, 0))
    # [positive, negative]
    hinge = margin + distances[0, positives, None] - distances[0, None, negatives]
    loss = hinge.clamp_min(0) ** gamma
    of_query = torch.tensor(0)
    swap = swap_weights(
        places.take(of_query, positives[:, None]), places.take(of_query, negatives), "ap"
    )
    weights = torch.stack([swap, shares(loss), shares(swap * loss)], dim=-1).tolist()
    ranks = places.rank[0]
    pairs = tuple(
        Pair(int(ranks[j]), int(ranks[k]), *weights[a][b])
        for a, j in enumerate(positives)
        for b, k in enumerate(negatives)
    )
    return order.numpy(), pairs


def shares(
    weights: Float[torch.Tensor, "positives negatives"],
) -> Float[torch.Tensor, "positives negatives"]:
    """Of their sum; all 0 where the sum is."""
    total = weights.sum()
    return weights / total if total > 0 else torch.zeros_like(weights)


def average_precision(relevant: list[bool]) -> float:
    """The mean of precision at the ranks of what is relevant.

    >>> average_precision([False, True, False, True])
    0.5
    """
    ranks = np.flatnonzero(relevant) + 1
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks))
