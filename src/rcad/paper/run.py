"""A table or figure from its name to its files: plan, compute what is left, judge, write the record and its page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rcad.errors import InputError, MissingExtraError
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.paper import record as records
from rcad.paper.benchmarks import Scale
from rcad.paper.collect import collect
from rcad.paper.record import JSON, OnProgress, Study
from rcad.paper.suite import Order, Plan, plan
from rcad.paper.tables import SUITES
from rcad.paper.targets import TARGETS
from rcad.paper.tuned import Search
from rcad.runs.files import make_folder, ready_folder, write_text
from rcad.runs.record import FINISHED, versions
from rcad.runs.store import Store
from rcad.train.machine import pick_device
from rcad.train.place import Place
from rcad.train.progress import Progress
from rcad.train.scheduler import Outcome as Scheduled
from rcad.train.scheduler import schedule
from rcad.train.trackers import track_study


@dataclass(frozen=True)
class Outcome:
    """What was made: the files, whether the numbers were there already, and a line on what was found."""

    files: list[Path]
    reused: bool
    line: str
    note: str = ""


def write_study(study: Study, path: Path, command: str, *, track: Sequence[str] = ()) -> tuple[list[Path], str]:
    """The record, its page beside it and the first picture; returns the files, and a note where there is no picture."""
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
    sides = zip(("claims", "checks"), study.tally, strict=True)
    counts = Counter(f"{side}/{verdict}" for side, verdicts in sides for verdict in verdicts)
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
    module, target = import_module(f"rcad.paper.{STUDIES[name]}"), TARGETS[name]
    path = out / target.folder / f"{target.stem}.json"
    settings = module.SCALES[scale]
    study, reused = compute(
        path, scale, settings.to_dict(), lambda: module.run(settings, data_dir, on_progress), again=again
    )
    study = module.judge(study)
    files, note = write_study(study, path, f"rcad paper run {name} --scale {scale}", track=track)
    return Outcome(files, reused, str(study.tally), note)


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
    on_cpu = order.executor is None and pick_device(order.device).type == "cpu"
    if order.precision == "bf16" and on_cpu and not planned.requested().complete(store):
        raise InputError("expected a GPU for --precision bf16, but got the CPU; use fp32")
    if order.joined > 1 and (order.workers == 1 or on_cpu):
        on_warning("--join: only for runs that share a GPU")
    started, reused = time.monotonic(), True
    details: dict[str, Any] = {}
    for planned, added in stages(order, store):
        details |= added
        requested = planned.requested()
        reused = reused and requested.complete(store)
        minutes = order.minutes
        if minutes is not None:
            minutes = max(minutes - (time.monotonic() - started) / 60, min(minutes, 1 / 60))
        configs, workers = [*requested.configs().values()], order.workers
        runs = schedule(configs, place, progress, at_once=workers, processes=workers, minutes=minutes, notes=False)
        if not runs.complete:
            return runs
    shelf = RunLoader(store, order.data_dir, order.cache_dir, order.device)
    study = collect(planned, shelf, progress.detail)
    study = replace(study, details={**study.details, **details})
    no_images = ""
    if order.name == "F1":
        from rcad.paper.perturbed_images import with_images

        study, no_images = with_images(study, planned, shelf)
    files, note = write_study(study, order.record, order.command(study), track=order.track)
    return Outcome(files, reused, str(study.tally), "; ".join(filter(None, (no_images, note))))


def plan_of(order: Order) -> Plan:
    """The runs of the table; of a tuned one those of its search."""
    return Search.of(order).tuning() if order.views == "tuned" else plan(order, SUITES[order.name])


def stages(order: Order, store: Store) -> Iterator[tuple[Plan, JSON]]:
    """What is run, in order, and what it adds to the record: a tuned table is planned when its search is done."""
    yield plan_of(order), {}
    if order.views == "tuned":
        search = Search.of(order)
        choices = search.choose(store)
        yield search.table(choices), {"search": {"design": search.design(), "choices": choices}}


def ahead(order: Order) -> list[tuple[Plan, int]]:
    """What is run next, with how many of its runs are done, up to what cannot be planned yet."""
    store, plans = Store(order.store, order.packs), []
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
