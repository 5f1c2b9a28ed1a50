"""What every reader returns, the checks of its labels, and seeded subsets and hold-outs.

The same seed gives the same examples on every machine and NumPy: NumPy keeps the raw stream of `PCG64(SeedSequence)`
fixed, but not the methods of `Generator`. So each example gets a raw 64-bit draw, and their order is the random order.
Subsets are sorted indices; an index's hash therefore names a set of examples.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rcad.errors import InputError

if TYPE_CHECKING:
    from rcad.data.table_encoder import TableEncoder

Task = Literal["classification", "regression"]
Progress = Callable[[int, int], None]  # called with how much is done, and of how much


def no_progress(done: int, total: int) -> None:
    """The default: progress is not shown."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples and their targets; float64 where float32 would blur them (`rcad.data.scaling`).

    Args:
        x: images as uint8 (N, C, H, W), or a `rcad.data.streams.Stream` of them; or features as float32 (N, D).
        y: labels as int64 (N,), or regression targets as float32 (N,).
    """

    x: Any
    y: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: npt.NDArray[np.int64]) -> Split:
        return Split(self.x[index], self.y[index])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set. `test` is None where the source has no split of its own.

    Args:
        task: classification (y holds labels 0..K-1) or regression.
        classes: the class names in label order; empty for regression.
        columns: the feature names of tabular data; empty for images.
        standard_splits: (train, test) index pairs into `train` where the source defines them (UCI has 20).
        note: one line on what was read (source, size), for people.
        omissions: what to know of how it was read, a sentence each: columns that name the rows and were left out,
            broken images, dates that could be read in two ways.
        source: which edition it is, where somebody else keeps it: "hf:owner/name@commit".
        encoder: of a table read from a file, for new rows of the same kind.
        unit: of a regression target, where it is known: days of dates.
    """

    name: str
    task: Task
    train: Split
    test: Split | None = None
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    standard_splits: tuple[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], ...] = field(default=())
    note: str = ""
    omissions: tuple[str, ...] = ()
    source: str = ""
    encoder: TableEncoder | None = None
    unit: str = ""

    @property
    def is_image(self) -> bool:
        return bool(self.train.x.ndim == 4)


def check_labels(
    labels: npt.NDArray[Any], n_classes: int, origin: Callable[[int], str], first: int = 0
) -> npt.NDArray[np.int64]:
    """Labels as int64 (N,), all in first..first+n_classes-1; `origin` names the label at an index in an error."""
    last = first + n_classes - 1
    wrong = np.flatnonzero((labels < first) | (labels > last))
    if len(wrong):
        index = int(wrong[0])
        raise InputError(
            f"expected labels from {first} to {last}, but got {labels[index]} in {origin(index)}; correct the label"
        )
    return labels.astype(np.int64)


def count_classes(labels: npt.NDArray[Any], origin: Callable[[int], str]) -> int:
    """How many classes training labels imply; more classes than examples means that they are no labels."""
    if labels.min() != 0:
        index = int(labels.argmin())
        got, remedy = ("got", "number the classes from 0") if labels[index] < 0 else ("the smallest is", "subtract it")
        raise InputError(f"expected labels from 0, but {got} {labels[index]} in {origin(index)}; {remedy}")
    n_classes = int(labels.max()) + 1
    if n_classes > max(len(labels), 2):
        raise InputError(
            f"expected labels 0..K-1, but got label {n_classes - 1} among {len(labels)} examples "
            f"in {origin(int(labels.argmax()))}; number the classes from 0"
        )
    return n_classes


def check_several(classes: Sequence[str], origin: str) -> None:
    if len(classes) < 2:
        got = f"only {classes[0]!r}" if classes else "none"
        raise InputError(f"expected at least 2 classes in {origin}, but got {got}; add examples of another class")


def lone_examples(labels: npt.NDArray[Any], classes: Sequence[str], noun: str) -> tuple[str, ...]:
    """A sentence on the classes of which there is one example, if any."""
    lone = [repr(classes[k]) for k in np.flatnonzero(np.bincount(labels) == 1).tolist()]
    names = ", ".join([*lone[:3], *(["..."] if len(lone) > 3 else [])])
    return (f"classes with only one {noun}, too few to learn and to test: {names}",) if lone else ()


Index = npt.NDArray[np.int64]
Source = Literal["own", "standard", "held out"]

# One stream for each purpose: the validation examples must not depend on how the subset fell.
_SUBSET, _HOLDOUT, _TEST, _CLASSES = range(4)


class Splits(NamedTuple):
    """Which examples train, validate and test: indices into `Dataset.train`, or `test` into its own test set."""

    train: Index
    val: Index
    test: Index
    train_hash: str
    val_hash: str
    test_hash: str
    test_source: Source

    def take(self, dataset: Dataset) -> tuple[Split, Split, Split]:
        """The examples themselves: train, validation (may be empty), test."""
        own = dataset.test if self.test_source == "own" else dataset.train
        assert own is not None
        return dataset.train.take(self.train), dataset.train.take(self.val), own.take(self.test)


def parse_spec(spec: str) -> tuple[str, int | None]:
    """Read "cifar100[:2000]" as ("cifar100", 2000) and "cifar100" as ("cifar100", None)."""
    match = re.fullmatch(r"(?P<name>.*?)(\[(?P<slice>[^\[\]]*)\])?", spec.strip(), re.DOTALL)
    assert match is not None
    name, part = match["name"], match["slice"]
    if not name:
        raise InputError(f"expected the name of a data set, but got {spec!r}")
    if part is None:
        return name, None
    digits = re.fullmatch(r":([0-9]{1,18})", part)
    if digits is None or int(digits[1]) == 0:
        raise InputError(f"expected a number of examples as in {name}[:2000], but got {spec!r}; ask for at least one")
    return name, int(digits[1])


def index_hash(index: npt.ArrayLike) -> str:
    return hashlib.sha256(np.asarray(index).astype("<i8").tobytes()).hexdigest()


def holdout(
    y: npt.NDArray[Any], fraction: float = 0.1, *, seed: int, stratified: bool = True, purpose: int = _HOLDOUT
) -> tuple[Index, Index]:
    """Hold out `fraction` of the examples, rounded, but at least one and never all, in another draw for each `purpose`.

    Stratified, every class of the labels `y` gives its share to within one example, and keeps at least one for
    training. Returns (train, validation): sorted, disjoint, together all of 0..N-1.
    """
    if len(y) < 2:
        raise InputError(f"expected at least 2 examples to hold some out, but got {len(y)}")
    size = min(max(round(fraction * len(y)), 1), len(y) - 1)
    keys = _keys(len(y), seed, purpose)
    if stratified:
        classes, counts = np.unique(y, return_counts=True)
        held = _first_of_each_class(y, classes, _shares(counts, size, seed, purpose), keys)
    else:
        held = np.sort(np.argsort(keys, kind="stable")[:size])
    return np.setdiff1d(np.arange(len(y)), held), held


def subset(y: npt.NDArray[Any], n: int, *, seed: int, balanced: bool = True) -> Index:
    """Draw n examples without replacement, as sorted indices; with one seed, a smaller subset lies inside a larger one.

    Balanced, the numbers of examples of any two classes differ by at most one; otherwise uniform over all examples.
    """
    if n < 1 or n > len(y):
        raise InputError(f"expected a subset of 1 to {len(y)} examples, but got {n}")
    keys = _keys(len(y), seed, _SUBSET)
    labelled = not np.issubdtype(y.dtype, np.floating)
    classes, counts = np.unique(y, return_counts=True) if labelled else (y[:0], y[:0])
    if n < len(classes):
        raise InputError(f"expected at least one example for each of {len(classes)} classes, but got n = {n}")
    if not balanced:
        return np.sort(np.argsort(keys, kind="stable")[:n])
    quota = np.full(len(classes), n // len(classes))
    lucky = np.argsort(_keys(len(classes), seed, _SUBSET, _CLASSES), kind="stable")[: n % len(classes)]
    quota[lucky] += 1
    short = np.flatnonzero(counts < quota)
    if len(short):
        c = short[0]
        raise InputError(
            f"expected {quota[c]} examples of class {classes[c]} for a balanced subset of {n}, "
            f"but got {counts[c]}; ask for fewer or balanced=False (rcad train --set data.balanced=false)"
        )
    return _first_of_each_class(y, classes, quota, keys)


def resolve(
    dataset: Dataset,
    *,
    n: int | None = None,
    balanced: bool = True,
    validation: float = 0.1,
    seed: int = 0,
    split: int | None = None,
    test_fraction: float = 0.2,
) -> Splits:
    """Decide which examples train, select and test.

    The test examples are the k-th standard split's where the source defines splits (k = `split`, else 0), the
    source's own test set where it has one, else `test_fraction` held out. Of the rest, n are drawn, and of
    those the share `validation` is held out: n counts training and validation examples together.

    Args:
        n: examples to train and select with; None for all.
        balanced: class-balanced or uniform subset; regression is always uniform.
        seed: >= 0; decides subset and hold-outs.
        test_fraction: in [0, 1); 0 is refused where the source has a test set or standard splits.
    """
    labelled = dataset.task == "classification"
    pool, test, source = _test_part(dataset, seed, split, test_fraction, labelled)
    if n is not None:
        pool = pool[subset(dataset.train.y[pool], n, seed=seed, balanced=balanced and labelled)]
    train, val = pool, pool[:0]
    if validation > 0:
        remaining, held = holdout(dataset.train.y[pool], validation, seed=seed, stratified=labelled)
        train, val = pool[remaining], pool[held]
    return Splits(train, val, test, index_hash(train), index_hash(val), index_hash(test), source)


def _test_part(
    dataset: Dataset, seed: int, split: int | None, test_fraction: float, labelled: bool
) -> tuple[Index, Index, Source]:
    """The examples left for training, those to test on, and where the latter come from."""
    count = len(dataset.standard_splits)
    if split is not None and not 0 <= split < count:
        expected = f"a standard split from 0 to {count - 1}" if count else "no split: there are no standard splits"
        raise InputError(f"expected {expected} for {dataset.name}, but got {split}")
    if not test_fraction and (count or dataset.test is not None):
        raise InputError(
            f"expected data without a test set for test_fraction=0, but {dataset.name} has one; leave the option out"
        )
    if count:
        train, test = dataset.standard_splits[split or 0]
        return np.sort(train), np.sort(test), "standard"
    if dataset.test is not None:
        return np.arange(len(dataset.train)), np.arange(len(dataset.test)), "own"
    if not test_fraction:
        return (every := np.arange(len(dataset.train))), every[:0], "held out"
    return *holdout(dataset.train.y, test_fraction, seed=seed, stratified=labelled, purpose=_TEST), "held out"


def _keys(n: int, seed: int, *purpose: int) -> npt.NDArray[np.uint64]:
    bits = np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=purpose))
    return np.asarray(bits.random_raw(n), dtype=np.uint64)


def _first_of_each_class(
    y: npt.NDArray[Any], classes: npt.NDArray[Any], quota: Index, keys: npt.NDArray[np.uint64]
) -> Index:
    """Of every class the `quota` examples with the smallest keys."""
    order = np.argsort(keys, kind="stable")
    ranked = y[order]
    picked = [order[ranked == c][:q] for c, q in zip(classes, quota, strict=True)]
    return np.sort(np.concatenate(picked))


def _shares(counts: Index, size: int, seed: int, purpose: int) -> Index:
    """Split `size` over classes in proportion to their counts: largest remainders, ties by the seed."""
    total = int(counts.sum())
    whole, remainder = np.divmod(size * counts.astype(np.int64), total)
    # A class whose one remaining training example would go gives nothing more.
    may = np.flatnonzero((remainder > 0) & (whole + 1 < counts))
    missing = size - int(whole.sum())
    if missing > len(may):
        raise InputError(
            f"expected every class to keep an example for training, but {size} of {total} are to be held out "
            f"over {len(counts)} classes; hold out less, or in Python use stratified=False"
        )
    tie = _keys(len(counts), seed, purpose, _CLASSES)[may]
    chosen = may[np.lexsort((tie, -remainder[may]))][:missing]
    whole[chosen] += 1
    return np.asarray(whole, dtype=np.int64)
