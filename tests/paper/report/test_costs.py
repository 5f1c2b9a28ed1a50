"""What a step costs, and how that grows: what is judged, drawn and marked."""

from pathlib import Path
from typing import Any

import pytest

from rcad.paper.report import costs
from rcad.paper.report.costs import judge as study


def record(**ratios: float) -> tuple[Path, dict[str, Any]]:
    same = {"model": "m", "batch": 32, "mode": "eager", "replicas": 1, "ms_per_seed_step": 1.0}
    methods = {name.replace("_10", " 10"): ratio for name, ratio in {"erm": 1.0, **ratios}.items()}
    rows = [{**same, "method": method, "ratio_to_erm": ratio} for method, ratio in methods.items()]
    return Path("benchmarks/a.json"), {"rows": rows}


@pytest.mark.parametrize(
    ("records", "verdicts"),
    [
        ([record(rcad=1.25, pgd_10=7.0, me_ada=2.5)], ["reproduced", "undecided", "reproduced"]),
        ([record(rcad=1.25, pgd_10=7.0)], ["reproduced", "reproduced", "not run"]),
        ([record(rcad=2.0, pgd_10=7.0, me_ada=2.0)], ["not reproduced"] * 3),
        ([record(rcad=1.2), record(rcad=2.0)], ["undecided", "not run", "not run"]),
    ],
)
def test_every_group_counts(records: list[Any], verdicts: list[str]) -> None:
    found = study(records)
    assert [claim.verdict for claim in found.claims] == verdicts
    if len(records) > 1:
        assert found.claims[0].ours == "1.20 to 2.00 in 2 groups"
    assert study([record(fgsm=1.5)]) is study([]) is None


FLOOR = 4.0


def pair(axes: list[str], erm: float, ratio: float, **facts: Any) -> list[dict[str, Any]]:
    """ERM and RCAD at one point."""
    common = {"axes": axes, "model": "resnet18", "batch": 128, "side": 32, "classes": 100, "runs": 1, **facts}
    common |= {"parameters": 11_000_000, "peak_memory_gib": 0.5, "engine": "graph", "ratio_to_floor": 3.0}
    common["floor_us_per_example"] = FLOOR
    return [
        {**common, "method": method, "us_per_example": erm * times, "ratio_to_erm": times}
        for method, times in (("erm", 1.0), ("rcad", ratio))
    ]


def grown() -> dict[str, Any]:
    rows = [*pair(["batch", "classes"], 13, 1.9), *pair(["batch"], 43, 2.2, batch=32)]
    rows += pair(["classes"], 20, 1.5, classes=100_000)
    rows += [{**pair(["batch"], 1, 1, batch=4096)[0], "us_per_example": None, "error": "OutOfMemoryError: too large"}]
    return {"kind": costs.GROWTH, "device": "NVIDIA H200", "torch": "2.11.0", "precision": "bf16", "rows": rows}


def test_a_column_for_each_axis_with_the_floor_and_marks_on_what_leaves_the_range() -> None:
    figure = costs.growth_figure(Path("scaling_h200.json"), grown())
    assert figure.name == "scaling_h200"
    panels = figure.drawing.axes
    assert [ax.get_xlabel() for ax in panels[-2:]] == ["batch", "classes"]
    times, ratios = panels[0], panels[2]
    assert [list(line.get_ydata()) for line in times.lines[:2]] == [[43, 13], [FLOOR, FLOOR]]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in ratios.lines] == [
        ([32, 128], [2.2, 1.9]),
        ([32], [2.2]),
    ]
    rows = costs.growth_table(grown()).cells
    marked = [row[0].text for row in rows if row[3].mark == "bad"]
    assert marked == ["batch 32", "100,000 classes"]
    assert [row[2].text for row in rows if row[0].text == "batch 4096"] == ["OutOfMemoryError: too large"]
