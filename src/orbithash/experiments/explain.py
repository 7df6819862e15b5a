"""The loss of one query: its ranked list, and the weight of each pair with and without ΔAP.

Figure 2 of Chen et al., 2018, with real images: a short list of related and unrelated images, and
the share of the loss of every pair of a related and an unrelated one. The share is computed from
the hinge alone, and from the hinge weighted by ΔAP: how much the average precision of the list
changes if the two swap places.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import nn

from orbithash.encoders import Encoder, RunRecord, encode_source
from orbithash.errors import InputError
from orbithash.experiments.tables.sources import SourceData, label_text
from orbithash.kernels.hamming import hamming_distances as code_distances
from orbithash.losses import LOSSES, OrderAwareTripletLoss
from orbithash.losses.distances import hamming_distances, squared_distances
from orbithash.losses.mining import MinedTripletLoss
from orbithash.losses.triplet_tensors import rank_items, swap_weights
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
    average_precision: float
    n_database: int


def explain_query(
    encoder: Encoder,
    record: RunRecord,
    data: SourceData,
    query: int,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Explanation:
    """Rank the database for the query, select a short list, and weight its pairs."""
    database_rows = data.split.database[data.split.database != query]
    database = encode_source(encoder, data, rows=database_rows, progress=progress)
    query_encoded = encode_source(encoder, data, rows=np.array([query]))
    if not len(query_encoded.rows):
        raise InputError(f"the image of query {query} cannot be read; choose another query")
    order = np.argsort(code_distances(query_encoded.codes, database.codes)[0], kind="stable")
    ranked_rows = database.rows[order]
    is_related = related(data.labels[[query]], data.labels[ranked_rows])[0]
    positions = short_list(is_related)
    if positions is None:
        raise InputError(
            f"there are no pairs: query {query} has only {'' if is_related.any() else 'un'}related "
            "images in the database; choose another query"
        )
    list_rows = ranked_rows[positions]
    margin, gamma = loss_parameters(record)
    embeddings = np.concatenate([query_encoded.embeddings, database.embeddings[order[positions]]])
    list_order, pairs = weight_pairs(embeddings, is_related[positions], margin=margin, gamma=gamma)
    hamming = np.count_nonzero((embeddings[1:] > 0.5) != (embeddings[0] > 0.5), axis=1)
    items = tuple(
        RankedImage(
            row=int(list_rows[i]),
            label=label_text(data, int(list_rows[i])),
            related=bool(is_related[positions[i]]),
            hamming=int(hamming[i]),
            rank=int(positions[i]) + 1,
        )
        for i in list_order
    )
    return Explanation(
        row=query,
        label=label_text(data, query),
        n_bits=encoder.n_bits,
        margin=margin,
        gamma=gamma,
        items=items,
        pairs=pairs,
        average_precision=average_precision([item.related for item in items]),
        n_database=len(database.rows),
    )


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
        LOSSES[record.method], OrderAwareTripletLoss | MinedTripletLoss
    ):
        loss = as_method(record.method, record.options).loss(
            n_bits=record.n_bits, n_classes=2, seed=record.seed
        )
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
