"""One thread per worker: the suite runs as many workers as there are cores, and spinning threads starve each other."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
