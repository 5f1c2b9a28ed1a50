"""F5: the linear theory computed as a whole and judged, ready for its record."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from rcad.paper.claims import Claim
from rcad.paper.record import OnProgress, Study
from rcad.paper.theory import appendix, claims, lemmas, simulation
from rcad.paper.theory.simulation import LARGE, SMALL, Settings

SCALES = {scale: Settings(draws=draws) for scale, draws in (("smoke", 20), ("small", 100), ("full", 1000))}
PARTS = 7
C0, MANY = 5.0, 1_000_000
"""The theorem's c0 where it is a constant, and the settings tried for it: few meet all conditions."""


def judge(study: Study) -> Study:
    """As it was judged: the verdicts are made of iterates that no record keeps."""
    return study


def run(settings: Settings, data_dir: Path | None, on_progress: OnProgress) -> Study:
    """Everything, from the settings alone."""
    parts = iter(range(PARTS))

    def begin(part: str) -> None:
        on_progress(part, next(parts), PARTS)

    problem, single = settings.problem, replace(settings, alphas=(LARGE,))
    lengths = (settings.steps, 10 * settings.steps)
    begin("the figure: ERM, then RCAD")
    paths = simulation.run_trajectories(settings)
    begin("the lemmas, the theorem and the appendix")
    checks, proofs = _checked(settings)
    begin("the sweeps")
    grids = {"alpha": simulation.ALPHAS, "n": simulation.NS, "d": simulation.DS, "beta": simulation.BETAS}
    sweeps = [simulation.sweep(over, grid, single) for over, grid in grids.items()]
    details: dict[str, Any] = {"sweeps": sweeps}
    begin("the window of alpha")
    details["windows"] = [simulation.window(beta, single) for beta in simulation.BETAS]
    begin("projections and readings")
    details["variants"] = simulation.variants(single, (SMALL, problem.beta, LARGE, 1.5), lengths)
    details["gaps"] = [simulation.reading_gap(single, alpha) for alpha in (problem.beta, LARGE)]
    begin("the figure's claims together")
    problems = [replace(problem, n=n, d=d) for n, d in ((20, 8), (20, 7), (100, 8))]
    cells = [(replace(single, problem=other), alpha) for other in problems for alpha in (problem.beta, LARGE)]
    details["together"] = [simulation.together(*cell) for cell in cells]
    begin("learning rates")
    details["step_sizes"] = simulation.step_sizes(single, simulation.RCAD_LRS, lengths)
    judged = [*claims.figure_claims(paths), *proofs[:2], claims.start_claim(paths), *proofs[2:]]
    judged += claims.sweep_claims(sweeps)
    return Study(
        target="F5",
        title="linear theory",
        about=_about(settings),
        metric="test accuracy",
        unit="",
        claims=judged,
        rule="; ".join(dict.fromkeys(claim.rule for claim in judged if claim.rule)),
        settings=asdict(settings),
        details={**details, "checks": checks, "figure": {"by_iteration": paths.bands()}},
    )


def _checked(settings: Settings) -> tuple[dict[str, Any], list[Claim]]:
    """The lemmas, the theorem and the appendix as numbers, and the claims that follow, the entropy's two first."""
    problem = settings.problem
    generator, again = (torch.Generator().manual_seed(settings.seed + k) for k in (1, 2))
    entropy, closed = lemmas.entropy_check(), lemmas.closed_form_check(generator)
    gradients = [
        lemmas.sample_gradient_check(replace(problem, gamma=gamma), LARGE, generator) for gamma in (problem.gamma, 0.5)
    ]
    signs = [*lemmas.sign_scan(generator), *lemmas.path_signs(problem, LARGE)]
    conclusions = [lemmas.conclusion_scan(generator)]
    rates = [lemmas.rate_fit(problem, alpha) for alpha in (problem.beta, LARGE)]
    met = lemmas.conditions(problem, LARGE)
    signs += lemmas.sign_scan(again, count=MANY, ks=(1.0, 2.0), c0=C0, kinds=("derivative",))
    conclusions.append(lemmas.conclusion_scan(again, count=MANY, c0=C0))
    behind = appendix.appendix_check(problem, (problem.beta, LARGE), again)
    checks = {
        "entropy": entropy,
        "closed_form": closed,
        "sample_gradients": gradients,
        "signs": signs,
        "conditions": met,
        "conclusion": conclusions[0],
        "conclusion_with_c0": conclusions[1],
        "appendix": behind,
        "rates": [fit for fit in rates if fit is not None],
    }
    return checks, [
        *claims.entropy_claims(entropy),
        *claims.lemma_claims(closed, gradients, signs),
        *claims.theorem_claims(met, conclusions, rates),
        *claims.appendix_claims(behind),
    ]


def _about(settings: Settings) -> str:
    problem = settings.problem
    return (
        f"The paper's linear problem: n={problem.n}, d={problem.d} features of noise, beta={problem.beta:g}, "
        f"sigma1={problem.sigma1:g}, sigma2={problem.sigma2}, gamma={problem.gamma:g}. {settings.draws:,} draws (seed "
        f"{settings.seed}), {settings.steps} iterations of ERM (lr {settings.erm_lr:g}), then {settings.steps} of RCAD "
        f"(lr {settings.rcad_lr:g}), projection: {settings.projection}, x~: {settings.reading}. Test accuracy is "
        "exact. The paper gives no step sizes and shows one draw. Lines are medians, bands hold 90% of the draws."
    )
