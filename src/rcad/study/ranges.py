"""Where each method's search begins and how far it goes: one table, the same number of candidates for all.

Weight decay is searched for every method, ERM included: on small image sets it is worth more than any of them, and no
comparison is fair in which one method had it tuned and another had not. The ranges are ours. alpha=auto(...) counts in
half distances between classes (`rcad.suggest_alpha`), because a range in pixels or deviations would suit one data set
and not the next; without classes it counts in standardised units. On images alpha and lam go further: on CIFAR-100
with few labels the best were alpha 10 to 30 and lam 1 to 3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from rcad.errors import InputError
from rcad.loss.method_rows import OWN, Defaults, MethodRow, method_rows
from rcad.runs.config import KEYS, RunConfig
from rcad.runs.configure import override
from rcad.study.space import AUTO, Space, Values, parse_space, short


class MethodSearch(NamedTuple):
    """A method's own search.

    Attributes:
        space: its ranges, beside weight decay; see `parse_space`.
        labels, reals: where it begins on class labels and on regression targets, beside the method's own defaults.
    """

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
STEP_AND_WEIGHT = MethodSearch(f"{ALPHA}, {LAM}", {"alpha": "auto", "lam": 0.1}, {"alpha": 0.3, "lam": 0.3})
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

    A function of the user's own says its ranges itself: `my_method.space = "lam=log(0.001, 1)"`.

    Args:
        config: the run's; its method has what the user set, its optimizer gives the range of weight decay.
        images: else a table.
        fixed: fields that the user has set, e.g. "optim.weight_decay".
    """
    parts = [row for row in config.method if row[0] != "data_augmentation" or len(config.method) == 1]
    texts = [] if WEIGHT_DECAY in fixed else [f"{WEIGHT_DECAY}={WEIGHT_DECAYS[config.optim.name]}"]
    for name, values in parts:
        own = SEARCHES.get(name, NOTHING).space
        if name in OWN and len(parts) == 1:  # what the user's function has as its attribute
            own = getattr(OWN[name], "space", "")
        if images:
            own = own.replace(ALPHA, FAR_ALPHA).replace(LAM, FAR_LAM)
        free = [parameter for parameter in (parse_space(own) if own else ()) if parameter.key not in dict(values)]
        texts += [str(parameter) if len(parts) == 1 else f"{name}.{parameter}" for parameter in free]
    return parse_space(", ".join(texts)) if texts else ()


def started(rows: tuple[MethodRow, ...], *, labels: bool, table: bool) -> tuple[MethodRow, ...]:
    """The method where its search begins: what the user has set stays.

    Args:
        labels: class labels; else regression targets.
        table: a table; else images.
    """
    full = []
    for name, values in rows:
        own = SEARCHES.get(name, NOTHING)
        begin = {**(own.labels if labels else own.reals), **(ON_TABLES.get(name, {}) if table else {})}
        full.append((name, {**begin, **dict(values)}))
    return method_rows(full)


def check_space(space: Space, rows: tuple[MethodRow, ...], methods: Defaults) -> None:
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
            f"expected a parameter of {' + '.join(names)} ({', '.join(options) or 'it has none'}) or a field such as "
            f"optim.weight_decay in --space, but got {key!r}"
        )


def applied(config: RunConfig, values: Values, methods: Defaults) -> RunConfig:
    """The config of a trial."""
    texts = {key: "none" if value is None else value for key, value in values.items()}
    settings = [f"{key if key in KEYS else f'method.{key}'}={text}" for key, text in texts.items()]
    return override(config, settings, methods=methods)


def beginning(config: RunConfig, space: Space, methods: Defaults, distance: float | None) -> Values:
    """The point of the space where the config stands, as far as it has numbers there.

    Args:
        distance: what alpha=auto stands for; None where there are no classes.
    """
    point = {parameter.key: _standing(config, parameter.key, methods) for parameter in space}
    auto = AUTO if distance is None else short(distance)
    return {key: auto if value == AUTO else value for key, value in point.items()}


def _standing(config: RunConfig, key: str, methods: Defaults) -> Any:
    title, _, field = key.partition(".")
    if key in KEYS:
        return getattr(getattr(config, title), field)
    owner, _, name = key.rpartition(".")
    # As a setting does: the last row that has the parameter.
    for row, values in reversed(config.method):
        if (not owner or row == owner) and name in methods.get(row, {}):
            return dict(values).get(name, methods[row][name])
    raise InputError(f"expected a parameter of the method, but got {key!r}")
