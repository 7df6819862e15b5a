"""The order-aware loss with learned class proxies in its rank lists."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch.inputs import check_embeddings, check_memory
from orbithash.losses.central_similarity import check_classes
from orbithash.losses.order_aware import OrderAwareTripletLoss


class ProxyOrderAwareTripletLoss(nn.Module):
    """The order-aware triplet loss, with a trainable embedding of each class in every list.

    A proxy is one more item of its class. All classes so are in every rank list, however small the
    batch. Anchors are the images of the batch; proxies are no anchors. The proxies are trained with
    the network and not used afterwards.

    The loss is that of Chen et al., "Improving Deep Binary Embedding Networks by Order-aware
    Reweighting of Triplets", 2018; proxies as in Movshovitz-Attias et al., "No Fuss Distance Metric
    Learning using Proxies", ICCV 2017.

    Args:
        seed: Of the initial proxies: the sigmoid of normal numbers of standard deviation 2.
        margin, gamma, weighting, ties, reduction: As in `OrderAwareTripletLoss`.
    """

    margin_of_bits: ClassVar[float] = OrderAwareTripletLoss.margin_of_bits

    def __init__(
        self,
        *,
        n_classes: int,
        n_bits: int,
        seed: int = 0,
        margin: float | None = None,
        gamma: float = 2.0,
        weighting: str = "ap",
        ties: str = "distance",
        reduction: str = "active",
    ) -> None:
        super().__init__()
        if n_classes < 1 or n_bits < 1:
            raise InputError(f"n_classes={n_classes}, n_bits={n_bits}; both must be at least 1")
        self.triplets = OrderAwareTripletLoss(
            margin=margin, gamma=gamma, weighting=weighting, ties=ties, reduction=reduction
        )
        generator = torch.Generator().manual_seed(seed)
        self.logits = nn.Parameter(2 * torch.randn(n_classes, n_bits, generator=generator))

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch; `ref_emb` is a memory, in the lists beside the proxies."""
        check_embeddings(embeddings)
        check_classes(labels, len(embeddings), len(self.logits))
        labels = labels.to(embeddings.device)
        items = self.logits.sigmoid().to(embeddings.device)
        item_labels = torch.arange(len(items), device=items.device)
        if labels.ndim == 2:
            item_labels = nn.functional.one_hot(item_labels)
        if ref_emb is not None or ref_labels is not None:
            memory, memory_labels = check_memory(embeddings, labels, ref_emb, ref_labels)
            assert memory_labels is not None  # as there are labels
            items = torch.cat([items, memory])
            assert memory_labels is not None  # as `labels` are given
            item_labels = torch.cat([item_labels, memory_labels])
        value: Tensor = self.triplets(embeddings, labels, ref_emb=items, ref_labels=item_labels)
        return value

    @property
    def weight_scale(self) -> Tensor | None:
        """As of `OrderAwareTripletLoss`."""
        return self.triplets.weight_scale

    @property
    def active_share(self) -> float:
        """The share of the last batch's triplets that were within the margin."""
        return self.triplets.active_share

    @property
    def n_triplets(self) -> int:
        """The number of triplets in the last batch."""
        return self.triplets.n_triplets
