"""Does it help on MY data? Every method with the same search on the same splits, each split's test set read once.

The first question is asked before the runs: is RCAD, or another method, better than ERM by one metric? It is judged
alone. Everything else, controls and other metrics, is a second family (see `judge`).
"""

from __future__ import annotations

import logging
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from signal import SIGINT
from typing import Any

from rcad.errors import InputError, command, fitting, is_number, one_of, shaped, whole
from rcad.loss.method_rows import has_own, method_text, named_method
from rcad.loss.methods import Method, method_defaults
from rcad.report.numbers import listed
from rcad.runs.files import Kind, ready_folder, write_sealed
from rcad.runs.record import versions
from rcad.runs.words import duration, plural
from rcad.study.backends import Backend, Scheduled, Stacked, Stopped, can_stack
from rcad.study.compare_page import CPU_TIME, UNTRAINED, Cells, chosen, document, judged, more_epochs, with_rcad
from rcad.study.outputs import StudyResult, check_packages, earlier, plain, refuse_changed, tell_trackers, workplace
from rcad.study.space import applied
from rcad.study.study import (
    BASE,
    Contestant,
    HeldOut,
    Plan,
    Setup,
    at_start,
    check_suitable,
    compete,
    each_once,
    lineup,
    named_data,
    overlap,
    planned,
    ranked_metrics,
    seeds_text,
    space_of,
    split_of,
    unfinished,
)
from rcad.train.machine import pick_device
from rcad.train.place import Executor, Place
from rcad.train.progress import Portion, Progress, each_note_once, watched
from rcad.train.run import plan_of
from rcad.train.stop import exit_code
from rcad.train.task import prepare, read, with_numbers

log = logging.getLogger("rcad")

KIND, FILE = "compare", "compare.json"
TUNED, EPOCHS, SEEDS = 8, 10, 10
"""Candidates a method tries on tables; epochs on small images, which take longer than tables; splits."""
MOST_SEEDS = 100
"""More splits than this are not advised; nor more than there are standard ones."""
DEFAULT = {"classification": "erm,label_smoothing,rcad", "regression": "erm,rcad"}


class Comparison(StudyResult):
    """The result of `rcad.compare`."""

    NAMES = ("index.html", "compare.md", FILE)
    PAGE = staticmethod(document)

    @property
    def question(self) -> Mapping[str, Any]:
        """The first comparison: method, against, metric, mean, low, high, p_two, outcome."""
        with self._reading():
            return self.record["question"]  # type: ignore[no-any-return]

    @property
    def diverged(self) -> int:
        """How many of the tested runs diverged."""
        with self._reading():
            results = self.record["results"].values()
            return sum(result[self.record["metric"]]["diverged"] for result in results)

    @property
    def next(self) -> str:
        """The command to run next."""
        with self._reading():
            return str(self.record["next"]["command"])


COMPARISON = Comparison.KIND = Kind("rcad comparison", 1, lambda plain, schema: Comparison(plain))


def compare(
    data: str | Path,
    methods: str | Sequence[str] | None = None,
    *,
    target: str | None = None,
    task: str | None = None,
    size: int | None = None,
    data_options: Mapping[str, Any] | None = None,
    question: str | None = None,
    metric: str | None = None,
    seeds: int | Sequence[int] = SEEDS,
    budget: int | None = None,
    controls: bool = True,
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
) -> Comparison:
    """Compare methods with ERM on data of yours: tuned alike, tested once on each split, judged.

    Args:
        data, target, task, size, data_options: the data, as in `rcad.tune`.
        methods: "erm,rcad(alpha=0.3)" or a list; by default ERM, label smoothing (on labels) and RCAD. ERM is always
            among them.
        question: the method that is asked about first: is it better than ERM? By default RCAD, or the first of
            `methods`. It takes part whether `methods` has it or not.
        metric: what decides, named before the runs: "nll" (the default), "accuracy", "brier"; for regression "rmse".
        seeds: so many splits, or these seeds; each is a split of its own.
        budget: candidates each method tries on each split; by default 8, and 1 (no tuning) where runs are slow.
        controls: also run RCAD's two controls.
        epochs, recipe, model, settings: as in `rcad train`; a field that is set is not searched.
        out: the folder of the report; None writes none. What it holds already is not trained again.
        runs, data_dir, cache_dir, device, devices, executor, track, progress: as in `rcad.tune`.

    Raises:
        InputError: something is wrong with the input; nothing was trained.
        Stopped: a KeyboardInterrupt; what is done is kept in `out`.
    """
    setup = Setup(named_data(data), target, task, size, data_options or {}, recipe, epochs, model, tuple(settings))
    where = {"data_dir": data_dir, "cache_dir": cache_dir, "device": device, "executor": executor}
    with workplace(out, runs, track=track, devices=devices, **where) as (folder, place):
        work = Work(setup, methods, question, metric, each_once(seeds), budget, controls, folder, place)
        with watched(progress) as reporter:
            return work.go(reporter)


@dataclass
class Work:
    """One comparison; everything that can be wrong with the input is found while it is made."""

    setup: Setup
    methods: str | Sequence[str] | None
    question: str | None
    metric: str | None
    seeds: list[int]
    given_budget: int | None
    controls: bool
    out: Path | None
    place: Place

    def __post_init__(self) -> None:
        check_packages(("scipy.stats", "scipy", "data"))
        if self.given_budget is not None:
            whole("budget", self.given_budget, minimum=1)
        setup = self.setup
        self.about = {"data": setup.data, "target": setup.target, "task": setup.task, **setup.own}
        first = setup.config((("erm", ()),))
        for key in ("seed", "split"):
            if (value := getattr(first.data, key)) is not None:
                raise InputError(f"expected a split for each seed, but got data.{key}={value}; leave it out")
        more = [] if self.question is None else [self.question]
        for text in [*([] if self.methods is None else split_methods(self.methods)), *more]:
            with_numbers(named_method(text))  # raises before anything is read, which may take long
        dataset = read(first.data, self.place.data_dir, self.place.cache_dir)
        self.omissions = [*dataset.omissions, *setup.held_back]
        self.most_seeds = len(dataset.standard_splits) or MOST_SEEDS
        names = split_methods(DEFAULT[dataset.task] if self.methods is None else self.methods)
        roles = lineup([named_method(text) for text in (*names, *more)], controls=self.controls)
        given = [*map(named_method, names)]
        for name, rows in zip(names, given, strict=True):
            if given.count(rows) > 1:
                raise InputError(f"expected each method once, but got {name} {given.count(rows)} times; leave one out")
        asked = [method_text(rows) for rows, role in roles if role == "asked"]
        if not asked:
            raise InputError(f"expected a method to compare ERM with, but got {names[0]}; e.g. --methods erm,rcad")
        subject = (with_rcad(asked) or asked)[0] if self.question is None else method_text(named_method(self.question))
        one_of("--question", subject, asked)
        small = dataset.is_image and first.model.name == "auto" and first.optim.name == "adamw"
        if setup.epochs is None and small:
            self.setup = setup = replace(setup, epochs=EPOCHS)
        configs = {rows: setup.config(rows) for rows, _ in roles}
        self.contestants = [Contestant(method_text(rows), configs[rows].method, role) for rows, role in roles]
        device, base = pick_device(self.place.device), next(iter(configs.values()))
        self.splits = {
            seed: (split := split_of(base, seed, dataset), prepare(split, dataset, device)) for seed in self.seeds
        }
        config, problem = self.splits[self.seeds[0]]
        check_suitable(self.contestants, config, problem)
        self.metrics = ranked_metrics(self.metric, problem)
        main = self.metrics[0]
        self.spaces = {name: space_of(rows, config, problem, setup) for name, rows, _ in self.contestants}
        stackable = all(can_stack(at_start(config, rows, problem), problem) for _, rows, _ in self.contestants)
        self.stacked = stackable and self.place.executor is None
        self.budget = self.given_budget or (TUNED if stackable else 1)
        # Each split chooses for itself, so that its own held-out rows are all that it has to choose by.
        self.held_out = HeldOut(len(problem.val[1]), 1, main)
        self.words = self._words(names)
        self.settings: dict[str, Any] = {
            "about": self.about,
            "data": first.data.name,
            "command": command(*self.words, *([] if self.out is None else ["--out", str(self.out)])),
            "seeds": self.seeds,
            "budget": self.budget,
            "epochs": config.train.epochs,
            "metric": main,
            "metrics": self.metrics,
            "question": {"method": subject, "against": BASE, "metric": main},
            "test_ratio": overlap(dataset, problem.splits),
            "sizes": {"train": len(problem.train[1]), "validation": len(problem.val[1]), "test": len(problem.test[1])},
            "held_out": self.held_out.to_dict(),
            "cost": CPU_TIME if self.stacked else "time",
        }
        self.known = {} if self.out is None else self._known(self.out)

    def _known(self, out: Path) -> Cells:
        """The results that an earlier call left in the folder, which must be of this plan."""
        before = _earlier(out, self.settings, list(self.spaces))
        cells: Cells = before.get("methods", {})
        looked = [*before.get("looked", ()), *([len(before["seeds"])] if "sentences" in before else [])]
        if looked := [number for number in looked if number < len(self.seeds)]:
            self.settings["looked"] = looked
        for contestant in self.contestants:
            if (cell := cells.get(contestant.name)) is None:
                continue
            with fitting(f"the comparison in {out}", "pass another --out to make it again"):
                about = self._planned(contestant, [int(seed) for seed in cell["seeds"]]).about
            if cell["key"] != about["key"]:
                line = self.settings["command"]
                refuse_changed(out / FILE, _options(before.get("command", line)), _options(line))
                old, new = cell.get("made_from") or {}, about["made_from"]
                changed = [part for part in new if old.get(part, new[part]) != new[part]]
                named = {"data": f"the data {self.about['data']}", "code": f"the code of {contestant.name}"}
                named["weights"] = f"the weights {self.splits[self.seeds[0]][0].model.weights}"
                parts = [named[part] for part in changed] or ["its data, weights, code or version of rcad"]
                raise InputError(
                    f"expected all that {contestant.name} in {out / FILE} was made from, but {listed(parts)} changed "
                    "since; pass another --out to keep both"
                )
            cell.update(about)
        return cells

    def plan(self) -> dict[str, Any]:
        """What `go` would train, and about how many seconds it takes run by run; raises if it cannot begin."""
        plans = [self._planned(contestant, self.seeds) for contestant in self.contestants]
        run, seconds = plan_of(plans[0].configs[0], self.place)
        each, methods = seconds / (plans[0].about["passes"] or 1), []
        for plan in plans:
            runs, seeds = len(plan.configs), self._left(plan.about["name"])
            configs = [plan.configs[k] for seed in seeds for k in plan.places[seed]]
            left = len(configs) if self.stacked else unfinished(configs, self.place)
            about = {key: plan.about[key] for key in ("name", "role", "space")}
            methods.append({**about, "runs": runs, "left": left, "seconds": left * each * plan.about["passes"]})
        settings = {key: value for key, value in self.settings.items() if key not in ("about", "test_ratio")}
        totals = {key: sum(method[key] for method in methods) for key in ("left", "seconds")}
        return {**settings, "run": run, "side_by_side": self.stacked, "methods": methods, **totals}

    def _planned(self, contestant: Contestant, seeds: Sequence[int]) -> Plan:
        splits = {seed: self.splits[seed] for seed in seeds}
        return planned(contestant, splits, self.spaces[contestant.name], self.budget, self.metrics[0])

    def _left(self, name: str) -> list[int]:
        """The seeds on which a method has no results yet."""
        known = self.known[name]["seeds"] if name in self.known else ()
        return [seed for seed in self.seeds if str(seed) not in known]

    def _words(self, names: Sequence[str]) -> list[str]:
        """`rcad compare ...` with what was left to it written out."""
        words = self.setup.line("compare", "--methods", ",".join(names))
        words += [] if self.question is None else ["--question", self.question]
        words += ["--metric", self.metrics[0], "--seeds", seeds_text(self.seeds), "--budget", str(self.budget)]
        return [*words, *([] if self.controls else ["--no-controls"])]

    def go(self, progress: Progress) -> Comparison:
        progress = each_note_once(progress)
        for sentence in self.omissions:
            progress.note(sentence)
        if self.out is not None:
            ready_folder(self.out)
        problems = {seed: problem for seed, (_, problem) in self.splits.items()}
        backend: Backend = Stacked(problems) if self.stacked else Scheduled(self.place)
        if self.held_out.few and self.budget > 1:
            advice = "use a larger validation split (--set data.validation=0.3) or do not tune (--budget 1)"
            log.warning("on each split hyperparameters are %s; %s", self.held_out, advice)
        cells: Cells = {}
        try:
            for number, contestant in enumerate(self.contestants):
                part = Portion(progress, number, 1, len(self.contestants), contestant.name)
                self._compete(contestant, backend, cells, part)
        except KeyboardInterrupt as stop:
            done = f"{len(cells)} of {plural(len(self.contestants), 'method')} done"
            code = stop.exit_code if isinstance(stop, Stopped) else exit_code(getattr(stop, "number", SIGINT))
            raise Stopped(f"stopped with {done}; run the same command to continue", code) from stop
        with fitting(f"the comparison in {self.out}", "pass another --out to make it again"):
            result = Comparison(self._record(cells))
        result = result if self.out is None else result.save(self.out)
        numbers = {f"question/{key}": value for key, value in result.question.items()}
        for name, metric in product(cells, self.metrics):
            numbers[f"{name}/{metric}"] = (result.record["results"][name][metric]["summary"] or {}).get("mean")
        tell_trackers(result, self.place, KIND, self.settings, numbers)
        return result

    def _compete(self, contestant: Contestant, backend: Backend, cells: Cells, progress: Progress) -> None:
        """Add a method's results to the cells, and write them as soon as they are there."""
        name = contestant.name
        before, left = self.known.get(name), self._left(name)
        if before is None or left:
            cell = compete(self._planned(contestant, left), self.metrics[0], backend, progress)
        else:
            cell = before
        took = f", {duration(cell['seconds'])} of {CPU_TIME}" if self.stacked else ""
        told = f"method {name}: {plural(cell['runs'], 'run')}{took if left else ', there already'}"
        if before is not None and left:
            rows = {**before["seeds"], **cell["seeds"]}
            both = {key: before[key] + cell[key] for key in ("runs", "seconds")}
            both["seeds"] = {str(seed): rows[str(seed)] for seed in self.seeds}
            cell = {**self._planned(contestant, self.seeds).about, **both}
        cells[name] = cell
        if self.out is not None:
            # What the folder has stays until the report is written.
            methods = {**self.known, **cells}
            record = COMPARISON.stamp({"target": KIND, **self.settings, "methods": methods})
            write_sealed(self.out / FILE, plain(record))
        progress.note(told)

    def _record(self, cells: Cells) -> dict[str, Any]:
        subject = self.settings["question"]["method"]
        looked, ratio = self.settings.get("looked", ()), self.settings["test_ratio"]
        record = {**self.settings, **judged(cells, self.metrics, ratio, subject, looked=looked)}
        record["next"] = self._next(cells, record["question"])
        record["versions"] = versions(("rcad", "torch", "numpy", "scipy"))
        return plain(COMPARISON.stamp({"target": KIND, **record}))

    def _next(self, cells: Cells, question: Mapping[str, Any]) -> dict[str, str]:
        """What to do with the answer, and the command for it."""
        needed, outcome, n = question["seeds_needed"], question["outcome"], len(self.seeds)
        for name, rows, role in self.contestants:
            if role != "control" and not any(run["test"] for run in cells[name]["seeds"].values()):
                remedy = "check its term, or lower --lr" if has_own(rows) else "lower --lr"
                lower = float(f"{self.splits[self.seeds[0]][0].optim.lr / 10:.4g}")
                return self._again(f"Every run of {name} diverged; {remedy}", "--lr", lower)
        if longer := more_epochs(cells[BASE]):
            return self._again(f"Train longer, {UNTRAINED}", "--epochs", longer)
        if outcome == "undecided" and question["p_two"] is None and n < (more := min(SEEDS, self.most_seeds)):
            return self._again(f"Run {more} splits", "--seeds", more)
        if self.budget == 1 and any(self.spaces.values()):
            why = "Tune weight decay and each method's hyperparameters with equal budgets"
            return self._again(why, "--budget", TUNED)
        if outcome == "undecided" and needed is not None and n < needed <= self.most_seeds:
            return self._again(f"About {needed} splits would show a difference of the size found", "--seeds", needed)
        name = question["method"] if outcome == "better" else question["against"]
        why = {
            "better": f"Train {name} with the hyperparameters that the splits chose",
            "worse": "Train ERM, which is better here",
            "undecided": "Train ERM: it is cheaper, and nothing is shown to be better",
        }[outcome]
        why += " (no networks are kept for tables)" if self.stacked else ""
        return {"why": why, "command": self._train_line(name, cells[name])}

    def _again(self, why: str, option: str, value: float) -> dict[str, str]:
        """The same command with another value of one option; runs that are kept are used. More splits go into the same
        folder, all else into one of its own."""
        kept = [] if self.stacked or self.out is None else ["--runs", str(self.place.store.path)]
        words = [*self.words, *kept]
        if option not in words:  # what may be kept as a setting
            setting = {"--lr": "optim.lr=", "--epochs": "train.epochs="}[option]
            before = {place for place, word in enumerate(words) if word.startswith(setting)}
            words = [word for place, word in enumerate(words) if not {place, place + 1} & before] + [option, ""]
        words[words.index(option) + 1] = str(value)
        out = f"{(self.out or Path('rcad-compare')).name}{option.removeprefix('-')}-{value}"
        if option == "--seeds" and self.out is not None and {*self.seeds} <= {*range(int(value))}:
            out = str(self.out)
        return {"why": why, "command": command(*words, "--out", out)}

    def _train_line(self, name: str, cell: Mapping[str, Any]) -> str:
        values = {key: _middle(choices) for key, choices in chosen(cell).items()}
        rows = next(contestant.rows for contestant in self.contestants if contestant.name == name)
        split, problem = self.splits[self.seeds[0]]
        # alpha=auto is measured again on all that a run trains on.
        set_values = {key: value for key, value in values.items() if value is not None}
        config = applied(at_start(split, rows, problem), set_values, method_defaults())
        return self.setup.train_line(replace(config, data=replace(config.data, split=None)), values, [0])


def split_methods(text: str | Method | Sequence[str | Method]) -> list[str]:
    """The methods of "erm, rcad(alpha=1, lam=0.1)": commas inside brackets part nothing."""
    if isinstance(text, Method):
        return [str(text)]
    if not isinstance(text, str):
        return [name for part in text for name in split_methods(part)]
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    names = [part.strip() for part in parts if part.strip()]
    if not names:
        raise InputError(f"expected --methods to name methods, e.g. erm,label_smoothing,rcad, but got {text!r}")
    return names


def _middle(values: Sequence[Any]) -> Any:
    """The median of numbers, four digits of it; else the most frequent one."""
    if all(map(is_number, values)):
        middle = statistics.median_low(values)
        return middle if isinstance(middle, int) else float(f"{middle:.4g}")
    return statistics.mode(values)


CHECKED = ("--methods", "--question", "--seeds", "--out", "--epochs")
"""Options that are compared by what they mean."""


def _options(line: str) -> dict[str, str]:
    """The options of `rcad compare ...` that change its runs, by name; those of --set by their field."""
    found = re.findall(r" (?:--set '?)?([\w.-]+)[ =](?!--)(.*?)'?(?= --|$)", line)
    return {name: value for name, value in found if name not in CHECKED}


def _earlier(out: Path, settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The record of an earlier comparison in this folder; refuses settings under which its results would be lost."""
    path, cell = out / FILE, {"key": str, "runs": int, "seconds": float}
    record = earlier([out / name for name in Comparison.NAMES], "comparison", target=KIND)
    if record is None:
        return {}
    kind = {"about": dict, "methods": {str: cell}, "question": {"method": str}}
    before = shaped(f"the comparison in {path}", {"question": settings["question"], **record}, kind)
    asked = {key: settings[key] for key in ("seeds", "budget", "epochs", "metric")}
    there = {key: before.get(key, value) for key, value in asked.items()}
    if {*there["seeds"]} <= {*asked["seeds"]}:  # those that are missing are added
        there["seeds"] = asked["seeds"]
    refuse_changed(path, {**before["about"], **there}, {**plain(settings["about"]), **asked})
    lost = [name for name in before["methods"] if name not in names]
    if lost:
        raise InputError(
            f"expected the methods that {path} compares, but {lost[0]} is not among them; add it, or pass another --out"
        )
    there, asked = ({"--question": one["question"]["method"]} for one in (before, settings))
    refuse_changed(path, there, asked)  # it was asked before the runs
    return before  # type: ignore[no-any-return]
