"""One suite's numbers for one run: a strict JSON file beside the run, which is not computed again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rcad.errors import InputError, Value, one_of
from rcad.runs.files import dumps, finite_or_none, loads, make_folder, read_text, write_text

SCHEMA = 1
FOLDER = "evaluation"


@dataclass(frozen=True, repr=False, kw_only=True)
class Evaluation(Value):
    """What a suite found out about a run.

    Args:
        run, suite: which.
        settings: all that the numbers depend on, defaults filled in.
        numbers: by flat name; accuracies in percent. None stands for a number that is not finite.
        curves: what figures are drawn from.
        notes: sentences for the reader: what was left out, and why.
        examples: how many of the test split were looked at.
        seconds, device, versions, commit, finished: how and when it was made.
    """

    run: str
    suite: str
    settings: dict[str, Any]
    numbers: dict[str, float | None]
    curves: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    examples: int = 0
    seconds: float = 0.0
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    finished: str = ""

    def __post_init__(self) -> None:
        for name in ("settings", "numbers", "curves"):
            object.__setattr__(self, name, loads(dumps(finite_or_none(getattr(self, name))), name))
        object.__setattr__(self, "notes", tuple(self.notes))

    def known(self) -> dict[str, float]:
        """The numbers that are finite."""
        return {name: value for name, value in self.numbers.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "notes": list(self.notes)}

    def write(self, path: Path) -> None:
        make_folder(path.parent)
        write_text(path, dumps(self.to_dict(), indent=1) + "\n")


def read(path: Path) -> Evaluation:
    """The record in a file; one line says what is wrong with it."""
    return parse(loads(read_text(path), str(path)), str(path))


def parse(plain: Any, source: str) -> Evaluation:
    """The record that `to_dict` wrote; `source` names its file in messages."""
    names = {one.name for one in fields(Evaluation)}
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA or plain.keys() != names | {"schema"}:
        raise InputError(f"expected an evaluation of schema {SCHEMA} in {source}, but got something else; remove it")
    one_of(f"the suite of {source}", plain["suite"], ("calibration", "attacks", "corruptions", "ood"))
    return Evaluation(**{name: plain[name] for name in names})


def stored(path: Path, run: str, settings: dict[str, Any]) -> Evaluation | None:
    """The record at `path`, if it was made with the same settings."""
    if not path.is_file():
        return None
    found = read(path)
    if found.run != run:
        raise InputError(f"expected {path} to belong to run {run}, but got {found.run}; remove it")
    return found if found.settings == loads(dumps(settings), "settings") else None
