"""Does it help on MY data? Every method with the same search on the same splits, each split's test set read once.

The first question is asked before the runs: is RCAD better than ERM by one metric? It is judged alone. Everything else,
controls and other metrics, is a second family (see `judge`).
"""

from __future__ import annotations

import logging
import shlex
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError, need, one_of, whole
from rcad.loss.method_rows import method_text, parse_method
from rcad.report import html
from rcad.report.document import Document
from rcad.report.markdown import markdown
from rcad.report.numbers import duration, plural
from rcad.report.result import Result
from rcad.runs.config import KEYS
from rcad.runs.files import Kind, dumps, finite_or_none, loads, read_text, ready_folder, write_text
from rcad.runs.record import versions
from rcad.study.backends import Backend, Scheduled, Stacked, Stopped, can_stack
from rcad.study.compare_page import document, sentences
from rcad.study.judge import QUESTION_RULE, Difference, compare_groups, judge_questions
from rcad.study.ranges import applied, started
from rcad.study.statistics import describe
from rcad.study.study import (
    HIGHER_IS_BETTER,
    METRICS,
    Asked,
    Contestant,
    Goal,
    HeldOut,
    check_held_out,
    check_suitable,
    compete,
    lineup,
    overlap,
    seed_words,
    space_of,
    split_of,
)
from rcad.train.machine import pick_device
from rcad.train.place import Place
from rcad.train.progress import SILENT, Portion, Progress
from rcad.train.run import method_defaults
from rcad.train.task import prepare, read

log = logging.getLogger("rcad")

KIND, FILE = "compare", "compare.json"
FILES = ("index.html", "compare.md", FILE)
TUNED, EPOCHS, SEEDS = 8, 10, 10
"""Candidates a method tries on tables; epochs on small images, which take longer than tables; splits."""
MOST_SEEDS = 100
"""More splits than this are not advised."""
DEFAULT = {"classification": "erm,label_smoothing,rcad", "regression": "erm,rcad"}
Cells = dict[str, dict[str, Any]]
"""What `compete` gave, by the method's name."""


@dataclass(frozen=True)
class Comparison(Result):
    """What `rcad.compare` found.

    Attributes:
        record: everything, as plain data.
        files: the page, the Markdown and the record, where they were written.
    """

    record: Mapping[str, Any]
    files: tuple[Path, ...] = ()

    @property
    def document(self) -> Document:
        return document(self.record)

    @property
    def question(self) -> Mapping[str, Any]:
        """The first comparison: method, against, metric, mean, low, high, p_two, outcome."""
        found: Mapping[str, Any] = self.record["question"]
        return found

    @property
    def next(self) -> str:
        """The command to run next."""
        return str(self.record["next"]["command"])

    @staticmethod
    def read(path: Path | str) -> Comparison:
        """The comparison that a compare.json holds."""
        return COMPARISON.read(Path(path))

    def save(self, folder: Path | str) -> Comparison:
        """Write index.html, compare.md and compare.json."""
        out = Path(folder)
        write_text(out / FILE, dumps(self.record, indent=1) + "\n")
        shown = self.document
        write_text(out / "index.html", html.page(shown))
        write_text(out / "compare.md", markdown(shown))
        return replace(self, files=tuple(out / name for name in FILES))


COMPARISON = Kind("rcad comparison", 1, lambda plain, schema: Comparison(plain))


def compare(
    data: str,
    methods: str | Sequence[str] | None = None,
    *,
    target: str | None = None,
    task: str | None = None,
    size: int | None = None,
    data_options: Mapping[str, Any] | None = None,
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
    progress: Progress = SILENT,
) -> Comparison:
    """Compare methods with ERM on data of yours: tuned alike, tested once on each split, judged.

    Args:
        data: a name, a CSV file or a folder, as `rcad train` takes it.
        methods: "erm,rcad(alpha=0.3)" or a list; by default ERM, label smoothing (on labels) and RCAD. ERM is always
            among them.
        target: the column to predict; `task`: "classification" or "regression"; `size`: of images.
        data_options: more on the data: drop (columns), labels (a file), file_column, label_column, skip_bad.
        metric: what decides, named before the runs: "nll" (the default), "accuracy", "brier"; on real targets "rmse".
        seeds: so many splits, or these seeds; each is a split of its own.
        budget: candidates each method tries on each split; by default 8, and 1 (no tuning) where runs are slow.
        controls: bring RCAD's two controls along.
        epochs, recipe, model, settings: as in `rcad train`; a field that is set is not searched.
        out: the folder of the report; None writes none. What it holds already is not trained again.
        runs: the folder of runs; None for one in `out`.
        data_dir, cache_dir, device: where the data are found, and what trains.
        progress: told how far it is.

    Raises:
        InputError: something is wrong with the input; nothing was trained.
        Stopped: a KeyboardInterrupt; what is done is kept in `out`.
    """
    for module, package, extra in (
        ("jinja2", "jinja2", "report"),
        ("matplotlib.figure", "matplotlib", "report"),
        ("scipy.stats", "scipy", "data"),
    ):
        need(module, package, extra)
    asked = Asked(
        data=data,
        target=target,
        task=task,
        size=size,
        own=data_options or {},
        recipe=recipe,
        epochs=epochs,
        model=model,
        settings=tuple(settings),
    )
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if budget is not None:
        whole("budget", budget, minimum=1)
    with ExitStack() as stack:
        kept = None if out is None else Path(out).expanduser()
        if runs is None:
            folder = kept if kept is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            runs = folder / "runs"
        place = Place.of(Path(runs), data_dir=data_dir, cache_dir=cache_dir, device=device)
        return _Work(asked, methods, metric, numbers, budget, controls, kept, place).go(progress)


class _Work:
    """One comparison; everything that can be wrong with the input is found while it is made."""

    def __init__(
        self,
        asked: Asked,
        methods: str | Sequence[str] | None,
        metric: str | None,
        seeds: list[int],
        budget: int | None,
        controls: bool,
        out: Path | None,
        place: Place,
    ) -> None:
        self.out, self.seeds, self.place = out, seeds, place
        self.about = {"data": asked.data, "target": asked.target, "task": asked.task, **asked.own}
        self.known = {} if out is None else _earlier(out, self.about)
        first = asked.config((("erm", ()),))
        check_held_out(first)
        for key in ("seed", "split"):
            if (value := getattr(first.data, key)) is not None:
                raise InputError(f"expected a split for each seed, but got data.{key}={value}; leave it out")
        dataset = read(first.data, place.data_dir, place.cache_dir)
        self.omissions = dataset.omissions
        names = split_methods(DEFAULT[dataset.task] if methods is None else methods)
        people = lineup([parse_method(text) for text in names], controls=controls)
        if len(people) < 2:
            raise InputError(f"expected a method to compare ERM with, but got {names[0]}; e.g. --methods erm,rcad")
        small = dataset.is_image and first.model.name == "auto" and first.optim.name == "adamw"
        if asked.epochs is None and small:
            asked = replace(asked, epochs=EPOCHS)
        self.asked = asked
        configs = {rows: asked.config(rows) for rows, _ in people}
        self.contestants = [Contestant(method_text(rows), configs[rows].method, role) for rows, role in people]
        where, base = pick_device(place.device), next(iter(configs.values()))
        self.splits = {seed: (one := split_of(base, seed, dataset), prepare(one, dataset, where)) for seed in seeds}
        config, problem = self.splits[seeds[0]]
        check_suitable(self.contestants, config, problem)
        ranked = METRICS[bool(problem.classes)]
        if metric is not None:
            one_of("--metric", metric, ranked)
        self.metrics = [metric or ranked[0], *(one for one in ranked if one != (metric or ranked[0]))]
        self.spaces = {one.name: space_of(one, config, problem, asked) for one in self.contestants}
        self.stacked = all(can_stack(self._started(one), problem) for one in self.contestants)
        self.budget = (TUNED if self.stacked else 1) if budget is None else budget
        self.held_out = HeldOut(len(problem.val[1]), 1, self.metrics[0])
        # Each split chooses for itself, so that its own held-out rows are all that it has to choose by.
        self.settings: dict[str, Any] = {
            "about": self.about,
            "data": first.data.name,
            "command": self._command(names, controls),
            "seeds": seeds,
            "budget": self.budget,
            "epochs": config.train.epochs,
            "metric": self.metrics[0],
            "metrics": self.metrics,
            "test_ratio": overlap(dataset, problem.splits),
            "sizes": {"train": len(problem.train[1]), "validation": len(problem.val[1]), "test": len(problem.test[1])},
            "held_out": self.held_out.to_dict(),
            "cost": "CPU time" if self.stacked else "time",
        }
        if out is not None:
            _check_goes_on(out, self.settings, [one.name for one in self.contestants])

    def _command(self, names: Sequence[str], controls: bool) -> str:
        """`rcad compare ...` with what was left to it written out."""
        words = ["rcad", "compare", "--data", self.asked.data, "--methods", ",".join(names), *self.asked.options()]
        words += [word for setting in self.asked.settings for word in ("--set", setting)]
        words += ["--metric", self.metrics[0], *seed_words(self.seeds), "--budget", str(self.budget)]
        return shlex.join([*words, *([] if controls else ["--no-controls"])])

    def _started(self, one: Contestant) -> Any:
        config, problem = self.splits[self.seeds[0]]
        rows = started(one.rows, labels=bool(problem.classes), table=problem.train[0].ndim == 2)
        return replace(config, method=rows)

    def go(self, progress: Progress) -> Comparison:
        """Train, judge, write."""
        for sentence in self.omissions:
            progress.note(sentence)
        if self.out is not None:
            ready_folder(self.out)
        problems = {seed: problem for seed, (_, problem) in self.splits.items()}
        backend: Backend = Stacked(problems) if self.stacked else Scheduled(self.place)
        if self.held_out.few and self.budget > 1:
            log.warning(
                "on each split %s; hold out more (--set data.validation=0.3) or tune nothing (--budget 1)",
                self.held_out,
            )
        cells: Cells = {}
        try:
            for number, one in enumerate(self.contestants):
                self._compete(one, backend, cells, Portion(progress, number, 1, len(self.contestants), one.name))
        except KeyboardInterrupt as stop:
            done = f"{len(cells)} of {plural(len(self.contestants), 'method')} done"
            code = stop.exit_code if isinstance(stop, Stopped) else 130
            raise Stopped(f"stopped with {done}; the same command goes on from here", code) from stop
        found = Comparison(self._record(cells))
        return found if self.out is None else found.save(self.out)

    def _compete(self, one: Contestant, backend: Backend, cells: Cells, progress: Progress) -> None:
        """One method, kept as soon as it is done."""
        known, goal = self.known.get(one.name), Goal(self.metrics[0])
        cell = compete(one, self.splits, self.spaces[one.name], self.budget, goal, backend, progress, known)
        cells[one.name] = cell
        if self.out is not None:
            # Methods of an earlier comparison that are not in this one stay until its report is written.
            kept = COMPARISON.stamp({"target": KIND, "about": self.about, "methods": {**self.known, **cells}})
            write_text(self.out / FILE, dumps(_plain(kept), indent=1) + "\n")
        again = known is not None and known.get("key") == cell["key"]
        took = "there already" if again else f"{duration(cell['seconds'])} of {self.settings['cost']}"
        progress.note(f"{one.name}: {plural(cell['runs'], 'run')}, {took}")

    def _record(self, cells: Cells) -> dict[str, Any]:
        record = {**self.settings, **judged(cells, self.metrics, self.settings["test_ratio"])}
        record["next"] = self._next(cells, record["question"])
        record["versions"] = versions(("rcad", "torch", "numpy", "scipy"))
        return _plain(COMPARISON.stamp({"target": KIND, **record}))

    def _next(self, cells: Cells, question: Mapping[str, Any]) -> dict[str, str]:
        """What to do with the answer, and the command for it."""
        needed, outcome, n = question["seeds_needed"], question["outcome"], len(self.seeds)
        command = shlex.split(self.settings["command"])
        if outcome == "undecided" and question["p_two"] is None and n < SEEDS:
            return {"why": f"Run {SEEDS} splits", "command": _again(command, "--seeds", str(SEEDS), self.out)}
        if outcome == "undecided" and self.budget == 1 and any(self.spaces.values()):
            why = "Nothing was tuned; search weight decay and each method's own numbers, with the same number of tries"
            return {"why": why, "command": _again(command, "--budget", str(TUNED), self.out)}
        if outcome == "undecided" and needed is not None and n < needed <= MOST_SEEDS:
            why = f"About {needed} splits would show a difference of the size found"
            return {"why": why, "command": _again(command, "--seeds", str(needed), self.out)}
        name = question["method"] if outcome == "better" else question["against"]
        why = {
            "better": f"Train {name} with the numbers that the splits chose",
            "worse": "Train ERM, which is better here",
            "undecided": "Train ERM: it is the cheaper one, and nothing better is shown",
        }[outcome]
        return {"why": why, "command": self._train_line(name, cells[name])}

    def _train_line(self, name: str, cell: Mapping[str, Any]) -> str:
        values = {key: _middle([one["chosen"][key] for one in cell["seeds"].values()]) for key in _keys(cell)}
        one = next(one for one in self.contestants if one.name == name)
        # alpha=auto is measured again on all that a run trains on.
        config = applied(self._started(one), {k: v for k, v in values.items() if v is not None}, method_defaults())
        fields = {key: value for key, value in values.items() if key in KEYS}
        return self.asked.train_line(replace(config, data=replace(config.data, split=None)), fields, [0])


def judged(cells: Cells, metrics: Sequence[str], test_ratio: float) -> dict[str, Any]:
    """The part of a record that follows from the results alone.

    Args:
        cells: by method, as `compete` gives them.
        metrics: the one that the question is about comes first.
        test_ratio: n_test / n_train where splits overlap.
    """
    pairs = compared(cells, metrics, test_ratio)
    record = {
        "metric": metrics[0],
        "metrics": list(metrics),
        "seeds": [int(seed) for seed in next(iter(cells.values()))["seeds"]],
        "seconds": sum(cell["seconds"] for cell in cells.values()),
        "base": next(name for name, cell in cells.items() if cell["role"] == "base"),
        "rule": QUESTION_RULE,
        "methods": {name: {**cell, "chosen": _chosen(cell)} for name, cell in cells.items()},
        "results": summaries(cells, metrics),
        "question": pairs[0],
        "differences": pairs,
    }
    return {**record, "sentences": sentences(record)}


def compared(cells: Cells, metrics: Sequence[str], test_ratio: float) -> list[dict[str, Any]]:
    """The question, judged alone; then every method against ERM and RCAD against its controls, by every metric."""
    base = next(name for name, cell in cells.items() if cell["role"] == "base")
    controls = [name for name, cell in cells.items() if cell["role"] == "control"]
    asked = [name for name, cell in cells.items() if cell["role"] == "asked"]
    first = next((name for name in asked if _has_rcad(name)), asked[0])
    pairs = [(first, base), *((name, base) for name in cells if name not in (base, first))]
    pairs += [(name, control) for name in asked if _has_rcad(name) for control in controls]
    every = [(*pair, metric) for metric in metrics for pair in pairs]
    found = [
        compare_groups(
            results(cells[ours], metric),
            results(cells[theirs], metric),
            higher_is_better=HIGHER_IS_BETTER[metric],
            test_ratio=test_ratio,
        )
        for ours, theirs, metric in every
    ]
    judged: list[Difference] = [*judge_questions(found[:1]), *judge_questions(found[1:])]
    return [
        {"method": ours, "against": theirs, "metric": metric, **one.to_dict()}
        for (ours, theirs, metric), one in zip(every, judged, strict=True)
    ]


def results(cell: Mapping[str, Any], metric: str) -> dict[int, float | None]:
    """A method's test results by seed."""
    return {int(seed): (one["test"] or {}).get(metric) for seed, one in cell["seeds"].items()}


def summaries(cells: Cells, metrics: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Mean, deviation and interval of every method and metric; the values by seed; how many runs diverged."""
    found: dict[str, dict[str, Any]] = {}
    for name, cell in cells.items():
        found[name] = {}
        for metric in metrics:
            values = results(cell, metric)
            good = [value for value in values.values() if value is not None]
            summary = describe(good).to_dict() if good else None
            found[name][metric] = {"values": values, "summary": summary, "diverged": len(values) - len(good)}
    return found


def split_methods(text: str | Sequence[str]) -> list[str]:
    """The methods of "erm, rcad(alpha=1, lam=0.1)": commas inside brackets part nothing."""
    if not isinstance(text, str):
        return [one for part in text for one in split_methods(part)]
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


def _has_rcad(name: str) -> bool:
    return "rcad" in [part.strip().partition("(")[0] for part in name.split(" + ")]


def _again(command: Sequence[str], option: str, value: str, out: Path | None) -> str:
    """The same command with another value of one option, into a folder of its own."""
    words = list(command)
    words[words.index(option) + 1] = value
    name = (out or Path("rcad-compare")).name
    return shlex.join([*words, "--out", f"{name}-{value}{option.removeprefix('-')}"])


def _keys(cell: Mapping[str, Any]) -> list[str]:
    return list(next(iter(cell["seeds"].values()))["chosen"])


def _middle(values: Sequence[Any]) -> Any:
    """The median of numbers, four digits of it; else the most frequent one."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        middle = statistics.median_low(values)
        return middle if isinstance(middle, int) else float(f"{middle:.4g}")
    return statistics.mode(values)


def _chosen(cell: Mapping[str, Any]) -> dict[str, str]:
    rows = [one["chosen"] for one in cell["seeds"].values()]
    return {key: typical([row[key] for row in rows]) for key in _keys(cell)}


def typical(values: Sequence[Any]) -> str:
    """Chosen numbers over the splits: the median and the ends."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return ", ".join(dict.fromkeys(map(str, values)))
    low, high = min(numbers), max(numbers)
    return f"{low:.3g}" if low == high else f"{statistics.median(numbers):.3g} ({low:.3g} to {high:.3g})"


def _earlier(out: Path, about: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The methods that an earlier comparison on the same data left in this folder, by name; all else is refused."""
    path = out / FILE
    found: Any = loads(read_text(path), str(path)) if path.is_file() else None
    if isinstance(found, dict) and found.get("target") == KIND:
        if found.get("about") != about:
            other = (found.get("about") or {}).get("data")
            raise InputError(f"expected a folder for this data, but {path} compares on {other!r}; pass another --out")
        return dict(found["methods"])
    for name in FILES:
        if (out / name).exists():
            raise InputError(
                f"expected a folder for the comparison, but {out / name} is something else; pass another --out"
            )
    return {}


def _check_goes_on(out: Path, settings: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuses settings under which results that are in the folder would be lost."""
    path = out / FILE
    if not path.is_file():
        return
    found: Any = loads(read_text(path), str(path))
    for key in ("seeds", "budget", "epochs", "metric"):
        if found.get(key, settings[key]) != settings[key]:
            raise InputError(
                f"expected {key} {found[key]} as in {path}, but got {settings[key]}; pass another --out to keep both"
            )
    lost = [name for name in found["methods"] if name not in names]
    if lost:
        raise InputError(
            f"expected the methods that {path} compares, but {lost[0]} is not among them; add it, or pass another --out"
        )


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = loads(dumps(finite_or_none(record)), "the record of a comparison")
    return plain
