"""A table or figure from its name to its files: plan, compute what is left, judge, write the record and its page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rcad.errors import InputError, MissingExtraError, without_advice
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.run import evaluate
from rcad.evaluate.saved_run.settings import Settings
from rcad.paper import record as records
from rcad.paper.benchmarks import Scale, missing
from rcad.paper.claims import IMAGE_RULE, Claim, Side, judge_all
from rcad.paper.record import JSON, LAST, MEASURED, OnProgress, Run, Series, Study
from rcad.paper.suite import Curve, Order, Plan, plan
from rcad.paper.tables import SUITES
from rcad.paper.targets import NOTES, TARGETS
from rcad.paper.tuned import Search
from rcad.runs.files import make_folder, ready_folder, write_text
from rcad.runs.plain import config_id
from rcad.runs.record import FINISHED, versions
from rcad.runs.store import Store
from rcad.runs.words import plural
from rcad.train.machine import pick_device
from rcad.train.place import Place
from rcad.train.progress import Progress
from rcad.train.scheduler import Outcome as Scheduled
from rcad.train.scheduler import schedule
from rcad.train.trackers import track_study

SHOWN = (*MEASURED, *(f"{LAST}{name}" for name in MEASURED), "top5")
CALIBRATION = "calibration"

SMOKE_EXAMPLES, SMOKE_SEVERITIES = 40, (1, 5)


def settings(evaluation: str, scale: Scale) -> Settings:
    """How runs are evaluated: as the paper does, on all test images; a trial looks at a few."""
    limit = SMOKE_EXAMPLES if scale == "smoke" else 0
    if evaluation == "attacks":
        return Settings(limit=limit, attack_eps=(0.05,), attacks=("fgsm",), masking=False)
    if evaluation == "corruptions" and scale == "smoke":
        return Settings(limit=limit, severities=SMOKE_SEVERITIES)
    return Settings(limit=0)


def collect(planned: Plan, shelf: RunLoader, on_progress: OnProgress) -> Study:
    """The suite's record; cells whose runs are not there have fewer of them."""
    suite, scale, precision = planned.suite, planned.order.scale, planned.order.precision
    target = TARGETS[suite.name]
    closing = NOTES.get(planned.order.model or ""), NOTES.get(precision)
    runs, unevaluated, trained_with = _runs(planned, shelf, on_progress)
    networks: dict[str, dict[str, None]] = {}
    for run in planned.runs:
        networks.setdefault(run.column, {})[run.config.model.name] = None
    columns = {name: suite.column(name).benchmark.words(scale, " or ".join(some)) for name, some in networks.items()}
    study = Study(
        target=suite.name,
        title=suite.title,
        about=target.shows,
        scale=scale,
        protocol=planned.order.views,
        rows=suite.rows,
        columns=[column.name for column in suite.columns],
        controls=suite.controls,
        metrics={column.name: column.metric for column in suite.columns},
        places=_places(planned, runs),
        rule=IMAGE_RULE,
        notes=[note for note in (NOTES.get(scale), *target.notes, *unevaluated, *closing) if note],
        not_run=_not_run(planned, shelf, runs),
        versions={**versions(("rcad", "torch", "numpy", "scipy")), **trained_with},
        seconds=round(sum(run.seconds or 0.0 for run in runs.values()), 1),
        settings={"seeds": list(planned.order.seeds), "precision": precision, "columns": columns},
    )
    series = [_series(curve, planned, study) for curve in suite.curves]
    return replace(study, claims=judge_twice(study, planned), series=series)


def _not_run(planned: Plan, shelf: RunLoader, runs: Mapping[str, Run]) -> list[str]:
    """Why columns have no run, and which cells lack some: no data, or nobody asked for them."""
    scale, skipped = planned.order.scale, {name: planned.suite.column(name).benchmark for name in planned.skipped}
    reasons = {name: missing(data, scale, shelf.data_dir, count=False) for name, data in skipped.items()}
    unasked = "; ".join(name for name, reason in reasons.items() if reason is None)
    done = {cell: [config_id(run.config) in runs for run in own] for cell, own in planned.cells().items()}
    gaps = "; ".join(f"{column}: {row}, {sum(n)} of {len(n)} runs" for (row, column), n in done.items() if not all(n))
    sentences = dict.fromkeys([*planned.missing, *(reason for reason in reasons.values() if reason is not None)])
    last = {"Not asked for": unasked, "Not complete": gaps}
    return [*sentences, *(f"{words}: {names}." for words, names in last.items() if names)]


def judge_twice(study: Study, planned: Plan) -> list[Claim]:
    """Every claim at the chosen epoch and, where the runs know it, at the last."""
    suite, scale = planned.suite, planned.order.scale
    values = study.cells()
    unmeasured = frozenset(
        side
        for side, place in study.places.items()
        if any(not run.diverged and run.metrics.get(study.metric_of(side[1])) is None for run in place.runs)
    )
    options: dict[str, Any] = {"remark": "small scale" if scale == "small" else "", "trial": scale == "smoke"}
    at_chosen = judge_all(suite.claims, values, not_measured=unmeasured, **options)
    last = study.cells(LAST)
    again = [claim for claim in suite.claims if claim.winner in last and claim.loser in last]
    at_last = dict(zip(again, judge_all(again, last, **options), strict=True))
    measured = {side: seeds for side, seeds in values.items() if side not in unmeasured}
    return [
        *(replace(claim, last=at_last.get(plan)) for plan, claim in zip(suite.claims, at_chosen, strict=True)),
        *(summary.judge(measured, **options) for summary in suite.summaries),
    ]


def _runs(planned: Plan, shelf: RunLoader, on_progress: OnProgress) -> tuple[dict[str, Run], list[str], dict[str, str]]:
    """The finished runs by id with all their numbers, what could not be evaluated, and the versions that trained."""
    evaluations: dict[str, set[str]] = {}
    for run in planned.runs:
        extra = planned.suite.column(run.column).evaluation
        evaluations.setdefault(config_id(run.config), {CALIBRATION}).update({extra} if extra else ())
    runs: dict[str, Run] = {}
    reasons: Counter[str] = Counter()
    trained_with: dict[str, str] = {}
    for number, (id_, config) in enumerate(planned.configs().items(), 1):
        on_progress("evaluating the runs", number, len(evaluations))
        if shelf.store.status(config) not in FINISHED:
            continue
        record = shelf.store.get(id_)
        # On the test set: the chosen epoch's, and as `last_` those of the last, which nothing has chosen.
        tested = {name: value for name, value in record.metrics.items() if name.startswith(("test_", LAST))}
        metrics = {name.removeprefix("test_"): value for name, value in tested.items()}
        trained_with |= record.versions
        if metrics.keys() >= {"ece", "top5"}:
            evaluations[id_].discard(CALIBRATION)  # the record says all that is shown of it
        for evaluation in sorted(evaluations[id_]) if record.status == "done" else ():
            try:
                outcome = evaluate(shelf, id_, (evaluation,), settings(evaluation, planned.order.scale))
            except InputError as error:
                reason = without_advice(str(error).replace(id_, "ID"))
                reasons[reason.removeprefix(f"expected the {evaluation} of run ID, but ")] += 1
                continue
            if evaluation in outcome.evaluations:
                metrics = {**outcome.evaluations[evaluation].finite_numbers(), **metrics}
        seconds = round(sum(value or 0.0 for value in record.timings.values()), 3)
        runs[id_] = Run(config.seed, {**dict.fromkeys(MEASURED), **metrics}, id_, str(record.status), seconds)
    return runs, [f"{plural(count, 'run')} not evaluated: {reason}" for reason, count in reasons.items()], trained_with


def _places(planned: Plan, runs: Mapping[str, Run]) -> dict[Side, records.Place]:
    suite, cells = planned.suite, planned.cells()
    places = {}
    for column in suite.columns:
        # What a reader is shown, and the number of the column; an evaluation has dozens.
        names = dict.fromkeys((column.metric, f"{LAST}{column.metric}", *SHOWN))
        for row in suite.rows_of(column):
            ids = [config_id(run.config) for run in cells.get((row, column.name), ())]
            done = [runs[id_] for id_ in ids if id_ in runs]
            own = [
                replace(run, metrics={name: run.metrics[name] for name in names if name in run.metrics}) for run in done
            ]
            printed = suite.printed(row, column.name)
            if printed is not None or own:
                places[row, column.name] = records.Place(row, column.name, printed, own)
    return places


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


@dataclass(frozen=True)
class Outcome:
    """What was made: the files, whether the numbers were there already, and a line on what was found."""

    files: list[Path]
    reused: bool
    line: str
    note: str = ""


def write_study(study: Study, path: Path, command: str, *, track: Sequence[str] = ()) -> tuple[list[Path], str]:
    """The record, and beside it its page and pictures; returns the files, and a note where there is no picture."""
    from rcad.paper.report.chapters import page
    from rcad.report import drawing, markdown

    study.write(path)
    study, note = replace(study, path=path), ""
    try:
        document = page(study, command, path.stem)
        pictures = drawing.save(document.figures, path.parent)
    except MissingExtraError as error:
        document, pictures, note = page(study, command, path.stem, picture=False), [], f"no picture: {error}"
    write_text(path.with_suffix(".md"), markdown.markdown(document, figures=""))
    files = [path, path.with_suffix(".md"), *pictures]
    counts = Counter(f"{side}/{verdict}" for side, verdicts in study.tally.items() for verdict in verdicts)
    about = {"target": study.target, "scale": study.scale, "command": command}
    track_study(track, "paper", f"{study.target} {study.scale}", path.parent, about, counts, files)
    return files, note


STUDIES = {"T7": "uci", "T8": "moons", "F5": "theory.study", "F7": "boundaries"}
"""The modules of what is computed as a whole: settings by scale (SCALES), `run` and `judge`."""


def make_study(
    name: str,
    scale: Scale,
    out: Path,
    data_dir: Path | None,
    on_progress: OnProgress,
    *,
    again: bool = False,
    track: Sequence[str] = (),
) -> Outcome:
    """Make one of the studies; its record is used again where its settings are the same, unless `again`."""
    module, path, settings = _study_of(name, scale, out)
    study, reused = compute(
        path, scale, settings.to_dict(), lambda: module.run(settings, data_dir, on_progress), again=again
    )
    study = module.judge(study)
    files, note = write_study(study, path, f"rcad paper run {name} --scale {scale}", track=track)
    return Outcome(files, reused, study.findings, note)


def check_study(name: str, scale: Scale, out: Path, data_dir: Path | None, *, again: bool = False) -> None:
    """Raises if `make_study` could not begin."""
    module, path, settings = _study_of(name, scale, out)
    records.refuse_to_replace_larger(path, scale)
    if TARGETS[name].data and (again or records.finished(path, settings.to_dict(), scale) is None):
        for data in settings.datasets:
            module.read(data, data_dir)


def _study_of(name: str, scale: Scale, out: Path) -> tuple[Any, Path, Any]:
    """The module of a study, its record, and its settings at a scale."""
    module, target = import_module(f"rcad.paper.{STUDIES[name]}"), TARGETS[name]
    return module, out / target.folder / f"{target.stem}.json", module.SCALES[scale]


def compute(
    path: Path, scale: str, settings: JSON, run: Callable[[], Study], *, again: bool = False
) -> tuple[Study, bool]:
    """The study at `path` if it was made with these settings, else a new one; and whether it was there."""
    records.refuse_to_replace_larger(path, scale)
    study = None if again else records.finished(path, settings, scale)
    if study is not None:
        return study, True
    ready_folder(path.parent)
    started = time.perf_counter()
    study = replace(run(), scale=scale, versions=versions(("rcad", "torch", "numpy", "scipy")))
    study = replace(study, seconds=round(time.perf_counter() - started, 1))
    return Study.parse(study.to_dict(), path), False  # judged by the numbers that are kept


def make_suite(order: Order, progress: Progress, on_warning: Callable[[str], None]) -> Outcome | Scheduled:
    """The suite's files; what became of the runs where some are left. Starting again makes only those.

    Args:
        on_warning: told of each data set that is missing, and of options without effect, before any run.
    """
    records.refuse_to_replace_larger(order.record, order.scale)
    planned = plan_of(order)
    for sentence in planned.missing:
        on_warning(sentence)
    make_folder(order.record.parent)
    store = Store.open(order.store, packs=order.packs)
    where = {"joined": order.joined, "devices": order.devices, "track": order.track, "executor": order.executor}
    place = Place(store, order.data_dir, order.cache_dir, order.device, **where)  # type: ignore[arg-type]
    on_cpu = uses_cpu(order, planned, store)
    if order.joined > 1 and (order.workers == 1 or on_cpu):
        on_warning("--join: only for runs that share a GPU")
    started, reused = time.monotonic(), True
    details: dict[str, Any] = {}
    for planned, added in stages(order, store):
        details |= added
        requested = planned.requested()
        reused = reused and requested.complete(store)
        if order.finished:
            continue
        minutes = order.minutes
        if minutes is not None:
            minutes = max(minutes - (time.monotonic() - started) / 60, min(minutes, 1 / 60))
        configs, workers = [*requested.configs().values()], order.workers
        runs = schedule(configs, place, progress, at_once=workers, processes=workers, minutes=minutes, notes=False)
        if not runs.complete:
            return runs
    if not planned.done(store):
        raise InputError(f"expected finished runs of {order.name}, but there are none; leave out --finished to train")
    shelf = RunLoader(store, order.data_dir, order.cache_dir, order.device)
    study = collect(planned, shelf, progress.detail)
    study = replace(study, details={**study.details, **details})
    no_images = ""
    if order.name == "F1":
        from rcad.paper.perturbed_images import with_images

        study, no_images = with_images(study, planned, shelf)
    files, note = write_study(study, order.record, order.command(study), track=order.track)
    return Outcome(files, reused, study.findings, "; ".join(filter(None, (no_images, note))))


def plan_of(order: Order) -> Plan:
    """The runs of the table; of a tuned one those of its search."""
    return Search.of(order).tuning() if order.views == "tuned" else plan(order, SUITES[order.name])


def stages(order: Order, store: Store) -> Iterator[tuple[Plan, JSON]]:
    """What is run, in order, and what it adds to the record: a tuned table is planned when its search is done."""
    yield plan_of(order), {}
    if order.views == "tuned":
        search = Search.of(order).refined(store)
        if search.decays:
            yield search.tuning(), {}
        choices = search.choose(store)
        yield search.table(choices), {"search": {"design": search.design(), "choices": choices}}


def uses_cpu(order: Order, planned: Plan, store: Store) -> bool:
    """Whether the runs are made on a CPU; raises if this machine lacks the device, or a GPU for the precision."""
    on_cpu = order.executor is None and pick_device(order.device).type == "cpu"
    trains = not (order.finished or planned.requested().complete(store))
    if order.precision == "bf16" and on_cpu and trains:
        raise InputError("expected a GPU for --precision bf16, but got the CPU; use fp32")
    return on_cpu


def ahead(order: Order) -> list[tuple[Plan, int]]:
    """What is run next, with how many of its runs are done, up to what cannot be planned yet; raises as a run would."""
    store, plans = Store(order.store, order.packs), []
    uses_cpu(order, plan_of(order), store)
    for planned, _ in stages(order, store):
        requested = planned.requested()
        plans.append((requested, requested.done(store)))
        if not requested.complete(store):
            break
    return plans


def standing(order: Order) -> tuple[list[tuple[str, str, int, int]], tuple[str, ...]]:
    """(row, column, runs done, runs planned) of every cell for which there are data; and which data are missing."""
    planned, store = plan_of(order).requested(), Store(order.store, order.packs)
    done = {cell: [store.status(run.config) in FINISHED for run in runs] for cell, runs in planned.cells().items()}
    return [(row, column, sum(own), len(own)) for (row, column), own in done.items()], planned.missing
