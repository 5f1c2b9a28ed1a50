"""The tuned protocol of an image table: every method, ERM included, has the same number of candidates.

A candidate is a weight decay and the method's own parameters. Held-out images choose, by seeds that the table does not
use; the table itself is made of fresh seeds. One design for all methods: the first candidate is the paper's setting,
the others are points of a Halton sequence, whose first coordinate is the weight decay: all methods try the same ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rcad.loss.method_rows import MethodRow, method_rows
from rcad.paper.benchmarks import PARTS, Benchmark, Scale, Setting
from rcad.paper.claims import ENTROPY, RANDOM
from rcad.paper.suite import Plan, PlannedRun, Suite, in_bf16
from rcad.runs.config import ModelConfig, RunConfig
from rcad.runs.plain import config_id
from rcad.runs.record import FINISHED
from rcad.runs.store import Store
from rcad.study.space import Parameter, parse_space

CANDIDATES: Mapping[Scale, int] = {"smoke": 2, "small": 4, "full": 8}
TUNING_SEEDS: Mapping[Scale, tuple[int, ...]] = {"smoke": (1000,), "small": (1000, 1001), "full": (1000, 1001)}
HELD_OUT = 0.2
"""Share of a tuning run's images that choose; the table's runs hold out the paper's 10%."""
DECAY = "optim.weight_decay"
STEP_AND_WEIGHT = "alpha=log(0.5, 60), lam=log(0.02, 10)"
OWN: Mapping[str, str] = {
    "LS": "eps=uniform(0.05, 0.7)",
    "MixUp": "alpha=log(0.1, 2)",
    "FGSM": "alpha=log(0.002, 0.05)",
    "ADA": "gamma=log(0.1, 10), step_size=log(0.004, 0.4)",
    "ME-ADA": "eta=log(0.1, 10), step_size=log(0.004, 0.4)",
    "RCAD": STEP_AND_WEIGHT,
    RANDOM: STEP_AND_WEIGHT,
    ENTROPY: "lam=log(0.02, 10)",
}
"""What a method may choose besides its weight decay."""
DECAYS = f"{DECAY}=log(0.0002, 0.005)"
BESIDE = ("MixUp", "two views")
"""Rows that every tuned table has beside its own."""
PRIMES = (2, 3, 5, 7, 11, 13)
WHOLE_DECAYS = (1e-3,)
"""Beside the paper's: all that is tried on a whole data set, where a run takes as long as a search on a small one."""
UNNORMALISED_LR = 0.05
"""Of the small CNN, which has no normalisation: the paper's 0.1 is that of a network with BatchNorm."""
MODEL_TITLES = {"small_cnn": "a small CNN without BatchNorm"}
Values = Mapping[str, float]


@dataclass(frozen=True)
class Trial:
    """A candidate and what the held-out images said of it at the last epoch; None where a run diverged."""

    values: Values
    metrics: Mapping[str, float] | None
    runs: tuple[str, ...]


def halton(index: int, base: int) -> float:
    """The index-th number of van der Corput's sequence in a base, in (0, 1)."""
    share, found = 1.0, 0.0
    while index:
        share /= base
        found += share * (index % base)
        index //= base
    return found


def space(label: str) -> list[Parameter]:
    """What a row may choose: weight decay first, then the parameters of each of its parts."""
    found = list(parse_space(DECAYS))
    for part in label.split(" + "):
        found += [replace(one, key=f"{part}.{one.key}") for one in parse_space(OWN[part])] if part in OWN else []
    return found


def candidates(label: str, count: int) -> list[Values]:
    """The paper's setting ({}), then points of the sequence."""
    parameters = space(label)
    points: list[Values] = [{}]
    for index in range(1, count):
        shares = [halton(index, base) for base in PRIMES[: len(parameters)]]
        points.append({one.key: float(one.at(share)) for one, share in zip(parameters, shares, strict=True)})
    return points


def tuned_suite(suite: Suite, model: str | None) -> Suite:
    """The suite with the rows that every tuned table has, and the network in its title."""
    rows = tuple(row for row in BESIDE if row not in suite.rows)
    kept = tuple(row for row in suite.rows if row not in suite.controls)
    columns = tuple(
        replace(column, rows=None if column.rows is None else (*column.rows, *rows)) for column in suite.columns
    )
    title = suite.title if model is None else suite.title.replace("ResNet-18", MODEL_TITLES[model])
    return replace(suite, title=f"{title}, every method tuned", rows=(*kept, *rows, *suite.controls), columns=columns)


def config_of(
    benchmark: Benchmark, scale: Scale, label: str, values: Values, seed: int, model: str | None
) -> RunConfig:
    """The run of a candidate under the paper's protocol but for what it sets."""
    from rcad.train.scheduler import canonical_config

    setting = Setting(benchmark, scale, "one view")
    parts = []
    for part in label.split(" + "):
        name, parameters = PARTS[part](setting)
        own = {key.removeprefix(f"{part}."): value for key, value in values.items() if key.startswith(f"{part}.")}
        parts.append((name, {**parameters, **own}))
    rows: tuple[MethodRow, ...] = method_rows([one for one in parts if one[0] != "erm" or len(parts) == 1])
    config = benchmark.config(scale, rows, seed)
    if DECAY in values:
        config = replace(config, optim=replace(config.optim, weight_decay=values[DECAY]))
    if model is not None:
        optim = replace(config.optim, lr=UNNORMALISED_LR) if config.optim.name == "sgd" else config.optim
        config = replace(config, model=ModelConfig(name=model), optim=optim)
    return canonical_config(config)


@dataclass(frozen=True)
class Search:
    """The candidates of every row of every column, and their runs."""

    plan: Plan
    model: str | None

    @property
    def seeds(self) -> tuple[int, ...]:
        return TUNING_SEEDS[self.plan.scale]

    def cells(self) -> list[tuple[str, str]]:
        """(row, column) of all that is run."""
        suite = self.plan.suite
        return [(row, name) for name in self.plan.columns for row in suite.rows_of(suite.column(name))]

    def trial_configs(self, row: str, column: str) -> list[tuple[Values, list[RunConfig]]]:
        """Each candidate with its runs: more images held out, seeds of their own."""
        found = []
        whole = self._is_whole(column)
        tried = [{}, *({DECAY: one} for one in WHOLE_DECAYS)] if whole else candidates(row, CANDIDATES[self.plan.scale])
        for values in tried:
            configs = [self._config(row, column, values, seed) for seed in self.seeds[: 1 if whole else None]]
            held = [replace(one, data=replace(one.data, validation=HELD_OUT)) for one in configs]
            found.append((values, held))
        return found

    def tuning(self) -> Plan:
        """The plan of the search."""
        runs = tuple(
            PlannedRun(row, column, config)
            for row, column in self.cells()
            for _, configs in self.trial_configs(row, column)
            for config in configs
        )
        return replace(self.plan, runs=runs)

    def choose(self, store: Store) -> list[dict[str, Any]]:
        """Every trial of each cell and the chosen one: the least held-out NLL at the last epoch, mean over seeds.

        A cell whose search is not done, because other rows were asked for, has no choice yet.
        """
        found = []
        for row, column in self.cells():
            tried = self.trial_configs(row, column)
            if any(store.status(one) not in FINISHED for _, configs in tried for one in configs):
                continue
            trials = [self._trial(values, configs, store) for values, configs in tried]
            good = [k for k, trial in enumerate(trials) if trial.metrics is not None]
            chosen = min(good, key=lambda k: trials[k].metrics["nll"]) if good else None  # type: ignore[index]
            found.append({"row": row, "column": column, "chosen": chosen, "trials": [asdict(one) for one in trials]})
        return found

    def table(self, choices: Sequence[Mapping[str, Any]]) -> Plan:
        """The plan of the table: the chosen candidates on fresh seeds; a row whose candidates all diverged has none."""
        runs = tuple(
            PlannedRun(one["row"], one["column"], self._config(one["row"], one["column"], _values(one), seed))
            for seed in self.plan.seeds
            for one in choices
            if one["chosen"] is not None
        )
        return replace(self.plan, runs=runs)

    def design(self) -> str:
        """The search in words, for the page."""
        count, seeds = CANDIDATES[self.plan.scale], self.seeds
        network = "" if self.model is None else f" The network is {self.model}, lr {UNNORMALISED_LR:g}."
        decays = " and ".join(f"{one:g}" for one in WHOLE_DECAYS)
        sets = "; ".join(name for name in self.plan.columns if self._is_whole(name))
        whole = f" Whole data sets ({sets}): the paper's setting and weight decay {decays}, one seed." if sets else ""
        ranges = "; ".join(f"{name}: {text}" for name, text in OWN.items())
        return (
            f"Every method chose among {count} candidates: the paper's setting, and {count - 1} points of a Halton "
            f"sequence over weight decay ({DECAYS.partition('=')[2]}, the same values for all methods) and the "
            f"method's own parameters ({ranges}). {HELD_OUT:.0%} of the images were held out and chose, by NLL at the "
            "last epoch, "
            f"mean over {len(seeds)} seeds ({', '.join(map(str, seeds))}) that the table does not use.{whole}{network}"
        )

    def _is_whole(self, column: str) -> bool:
        return self.plan.suite.column(column).benchmark.count is None

    def _config(self, row: str, column: str, values: Values, seed: int) -> RunConfig:
        benchmark = self.plan.suite.column(column).benchmark
        config = config_of(benchmark, self.plan.scale, row, values, seed, self.model)
        return in_bf16(config) if self.plan.precision == "bf16" else config

    def _trial(self, values: Values, configs: Sequence[RunConfig], store: Store) -> Trial:
        records = [store.get(config_id(config)) for config in configs]
        scores = [one.epochs[-1].get("val_nll") if one.status == "done" and one.epochs else None for one in records]
        ids = tuple(one.id for one in records)
        nll = [score for score in scores if score is not None]
        accuracy = [score for one in records if (score := one.metrics.get("val_accuracy")) is not None]
        if min(len(nll), len(accuracy)) < len(records):
            return Trial(values, None, ids)
        return Trial(values, {"nll": statistics.fmean(nll), "accuracy": statistics.fmean(accuracy)}, ids)


def _values(choice: Mapping[str, Any]) -> Values:
    found: Values = choice["trials"][choice["chosen"]]["values"]
    return found
