"""From the records of a suite's runs to the suite's own record: cells, claims, curves. No run is made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rcad.errors import InputError
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.run import evaluate
from rcad.evaluate.saved_run.settings import Settings
from rcad.paper.benchmarks import Scale
from rcad.paper.grid import Plan
from rcad.paper.sides import Seeds, Side
from rcad.paper.suite import Column, Curve
from rcad.paper.verdicts import verdicts
from rcad.runs.plain import config_id
from rcad.runs.record import FINISHED, RunRecord, versions

ALWAYS = ("accuracy", "nll", "brier", "ece")
"""Shown side by side for every run."""
CALIBRATION = "calibration"
Say = Callable[[str, int, int], None]

SMOKE_EXAMPLES, SMOKE_SEVERITIES = 40, (1, 5)
LABELS = {
    "smoke": "A trial on tiny data that shows that the machinery works: its numbers mean nothing.",
    "small": "Small scale: fewer epochs and at most 10,000 images, so not the paper's protocol. Differences between "
    "methods may be seen; the published numbers are not comparable.",
}
IN_BF16 = "Trained with products in bf16 (weights, sums and BatchNorm in fp32), where the paper's program used fp32."


def settings(evaluation: str, scale: Scale) -> Settings:
    """How runs are evaluated: as the paper does, on all test images; a trial looks at a few."""
    limit = SMOKE_EXAMPLES if scale == "smoke" else 0
    if evaluation == "attacks":
        return Settings(limit=limit, attack_eps=(0.05,), attacks=("fgsm",), masking=False)
    if evaluation == "corruptions" and scale == "smoke":
        return Settings(limit=limit, severities=SMOKE_SEVERITIES)
    return Settings(limit=0)


def collect(planned: Plan, shelf: RunLoader, say: Say) -> dict[str, Any]:
    """The suite's record; cells whose runs are not there have fewer of them."""
    suite = planned.suite
    numbers = _numbers(planned, shelf, say)
    cells, values, unmeasured = _cells(planned, numbers)
    notes = [*suite.notes, *planned.missing, *numbers.notes]
    full = planned.scale == "full"
    if planned.skipped:
        notes.append(f"Not asked for: {'; '.join(planned.skipped)}.")
    if planned.precision == "bf16":
        notes.append(IN_BF16)
    if not full:
        notes.insert(0, LABELS[planned.scale])
    record: dict[str, Any] = {
        "target": suite.name,
        "title": suite.title,
        "about": suite.about,
        "scale": planned.scale,
        "protocol": planned.views,
        "metric": suite.metric,
        "higher_is_better": suite.higher_is_better,
        "unit": suite.unit,
        "rows": list(suite.rows),
        "columns": [column.name for column in suite.columns],
        "controls": list(suite.controls),
        "cells": cells,
        "claims": verdicts(
            suite,
            values,
            unmeasured,
            said="small scale" if planned.scale == "small" else "",
            trial=planned.scale == "smoke",
        ),
        "rule": suite.rule,
        "notes": notes,
        "versions": {**versions(("rcad", "torch", "numpy", "scipy")), **numbers.versions},
        "seconds": round(sum(one["seconds"] for one in numbers.runs.values()), 1),
        "settings": {
            "seeds": list(planned.seeds),
            "precision": planned.precision,
            "columns": {name: suite.column(name).benchmark.words(planned.scale) for name in planned.columns},
            "metrics": {column.name: column.metric for column in suite.columns},
        },
    }
    if suite.curves:
        record["series"] = [_series(curve, planned, values) for curve in suite.curves]
    return record


class _Numbers:
    """The runs' numbers by id, what could not be had, and the versions that trained them, where that was elsewhere."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []
        self.versions: dict[str, str] = {}


def _numbers(planned: Plan, shelf: RunLoader, say: Say) -> _Numbers:
    wanted: dict[str, set[str]] = {}
    for one in planned.runs:
        extra = planned.suite.column(one.column).evaluation
        wanted.setdefault(config_id(one.config), {CALIBRATION}).update({extra} if extra else ())
    found = _Numbers()
    reasons: dict[str, int] = {}
    configs = planned.configs()
    for number, (run, evaluations) in enumerate(wanted.items(), 1):
        say("evaluating the runs", number, len(wanted))
        if shelf.store.status(configs[run]) not in FINISHED:
            continue
        record = shelf.store.get(run)
        metrics = _of_record(record)
        found.versions |= record.versions
        for evaluation in sorted(evaluations) if record.status == "done" else ():
            try:
                outcome = evaluate(shelf, run, (evaluation,), settings(evaluation, planned.scale))
            except InputError as error:
                reasons[str(error).replace(run, "ID")] = reasons.get(str(error).replace(run, "ID"), 0) + 1
                continue
            if evaluation in outcome.evaluations:
                metrics = {**outcome.evaluations[evaluation].known(), **metrics}
        found.runs[run] = {
            "id": run,
            "seed": record.config.seed,
            "status": record.status,
            "metrics": {**dict.fromkeys(ALWAYS), **metrics},
            "seconds": round(sum(value or 0.0 for value in record.timings.values()), 3),
        }
    found.notes = [f"Not evaluated, {count} times: {reason}" for reason, count in reasons.items()]
    return found


def _of_record(record: RunRecord) -> dict[str, float | None]:
    """On the test set: the chosen epoch's, and as `last_` those of the last, which nothing has chosen."""
    found = record.metrics.items()
    return {name.removeprefix("test_"): value for name, value in found if name.startswith(("test_", "last_"))}


def _cells(planned: Plan, numbers: _Numbers) -> tuple[list[Any], dict[Side, Seeds], frozenset[Side]]:
    """The cells for the record, the number that each shows by seed, and the cells that could not be measured."""
    suite = planned.suite
    runs: dict[Side, list[dict[str, Any]]] = {}
    for one in planned.runs:
        run = numbers.runs.get(config_id(one.config))
        if run is not None:
            column = suite.column(one.column)
            runs.setdefault((one.row, one.column), []).append({**run, "metrics": _shown(run["metrics"], column)})
    cells = []
    for column in suite.columns:
        for row in column.rows or suite.rows:
            printed, own = suite.printed(row, column.name), runs.get((row, column.name), [])
            if printed is not None or own:
                published = None if printed is None else printed._asdict()
                cells.append({"row": row, "column": column.name, "published": published, "runs": own})
    values: dict[Side, Seeds] = {
        side: {run["seed"]: run["metrics"].get(suite.column(side[1]).metric) for run in own}
        for side, own in runs.items()
    }
    unmeasured = frozenset(
        side
        for side, own in runs.items()
        if any(run["status"] == "done" and values[side][run["seed"]] is None for run in own)
    )
    return cells, values, unmeasured


def _shown(metrics: Mapping[str, Any], column: Column) -> dict[str, Any]:
    """What a reader is shown, and the number of the column; an evaluation has dozens."""
    names = dict.fromkeys((column.metric, *ALWAYS, "top5"))
    return {name: metrics[name] for name in names if name in metrics}


def _series(curve: Curve, planned: Plan, values: Mapping[Side, Seeds]) -> dict[str, Any]:
    """A curve's numbers seed by seed; an empty list where a column was not run."""
    suite = planned.suite
    points: list[list[float]] = []
    printed: list[float | None] = []
    for column in curve.columns:
        own = values.get((curve.row, column), {})
        base = values.get((curve.over, column), {}) if curve.over else dict.fromkeys(own, 0.0)
        pairs = [(value, base.get(seed)) for seed, value in own.items()]
        points.append([a - b for a, b in pairs if a is not None and b is not None])
        mine, reference = suite.printed(curve.row, column), suite.printed(curve.over or "", column)
        if mine is None or (curve.over and reference is None):
            printed.append(None)
        else:
            printed.append(round(mine.mean - (reference.mean if reference else 0.0), 10))
    return {
        "name": curve.name,
        "panel": curve.panel,
        "over": curve.over,
        "x": list(curve.x),
        "y": points,
        "published": printed,
    }
