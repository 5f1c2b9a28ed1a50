"""F5: the linear theory computed as a whole and judged, ready for its record. The rules know no result.

A claim about a comparison is judged by the mean paired difference over draws and its 95% interval; one about a level
("reaches 100%") by the share of draws that show it, since the paper shows one draw; one that a proof states for all
settings by whether it holds in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rcad.paper.claims import TOGETHER, Claim
from rcad.paper.record import OnProgress, Study
from rcad.paper.targets import TARGETS
from rcad.paper.theory import appendix, lemmas, simulation
from rcad.paper.theory.problem import (
    Interval,
    Row,
    erm_step,
    final,
    margins,
    mean_interval,
    norms,
    share_interval,
    training_accuracy,
)
from rcad.paper.theory.simulation import LARGE, SMALL, Settings, Trajectories
from rcad.study.judge import Verdict

NEAR_ZERO, NEAR_ONE, HUNDRED_PERCENT = 0.1, 0.99, 0.995
VISIBLE = 0.01  # a reversal smaller than this cannot be seen in a plot from 0 to 1


def _claim(where: str, statement: str, ours: str, rule: str, verdict: Verdict | bool) -> Claim:
    """One statement of the paper, what we find, and the verdict its rule gives; True where the rule is met."""
    if not isinstance(verdict, str):
        verdict = "reproduced" if verdict else "not reproduced"
    return Claim(where, statement, verdict, ours=ours, rule=rule)


def judge_interval(interval: Interval, level: float, below: Verdict) -> Verdict:
    """Above the level it speaks for the claim; `below` is the verdict on what lies below it."""
    return "reproduced" if interval.low > level else below if interval.high < level else "undecided"


def judge_universal(holds: float, reversed_: float) -> Verdict:
    """A proof's statement: one counterexample refutes it; the reverse in most settings is the opposite."""
    if holds == 1:
        return "reproduced"
    return "opposite" if reversed_ > 0.5 else "not reproduced"


def _difference(where: str, statement: str, label: str, values: Tensor, unit: float = 1.0) -> Claim:
    interval = mean_interval(values)
    share = (values > 0).double().mean().item()
    number = f"{label} {unit * interval.value:+.3g} [{unit * interval.low:+.3g}, {unit * interval.high:+.3g}]"
    ours, verdict = f"{number}; so in {share:.1%} of draws", judge_interval(interval, 0, "opposite")
    return _claim(where, statement, ours, "mean paired difference, 95% interval above 0", verdict)


def _level(where: str, statement: str, condition: str, holds: Tensor) -> Claim:
    interval = share_interval(holds)
    verdict = judge_interval(interval, 0.5, "not reproduced")  # of what one draw shows: most draws must show it
    ours = f"{interval.value:.1%} of draws [{interval.low:.1%}, {interval.high:.1%}]"
    return _claim(where, statement, ours, f"{condition} in most draws, 95% interval above 50%", verdict)


def figure_claims(study: Trajectories) -> list[Claim]:
    """Section 5's reading of its figure, (i) to (iii), over all draws."""
    erm, large, small = study.erm[-1], study.path(LARGE), study.path(SMALL)[-1]
    accuracy = [study.accuracy(w) for w in (erm, large[-1], small)]
    noise = [norms(w)[1] for w in (erm, large[-1], small)]
    true = norms(large)[0]
    fall = (true.cummax(0).values - true).amax(0)  # how far it falls below its own running maximum
    ends = (true[-1] >= NEAR_ONE) & (noise[1] <= NEAR_ZERO)
    hundred, seventy = accuracy[1] >= HUNDRED_PERCENT, accuracy[0] <= 0.70
    together = (noise[1] <= NEAR_ZERO) & (accuracy[2] < accuracy[0]) & (fall <= VISIBLE) & ends & hundred & seventy
    return [
        _difference(
            "F5 (i)", "alpha=0.7 depends less on the noise than ERM", "||w2||, ERM - RCAD", noise[0] - noise[1]
        ),
        _difference("F5 (i)", "alpha=0.7 has the better test accuracy", "points", accuracy[1] - accuracy[0], 100),
        _level("F5 (i)", "ERM depends on the noise", "||w2|| > 0.1", noise[0] > NEAR_ZERO),
        _level("F5 (i)", "RCAD has almost no dependence on the noise", "||w2|| <= 0.1", noise[1] <= NEAR_ZERO),
        _difference(
            "F5 (ii)", "alpha=0.01 depends more on the noise than ERM", "||w2||, RCAD - ERM", noise[2] - noise[0]
        ),
        _difference("F5 (ii)", "alpha=0.01 is poorer than ERM", "points, ERM - RCAD", accuracy[0] - accuracy[2], 100),
        _level(
            "F5 (iii)", "|w1| rises and ||w2|| falls monotonically, to the eye", "no fall over 0.01", fall <= VISIBLE
        ),
        _level("F5 (iii)", "|w1| rises and ||w2|| falls at every iteration", "no fall over 1e-9", fall <= 1e-9),
        _level("F5 (iii)", "|w1| ends near 1 and ||w2|| near 0", "|w1| >= 0.99, ||w2|| <= 0.1", ends),
        _level("F5 (iii)", "test accuracy reaches 100%", "at least 99.5%", hundred),
        _level("F5 (iii)", "ERM does not exceed 70% in 100 iterations", "at most 70%", seventy),
        _longer_erm(study),
        _level("F5", TOGETHER, "all", together),
    ]


def _longer_erm(study: Trajectories, times: int = 10) -> Claim:
    settings = study.settings
    step = erm_step(study.sample, settings.problem.gamma, lr=settings.erm_lr, projection=settings.projection)
    longer = final(step, study.erm[-1], (times - 1) * settings.steps)
    pairs = ((study.accuracy(w), training_accuracy(study.sample, w)) for w in (longer, study.erm[-1]))
    (test, train), (test_before, train_before) = pairs
    gains = [mean_interval(v) for v in (train - train_before, test - test_before)]
    ours = ", ".join(f"{n} {100 * g.value:+.2f} points" for n, g in zip(("training", "test"), gains, strict=True))
    rule = "training accuracy up (95% interval above 0), test accuracy up by less than 1 point"
    verdict = gains[0].low > 0 and gains[1].value < 0.01
    return _claim(
        "F5 (iii)", f"{times} times the iterations of ERM improve training accuracy only", ours, rule, verdict
    )


def start_claim(study: Trajectories) -> Claim:
    """The constrained problem asks that at most rho / 2 of the training examples lie within the margin; rho <= 1."""
    problem = study.settings.problem
    inside = (margins(study.sample, study.erm[-1]) < problem.gamma).double().mean(-1)
    text = "RCAD starts where the constraint holds"
    claim = _level("constrained problem", text, "margin error <= 1/2", inside <= 0.5)
    share = f"{inside.mean().item():.1%} of the examples have a margin below gamma={problem.gamma:g}"
    return replace(claim, ours=f"{claim.ours}; {share}")


def entropy_claims(check: Row) -> list[Claim]:
    """The entropy approximation: equal rates of decay; bounded ratio."""
    lemma = partial(_claim, "entropy lemma")
    rate = f"-d log H / dz = {check['decay']:.3f} at z = 30"
    ratio = f"H / exp(-|z|) grows like 1 + |z|: {check['ratio_at_0']:.3f} at 0, {check['ratio_at_30']:.1f} at 30"
    bounded = check["ratio_at_30"] / check["ratio_at_0"] <= 2
    return [
        lemma("H decays at the rate of exp(-|z|)", rate, "within 0.05 of 1", abs(check["decay"] - 1) < 0.05),
        lemma("H is exp(-|z|) up to a constant", ratio, "ratio within a factor of 2", bounded),
    ]


def lemma_claims(closed: Row, gradients: list[Row], scans: list[Row]) -> list[Claim]:
    """The closed form, the update signs where the theorem's conditions hold, and the step from sample to population."""
    error = "largest relative error {paper_inside:.1g} (and {paper_outside:.2g} where alpha < gamma)".format_map(closed)
    text, rule = "the closed form of M, for alpha >= gamma", "below 1e-8 against quadrature"
    claims = [_claim("closed form lemma", text, error, rule, closed["paper_inside"] < 1e-8)]
    chosen = [s for s in scans if s["kind"] == "derivative" and s["K"] in (0, 2)]
    readings = sorted((s for s in chosen if s["K"] == 2), key=lambda scan: scan["c0"] is not None)
    claims += _sign_claims(readings, f"in every setting that meets the conditions with beta w1 >= 2 alpha; {C0_RULE}")
    figure = [s for s in chosen if s["K"] == 0]
    claims += _sign_claims(figure, "in every setting of the figure, w1 from 0.5 to 0.99")
    for check in gradients:
        worst, own = (max(map(abs, check[f"errors_from_{name}"])) for name in ("derivative", "mean"))
        ours = f"{worst:.0f} standard errors apart at n = {check['n']}; from the gradient without the jump, {own:.1f}"
        text = f"sample gradients approach the derivative of M (gamma={check['gamma']:g}, alpha={check['alpha']:g})"
        claims.append(_claim("finite-sample theorem", text, ours, "within 4 standard errors", worst < 4))
    return claims


C0_RULE = "undecided where that depends on c0, of which the text says only that it exists"


def _sign_claims(readings: Sequence[Row], rule: str) -> list[Claim]:
    """The lemma's two halves; where the readings of its conditions disagree, the text does not decide."""
    claims = []
    for statement, holds, fails in (
        ("<dM/dw1, w1> > 0", "true_grows", "true_falls"),
        ("<dM/dw2, w2> < 0", "noise_shrinks", "noise_grows"),
    ):
        text = f"{{{holds}:.1%}} of {{settings}} settings; the reverse in {{{fails}:.1%}}"
        verdict = agreed([judge_universal(scan[holds], scan[fails]) for scan in readings])
        undecided = "; not decided by the text" if verdict == "undecided" else ""
        claims.append(_claim("update lemma", statement, f"{by_reading(text, readings)}{undecided}", rule, verdict))
    return claims


def by_reading(text: str, readings: Sequence[Row]) -> str:
    """The text filled by each reading of the conditions, named where there are several."""
    names = ["any c0: " if row["c0"] is None else f"c0 = {row['c0']:g}: " for row in readings]
    return "; ".join(
        (name if len(readings) > 1 else "") + text.format_map(row) for name, row in zip(names, readings, strict=True)
    )


def agreed(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that all readings of a sentence give, else none."""
    return verdicts[0] if len(set(verdicts)) == 1 else "undecided"


def theorem_claims(met: list[Row], conclusions: Sequence[Row], rates: list[Row | None]) -> list[Claim]:
    """The theorem: its conditions at the figure's numbers, its conclusion under its conditions, its rate."""
    theorem = partial(_claim, "main theorem")
    failed = ", ".join(c["name"] for c in met if not c["holds"])
    end = "||w2|| <= 0.05 in {reached:.1%} of {settings} settings; it rose in {noise_rose:.1%}"
    rule = f"in every setting that meets the conditions with beta w1 >= {conclusions[0]['K']:g} alpha; {C0_RULE}"
    verdict = agreed([judge_universal(row["reached"], row["noise_rose"]) for row in conclusions])
    fits = [fit for fit in rates if fit is not None]
    rate = "alpha={alpha:g}: T = {slope:.1f} log(1/eps), R2 = {r_squared:.4f}, theory {predicted:.1f}"
    near = [fit["r_squared"] > 0.99 and abs(fit["slope"] / fit["predicted"] - 1) < 0.1 for fit in fits]
    return [
        theorem(
            "the figure's numbers meet its conditions",
            f"violated: {failed or 'none'}",
            "all, with constants 1",
            not failed,
        ),
        theorem("under its conditions ascent on M ends at w*", by_reading(end, conclusions), rule, verdict),
        theorem(
            "T = O(log 1/eps), figure's numbers, n = infinity",
            "; ".join(map(rate.format_map, fits)),
            "R2 > 0.99, slope within 10% of the closed form's",
            len(fits) == len(rates) and all(near),
        ),
    ]


def appendix_claims(check: Row) -> list[Claim]:
    """What the proof leans on: the initial-feature lemma, bounds, and formulas as printed."""
    lemma = partial(_claim, "initial-feature lemma")
    fails = "fails in {fails} of {cases} settings"
    bound = "w1 >= erfcinv(2 rho) sqrt(2 sigma_min) / beta at a test error of rho"
    enough, margin = check["enough_examples"], check["margin_bound"]
    products = "; ".join(map("{name}: {fails} of {cases:,}, {worst:g} allowed".format_map, check["products"]))
    lengths = ", ".join(f"{value:.3g} at alpha={alpha:g}" for alpha, value in check["gradient_norm"].items())
    best, printed = check["best_errors"]
    slips = max(check["erfc"].values())
    return [
        *(
            lemma(f"{bound}, {row['name']}", fails.format_map(row), "in every setting", not row["fails"])
            for row in check["initial_feature"]
        ),
        lemma(
            "its sample size gives ERM within the constraint a test error of at most rho",
            "above rho in {fails} of {cases} solutions; at most {worst:.2f} rho".format_map(enough),
            "in at least 95% of them, the hidden constant 1",
            1 - enough["fails"] / enough["cases"] >= 0.95,
        ),
        _claim(
            "bound on |<w, x>|",
            "holds with probability 1 - delta / 2",
            f"beyond it {products}",
            "no more often than allowed",
            all(row["fails"] <= row["worst"] * row["cases"] for row in check["products"]),
        ),
        _claim(
            "margin bound",
            "the test error is at most the margin error plus the printed gap",
            "above it in {fails} of {cases} cases; the bound is at least {worst:.2f} too large".format_map(margin),
            "in at least 95% of them",
            1 - margin["fails"] / margin["cases"] >= 0.95,
        ),
        _claim(
            "gradient norm lemma",
            "||grad_w2 M||^2 <= c ||w2||^2 on the sphere, at the figure's numbers",
            f"c = {lengths}",
            "a finite c",
            all(map(math.isfinite, check["gradient_norm"].values())),
        ),
        _claim(
            "facts on erfc",
            "the upper bound, the lower bound and the derivative",
            f"violated by at most {slips:.1g} on 0 < x <= 12",
            "below 1e-12",
            slips < 1e-12,
        ),
        _claim(
            "printed gradients",
            "dM/dw1 and grad_w2 M, from the closed form",
            f"at most {check['gradients']:.1g} from autograd",
            "below 1e-9",
            check["gradients"] < 1e-9,
        ),
        _claim(
            "corollary on ERM",
            "the best test error is erfc(beta / sqrt(2 sigma1)) / 2",
            f"{best:.2g}, and {printed:.2g} as printed: sigma1 stands where sigma1 squared belongs",
            "within 1% of the error of w*",
            abs(printed / best - 1) < 0.01,
        ),
    ]


def sweep_claims(sweeps: Sequence[Row]) -> list[Claim]:
    """ERM's dependence on the noise: worse with fewer examples, and with more dimensions of noise."""
    claims = []
    for over, statement, sign in (
        ("n", "ERM depends more on the noise the fewer examples there are", -1),
        ("d", "ERM depends more on the noise the more dimensions it has", 1),
    ):
        for sweep in (row for row in sweeps if row["over"] == over):
            means = sweep["erm_noise"]["mean"]
            rises = all(sign * (after - before) > 0 for before, after in pairwise(means))
            points = zip(sweep["values"], means, strict=True)
            ours = ", ".join(f"{mean:.3f} at {over} = {value:g}" for value, mean in points)
            rule = f"the mean of ||w2|| {'rises' if sign > 0 else 'falls'} from each {over} of the sweep to the next"
            claims.append(_claim("setup", statement, f"||w2|| {ours}", rule, rises))
    return claims


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
    judged = [*figure_claims(paths), *proofs[:2], start_claim(paths), *proofs[2:]]
    judged += sweep_claims(sweeps)
    return Study(
        target="F5",
        title=TARGETS["F5"].title,
        about=TARGETS["F5"].shows.format(problem=problem, settings=settings),
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
        *entropy_claims(entropy),
        *lemma_claims(closed, gradients, signs),
        *theorem_claims(met, conclusions, rates),
        *appendix_claims(behind),
    ]
