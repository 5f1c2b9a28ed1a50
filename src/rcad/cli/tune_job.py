"""A search from the request to its files: which trials, how they are run, what is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rcad.cli.commands import train_line
from rcad.cli.request import Request
from rcad.cli.screen import say, say_json, table, warn
from rcad.errors import InputError, one_of
from rcad.loss.method_rows import Defaults, label
from rcad.runs.config import RunConfig
from rcad.runs.files import replacing, write_text
from rcad.runs.plain import config_id, to_plain
from rcad.runs.words import said_held_out
from rcad.study.optuna_search import OptunaSearch
from rcad.study.resolution import HeldOut
from rcad.study.search_data import measured, opened
from rcad.study.search_page import draw, leader, page, save, shown_values, told, trials_table
from rcad.study.search_ranges import applied, beginning, check_space, default_space, started
from rcad.study.search_record import build, refuse_other, write
from rcad.study.search_space import Space, Values, drawn, grid, parse_space, resolved
from rcad.study.trials import Goal, Trial, best, default_goal, trial
from rcad.train.place import Place
from rcad.train.progress import Progress
from rcad.train.run import method_defaults
from rcad.train.scheduler import Outcome, canonical, schedule
from rcad.train.task import method_of
from rcad.train.terminal import shown


class Job:
    """One search, from the request to its files."""

    def __init__(
        self,
        request: Request,
        space: str | None,
        search: str,
        by: str | None,
        budget: int,
        out: Path,
        data_dir: Path | None,
        cache_dir: Path | None,
    ) -> None:
        self.request, self.search, self.budget, self.out = request, search, budget, out
        self.data_dir, self.cache_dir = data_dir, cache_dir
        self.methods = method_defaults()
        first = request.configs()[0]
        self.seeds = list(request.seeds or [0])
        prepared = _prepared(first, space, by, data_dir, cache_dir, self.methods)
        self.base, self.start, self.space, self.goal, examples = prepared
        self.held_out = HeldOut(examples, len(self.seeds), self.goal.metric)
        self.stem = "-".join(name for name, _ in first.method if name != "data_augmentation") or "data_augmentation"
        self.settings: dict[str, Any] = {
            "data": first.data.name,
            "method": label(first.method),
            "search": search,
            "space": [str(one) for one in self.space],
            "seeds": self.seeds,
            "by": self.goal.metric,
            "base": {key: value for key, value in to_plain(self.base).items() if key != "seed"},
        }
        refuse_other(self.path, self.settings)
        self.trials: list[Trial] = []
        self.planned = budget
        self.stopped: Outcome | None = None
        self.pictures: list[Path] = []

    @property
    def path(self) -> Path:
        return self.out / f"{self.stem}.json"

    @property
    def exit_code(self) -> int:
        """The scheduler's where something stopped it, 1 where every trial diverged."""
        return self.stopped.exit_code if self.stopped is not None else int(best(self.trials, self.goal) is None)

    def work(self, place: Place, *, quiet: bool, as_json: bool) -> None:
        with shown(quiet=quiet, as_json=as_json) as progress:
            self._work(place, progress)

    def _work(self, place: Place, progress: Progress) -> None:
        def run(configs: Sequence[RunConfig]) -> Outcome:
            return schedule(configs, place, progress, told=said_held_out)

        if self.held_out.few and self.budget > 1:
            warn(f"{self.held_out}; hold out more (--set data.validation=0.3) or average over more --seeds")
        if self.search == "optuna":
            self._ask_and_tell(run)
            return
        by_grid = self.search == "grid"
        points = grid(self.space, self.budget) if by_grid else drawn(self.space, self.budget, first=self.start)
        self.planned = len(points)
        self._note(points, run([config for point in points for config in self._configs(point)]))

    def _ask_and_tell(self, run: Callable[[Sequence[RunConfig]], Outcome]) -> None:
        study = OptunaSearch(self.space, self.start)
        for _ in range(self.budget):
            point = study.ask()
            self._note([point], run(self._configs(point)))
            if self.stopped is not None:
                return
            metrics = self.trials[-1].metrics
            study.tell(None if metrics is None else self.goal.key(metrics)[0])

    def _configs(self, point: Values) -> list[RunConfig]:
        config = applied(self.base, point, self.methods)
        return [replace(config, seed=seed) for seed in self.seeds]

    def _note(self, points: Sequence[Values], outcome: Outcome) -> None:
        """The trials whose runs are all over, and the record with them."""
        records = {record.id: record for record in outcome.records if record.is_final}
        for point in points:
            ids = [config_id(canonical(config)) for config in self._configs(point)]
            if all(run in records for run in ids):
                self.trials.append(trial(len(self.trials) + 1, point, [records[run] for run in ids]))
        self.stopped = None if outcome.complete else outcome
        self.record = build(
            self.settings, self.goal, self.trials, self.held_out, planned=self.planned, command=self._command()
        )
        write(self.path, self.record)

    def draw(self) -> None:
        """The page and the pictures."""
        write_text(self.path.with_suffix(".html"), page(self.record))
        figure = draw(self.record)
        for form in () if figure is None else ("png", "svg"):
            picture = self.path.with_suffix(f".{form}")
            with replacing(picture) as temporary, temporary.open("wb") as file:
                save(figure, file, form)
            self.pictures.append(picture)

    def _command(self) -> str | None:
        """The line that trains the best configuration."""
        first = best(self.trials, self.goal)
        if first is None:
            return None
        return train_line(self.request, applied(self.base, first.values, self.methods), first.values, self.seeds)

    def show(self, *, quiet: bool, as_json: bool) -> None:
        first = leader(self.record)
        html = self.path.with_suffix(".html")
        if as_json:
            files = {"record": str(self.path), "page": str(html), "pictures": [str(one) for one in self.pictures]}
            say_json({**self.record, "files": files})
        else:
            if not quiet and self.trials:
                rows = trials_table(self.record)
                say()
                table(rows.header, [[cell.text for cell in row] for row in rows.cells])
                say()
                say("numbers of the held-out split; the search is not given those of the test split")
                for file in (self.path, html, *self.pictures):
                    say(str(file))
            if first is None:
                say("no trial is done" if not self.trials else "every trial diverged: lower the ends of the space")
            else:
                say(f"best of {len(self.trials)}: {shown_values(first['values'])}  held-out {told(self.record, first)}")
                say(self.record["command"])
        if self.stopped is not None:
            warn(f"{len(self.trials)} of {self.planned} trials done; {self.stopped.words()}")


def _prepared(
    first: RunConfig,
    space: str | None,
    by: str | None,
    data_dir: Path | None,
    cache_dir: Path | None,
    methods: Defaults,
) -> tuple[RunConfig, Values, Space, Goal, int]:
    """The config as the method stands, where the search begins, the space, what decides, and by how many examples."""
    if first.data.validation == 0:
        raise InputError("expected a held-out split to tune by, but got data.validation=0; hold some out, e.g. 0.1")
    wanted = default_space(first.method) if space is None else parse_space(space)
    check_space(wanted, first.method, methods)
    problem = opened(first, data_dir, cache_dir)
    labels = bool(problem.classes)
    metrics = ("accuracy", "nll", "brier") if labels else ("nll", "rmse")
    if by is not None:
        one_of("--by", by, metrics)
    distance = measured(problem)
    base = replace(first, method=started(first.method, labels=labels, table=problem.train[0].ndim == 2))
    method_of(base, problem)  # a method that does not suit the data is refused before anything is trained
    goal = Goal(by) if by else default_goal(labels=labels)
    start = beginning(base, wanted, methods, distance)
    return base, start, resolved(wanted, distance), goal, len(problem.val[1])
