"""`python -m rcad.paper.theory`: the linear theory of the paper, computed, judged and drawn."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from rcad.errors import InputError
from rcad.paper.claims import scale_of_draws
from rcad.paper.theory import checks, claims, lemmas, theorem
from rcad.paper.theory.report import Results, to_markdown, write_json
from rcad.paper.theory.study import LARGE, SMALL, Settings, run_study
from rcad.paper.theory.sweeps import (
    ALPHAS,
    BETAS,
    DS,
    NS,
    RCAD_LRS,
    reading_gap,
    step_sizes,
    sweep_alpha,
    sweep_problem,
    together,
    variants,
    window,
)
from rcad.runs.files import ready_folder, write_text

EXAMPLE = """example:
  python -m rcad.paper.theory --draws 200 --out results/theory
  computes the paper's figure, the sweeps and the checks, and writes linear.json, linear.md and, with matplotlib,
  linear.png there."""
C0, MANY = 5.0, 1_000_000
"""The theorem's c0 where it is a constant, and the settings tried for it: few meet all conditions."""


def compute(settings: Settings) -> Results:
    """Everything, from the settings alone; says on stderr where it is."""
    started = time.perf_counter()

    def say(what: str) -> None:
        print(f"[{time.perf_counter() - started:5.1f} s] {what}", file=sys.stderr, flush=True)

    generator = torch.Generator().manual_seed(settings.seed + 1)
    problem = settings.problem
    say("the figure: ERM, then RCAD")
    study = run_study(settings)
    say("the lemmas: entropy, closed form, gradients")
    entropy, closed = checks.entropy_check(), checks.closed_form_check(generator)
    gradients = [
        checks.sample_gradient_check(replace(problem, gamma=gamma), LARGE, generator) for gamma in (problem.gamma, 0.5)
    ]
    say("the theorem: signs, conclusion, rate")
    scans = [*theorem.sign_scan(generator), *theorem.path_signs(problem, LARGE)]
    conclusions = [theorem.conclusion_scan(generator)]
    rates = [theorem.rate_fit(problem, alpha) for alpha in (problem.beta, LARGE)]
    met = theorem.conditions(problem, LARGE)
    say("the appendix: the first lemma, bounds, formulas, and c0 held constant")
    again = torch.Generator().manual_seed(settings.seed + 2)
    scans += theorem.sign_scan(again, count=MANY, ks=(1.0, 2.0), c0=C0, kinds=("derivative",))
    conclusions.append(theorem.conclusion_scan(again, count=MANY, c0=C0))
    appendix = lemmas.appendix_check(problem, (problem.beta, LARGE), again)
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
        *claims.figure_claims(study),
        *claims.entropy_claims(entropy),
        claims.start_claim(study),
        *claims.lemma_claims(closed, gradients, scans),
        *claims.theorem_claims(met, conclusions, rates),
        *claims.appendix_claims(appendix),
    ]
    if scale_of_draws(settings.draws) == "smoke":
        judged = claims.in_trial(judged)
    found = {
        "entropy": entropy.to_dict(),
        "closed_form": closed.to_dict(),
        "sample_gradients": [g.to_dict() for g in gradients],
        "signs": [s.to_dict() for s in scans],
        "conditions": [c.to_dict() for c in met],
        "conclusion": conclusions[0].to_dict(),
        "conclusion_with_c0": conclusions[1].to_dict(),
        "appendix": appendix.to_dict(),
        "rates": [r.to_dict() for r in rates if r is not None],
    }
    say("done")
    return Results(study, judged, sweeps, windows, rows, gaps, joint, lrs, found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rcad.paper.theory",
        description="Check the paper's linear theory: its figure over many draws, its lemmas, its theorem, the alphas "
        "that help.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--draws", type=int, default=1000, help="training sets per setting (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random number (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("results/theory"), help="folder (default: results/theory)")
    parser.add_argument("--no-figure", action="store_true", help="write no picture")
    options = parser.parse_args(arguments)
    try:
        ready_folder(options.out)
        results = compute(Settings(draws=options.draws, seed=options.seed))
        write_json(results, options.out / "linear.json")
        write_text(options.out / "linear.md", to_markdown(results))
    except InputError as error:
        parser.exit(2, f"error: {error}\n")
    if not options.no_figure:
        from rcad.paper.theory.figure import draw

        try:
            draw(results, options.out / "linear.png")
        except ImportError:
            print("no picture: expected matplotlib to be installed (pip install matplotlib)", file=sys.stderr)
    for verdict, count in claims.tally(results.claims).items():
        print(f"{count:3d} {verdict}")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
