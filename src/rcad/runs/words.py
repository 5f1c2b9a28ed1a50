"""Numbers and runs in a few words, for people: metrics, durations, sizes, how a run ended."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rcad.loss.method_rows import label
from rcad.runs.config import RunConfig
from rcad.runs.record import SHORT, RunRecord

_BARS = "▁▂▃▄▅▆▇█"
_PERCENT = ("accuracy", "error", "top5")
_COUNTS = ("epochs", "selected_epoch")
# What a reader looks for first, best first; a metric's name may have a prefix such as val_ or test_.
_ORDER = ("accuracy", "nll", "rmse", "mae", "loss", "ece", "brier", "top5")


def is_percent(name: str) -> bool:
    return any(word in name.split("_") for word in _PERCENT)


def metric(name: str, value: float | None) -> str:
    """One number of a metric: 97.2% or 0.1043; a dash where it was not finite."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.1f}%" if is_percent(name) else number(value)


def number(value: float) -> str:
    """Four significant digits; whole numbers stay whole."""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def mean_and_spread(name: str, values: Sequence[float | None]) -> str:
    """Mean ± standard deviation (n - 1) over seeds; the mean alone for one seed, a dash where a value is missing."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite or len(finite) < len(values):
        return "-"
    mean = statistics.fmean(finite)
    if len(finite) == 1:
        return metric(name, mean)
    spread = statistics.stdev(finite)
    if is_percent(name):
        return f"{mean:.1f} ± {spread:.1f}%"
    # As many decimals as give the spread two digits; but four are enough for a mean that is not tiny.
    most = 4 if abs(mean) >= 0.01 else 6
    decimals = most if spread == 0 else min(max(1 - math.floor(math.log10(spread)), 0), most)
    return f"{mean:.{decimals}f} ± {spread:.{decimals}f}"


def too_short(epochs: int) -> str:
    """A sentence for runs whose `more_epochs` is this number."""
    falling = f"The validation NLL was still falling in the last epoch, after fewer than {SHORT} steps"
    return f"{falling}: train longer, --epochs {epochs}."


def duration(seconds: float | None) -> str:
    """8.4 s, 2m 05s or 3h 12m."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, over = divmod(round(seconds), 60)
    return f"{minutes}m {over:02d}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02d}m"


def quicker(run: str, seconds: float) -> str:
    """What follows the time of a plan: how to take less, where a run as this line describes it takes long on a CPU."""
    slow = seconds > 3600 and "; CPU" in run and run.startswith(("ResNet", "WideResNet"))
    return "; faster: a GPU, --model small_cnn, or images of 32 pixels (--size 32)" if slow else ""


def size(count: int) -> str:
    """Bytes in the largest unit that fits."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


FEW = 100
"""Of fewer examples an accuracy is known to no better than ten points."""
BY_CHANCE = "so few that small differences may be chance"


def plural(count: int, noun: str) -> str:
    """1 run, 2 runs, 1 class, 2 classes."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"


def leading(names: Iterable[str], most: int) -> list[str]:
    """The metrics to show where there is room for `most`: the test's before the held-out ones, telling ones first."""
    return sorted({name for name in names if name not in _COUNTS}, key=_rank)[:most]


def _rank(name: str) -> tuple[int, int, str]:
    words = name.split("_")
    place = min((_ORDER.index(word) for word in words if word in _ORDER), default=len(_ORDER))
    return {"val": 1, "last": 2, "train": 3}.get(words[0], 0), place, name


def sparkline(values: Sequence[float | None], width: int = 24) -> str:
    """The course of a number in one line; a gap where it was not finite."""
    if len(values) > width:  # the last of each stretch, so that the end is the end
        values = [values[(index + 1) * len(values) // width - 1] for index in range(width)]
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(" " if value is None else _BARS[round((value - low) * scale)] for value in values)


def seconds(record: RunRecord) -> float | None:
    timings = [value for value in record.timings.values() if value is not None]
    return sum(timings) if timings else None


def title(config: RunConfig) -> str:
    return f"{label(config.method)} on {config.data.name}, seed {config.seed}"


def said(record: RunRecord, already: bool, *, most: int = 3) -> str:
    """How a run ended, in one line with at most so many metrics."""
    parts = _outcome(record, already, leading(record.metrics, most))
    if record.is_final:
        parts.append(record.message)
    if record.status != "diverged":
        parts.append(f"run {record.id}" if already else duration(seconds(record)))
    return "  ".join(filter(None, parts))


def _outcome(record: RunRecord, already: bool, names: Iterable[str]) -> list[str]:
    status = f"{record.status} already" if already else record.status
    return [f"{status}: {title(record.config)}", *(f"{name} {metric(name, record.metrics[name])}" for name in names)]


def overview(record: RunRecord) -> dict[str, str]:
    """A run in a few rows: what it is, its numbers, and how the loss and the held-out metric went over the epochs."""
    about = {
        "run": record.id,
        "trained": title(record.config),
        "model": record.resolved.get("model", record.config.model.name),
        "status": ": ".join(part for part in (record.state, record.message) if part),
        "time": f"{duration(seconds(record))}, {plural(record.last_epoch, 'epoch')}",
    }
    numbers = {name: metric(name, record.metrics[name]) for name in leading(record.metrics, 6)}
    seen = {name for row in record.epochs for name in row}
    courses = {
        f"{name}, by epoch": sparkline([row.get(name) for row in record.epochs])
        for name in (*leading((name for name in seen if name.startswith("val_")), 1), "loss")
        if name in seen
    }
    return {**about, **numbers, **courses}


_EPOCH = (("loss",), ("val_accuracy", "accuracy", "val_rmse"), ("val_nll",))


def epoch_words(row: Mapping[str, float], epochs: int) -> str:
    """The telling numbers of an epoch: "epoch 3/10  loss 0.412  val_accuracy 91.3%"."""
    first = [next((name for name in names if name in row), None) for names in _EPOCH]
    numbers = [f"{name} {metric(name, row[name])}" for name in first if name is not None]
    return "  ".join([f"epoch {int(row['epoch'])}/{epochs}", *numbers])


def held_out_words(record: RunRecord, already: bool) -> str:
    """How a run of a search ended: its weight decay, no test metrics, which whoever tunes must not see."""
    names = [name for name in ("val_accuracy", "val_nll", "val_rmse") if name in record.metrics][:2]
    run, *numbers = _outcome(record, already, names)
    decay = f"weight decay {record.config.optim.weight_decay:g}"
    return "  ".join([f"{run}, {decay}", *numbers, *([] if names else [record.message])])


def own_words(own: Mapping[str, Any]) -> list[str]:
    """The options of a command for own data that gave these fields of a config."""
    words = []
    for key, value in own.items():
        words.append(f"--{key.replace('_', '-')}")
        if value is not True:
            words.append(value if isinstance(value, str) else ",".join(value))
    return words
