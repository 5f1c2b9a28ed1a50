"""The cost of a step and how it grows: the chapter, and the paper's sentences on cost judged by step times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rcad.paper.claims import NOT_RUN, Claim
from rcad.paper.record import JSON, Study
from rcad.paper.report.tables import about, caption
from rcad.report import drawing
from rcad.report.document import Cell, Figure, Section, Table
from rcad.report.drawing import BLACK, BLUE, GREEN, GREY, LIGHT, ORANGE, PAPER, VERMILION
from rcad.report.numbers import fixed

KIND = "rcad step times"
TITLE = "Cost of a step"
MODES = {"eager": ("o", BLUE), "graph": ("s", GREEN), "compile": ("^", ORANGE)}
CLAIMED, FLOOR = 1.3, 2.0
"""Times ERM's: what the paper says RCAD takes at most, and the arithmetic of its two passes."""
NUMBERS = {
    "ms per run and step": ("ms_per_seed_step", 3),
    "times ERM": ("ratio_to_erm", 2),
    "times the floor": ("ratio_to_floor", 2),
    "GiB": ("peak_memory_gib", 2),
}
"""The numbers of a row as the table calls them, with their decimals."""
COSTS = "costs"
"""The name of the study that is judged by step times alone."""
MULTISTEP = ("pgd 10", "me_ada")
"""Adversarial training in several steps, as far as it is timed: ten projected ones, and a rival the paper names."""


def judge(records: Sequence[tuple[Path, JSON]]) -> Study | None:
    """The paper's sentences on RCAD's cost, judged by every group of step times, one run at a time."""
    groups: dict[tuple[Any, ...], dict[str, float]] = {}
    for number, (_, record) in enumerate(records):
        for row in single_runs(record["rows"]):
            group = number, *(row.get(name) for name in ("model", "batch", "mode"))
            groups.setdefault(group, {})[str(row["method"])] = float(row["ratio_to_erm"])
    ratios: dict[str, list[float]] = {}
    for times in groups.values():
        for method, time in times.items() if "rcad" in times else ():
            ratios.setdefault(method, []).append(times["rcad"] / time)
    several = [ratio for name in MULTISTEP for ratio in ratios.get(name, ())]
    grown = [1 / ratio for ratio in ratios.get("me_ada", ())]
    claims = [
        _claim("section 1", "RCAD takes at most 1.3 times ERM's time a batch", ratios.get("erm", []), (0.0, CLAIMED)),
        _claim("section 2", "RCAD takes at most a fifth of multi-step adversarial training", several, (0.0, 0.2)),
        _claim("appendix C", "ME-ADA takes twice RCAD's time", grown, (1.7, 2.3)),
    ]
    if not ratios:
        return None
    return Study(
        target=COSTS,
        title="What the paper says of the cost",
        path=records[0][0].parent,
        about=caption("cost_judged"),
        claims=claims,
        rule=caption("cost_rule"),
        unit="",
        notes=[caption("cost_multistep"), "Hours on a GTX 1080 Ti are not judged: no such card was at hand."],
    )


def _claim(where: str, statement: str, ratios: Sequence[float], allowed: tuple[float, float]) -> Claim:
    low, high = allowed
    inside = sum(low <= ratio <= high for ratio in ratios)
    if not ratios:
        return Claim(where, statement, NOT_RUN, note=NOT_RUN)
    verdict = "reproduced" if inside == len(ratios) else "undecided" if inside else "not reproduced"
    ours = f"{min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} groups" if len(ratios) > 1 else f"{ratios[0]:.2f}"
    return Claim(where, statement, verdict, ours=ours)


def section(records: Sequence[tuple[Path, JSON]], growth: Sequence[tuple[Path, JSON]]) -> Section | None:
    """The cost of a step by every record of step times, and its growth by the others; None without any."""
    if not records and not growth:
        return None
    figures = [*(figure(*record) for record in records), *(growth_figure(*record) for record in growth)]
    tables = [*(cost_table(record) for _, record in records), *(growth_table(record) for _, record in growth)]
    return Section(TITLE, [caption("cost")], [*(figure for figure in figures if figure is not None), *tables])


def single_runs(rows: Sequence[JSON]) -> list[JSON]:
    """The rows of a benchmark that time one run at a time and compare it with ERM."""
    return [row for row in rows if row.get("replicas", 1) == 1 and row.get("ratio_to_erm")]


def figure(path: Path, record: JSON) -> Figure | None:
    """Time of a step in those of ERM, by method: a panel for each batch size, one run at a time."""
    rows = single_runs(record["rows"])
    batches = sorted({row["batch"] for row in rows})
    methods = list(dict.fromkeys(str(row["method"]) for row in rows if row["method"] != "erm"))
    modes = list(dict.fromkeys(str(row["mode"]) for row in rows))
    if not batches or not methods:
        return None
    styles = {mode: MODES.get(mode, ("D", GREY)) for mode in modes}
    size = max(6.6, 2.2 + 2.9 * len(batches)), 0.34 * len(methods) + 1.5
    figure, (axes,) = drawing.grid(*size, 1, len(batches), sharey=True)
    for ax, batch in zip(axes, batches, strict=True):
        for row in rows:
            if row["batch"] == batch and row["method"] in methods:
                marker, colour = styles[row["mode"]]
                y = methods.index(row["method"]) + 0.16 * (modes.index(row["mode"]) - (len(modes) - 1) / 2)
                ax.plot(row["ratio_to_erm"], y, marker, color=colour, ms=5.5)
        ax.axvline(CLAIMED, color=PAPER, lw=1.4, ls="--")
        ax.axvline(FLOOR, color=GREY, lw=1, ls=":")
        ax.set(ylim=(len(methods) - 0.5, -0.5), xlim=(0.9, None))
        ax.set_title(f"batch {batch}", fontsize=10)
        ax.set_xlabel("time of a step / that of ERM", fontsize=9)
    axes[0].set_yticks(range(len(methods)), [drawing.label(method) for method in methods])
    keys = [drawing.key(axes[0], mode, marker=marker, ls="", color=colour) for mode, (marker, colour) in styles.items()]
    keys.append(drawing.key(axes[0], "the paper: at most 1.3", color=PAPER, ls="--", lw=1.4))
    keys.append(drawing.key(axes[0], "RCAD's two passes: 2.0", color=GREY, ls=":", lw=1))
    fields = {"device": record.get("device", "a device"), "torch": record.get("torch", "?")}
    words = about("cost", batches=", ".join(map(str, batches)), **fields)
    return drawing.finish(figure, keys, *words, f"cost-{path.stem}", columns=5 if len(batches) > 1 else 3, wide=True)


def cost_table(record: JSON) -> Table:
    rows = []
    for row in record["rows"]:
        joined = row.get("joined") or 1
        at_once = f"{row.get('replicas', '-')}{f', joined by {joined}' if joined != 1 else ''}"
        shape = {"model": str(row.get("model", "-")), "batch": str(row["batch"]), "mode": row["mode"]}
        numbers = {name: fixed(row.get(key), places) for name, (key, places) in NUMBERS.items()}
        rows.append({**shape, "runs at once": at_once, "method": row["method"], **numbers})
    words = ", ".join(str(record[name]) for name in ("device", "precision", "date") if record.get(name))
    floor = "The floor is the arithmetic of the passes at the device's rate."
    return Table.of(rows, f"Step times. {words}. {floor}")


GROWTH = "rcad scaling"
"""The kind of records of how time per example and memory grow, which `benchmarks/scaling.py` writes."""
EXPECTED = (1.6, 2.05)
"""Between these RCAD's time in that of ERM is what its passes cost."""
AXES = {
    "batch": ("batch", "batch", "batch {batch}"),
    "side": ("side", "pixels a side", "{side} pixels"),
    "classes": ("classes", "classes", "{classes:,} classes"),
    "model": ("parameters", "network", "{model}"),
    "runs": ("runs", "runs at once", "{runs} runs"),
}
"""What grows: the field of a row, the name of the axis, and a point of it in words."""
MEASURED = ("us_per_example", "floor_us_per_example", "ratio_to_erm", "ratio_to_floor")
"""The numbers of a row; a row whose model did not fit has an error instead."""
COLOURS = {"erm": BLACK, "rcad": BLUE}


def outside(row: JSON) -> bool:
    """Whether RCAD takes more or less of ERM's time there than its passes should."""
    ratio = row.get("ratio_to_erm")
    return row["method"] == "rcad" and ratio is not None and not EXPECTED[0] <= ratio <= EXPECTED[1]


def growth_figure(path: Path, record: JSON) -> Figure | None:
    """A column for each axis: time per example with its floor, the ratio to ERM, memory."""
    rows = [row for row in record["rows"] if all(row.get(name) for name in MEASURED)]
    axes = [axis for axis in AXES if len({_at(row, axis) for row in rows if axis in row["axes"]}) > 1]
    if not axes:
        return None
    height, down = (6.4, 3) if any(row.get("peak_memory_gib") for row in rows) else (4.6, 2)
    drawn, grid = drawing.grid(0.7 + 2.3 * len(axes), height, down, len(axes), sharex="col", sharey="row")
    for column, axis in enumerate(axes):
        along = sorted((row for row in rows if axis in row["axes"]), key=lambda row: _at(row, axis))
        for method in COLOURS:
            _lines(grid[:, column], [row for row in along if row["method"] == method], axis, method)
        _dress(grid[:, column], axis, along)
    for ax, text in zip(grid[:, 0], ("µs per example", "RCAD / ERM", "GiB at the peak"), strict=False):
        ax.set_ylabel(text, fontsize=9)
    first = grid[0, 0]
    keys = [drawing.key(first, method.upper(), color=colour, marker="o", ms=3) for method, colour in COLOURS.items()]
    keys.append(drawing.key(first, "floor: arithmetic alone", color=BLACK, ls=":", lw=1))
    keys.append(drawing.key(first, f"outside {EXPECTED[0]} to {EXPECTED[1]}", color=VERMILION, marker="o", ls="", ms=5))
    device = ", ".join(
        f"{'torch ' * (name == 'torch')}{record[name]}" for name in ("device", "torch", "precision") if record.get(name)
    )
    base, (low, high) = max(rows, key=lambda row: len(row["axes"])), EXPECTED
    batches = ", ".join(sorted({str(row["batch"]) for row in rows if "runs" in row["axes"]})) or "-"
    outliers = "; ".join(f"{_where(row)}: {row['ratio_to_erm']:.2f}" for row in rows if outside(row))
    stays = f"leaves {low} to {high} times ERM at {outliers}" if outliers else f"stays within {low} to {high} of ERM"
    names = ", ".join(AXES[axis][1] for axis in axes)
    words = about("growth", about=device, base=base, batches=batches, stays=stays, axes=names)
    return drawing.finish(drawn, keys, *words, path.stem, wide=True)


def _at(row: JSON, axis: str) -> float:
    return float(row.get(AXES[axis][0]) or 0)


def _lines(panels: Sequence[Any], rows: Sequence[JSON], axis: str, method: str) -> None:
    colour, joined, across = COLOURS[method], "-", [_at(row, axis) for row in rows]
    if axis == "model":  # no series
        joined, across = "", [float(place) for place in range(len(rows))]
    style: dict[str, Any] = {"color": colour, "ms": 3, "lw": 1.3}
    panels[0].plot(across, [row["us_per_example"] for row in rows], f"o{joined}", **style)
    floors = [row["floor_us_per_example"] for row in rows]
    panels[0].plot(across, floors, f"_{joined and ':'}", color=colour, lw=1, ms=6)
    if method == "rcad":
        panels[1].plot(across, [row["ratio_to_erm"] for row in rows], f"o{joined}", **style)
        for x, row in zip(across, rows, strict=True):
            if outside(row):
                panels[1].plot(x, row["ratio_to_erm"], "o", color=VERMILION, ms=5)
    memory = [(x, row["peak_memory_gib"]) for x, row in zip(across, rows, strict=True) if row.get("peak_memory_gib")]
    if memory:
        panels[2].plot(*zip(*memory, strict=True), f"o{joined}", **style)


def _dress(panels: Sequence[Any], axis: str, rows: Sequence[JSON]) -> None:
    for ax in panels:
        ax.set_xscale("linear" if axis == "model" else "log")
    ticks = sorted({_at(row, axis) for row in rows})
    chosen = ticks if len(ticks) < 5 else ticks[:: (len(ticks) + 3) // 4]
    if axis == "model":
        names = {_at(row, axis): str(row["model"]).removeprefix("timm:").split("_patch")[0] for row in rows}
        labels = [f"{names[tick]}, {_short(tick)}" for tick in ticks]
        panels[-1].set_xticks(range(len(ticks)), labels, rotation=30, ha="right", fontsize=7)
        panels[-1].set_xlim(-0.5, len(ticks) - 0.5)
    else:
        panels[-1].set_xticks(chosen, [_short(tick) for tick in chosen])
    panels[-1].minorticks_off()
    panels[-1].set_xlabel(AXES[axis][1], fontsize=9)
    panels[0].set_yscale("log")
    panels[1].axhspan(*EXPECTED, color=LIGHT, alpha=0.4, lw=0)
    if len(panels) > 2:
        panels[2].set_yscale("log")


def _short(value: float) -> str:
    return f"{value / 1e6:.0f}M" if value >= 1e6 else f"{value / 1e3:g}k" if value >= 1e4 else f"{value:g}"


def _where(row: JSON) -> str:
    """The point of a row, by the axes on which it lies."""
    words = [AXES[axis][2].format_map(row) for axis in row["axes"] if axis in AXES]
    return ", ".join(word.removeprefix("timm:") for word in words)


def growth_table(record: JSON) -> Table:
    """Every point; a ratio outside `EXPECTED` is marked."""
    rows: list[list[str | Cell]] = []
    for row in record["rows"]:
        cells: list[str | Cell] = [_where(row), row["method"].upper() if row["method"] in COLOURS else row["method"]]
        if row.get("error"):
            rows.append([*cells, str(row["error"]), *["-"] * 4])
            continue
        ratio = Cell(fixed(row["ratio_to_erm"], 2), mark="bad" if outside(row) else "")
        cells += [fixed(row["us_per_example"], 2), ratio, fixed(row["ratio_to_floor"], 2)]
        rows.append([*cells, fixed(row.get("peak_memory_gib"), 2), str(row.get("engine", "-"))])
    header = ("point", "method", "µs per example", "times ERM", "times the floor", "GiB", "steps")
    return Table(header, rows, "How the cost of a step grows; a ratio outside 1.6 to 2.05 is marked.")
