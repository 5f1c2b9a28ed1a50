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


def test_a_column_for_each_axis_and_marks_on_what_leaves_the_range() -> None:
    same = {"model": "resnet18", "side": 32, "runs": 1, "parameters": 11_000_000, "peak_memory_gib": 0.5}
    same |= {"engine": "graph", "ratio_to_floor": 3.0, "floor_us_per_example": 4.0}
    rows: list[dict[str, Any]] = []
    for axes, batch, classes, erm, ratio in (
        (["batch", "classes"], 128, 100, 13, 1.9),
        (["batch"], 32, 100, 43, 2.2),
        (["classes"], 128, 100_000, 20, 1.5),
    ):
        here = {**same, "axes": axes, "batch": batch, "classes": classes}
        rows += [{**here, "method": "erm", "us_per_example": erm, "ratio_to_erm": 1.0}]
        rows += [{**here, "method": "rcad", "us_per_example": erm * ratio, "ratio_to_erm": ratio}]
    rows += [{**rows[0], "axes": ["batch"], "batch": 4096, "us_per_example": None, "error": "OutOfMemoryError"}]
    grown = {"kind": costs.GROWTH, "device": "NVIDIA H200", "torch": "2.11.0", "precision": "bf16", "rows": rows}
    panels = costs.growth_figure(Path("scaling_h200.json"), grown).drawing.axes
    assert [ax.get_xlabel() for ax in panels[-2:]] == ["batch", "classes"]
    assert [list(line.get_ydata()) for line in panels[0].lines[:2]] == [[43, 13], [4.0, 4.0]]
    cells = costs.growth_table(grown).cells
    assert [row[0].text for row in cells if row[3].mark == "bad"] == ["batch 32", "100,000 classes"]
    assert [row[2].text for row in cells if row[0].text == "batch 4096"] == ["OutOfMemoryError"]
