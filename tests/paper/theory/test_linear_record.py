"""The committed record of the linear theory, computed again: equal where nothing is drawn, near with fewer draws."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rcad.paper.record import Study
from rcad.paper.theory import appendix, lemmas, simulation
from rcad.paper.theory import study as claims
from rcad.paper.theory.problem import Problem, Row
from rcad.paper.theory.simulation import LARGE, RCAD_LRS, SMALL, Settings

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
