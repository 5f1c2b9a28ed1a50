"""What a step costs: the chart and the rows of the benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rcad.paper.report import drawing
from rcad.paper.report.drawing import BLUE, GREEN, GREY, ORANGE, PAPER, Picture
from rcad.paper.report.numbers import fixed
from rcad.paper.report.study import Claim, Record, Study
from rcad.report.document import Table

TITLE = "Cost of a step"
ABOUT = (
    "The paper claims at most 1.3 times ERM's time per batch. The arithmetic of the exact step is 2 times: two "
    "forwards and two backwards. Only ratios compare between devices."
)
MODES = {"eager": ("o", BLUE), "graph": ("s", GREEN), "compile": ("^", ORANGE)}
CLAIMED, FLOOR = 1.3, 2.0
"""Times ERM's: what the paper says RCAD takes at most, and the arithmetic of its two passes."""


def chart(path: Path, record: Record) -> Picture | None:
    """Time of a step in those of ERM, by method: a panel for each batch size, one run at a time."""
    rows = [row for row in record["rows"] if row.get("replicas", 1) == 1 and row.get("ratio_to_erm") is not None]
    batches = sorted({row["batch"] for row in rows})
    methods = list(dict.fromkeys(str(row["method"]) for row in rows if row["method"] != "erm"))
    modes = list(dict.fromkeys(str(row["mode"]) for row in rows))
    if not batches or not methods:
        return None
    figure = drawing.blank(max(6.6, 2.2 + 2.9 * len(batches)), 0.34 * len(methods) + 1.5)
    axes = np.atleast_1d(figure.subplots(1, len(batches), sharey=True))
    for ax, batch in zip(axes, batches, strict=True):
        for row in rows:
            if row["batch"] == batch and row["method"] in methods:
                marker, colour = MODES.get(row["mode"], ("D", GREY))
                y = methods.index(row["method"]) + 0.16 * (modes.index(row["mode"]) - (len(modes) - 1) / 2)
                ax.plot(row["ratio_to_erm"], y, marker, color=colour, ms=5.5)
        ax.axvline(CLAIMED, color=PAPER, lw=1.4, ls="--")
        ax.axvline(FLOOR, color=GREY, lw=1, ls=":")
        ax.set(ylim=(len(methods) - 0.5, -0.5), xlim=(0.9, None))
        ax.set_title(f"batch {batch}", fontsize=10)
        ax.set_xlabel("time of a step / that of ERM", fontsize=9)
        drawing.bare(ax)
    axes[0].set_yticks(range(len(methods)), [drawing.label(method) for method in methods])
    keys: list[Any] = [
        drawing.key(axes[0], mode, marker=MODES.get(mode, ("D", GREY))[0], ls="", color=MODES.get(mode, ("D", GREY))[1])
        for mode in modes
    ]
    keys.append(drawing.key(axes[0], "the paper: at most 1.3", color=PAPER, ls="--", lw=1.4))
    keys.append(drawing.key(axes[0], "RCAD's two passes: 2.0", color=GREY, ls=":", lw=1))
    drawing.legend(figure, keys, 5 if len(batches) > 1 else 3)
    return Picture(
        f"cost-{path.stem}",
        figure,
        f"{record.get('device', 'a device')}, torch {record.get('torch', '?')}: times within a group were taken in "
        "turns, so ratios compare like with like.",
        f"Time of a step relative to ERM by method and mode for batches of {', '.join(map(str, batches))}.",
    )


COSTS = "costs"
"""The name of the study that is judged by step times alone."""
MULTISTEP = ("pgd 10", "me_ada")
"""Adversarial training in several steps, as far as it is timed: ten projected ones, and a rival the paper names."""


def study(records: Sequence[tuple[Path, Record]]) -> Study | None:
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


def _groups(rows: Sequence[Record]) -> list[dict[str, float]]:
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
        return Claim(where, statement, "undecided", ours="not timed")
    verdict = "reproduced" if inside == len(ratios) else "undecided" if inside else "not reproduced"
    ours = f"{min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} groups" if len(ratios) > 1 else f"{ratios[0]:.2f}"
    return Claim(where, statement, verdict, ours=ours)


def _at_once(row: Record) -> str:
    """ "10", or "10, joined by 5" where each five are one network."""
    joined = row.get("joined", 1)
    return f"{row.get('replicas', '-')}{f', joined by {joined}' if joined != 1 else ''}"


def table(record: Record) -> Table:
    """Every row that was measured."""
    header = (
        "model",
        "batch",
        "mode",
        "runs at once",
        "method",
        "ms per run and step",
        "times ERM",
        "times the floor",
        "GiB",
    )
    rows = [
        [
            str(row.get("model", "-")),
            str(row.get("batch", "-")),
            str(row.get("mode", "-")),
            _at_once(row),
            str(row.get("method", "-")),
            fixed(row.get("ms_per_seed_step"), 3),
            fixed(row.get("ratio_to_erm"), 2),
            fixed(row.get("ratio_to_floor"), 2),
            fixed(row.get("peak_memory_gib"), 2),
        ]
        for row in record["rows"]
    ]
    words = ", ".join(str(record[name]) for name in ("device", "precision", "date") if record.get(name))
    return Table(header, rows, f"Step times. {words}. The floor is the arithmetic of the passes at the device's rate.")
