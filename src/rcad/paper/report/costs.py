"""What a step costs: the chapter on the step times, and the paper's sentences on cost judged by them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rcad.errors import shaped
from rcad.paper.claims import NOT_RUN, Claim
from rcad.paper.record import JSON, NUMBER, Study
from rcad.paper.report import pictures, scaling
from rcad.report.document import Section, Table
from rcad.report.numbers import fixed

KIND = "rcad step times"
TITLE = "Cost of a step"
ABOUT = (
    "The paper claims at most 1.3 times ERM's time per batch. The arithmetic of the exact step is 2 times: two "
    "forwards and two backwards. Only ratios compare between devices."
)
CLAIMED = pictures.CLAIMED
COSTS = "costs"
"""The name of the study that is judged by step times alone."""
MULTISTEP = ("pgd 10", "me_ada")
"""Adversarial training in several steps, as far as it is timed: ten projected ones, and a rival the paper names."""


def judged(records: Sequence[tuple[Path, JSON]]) -> Study | None:
    """What the paper says of RCAD's cost, judged by every group of step times, one run at a time."""
    ratios: dict[str, list[float]] = {}
    for _, record in records:
        for times in _groups(record["rows"]):
            for method, time in times.items():
                if "rcad" in times:
                    ratios.setdefault(method, []).append(times["rcad"] / time)
    several = [ratio for name in MULTISTEP for ratio in ratios.get(name, ())]
    grown = [1 / ratio for ratio in ratios.get("me_ada", ())]
    claims = [
        _claim("section 1", "RCAD takes at most 1.3 times ERM's time a batch", ratios.get("erm", []), (0.0, CLAIMED)),
        _claim("section 2", "RCAD takes at most a fifth of multi-step adversarial training", several, (0.0, 0.2)),
        _claim("appendix C", "ME-ADA takes twice RCAD's time", grown, (1.7, 2.3)),
    ]
    if not any(ratios.values()):
        return None
    return Study(
        target=COSTS,
        title="What the paper says of the cost",
        path=records[0][0].parent,
        about="Ratios of step times, each from one group of a benchmark; the chapter on the cost of a step has them.",
        claims=claims,
        rule="reproduced where the ratio is in the range in every group, not reproduced where it is in none, else "
        "undecided; twice means 1.7 to 2.3 times",
        unit="",
        notes=[
            "Multi-step training is adversarial training on ten projected steps, and ME-ADA over the paper's 200 "
            "epochs, which the paper names in both of its sentences on rivals.",
            "Hours on a GTX 1080 Ti are not judged: no such card was at hand.",
        ],
    )


def _groups(rows: Sequence[JSON]) -> list[dict[str, float]]:
    """Times of a step in those of ERM by method, taken in turns, one run at a time."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        if row.get("replicas", 1) == 1 and row.get("ratio_to_erm"):
            key = tuple(row.get(name) for name in ("model", "batch", "mode"))
            found.setdefault(key, {})[str(row["method"])] = float(row["ratio_to_erm"])
    return list(found.values())


def _claim(where: str, statement: str, ratios: Sequence[float], allowed: tuple[float, float]) -> Claim:
    low, high = allowed
    inside = sum(low <= ratio <= high for ratio in ratios)
    if not ratios:
        return Claim(where, statement, NOT_RUN, note=NOT_RUN)
    verdict = "reproduced" if inside == len(ratios) else "undecided" if inside else "not reproduced"
    ours = f"{min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} groups" if len(ratios) > 1 else f"{ratios[0]:.2f}"
    return Claim(where, statement, verdict, ours=ours)


def section(records: Sequence[tuple[Path, JSON]], grown: Sequence[tuple[Path, JSON]] = ()) -> Section | None:
    """What a step costs by every record of step times, and how that grows by the others; None without any."""
    if not records and not grown:
        return None
    charts = [chart for path, record in records if (chart := pictures.cost(path, record)) is not None]
    charts += [chart for path, record in grown if (chart := scaling.figure(path, record)) is not None]
    tables = [_cost_table(path, record) for path, record in records]
    return Section(TITLE, [ABOUT], [*charts, *tables, *(scaling.table(record) for _, record in grown)])


def _cost_table(path: Path, record: JSON) -> Table:
    names = ("model", "batch", "mode", "method")
    rows = []
    for row in record["rows"]:
        model, batch, mode, method = (str(row.get(name, "-")) for name in names)
        joined = row.get("joined") or 1
        at_once = f"{row.get('replicas', '-')}{f', joined by {joined}' if joined != 1 else ''}"
        numbers = (fixed(row.get(name), places) for name, places in NUMBERS.items())
        rows.append([model, batch, mode, at_once, method, *numbers])
    header = (
        *("model", "batch", "mode", "runs at once", "method"),
        *("ms per run and step", "times ERM", "times the floor", "GiB"),
    )
    words = ", ".join(str(record[name]) for name in ("device", "precision", "date") if record.get(name))
    return Table(header, rows, f"Step times. {words}. The floor is the arithmetic of the passes at the device's rate.")


NUMBERS = {"ms_per_seed_step": 3, "ratio_to_erm": 2, "ratio_to_floor": 2, "peak_memory_gib": 2}
"""Of a row, with the decimals that are shown."""


def check_step_times(path: Path, record: JSON) -> None:
    """Every row has what a chart needs."""
    form = {"batch": int, "mode": str, "method": str, "joined": (int, None), **dict.fromkeys(NUMBERS, NUMBER)}
    shaped(str(path), record, {"rows": [form]})
