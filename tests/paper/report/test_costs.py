"""What the paper says of the cost, judged by step times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rcad.paper.report.costs import judged as study
from rcad.paper.report.reading import read

ROOT = Path(__file__).parents[3]


def record(batch: int = 32, **ratios: float) -> tuple[Path, dict[str, Any]]:
    rows = [
        {"model": "m", "batch": batch, "mode": "eager", "replicas": 1, "method": name.replace("_10", " 10"),
         "ms_per_seed_step": 1.0, "ratio_to_erm": ratio}
        for name, ratio in {"erm": 1.0, **ratios}.items()
    ]  # fmt: skip
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
    assert found is not None
    assert [claim.verdict for claim in found.claims] == verdicts


def test_without_rcad_there_is_nothing_to_judge() -> None:
    assert study([record(fgsm=1.5)]) is None
    assert study([]) is None


def test_the_numbers_are_ranges_over_groups() -> None:
    found = study([record(rcad=1.2), record(rcad=2.0)])
    assert found is not None
    assert found.claims[0].ours == "1.20 to 2.00 in 2 groups"


def test_the_committed_times() -> None:
    (found,) = (one for one in read(ROOT / "results").studies if one.target == "costs")
    assert [claim.verdict for claim in found.claims] == ["not reproduced", "not reproduced", "reproduced"]
    assert not any(found.added(claim) for claim in found.claims)
