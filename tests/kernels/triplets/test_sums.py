import os
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np, torch
from orbithash.losses import OrderAwareTripletLoss
embeddings = torch.rand(500, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
for weighting in ("ap", "ndcg", "none"):
    for classes in (20, 2):  # by pairs, and by sweeps
        loss = OrderAwareTripletLoss(weighting=weighting)(embeddings, torch.arange(500) % classes)
        loss.backward()
print(embeddings.grad.numpy().tobytes().hex())
"""


@pytest.mark.slow
def test_gradients_are_the_same_from_fresh_and_from_cached_code(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    compiled, cached = (
        subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment) for _ in range(2)
    )
    assert compiled == cached
