"""One study: methods x splits x candidates. Every method gets the same number of candidates on each split, one of them
is chosen by the held-out rows, and that one alone is tested.

`rcad tune` is one method on the splits that its trials share; `rcad compare` is several methods, each of which chooses
on every split by itself.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rcad.data.dataset import Dataset, Splits, parse_spec
from rcad.errors import InputError, command, one_of, shown, whole
from rcad.loss.likelihoods import Categorical
from rcad.loss.method_rows import SEARCHED, Defaults, MethodRow, has_own, label, method_rows, sources
from rcad.loss.methods import METHODS, Method, method_defaults
from rcad.loss.objective import Loss
from rcad.runs.config import KEYS, DataConfig, RunConfig
from rcad.runs.configure import configure
from rcad.runs.files import dumps
from rcad.runs.plain import config_id
from rcad.runs.recipes import RECIPES
from rcad.runs.record import RunRecord
from rcad.runs.words import BY_CHANCE, FEW, own_words
from rcad.study.backends import Backend, Metrics, is_table
from rcad.study.space import Space, Values, applied, beginning, default_space, drawn, resolved, started
from rcad.train.place import Place
from rcad.train.progress import SILENT, Progress
from rcad.train.scheduler import canonical_config, check_data, weights_hash
from rcad.train.task import Problem, measured_alpha, method_of, with_numbers

BASE = "erm"
Role = Literal["base", "asked", "control"]
METRICS = {True: ("nll", "accuracy", "brier"), False: ("nll", "rmse")}
"""By whether there are class labels; the first one decides where none is asked for."""
HIGHER_IS_BETTER = {"accuracy": True, "nll": False, "brier": False, "rmse": False}
WORDS = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "rmse": "RMSE"}
UNITS = {"accuracy": " points", "nll": " nats", "brier": "", "rmse": ""}
Z = 1.96
"""The normal's 97.5% point."""


def named_data(data: Any) -> str:
    """The name of the data; raises InputError for a table or an array in memory, which no command could find again."""
    if isinstance(data, str | Path):
        return str(data)
    save = "data.to_csv('my.csv', index=False)" if hasattr(data, "to_csv") else "numpy.savez('my.npz', x=x, y=y)"
    raise InputError(
        f"expected data to be a name, a file or a folder, but got {type(data).__name__}; write it to a file: {save}"
    )


def each_once(seeds: int | Sequence[int]) -> list[int]:
    """The seeds of 3 (0, 1, 2) or of [3, 5, 7]; raises InputError where there is none, or one twice."""
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    for number in numbers:
        whole("each of seeds", number, minimum=0)
    if not numbers or len({*numbers}) < len(numbers):
        raise InputError(f"expected seeds to be a number >= 1 or a list of seeds, each once, but got {shown(seeds)}")
    return numbers


def seeds_text(seeds: Sequence[int]) -> str:
    """What --seeds takes for these: 3 for 0, 1 and 2; "5," for 5 alone."""
    if list(seeds) == list(range(len(seeds))):
        return str(len(seeds))
    return ",".join(map(str, seeds)) + "," * (len(seeds) == 1)


@dataclass(frozen=True)
class Setup:
    """The data and how to train on it, as `rcad train` takes them; None where the user said nothing.

    `own` has further fields of the data that the user gave: drop, labels, file_column, label_column, skip_bad.
    """

    data: str
    target: str | None = None
    task: str | None = None
    size: int | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    epochs: int | None = None
    model: str | None = None
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in self.own:
            one_of("a key of data_options", key, ("drop", "labels", "file_column", "label_column", "skip_bad"))

    def config(self, rows: tuple[MethodRow, ...]) -> RunConfig:
        """The config of a method under the recipe that suits the data, with seed 0; one that has splits to judge by."""
        data = {"name": self.data, "target": self.target, "task": self.task, "size": self.size, **self.own}
        model = [] if self.model is None else [f"model.name={self.model}"]
        of_methods = any(setting.strip().startswith("method.") for setting in self.settings)
        config = configure(
            {key: value for key, value in data.items() if value is not None},
            rows,
            recipe=self.recipe,
            epochs=self.epochs,
            settings=[*model, *self.settings],
            methods=method_defaults() if of_methods else None,
            leave=SEARCHED,
        )
        if not config.data.test_fraction:
            raise InputError(
                "expected a test split, but got data.test_fraction=0, which is for rcad train; leave it out"
            )
        if config.data.validation > 0:
            return config
        if not self.held_back:
            raise InputError(
                "expected examples held out for validation, by which compare and tune choose, but got "
                "data.validation=0; leave it out"
            )
        return replace(config, data=replace(config.data, validation=DataConfig.validation))

    @property
    def held_back(self) -> list[str]:
        """That a study holds examples out where the recipe, not the user, has none: a note; else nothing."""
        recipe = RECIPES.get(self.recipe or "")
        if recipe is None or recipe.data.get("validation") != 0 or "data.validation" in self.fixed:
            return []
        share = f"{DataConfig.validation:.0%} of the training examples are held out here"
        return [f"{share}, to choose by; rcad train --recipe {self.recipe} holds out none"]

    @property
    def fixed(self) -> set[str]:
        return {setting.partition("=")[0].strip() for setting in self.settings}

    def options(self) -> list[str]:
        """The options of a command line that the user gave, without settings."""
        names = ("target", "task", "size", "recipe", "epochs", "model")
        options = {f"--{name}": value for name in names if (value := getattr(self, name)) is not None}
        return [word for option, value in options.items() for word in (option, str(value))] + own_words(self.own)

    def line(self, name: str, *more: str) -> list[str]:
        """`rcad compare ...` or `rcad tune ...` with what the user said of data and training."""
        words = ["rcad", name, "--data", self.data, *more, *self.options()]
        return [*words, *(word for setting in self.settings for word in ("--set", setting))]

    def train_line(self, config: RunConfig, values: Values, seeds: Sequence[int]) -> str:
        """`rcad train ...` for the runs of a chosen config; of the chosen values those that are fields are set."""
        words = ["rcad", "train", "--data", config.data.name, "--method", label(config.method), *self.options()]
        # The method's own settings are in its text already, and a chosen field comes after the user's.
        settings = [setting for setting in self.settings if not setting.strip().startswith("method")]
        settings += [f"{key}={value}" for key, value in values.items() if key in KEYS]
        words += [word for setting in settings for word in ("--set", setting)]
        return command(*words, "--seed" if len(seeds) == 1 else "--seeds", ",".join(map(str, seeds)))


def rank(metric: str, metrics: Metrics | None) -> tuple[float, float]:
    """How good a candidate is by a held-out metric, and by NLL where two are level: larger is better."""
    if metrics is None or not all(math.isfinite(metrics.get(name, math.nan)) for name in (metric, "nll")):
        return -math.inf, -math.inf
    return metrics[metric] * (1 if HIGHER_IS_BETTER[metric] else -1), -metrics["nll"]


def ranked_metrics(asked: str | None, problem: Problem) -> list[str]:
    """The metrics of a study; the one that decides comes first: the one that was asked for, else NLL."""
    metrics = METRICS[bool(problem.classes)]
    if asked is not None:
        one_of("--metric", asked, metrics)
    return sorted(metrics, key=lambda metric: metric != (asked or metrics[0]))


class HeldOut(NamedTuple):
    """How many examples of each seed's held-out split a choice is made by: the fewer they are, the more it is chance.

    The numbers are averaged over the seeds before the choice; `metric` decides.
    """

    examples: int
    seeds: int
    metric: str

    @property
    def few(self) -> bool:
        return self.examples * self.seeds < FEW

    @property
    def points(self) -> float | None:
        """Half the 95% interval of an accuracy over all of them, where it is widest: at 50%. None for other metrics."""
        return 100 * Z * math.sqrt(0.25 / (self.examples * self.seeds)) if self.metric == "accuracy" else None

    def __str__(self) -> str:
        many = "1 validation example" if self.examples == 1 else f"{self.examples:,} validation examples"
        where = f" on each of {self.seeds} seeds" if self.seeds > 1 else ""
        if self.points is None:
            return f"chosen by {many}{where}" + (f", {BY_CHANCE}" if self.few else "")
        return (
            f"chosen by {many}{where}: an accuracy over them is uncertain by {self.points:.2g} points (half the 95% "
            "interval at its widest), so smaller differences may be chance"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"examples": self.examples, "seeds": self.seeds, "points": self.points, "told": str(self)}


class Contestant(NamedTuple):
    """A method of the study: its name in tables, its rows with what the user set, and its role."""

    name: str
    rows: tuple[MethodRow, ...]
    role: Role


def controls_of(rows: tuple[MethodRow, ...]) -> list[tuple[MethodRow, ...]]:
    """RCAD's two controls, with its settings as far as they have them: a random direction as far away, and no step."""
    if all(name != "rcad" for name, _ in rows):
        return []
    controls, parameters = [], method_defaults()
    for control in ("rcad_random", "confidence_penalty"):
        shared = parameters[control]
        swapped = [
            (control, [(k, v) for k, v in own if k in shared]) if name == "rcad" else (name, own) for name, own in rows
        ]
        controls.append(method_rows(swapped))
    return controls


def lineup(methods: Sequence[tuple[MethodRow, ...]], *, controls: bool) -> list[tuple[tuple[MethodRow, ...], Role]]:
    """The methods that take part, each once: ERM, those that the user named, RCAD's controls."""
    roles: dict[tuple[MethodRow, ...], Role] = {method_rows([(BASE, ())]): "base"}
    for rows in methods:
        roles.setdefault(rows, "asked")
    for control in (control for rows in methods if controls for control in controls_of(rows)):
        roles.setdefault(control, "control")
    return list(roles.items())


def check_suitable(contestants: Sequence[Contestant], config: RunConfig, problem: Problem) -> None:
    """Refuse a method that does not suit the data before anything is trained, and name those that do."""
    for contestant in contestants:
        try:
            method_of(at_start(config, contestant.rows, problem), problem)
        except InputError as error:
            names = [name for name in METHODS if _suits(name, config, problem)]
            images = problem.classes and not is_table(problem)
            if images or has_own(contestant.rows) or all(name in names for name, _ in contestant.rows):
                raise
            kind = "tables" if problem.classes else "regression"
            raise InputError(
                f"expected methods for {kind} ({', '.join(names)}), but got {contestant.name!r}; leave it out"
            ) from error


def _suits(name: str, config: RunConfig, problem: Problem) -> bool:
    try:
        method_of(at_start(config, method_rows([(name, ())]), problem), problem)
    except InputError:
        return False
    return name not in ("gaussian", "bernoulli")


def at_start(config: RunConfig, rows: tuple[MethodRow, ...], problem: Problem) -> RunConfig:
    """The config of a method where its search begins on this data."""
    return replace(config, method=started(rows, labels=bool(problem.classes), table=is_table(problem)))


def split_of(config: RunConfig, seed: int, dataset: Dataset) -> RunConfig:
    """The config on the split that belongs to a seed: the standard one of that number where there are some."""
    count = len(dataset.standard_splits)
    if not count or config.data.split is not None:
        return replace(config, seed=seed)
    if seed >= count:
        raise InputError(
            f"expected seeds below {count}, the number of standard splits of {dataset.name}, but got {seed}; pass "
            f"--seeds {count} or less"
        )
    return replace(config, data=replace(config.data, split=seed), seed=seed)


def overlap(dataset: Dataset, splits: Splits) -> float:
    """Nadeau and Bengio's n_test / n_train; 0 where the data bring a test set of their own."""
    # What counts as training rows is all that is outside the test set, held-out rows and those of no subset included:
    # two splits share the more of their test rows the fewer of those there are.
    if splits.test_source == "own":
        return 0.0
    return len(splits.test) / (len(dataset.train) - len(splits.test))


def overlap_of(records: Sequence[RunRecord]) -> float:
    """The same of finished runs, 0 where all seeds share a test split; of a subset up to rounding."""
    data, sizes = records[0].config.data, {name: split.size for name, split in records[0].splits.items()}
    if len({record.splits.get("test") for record in records}) == 1:
        return 0.0
    if parse_spec(data.name)[1] is not None and data.split is None:  # a record has no number of the rows left out
        return data.test_fraction / (1 - data.test_fraction)
    return sizes["test"] / max(sizes["train"] + sizes.get("validation", 0), 1)


def passes(method: Method, epochs: int) -> float:
    """The passes of a run for each training example: a forward counts 1, a backward 2, an epoch of plain training 3."""
    loss = Loss(method.likelihood or Categorical(), method.terms)
    turns = math.lcm(*(term.every for term in method.terms))
    step = sum(loss.plan(turn).cost for turn in range(turns)) / turns
    total, size = 0.0, 1
    for epoch in range(1, epochs + 1):
        total += step * size
        if method.growth is not None and method.growth.due(epoch) and epoch < epochs:
            total += (1 + 2 * method.growth.steps) * size
            size *= 2
    return total


def space_of(rows: tuple[MethodRow, ...], config: RunConfig, problem: Problem, setup: Setup) -> Space:
    return default_space(replace(config, method=rows), images=not is_table(problem), fixed=setup.fixed)


class Plan(NamedTuple):
    """What a method tries: the values and the config of each candidate, which of them each split has, and about it all.

    Two plans of the same configs, data and metric have the same `key`; `made_from` has a digest of each thing outside
    of the config.
    """

    points: list[Values]
    configs: list[RunConfig]
    places: dict[int, list[int]]
    about: dict[str, Any]


def planned(
    contestant: Contestant,
    splits: Mapping[int, tuple[RunConfig, Problem]],
    space: Space,
    budget: int,
    metric: str,
) -> Plan:
    """The plan of a method with `budget` candidates on each split (1: the start alone)."""
    methods: Defaults = method_defaults()
    configs: list[RunConfig] = []
    points: list[Values] = []
    places: dict[int, list[int]] = {}
    for seed, (config, problem) in splits.items():
        base, alpha = at_start(config, contestant.rows, problem), measured_alpha(problem)
        first = beginning(base, space, methods, alpha)
        candidates = drawn(resolved(space, alpha if problem.classes else None), budget, first=first)
        places[seed] = list(range(len(points), len(points) + len(candidates)))
        points += candidates
        configs += [applied(base, values, methods) for values in candidates]
    data = [problem.fingerprint for _, problem in splits.values()]
    weights = [*filter(None, {weights_hash(config): None for config in configs})]
    about = {
        "key": _digest([*map(config_id, configs), *data, metric, *weights]),
        "made_from": {"data": _digest(data), "weights": _digest(weights), "code": _digest(sources(contestant.rows))},
        "name": contestant.name,
        "role": contestant.role,
        "passes": statistics.fmean(passes(with_numbers(config.method), config.train.epochs) for config in configs),
        "space": [str(parameter) for parameter in space] if budget > 1 else [],
    }
    return Plan(points, configs, places, about)


def _digest(values: Sequence[Any]) -> str:
    return hashlib.sha256(dumps(values).encode()).hexdigest()[:16]


def unfinished(configs: Sequence[RunConfig], place: Place) -> int:
    """How many of the runs are not over; raises where the data of one that is have changed."""
    over = [config for config in map(canonical_config, configs) if place.final_record(config) is not None]
    check_data(over, place, SILENT)
    return len(configs) - len(over)


def compete(plan: Plan, metric: str, backend: Backend, progress: Progress) -> dict[str, Any]:
    """The results of a method on every split: of its candidates `metric` chooses one (see `rank`), tested once."""
    held = backend.fit(plan.configs, progress)
    chosen = [max(own, key=lambda k: rank(metric, held[k])) for own in plan.places.values()]
    tested, longer = backend.test(chosen), backend.more_epochs(chosen)
    return {
        **plan.about,
        "seconds": backend.seconds,
        "runs": len(plan.configs),
        "seeds": {
            str(seed): {
                "chosen": dict(plan.points[k]),
                "validation": held[k],
                "test": test,
                "more_epochs": epochs,
                "trials": [{"values": dict(plan.points[i]), "validation": held[i]} for i in own],
            }
            for (seed, own), k, test, epochs in zip(plan.places.items(), chosen, tested, longer, strict=True)
        },
    }
