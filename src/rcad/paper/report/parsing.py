"""The suites' common record, read into a study."""

from __future__ import annotations

from pathlib import Path

from rcad.errors import InputError
from rcad.paper.claims import claims_in
from rcad.paper.report.study import TITLES, Claim, Place, Published, Record, Run, Series, Study


def from_suite(record: Record, path: Path) -> Study:
    """The study of a suite's record; one line says what is wrong with it."""
    try:
        return _from_suite(record, path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"expected {path} to be the record of a suite, but got {what}; run it again") from None


def _from_suite(record: Record, path: Path) -> Study:
    target = str(record["target"])
    places = [_place(cell) for cell in record["cells"]]
    rows, columns = [str(row) for row in record["rows"]], [str(column) for column in record["columns"]]
    for place in places:
        if place.row not in rows or place.column not in columns:
            raise ValueError(f"a cell of {place.row!r} and {place.column!r}, which are not among its rows and columns")
    return Study(
        target=target,
        title=str(record.get("title") or TITLES.get(target, target)),
        path=path,
        about=str(record.get("about", "")),
        scale=str(record["scale"]),
        protocol=str(record.get("protocol", "")),
        metric=str(record["metric"]),
        higher_is_better=bool(record["higher_is_better"]),
        unit=str(record.get("unit", "")),
        rows=rows,
        columns=columns,
        controls=[str(name) for name in record.get("controls", ())],
        places={(place.row, place.column): place for place in places},
        claims=claims_of(record),
        rule=str(record.get("rule", "")),
        notes=[str(note) for note in record.get("notes", ())],
        versions={str(name): str(version) for name, version in record.get("versions", {}).items()},
        seconds=record.get("seconds"),
        series=[_series(one) for one in record.get("series") or ()],
        along=str(record.get("along", "")),
        metrics={str(k): str(v) for k, v in record.get("settings", {}).get("metrics", {}).items()},
        record=record,
    )


def _place(cell: Record) -> Place:
    printed = cell.get("published")
    return Place(
        str(cell["row"]),
        str(cell["column"]),
        None if printed is None else Published(float(printed["mean"]), printed.get("half"), printed.get("n")),
        [_run(run) for run in cell["runs"]],
    )


def _run(run: Record) -> Run:
    numbers = _numbers(run["metrics"])
    # Records that keep no status have None for what diverged.
    diverged = run["status"] == "diverged" if "status" in run else None in numbers.values()
    return Run(str(run.get("id") or ""), int(run["seed"]), numbers, run.get("seconds"), diverged)


def _numbers(metrics: Record) -> dict[str, float | None]:
    return {str(name): None if value is None else float(value) for name, value in metrics.items()}


def _series(one: Record) -> Series:
    y = [list(values) if isinstance(values, list) else [values] for values in one["y"]]
    if len(y) != len(one["x"]):
        raise ValueError(f"{len(one['x'])} values of x and {len(y)} of y in the series {one['name']!r}")
    x = [place if isinstance(place, str) else float(place) for place in one["x"]]
    return Series(str(one["name"]), x, y, list(one.get("published") or ()), str(one.get("panel", "")))


def claims_of(record: Record) -> list[Claim]:
    """The judged claims of a record; those of the linear theory say in words what they found."""
    return [
        Claim(
            where=str(one["where"]),
            statement=str(one["statement"]),
            verdict=str(one["verdict"]),
            gain=one.get("gain"),
            ours=str(one.get("ours", "")),
            published=one.get("published"),
            p=one.get("p_holm"),
            p_reverse=one.get("p_reverse_holm"),
            note=str(one.get("note") or ""),
        )
        for one in claims_in(record)
    ]
