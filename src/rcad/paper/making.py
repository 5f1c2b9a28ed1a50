"""A suite from its name to its files: plan, make the runs that are left, collect, judge, write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcad.errors import InputError, MissingExtraError
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.paper import record as records
from rcad.paper.benchmarks import Scale, Views
from rcad.paper.collect import collect
from rcad.paper.grid import Plan, Precision, plan
from rcad.paper.suite_page import markdown, tally
from rcad.paper.tables import SUITES
from rcad.paper.targets import TARGETS, Outcome
from rcad.runs.files import make_folder, write_text
from rcad.runs.pack import packs_in
from rcad.runs.record import FINISHED
from rcad.runs.store import Store
from rcad.train.machine import pick_device
from rcad.train.place import Place
from rcad.train.progress import Progress
from rcad.train.scheduler import Outcome as Scheduled
from rcad.train.scheduler import schedule

RUNS = "runs"
PACKS = "images"
"""The folder of packed runs, which every suite takes as done."""


@dataclass(frozen=True)
class Order:
    """What is wanted, and where.

    Args:
        views: one view or two in every method's clean loss.
        only: columns; empty for all.
        runs: the folder of runs; None for one beside the suite's record. Suites that share runs may share a folder.
        workers: processes on the CPU, or runs at once on a GPU; None for what pays.
        precision: of the products in training.
        joined: how many runs that differ in their seed alone are trained as one network on a GPU.
        minutes: the time limit for the runs.
    """

    name: str
    scale: Scale
    views: Views
    seeds: Sequence[int]
    out: Path
    only: tuple[str, ...] = ()
    runs: Path | None = None
    data_dir: Path | None = None
    cache_dir: Path | None = None
    device: str = "auto"
    workers: int | None = None
    precision: Precision = "fp32"
    joined: int = 1
    minutes: float | None = None

    @property
    def record(self) -> Path:
        """The suite's record; each protocol has one."""
        target = TARGETS[self.name]
        stem = target.stem if self.views == "one view" else f"{target.stem}-two-views"
        return self.out / target.folder / f"{stem}.json"

    @property
    def store(self) -> Path:
        return self.out / TARGETS[self.name].folder / RUNS if self.runs is None else self.runs

    @property
    def packs(self) -> tuple[Path, ...]:
        """Runs made before, here or elsewhere: `rcad runs pack` wrote them."""
        return tuple(packs_in(self.out / PACKS))

    def plan(self) -> Plan:
        return plan(
            SUITES[self.name],
            self.scale,
            self.views,
            self.seeds,
            only=self.only,
            data_dir=self.data_dir,
            cache_dir=self.cache_dir,
            precision=self.precision,
        )


def make(order: Order, progress: Progress, warn: Callable[[str], None]) -> Outcome | Scheduled:
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
    place = Place(store, order.data_dir, order.cache_dir, order.device, joined=order.joined)
    before = sum(store.status(config) in FINISHED for config in planned.configs().values())
    if order.precision == "bf16" and before < len(planned.configs()) and pick_device(order.device).type == "cpu":
        raise InputError("expected a GPU for --precision bf16, but got the CPU; use fp32")
    if order.joined > 1 and (order.workers == 1 or pick_device(order.device).type == "cpu"):
        warn("--join: only for runs that share a GPU")
    runs = schedule(
        list(planned.configs().values()),
        place,
        progress,
        at_once=order.workers,
        processes=order.workers,
        minutes=order.minutes,
        told=None,
    )
    if not runs.complete:
        return runs
    shelf = RunLoader(store, order.data_dir, order.cache_dir, order.device)
    record = records.plain(collect(planned, shelf, progress.detail))
    files, note = [order.record, order.record.with_suffix(".md")], ""
    if order.name == "F1":
        picture = order.record.with_suffix(".png")
        note = _add_images(record, planned, shelf, picture)
        files += [picture] if not note else []
    records.write(order.record, record)
    write_text(files[1], markdown(record, order.record.stem, picture=len(files) > 2))
    return Outcome(files, before == len(planned.configs()), str(tally(record)), note)


def _add_images(record: dict[str, Any], planned: Plan, shelf: RunLoader, path: Path) -> str:
    """F1's images into its record, and as a picture beside it; a note where there can be none."""
    from rcad.paper.perturbed_images import draw, perturbed

    added = perturbed(planned, shelf)
    if not added:
        return "no images: every ERM run diverged"
    record |= records.plain(added)
    try:
        draw(added["images"], path)
    except MissingExtraError as error:
        return f"no picture: {error}"
    return ""


def standing(order: Order) -> tuple[list[tuple[str, str, int, int]], tuple[str, ...]]:
    """(row, column, runs done, runs planned) of every cell for which there are data; and which data are missing."""
    planned = order.plan()
    store = Store(order.store, order.packs)
    counts: dict[tuple[str, str], list[int]] = {}
    for one in planned.runs:
        cell = counts.setdefault((one.row, one.column), [0, 0])
        cell[0] += store.status(one.config) in FINISHED
        cell[1] += 1
    return [(row, column, done, total) for (row, column), (done, total) in counts.items()], planned.missing
