"""The record of how the defaults were chosen says what the code takes, and what it came to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcad.loss.terms import WEIGHT

RECORD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "results/defaults/defaults.json").read_text(encoding="utf-8")
)


def test_lam_is_the_one_that_held_out_examples_chose() -> None:
    assert float(RECORD["chosen"]) == WEIGHT
    assert min(RECORD["ranks"], key=RECORD["ranks"].get) == RECORD["chosen"]


@pytest.mark.parametrize("name", RECORD["check"])
def test_with_its_defaults_rcad_is_not_worse_than_erm(name: str) -> None:
    """But for the likelihood of moons that plain training has right already."""
    plain, ours = RECORD["check"][name]["0"], RECORD["check"][name][RECORD["chosen"]]
    for metric, sign in (("accuracy", 1), ("nll", -1)):
        gain = sign * np.subtract(ours[metric], plain[metric])
        half = 2.0 * gain.std(ddof=1) / len(gain) ** 0.5
        if (name, metric) != ("moons, d = 2", "nll"):
            assert gain.mean() + half > 0
        else:
            assert np.mean(plain["accuracy"]) > 99.5


@pytest.mark.parametrize("name", ["moons, d = 2", "moons, d = 10"])
def test_no_alpha_and_no_lam_would_mend_it_there(name: str) -> None:
    for cells in RECORD["around"][name].values():
        means = [np.mean(values) for values in cells.values()]
        assert means == sorted(means)
        assert min(means) > 0
