"""A table or figure from its name to its files: plan, compute what is left, judge, write the record and its page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rcad.errors import InputError, MissingExtraError, one_of
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.paper import record as records
from rcad.paper.benchmarks import Scale, Views
from rcad.paper.collect import collect
from rcad.paper.record import JSON, Say, Study
from rcad.paper.suite import Plan, Precision, Suite, plan
from rcad.paper.tables import SUITES
from rcad.paper.targets import TARGETS
from rcad.paper.tuned import Search, tuned_suite
from rcad.runs.files import make_folder, ready_folder, write_text
from rcad.runs.pack import packs_in
from rcad.runs.record import FINISHED, versions
from rcad.runs.store import Store
from rcad.train.machine import pick_device
from rcad.train.place import Executor, Place
from rcad.train.progress import Progress
from rcad.train.scheduler import Outcome as Scheduled
from rcad.train.scheduler import schedule
from rcad.train.trackers import track_study

RUNS = "runs"
TUNED = ("T1", "T2", "T4")
"""Tables that have a tuned protocol."""
PACKS = "images"
"""The folder of packed runs, which every suite takes as done."""


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
    verdicts = Counter(f"{side}/{verdict}" for side, found in sides for verdict in found)
    about = {"target": study.target, "scale": study.scale, "command": command}
    track_study(track, "paper", f"{study.target} {study.scale}", path.parent, about, verdicts, files)
    return files, note


STUDIES = {"T7": "uci", "T8": "moons", "F5": "theory.study", "F7": "boundaries"}
"""The modules of what is computed as a whole: settings by scale (SCALES), `run` and `judge`."""


def make_study(
    name: str,
    scale: Scale,
    out: Path,
    data_dir: Path | None,
    say: Say,
    *,
    again: bool = False,
    track: Sequence[str] = (),
) -> Outcome:
    """Make one of the studies; its record is used again where its settings are the same, unless `again`."""
    module, target = import_module(f"rcad.paper.{STUDIES[name]}"), TARGETS[name]
    path = out / target.folder / f"{target.stem}.json"
    settings = module.SCALES[scale]
    study, reused = computed(path, scale, settings.to_dict(), lambda: module.run(settings, data_dir, say), again=again)
    study = module.judge(study)
    files, note = write_study(study, path, f"rcad paper run {name} --scale {scale}", track=track)
    return Outcome(files, reused, str(study.tally), note)


def computed(
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


@dataclass(frozen=True)
class Order:
    """The suite that is wanted, and where.

    Args:
        views: one view or two in every method's clean loss.
        only: columns, or data sets; empty for all.
        rows: those whose runs are made; empty for all.
        runs: the folder of runs; None for one beside the suite's record. Suites that share runs may share a folder.
        workers: processes on the CPU, or runs at once on a GPU; None for what pays.
        precision: of the products in training.
        joined: how many runs that differ in their seed alone are trained as one network on a GPU.
        minutes: the time limit for the runs.
        model: another network than the paper's, of the tuned protocol.
        weights: a file that T5's runs start from, instead of those that timm fetches.
        track: experiment trackers that are told of the runs and of the table.
    """

    name: str
    scale: Scale
    views: Views
    seeds: Sequence[int]
    out: Path
    only: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    runs: Path | None = None
    data_dir: Path | None = None
    cache_dir: Path | None = None
    device: str = "auto"
    devices: tuple[str, ...] = ()
    executor: Executor | None = None
    workers: int | None = None
    precision: Precision = "fp32"
    joined: int = 1
    minutes: float | None = None
    model: str | None = None
    weights: str | None = None
    track: tuple[str, ...] = ()

    @property
    def record(self) -> Path:
        """The suite's record; each protocol has one."""
        target = TARGETS[self.name]
        words = [target.stem, *([self.views.replace(" ", "-")] if self.views != "one view" else [])]
        stem = "-".join([*words, *([self.model] if self.model is not None else [])])
        return self.out / target.folder / f"{stem}.json"

    @property
    def store(self) -> Path:
        return self.out / TARGETS[self.name].folder / RUNS if self.runs is None else self.runs

    @property
    def packs(self) -> tuple[Path, ...]:
        """Runs made before, here or elsewhere: `rcad runs pack` wrote them."""
        return tuple(packs_in(self.out / PACKS))

    def plan(self) -> Plan:
        """The runs of the table; of a tuned one those of its search."""
        return self.search().tuning() if self.views == "tuned" else self._plan(SUITES[self.name])

    def search(self) -> Search:
        """What a tuned table tries."""
        one_of("NAME of --protocol tuned", self.name, TUNED)
        return Search(self._plan(tuned_suite(SUITES[self.name], self.model)), self.model)

    def _plan(self, suite: Suite) -> Plan:
        return plan(
            suite,
            self.scale,
            self.views,
            self.seeds,
            only=self.only,
            rows=self.rows,
            data_dir=self.data_dir,
            cache_dir=self.cache_dir,
            precision=self.precision,
            weights=self.weights,
        )

    def command(self, study: Study) -> str:
        """What one types to make it again."""
        words = [f"rcad paper run {self.name} --scale {self.scale} --seeds {len(self.seeds)}"]
        words += [f"--protocol {self.views.replace(' ', '-')}"] if self.views != "one view" else []
        words += [f"--model {self.model}"] if self.model is not None else []
        words += [f"--weights {self.weights}"] if self.weights is not None else []
        words += [f"--precision {self.precision}"] if self.precision != "fp32" else []
        run = study.columns_run
        words += [f'--only "{column}"' for column in run] if len(run) < len(study.columns) else []
        words += [f'--rows "{row}"' for row in self.rows]
        return " ".join(words)


def make_suite(order: Order, progress: Progress, warn: Callable[[str], None]) -> Outcome | Scheduled:
    """The suite's files; what became of the runs where some are left. Starting again makes only those.

    Args:
        warn: told of each data set that is missing, and of options without effect, before any run.
    """
    records.refuse_to_replace_larger(order.record, order.scale)
    planned = order.plan()
    for sentence in planned.missing:
        warn(sentence)
    make_folder(order.record.parent)
    store = Store.open(order.store, packs=order.packs)
    where = {"joined": order.joined, "devices": order.devices, "track": order.track, "executor": order.executor}
    place = Place(store, order.data_dir, order.cache_dir, order.device, **where)  # type: ignore[arg-type]
    on_cpu = order.executor is None and pick_device(order.device).type == "cpu"
    asked = planned.asked()
    if order.precision == "bf16" and on_cpu and finished(asked, store) < len(asked.configs()):
        raise InputError("expected a GPU for --precision bf16, but got the CPU; use fp32")
    if order.joined > 1 and (order.workers == 1 or on_cpu):
        warn("--join: only for runs that share a GPU")
    started, before, total = time.monotonic(), 0, 0
    details: dict[str, Any] = {}
    for planned, added in stages(order, store):
        details |= added
        asked = planned.asked()
        before, total = before + finished(asked, store), total + len(asked.configs())
        minutes = order.minutes
        if minutes is not None:
            minutes = max(minutes - (time.monotonic() - started) / 60, min(minutes, 1 / 60))
        runs = schedule(
            list(asked.configs().values()),
            place,
            progress,
            at_once=order.workers,
            processes=order.workers,
            minutes=minutes,
            notes=False,
        )
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
    line = "; ".join(part for part in (no_images, note) if part)
    return Outcome(files, before == total, str(study.tally), line)


def stages(order: Order, store: Store) -> Iterator[tuple[Plan, JSON]]:
    """What is run, in order, and what it adds to the record: a tuned table is planned when its search is done."""
    yield order.plan(), {}
    if order.views == "tuned":
        search = order.search()
        choices = search.choose(store)
        yield search.table(choices), {"search": {"design": search.design(), "choices": choices}}


def finished(planned: Plan, store: Store) -> int:
    """How many of its runs are done."""
    return sum(store.status(config) in FINISHED for config in planned.configs().values())


def ahead(order: Order) -> list[tuple[Plan, int]]:
    """What is run next, with how many of its runs are done, up to what cannot be planned yet."""
    store = Store(order.store, order.packs)
    found = []
    for planned, _ in stages(order, store):
        asked = planned.asked()
        found.append((asked, finished(asked, store)))
        if found[-1][1] < len(asked.configs()):
            break
    return found


def standing(order: Order) -> tuple[list[tuple[str, str, int, int]], tuple[str, ...]]:
    """(row, column, runs done, runs planned) of every cell for which there are data; and which data are missing."""
    planned = order.plan().asked()
    store = Store(order.store, order.packs)
    counts: dict[tuple[str, str], list[int]] = {}
    for one in planned.runs:
        cell = counts.setdefault((one.row, one.column), [0, 0])
        cell[0] += store.status(one.config) in FINISHED
        cell[1] += 1
    return [(row, column, done, total) for (row, column), (done, total) in counts.items()], planned.missing
