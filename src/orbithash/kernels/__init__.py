"""The compiled loops, each beside its plain reference."""

import os

# OpenMP reads this when it is loaded. Its threads spin while they wait, unless told to sleep, and
# take the cores from torch, faiss or whatever else would work meanwhile: a training step can then
# take many times as long. Who sets the variable keeps what they set.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
