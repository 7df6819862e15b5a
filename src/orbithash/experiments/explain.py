"""The loss of one query: its ranked list, and the weight of each pair with and without ΔAP.

Figure 2 of Chen et al., 2018, with real images: a short list of related and unrelated images, and
the share of the loss of every pair of a related and an unrelated one. The share is computed from
the hinge alone, and from the hinge weighted by ΔAP: how much the average precision of the list
changes if the two swap places.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import nn

from orbithash.encoders import Encoded, Encoder, Progress, RunRecord, encode_source
from orbithash.errors import InputError
from orbithash.experiments.tables.sources import SourceData, label_text
from orbithash.kernels.hamming import hamming_distances as code_distances
from orbithash.losses import LOSSES, OrderAwareTripletLoss, ProxyOrderAwareTripletLoss
from orbithash.losses.batch.pairs import hamming_distances, squared_distances
from orbithash.losses.batch.triplet_tensors import rank_items, swap_weights
from orbithash.losses.mining import MinedTripletLoss
from orbithash.metrics.precision import expected_average_precision
from orbithash.relevance import related
from orbithash.training.methods import as_method

LIST_LENGTH, MAX_RELATED = 16, 6  # images in the short list, and related ones among them


@dataclass(frozen=True)
class RankedImage:
    """An image of the short list."""

    row: int
    label: str
    related: bool
    hamming: int  # distance from the query, in bits
    rank: int  # in the whole database


@dataclass(frozen=True)
class WeightedPair:
    """A related and an unrelated image, with their ranks in the list and their weights."""

    positive: int  # rank
    negative: int  # rank
    swap: float  # ΔAP: change of the list's average precision if they swap places
    alone: float  # share of the loss without weights
    weighted: float  # share of the loss with ΔAP as weight

    @property
    def misranked(self) -> bool:
        return self.negative < self.positive


@dataclass(frozen=True)
class Explanation:
    """The short list of a query, nearest first, and all its pairs."""

    row: int
    label: str
    n_bits: int
    margin: float
    gamma: float
    items: tuple[RankedImage, ...]
    pairs: tuple[WeightedPair, ...]  # by positive, then by negative
    average_precision: float  # of the list
    n_database: int
    n_related: int  # in the database
    database_average_precision: float  # of the whole database, mean over the orders of ties
    is_right: bool  # every related image is nearer than any unrelated one


def explain_query(encoded: Encoded, record: RunRecord, data: SourceData, query: int) -> Explanation:
    """Rank the database for the query, select a short list, and weight its pairs.

    The query and the database are among the encoded rows.
    """
    is_query, is_database = encoded.rows == query, np.isin(encoded.rows, database_rows(data, query))
    if not is_query.any():
        raise InputError(f"the image of query {query} cannot be read; choose another query")
    codes, rows = encoded.codes, encoded.rows[is_database]
    distances = code_distances(codes[is_query], codes[is_database])[0]
    order = np.argsort(distances, kind="stable")
    ranked_rows, distances = rows[order], distances[order]
    is_related = related(data.labels[[query]], data.labels[ranked_rows])[0]
    positions = short_list(is_related)
    if positions is None:
        raise InputError(
            f"there are no pairs: query {query} has only {'' if is_related.any() else 'un'}related "
            "images in the database; choose another query"
        )
    list_rows = ranked_rows[positions]
    margin, gamma = loss_parameters(record)
    database_embeddings = encoded.embeddings[is_database]
    embeddings = np.concatenate(
        [encoded.embeddings[is_query], database_embeddings[order[positions]]]
    )
    list_order, pairs = weight_pairs(embeddings, is_related[positions], margin=margin, gamma=gamma)
    items = tuple(
        RankedImage(
            row=int(list_rows[i]),
            label=label_text(data, int(list_rows[i])),
            related=bool(is_related[positions[i]]),
            hamming=int(distances[positions[i]]),
            rank=int(positions[i]) + 1,
        )
        for i in list_order
    )
    n_bits = embeddings.shape[1]
    items_at, related_at = (
        np.bincount(part, minlength=n_bits + 1)[None] for part in (distances, distances[is_related])
    )
    return Explanation(
        row=query,
        label=label_text(data, query),
        n_bits=n_bits,
        margin=margin,
        gamma=gamma,
        items=items,
        pairs=pairs,
        average_precision=average_precision([item.related for item in items]),
        n_database=len(rows),
        n_related=int(is_related.sum()),
        database_average_precision=float(expected_average_precision(items_at, related_at)[0]),
        is_right=bool(distances[is_related].max() < distances[~is_related].min()),
    )


def with_queries(
    encoder: Encoder, data: SourceData, encoded: Encoded, progress: Progress
) -> Encoded:
    """Add the queries of the split that are not among the encoded rows."""
    missing = np.setdiff1d(data.split.query, encoded.rows)
    if not len(missing):
        return encoded
    queries = encode_source(encoder, data, rows=missing, progress=progress)
    return Encoded(
        np.concatenate([encoded.rows, queries.rows]),
        np.concatenate([encoded.embeddings, queries.embeddings]),
        encoded.unreadable | queries.unreadable,
    )


def database_rows(data: SourceData, query: int) -> Int64[np.ndarray, " database"]:
    """Return the rows that a query is searched in: the database, or else all, without itself."""
    rows: np.ndarray = data.split.database if data.split.has_queries else np.arange(len(data))
    return np.setdiff1d(rows, [query])


def short_list(is_related: Bool[np.ndarray, " n"]) -> Int64[np.ndarray, " selected"] | None:
    """Return positions in a ranked list: related ones spread over their ranks, nearest unrelated.

    The first and the last related image are among them. None if there is no related or no
    unrelated image.

    >>> short_list(np.array([True, False, True, False]))
    array([0, 1, 2, 3])
    """
    positives, negatives = np.flatnonzero(is_related), np.flatnonzero(~is_related)
    if not len(positives) or not len(negatives):
        return None
    spread = np.linspace(0, len(positives) - 1, min(MAX_RELATED, len(positives))).round()
    selected = positives[spread.astype(np.int64)]
    return np.sort(np.concatenate([selected, negatives[: LIST_LENGTH - len(selected)]]))


def loss_parameters(record: RunRecord) -> tuple[float, float]:
    """Return margin and γ of the run's triplet loss; of other methods, the order-aware defaults."""
    loss: nn.Module = OrderAwareTripletLoss()
    if record.method in LOSSES and issubclass(
        LOSSES[record.method], OrderAwareTripletLoss | MinedTripletLoss | ProxyOrderAwareTripletLoss
    ):
        loss = as_method(record.method, record.options).loss(
            n_bits=record.n_bits, n_classes=2, seed=record.seed
        )
    if isinstance(loss, ProxyOrderAwareTripletLoss):
        loss = loss.triplets
    assert isinstance(loss, OrderAwareTripletLoss | MinedTripletLoss)
    margin = record.n_bits / 8 if loss.margin is None else loss.margin
    return margin, loss.gamma if isinstance(loss, OrderAwareTripletLoss) else 1.0


def weight_pairs(
    embeddings: Float[np.ndarray, "query_and_list bits"],
    is_related: Bool[np.ndarray, " list"],
    *,
    margin: float,
    gamma: float,
) -> tuple[Int64[np.ndarray, " list"], tuple[WeightedPair, ...]]:
    """Return the list in the loss's ranking order, and every pair, computed by the loss's code."""
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
    query = torch.tensor(0)
    swap = swap_weights(places.take(query, positives[:, None]), places.take(query, negatives), "ap")
    weights = torch.stack([swap, shares(loss), shares(swap * loss)], dim=-1).tolist()
    ranks = places.rank[0]
    pairs = tuple(
        WeightedPair(int(ranks[j]), int(ranks[k]), *weights[a][b])
        for a, j in enumerate(positives)
        for b, k in enumerate(negatives)
    )
    return order.numpy(), pairs


def shares(
    weights: Float[torch.Tensor, "positives negatives"],
) -> Float[torch.Tensor, "positives negatives"]:
    """Divide by the sum; all 0 if the sum is 0."""
    total = weights.sum()
    return weights / total if total > 0 else torch.zeros_like(weights)


def average_precision(relevant: list[bool]) -> float:
    """Average the precision at the ranks of the relevant items.

    >>> average_precision([False, True, False, True])
    0.5
    """
    ranks = np.flatnonzero(relevant) + 1
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks))
