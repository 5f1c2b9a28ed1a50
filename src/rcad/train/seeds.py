"""One stream of randomness for each purpose, all derived from the run's seed."""

from __future__ import annotations

import hashlib


def derived(seed: int, *purpose: str | int) -> int:
    """A seed for a purpose, e.g. derived(0, "batches", 3); the same on every machine."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
