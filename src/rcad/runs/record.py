"""What a run gave: one frozen value, one strict JSON file; and what it may depend on besides its config."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import metadata
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args

from rcad.errors import InputError, Value, did_you_mean, html_table, is_finite, is_number, one_of, shown, whole
from rcad.loss.method_rows import label
from rcad.runs.config import RunConfig
from rcad.runs.files import Kind, finite_or_none
from rcad.runs.plain import config_id, from_plain, to_plain

Status = Literal["running", "interrupted", "diverged", "done"]
STATUSES: tuple[Status, ...] = get_args(Status)
FINISHED: tuple[Status, ...] = ("done", "diverged")
FAILED = "an error ended it: "  # begins the message of a run that is interrupted since its code raised an exception
NO_TEST = "no test split"  # the message of a run that is done with data.test_fraction=0
Numbers = Mapping[str, float | None]  # numbers by name; None stands for one that is not finite
SHORT, FALLING = 500, 0.02
"""Steps of a training that may be too short; the share of its fall that a falling NLL has after half of the epochs."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Split(Value):
    """Which examples a split held: how many, and the sha256 of their indices in hexadecimal digits."""

    size: int
    sha256: str

    def __post_init__(self) -> None:
        whole("the size of a split", self.size, minimum=0)
        if not isinstance(self.sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise InputError(f"expected the sha256 of a split as 64 hexadecimal digits, but got {shown(self.sha256)}")


@dataclass(frozen=True, repr=False, kw_only=True)
class RunRecord(Value):
    """One run.

    Args:
        status: "running" and "interrupted" can go on; "done" and "diverged" are final.
        started, finished: ISO times in UTC; `finished` is None until the run is final.
        message: a sentence for the reader, e.g. why it diverged.
        splits: by name, e.g. "train", "validation", "test".
        epochs: one row of numbers per epoch.
        metrics: the final numbers. NaN and infinity become None, here and in `epochs`; the status tells why.
        timings: seconds by name.
        peak_memory_bytes: None where it was not measured.
        commit: of the checkout that ran, if any.
        data_sha256: of the examples and targets; the config only names them.
        resolved: what "auto" and defaults stood for, e.g. the model and the method with all its parameters.
        id: `config_id(config)`; need not be given.
    """

    config: RunConfig
    status: Status
    started: str
    finished: str | None = None
    message: str = ""
    splits: Mapping[str, Split] = field(default_factory=dict)
    epochs: Sequence[Numbers] = ()
    metrics: Numbers = field(default_factory=dict)
    timings: Numbers = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    data_sha256: str = ""
    resolved: Mapping[str, str] = field(default_factory=dict)
    id: str = ""

    def __post_init__(self) -> None:
        one_of("status", self.status, STATUSES)
        run = config_id(self.config)
        if self.id not in ("", run):
            raise InputError(
                f"expected the id {run} for this config, but got {shown(self.id)}; keep id and config together"
            )
        _check_time("started", self.started)
        if self.finished is not None:
            _check_time("finished", self.finished)
        elif self.is_final:
            raise InputError(f"expected finished for a run that is {self.status}, but got None; give the time")
        _check_texts(self)
        if self.peak_memory_bytes is not None:
            whole("peak_memory_bytes", self.peak_memory_bytes, minimum=0)
        if not isinstance(self.epochs, list | tuple):
            raise InputError(f"expected epochs to be a list of rows, but got {shown(self.epochs)}")
        fixed = {
            "id": run,
            "splits": {name: _split(name, value) for name, value in _table("splits", self.splits).items()},
            "epochs": tuple(_numbers(f"epochs[{index}]", row) for index, row in enumerate(self.epochs)),
            "metrics": _numbers("metrics", self.metrics),
            "timings": _numbers("timings", self.timings),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)

    @property
    def is_final(self) -> bool:
        """Whether the run is over, for good or bad."""
        return self.status in FINISHED

    @property
    def state(self) -> str:
        """The status as people are told it: "failed" where no signal but an error interrupted the run."""
        return "failed" if self.status == "interrupted" and self.message.startswith(FAILED) else self.status

    @property
    def last_epoch(self) -> int:
        """How many epochs were trained; a packed record has fewer rows than that."""
        last = self.epochs[-1].get("epoch") if self.epochs else 0
        return max(len(self.epochs), int(last or 0))

    @property
    def more_epochs(self) -> int | None:
        """How many epochs to train instead, where the training was too short; see `more_epochs`."""
        if self.status != "done" or "train" not in self.splits or self.last_epoch != len(self.epochs):
            return None
        nll = [row.get("val_nll") for row in self.epochs]
        return more_epochs(nll, self.splits["train"].size, self.config.train.batch_size)

    def summary(self) -> dict[str, Any]:
        """What a list of runs shows."""
        return {
            "id": self.id,
            "data": self.config.data.name,
            "model": self.config.model.name,
            "method": label(self.config.method),
            "seed": self.config.seed,
            "status": self.status,
            "epochs": self.last_epoch,
            "metrics": dict(self.metrics),
        }

    def _repr_html_(self) -> str:
        from rcad.runs.words import overview

        return html_table(overview(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain data that strict JSON can hold."""
        plain = RUN.stamp({"id": self.id, "config": to_plain(self.config)})
        for name in FIELDS:
            plain.setdefault(name, finite_or_none(getattr(self, name)))
        plain["splits"] = {name: {"size": s.size, "sha256": s.sha256} for name, s in self.splits.items()}
        return plain

    @staticmethod
    def from_dict(plain: Any, *, source: str = "the record") -> RunRecord:
        """The record that `to_dict` wrote; `source` names its file in messages."""
        return RUN.parse(plain, source)


def more_epochs(nll: Sequence[float | None], examples: int, batch: int) -> int | None:
    """Epochs for twice `SHORT` steps, where a run had fewer than `SHORT` and its held-out NLL was still falling; else
    None. It is falling if that of the last epoch is the lowest, and `FALLING` of the whole fall or more is after half
    of the epochs."""
    steps, known = -(-examples // batch), [value for value in nll if value is not None]
    if len(nll) < 2 or len(known) < len(nll) or steps * len(nll) >= SHORT:
        return None
    first, half, last = known[0], known[(len(known) - 1) // 2], known[-1]
    falling = first > last == min(known) and half - last >= FALLING * (first - last)
    return 10 * -(-2 * SHORT // (10 * steps)) if falling else None


def advised(runs: Sequence[int | None]) -> int | None:
    """The most epochs of `more_epochs` where more than half of the runs have such a number, else None."""
    short = [epochs for epochs in runs if epochs is not None]
    return max(short) if 2 * len(short) > len(runs) else None


FIELDS: tuple[str, ...] = tuple(field.name for field in fields(RunRecord))


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _from_dict(plain: dict[str, Any], schema: int) -> RunRecord:
    for key in plain:
        if key not in FIELDS:
            raise InputError(f"expected a key of a record, but got {key!r}{did_you_mean(key, list(FIELDS))}")
    for key in ("id", "config", "status", "started"):
        if key not in plain:
            raise InputError(f"expected {key} to be given, but it is missing; restore the file or remove it")
    return RunRecord(**{**plain, "config": from_plain(plain["config"])})


RUN = Kind("rcad run", 1, _from_dict)


def _check_time(name: str, text: Any) -> None:
    with suppress(TypeError, ValueError):
        if datetime.fromisoformat(text).utcoffset() == timedelta(0):
            return
    raise InputError(f"expected {name} to be an ISO time in UTC like 2024-01-31T12:00:00+00:00, but got {shown(text)}")


def _check_texts(record: RunRecord) -> None:
    texts = {name: getattr(record, name) for name in ("message", "device", "data_sha256")}
    texts |= {} if record.commit is None else {"commit": record.commit}
    for table in ("resolved", "versions"):
        texts |= {f"{table}.{name}": text for name, text in _table(table, getattr(record, table)).items()}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"expected {name} to be a text, but got {shown(text)}")


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"expected {name} to be a table with texts as keys, but got {shown(value)}")
    return value


def _numbers(name: str, values: Any) -> dict[str, float | None]:
    """Numbers of Python's own, whatever kind they were; None for those that are not finite."""
    numbers: dict[str, float | None] = {}
    for key, value in _table(name, values).items():
        if value is not None and not is_number(value):
            raise InputError(f"expected {name}.{key} to be a number, but got {shown(value)}")
        kind = int if isinstance(value, Integral) else float
        numbers[key] = kind(value) if value is not None and is_finite(value) else None
    return numbers


def _split(name: str, value: Any) -> Split:
    if isinstance(value, Split):
        return value
    if not isinstance(value, Mapping) or set(value) != {"size", "sha256"}:
        raise InputError(f"expected splits.{name} with size and sha256, but got {shown(value)}")
    return Split(**value)


PACKAGES = ("rcad", "torch", "numpy")


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """The versions of Python and of the packages that are installed, without importing any."""
    by_name = {"python": platform.python_version()}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            by_name[name] = metadata.version(name)
    return by_name


@cache
def commit(file: Path = Path(__file__)) -> str | None:
    """The commit of the checkout that tracks `file`, "-dirty" where tracked files were changed; else None."""
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    # Not `describe --dirty`, which writes to the index, under a lock that a kill leaves behind.
    status = _git(file.parent, "status", "--porcelain=v2", "--branch", "--untracked-files=no") or ""
    head = re.search(r"^# branch.oid ([0-9a-f]+)$", status, re.MULTILINE)
    changed = re.search(r"^[^#]", status, re.MULTILINE)
    return None if head is None else f"{head[1]}-dirty" if changed else head[1]


def _git(folder: Path, *arguments: str) -> str | None:
    surroundings = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**surroundings, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
