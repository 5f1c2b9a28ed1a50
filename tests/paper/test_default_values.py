"""The record of how the defaults were chosen says what the code takes, and what it came to."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import default_values_page as pages
import numpy as np
import pytest

from rcad.loss.terms import WEIGHT

ROOT = Path(__file__).parents[2]
RECORD: dict[str, Any] = json.loads((ROOT / "results/defaults/defaults.json").read_text(encoding="utf-8"))


def test_the_page_is_made_from_the_record() -> None:
    assert (ROOT / "results/defaults/defaults.md").read_text(encoding="utf-8") == pages.page(RECORD)


def test_lam_is_the_one_that_held_out_examples_chose() -> None:
    assert float(RECORD["chosen"]) == WEIGHT
    assert min(RECORD["ranks"], key=RECORD["ranks"].get) == RECORD["chosen"]


@pytest.mark.parametrize("name", RECORD["check"])
def test_with_its_defaults_rcad_is_not_worse_than_erm(name: str) -> None:
    """But for the likelihood of moons that plain training has right already, which no alpha and no lam would mend."""
    plain, ours = RECORD["check"][name]["0"], RECORD["check"][name][RECORD["chosen"]]
    for metric, sign in (("accuracy", 1), ("nll", -1)):
        gain = sign * np.subtract(ours[metric], plain[metric])
        half = 2.0 * gain.std(ddof=1) / len(gain) ** 0.5
        if (name, metric) != ("moons, d = 2", "nll"):
            assert gain.mean() + half > 0
        else:
            assert np.mean(plain["accuracy"]) > 99.5
    for cells in RECORD["around"][name].values() if name in ("moons, d = 2", "moons, d = 10") else ():
        means = [np.mean(values) for values in cells.values()]
        assert means == sorted(means)
        assert min(means) > 0


def test_where_the_default_is_safe_on_moons() -> None:
    """By the rule of `rcad compare`: what the page says in words, cell by cell."""
    found = pages.judged(RECORD["moons"])
    worse = {
        metric: [name for (name, by), one in found.items() if (by, one.outcome) == (metric, "worse")]
        for metric in pages.METRICS
    }
    assert len(found) == 72
    assert worse["nll"] == ["0.1, 2, 1000", "0.1, 10, 1000"]
    for name in worse["nll"]:
        assert np.mean(RECORD["moons"][name]["0"]["accuracy"]) > 99.6
        assert found[name, "accuracy"].mean > 0
        assert found[name, "nll"].mean == pytest.approx(-0.005, abs=5e-4)
    assert worse["accuracy"] == ["0.1, 625, 100", "0.1, 1000, 100"]
    smaller = {name: found[name, "nll"].mean for name in RECORD["moons"] if not name.endswith(" 1000")}
    assert (min(smaller, key=smaller.get), min(smaller.values())) == ("0.1, 2, 300", pytest.approx(-0.002, abs=5e-4))
    for paper in ("0.1, 625, 1000", "0.75, 625, 1000", "0.1, 1000, 1000"):
        assert found[paper, "nll"].outcome == "better"
        assert found[paper, "accuracy"].outcome == "undecided"


def test_no_rule_for_lam_is_free_of_settings_where_it_is_worse() -> None:
    worse: Counter[str] = Counter()
    for found in RECORD["rules"].values():
        for rule, values in found.items():
            mean, half = pages.difference(values, found["0"])
            worse[rule] += mean > half
    assert worse.pop("0") == 0
    assert min(worse.values()) >= 1
