"""Compiled loops. Most also have a plain numpy reference, beside them or in `plain_search`.

The references of `triplets` and `distances` are tensor operations, in `orbithash.losses.batch`.
"""

import os

# OpenMP reads this when it is loaded. By default its threads spin while they wait, which takes the
# cores from torch, faiss and other libraries: a training step can then take many times as long.
# A value that the user has set is kept.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
