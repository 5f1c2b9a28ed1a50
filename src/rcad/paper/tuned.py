"""The tuned protocol of an image table: every method, ERM included, has the same number of candidates.

A candidate is a weight decay and the method's own parameters. Held-out images choose, by seeds that the table does not
use; the table itself is made of fresh seeds. One design for all methods: the first candidate is the paper's setting,
the others are points of a Halton sequence, whose first coordinate is the weight decay: all methods try the same ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from rcad.errors import InputError, need, one_of
from rcad.paper.benchmarks import DECAY, UNNORMALISED_LR, Scale, Values
from rcad.paper.claims import ENTROPY, RANDOM, Side
from rcad.paper.record import EVERY_METHOD
from rcad.paper.suite import Order, Plan, PlannedRun, Suite, plan
from rcad.paper.tables import SUITES
from rcad.runs.plain import config_id
from rcad.runs.record import FINISHED
from rcad.runs.store import Store
from rcad.study.space import Parameter, parse_space

TUNED = ("T1", "T2", "T4")
"""Tables that have a tuned protocol."""
CANDIDATES: Mapping[Scale, int] = {"smoke": 2, "small": 4, "full": 8}
TUNING_SEEDS: Mapping[Scale, tuple[int, ...]] = {"smoke": (1000,), "small": (1000, 1001), "full": (1000, 1001)}
HELD_OUT = 0.2
"""Share of a tuning run's images that choose; the table's runs hold out the paper's 10%."""
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
BEYOND = 32
"""How far added candidates go beyond the largest weight decay of the search where that was chosen."""
BESIDE = ("MixUp", "two views")
"""Rows that every tuned table has beside its own."""
WHOLE_DECAYS = (1e-3,)
"""Beside the paper's: all that is tried on a whole data set, where a run takes as long as a search on a small one."""
MODEL_TITLES = {"small_cnn": "a small CNN without BatchNorm"}


def space(label: str) -> list[Parameter]:
    """What a row may choose: weight decay first, then the parameters of each of its parts."""
    parts = [part for part in label.split(" + ") if part in OWN]
    own = [replace(parameter, key=f"{part}.{parameter.key}") for part in parts for parameter in parse_space(OWN[part])]
    return [*parse_space(DECAYS), *own]


def candidates(label: str, count: int) -> list[Values]:
    """The paper's setting ({}), then points of the sequence after its first, the origin."""
    return [{}, *_points(space(label), 1, count - 1)]


def refinements(label: str, count: int, decay: float, *, at_edge: bool = False) -> list[Values]:
    """Points of a row's own parameters at that weight decay; for a row without any, weight decays near it.

    Where the weight decay is the largest that was tried, larger ones are tried with every point instead.
    """
    own = space(label)[1:]
    if at_edge:
        return _points([*parse_space(f"{DECAY}=log({decay:.4g}, {decay * BEYOND:.4g})"), *own], 2, count)
    points = _points(own or parse_space(f"{DECAY}=log({decay / 2:.4g}, {decay * 2:.4g})"), 2, count)
    return [{DECAY: decay, **values} for values in points]  # the point before is that weight decay itself


def _points(parameters: Sequence[Parameter], skipped: int, count: int) -> list[Values]:
    sequence = need("scipy.stats.qmc", "scipy").Halton(len(parameters), scramble=False).fast_forward(skipped)
    points = sequence.random(count).tolist()
    return [{p.key: float(p.at(x)) for p, x in zip(parameters, point, strict=True)} for point in points]


def tuned_suite(order: Order) -> Suite:
    """The suite with the rows that every tuned table has; network and added candidates are in its title."""
    suite, model = SUITES[order.name], order.model
    title = suite.title if model is None else suite.title.replace("ResNet-18", MODEL_TITLES[model])
    more = "" if order.candidates is None else f" with {order.candidates} candidates"
    return replace(suite.with_rows(BESIDE), title=f"{title}, {EVERY_METHOD}{more}")


@dataclass(frozen=True)
class Search:
    """The candidates of every row of every column, and their runs.

    Args:
        plan: that of the table, without runs.
        decays: by column, the weight decay of every candidate beyond the scale's number.
    """

    plan: Plan
    decays: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, order: Order) -> Search:
        one_of("NAME of --protocol tuned", order.name, TUNED)
        return cls(plan(order, tuned_suite(order)))

    @property
    def seeds(self) -> tuple[int, ...]:
        return TUNING_SEEDS[self.plan.order.scale]

    def cells(self) -> Iterator[Side]:
        """Every row and column that is run."""
        suite = self.plan.suite
        return ((row, name) for name in self.plan.columns for row in suite.rows_of(suite.column(name)))

    def trials(self, row: str, column: str) -> list[tuple[Values, list[PlannedRun]]]:
        """Each candidate of a cell with its runs: more images held out, seeds of their own."""
        points, seeds = candidates(row, CANDIDATES[self.plan.order.scale]), self.seeds
        if self._is_whole(column):
            points, seeds = [{}, *({DECAY: decay} for decay in WHOLE_DECAYS)], self.seeds[:1]
        elif column in self.decays:
            points += refinements(row, self._more, self.decays[column], at_edge=column in self._at_edge)
        return [(values, self._runs(row, column, values, seeds, validation=HELD_OUT)) for values in points]

    def tuning(self) -> Plan:
        """The plan of the search."""
        runs = (run for cell in self.cells() for _, trial in self.trials(*cell) for run in trial)
        return replace(self.plan, runs=tuple(runs))

    def refined(self, store: Store) -> Search:
        """The search with the candidates that `--candidates` adds, at the weight decay that the first row chose."""
        first, decays = self.plan.suite.rows[0], {}
        for choice in self.choose(store) if self._more > 0 else ():
            if choice["row"] == first and choice["chosen"] is not None:
                _, runs = self.trials(first, choice["column"])[choice["chosen"]]
                decays[choice["column"]] = runs[0].config.optim.weight_decay
        if self._more > 0 and decays.keys() != {*self.plan.columns}:
            raise InputError(f"expected the search of {first} to be done first, but it is not; add --rows {first!r}")
        return replace(self, decays=decays)

    def choose(self, store: Store) -> list[dict[str, Any]]:
        """Every trial of each cell and the chosen one: the least held-out NLL at the last epoch, mean over seeds.

        A cell whose search is not done, because other rows were asked for, has no choice yet.
        """
        choices = []
        for row, column in self.cells():
            planned = self.trials(row, column)
            if any(store.status(run.config) not in FINISHED for _, runs in planned for run in runs):
                continue
            trials = [_trial(values, runs, store) for values, runs in planned]
            good = [k for k, trial in enumerate(trials) if trial["metrics"] is not None]
            chosen = min(good, key=lambda k: trials[k]["metrics"]["nll"], default=None)
            choices.append({"row": row, "column": column, "chosen": chosen, "trials": trials})
        return choices

    def table(self, choices: Sequence[Mapping[str, Any]]) -> Plan:
        """The plan of the table: the chosen candidates on fresh seeds; a row whose candidates all diverged has none."""
        runs: list[PlannedRun] = []
        for seed, choice in product(self.plan.order.seeds, choices):
            if choice["chosen"] is not None:
                values = choice["trials"][choice["chosen"]]["values"]
                runs += self._runs(choice["row"], choice["column"], values, [seed])
        return replace(self.plan, runs=tuple(runs))

    def design(self) -> str:
        """The search in words, for the page."""
        order, seeds = self.plan.order, self.seeds
        count = CANDIDATES[order.scale]
        network = "" if order.model is None else f" The network is {order.model}, lr {UNNORMALISED_LR:g}."
        decays = " and ".join(f"{decay:g}" for decay in WHOLE_DECAYS)
        sets = "; ".join(name for name in self.plan.columns if self._is_whole(name))
        whole = f" Whole data sets ({sets}): the paper's setting and weight decay {decays}, one seed." if sets else ""
        ranges = "; ".join(f"{name}: {text}" for name, text in OWN.items())
        chose = "; ".join(f"{column}: {decay:.4g}" for column, decay in self.decays.items())
        first = self.plan.suite.rows[0]
        edge = "; ".join(self._at_edge)
        beyond = f" Where that is the largest of these ({edge}), larger ones are tried, up to {BEYOND} times it."
        more = (
            f" The other {self._more} candidates of every method have the weight decay that {first} chose among these "
            f"({chose}): points of its own parameters, or, without any, weight decays from half to twice it."
            f"{beyond if edge else ''}"
        )
        return (
            f"Every method chose among {count + self._more} candidates: the paper's setting and {count - 1} points of "
            f"a Halton sequence over weight decay ({DECAYS.partition('=')[2]}, the same values for all methods) and "
            f"the method's own parameters ({ranges}). {HELD_OUT:.0%} of the images were held out and chose, by NLL at "
            "the last epoch, "
            f"mean over {len(seeds)} seeds ({', '.join(map(str, seeds))}) that the table does not use.{whole}{network}"
            f"{more if chose else ''}"
        )

    @property
    def _more(self) -> int:
        """How many candidates each row has beyond the scale's number."""
        order = self.plan.order
        return 0 if order.candidates is None else order.candidates - CANDIDATES[order.scale]

    @property
    def _at_edge(self) -> list[str]:
        """The columns whose first row chose the largest weight decay that it tried."""
        tried = candidates(self.plan.suite.rows[0], CANDIDATES[self.plan.order.scale])
        largest = max(values[DECAY] for values in tried if DECAY in values)
        return [column for column, decay in self.decays.items() if decay >= largest]

    def _is_whole(self, column: str) -> bool:
        return self.plan.suite.column(column).benchmark.count is None

    def _runs(self, row: str, column: str, values: Values, seeds: Sequence[int], **how: Any) -> list[PlannedRun]:
        """The runs of a candidate; `how` has further arguments of `Benchmark.config`."""
        order, benchmark = self.plan.order, self.plan.suite.column(column).benchmark
        how |= {"values": values, "model": order.model, "precision": order.precision}
        return [PlannedRun(row, column, benchmark.config(order.scale, row, seed, **how)) for seed in seeds]


def _trial(values: Values, runs: Sequence[PlannedRun], store: Store) -> dict[str, Any]:
    """A candidate and what the held-out images said of it at the last epoch; None where a run diverged."""
    records = [store.get(config_id(run.config)) for run in runs]
    done = [record for record in records if record.status == "done" and record.epochs]
    scores = {
        "nll": [record.epochs[-1].get("val_nll") for record in done],
        "accuracy": [record.metrics.get("val_accuracy") for record in records],
    }
    whole = all(len(numbers) == len(records) and None not in numbers for numbers in scores.values())
    means = {name: statistics.fmean(values) for name, values in scores.items()} if whole else None  # type: ignore[arg-type]
    return {"values": values, "metrics": means, "runs": tuple(record.id for record in records)}
