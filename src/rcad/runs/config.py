"""What a run is: frozen, typed, checked where it is built. A run is a pure function of its config."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from rcad.errors import InputError, Value, finite, fraction, is_finite, is_number, one_of, shown, whole, writable
from rcad.loss.method_rows import MethodRow, method_rows

_NAMES = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}


class FieldType(NamedTuple):
    """The type of a field: bool, int, float or str; `many` of them, None as well, or one of some texts."""

    base: type
    optional: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"one of {', '.join(self.choices)}" if self.choices else _NAMES[self.base]
        return ("a list, each item " if self.many else "") + text + (" (or none)" if self.optional else "")


def coerce(name: str, kind: FieldType, value: Any) -> Any:
    """`value` as the field of this dotted name keeps it: an int becomes a float where one is kept, a list a tuple."""
    if value is None and kind.optional:
        return None
    if kind.many and isinstance(value, list | tuple):
        item_type = FieldType(kind.base, choices=kind.choices)
        return tuple(coerce(f"{name}[{index}]", item_type, item) for index, item in enumerate(value))
    if not kind.many:
        if kind.base is bool and isinstance(value, bool):
            return value
        if kind.base is int and isinstance(value, Integral) and value is not True and value is not False:
            return int(value)
        if kind.base is float and is_number(value) and is_finite(value):
            return float(value) + 0.0  # -0.0 becomes 0.0: equal values must be written alike
        if kind.base is str and isinstance(value, str):
            if kind.choices:
                one_of(name, value, kind.choices)
            return writable(name, value)
    raise InputError(f"expected {name} to be {kind}, but got {shown(value)}")


def _kind(hint: Any) -> FieldType:
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return _kind(inner)._replace(optional=True)
    if get_origin(hint) is tuple:
        return _kind(get_args(hint)[0])._replace(many=True)
    if get_origin(hint) is Literal:
        return FieldType(str, choices=get_args(hint))
    return FieldType(hint)


MAX_SEED = 2**63 - 1


class Section(Value):
    """Base of a config's parts: every field is brought to its annotated type, of `kinds`, then checked."""

    title: ClassVar[str]
    kinds: ClassVar[Mapping[str, FieldType]]

    def __init_subclass__(cls) -> None:
        cls.title = cls.__name__.removesuffix("Config").lower()
        cls.kinds = {
            name: _kind(hint) for name, hint in get_type_hints(cls).items() if get_origin(hint) is not ClassVar
        }

    def __post_init__(self) -> None:
        for name, kind in self.kinds.items():
            object.__setattr__(self, name, coerce(f"{self.title}.{name}", kind, getattr(self, name)))
        self._check()

    def _check(self) -> None:
        """Raises an InputError for values of the right type that cannot be used."""

    def _each(self, check: Callable[..., object], *names: str, **limits: float) -> None:
        """Checks these fields, or each item of theirs, where they are given."""
        for name in names:
            value = getattr(self, name)
            for item in value if isinstance(value, tuple) else (value,):
                if item is not None:
                    check(f"{self.title}.{name}", item, **limits)


def _not_empty(name: str, value: str) -> None:
    if not value.strip():
        raise InputError(f"expected {name} to be a text, but got {value!r}")


@dataclass(frozen=True, repr=False, kw_only=True)
class DataConfig(Section):
    """Which examples.

    Args:
        name: a known data set, a file or a folder; "cifar100[:2000]" takes a subset.
        target: the column to predict, of a table.
        task: "auto" tells it from the targets.
        balanced: a subset holds equally many of each class; else it is drawn uniformly, as the released program does.
        validation: fraction of the training examples held out; 0 for none.
        split: which of the standard train/test splits, where the data has some.
        test_fraction: fraction set aside for the test, where the data has no test set of its own; 0 for none, for a
            final model that is not measured.
        size: side in pixels that images are brought to; None keeps theirs.
        skip_bad: leave out broken images and rows without a target, instead of refusing the data.
        labels: a table of the images in one folder and their classes; None where folders name the classes.
        file_column, label_column: its columns of file names and of classes; None finds them.
        seed: which examples a subset and the hold-outs take; None goes by the run's seed, so that a spread over seeds
            includes the choice of examples. The released program has one subset for all runs.
    """

    name: str
    target: str | None = None
    task: Literal["auto", "classification", "regression"] = "auto"
    balanced: bool = True
    validation: float = 0.1
    split: int | None = None
    test_fraction: float = 0.2
    size: int | None = None
    seed: int | None = None
    drop: tuple[str, ...] = ()
    skip_bad: bool = False
    labels: str | None = None
    file_column: str | None = None
    label_column: str | None = None

    def _check(self) -> None:
        self._each(_not_empty, "name", "target", "labels", "file_column", "label_column")
        self._each(fraction, "validation", "test_fraction")
        self._each(whole, "split", "seed", minimum=0)
        self._each(whole, "size", minimum=1)


@dataclass(frozen=True, repr=False, kw_only=True)
class ModelConfig(Section):
    """Which network; None leaves a model's own default.

    Args:
        name: "auto" takes one that fits the data.
        width: base number of channels of a convnet.
        hidden: units of the hidden layers of an MLP.
        dropout: probability in [0, 1).
        weights: a file of weights to start from, with a new last layer where it has other outputs; "pretrained" for
            those that timm fetches.
    """

    name: str = "auto"
    norm: Literal["batch", "group", "none"] | None = None
    width: int | None = None
    hidden: tuple[int, ...] | None = None
    dropout: float | None = None
    weights: str | None = None

    def _check(self) -> None:
        self._each(_not_empty, "name", "weights")
        self._each(whole, "width", "hidden", minimum=1)
        self._each(fraction, "dropout")


@dataclass(frozen=True, repr=False, kw_only=True)
class OptimConfig(Section):
    """How the weights move.

    Args:
        lr: the rate after the warm-up.
        momentum, nesterov: of SGD.
        clip: largest L2 norm of the gradient; None for no clipping.
        schedule: "multistep" multiplies the rate by `gamma` at each of `milestones`.
        milestones: epochs, ascending; those past the last epoch never come.
        warmup: epochs of linear warm-up.
    """

    name: Literal["sgd", "adamw"] = "sgd"
    lr: float
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    clip: float | None = None
    schedule: Literal["multistep", "cosine", "constant"] = "constant"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    warmup: int = 0

    def _check(self) -> None:
        self._each(finite, "lr", "clip", "gamma", above=0.0)
        self._each(fraction, "momentum")
        self._each(finite, "weight_decay", minimum=0.0)
        self._each(whole, "milestones", minimum=1)
        self._each(whole, "warmup", minimum=0)
        if list(self.milestones) != sorted(set(self.milestones)):
            raise InputError(f"expected optim.milestones to be ascending epochs, but got {list(self.milestones)}")
        if self.schedule == "multistep" and not self.milestones:
            raise InputError(
                "expected optim.milestones for the multistep schedule, but got none; "
                "give the epochs, or set optim.schedule to 'constant'"
            )
        if self.name == "sgd" and self.nesterov and self.momentum == 0:
            raise InputError("expected optim.momentum > 0 with Nesterov, but got 0.0; set optim.nesterov to false")


@dataclass(frozen=True, repr=False, kw_only=True)
class TrainConfig(Section):
    """The loop.

    Args:
        epochs: how often all examples are seen; 0 measures the weights that the model starts from.
        accumulate: batches a step of the optimizer, in which each example counts the same.
        precision: of the forward passes; weights stay fp32.
        ema: decay of an exponential moving average of the weights, in (0, 1); None for none.
        selection: the epoch whose weights are kept: the best on the held-out split, or the last.
        patience: stop after so many epochs without a better validation score.
    """

    epochs: int
    batch_size: int
    accumulate: int = 1
    precision: Literal["fp32", "bf16"] = "fp32"
    ema: float | None = None
    selection: Literal["best", "last"] = "best"
    patience: int | None = None
    deterministic: bool = False
    channels_last: bool = False

    def _check(self) -> None:
        self._each(whole, "epochs", minimum=0)
        self._each(whole, "batch_size", "accumulate", "patience", minimum=1)
        self._each(fraction, "ema")
        self._each(finite, "ema", above=0.0)


@dataclass(frozen=True, repr=False, kw_only=True)
class RunConfig(Value):
    """Everything a run's result depends on.

    Args:
        method: rows of (name, parameters), e.g. (("rcad", (("alpha", 0.5), ("lam", 0.02))),); the engine checks them.
        seed: of the weights, the batches, the augmentation and the splits; in [0, 2**63).
    """

    data: DataConfig
    model: ModelConfig = ModelConfig()
    method: tuple[MethodRow, ...]
    optim: OptimConfig
    train: TrainConfig
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", method_rows(self.method))
        for name, section in SECTIONS.items():
            if not isinstance(getattr(self, name), section):
                raise InputError(f"expected {name} to be a {section.__name__}, but got {getattr(self, name)!r}")
        whole("seed", self.seed, minimum=0)
        if self.seed > MAX_SEED:
            raise InputError(f"expected seed to be at most {MAX_SEED}, but got {self.seed}")
        self._check_together()

    def _check_together(self) -> None:
        if not self.train.epochs and (self.model.weights is None or self.train.selection == "best"):
            raise InputError(
                "expected train.epochs to be a whole number >= 1, but got 0; 0 measures weights as they are, with "
                "model.weights and train.selection=last"
            )
        if self.data.validation == 0:
            remedy = "hold some out, e.g. data.validation=0.1"
            if self.train.selection == "best":
                raise InputError(
                    f"expected data.validation > 0 to select the best epoch, but got 0.0; {remedy}, "
                    "or set train.selection to 'last'"
                )
            if self.train.patience is not None:
                raise InputError(f"expected data.validation > 0 for train.patience, but got 0.0; {remedy}")
        if self.optim.warmup and self.optim.warmup >= self.train.epochs:
            raise InputError(
                f"expected optim.warmup to be less than train.epochs ({self.train.epochs}), "
                f"but got {self.optim.warmup}; shorten the warm-up"
            )


SECTIONS: Mapping[str, type[Section]] = {
    section.title: section for section in (DataConfig, ModelConfig, OptimConfig, TrainConfig)
}
KEYS = ("seed", "method", *(f"{title}.{name}" for title, section in SECTIONS.items() for name in section.kinds))
