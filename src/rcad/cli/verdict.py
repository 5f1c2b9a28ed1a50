"""The demo's runs and what they say. Runs of one seed share data and first weights: they are compared in pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from rcad.cli.figures import mean_and_spread
from rcad.cli.screen import table
from rcad.experiments.config import RunConfig
from rcad.experiments.record import RunRecord
from rcad.experiments.rows import label

DATA = "digits[:300]"
EPOCHS = 20
SEEDS = 3
METHODS = ("erm", "rcad", "rcad_random")
RIVALS = {"erm": "ERM", "rcad_random": "the random direction"}
# Student's t, two-sided 95%, for SEEDS - 1 = 2 degrees of freedom.
T_95 = 4.303


def demo_configs() -> list[RunConfig]:
    """Every method with every seed."""
    from rcad.cli.method_text import parse_method
    from rcad.experiments.configure import configure

    return [
        configure(DATA, parse_method(method), recipe="small", epochs=EPOCHS, seed=seed, settings=())
        for method in METHODS
        for seed in range(SEEDS)
    ]


def show_methods(records: Sequence[RunRecord]) -> None:
    """A row per method, mean ± sd over seeds."""
    rows = []
    for method in METHODS:
        values = {name: _values(records, method, name) for name in ("test_accuracy", "test_nll")}
        rows.append([method, *(mean_and_spread(name, numbers) for name, numbers in values.items())])
    table(["method", "accuracy", "NLL"], rows)


def verdict(records: Sequence[RunRecord]) -> str:
    """One honest sentence."""
    parts = [_compare(records, rival, name) for rival, name in RIVALS.items()]
    return f"On {DATA} with {SEEDS} seeds RCAD {' and '.join(parts)} (points of test accuracy, 95% intervals)."


def _compare(records: Sequence[RunRecord], rival: str, name: str) -> str:
    ours, theirs = (_values(records, method, "test_accuracy") for method in ("rcad", rival))
    pairs = list(zip(ours, theirs, strict=True))
    if not pairs or any(a is None or b is None for a, b in pairs):
        return f"cannot be compared with {name}, as a run diverged,"
    gains = [a - b for a, b in pairs if a is not None and b is not None]
    mean = statistics.fmean(gains)
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    if mean == 0 or abs(mean) <= T_95 * error:
        return f"did not clearly beat or lose to {name} ({mean:+.1f} ± {T_95 * error:.1f})"
    return f"{'beat' if mean > 0 else 'lost to'} {name} ({mean:+.1f} ± {T_95 * error:.1f})"


def _values(records: Sequence[RunRecord], method: str, name: str) -> list[float | None]:
    return [record.metrics.get(name) for record in records if label(record.config.method) == method]
