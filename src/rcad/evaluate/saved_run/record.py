"""One suite's numbers for one run: a strict JSON file beside the run, which is not computed again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rcad.errors import InputError, Value, is_number, one_of, shown
from rcad.evaluate.saved_run.settings import SUITES
from rcad.runs.files import Kind, dumps, finite_or_none, loads, make_folder, write_text

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
        return EVALUATION.stamp({**asdict(self), "notes": list(self.notes)})

    def write(self, path: Path) -> None:
        make_folder(path.parent)
        write_text(path, dumps(self.to_dict(), indent=1) + "\n")


def _from_dict(plain: dict[str, Any], schema: int) -> Evaluation:
    for name, expected in TYPES.items():
        if not isinstance(plain.get(name), expected) or isinstance(plain[name], bool):
            raise InputError(f"expected {name} of an evaluation, but got {shown(plain.get(name))}; remove it")
    if plain.keys() != TYPES.keys():
        raise InputError(
            f"expected {', '.join(TYPES)}, but got {shown(sorted(plain.keys() ^ TYPES.keys()))}; remove it"
        )
    for name, value in plain["numbers"].items():
        if value is not None and not is_number(value):
            raise InputError(f"expected numbers.{name} to be a number, but got {shown(value)}; remove it")
    one_of("the suite", plain["suite"], SUITES)
    return Evaluation(**plain)


TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("run", "suite", "device", "finished"), str),
    **dict.fromkeys(("settings", "numbers", "curves", "versions"), dict),
    "notes": list,
    "examples": int,
    "seconds": (int, float),
    "commit": (str, type(None)),
}
EVALUATION = Kind("rcad run evaluation", 1, _from_dict)


def stored(path: Path, run: str, settings: dict[str, Any]) -> Evaluation | None:
    """The record at `path`, if it was made with the same settings."""
    if not path.is_file():
        return None
    evaluation = EVALUATION.read(path)
    if evaluation.run != run:
        raise InputError(f"expected {path} to belong to run {run}, but got {evaluation.run}; remove it")
    return evaluation if evaluation.settings == loads(dumps(settings), "settings") else None
