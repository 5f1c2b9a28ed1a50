"""One's own table: CSV, TSV, Parquet or NumPy, numeric and categorical columns, one of them the target."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from rcad.data import table_encoder
from rcad.data.dataset import Dataset, Split, Task, check_several, lone_examples
from rcad.data.scaling import compact
from rcad.data.table_encoder import DATES, Style, TableEncoder, numbers, style_of
from rcad.data.table_files import Table, Text, join_tables, list_names, read_table, split_tables
from rcad.errors import InputError, expanded, one_of

AnyTask = Literal["auto", "classification", "regression"]
MOST_INTEGER_CLASSES = 20  # a target of whole numbers with at most this many values is taken for classes
# Beyond 2^53 a float64 no longer tells neighbouring whole numbers apart: such a target is an identifier.
_LARGEST_TARGET = 2.0**53
DAYS = "days since 1970-01-01"


def load(
    name_or_path: str,
    *,
    target: str | int | None = None,
    task: AnyTask = "auto",
    drop: Collection[str] = (),
    skip_bad: bool = False,
) -> Dataset:
    """Read a table without taking any statistic of it: `Standardizer.fit` does that, on the training rows.

    Args:
        name_or_path: a file; or a folder with train.csv (or .tsv, .parquet) and perhaps test.csv, in shards or whole.
        target: the column to predict, by name or position (negative from the end).
        task: "auto" takes text and few whole numbers for classes; the data set's note says what was taken.
        skip_bad: leave out the rows without a target; the note counts them.

    Returns:
        x (N, D): numbers with NaN for missing, dates as days since 1970; for each level of a categorical column a
        feature
        of 0 or 1, and one more for missing or unknown. y: labels in the order of `classes`, or real targets.
    """
    one_of("task", task, get_args(AnyTask))
    path = expanded(name_or_path)
    parts = read_splits(path)
    target = _target_name(parts["train"], target)
    for name in drop:
        check_column(parts["train"], name, "drop")
        if name == target:
            raise InputError(f"expected columns to leave out beside the target, but got {name!r}, which is the target")
    hidden = "test" in parts and target not in parts["test"].names
    if hidden:
        del parts["test"]
    labelled = [with_targets(part, target, skip_bad) for part in parts.values()]
    skipped, rows = sum(count for _, count in labelled), len(labelled[0][0])  # `rows` to train on, then those to test
    table = join_tables([part for part, _ in labelled], path)
    encoder = TableEncoder.fit(table, [name for name in table.names if name != target and name not in drop])
    omissions = [f"left out: {name!r}, {why}" for name, why in encoder.left_out]
    if not encoder.codes:
        hint = _lists_images(table.path) or "".join(f"; {sentence}" for sentence in omissions)
        raise InputError(f"expected a feature column beside {target!r} in {table.path}, but got none{hint}")
    omissions += filter(None, (table_encoder.row_numbers(table, code) for code in encoder.codes))
    if same := [code.name for code in encoder.codes if table_encoder.is_constant(table, code)]:
        drop = shlex.quote(list_names(same))
        columns = f"column{'s' * (len(same) > 1)} {', '.join(map(repr, same))}"
        omissions.append(f"{columns}: the same value in every row predicts nothing; leave out with --drop {drop}")
    chosen, style, why = _choose_task(table, target, task)
    texts = [code.name for code in encoder.codes if code.levels is not None]
    texts += [target] if chosen == "classification" and style_of(table.columns[target]) is None else []
    omissions += filter(None, (table_encoder.alike_levels(table, name) for name in texts))
    unit = DAYS if chosen == "regression" and style in DATES else ""
    styles = {code.name: code.style for code in encoder.codes} | ({target: style} if unit else {})
    omissions += filter(None, (table_encoder.date_reading(table, *column) for column in styles.items()))
    if unit:
        omissions.append(f"{target!r}, the target, holds dates: its numbers are {unit}")
    if skipped:
        omissions.append(f"{skipped} row{'s' if skipped > 1 else ''} without a target skipped")
    x = compact(encoder.transform(table))
    y: npt.NDArray[Any]
    if chosen == "classification":
        y, classes = class_labels(table, target)
        omissions += lone_examples(y, classes, "row")
    else:
        y, classes = compact(_real_targets(table, target, style)), ()
    held = f", the last {len(table) - rows} for the test" if rows < len(table) else ""
    inputs = f"{len(encoder.codes)} of {len(table.names)} columns are inputs"
    note = [f"{table.path.name}: {len(table)} rows{held}", f"{inputs}, {target!r} is the target", why, *omissions]
    if hidden:
        note.append(f"left out: the test table, which has no {target!r}")
    if gaps := int(np.isnan(x).any(axis=0).sum()):
        columns = f"{gaps} column{'s' if gaps > 1 else ''}"
        note.append(f"values are missing in {columns}, filled by medians of training and marked")
    return Dataset(
        table.path.stem,
        chosen,
        Split(x[:rows], y[:rows]),
        Split(x[rows:], y[rows:]) if rows < len(table) else None,
        classes=classes,
        columns=encoder.features,
        note="; ".join(note),
        omissions=tuple(omissions),
        unit=unit,
        encoder=encoder,
    )


def read_splits(path: Path) -> dict[str, Table]:
    """The table of a file, as "train"; or those of a folder by split, their shards joined."""
    files = split_tables(path) if path.is_dir() else {"train": [path]}
    if not files:
        raise InputError(f"expected a table called train in {path}, but got none; rename the tables after their split")
    return {split: join_tables([read_table(file) for file in names], path) for split, names in files.items()}


def with_targets(table: Table, target: str, skip_bad: bool) -> tuple[Table, int]:
    """The rows that have a target, and how many have none."""
    values = table.columns[target]
    numeric = values.numbers if isinstance(values, Text) else values
    missing = values.codes < 0 if isinstance(values, Text) and numeric is None else np.isnan(np.asarray(numeric))
    count = int(missing.sum())
    if not count:
        return table, 0
    if skip_bad and count < len(table) - 1:
        return table.take(np.flatnonzero(~missing)), count
    where = table.where(int(np.argmax(missing)), target)
    many = "" if count == 1 else f", as in {count - 1} more of {len(table)} rows"
    raise InputError(f"expected a target in {where}, but it is missing{many}; remove such rows, or pass --skip-bad")


def _lists_images(path: Path) -> str:
    """A hint for a message, if this is the table of labels beside a folder of images."""
    from rcad.data.image_folders import find_labels

    labelled = find_labels(path.parent) if path.is_file() else None
    if labelled is None or labelled.table.path != path:
        return ""
    return f"; it lists the images in {labelled.images}: read both with --data {path.parent}"


def _target_name(table: Table, target: str | int | None) -> str:
    if target is None:
        hint = _lists_images(table.path) or f"; choose a target out of {list_names(table.names)}"
        raise InputError(f"expected the name of the column to predict, but got none{hint}")
    if isinstance(target, str) and target not in table.names:
        try:
            target = int(target)  # a command line gives positions as text
        except ValueError:
            check_column(table, str(target), "target")
    if isinstance(target, str):
        return target
    size = len(table.names)
    if not -size <= target < size:
        raise InputError(f"expected target to be a column from 0 to {size - 1} of {table.path}, but got {target}")
    return table.names[target]


def check_column(table: Table, name: str, option: str) -> None:
    if name not in table.names:
        by_case = {other.casefold(): other for other in table.names}
        near = difflib.get_close_matches(name.casefold(), by_case, n=1)
        hint = f"did you mean {by_case[near[0]]!r}?" if near else f"choose out of {list_names(table.names)}"
        raise InputError(f"expected {option} to be a column of {table.path}, but got {name!r}; {hint}")


def _choose_task(table: Table, target: str, task: AnyTask) -> tuple[Task, Style, str]:
    """The task, how regression targets are written, and a sentence on how it was chosen."""
    style = style_of(table.columns[target])
    if style is None and task != "classification":
        table_encoder.check_numbers(table, target)
    if task != "auto":
        return task, style or "plain", f"{task} as told"
    if style is None:
        return "classification", "plain", "classification, since the target is text (--task to change)"
    distinct = np.unique(numbers(table, target, style))
    few = len(distinct) <= max(2, min(MOST_INTEGER_CLASSES, len(table) // 2))
    if style == "plain" and few and (distinct == np.rint(distinct)).all():
        why = f"the target has {len(distinct)} whole-number values (--task to change)"
        return "classification", style, f"classification, since {why}"
    return "regression", style, f"regression, since the target has {len(distinct)} numeric values (--task to change)"


def class_labels(table: Table, name: str) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Labels 0..K-1 in the order of the class names: by value where all are numbers, else by letters."""
    text = table.text(name)
    numeric = text.numbers is not None
    if numeric:
        # "1" and "1.0" are one class.
        levels, labels = np.unique(_targets(table, name), return_inverse=True)
        classes = [repr(int(v)) if float(v).is_integer() else repr(v) for v in levels.tolist()]
    else:
        classes = sorted(text.levels)
        place = {level: k for k, level in enumerate(classes)}
        labels = np.asarray([place[level] for level in text.levels])[text.codes]
    column = f"column {name!r} of {table.path}"
    check_several(classes, column)
    if len(classes) == len(table) > 2:
        other = ", or pass task='regression' (--task regression)" if numeric else ""
        raise InputError(
            f"expected classes that repeat in {column}, but got {len(classes)} values in {len(table)} rows; give "
            f"another target{other}"
        )
    return labels.astype(np.int64), tuple(classes)


def image_labels(table: Table, name: str, task: AnyTask) -> tuple[npt.NDArray[np.int64], tuple[str, ...], Any]:
    """For the images that a table lists: labels from 0, what they stand for, and that as numbers for regression."""
    if task != "regression":
        return *class_labels(table, name), None
    _, style, _ = _choose_task(table, name, task)
    levels, labels = np.unique(_real_targets(table, name, style), return_inverse=True)
    return labels.astype(np.int64), tuple(f"{level:g}" for level in levels), compact(levels)


def _real_targets(table: Table, name: str, style: Style) -> npt.NDArray[np.float64]:
    y = _targets(table, name, style)
    if y.min() == y.max():
        raise InputError(f"expected targets that differ in column {name!r} of {table.path}, but all are {y[0]:g}")
    return y


def _targets(table: Table, name: str, style: Style = "plain") -> npt.NDArray[np.float64]:
    """The targets as numbers, none so large that it must be an identifier."""
    values = numbers(table, name, style)
    large = np.flatnonzero(np.abs(values) > _LARGEST_TARGET)
    if len(large):
        row = int(large[0])
        raise InputError(
            f"expected a target of at most 2^53 in size in {table.where(row, name)}, but got {values[row]:g}; "
            "is it an identifier?"
        )
    return values
