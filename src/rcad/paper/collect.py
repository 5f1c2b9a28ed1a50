"""From the records of a suite's runs to the suite's own record: cells, claims, curves. No run is made here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rcad.errors import InputError
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.run import evaluate
from rcad.evaluate.saved_run.settings import Settings
from rcad.paper.benchmarks import Scale, not_here
from rcad.paper.claims import IMAGE_RULE, Claim, Seeds, Side, judged
from rcad.paper.record import LAST, Place, Run, Say, Series, Study
from rcad.paper.suite import Column, Curve, Plan
from rcad.runs.plain import config_id
from rcad.runs.record import FINISHED, RunRecord, versions
from rcad.runs.words import plural

MEASURES = ("accuracy", "nll", "brier", "ece")
"""Shown and compared for every run, at the chosen epoch and at the last."""
SHOWN = (*MEASURES, *(f"{LAST}{name}" for name in MEASURES), "top5")
CALIBRATION = "calibration"

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


def collect(planned: Plan, shelf: RunLoader, say: Say) -> Study:
    """The suite's record; cells whose runs are not there have fewer of them."""
    suite = planned.suite
    runs, unevaluated, trained_with = _runs(planned, shelf, say)
    study = Study(
        target=suite.name,
        title=suite.title,
        about=suite.about,
        scale=planned.order.scale,
        protocol=planned.order.views,
        rows=suite.rows,
        columns=[column.name for column in suite.columns],
        controls=suite.controls,
        metrics={column.name: column.metric for column in suite.columns},
        places=_places(planned, runs),
        rule=IMAGE_RULE,
        notes=[
            *([LABELS[planned.order.scale]] if planned.order.scale in LABELS else []),
            *suite.notes,
            *unevaluated,
            *([IN_BF16] if planned.order.precision == "bf16" else []),
        ],
        not_run=[*_not_run(planned, shelf), *_gaps(planned, runs)],
        versions={**versions(("rcad", "torch", "numpy", "scipy")), **trained_with},
        seconds=round(sum(run.seconds or 0.0 for run in runs.values()), 1),
        settings={
            "seeds": list(planned.order.seeds),
            "precision": planned.order.precision,
            "columns": {name: _setting(planned, name) for name in planned.columns},
        },
    )
    return replace(
        study, claims=judged_twice(study, planned), series=[_series(curve, planned, study) for curve in suite.curves]
    )


def _setting(planned: Plan, column: str) -> str:
    """A column's data, network and schedule in words."""
    networks = dict.fromkeys(run.config.model.name for run in planned.runs if run.column == column)
    return planned.suite.column(column).benchmark.words(planned.order.scale, " or ".join(networks))


def _not_run(planned: Plan, shelf: RunLoader) -> list[str]:
    """Why columns have no run: their data are not here, or nobody asked for them."""
    benchmarks = {name: planned.suite.column(name).benchmark for name in planned.skipped}
    reasons = {name: not_here(one, planned.order.scale, shelf.data_dir) for name, one in benchmarks.items()}
    unasked = [name for name, reason in reasons.items() if reason is None]
    return list(
        dict.fromkeys(
            [
                *planned.missing,
                *(reason for reason in reasons.values() if reason is not None),
                *([f"Not asked for: {'; '.join(unasked)}."] if unasked else []),
            ]
        )
    )


def _gaps(planned: Plan, runs: Mapping[str, Run]) -> list[str]:
    """Which cells lack runs, because other rows were asked for."""
    counts: dict[Side, list[bool]] = {}
    for one in planned.runs:
        counts.setdefault((one.row, one.column), []).append(config_id(one.config) in runs)
    found = [f"{column}: {row}, {sum(n)} of {len(n)} runs" for (row, column), n in counts.items() if not all(n)]
    return [f"Not complete: {'; '.join(found)}."] if found else []


def judged_twice(study: Study, planned: Plan) -> list[Claim]:
    """Every claim at the chosen epoch and, where the runs know it, at the last."""
    suite = planned.suite
    values = study.cells()
    unmeasured = frozenset(
        side
        for side, place in study.places.items()
        if any(not run.diverged and run.metrics.get(study.metric_of(side[1])) is None for run in place.runs)
    )
    more: dict[str, Any] = {
        "remark": "small scale" if planned.order.scale == "small" else "",
        "trial": planned.order.scale == "smoke",
    }
    found = judged(suite.claims, values, not_measured=unmeasured, **more)
    last: dict[Side, Seeds] = {
        side: known
        for side, place in study.places.items()
        if (known := place.by_seed(f"{LAST}{study.metric_of(side[1])}"))
    }
    again = [one for one in suite.claims if one.winner in last and one.loser in last]
    at_last = dict(zip(again, judged(again, last, **more), strict=True))
    measured = {side: seeds for side, seeds in values.items() if side not in unmeasured}
    return [
        *(replace(claim, last=at_last.get(one)) for one, claim in zip(suite.claims, found, strict=True)),
        *(one.judge(measured, **more) for one in suite.summaries),
    ]


def _runs(planned: Plan, shelf: RunLoader, say: Say) -> tuple[dict[str, Run], list[str], dict[str, str]]:
    """The finished runs by id with all their numbers, what could not be evaluated, and the versions that trained."""
    wanted: dict[str, set[str]] = {}
    for one in planned.runs:
        extra = planned.suite.column(one.column).evaluation
        wanted.setdefault(config_id(one.config), {CALIBRATION}).update({extra} if extra else ())
    found: dict[str, Run] = {}
    reasons: dict[str, int] = {}
    trained_with: dict[str, str] = {}
    configs = planned.configs()
    for number, (run, evaluations) in enumerate(wanted.items(), 1):
        say("evaluating the runs", number, len(wanted))
        if shelf.store.status(configs[run]) not in FINISHED:
            continue
        record = shelf.store.get(run)
        metrics = _of_record(record)
        trained_with |= record.versions
        if metrics.keys() >= {"ece", "top5"}:
            evaluations.discard(CALIBRATION)  # the record says all that is shown of it
        for evaluation in sorted(evaluations) if record.status == "done" else ():
            try:
                outcome = evaluate(shelf, run, (evaluation,), settings(evaluation, planned.order.scale))
            except InputError as error:
                reason = str(error).replace(run, "ID")
                reasons[reason] = reasons.get(reason, 0) + 1
                continue
            if evaluation in outcome.evaluations:
                metrics = {**outcome.evaluations[evaluation].known(), **metrics}
        seconds = round(sum(value or 0.0 for value in record.timings.values()), 3)
        found[run] = Run(record.config.seed, {**dict.fromkeys(MEASURES), **metrics}, run, str(record.status), seconds)
    return found, [f"{plural(count, 'run')} not evaluated: {reason}" for reason, count in reasons.items()], trained_with


def _of_record(record: RunRecord) -> dict[str, float | None]:
    """On the test set: the chosen epoch's, and as `last_` those of the last, which nothing has chosen."""
    found = record.metrics.items()
    return {name.removeprefix("test_"): value for name, value in found if name.startswith(("test_", LAST))}


def _places(planned: Plan, runs: Mapping[str, Run]) -> dict[Side, Place]:
    suite = planned.suite
    own: dict[Side, list[Run]] = {}
    for one in planned.runs:
        run = runs.get(config_id(one.config))
        if run is not None:
            shown = _shown(run.metrics, suite.column(one.column))
            own.setdefault((one.row, one.column), []).append(replace(run, metrics=shown))
    return {
        (row, column.name): Place(row, column.name, printed, found)
        for column in suite.columns
        for row in column.rows or suite.rows
        for printed, found in [(suite.printed(row, column.name), own.get((row, column.name), []))]
        if printed is not None or found
    }


def _shown(metrics: Mapping[str, float | None], column: Column) -> dict[str, float | None]:
    """What a reader is shown, and the number of the column; an evaluation has dozens."""
    return {
        name: metrics[name]
        for name in dict.fromkeys((column.metric, f"{LAST}{column.metric}", *SHOWN))
        if name in metrics
    }


def _series(curve: Curve, planned: Plan, study: Study) -> Series:
    """A curve's numbers seed by seed; an empty list where a column was not run."""
    suite, values = planned.suite, study.cells()
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
    return Series(curve.name, curve.x, points, printed, curve.panel, curve.over)
