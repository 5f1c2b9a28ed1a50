"""F5: the linear theory computed as a whole and judged, ready for its record."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import torch

from rcad.paper.claims import TRIAL
from rcad.paper.record import Say, Study
from rcad.paper.theory import appendix, claims, lemmas
from rcad.paper.theory.simulation import (
    ALPHAS,
    BETAS,
    DS,
    LARGE,
    NS,
    RCAD_LRS,
    SMALL,
    Settings,
    reading_gap,
    run_trajectories,
    step_sizes,
    sweep_alpha,
    sweep_problem,
    together,
    variants,
    window,
)

DRAWS = {"smoke": 20, "small": 100, "full": 1000}
"""Training sets of each setting, by scale."""
SCALES = {scale: Settings(draws=draws) for scale, draws in DRAWS.items()}
PARTS = 7
C0, MANY = 5.0, 1_000_000
"""The theorem's c0 where it is a constant, and the settings tried for it: few meet all conditions."""


def scale_of(settings: Settings) -> str:
    """The scale of so many draws."""
    return "smoke" if settings.draws < DRAWS["small"] else "small" if settings.draws < DRAWS["full"] else "full"


def judge(study: Study) -> Study:
    """As it was judged: the verdicts are made of iterates that no record keeps."""
    return study


def run(settings: Settings, data_dir: Path | None, tell: Say) -> Study:
    """Everything, from the settings alone."""
    parts = iter(range(PARTS))

    def say(what: str) -> None:
        tell(what, next(parts), PARTS)

    generator = torch.Generator().manual_seed(settings.seed + 1)
    problem = settings.problem
    say("the figure: ERM, then RCAD")
    paths = run_trajectories(settings)
    say("the lemmas: entropy, closed form, gradients")
    entropy, closed = lemmas.entropy_check(), lemmas.closed_form_check(generator)
    gradients = [
        lemmas.sample_gradient_check(replace(problem, gamma=gamma), LARGE, generator) for gamma in (problem.gamma, 0.5)
    ]
    say("the theorem: signs, conclusion, rate")
    scans = [*lemmas.sign_scan(generator), *lemmas.path_signs(problem, LARGE)]
    conclusions = [lemmas.conclusion_scan(generator)]
    rates = [lemmas.rate_fit(problem, alpha) for alpha in (problem.beta, LARGE)]
    met = lemmas.conditions(problem, LARGE)
    say("the appendix: the first lemma, bounds, formulas, and c0 held constant")
    again = torch.Generator().manual_seed(settings.seed + 2)
    scans += lemmas.sign_scan(again, count=MANY, ks=(1.0, 2.0), c0=C0, kinds=("derivative",))
    conclusions.append(lemmas.conclusion_scan(again, count=MANY, c0=C0))
    behind = appendix.appendix_check(problem, (problem.beta, LARGE), again)
    say("the sweeps")
    single = replace(settings, alphas=(LARGE,))
    grids = (("n", NS), ("d", DS), ("beta", BETAS))
    sweeps = [sweep_alpha(ALPHAS, single), *(sweep_problem(over, grid, single) for over, grid in grids)]
    windows = [window(beta, single) for beta in BETAS]
    say("projections and readings")
    rows = variants(single, (SMALL, problem.beta, LARGE, 1.5), (settings.steps, 10 * settings.steps))
    gaps = [reading_gap(single, alpha) for alpha in (problem.beta, LARGE)]
    say("the figure's claims together")
    cells = [(n, d, alpha) for n, d in ((20, 8), (20, 7), (100, 8)) for alpha in (problem.beta, LARGE)]
    joint = [together(replace(single, problem=replace(problem, n=n, d=d)), alpha) for n, d, alpha in cells]
    lrs = step_sizes(single, RCAD_LRS, (settings.steps, 10 * settings.steps))
    judged = [
        *claims.figure_claims(paths),
        *claims.entropy_claims(entropy),
        claims.start_claim(paths),
        *claims.lemma_claims(closed, gradients, scans),
        *claims.theorem_claims(met, conclusions, rates),
        *claims.appendix_claims(behind),
        *claims.sweep_claims(sweeps),
    ]
    if scale_of(settings) == "smoke":
        judged = [replace(claim, verdict=TRIAL) for claim in judged]
    checks = {
        "entropy": entropy,
        "closed_form": closed,
        "sample_gradients": gradients,
        "signs": scans,
        "conditions": met,
        "conclusion": conclusions[0],
        "conclusion_with_c0": conclusions[1],
        "appendix": asdict(behind),
        "rates": [one for one in rates if one is not None],
    }
    return Study(
        target="F5",
        title="linear theory",
        about=_about(settings),
        scale=scale_of(settings),
        metric="test accuracy",
        unit="",
        claims=judged,
        rule="; ".join(dict.fromkeys(claim.rule for claim in judged if claim.rule)),
        settings=asdict(settings),
        details={
            "sweeps": sweeps,
            "windows": windows,
            "variants": rows,
            "gaps": gaps,
            "together": joint,
            "step_sizes": lrs,
            "checks": checks,
            "figure": {"by_iteration": paths.bands()},
        },
    )


def _about(settings: Settings) -> str:
    problem = settings.problem
    return (
        f"The paper's linear problem: n={problem.n}, d={problem.d} features of noise, beta={problem.beta:g}, "
        f"sigma1={problem.sigma1:g}, sigma2={problem.sigma2}, gamma={problem.gamma:g}. {settings.draws:,} draws (seed "
        f"{settings.seed}), {settings.steps} iterations of ERM (lr {settings.erm_lr:g}), then {settings.steps} of RCAD "
        f"(lr {settings.rcad_lr:g}), projection: {settings.projection}, x~: {settings.reading}. Test accuracy is "
        "exact. The paper gives no step sizes and shows one draw. Lines are medians, bands hold 90% of the draws."
    )
