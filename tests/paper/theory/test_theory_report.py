"""Verdicts, the files that are written, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from rcad.paper.record import Study
from rcad.paper.theory import appendix, lemmas
from rcad.paper.theory.__main__ import main
from rcad.paper.theory.claims import figure_claims, judge_difference, judge_share, judge_universal
from rcad.paper.theory.problem import Interval, band, mean_interval, share_interval
from rcad.paper.theory.simulation import Settings, run_trajectories
from rcad.paper.theory.study import scale_of


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
    assert judge_difference(interval) == difference
    assert judge_share(interval) == share


def test_a_proof_s_statement_is_refuted_by_one_exception() -> None:
    assert judge_universal(1.0, 0.0) == "reproduced"
    assert judge_universal(0.999, 0.001) == "not reproduced"
    assert judge_universal(0.1, 0.9) == "opposite"


def test_intervals_are_the_textbook_s() -> None:
    share = share_interval(torch.arange(20) < 15)
    # Wilson's 95% interval for 15 of 20.
    assert (share.value, share.low, share.high) == pytest.approx((0.75, 0.5313, 0.8881), abs=1e-4)
    assert share_interval(torch.ones(10)).high == pytest.approx(1)
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    mean = mean_interval(values)
    assert mean.value == 2.5
    assert mean.high - mean.value == pytest.approx(1.96 * 1.29099 / 2, abs=1e-3)


def test_bands_are_quantiles_over_draws() -> None:
    values = torch.stack([torch.arange(101.0), 2 * torch.arange(101.0)])[:, torch.randperm(101)]
    found = band(values)
    assert (found["q05"], found["median"]) == ([5, 10], [50, 100])
    assert (found["q95"], found["mean"]) == ([95, 190], [50, 100])


def test_the_figure_s_verdicts() -> None:
    verdicts = {c.statement: c.verdict for c in figure_claims(run_trajectories(Settings()))}
    assert verdicts["alpha=0.7 has the better test accuracy"] == "reproduced"
    assert verdicts["alpha=0.01 is poorer than ERM"] == "reproduced"
    assert verdicts["|w1| rises and ||w2|| falls at every iteration"] == "not reproduced"
    assert verdicts["test accuracy reaches 100%"] == "not reproduced"


def test_the_command_writes_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("enough_examples", "margin_bound"):
        monkeypatch.setattr(appendix, name, partial(getattr(appendix, name), problems=4))
    monkeypatch.setattr(lemmas, "conclusion_scan", partial(lemmas.conclusion_scan, steps=20))
    assert main(["--draws", "10", "--out", str(tmp_path / "new"), "--no-figure"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("a trial\nwritten to "), "ten draws judge nothing"
    assert "the sweeps" in shown.err
    made = Study.read(tmp_path / "new" / "linear.json")
    assert (made.target, made.scale, made.settings["draws"]) == ("F5", "smoke", 10)
    assert len(made.details["figure"]["by_iteration"]["erm"]["w1"]["median"]) == 101
    page = (tmp_path / "new" / "linear.md").read_text()
    assert {claim.verdict for claim in made.claims} == {"a trial"}
    assert "SMOKE SCALE" in page
    assert sum(line.startswith("| a trial |") for line in page.splitlines()) == len(made.claims)
    for heading in ("The window of alpha", "RCAD's learning rate", "Sweep over beta, alpha=0.7"):
        assert f"## {heading}" in page


@pytest.mark.parametrize(
    ("draws", "scale"), [(20, "smoke"), (99, "smoke"), (100, "small"), (999, "small"), (1000, "full")]
)
def test_the_scale_goes_by_the_draws(draws: int, scale: str) -> None:
    assert scale_of(Settings(draws=draws)) == scale


def test_bad_options_end_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--draws", "1"])
    assert stop.value.code == 2
    assert "expected draws to be a whole number >= 2, but got 1" in capsys.readouterr().err


def test_importing_needs_torch_and_numpy_only() -> None:
    code = (
        "import sys, rcad.paper.theory, rcad.paper.theory.simulation, rcad.paper.theory.lemmas; "
        "print(*(m for m in ('scipy', 'matplotlib', 'pandas', 'sklearn', 'typer') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
