"""A method's numbers by the held-out split: trials, the best of them, a page. The test split is never looked at."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from rcad.errors import InputError, one_of, shaped, whole
from rcad.errors import command as command_line
from rcad.loss.method_rows import method_text, named_method
from rcad.loss.methods import method_defaults
from rcad.report.document import Cell, Command, Document, Part, Section, Table
from rcad.report.drawing import save
from rcad.report.numbers import named_values
from rcad.runs.config import RunConfig
from rcad.runs.files import Kind, ready_folder
from rcad.runs.plain import config_id, to_plain
from rcad.runs.record import RunRecord, advised, versions
from rcad.runs.words import BY_CHANCE, plural, too_short
from rcad.study.backends import HELD_OUT, numbers_of
from rcad.study.outputs import StudyResult, check_packages, earlier, plain, refuse_changed, tell_trackers, workplace
from rcad.study.pictures import in_words, search_map
from rcad.study.space import OptunaSearch, Values, applied, beginning, check_space, drawn, grid, parse_space, resolved
from rcad.study.study import (
    HIGHER_IS_BETTER,
    WORDS,
    Contestant,
    HeldOut,
    Setup,
    at_start,
    check_suitable,
    each_once,
    named_data,
    rank,
    ranked_metrics,
    seeds_text,
    space_of,
    unfinished,
)
from rcad.train.machine import pick_device
from rcad.train.place import Executor, Place
from rcad.train.progress import Portion, Progress, each_note_once, watched
from rcad.train.run import plan_of
from rcad.train.scheduler import Outcome, canonical_config, schedule
from rcad.train.task import measured_alpha, prepare, read, with_numbers
from rcad.train.trackers import flat

log = logging.getLogger("rcad")

KIND = "tune"
BUDGET = 20
Search = Literal["random", "grid", "optuna"]
SEARCHES: tuple[Search, ...] = get_args(Search)
Trial = dict[str, Any]


def trial_of(number: int, values: Values, records: Sequence[RunRecord]) -> Trial:
    """One point of the space on every seed: held-out means, None where a run diverged; its runs' ids; their time."""
    scores = [numbers_of(record, HELD_OUT) for record in records]
    finite = [score for score in scores if score is not None]
    lost = len(finite) < len(records)
    return {
        "number": number,
        "values": dict(values),
        "metrics": None if lost else {name: statistics.fmean(score[name] for score in finite) for name in finite[0]},
        "runs": [record.id for record in records],
        "seconds": sum(record.timings.get("train_seconds") or 0.0 for record in records),
        "more_epochs": advised([record.more_epochs for record in records]),
    }


def best(trials: Sequence[Trial], metric: str) -> Trial | None:
    """The best trial, the first of equals; None where every one diverged."""
    leader = max(trials, key=lambda trial: rank(metric, trial["metrics"]), default=None)
    return None if leader is None or leader["metrics"] is None else leader


@dataclass(frozen=True, repr=False)
class Tuning(StudyResult):
    """The result of `rcad.tune`; `outcome` is that of the runs, None where it was read from a file."""

    PAGE = staticmethod(lambda record: document(record))
    outcome: Outcome | None = None

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best trial: number, values, metrics, runs; None where every one diverged."""
        with self._reading():
            return next((trial for trial in self.record["trials"] if trial["number"] == self.record["best"]), None)

    @property
    def command(self) -> str | None:
        """The command that trains the best configuration; None where every trial diverged."""
        with self._reading():
            return self.record["command"]  # type: ignore[no-any-return]

    def save(self, folder: Path | str, stem: str = KIND) -> Tuning:
        """Write the record, the page and the map as stem.json, .html, .png and .svg."""
        out = Path(folder)
        result = self.written(out / f"{stem}.json", out / f"{stem}.html")
        pictures = save([replace(figure, name=stem) for figure in self.document.figures], out, ("png", "svg"))
        return replace(result, files=(*result.files, *pictures))


SEARCH = Tuning.KIND = Kind("rcad search", 1, lambda plain, schema: Tuning(plain))


def tune(
    data: str | Path,
    method: str = "rcad",
    *,
    budget: int = BUDGET,
    space: str | None = None,
    search: Search = "random",
    metric: str | None = None,
    target: str | None = None,
    task: str | None = None,
    size: int | None = None,
    data_options: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (0,),
    epochs: int | None = None,
    recipe: str | None = None,
    model: str | None = None,
    settings: Sequence[str] = (),
    out: Path | str | None = None,
    runs: Path | str | None = None,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    device: str = "auto",
    devices: Sequence[str] = (),
    executor: Executor | None = None,
    track: str | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Tuning:
    """Tune a method's hyperparameters, and its weight decay, on data of yours by the held-out split.

    Args:
        data: a name, a CSV file or a folder, as `rcad train` takes it.
        method: e.g. "rcad" or "mixup + rcad(lam=0.5)"; what is set is not searched.
        budget: how many configurations to try.
        space: e.g. "alpha=log(0.05, 2), lam=log(0.01, 1)"; by default weight decay and the method's own ranges.
        search: how they are chosen: "random", "grid" or "optuna".
        metric: what decides: "nll" (the default), "accuracy", "brier"; for regression "rmse".
        target: the column to predict; `task`: "classification" or "regression"; `size`: of images.
        data_options: more on the data: drop (columns), labels (a file), file_column, label_column, skip_bad.
        seeds: each trial is the mean over these.
        epochs, recipe, model, settings: as in `rcad train`; a field that is set is not searched.
        out: the folder of the record and the page; None writes none.
        runs: the folder of runs; None for one in `out`. Runs that it holds are not made again.
        data_dir, cache_dir, device: where the data are found, and what trains.
        devices: several GPUs, each with runs of its own, e.g. ("cuda:0", "cuda:1").
        executor: a Ray cluster that makes the runs, e.g. Executor("HOST:6379") of `rcad.train.place`.
        track: experiment trackers, "wandb,mlflow,tensorboard"; of the runs they receive no test metrics.
        progress: told how far it is; None shows a bar on a terminal and a line in a notebook, and nothing elsewhere.

    Raises:
        InputError: something is wrong with the input; nothing was trained.
    """
    setup = Setup(named_data(data), target, task, size, data_options or {}, recipe, epochs, model, tuple(settings))
    where = {"data_dir": data_dir, "cache_dir": cache_dir, "device": device, "executor": executor}
    with workplace(out, runs, track=track, devices=devices, **where) as (folder, place):
        work = Work(setup, method, space, search, metric, budget, each_once(seeds), folder, place)
        with watched(progress) as reporter:
            return work.go(reporter)


@dataclass
class Work:
    """One search; everything that can be wrong with the input is found while it is made."""

    setup: Setup
    method: str
    space_text: str | None
    search: str
    given_metric: str | None
    budget: int
    seeds: list[int]
    out: Path | None
    place: Place

    def __post_init__(self) -> None:
        one_of("search", self.search, SEARCHES)
        whole("budget", self.budget, minimum=1)
        check_packages(*([("optuna", "optuna", "tune")] if self.search == "optuna" else []))
        first = self.setup.config(named_method(self.method))
        self.methods = method_defaults()
        space = None if self.space_text is None else parse_space(self.space_text)
        if space is not None:
            check_space(space, first.method, self.methods)
        with_numbers(first.method)  # raises before anything is read
        dataset = read(first.data, self.place.data_dir, self.place.cache_dir)
        self.omissions = [*dataset.omissions, *self.setup.held_back]
        problem = prepare(first, dataset, pick_device("cpu"))
        self.metric = ranked_metrics(self.given_metric, problem)[0]
        if space is None:
            space = space_of(first.method, first, problem, self.setup)
        if not space:
            raise InputError(f"expected a parameter to search, but {self.method} leaves none open; pass --space")
        alpha = measured_alpha(problem)
        self.base = at_start(first, first.method, problem)
        check_suitable([Contestant(self.method, first.method, "asked")], first, problem)
        self.start = beginning(self.base, space, self.methods, alpha)
        self.space = resolved(space, alpha if problem.classes else None)
        self.sizes = {"train": len(problem.train[1]), "validation": len(problem.val[1])}
        self.held_out = HeldOut(self.sizes["validation"], len(self.seeds), self.metric)
        names = [name.replace(":", "-") for name, _ in first.method if name != "data_augmentation"]
        self.stem = "-".join(names) or "data_augmentation"
        self.settings: dict[str, Any] = {
            "data": first.data.name,
            "method": method_text(first.method),
            "search": self.search,
            "space": [str(parameter) for parameter in self.space],
            "seeds": self.seeds,
            "by": self.metric,
            "base": {key: value for key, value in to_plain(self.base).items() if key != "seed"},
        }
        if self.out is not None:
            path = self.out / f"{self.stem}.json"
            if (before := earlier([path], "search", target=KIND)) is not None:
                there = shaped(f"the search in {path}", before, {"settings": dict})["settings"]
                refuse_changed(path, flat(there), flat(plain(self.settings)))
        self.trials: list[Trial] = []
        # Optuna's are found one by one; of them the first is known.
        self.points: Sequence[Values] = [self.start]
        if self.search != "optuna":
            by_grid = self.search == "grid"
            self.points = grid(self.space, self.budget) if by_grid else drawn(self.space, self.budget, first=self.start)
        self.planned = self.budget if self.search == "optuna" else len(self.points)

    def plan(self) -> dict[str, Any]:
        """What `go` would train, and about how many seconds it takes run by run; raises if it cannot begin."""
        runs = [run for point in self.points for run in self._runs(point)]
        run, seconds = plan_of(runs[0], self.place)
        left = unfinished(runs, self.place) + self.planned * len(self.seeds) - len(runs)
        told = {key: value for key, value in self.settings.items() if key not in ("by", "base")}
        plan = {"metric": self.metric, "sizes": self.sizes, "run": run, "planned": self.planned}
        return {**told, **plan, "trials": list(map(dict, self.points)), "left": left, "seconds": left * seconds}

    def go(self, progress: Progress) -> Tuning:
        progress = each_note_once(progress, without=BY_CHANCE)  # a run's, of test examples; ours is below
        for sentence in self.omissions:
            progress.note(sentence)
        if self.out is not None:
            ready_folder(self.out)
        if self.held_out.few and self.budget > 1:
            advice = "use a larger validation split (--set data.validation=0.3) or more --seeds"
            log.warning("the best is %s; %s", self.held_out, advice)
        result = self._search(progress)
        rows = [{"trial": trial["number"], **(trial["metrics"] or {})} for trial in self.trials]
        status = "done" if result.outcome is not None and result.outcome.complete else "interrupted"
        numbers = {"trials": len(rows), **((result.best or {}).get("metrics") or {})}
        tell_trackers(result, self.place, KIND, self.settings, numbers, rows, status)
        return result

    def _search(self, progress: Progress) -> Tuning:
        if self.search != "optuna":
            return self._train(self.points, progress)
        size = self._side_by_side()
        study = OptunaSearch(self.space, self.start, side_by_side=size > 1)
        for number in range(0, self.budget, size):
            points = [study.ask() for _ in range(min(size, self.budget - number))]
            result = self._train(points, Portion(progress, number, len(points), self.budget))
            if result.outcome is None or not result.outcome.complete:
                break
            for trial in self.trials[-len(points) :]:
                study.tell(None if trial["metrics"] is None else rank(self.metric, trial["metrics"])[0])
        return result

    def _side_by_side(self) -> int:
        """How many points are asked for at a time: as many as the cluster trains at once."""
        if self.place.executor is None:
            return 1
        from rcad.train.cluster.on_ray import slots

        return max(1, slots(self.place.executor, self.place.device != "cpu") // len(self.seeds))

    def _runs(self, point: Values) -> list[RunConfig]:
        config = applied(self.base, point, self.methods)
        return [replace(config, seed=seed) for seed in self.seeds]

    def _words(self) -> list[str]:
        """`rcad tune ...` with what was left to it written out."""
        words = self.setup.line("tune", "--method", self.method)
        words += [] if self.space_text is None else ["--space", self.space_text]
        words += ["--search", self.search, "--metric", self.metric, "--seeds", seeds_text(self.seeds)]
        return [*words, "--budget", str(self.budget), *([] if self.out is None else ["--out", str(self.out)])]

    def _train(self, points: Sequence[Values], progress: Progress) -> Tuning:
        """Make the runs of these points, add the trials whose runs are all over, and write the record with them."""
        runs = list(map(self._runs, points))
        outcome = schedule([run for own in runs for run in own], self.place, progress, held_out=True)
        records = {record.id: record for record in outcome.records if record.is_final}
        for point, own in zip(points, runs, strict=True):
            ids = [config_id(canonical_config(config)) for config in own]
            if all(run in records for run in ids):
                self.trials.append(trial_of(len(self.trials) + 1, point, [records[run] for run in ids]))
        result = Tuning(self._record(), outcome=outcome)
        return result if self.out is None else result.save(self.out, self.stem)

    def _record(self) -> dict[str, Any]:
        number = command = None
        if (leader := best(self.trials, self.metric)) is not None:
            number, values = leader["number"], leader["values"]
            command = self.setup.train_line(applied(self.base, values, self.methods), values, self.seeds)
        record = {
            "target": KIND,
            "settings": self.settings,
            "metric": self.metric,
            "higher_is_better": HIGHER_IS_BETTER[self.metric],
            "held_out": self.held_out.to_dict(),
            "planned": self.planned,
            "trials": self.trials,
            "best": number,
            "command": command,
            "made_by": command_line(*self._words()),
            "versions": versions(("rcad", "torch", "numpy")),
        }
        return plain(SEARCH.stamp(record))


def document(record: Mapping[str, Any]) -> Document:
    """The page of a search: the best, the table of trials, the map over two parameters."""
    settings, done, leader = record["settings"], record["trials"], Tuning(record).best
    verdict = (
        "Every trial diverged: lower the learning rate or the space's upper ends." if done else "No trial is done."
    )
    if leader is not None:
        metric = record["metric"]
        score = f"{WORDS[metric]} {_score(metric, leader['metrics'][metric])}{'%' if metric == 'accuracy' else ''}"
        values = named_values({key: _value(value) for key, value in leader["values"].items()})
        verdict = f"Best of {len(done)}: {values or 'the method as it stands'}, validation {score}."
        verdict += _level(record)
        if longer := leader.get("more_epochs"):  # earlier records do not say
            verdict += f" {too_short(longer)}"
    about = [
        f"{settings['method']} on {settings['data']}, {plural(len(settings['seeds']), 'seed')}. Every trial was judged "
        "on the validation split; the test split was not used, and this page shows nothing of it.",
        f"The best is {record['held_out']['told']}.",
        f"Search: {settings['search']}, {len(done)} of {record['planned']} trials, in the space "
        f"{', '.join(settings['space'])}.",
    ]
    following = (
        "Next. Tune for longer, or train it as it is:" if (leader or {}).get("more_epochs") else "Next. Train it:"
    )
    command: list[Part] = [Command(record["command"], following)] if record["command"] else []
    parts: list[Part] = [trials_table(record), *command, *about, *filter(None, [search_map(record)])]
    notice = "" if len(done) == record["planned"] else "The search is not finished: run the same command to continue."
    facts = {"Versions": named_values(record["versions"])}
    return Document(
        f"Tuning {settings['method']} on {settings['data']}",
        "The best hyperparameters of this method on this data, by the validation split.",
        [Section("Trials", (), parts, verdict, notice)],
        # Earlier records do not say what made them.
        {"Made by": f"`{made_by}`"} | facts if (made_by := record.get("made_by")) else facts,
    )


def _level(record: Mapping[str, Any]) -> str:
    """Where all trials have the same number, that they have, and what decided."""
    metric, done = record["metric"], [trial["metrics"] for trial in record["trials"] if trial["metrics"]]
    if len(done) < 2 or len({scores[metric] for scores in done}) > 1:
        return ""
    decided = "the NLL decided" if len({scores["nll"] for scores in done}) > 1 else "the first was taken"
    return f" All trials tie in validation {WORDS[metric]}: {decided}."


def trials_table(record: Mapping[str, Any]) -> Table:
    trials = record["trials"]
    keys = list(dict.fromkeys(key for trial in trials for key in trial["values"]))
    names = [name for name in WORDS if any(name in (trial["metrics"] or {}) for trial in trials)]
    rows: list[list[str | Cell]] = []
    for trial in trials:
        number = Cell(str(trial["number"]), mark="good" if trial["number"] == record["best"] else "")
        values = [_value(trial["values"].get(key, "start")) for key in keys]
        scores = [_score(name, (trial["metrics"] or {}).get(name)) for name in names]
        rows.append([number, *values, *scores, f"{trial['seconds']:.1f}"])
    header = ["trial", *keys, *(in_words(name) for name in names), "seconds"]
    caption = "Validation metrics, mean over the seeds; a dash where a run diverged."
    spare = [in_words(name) for name in reversed(names) if name != record["metric"]]
    return Table(header, rows, caption, spare=["seconds", *spare])


def _score(name: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if name == "accuracy" else f"{value:.4g}"


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
