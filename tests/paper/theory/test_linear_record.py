"""The committed record of the linear theory, computed again; verdicts, and the files that a trial writes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from rcad.paper.record import Study
from rcad.paper.run import make_study
from rcad.paper.theory import appendix, lemmas, simulation
from rcad.paper.theory import study as claims
from rcad.paper.theory.problem import Interval, Problem, Row, mean_interval
from rcad.paper.theory.simulation import LARGE, RCAD_LRS, SMALL, Settings
from rcad.paper.theory.study import judge_interval, judge_universal
from rcad.study.statistics import share_interval

LINEAR = Study.read(Path(__file__).parents[3] / "results/theory/linear.json")
RECORD = LINEAR.details
CHECKS = RECORD["checks"]
FIGURE = Problem()
BASE = Settings(alphas=(LARGE,))  # a fifth of the record's draws
SHARES = ("better", "small_better", "large_better", "right", "capped", "poorer", "together")


@pytest.mark.parametrize("kept", RECORD["sweeps"], ids=lambda kept: kept["over"])
def test_sweeps(kept: Row) -> None:
    over, values = kept["over"], kept["values"][::2]
    made = simulation.sweep(over, [int(v) if over in "nd" else v for v in values], BASE)
    assert made["values"] == values
    assert made["better"] == pytest.approx(kept["better"][::2], abs=0.12)
    for name in ("erm_accuracy", "rcad_accuracy", "erm_noise", "rcad_noise"):
        for part, within in (("mean", 0.03), ("median", 0.05), ("q05", 0.1), ("q95", 0.1)):
            assert made[name][part] == pytest.approx(kept[name][part][::2], abs=within)


ROWS: dict[str, Callable[[], list[Row]]] = {
    "variants": lambda: simulation.variants(BASE, (SMALL, 0.5, LARGE, 1.5), (100,)),
    "gaps": lambda: [simulation.reading_gap(BASE, alpha) for alpha in (0.5, LARGE)],
    "step_sizes": lambda: simulation.step_sizes(BASE, RCAD_LRS, (100,)),
    "together": lambda: [
        simulation.together(replace(BASE, problem=replace(FIGURE, n=n, d=d)), alpha)
        for n, d in ((20, 8), (20, 7), (100, 8))
        for alpha in (0.5, LARGE)
    ],
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    kept = [row for row in RECORD[name] if row.get("steps", 100) == 100]
    for made, row in zip(ROWS[name](), kept, strict=True):
        for key in row:
            if not key.startswith("max_"):
                near(made, row, key, abs=0.12 if key in SHARES else 0.03)


def near(made: Row, kept: Row, *keys: str, **within: float) -> None:
    for key in keys or kept:
        assert made[key] == (kept[key] if isinstance(kept[key], str) else pytest.approx(kept[key], **within)), key


def test_checks_without_chance_are_equal() -> None:
    near(lemmas.entropy_check(), CHECKS["entropy"])
    for made, kept in zip(lemmas.conditions(FIGURE, LARGE), CHECKS["conditions"], strict=True):
        near(made, kept, rel=1e-6)
    for kept in CHECKS["rates"]:
        made = lemmas.rate_fit(FIGURE, kept["alpha"], steps=450)
        near(made, kept, "iterations", "slope", "predicted", "r_squared", rel=1e-6)
    assert lemmas.rate_fit(FIGURE, 0.8, steps=450) is None  # outside the window
    for made, kept in zip(lemmas.path_signs(FIGURE, LARGE), CHECKS["signs"][9:12], strict=True):
        near(made, kept)
    norms = appendix.gradient_norm(FIGURE, (0.5, LARGE))
    assert [*norms.values()] == pytest.approx([*CHECKS["appendix"]["gradient_norm"].values()], rel=1e-6)
    assert appendix.best_errors(FIGURE) == pytest.approx(CHECKS["appendix"]["best_errors"], rel=1e-6)


def test_claims_follow_from_the_numbers() -> None:
    """All but those of the figure, whose iterates no record keeps: the same words and verdicts again."""
    norms = {float(alpha): norm for alpha, norm in CHECKS["appendix"]["gradient_norm"].items()}
    checks = {**CHECKS, "appendix": {**CHECKS["appendix"], "gradient_norm": norms}}
    judges = (claims.entropy_claims, claims.lemma_claims, claims.theorem_claims, claims.appendix_claims)
    made = [*(claim for judge in judges for claim in judge(checks)), *claims.sweep_claims(RECORD["sweeps"])]
    kept = {(claim.where, claim.statement, claim.rule): claim for claim in LINEAR.claims}
    assert len(made) == 23
    for claim in made:
        assert claim == kept[claim.where, claim.statement, claim.rule]
    assert {claim.verdict for claim in made} == {"reproduced", "not reproduced", "opposite", "undecided"}
    backwards = [{**row, "erm_noise": {"mean": row["erm_noise"]["mean"][::-1]}} for row in RECORD["sweeps"]]
    assert {claim.verdict for claim in claims.sweep_claims(backwards)} == {"not reproduced"}


def test_the_figure_and_what_is_claimed_of_it() -> None:
    study = simulation.run_trajectories(Settings())
    for name, parts in study.bands().items():
        for part, band in parts.items():
            kept = RECORD["figure"]["by_iteration"][name][part]
            assert band["mean"] == pytest.approx(kept["mean"], abs=0.03)
            assert band["median"] == pytest.approx(kept["median"], abs=0.06)
    verdicts = {(claim.where, claim.statement): claim.verdict for claim in LINEAR.claims}
    made = [*claims.figure_claims(study), claims.start_claim(study)]
    assert len(made) == 14
    for claim in made:
        assert claim.verdict == verdicts[claim.where, claim.statement], claim


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
    monkeypatch.setattr(claims, "MANY", 50_000)
    monkeypatch.setitem(claims.SCALES, "smoke", Settings(draws=10, steps=20))
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
