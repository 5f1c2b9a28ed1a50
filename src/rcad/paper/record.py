"""A study's record: one table or figure of the paper as it was run and judged.

Every study writes this one form, with `kind` and `schema`; it is parsed once, and what is wrong with it is said in one
line. A record of the first schema (image tables before 16 November 2026, without a kind) is read as it was meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError, is_finite, is_number, shaped, shown
from rcad.paper.claims import NOT_RUN, TRIAL, Claim, Side, Tally, is_check
from rcad.paper.published import Printed
from rcad.runs.files import dumps, finite_or_none, loads, make_folder, read_text, write_text

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
LAST = "last_"
"""Before the name of a metric: at the last epoch, which nothing has chosen."""
JSON = Mapping[str, Any]
Say = Callable[[str, int, int], None]
"""Told what is being computed, and how much of how much is done."""


@dataclass(frozen=True)
class Run:
    """One run, split or draw.

    Attributes:
        metrics: a number that is None was lost where the run diverged, and not measured where it did not.
        id: of its run record; "" where the study keeps none.
        status: "done" or "diverged".
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
        found = [run.metrics.get(metric) for run in self.runs]
        return [value for value in found if value is not None and math.isfinite(value)]

    def by_seed(self, metric: str) -> dict[int, float | None]:
        """The result of each seed, None where it diverged; {} where no run that is done knows the metric."""
        known = any(run.diverged or run.metrics.get(metric) is not None for run in self.runs)
        return {run.seed: run.metrics.get(metric) for run in self.runs} if known else {}

    @property
    def diverged(self) -> int:
        return sum(run.diverged for run in self.runs)


@dataclass(frozen=True)
class Series:
    """A curve: for every x (a number or a name) the results of all seeds, and what the paper prints there.

    Attributes:
        panel: the part of the figure.
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
        places: by row and column.
        overlap: by column, n_test / n_train of splits that share their rows; their intervals are wider.
        ceiling: by column, the best that any method could reach.
        along: what stands along x of the curves.
        not_run: why, for columns without a run; sentences.
        settings: all that the numbers depend on besides data and versions.
        details: what only this study has: choices, curves of a search, images.
    """

    target: str
    title: str
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
        return f"{self.scale} scale" + (", every method tuned" if self.tuned else "")

    @property
    def warning(self) -> str:
        """What to say loudly of a scale that is not the paper's."""
        return SCALES.get(self.scale, f"SCALE {self.scale!r}: not the paper's protocol.")

    @property
    def runs(self) -> int:
        """How many there are; columns that show other numbers of the same runs count them once."""
        every = [run.id for place in self.places.values() for run in place.runs]
        return len(set(every) - {""}) + every.count("")

    @property
    def columns_run(self) -> list[str]:
        """Those with at least one run."""
        run = {place.column for place in self.places.values() if place.runs}
        return [column for column in self.columns if column in run]

    @property
    def tested(self) -> list[Claim]:
        """The claims both sides of which were run."""
        return [claim for claim in self.claims if claim.verdict != NOT_RUN]

    @property
    def tally(self) -> Tally:
        return Tally.of(self.target, self.claims, self.controls)

    def metric_of(self, column: str) -> str:
        return self.metrics.get(column, self.metric)

    def place(self, row: str, column: str) -> Place | None:
        return self.places.get((row, column))

    def cells(self, metric: str | None = None) -> dict[Side, Mapping[int, float | None]]:
        """By row and column the number of each seed: the column's own, or another metric."""
        return {
            side: found
            for side, place in self.places.items()
            if (found := place.by_seed(metric or self.metric_of(place.column)))
        }

    def added(self, claim: Claim) -> bool:
        """Whether a claim is a check of ours, which the paper does not make itself."""
        return is_check(self.target, claim, self.controls)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: numbers have seven digits, those that are not finite are None."""
        plain: dict[str, Any] = {"kind": KIND, "schema": SCHEMA}
        for one in fields(self):
            if one.name not in ("path", "places"):
                plain[one.name] = getattr(self, one.name)
        plain["claims"] = [_claim_to_dict(claim) for claim in self.claims]
        plain["series"] = [asdict(one) for one in self.series]
        plain["cells"] = [
            {
                "row": place.row,
                "column": place.column,
                "published": None if place.published is None else place.published._asdict(),
                "runs": [_less(asdict(run), id="", seconds=None) for run in place.runs],
            }
            for place in self.places.values()
        ]
        found: dict[str, Any] = as_stored(plain)
        return found

    def write(self, path: Path) -> None:
        make_folder(path.parent)
        write_text(path, dumps(self.to_dict(), indent=None).replace('}, "', '},\n"') + "\n")

    @classmethod
    def read(cls, path: Path) -> Study:
        """The record in a file."""
        return cls.parse(loads(read_text(path), str(path)), path)

    @classmethod
    def parse(cls, plain: Any, path: Path) -> Study:
        """The record that `to_dict` wrote; one line says what is wrong with it."""
        record = Fields(plain, str(path))
        schema = record.get("schema", int, 1)
        if not is_study(plain) or schema not in (1, SCHEMA):
            what = shown(record.get("kind", str, "no kind")), schema
            raise InputError(
                f"expected a study of schema {SCHEMA} in {path}, but got {what[0]}, {what[1]}; run it again"
            )
        settings = record.get("settings", dict, {})
        found = {
            name: record.get(name, kind, default)
            for name, kind, default in (
                ("target", str, ...), ("title", str, ""), ("about", str, ""), ("scale", str, ...),
                ("protocol", str, ""), ("metric", str, ...), ("higher_is_better", bool, ...), ("unit", str, ""),
                ("rows", list, ...), ("columns", list, ...), ("controls", list, []), ("rule", str, ""),
                ("notes", list, []), ("not_run", list, []), ("versions", dict, {}), ("along", str, ""),
                ("overlap", dict, {}), ("ceiling", dict, {}), ("details", dict, {}),
            )
        }  # fmt: skip
        for name, form in _FORMS.items():
            shaped(f"{name!r} of {path}", found[name], form)
        places = [_place(Fields(cell, f"a cell of {path}")) for cell in record.get("cells", list, ...)]
        for place in places:
            if place.row not in found["rows"] or place.column not in found["columns"]:
                raise InputError(
                    f"expected the cells of {path} in its rows and columns, but got {place.row!r} and "
                    f"{place.column!r}; run it again"
                )
        study = cls(
            **found,
            path=path,
            metrics=shaped(
                f"'metrics' of {path}", record.get("metrics", dict, settings.get("metrics", {})), {str: str}
            ),
            places={(place.row, place.column): place for place in places},
            claims=[_claim(Fields(one, f"a claim of {path}")) for one in record.get("claims", list, [])],
            series=[_series(Fields(one, f"a curve of {path}")) for one in record.get("series", list, [])],
            seconds=record.number("seconds"),
            settings=settings,
        )
        study = _first_schema(study, plain) if schema == 1 else study
        return _without_verdicts(study) if study.scale == "smoke" else study


_FORMS: Mapping[str, Any] = {
    **{name: [str] for name in ("rows", "columns", "controls", "notes", "not_run")},
    **{name: {str: float} for name in ("overlap", "ceiling")},
    "versions": {str: str},
}


def is_study(plain: Any) -> bool:
    """Whether parsed JSON is the record of a study, of this schema or the first, which had no kind."""
    if not isinstance(plain, Mapping):
        return False
    return plain.get("kind") == KIND or ("kind" not in plain and {"target", "scale", "cells"} <= plain.keys())


def _first_schema(study: Study, plain: JSON) -> Study:
    """Claims that were not run said "undecided", and F1's images lay beside the cells."""
    claims = [replace(claim, verdict=NOT_RUN) if claim.note.startswith(NOT_RUN) else claim for claim in study.claims]
    missing = [note for note in study.notes if note.startswith("Not asked for: ") or note.endswith("it was not run.")]
    return replace(
        study,
        claims=claims,
        notes=[note for note in study.notes if note not in missing],
        not_run=missing,
        details={"images": plain["images"]} if "images" in plain else {},
    )


def _without_verdicts(study: Study) -> Study:
    """A trial has no verdict, whatever a record says."""
    claims = [claim if claim.verdict == NOT_RUN else replace(claim, verdict=TRIAL) for claim in study.claims]
    return replace(study, claims=claims)


def as_stored(value: Any) -> Any:
    """As it comes back from JSON, with rounded numbers."""
    return loads(dumps(_rounded(finite_or_none(value))), "a record")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


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
    found, sizes = plain.get("scale"), list(SCALES)
    if found in sizes and sizes.index(found) > sizes.index(scale):
        raise InputError(f"expected a folder for the trial, but {path} holds the {found} scale; pass another --out")


class Fields:
    """The fields of a JSON object, each checked as it is taken."""

    def __init__(self, plain: Any, where: str) -> None:
        if not isinstance(plain, Mapping):
            raise InputError(f"expected {where} to be an object, but got {shown(plain)}; run it again")
        self.plain, self.where = plain, where

    def get(self, name: str, kind: type, default: Any = ...) -> Any:
        """The field; `...` as the default asks for it, and None in the record stands for any other default."""
        value = self.plain.get(name)
        if value is None and default is not ...:
            return default
        if name not in self.plain:
            raise InputError(f"expected {self.where} to hold {name!r}, but it does not; run it again")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InputError(
                f"expected {name!r} of {self.where} to be of type {kind.__name__}, but got {shown(value)}; run it again"
            )
        return value

    def number(self, name: str) -> float | None:
        """A number, or None."""
        return _number(self.plain.get(name), f"{name!r} of {self.where}")


def _number(value: Any, what: str) -> float | None:
    if value is None or (is_number(value) and is_finite(value)):
        return None if value is None else float(value)
    raise InputError(f"expected {what} to be a number, but got {shown(value)}; run it again")


def _place(cell: Fields) -> Place:
    printed = cell.get("published", dict, None)
    return Place(
        cell.get("row", str),
        cell.get("column", str),
        None if printed is None else _printed(shaped(f"a printed number of {cell.where}", printed, _PRINTED)),
        [_run(Fields(run, cell.where)) for run in cell.get("runs", list)],
    )


_PRINTED = {"mean": float, "half": (float, None), "n": (int, None)}


def _printed(plain: JSON) -> Printed:
    return Printed(plain["mean"], plain["half"], plain["n"])


def _run(run: Fields) -> Run:
    metrics = {name: _number(value, f"{name!r} of {run.where}") for name, value in run.get("metrics", dict).items()}
    return Run(
        run.get("seed", int), metrics, run.get("id", str, ""), run.get("status", str, "done"), run.number("seconds")
    )


def _series(one: Fields) -> Series:
    x = [
        place if isinstance(place, str) else _number(place, f"x of {one.where}") or 0.0 for place in one.get("x", list)
    ]
    y = [values if isinstance(values, list) else [values] for values in one.get("y", list)]
    shaped(f"y of {one.where}", y, [[(float, None)]])
    if len(y) != len(x):
        raise InputError(f"expected as many y as x in {one.where}, but got {len(x)} values of x and {len(y)} of y")
    name, panel, over = one.get("name", str), one.get("panel", str, ""), one.get("over", str, None)
    printed = shaped(f"the printed numbers of {one.where}", one.get("published", list, []), [(float, None)])
    return Series(name, x, y, printed, panel, over)


def _claim(one: Fields) -> Claim:
    last = one.get("last", dict, None)
    return Claim(
        where=one.get("where", str),
        statement=one.get("statement", str),
        verdict=one.get("verdict", str),
        gain=one.get("gain", dict, None),
        published=one.number("published"),
        p_holm=one.number("p_holm"),
        p_reverse_holm=one.number("p_reverse_holm"),
        note=one.get("note", str, ""),
        ours=one.get("ours", str, ""),
        rule=one.get("rule", str, ""),
        published_p=one.get("published_p", str, ""),
        last=None if last is None else _claim(Fields(last, one.where)),
    )


def _claim_to_dict(claim: Claim) -> dict[str, Any]:
    plain = _less(asdict(claim), ours="", rule="", published_p="", last=None)
    return {**plain, "last": _claim_to_dict(claim.last)} if claim.last is not None else plain


def _less(plain: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """The fields but for some that have nothing to say."""
    return {key: value for key, value in plain.items() if key not in defaults or value != defaults[key]}
