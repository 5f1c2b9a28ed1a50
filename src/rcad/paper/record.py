"""A study's record: one table or figure of the paper as it was run and judged, the same form for all of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError, fitting, shaped
from rcad.paper.claims import NOT_RUN, TOGETHER, TRIAL, Claim, Side, by_verdict
from rcad.paper.targets import Printed
from rcad.runs.files import Kind, dumps, finite_or_none, loads, make_folder, read_text, sealed, write_text
from rcad.runs.words import plural

KIND, SCHEMA = "rcad study", 2
DIGITS = 7
SCALES = {
    "smoke": "SMOKE SCALE: a trial of seconds on tiny data. Its numbers mean nothing, and nothing is judged by them.",
    "small": "SMALL SCALE: fewer epochs, seeds or data than the paper. Read its verdicts as hints.",
    "full": "",
}
METRICS = {
    "accuracy": "accuracy, %",
    "nll": "NLL, nats",
    "brier": "Brier score",
    "ece": "ECE",
    "rmse": "RMSE",
    "top5": "top-5 accuracy, %",
}
"""What a metric is called, with its unit; higher is better for the accuracies alone."""
MEASURED = ("accuracy", "nll", "brier", "ece")
"""Shown and compared for every run on images, at the chosen epoch and at the last."""
EVERY_METHOD = "every method tuned"
"""In the title of a table whose methods all had the same search."""
LAST = "last_"
"""Before the name of a metric: at the last epoch, which nothing has chosen."""
JSON = Mapping[str, Any]
OnProgress = Callable[[str, int, int], None]
"""Told what is being computed, and how much of how much is done."""


@dataclass(frozen=True)
class Run:
    """One run, split or draw; its id is "" where the study keeps no run records, its status "done" or "diverged".

    metrics: a number that is None was lost where the run diverged, and not measured where it did not.
    """

    seed: int
    metrics: Mapping[str, float | None]
    id: str = ""
    status: str = "done"
    seconds: float | None = None

    @property
    def diverged(self) -> bool:
        return self.status == "diverged"


@dataclass(frozen=True)
class Place:
    """A method (row) on some data (column): what is printed, and our runs."""

    row: str
    column: str
    published: Printed | None
    runs: Sequence[Run]

    def values(self, metric: str) -> list[float]:
        """The finite results."""
        values = (run.metrics.get(metric) for run in self.runs)
        return [value for value in values if value is not None and math.isfinite(value)]

    def by_seed(self, metric: str) -> dict[int, float | None]:
        """The result of each seed, None where it diverged; {} where no run that is done knows the metric."""
        measured = any(run.diverged or run.metrics.get(metric) is not None for run in self.runs)
        return {run.seed: run.metrics.get(metric) for run in self.runs} if measured else {}

    @property
    def diverged(self) -> int:
        return sum(run.diverged for run in self.runs)


@dataclass(frozen=True)
class Series:
    """A curve of a panel: for every x (a number or a name) the results of all seeds, and what the paper prints there.

    over: the row whose numbers are subtracted, seed by seed.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[Sequence[float | None]]
    published: Sequence[float | None] = ()
    panel: str = ""
    over: str | None = None


@dataclass(frozen=True)
class Study:
    """A record.

    Attributes:
        target: the table or figure, T1; another name for a study of ours.
        path: its file; None before it is written.
        protocol: what every method has in common, where that is a choice.
        metrics: by column, the number that it shows where that is not `metric`.
        overlap: by column, n_test / n_train of splits that share their rows; their intervals are wider.
        ceiling: by column, the best that any method could reach.
        not_run: why, for columns without a run; sentences.
        settings: all that the numbers depend on besides data and versions.
        details: what only this study has: choices, curves of a search, images.
    """

    target: str
    title: str = ""
    path: Path | None = None
    about: str = ""
    scale: str = "full"
    protocol: str = ""
    metric: str = "accuracy"
    higher_is_better: bool = True
    unit: str = "%"
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    controls: Sequence[str] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[Side, Place] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    rule: str = ""
    notes: Sequence[str] = ()
    not_run: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    series: Sequence[Series] = ()
    along: str = ""
    overlap: Mapping[str, float] = field(default_factory=dict)
    ceiling: Mapping[str, float] = field(default_factory=dict)
    settings: JSON = field(default_factory=dict)
    details: JSON = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The metric with its unit."""
        name = METRICS.get(self.metric, self.metric).partition(",")[0]
        return f"test {name}" + (f", {self.unit}" if self.unit else "")

    @property
    def tuned(self) -> bool:
        """Every method was tuned alike, so that it is not the paper's protocol."""
        return self.protocol == "tuned"

    @property
    def as_published(self) -> bool:
        """At the paper's scale and by its protocol: what speaks for or against the paper."""
        return self.scale == "full" and not self.tuned

    @property
    def stem(self) -> str:
        """Of its pictures and tables: its target, or its file's name, since one target may be tuned in several ways."""
        return self.path.stem if self.tuned and self.path is not None else self.target

    @property
    def scope(self) -> str:
        """Its scale, and the protocol where it is not the paper's."""
        return f"{self.scale} scale" + (f", {EVERY_METHOD}" if self.tuned else "")

    @property
    def short_title(self) -> str:
        """Its target and what differs from the paper: "T4", "T4, tuned, 16 candidates", "T4, smoke"."""
        words = [self.target] + ([] if self.scale == "full" else [self.scale]) + (["tuned"] if self.tuned else [])
        words += ["small CNN"] if "small CNN" in self.title else []
        _, _, candidates = self.title.partition(f"{EVERY_METHOD} with ")
        return ", ".join(words + ([candidates] if candidates else []))

    @property
    def warning(self) -> str:
        """What to say loudly of a scale that is not the paper's."""
        return SCALES.get(self.scale, f"SCALE {self.scale!r}: not the paper's protocol.")

    @property
    def run_ids(self) -> set[str]:
        """Of the runs that have a record of their own; columns that show other numbers of the same runs share them."""
        return {run.id for place in self.places.values() for run in place.runs} - {""}

    @property
    def runs(self) -> int:
        return len(self.run_ids) + sum(not run.id for place in self.places.values() for run in place.runs)

    @property
    def columns_run(self) -> list[str]:
        run = {place.column for place in self.places.values() if place.runs}
        return [column for column in self.columns if column in run]

    @property
    def panels(self) -> dict[str, list[Series]]:
        """The curves of each part of the figure."""
        panels: dict[str, list[Series]] = {}
        for series in self.series:
            panels.setdefault(series.panel, []).append(series)
        return panels

    @property
    def tested(self) -> list[Claim]:
        """The claims both sides of which were run."""
        return [claim for claim in self.claims if claim.verdict != NOT_RUN]

    @property
    def tally(self) -> dict[str, list[str]]:
        """The verdicts on the claims of the paper, and on the checks that we added to it."""
        sides = {"claims": False, "checks": True}
        return {side: [c.verdict for c in self.claims if self.added(c) == added] for side, added in sides.items()}

    @property
    def findings(self) -> str:
        """How many got each verdict, in words; checks only where there are some."""
        claims, checks = self.tally.values()
        line = f"{plural(len(claims), 'claim')} of the paper: {by_verdict(claims)}".removesuffix(": ")
        return f"{line}; {plural(len(checks), 'check')} of ours: {by_verdict(checks)}" if checks else line

    def metric_of(self, column: str) -> str:
        return self.metrics.get(column, self.metric)

    def place(self, row: str, column: str) -> Place | None:
        return self.places.get((row, column))

    def cells(self, epoch: str = "") -> dict[Side, Mapping[int, float | None]]:
        """By row and column the number of each seed, at the chosen epoch or, with LAST, at the last."""
        cells = {side: place.by_seed(epoch + self.metric_of(place.column)) for side, place in self.places.items()}
        return {side: seeds for side, seeds in cells.items() if seeds}

    def added(self, claim: Claim) -> bool:
        """Whether a claim is a check of ours: against a control, where a table prints nothing, or all in one draw."""
        unprinted = self.target.startswith("T") and claim.published is None
        return unprinted or claim.statement == TOGETHER or claim.statement.endswith(tuple(self.controls))

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: numbers have seven digits, those that are not finite are None."""
        names = [field.name for field in fields(self) if field.name not in ("path", "places")]
        plain = STUDY.stamp({name: getattr(self, name) for name in names})
        plain["claims"] = [_claim_to_dict(claim) for claim in self.claims]
        plain["series"] = [asdict(series) for series in self.series]
        plain["cells"] = [
            {
                "row": place.row,
                "column": place.column,
                "published": None if place.published is None else place.published._asdict(),
                "runs": [_less(asdict(run), id="", seconds=None) for run in place.runs],
            }
            for place in self.places.values()
        ]
        return as_stored(plain)  # type: ignore[no-any-return]

    def write(self, path: Path) -> None:
        make_folder(path.parent)
        write_text(path, dumps(sealed(self.to_dict()), indent=None).replace('}, "', '},\n"') + "\n")

    @classmethod
    def read(cls, path: Path) -> Study:
        return cls.parse(loads(read_text(path), str(path)), path)

    @classmethod
    def parse(cls, plain: Any, path: Path) -> Study:
        """The record that `to_dict` wrote; one line says what is wrong with it."""
        try:
            study = replace(STUDY.parse(plain, str(path)), path=path)
        except InputError as error:
            raise InputError(f"{error}; run it again") from None
        if study.scale != "smoke":
            return study
        # A trial has no verdict, whatever a record says.
        claims = [claim if claim.verdict == NOT_RUN else replace(claim, verdict=TRIAL) for claim in study.claims]
        return replace(study, claims=claims)


def _built(plain: dict[str, Any], schema: int) -> Study:
    """The study of an object of JSON; fields that are missing or null have their defaults."""
    if schema != SCHEMA:
        raise InputError(f"expected a study of schema {SCHEMA}, but got schema {schema}")
    with fitting("a study", "it was changed, or damaged"):
        parts = {
            "places": {(cell["row"], cell["column"]): _place(**cell) for cell in plain.pop("cells")},
            "claims": [_claim(**claim) for claim in plain["claims"]],
            "series": [Series(**series) for series in plain.get("series", ())],
        }
        return Study(**{name: value for name, value in plain.items() if value is not None} | parts)


def _place(row: str, column: str, published: dict[str, Any] | None, runs: list[dict[str, Any]]) -> Place:
    return Place(row, column, None if published is None else Printed(**published), [Run(**run) for run in runs])


def _claim(last: dict[str, Any] | None = None, **own: Any) -> Claim:
    return Claim(**own, last=None if last is None else _claim(**last))


STUDY = Kind(KIND, SCHEMA, _built)


def as_stored(value: Any) -> Any:
    """As it comes back from JSON, with rounded numbers."""
    return json.loads(dumps(finite_or_none(value)), parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))


def finished(path: Path, settings: JSON, scale: str) -> Study | None:
    """The record at `path`, if it was made with the same settings."""
    if not path.is_file():
        return None
    plain = loads(read_text(path), str(path))
    if not isinstance(plain, Mapping) or plain.get("kind") != KIND:
        return None
    study = Study.parse(plain, path)
    return study if study.settings == as_stored(settings) and study.scale == scale else None


def refuse_to_replace_larger(path: Path, scale: str) -> None:
    """No trial overwrites the real thing, nor any scale a larger one."""
    plain = loads(read_text(path), str(path)) if path.is_file() else {}
    held, sizes = shaped(str(path), plain, {"scale": (str, None)})["scale"], list(SCALES)
    if held in sizes and sizes.index(held) > sizes.index(scale):
        raise InputError(f"expected a folder for the trial, but {path} holds the {held} scale; pass another --out")


def _claim_to_dict(claim: Claim) -> dict[str, Any]:
    plain = _less(asdict(claim), ours="", rule="", published_p="", last=None)
    return {**plain, "last": _claim_to_dict(claim.last)} if claim.last is not None else plain


def _less(plain: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """The fields but for some that have nothing to say."""
    return {key: value for key, value in plain.items() if key not in defaults or value != defaults[key]}
