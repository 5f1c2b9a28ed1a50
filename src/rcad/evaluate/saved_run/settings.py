"""What an evaluation's numbers depend on besides the run, and the record that a suite leaves: a strict JSON file."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rcad.data.corrupted import CORRUPTIONS, SEVERITIES
from rcad.errors import InputError, Value, finite, one_of, shaped, shown, whole
from rcad.runs.files import Kind, OtherVersionError, denied, dumps, finite_or_none, set_aside

log = logging.getLogger("rcad")

FOLDER = "evaluation"
"""Of the records beside a run."""

SUITES = ("calibration", "attacks", "corruptions", "ood")
ATTACKS = ("fgsm", "pgd", "apgd_ce", "apgd_dlr")
NOISE = "noise"
PAPER_EPS = 0.05
"""The radius at which the RCAD paper attacks with FGSM."""

# Examples by suite for: a GPU; small inputs on the CPU; larger images on the CPU. 0 is all of them. One example costs
# an attack suite about 600 passes forward and backward, the corruptions 76 passes forward.
LIMITS = {
    "calibration": (0, 0, 2000),
    "attacks": (1000, 500, 32),
    "corruptions": (0, 1000, 128),
    "ood": (0, 1000, 256),
}


@dataclass(frozen=True, repr=False, kw_only=True)
class Settings(Value):
    """How to evaluate; every field belongs to the suites that its name tells.

    Args:
        limit, attack_eps, attacks, masking, standard, corrupted, ood_data: as in `rcad.evaluate_run`.
        seed: of the examples drawn, of random starts, corruptions, directions and noise.
        steps: of PGD and APGD.
        corruptions, severities: which are generated, or read.
        alphas: distances of the curve of entropy against alpha, in the units of the input.
    """

    limit: int | None = None
    seed: int = 0
    attack_eps: tuple[float, ...] = (2 / 255, 4 / 255, 8 / 255, PAPER_EPS)
    attacks: tuple[str, ...] = ATTACKS
    steps: int = 20
    masking: bool = True
    standard: bool = False
    corruptions: tuple[str, ...] = CORRUPTIONS
    severities: tuple[int, ...] = SEVERITIES
    corrupted: str | None = None
    ood_data: tuple[str, ...] = (NOISE,)
    alphas: tuple[float, ...] = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

    def __post_init__(self) -> None:
        if self.limit is not None:
            whole("limit", self.limit, minimum=0)
        whole("seed", self.seed, minimum=0)
        whole("steps", self.steps, minimum=1)
        for name in ("attack_eps", "attacks", "corruptions", "severities", "ood_data", "alphas"):
            values = tuple(getattr(self, name))
            if not values or len(set(values)) < len(values):
                raise InputError(f"expected {name} to hold one or more different entries, but got {list(values)}")
            object.__setattr__(self, name, values)
        for eps in self.attack_eps:
            finite("an entry of attack_eps", eps, above=0.0)
        for alpha in self.alphas:
            finite("an entry of alphas", alpha, minimum=0.0)
        for name, choices in (("attacks", ATTACKS), ("corruptions", CORRUPTIONS)):
            for value in getattr(self, name):
                one_of(f"an entry of {name}", value, choices)

    def of(self, suite: str) -> dict[str, Any]:
        """The fields that a suite's numbers depend on, as plain data."""
        chosen = {name: getattr(self, name) for name in ("limit", "seed", *OWN[suite])}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()}

    def file(self, suite: str) -> str:
        """The name of a suite's record: other settings never take the place of an earlier record."""
        chosen = self.of(suite)
        if chosen == Settings().of(suite):
            return f"{suite}.json"
        return f"{suite}-{hashlib.sha256(dumps(chosen).encode()).hexdigest()[:8]}.json"


OWN = {
    "calibration": (),
    "attacks": ("attack_eps", "attacks", "steps", "masking", "standard"),
    "corruptions": ("corruptions", "severities", "corrupted"),
    "ood": ("ood_data", "alphas"),
}
"""The fields that belong to one suite; `limit` and `seed` belong to all."""


def parse_suites(suites: str | Sequence[str]) -> tuple[str, ...]:
    """The suites of a list, or of a text with commas, in their own order; "all" is all of them."""
    names = [part.strip() for part in suites.split(",")] if isinstance(suites, str) else list(suites)
    if not names:
        raise InputError("expected at least one suite, but got none")
    for name in names:
        one_of("a suite", name, (*SUITES, "all"))
    return SUITES if "all" in names else tuple(name for name in SUITES if name in names)


@dataclass(frozen=True, repr=False, kw_only=True)
class Evaluation(Value):
    """What a suite found out about a run.

    Args:
        settings: all that the numbers depend on, defaults filled in.
        numbers: by flat name; accuracies in percent. None stands for a number that is not finite.
        curves: what figures are drawn from.
        notes: sentences for the reader: what was left out, and why.
        examples: how many of the test split were looked at.
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
            object.__setattr__(self, name, finite_or_none(getattr(self, name)))
        object.__setattr__(self, "notes", tuple(self.notes))

    def finite_numbers(self) -> dict[str, float]:
        return {name: value for name, value in self.numbers.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        return EVALUATION.stamp({**asdict(self), "notes": list(self.notes)})


FORM: dict[str, Any] = {
    **dict.fromkeys(("run", "suite", "device", "finished"), str),
    **dict.fromkeys(("settings", "curves", "versions"), dict),
    "numbers": {str: (float, None)},
    "notes": [str],
    "examples": int,
    "seconds": float,
    "commit": (str, None),
}
"""Of an evaluation as JSON, see `shaped`."""


def _from_dict(plain: dict[str, Any], schema: int) -> Evaluation:
    if plain.keys() != FORM.keys():
        raise InputError(f"expected {', '.join(FORM)}, but got {shown(sorted(plain.keys() ^ FORM.keys()))}; remove it")
    one_of("the suite", plain["suite"], SUITES)
    return Evaluation(**shaped("the evaluation", plain, FORM))


EVALUATION = Kind("rcad run evaluation", 1, _from_dict)


def read_stored(path: Path, run: str, settings: dict[str, Any]) -> Evaluation | None:
    """The record at `path`, if it was made with the same settings; a damaged one is set aside, to be made again."""
    if not path.exists():
        return None
    try:
        evaluation = EVALUATION.read(path)
        if evaluation.run != run:
            raise InputError(f"expected {path} to belong to run {run}, but got {evaluation.run}; remove it")
    except InputError as error:
        if denied(error) or isinstance(error, OtherVersionError):
            raise
        words = str(error).partition("; ")[0]
        log.warning("%s; it is kept as %s, and measured again", words, set_aside(path).name)
        return None
    return evaluation if evaluation.settings == settings else None
