"""From the columns of a table to features: numbers and dates stay numbers, text becomes one-hot."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from rcad.data.scaling import Standardizer, beyond_float64
from rcad.data.table_files import UNNAMED, Numbers, Table, Text, list_names, number_of
from rcad.errors import InputError, one_of, shaped

UNKNOWN = "?"  # how the feature of a value is named that is missing, or that was not there when the encoder was fitted
LARGEST = float(np.finfo(np.float32).max)
"""What float32 holds; beyond it a finite number would turn into an infinite one."""
Style = Literal["plain", "point", "comma", "date", "day first", "month first"]
"""How a column writes numbers: as Python does, as $1,870.60, as 1 870,60, or as dates (days since 1970)."""
DATES: tuple[Style, ...] = ("date", "day first", "month first")
EXAMPLES: Mapping[Style, str] = {
    "point": "1,870.60",
    "comma": "1.870,60",
    "date": "2021-12-31",
    "day first": "31/12/2021, day first",
    "month first": "12/31/2021, month first",
}
"""How a message shows a style that a new file must keep to."""

# With so many different numbers for each word a column holds numbers, and the words are slips or stand for a gap.
_MANY_NUMBERS = 20
MOST_LEVELS = 100  # more different texts in a column are taken for a mistake, e.g. a typing error in a number
_FEW_ROWS = 10  # fewer rows may be all different by chance
_ID_NAME = re.compile(
    r"(?i:id|index|idx|row|uuid|guid|key|(?:row|record|sample)[ _-]?(?:id|nr|no)|.+[ _-]id)|.+Id|.+[a-z]ID"
)
# The number of a customer names a row, that of a building may tell something.
_NUMBER_NAME = re.compile(r"(?i:(?:.+[ _.-])?(?:no|nr|num|number|key|ref))|.+(?:No|Nr|Num|Number|Key|Ref)")
_UNITS = re.compile(r"[$€£¥₹%]|\b(?:USD|EUR|GBP|CHF|JPY)\b")
_MONEY = re.compile(r"[^\W\d_]|[$€£¥₹]")
_SPACES = re.compile(r"[\s\u00a0\u2009\u202f'\u2019]")
_GROUPED = r"[+-]?(?:[1-9]\d{{0,2}}(?:{0}\d{{3}})+|\d+)(?:{1}\d+)?"
_POINT, _COMMA = (re.compile(_GROUPED.format(*two)) for two in ((",", r"\."), (r"\.", ",")))
_ISO = re.compile(r"(\d{4})[-/.](\d\d?)[-/.](\d\d?)")
_DAYS = re.compile(r"(\d\d?)([./-])(\d\d?)\2(\d{4})")
_TIME = re.compile(r"(?:[T ]+(\d\d?):(\d\d)(?::(\d\d(?:\.\d+)?))?)?(?:Z|([+-])(\d\d):?(\d\d))?")


@dataclass(frozen=True)
class ColumnCode:
    """How one column is encoded: as a number in a style, or by `levels`, the texts of a one-hot code.

    None among these is a feature for what is missing or unknown; without it that is all zeros.
    """

    name: str
    levels: tuple[str | None, ...] | None = None
    style: Style = "plain"

    @property
    def features(self) -> tuple[str, ...]:
        if self.levels is None:
            return (self.name,)
        return tuple(f"{self.name}={UNKNOWN if level is None else level}" for level in self.levels)


@dataclass(frozen=True)
class TableEncoder:
    """The encoding of a table's features; `left_out` are columns that name the rows or are empty, and why."""

    codes: tuple[ColumnCode, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @classmethod
    def fit(cls, table: Table, names: Sequence[str]) -> TableEncoder:
        """Choose an encoding for each of these columns of a table of all rows; those that tell nothing are left out.

        A column is numeric when all its values are numbers or dates, in one way of writing them. Levels are sorted.
        """
        codes, left_out = [], []
        for name in names:
            style = style_of(table.columns[name])
            if style is None:
                check_numbers(table, name)
            if reason := _tells_nothing(table, name, style):
                left_out.append((name, reason))
            else:
                codes.append(_choose(table, name, style))
        return cls(tuple(codes), tuple(left_out))

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(name for code in self.codes for name in code.features)

    def transform(self, table: Table, largest: float = LARGEST) -> Numbers:
        """(N, D) of a table with these columns by name: numbers up to `largest`, NaN for missing, 0 or 1 for levels."""
        parts = []
        for code in self.codes:
            if code.name not in table.columns:
                got = list_names(table.names)
                raise InputError(f"expected a column {code.name!r} in {table.path}, but its columns are {got}; add it")
            if code.levels is None:
                parts.append(numbers(table, code.name, code.style, largest)[:, None])
            else:
                parts.append(_one_hot(table.text(code.name), code.levels))
        return np.hstack(parts) if parts else np.empty((len(table), 0))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> TableEncoder:
        """The encoding that `to_dict` wrote; raises an InputError for anything else."""
        kind = {"codes": [{"name": str, "levels": ([(str, None)], None), "style": str}], "left_out": [[str]]}
        plain = shaped("the encoder", state, kind)
        codes = [ColumnCode(c["name"], c["levels"] and tuple(c["levels"]), c["style"]) for c in plain["codes"]]
        for code in codes:
            one_of("a style", code.style, get_args(Style))
        return cls(tuple(codes), tuple((name, why) for name, why in plain["left_out"]))


@dataclass(frozen=True)
class TableFeatures:
    """A table to standardised features: its encoding, and the scales of the training rows."""

    encoder: TableEncoder
    scales: Standardizer

    def transform(self, table: Table, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        return self.scales.transform(self.encoder.transform(table, np.inf), dtype)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The features that `to_dict` wrote; raises an InputError for anything else."""
        plain = shaped("the columns", state, {"encoder": dict, "scales": dict})
        encoder, scales = TableEncoder.from_dict(plain["encoder"]), Standardizer.from_dict(plain["scales"])
        if len(encoder.features) != len(scales.mean):
            raise InputError(f"expected scales of {len(encoder.features)} features, but got {len(scales.mean)}")
        return cls(encoder, scales)

    @classmethod
    def of_run(cls, preprocessing: Mapping[str, Any]) -> Self:
        """From what a run keeps (`rcad.train.task.Problem`); a table that was no file has numbers alone."""
        encoder = preprocessing.get("encoder")
        if encoder is None:
            size = len(Standardizer.from_dict(preprocessing["features"]).mean)
            names = shaped("columns", preprocessing["columns"], [str]) or [f"x{j}" for j in range(size)]
            encoder = TableEncoder(tuple(map(ColumnCode, names))).to_dict()
        return cls.from_dict({"encoder": encoder, "scales": preprocessing["features"]})


def style_of(column: Numbers | Text) -> Style | None:
    """How a column writes numbers; None where it holds something else, or numbers that could be read two ways."""
    if not isinstance(column, Text) or column.numbers is not None:
        return "plain"
    texts = column.levels
    if len({unit for text in texts for unit in _UNITS.findall(text)}) <= 1:
        bare = [_bare(text) for text in texts]
        point, comma = (all(form.fullmatch(text) for text in bare) for form in (_POINT, _COMMA))
        if point != comma:
            return "point" if point else "comma"
        if point and not any("," in text or "." in text for text in bare):
            return "point"  # units and spaces only
        if point and any(_MONEY.search(text) for text in texts):  # three digits after the mark: thousands, not cents
            return "point" if any("," in text for text in bare) else "comma"
    dates = [style for style in DATES if all(_days(text, style) is not None for text in texts)]
    return (dates[0] if len(dates) == 1 or "date" in dates else _likelier(column)) if dates else None


def _likelier(column: Text) -> Style:
    """Month first or day first: the one in which the rows are in order; otherwise month first, as pandas reads."""
    in_order = []
    for style in ("month first", "day first"):
        days = np.asarray([_days(text, style) for text in column.levels])[column.codes[column.codes >= 0]]
        steps = np.diff(days)
        if (steps >= 0).all() or (steps <= 0).all():
            in_order.append(style)
    return "day first" if in_order == ["day first"] else "month first"


def date_reading(table: Table, name: str, style: Style) -> str:
    """A sentence on dates that could be read in another way as well; none where they could not."""
    values = table.columns[name]
    other = {"day first": "month first", "month first": "day first"}.get(style)
    if other is None or not isinstance(values, Text) or any(_days(text, other) is None for text in values.levels):
        return ""
    for text in values.levels:
        if (days := _days(text, style)) != _days(text, other):
            date = datetime.date(1970, 1, 1) + datetime.timedelta(math.floor(days or 0.0))
            how = f"{name!r}: {text} is read {style}, as {date.day} {date:%B %Y}"
            return f"{how}; if that is wrong, write dates as 2012-11-05"
    return ""


def numbers(table: Table, name: str, style: Style = "plain", largest: float = LARGEST) -> Numbers:
    """A column as float64 (N,) with NaN for missing; anything else is an error that says where."""
    values = table.columns[name]
    if not isinstance(values, Text):
        parsed = values
    elif style == "plain" and values.numbers is not None:
        parsed = values.numbers
    else:
        by_level = [_parse(text, style) for text in values.levels]
        if None in by_level:
            level = values.levels[by_level.index(None)]
            place, kind = table.where(values.row_of(level), name), "a date" if style in DATES else "a number"
            written = f", written as in training (like {EXAMPLES[style]})" if style in EXAMPLES else ""
            raise InputError(
                f"expected {kind} in {place}{written}, but got {_short(level)!r}; correct it, or leave it empty "
                "if it is missing"
            )
        parsed = np.asarray([*by_level, np.nan], dtype=np.float64)[values.codes]
    with np.errstate(invalid="ignore"):
        large = np.flatnonzero(np.abs(parsed) > largest)
    if len(large):
        row = int(large[0])
        got = values.levels[values.codes[row]] if isinstance(values, Text) else values[row]
        raise InputError(f"expected a finite number in {table.where(row, name)}, but got {_short(got)}")
    return parsed


def check_numbers(table: Table, name: str) -> None:
    """Refuse numbers that would pass for text: written in two ways, commas that could mean two things, slips."""
    text = table.text(name)
    if pair := _unlike(text.levels):
        got = " and ".join(f"{_short(level)!r} in {table.line(text.row_of(level))}" for level in pair)
        dates = any(_days(level, style) is not None for level in pair for style in DATES)
        kind, plain = ("dates", "2021-12-31") if dates else ("numbers", "1870.60")
        raise InputError(
            f"expected one way of writing {kind} in column {name!r} of {table.path}, but got {got}; "
            f"write all of them like {plain}"
        )
    comma = next((level for level in text.levels if "," in level), None)
    if comma is not None and all(number_of(level.replace(",", "")) is not None for level in text.levels):
        raise InputError(
            f"expected a number without commas in {table.where(text.row_of(comma), name)}, but got "
            f"{_short(comma)!r}; write 1.5 for 1,5 and 1000 for 1,000"
        )
    strange = [level for level in text.levels if not _styles(level)]
    count = len(text.levels) - len(strange)
    if strange and count >= _MANY_NUMBERS * len(strange):
        kind = "date" if all(_styles(level) <= {*DATES} for level in text.levels) else "number"
        raise InputError(
            f"expected a {kind} in {table.where(text.row_of(strange[0]), name)}, but got {_short(strange[0])!r} among "
            f"{count} different {kind}s; correct it, or leave it empty if it is missing"
        )


def _unlike(levels: Sequence[str]) -> list[str] | None:
    """Two numbers or dates that no one style reads; None where a text is neither, or one style reads all."""
    styles: dict[str, set[Style]] = {}
    for level in levels:
        styles[level] = _styles(level)
        if not styles[level]:
            return None
    one = min(levels, key=lambda level: len(styles[level]), default="")
    other = next((level for level in levels if not styles[level] & styles[one]), None)
    return None if other is None else sorted([one, other], key=levels.index)


def frequent_levels(column: Text, most: int) -> tuple[str | None, ...]:
    """The levels of a column, sorted; of more than `most` the most frequent. None is last where values are missing."""
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels)).tolist()
    frequent = sorted(range(len(counts)), key=lambda k: (-counts[k], column.levels[k]))[:most]
    missing: tuple[str | None, ...] = (None,) if (column.codes < 0).any() else ()
    return (*sorted(column.levels[k] for k in frequent if counts[k]), *missing)


def _tells_nothing(table: Table, name: str, style: Style | None) -> str | None:
    """Why a column is taken to name its rows or be empty, and to predict nothing; None where it is not."""
    if style == "plain" and np.isnan(numbers(table, name, largest=np.inf)).all():
        return "empty in every row"
    unnamed = UNNAMED.fullmatch(name) is not None
    if len(table) < _FEW_ROWS and not unnamed:
        return None
    if style is None:
        return "a different text in every row" if len(table.text(name).levels) == len(table) else None
    if style != "plain" or not (unnamed or _ID_NAME.fullmatch(name)) or not _whole(numbers(table, name)):
        return None
    if len(np.unique(numbers(table, name))) == len(table):
        return "a different whole number in every row"
    return "whole numbers without a name" if unnamed else None


def _whole(values: Numbers) -> bool:
    """Whether all are whole numbers; not where one is missing."""
    return bool((values == np.rint(values)).all())


def row_numbers(table: Table, code: ColumnCode) -> str:
    """A sentence on an input that may only name its rows; none where it does not look so."""
    if code.levels is not None or code.style != "plain" or not _NUMBER_NAME.fullmatch(code.name):
        return ""
    values = numbers(table, code.name)
    if len(table) < _FEW_ROWS or not _whole(values) or len(np.unique(values)) < len(table):
        return ""
    return f"{code.name!r} is an input, with a different whole number in every row; if it only names them, --drop it"


def alike_levels(table: Table, name: str) -> str:
    """A sentence on levels of a text column that only case and spaces tell apart; none where there are none."""
    by_look: dict[str, list[str]] = {}
    for level in sorted(table.text(name).levels):
        by_look.setdefault(" ".join(level.split()).casefold(), []).append(level)
    groups = [" and ".join(map(repr, levels)) for levels in by_look.values() if len(levels) > 1]
    more = f", and {len(groups) - 3} more" if len(groups) > 3 else ""
    told = f"column {name!r}: {', '.join(groups[:3])}{more} differ by case or spaces alone; write them alike"
    return told if groups else ""


def is_constant(table: Table, code: ColumnCode) -> bool:
    """Whether every row has the same value, and none is missing."""
    if code.levels is not None:
        return len(set(table.text(code.name).codes.tolist())) == 1
    values = numbers(table, code.name, code.style)
    return bool((values == values[0]).all())


def _choose(table: Table, name: str, style: Style | None) -> ColumnCode:
    if style is not None:
        if beyond_float64(numbers(table, name, style)):
            raise InputError(
                f"expected column {name!r} of {table.path} to hold numbers that float64 tells apart, but they are "
                "beyond 2^53 and too close; is it an identifier? drop the column"
            )
        return ColumnCode(name, style=style)
    text = table.text(name)
    if len(text.levels) > MOST_LEVELS:
        level = next((level for level in text.levels if not _styles(level)), text.levels[0])
        raise InputError(
            f"expected numbers or at most {MOST_LEVELS} levels in {table.where(text.row_of(level), name)}, but got "
            f"{_short(level)!r} and {len(text.levels)} levels; correct it, or drop the column (--drop)"
        )
    return ColumnCode(name, (*sorted(text.levels), None))


def _one_hot(text: Text, levels: Sequence[str | None]) -> Numbers:
    place = {level: k for k, level in enumerate(levels)}
    unknown = place.get(None, len(levels))
    index = np.asarray([place.get(level, unknown) for level in text.levels] + [unknown])[text.codes]
    return np.eye(len(levels) + 1)[index, : len(levels)]


def _parse(text: str, style: Style) -> float | None:
    if style == "plain":
        return number_of(text)
    if style in ("point", "comma"):
        bare = _bare(text)
        if not (_POINT if style == "point" else _COMMA).fullmatch(bare):
            return None
        return float(bare.replace(",", "") if style == "point" else bare.replace(".", "").replace(",", "."))
    return _days(text, style)


def _styles(text: str) -> set[Style]:
    """The ways of writing numbers in which a text is one."""
    return {style for style in get_args(Style) if _parse(text, style) is not None}


def _bare(text: str) -> str:
    return _SPACES.sub("", _UNITS.sub("", text))


def _days(text: str, style: str) -> float | None:
    """Days since 1970-01-01, with the time of day as a fraction; in UTC where a zone is given."""
    match = (_ISO if style == "date" else _DAYS).match(text)
    rest = _TIME.fullmatch(text[match.end() :]) if match else None
    if match is None or rest is None or (match.lastindex == 4 and match[2] == "." and style == "month first"):
        return None
    if style == "date":
        year, month, day = int(match[1]), int(match[2]), int(match[3])
    else:
        first, second, year = int(match[1]), int(match[3]), int(match[4])
        day, month = (first, second) if style == "day first" else (second, first)
    hours, minutes, seconds, sign, zone_hours, zone_minutes = rest.groups()
    try:
        days = float(datetime.date(year, month, day).toordinal() - datetime.date(1970, 1, 1).toordinal())
    except ValueError:
        return None
    moment = 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds or 0)
    zone = (3600 * int(zone_hours) + 60 * int(zone_minutes)) * (1 if sign == "+" else -1) if sign else 0
    return days + (moment - zone) / 86400 if moment <= 86400 else None


def _short(value: str | float | None) -> str:
    """A value, shortened for a message."""
    text = str(value)
    return text if len(text) <= 24 else f"{text[:20]}..."
