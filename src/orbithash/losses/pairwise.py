"""How likely it is that two images are related, by the inner product of their codes.

DPSH and HashNet share it: a pair with inner product p is related with the probability sigmoid(s·p).
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn


def negative_log_likelihoods(
    inner: Float[Tensor, "n n"], similar: Bool[Tensor, "n n"]
) -> Float[Tensor, "n n"]:
    """−log of the probability that each pair is as it is, given log-odds `inner`."""
    # log(1 + e^x) − s·x, written so that large x do not overflow.
    return nn.functional.softplus(inner) - similar * inner
