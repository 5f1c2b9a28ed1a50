"""A comparison from the request to its report: who takes part, how it is trained, what is printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rcad.cli.commands import compare_line
from rcad.cli.request import Request
from rcad.cli.screen import say, say_json, table, warn
from rcad.errors import InputError
from rcad.loss.method_rows import method_text, parse_method
from rcad.runs.config import RunConfig
from rcad.runs.files import ready_folder
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.words import duration, plural, said_held_out
from rcad.study.comparison import (
    Backend,
    Contestant,
    Metrics,
    check_suitable,
    compete,
    lineup,
    overlap,
    split_of,
)
from rcad.study.page import difference_tables, markdown, page, results_table
from rcad.study.record import build, check_goes_on, earlier, keep, write
from rcad.study.resolution import HeldOut
from rcad.study.search_ranges import started
from rcad.study.stacked_backend import StackedBackend, can_stack
from rcad.study.trials import default_goal, held_out
from rcad.study.verdict import METRICS
from rcad.train.machine import pick_device
from rcad.train.place import Place
from rcad.train.progress import Progress
from rcad.train.run import method_defaults
from rcad.train.scheduler import Outcome, canonical, schedule
from rcad.train.task import prepare, read
from rcad.train.terminal import shown

TUNED, EPOCHS = 8, 10
"""Configurations a method tries on tables; epochs on small images, which take longer than tables."""
DEFAULT = {"classification": "erm,label_smoothing,rcad", "regression": "erm,rcad"}
SIGINT = 2


class Stopped(Exception):
    """Something ended the work before its end."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class EngineBackend:
    """One run after the other through the store, or side by side on a GPU; what is there already is not run again."""

    def __init__(self, place: Place, progress: Progress) -> None:
        self._place, self._progress = place, progress
        self._records: list[RunRecord] = []

    def fit(self, configs: Sequence[RunConfig], progress: Callable[[int, int], None]) -> list[Metrics | None]:
        outcome = schedule(configs, self._place, self._progress, told=said_held_out)
        if not outcome.complete:
            raise Stopped(outcome)
        found = {record.id: record for record in outcome.records}
        self._records = [found[config_id(canonical(config))] for config in configs]
        return [held_out(record) for record in self._records]

    def test(self, chosen: Sequence[int]) -> list[Metrics | None]:
        return [_tested(self._records[k]) for k in chosen]

    def seconds(self) -> float:
        return sum(record.timings.get("train_seconds") or 0.0 for record in self._records)


class Job:
    """One comparison; everything that can be wrong with the input is found while it is made."""

    def __init__(
        self,
        request: Request,
        methods: str | None,
        seeds: list[int],
        budget: int | None,
        controls: bool,
        out: Path,
        data_dir: Path | None,
        cache_dir: Path | None,
        device: str,
    ) -> None:
        self.out, self.seeds, self.places, self.device = out, seeds, (data_dir, cache_dir), device
        self.about = {"data": request.data, "target": request.target, "task": request.task, **request.own}
        self.known = earlier(out, self.about)
        first = replace(request, method="erm").configs()[0]
        if first.data.validation == 0:
            raise InputError("expected a held-out split to choose by, but got data.validation=0; e.g. set it to 0.1")
        for key in ("seed", "split"):
            if (value := getattr(first.data, key)) is not None:
                raise InputError(f"expected a split for each seed, but got data.{key}={value}; leave it out")
        dataset = read(first.data, data_dir, cache_dir)
        if methods is None:
            methods = DEFAULT[dataset.task]
        people = lineup([parse_method(text) for text in split_methods(methods)], controls=controls)
        if len(people) < 2:
            raise InputError(f"expected a method to compare ERM with, but got {methods}; e.g. --methods erm,rcad")
        if request.epochs is None and dataset.is_image and first.model.name == "auto" and first.optim.name == "adamw":
            request = replace(request, epochs=EPOCHS)
        configs = {rows: replace(request, method=method_text(rows)).configs()[0] for rows, _ in people}
        self.contestants = [Contestant(method_text(rows), configs[rows].method, role) for rows, role in people]
        where = pick_device(device)
        base = next(iter(configs.values()))
        self.splits = {}
        for seed in seeds:
            config = split_of(base, seed, dataset)
            self.splits[seed] = (config, prepare(config, dataset, where))
        config, problem = self.splits[seeds[0]]
        check_suitable(self.contestants, config, problem)
        self.stacked = all(can_stack(self._config(one), problem) for one in self.contestants)
        self.budget = (TUNED if self.stacked else 1) if budget is None else budget
        self.settings: dict[str, Any] = {
            "about": self.about,
            "data": first.data.name,
            "command": compare_line(request, methods, seeds, self.budget, controls=controls),
            "seeds": seeds,
            "budget": self.budget,
            "epochs": config.train.epochs,
            "metrics": list(METRICS[bool(problem.classes)]),
            "test_ratio": overlap(dataset, problem.splits),
            "sizes": {"train": len(problem.train[1]), "validation": len(problem.val[1]), "test": len(problem.test[1])},
        }
        # Each split chooses for itself, so that its own held-out rows are all that it has to choose by.
        goal = default_goal(labels=bool(problem.classes))
        self.held_out = HeldOut(len(problem.val[1]), 1, goal.metric)
        self.settings["held_out"] = self.held_out.to_dict()
        check_goes_on(out, self.settings, [one.name for one in self.contestants])

    def _config(self, one: Contestant) -> RunConfig:
        config, problem = self.splits[self.seeds[0]]
        rows = started(one.rows, labels=bool(problem.classes), table=problem.train[0].ndim == 2)
        return replace(config, method=rows)

    def work(self, runs: Path, *, quiet: bool, as_json: bool) -> int:
        """Train, write the report, print; returns the exit code."""
        ready_folder(self.out)
        hidden = quiet or as_json
        place = Place.of(runs, data_dir=self.places[0], cache_dir=self.places[1], device=self.device)
        if self.held_out.few and self.budget > 1:
            warn(
                f"on each split {self.held_out}; hold out more (--set data.validation=0.3) or tune nothing (--budget 1)"
            )
        cells: dict[str, Any] = {}
        try:
            with shown(quiet=quiet, as_json=as_json) as progress:
                backend: Backend = EngineBackend(place, progress)
                if self.stacked:
                    backend = StackedBackend({seed: problem for seed, (_, problem) in self.splits.items()})
                for one in self.contestants:
                    self._compete(one, backend, cells, progress, hidden=hidden)
            self._report(cells, quiet=quiet, as_json=as_json)
        except (Stopped, KeyboardInterrupt) as stop:
            done = f"{len(cells)} of {plural(len(self.contestants), 'method')} done"
            if isinstance(stop, Stopped):
                warn(f"{done}; {stop.outcome.words()}")
                return stop.outcome.exit_code
            warn(f"stopped with {done}; the same command goes on from here")
            return 128 + SIGINT
        return 0

    def _compete(
        self, one: Contestant, backend: Backend, cells: dict[str, Any], progress: Progress, *, hidden: bool
    ) -> None:
        """One method, kept as soon as it is done."""
        begun, known = time.monotonic(), self.known.get(one.name)
        told = partial(progress.detail, one.name)
        cell = compete(one, self.splits, self.budget, backend, method_defaults(), told, known)
        cells[one.name] = cell
        # Methods of an earlier comparison that are not in this one stay until its report is written.
        keep(self.out, self.about, {**self.known, **cells})
        if not hidden:
            again = known is not None and known.get("key") == cell["key"]
            took = "there already" if again else duration(time.monotonic() - begun)
            progress.note(f"{one.name}: {plural(cell['runs'], 'run')}, {took}")

    def _report(self, cells: dict[str, Any], *, quiet: bool, as_json: bool) -> None:
        seconds = sum(cell["seconds"] for cell in cells.values())
        record = build({**self.settings, "seconds": seconds}, cells)
        files = write(self.out, record, page(record), markdown(record))
        if as_json:
            say_json({**record, "files": [str(file) for file in files]})
            return
        if quiet:
            say(record["sentences"][0])
            return
        for part in (results_table(record), *difference_tables(record)):
            say()
            table(part.header, [[cell.text for cell in row] for row in part.cells])
        say()
        for sentence in record["sentences"]:
            say(sentence)
        say()
        for file in files:
            say(str(file))


def split_methods(text: str) -> list[str]:
    """The methods of "erm, rcad(alpha=1, lam=0.1)": commas inside brackets part nothing."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    named = [part.strip() for part in parts if part.strip()]
    if not named:
        raise InputError(f"expected --methods to name some, e.g. erm,label_smoothing,rcad, but got {text!r}")
    return named


def _tested(record: RunRecord) -> Metrics | None:
    found = {name.removeprefix("test_"): v for name, v in record.metrics.items() if name.startswith("test_")}
    good = {name: value for name, value in found.items() if value is not None}
    return good if good and len(good) == len(found) else None
