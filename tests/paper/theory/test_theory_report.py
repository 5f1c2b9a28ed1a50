"""Verdicts, and the files that are written."""

from functools import partial
from pathlib import Path

import pytest
import torch

from rcad.paper.record import Study
from rcad.paper.run import make_study
from rcad.paper.theory import appendix, lemmas, study
from rcad.paper.theory.problem import Interval, mean_interval
from rcad.paper.theory.simulation import Settings
from rcad.paper.theory.study import judge_interval, judge_universal
from rcad.study.statistics import share_interval


@pytest.mark.parametrize(
    ("low", "high", "difference", "share"),
    [
        (0.6, 0.7, "reproduced", "reproduced"),
        (0.4, 0.6, "reproduced", "undecided"),
        (-0.2, -0.1, "opposite", "not reproduced"),
        (-0.1, 0.1, "undecided", "not reproduced"),
    ],
)
def test_verdicts_follow_the_interval(low: float, high: float, difference: str, share: str) -> None:
    interval = Interval((low + high) / 2, low, high)
    assert judge_interval(interval, 0, "opposite") == difference
    assert judge_interval(interval, 0.5, "not reproduced") == share
    # A proof's statement is refuted by one exception.
    verdicts = [judge_universal(holds, 1 - holds) for holds in (1.0, 0.999, 0.1)]
    assert verdicts == ["reproduced", "not reproduced", "opposite"]


def test_intervals_are_the_textbook_s() -> None:
    # Wilson's 95% interval for 15 of 20.
    assert share_interval(0.75, 20) == pytest.approx((0.5313, 0.8881), abs=1e-4)
    assert share_interval(1.0, 10) == pytest.approx((0.72247, 1), abs=1e-5)
    mean, half = 2.5, 1.96 * 1.29099 / 2
    assert mean_interval(torch.arange(1.0, 5.0)) == pytest.approx((mean, mean - half, mean + half), abs=1e-3)


@pytest.mark.usefixtures("undrawn")
def test_from_the_name_to_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("enough_examples", "margin_bound"):
        monkeypatch.setattr(appendix, name, partial(getattr(appendix, name), problems=4))
    fewer = {"conclusion_scan": {"steps": 20}, "sign_scan": {"count": 20_000}, "rate_fit": {"steps": 50}}
    for name, less in {**fewer, "sample_gradient_check": {"n": 20_000}}.items():
        monkeypatch.setattr(lemmas, name, partial(getattr(lemmas, name), **less))
    monkeypatch.setattr(study, "MANY", 50_000)
    monkeypatch.setitem(study.SCALES, "smoke", Settings(draws=10, steps=20))
    told: list[str] = []
    made = make_study("F5", "smoke", tmp_path, None, lambda what, done, total: told.append(what))
    assert "the sweeps" in told
    assert made.line.endswith("a trial"), "ten draws judge nothing"
    found = Study.read(tmp_path / "theory" / "linear.json")
    assert (found.target, found.scale, found.settings["draws"]) == ("F5", "smoke", 10)
    assert len(found.details["figure"]["by_iteration"]["erm"]["w1"]["median"]) == 21
    assert {claim.verdict for claim in found.claims} == {"a trial"}
    page = (tmp_path / "theory" / "linear.md").read_text()
    assert "SMOKE SCALE" in page
    assert sum(line.startswith("| a trial |") for line in page.splitlines()) == len(found.claims)
    for heading in ("The window of alpha", "RCAD's learning rate", "Sweep over beta, alpha=0.7"):
        assert f"## {heading}" in page
