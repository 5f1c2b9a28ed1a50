"""What a comparison may say: a winner only where the test says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcad.errors import InputError
from rcad.study.record import build, earlier, keep
from rcad.study.verdict import METRICS, compared, results, sentences, summaries

pytest.importorskip("scipy.stats")
N = 10
ROLES = {"erm": "base", "rcad": "asked", "mixup": "asked", "rcad_random": "control", "confidence_penalty": "control"}


def cells(gains: dict[str, float], *, n: int = N, noise: float = 0.4, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Accuracies around 80 with a gain for each method; nll and brier fall as accuracy grows."""
    draw = np.random.default_rng(seed)
    base = draw.normal(80, 2, n)
    found = {}
    for name, gain in {"erm": 0.0, **gains}.items():
        accuracy = base + gain + noise * draw.normal(size=n)
        found[name] = {
            "key": name,
            "name": name,
            "role": ROLES[name],
            "space": [],
            "seconds": 2.0,
            "runs": n,
            "seeds": {
                str(k): {
                    "chosen": {"lam": 0.1},
                    "validation": {},
                    "trials": [],
                    "test": {"accuracy": float(a), "nll": float(1 - a / 100), "brier": float(1 - a / 100)},
                }
                for k, a in enumerate(accuracy)
            },
        }
    return found


def said(found: dict[str, dict[str, Any]], ratio: float = 0.0) -> list[str]:
    return sentences(found, compared(found, METRICS[True], ratio), METRICS[True])


def test_a_winner_is_named_where_the_test_says_so() -> None:
    lines = said(cells({"rcad": 2.0, "mixup": 0.0}))
    assert lines[0].startswith("Accuracy: rcad (+")
    assert "is shown to be better than ERM" in lines[0]
    assert "mixup" not in lines[0]


def test_no_winner_without_a_difference() -> None:
    lines = said(cells({"rcad": 0.1, "mixup": 0.05}, noise=1.0))
    assert all("no method is shown to be better than ERM" in line for line in lines)
    assert "seeds would be needed to see the largest gain" in lines[0]


def test_the_seeds_needed_are_those_of_the_largest_difference() -> None:
    found = cells({"rcad": 0.1, "mixup": 0.05}, noise=1.0)
    pairs = [one for one in compared(found, METRICS[True], 0.0) if one.against == "erm" and one.metric == "accuracy"]
    leader = max(pairs, key=lambda one: one.difference.mean or 0.0)
    assert leader.difference.mean is not None
    assert f"{leader.difference.seeds_needed} seeds would be needed" in said(found)[0]
    assert f"{leader.method}'s {leader.difference.mean:.2f} points" in said(found)[0]


def test_overlapping_splits_take_the_winner_back() -> None:
    found = cells({"rcad": 0.7}, noise=0.6, seed=1)
    assert "is shown to be better" in said(found)[0]
    assert "out of reach of any number of these splits" in said(found, ratio=0.5)[0]


def test_worse_is_said_too() -> None:
    line = said(cells({"rcad": -2.0, "mixup": -3.0}))[0]
    assert "no method is shown to be better than ERM, and none was better on average" in line
    assert line.endswith("are shown to be worse.")


def test_several_winners_are_not_ranked() -> None:
    assert "which of them is best was not tested" in said(cells({"rcad": 2.0, "mixup": 3.0}))[0]


def test_the_controls_tell_whether_the_direction_helps() -> None:
    both = said(cells({"rcad": 4.0, "rcad_random": 1.0, "confidence_penalty": 1.0}))
    assert "rcad is better than its controls too: the adversarial direction is what helps." in both
    level = said(cells({"rcad": 2.0, "rcad_random": 2.0, "confidence_penalty": 0.0}))
    assert any("not shown to be better than its control rcad_random" in line for line in level)
    none = said(cells({"rcad": 0.0, "rcad_random": 0.0, "confidence_penalty": 0.0}, noise=1.0))
    assert len(none) == 3


def test_too_few_seeds_and_lost_runs_decide_nothing() -> None:
    assert "too few seeds for a test: 2" in said(cells({"rcad": 5.0}, n=2))[0]
    found = cells({"rcad": 5.0})
    found["rcad"]["seeds"]["3"]["test"] = None
    assert "1 of the runs diverged" in said(found)[0]
    assert summaries(found, ["accuracy"])["rcad"]["accuracy"]["diverged"] == 1


def test_holm_is_over_the_whole_page() -> None:
    found = cells({"rcad": 0.5, "mixup": 0.1, "rcad_random": 0.2, "confidence_penalty": 0.0})
    pairs = compared(found, METRICS[True], 0.0)
    assert len(pairs) == 3 * (4 + 2)
    least = min(one.difference.p_two or 1.0 for one in pairs)
    assert min(one.difference.p_holm or 1.0 for one in pairs) == pytest.approx(min(1.0, len(pairs) * least))


def test_differences_point_to_better() -> None:
    found = cells({"rcad": 2.0})
    by = {one.metric: one.difference.mean for one in compared(found, METRICS[True], 0.0)}
    assert all(mean is not None and mean > 0 for mean in by.values())
    assert by["nll"] == pytest.approx(
        np.mean([results(found["erm"], "nll")[k] - results(found["rcad"], "nll")[k] for k in range(N)])  # type: ignore[operator]
    )


def test_equal_methods_rarely_make_a_winner() -> None:
    """5% over the whole page: of 120 pages of equal methods few may name one."""
    wrong = sum(
        not all("no method is shown to be better" in line and "worse" not in line for line in said(found))
        for found in (cells({"rcad": 0.0, "mixup": 0.0}, noise=1.0, seed=k, n=5) for k in range(120))
    )
    assert wrong <= 14  # the 99.9th percentile of 120 draws at 5%


ABOUT = {"data": "d.csv", "target": "y", "task": None}
SETTINGS = {
    "about": ABOUT, "data": "d.csv", "command": "rcad compare", "seeds": [0], "budget": 1, "epochs": 2,
    "metrics": ["accuracy", "nll", "brier"], "test_ratio": 0.25, "seconds": 3.0,
    "sizes": {"train": 10, "validation": 2, "test": 4},
}  # fmt: skip


def test_the_record_holds_everything() -> None:
    found = cells({"rcad": 2.0})
    record = build(SETTINGS, found)
    assert record["base"] == "erm"
    assert record["methods"]["rcad"]["chosen"] == {"lam": "0.1"}
    assert record["sentences"] == said(found, 0.25)
    assert len(record["differences"]) == 3
    assert record["results"]["erm"]["accuracy"]["values"]["0"] == found["erm"]["seeds"]["0"]["test"]["accuracy"]


def test_a_folder_keeps_what_it_is_for(tmp_path: Path) -> None:
    assert earlier(tmp_path, ABOUT) == {}
    keep(tmp_path, ABOUT, cells({}))
    assert set(earlier(tmp_path, ABOUT)) == {"erm"}
    with pytest.raises(InputError, match=r"compares on 'd\.csv'"):
        earlier(tmp_path, {**ABOUT, "target": "z"})
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    with pytest.raises(InputError, match="something else"):
        earlier(other, ABOUT)
