"""What a search may try: a space such as `alpha=log(0.05, 2), lam=log(0.01, 1)`, its points (random, a grid, or by
Optuna), and one table of where each method's search begins and how far it goes.

Weight decay is searched for every method, ERM included: on small image sets it is worth more than any of them, and no
comparison is fair in which one method had it tuned and another had not. The ranges are ours. alpha=auto(...) counts in
half distances between classes (`rcad.suggest_alpha`), because a range in pixels or deviations would suit one data set
and not the next; without classes it counts in standardised units. On images alpha and lam go further: on CIFAR-100
with few labels the best were alpha 10 to 30 and lam 1 to 3.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal, NamedTuple, get_args

from rcad.errors import InputError, did_you_mean, need, one_of
from rcad.loss.method_rows import OWN, Defaults, MethodRow, method_rows, parse_value
from rcad.runs.config import KEYS, RunConfig
from rcad.runs.configure import override

Kind = Literal["log", "uniform", "int", "choice", "auto"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Values = Mapping[str, Any]
"""What a trial sets, by key: a parameter of the method (alpha, rcad.alpha) or a field (optim.weight_decay)."""
AUTO = "auto"
TRIES = 50
_PART = re.compile(r"\s*([A-Za-z_][\w.]*)\s*=\s*([a-z]+)\(([^()]*)\)\s*(?:,|$)")


@dataclass(frozen=True)
class Parameter:
    """A number or a choice that a search may vary: from `low` to `high`, both possible, or one of `choices`.

    "auto" is log in units of a distance measured on the data, see `resolved`.
    """

    key: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        one_of(f"the kind of {self.key}", self.kind, KINDS)
        if self.kind == "choice":
            if not self.choices:
                raise InputError(f"expected {self.key}=choice(...) to name choices, but got none")
            return
        rising = math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high
        if not rising or (self.kind in ("log", "auto") and self.low <= 0):
            above = " above 0" if self.kind in ("log", "auto") else ""
            raise InputError(f"expected {self.key} to go from a number{above} to a larger one, but got {self}")
        if self.kind == "int" and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise InputError(f"expected whole ends for {self.key}, but got {self}")

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.choices)) if self.kind == "choice" else f"{self.low:g}, {self.high:g}"
        return f"{self.key}={self.kind}({inner})"

    def at(self, share: float) -> Any:
        """The value at a share of the way from low to high, in [0, 1]; numbers have four digits."""
        if self.kind == "choice":
            return self.choices[min(int(share * len(self.choices)), len(self.choices) - 1)]
        if self.kind == "int":
            return int(self.low) + min(int(share * (self.high - self.low + 1)), int(self.high - self.low))
        if self.kind == "uniform":
            return short(self.low + share * (self.high - self.low))
        return short(self.low * (self.high / self.low) ** share)

    def grid(self, side: int) -> list[Any]:
        """So many values from end to end, fewer where there are fewer."""
        if self.kind == "choice":
            return list(self.choices[:side])
        if self.kind == "int":
            side = min(side, int(self.high - self.low) + 1)
            return [round(self.low + k * (self.high - self.low) / (side - 1 or 1)) for k in range(side)]
        return [self.at(k / (side - 1) if side > 1 else 0.5) for k in range(side)]


Space = tuple[Parameter, ...]


def parse_space(text: str) -> Space:
    """The parameters of a text such as "alpha=log(0.05, 2), norm=choice(l2, linf), steps=int(1, 4)"."""
    parameters, place = [], 0
    while place < len(text.rstrip()):
        part = _PART.match(text, place)
        if part is None:
            raise InputError(
                f"expected a space like alpha=log(0.05, 2), lam=log(0.01, 1), but got {text!r}; "
                f"the kinds are {', '.join(KINDS)}"
            )
        parameters.append(_parameter(part[1], part[2], [item.strip() for item in part[3].split(",") if item.strip()]))
        place = part.end()
    if not parameters or len({parameter.key for parameter in parameters}) < len(parameters):
        raise InputError(f"expected a space with each parameter once, but got {text!r}")
    return tuple(parameters)


def resolved(space: Space, distance: float | None) -> Space:
    """The space with "auto" in units of `distance`, half the median one between classes; None: standardised units."""
    unit = 1.0 if distance is None else distance
    return tuple(
        Parameter(p.key, "log", short(p.low * unit), short(p.high * unit)) if p.kind == "auto" else p for p in space
    )


def drawn(space: Space, count: int, *, seed: int = 0, first: Values | None = None) -> list[Values]:
    """Random points, `first` among them, no two alike; a smaller count gives the first of a larger one.

    Each parameter has a stream of its own, named by its key without the method: trial k has the same weight decay for
    every method, and the same alpha and lam for RCAD and its controls.
    """
    # Their `random()` gives the same numbers in every version of Python.
    names = {parameter.key: parameter.key.rpartition(".")[2] for parameter in space}
    times = Counter(names.values())
    streams = {key: random.Random(f"{seed} {name if times[name] == 1 else key}") for key, name in names.items()}
    points: list[Values] = [] if first is None else [first]
    for _ in range(TRIES * count):
        if len(points) >= count:
            break
        point = {parameter.key: parameter.at(streams[parameter.key].random()) for parameter in space}
        if point not in points:
            points.append(point)
    return points


def grid(space: Space, count: int) -> list[Values]:
    """All combinations of equally many values each, at most `count`; where that is one, the first have two."""
    side = 1
    while (side + 1) ** len(space) <= count:
        side += 1
    sides = [2 if side == 1 and 2 ** (k + 1) <= count else side for k in range(len(space))]
    lines: list[Sequence[Any]] = [parameter.grid(size) for parameter, size in zip(space, sides, strict=True)]
    # Whole numbers and choices may be fewer than a side: no point twice.
    points, keys = dict.fromkeys(itertools.product(*lines)), [parameter.key for parameter in space]
    return [dict(zip(keys, point, strict=True)) for point in points]


def _parameter(key: str, kind: str, items: list[str]) -> Parameter:
    if kind == "choice":
        return Parameter(key, "choice", choices=tuple(parse_value(item) for item in items))
    try:
        low, high = (float(item) for item in items)
    except ValueError:
        raise InputError(f"expected two numbers in {key}={kind}(...), but got {', '.join(items) or 'none'}") from None
    return Parameter(key, kind, low, high)  # type: ignore[arg-type]


def short(value: float) -> float:
    """Four digits of it."""
    return float(f"{value:.4g}")


class OptunaSearch:
    """Optuna's sampler: `ask` gives a point, `tell` takes its score. The same scores give the same points again.

    The space is without "auto". Points that are asked for `side_by_side`, before the first has its score, differ.
    """

    def __init__(self, space: Space, first: Values | None, *, side_by_side: bool = False) -> None:
        optuna = need("optuna", "optuna", "tune")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._distributions = {parameter.key: _distribution(optuna, parameter) for parameter in space}
        sampler = optuna.samplers.TPESampler(seed=0, **({"constant_liar": True} if side_by_side else {}))
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._failed = optuna.trial.TrialState.FAIL
        self._first = first
        self._without_score: deque[Any] = deque()

    def ask(self) -> Values:
        if self._first is not None:
            first, self._first = self._first, None
            self._without_score.append(None)  # it need not lie in the space, so the sampler does not learn from it
            return first
        self._without_score.append(trial := self._study.ask(self._distributions))
        values = {key: trial.params[key] for key in self._distributions}
        return {key: short(value) if isinstance(value, float) else value for key, value in values.items()}

    def tell(self, score: float | None) -> None:
        """Give a score to the first point that has none yet: larger is better, None where it diverged."""
        trial = self._without_score.popleft()
        if trial is not None:
            self._study.tell(trial, score, state=self._failed if score is None else None)


def _distribution(optuna: Any, parameter: Parameter) -> Any:
    low, high = parameter.low, parameter.high
    if parameter.kind == "choice":
        return optuna.distributions.CategoricalDistribution(parameter.choices)
    if parameter.kind == "int":
        return optuna.distributions.IntDistribution(int(low), int(high))
    return optuna.distributions.FloatDistribution(low, high, log=parameter.kind == "log")


class MethodSearch(NamedTuple):
    """A method's own ranges, beside weight decay, and where it begins on class labels and on regression targets."""

    space: str
    labels: Mapping[str, Any] = {}
    reals: Mapping[str, Any] = {}


WEIGHT_DECAY = "optim.weight_decay"
WEIGHT_DECAYS: Mapping[str, str] = {"adamw": "log(0.0001, 1)", "sgd": "log(0.0001, 0.01)"}
"""By optimizer: AdamW's is decoupled from the gradient, SGD's is a part of it."""
ALPHA, LAM = "alpha=auto(0.25, 4)", "lam=log(0.01, 1)"
FAR_ALPHA, FAR_LAM = "alpha=auto(0.25, 16)", "lam=log(0.01, 10)"
"""On images."""
NOTHING = MethodSearch("")
STEP_AND_WEIGHT = MethodSearch(f"{ALPHA}, {LAM}", {"alpha": "auto", "lam": 0.1}, {"alpha": "auto", "lam": 0.3})
SEARCHES: Mapping[str, MethodSearch] = {
    "erm": NOTHING,
    "two_views": NOTHING,
    "data_augmentation": NOTHING,
    "label_smoothing": MethodSearch("eps=uniform(0.02, 0.6)"),
    "confidence_penalty": MethodSearch(LAM, reals={"lam": 0.3}),
    "rcad": STEP_AND_WEIGHT,
    "rcad_random": STEP_AND_WEIGHT,
    "rcad_released": STEP_AND_WEIGHT,
    "rcad_text": MethodSearch(f"alpha=log(0.05, 50), {LAM}"),
    "adversarial_training": MethodSearch("alpha=log(0.005, 0.5)"),
    "adversarial_two_views": MethodSearch("alpha=log(0.005, 0.5)"),
    "ls_on_adv": MethodSearch("alpha=auto(0.05, 4), eps=uniform(0.02, 0.6)"),
    "ada": MethodSearch("gamma=log(0.1, 10), step_size=log(0.004, 0.4)"),
    "me_ada": MethodSearch("eta=log(0.1, 10), gamma=log(0.1, 10)"),
    "mixup": MethodSearch("alpha=log(0.1, 2)"),
    "cutmix": MethodSearch("alpha=log(0.1, 2)"),
    "cutout": MethodSearch("length=int(2, 20)"),
}
ON_TABLES: Mapping[str, Mapping[str, Any]] = {
    "adversarial_training": {"bounds": None},
    "adversarial_two_views": {"bounds": None},
    "ada": {"levels": None},
    "me_ada": {"levels": None},
}
"""Parameters that only pixels have, switched off on standardised columns."""


def default_space(config: RunConfig, *, images: bool, fixed: Collection[str] = ()) -> Space:
    """The ranges of a search: weight decay and those of each part of the method, without what the user has set.

    A function of the user's own says its ranges itself: `my_method.space = "lam=log(0.001, 1)"`. `fixed` are fields
    that the user has set, e.g. "optim.weight_decay".
    """
    parts = [row for row in config.method if row[0] != "data_augmentation" or len(config.method) == 1]
    texts = [] if WEIGHT_DECAY in fixed else [f"{WEIGHT_DECAY}={WEIGHT_DECAYS[config.optim.name]}"]
    for name, values in parts:
        own = SEARCHES.get(name, NOTHING).space
        if name in OWN and len(parts) == 1:
            own = _said_by(name)
        if images:
            own = own.replace(ALPHA, FAR_ALPHA).replace(LAM, FAR_LAM)
        free = [parameter for parameter in (parse_space(own) if own else ()) if parameter.key not in dict(values)]
        texts += [str(parameter) if len(parts) == 1 else f"{name}.{parameter}" for parameter in free]
    return parse_space(", ".join(texts)) if texts else ()


def _said_by(name: str) -> str:
    """What the user's function has as its attribute."""
    text = getattr(OWN[name], "space", "")
    if not isinstance(text, str):
        raise InputError(
            f"expected {name}.space to be text such as 'lam=log(0.1, 1)', but got a {type(text).__name__}; write text"
        )
    if text:
        check_space(parse_space(text), method_rows([(name, ())]), {name: signature(OWN[name]).parameters}, "its space")
    return text


def started(rows: tuple[MethodRow, ...], *, labels: bool, table: bool) -> tuple[MethodRow, ...]:
    """The method where its search begins: on labels or regression targets, on a table or images; what is set stays."""
    full = []
    for name, values in rows:
        own = SEARCHES.get(name, NOTHING)
        begin = {**(own.labels if labels else own.reals), **(ON_TABLES.get(name, {}) if table else {})}
        full.append((name, {**begin, **dict(values)}))
    return method_rows(full)


def check_space(space: Space, rows: tuple[MethodRow, ...], methods: Defaults, where: str = "--space") -> None:
    """Every key is a field of a config or a parameter of one of the rows; none changes what trials are judged by."""
    names = [name for name, _ in rows]
    for key in (parameter.key for parameter in space):
        if key in ("seed", "method") or (key.startswith("data.") and key != "data.size"):
            raise InputError(
                f"expected a space whose trials share method, seed and validation split, but got {key!r}; tune a "
                "parameter of the method or a field such as optim.lr"
            )
        owner, _, name = key.rpartition(".")
        if key in KEYS or (name and any(name in methods.get(row, {}) for row in names if not owner or row == owner)):
            continue
        options = [f"{row}.{name}" if len(names) > 1 else name for row in names for name in methods.get(row, {})]
        raise InputError(
            f"expected a parameter of {' + '.join(names)} or a field such as optim.weight_decay in {where}, but got "
            f"{key!r}{did_you_mean(key, options)}"
        )


def applied(config: RunConfig, values: Values, methods: Defaults) -> RunConfig:
    texts = {key: "none" if value is None else value for key, value in values.items()}
    settings = [f"{key if key in KEYS else f'method.{key}'}={text}" for key, text in texts.items()]
    return override(config, settings, methods=methods)


def beginning(config: RunConfig, space: Space, methods: Defaults, alpha: float) -> Values:
    """The point of the space where the config stands; `alpha` is what alpha=auto means on its data."""
    point = {parameter.key: _standing(config, parameter.key, methods) for parameter in space}
    return {key: short(alpha) if value == AUTO else value for key, value in point.items()}


def _standing(config: RunConfig, key: str, methods: Defaults) -> Any:
    title, _, field = key.partition(".")
    if key in KEYS:
        return getattr(getattr(config, title), field)
    owner, _, name = key.rpartition(".")
    # As a setting does: the last row that has the parameter.
    row, values = next(
        row for row in reversed(config.method) if owner in ("", row[0]) and name in methods.get(row[0], {})
    )
    return dict(values).get(name, methods[row][name])
