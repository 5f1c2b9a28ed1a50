"""F5: the linear theory computed as a whole and judged, ready for its record. The rules know no result.

A claim about a comparison is judged by the mean paired difference over draws and its 95% interval; one about a level
("reaches 100%") by the share of draws that show it, since the paper shows one draw; one that a proof states for all
settings by whether it holds in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rcad.paper.claims import Claim
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
    training_accuracy,
)
from rcad.paper.theory.simulation import LARGE, SMALL, Settings, Trajectories
from rcad.study.judge import Verdict
from rcad.study.statistics import share_interval

CLAIMS = TARGETS["F5"].claims
NEAR_ZERO, NEAR_ONE, HUNDRED_PERCENT = 0.1, 0.99, 0.995
VISIBLE = 0.01  # a reversal smaller than this cannot be seen in a plot from 0 to 1


def _claim(name: str, verdict: Verdict | bool, found: str = "", rule: str = "", /, **fields: Any) -> Claim:
    """A claim of paper.toml, filled by what we find, with the verdict its rule gives; True where the rule is met."""
    if not isinstance(verdict, str):
        verdict = "reproduced" if verdict else "not reproduced"
    words = CLAIMS[name]
    ours, rule = found or words["ours"].format(**fields), rule or words["rule"].format(**fields)
    return Claim(words["where"], words["says"].format(**fields), verdict, ours=ours, rule=rule)


def judge_interval(interval: Interval, level: float, below: Verdict) -> Verdict:
    """Above the level it speaks for the claim; `below` is the verdict on what lies below it."""
    return "reproduced" if interval.low > level else below if interval.high < level else "undecided"


def judge_universal(holds: float, reversed_: float) -> Verdict:
    """A proof's statement: one counterexample refutes it; the reverse in most settings is the opposite."""
    if holds == 1:
        return "reproduced"
    return "opposite" if reversed_ > 0.5 else "not reproduced"


def _difference(name: str, values: Tensor, unit: float = 1.0) -> Claim:
    interval, share = mean_interval(values), (values > 0).double().mean().item()
    mean, low, high = (f"{unit * value:+.3g}" for value in interval)
    ours = f"{CLAIMS[name]['ours']} {mean} [{low}, {high}]; so in {share:.1%} of draws"
    rule = "mean paired difference, 95% interval above 0"
    return _claim(name, judge_interval(interval, 0, "opposite"), ours, rule)


def _level(name: str, holds: Tensor, more: str = "") -> Claim:
    share = holds.double().mean().item()
    interval = Interval(share, *share_interval(share, len(holds)))
    verdict = judge_interval(interval, 0.5, "not reproduced")  # of what one draw shows: most draws must show it
    ours = f"{share:.1%} of draws [{interval.low:.1%}, {interval.high:.1%}]{more}"
    return _claim(name, verdict, ours, f"{CLAIMS[name]['rule']} in most draws, 95% interval above 50%")


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
        _difference("noise_less", noise[0] - noise[1]),
        _difference("better", accuracy[1] - accuracy[0], 100),
        _level("erm_noise", noise[0] > NEAR_ZERO),
        _level("rcad_noise", noise[1] <= NEAR_ZERO),
        _difference("noise_more", noise[2] - noise[0]),
        _difference("poorer", accuracy[0] - accuracy[2], 100),
        _level("to_the_eye", fall <= VISIBLE),
        _level("monotone", fall <= 1e-9),
        _level("ends", ends),
        _level("hundred", hundred),
        _level("seventy", seventy),
        _longer_erm(study),
        _level("together", together),
    ]


def _longer_erm(study: Trajectories, times: int = 10) -> Claim:
    settings = study.settings
    step = erm_step(study.sample, settings.problem.gamma, lr=settings.erm_lr, projection=settings.projection)
    longer = final(step, study.erm[-1], (times - 1) * settings.steps)
    pairs = ((study.accuracy(w), training_accuracy(study.sample, w)) for w in (longer, study.erm[-1]))
    (test, train), (test_before, train_before) = pairs
    gains = [mean_interval(v) for v in (train - train_before, test - test_before)]
    verdict = gains[0].low > 0 and gains[1].value < 0.01
    return _claim("longer", verdict, times=times, train=100 * gains[0].value, test=100 * gains[1].value)


def start_claim(study: Trajectories) -> Claim:
    """The constrained problem asks that at most rho / 2 of the training examples lie within the margin; rho <= 1."""
    problem = study.settings.problem
    inside = (margins(study.sample, study.erm[-1]) < problem.gamma).double().mean(-1)
    share = f"; {inside.mean().item():.1%} of the examples have a margin below gamma={problem.gamma:g}"
    return _level("start", inside <= 0.5, share)


def entropy_claims(checks: Row) -> list[Claim]:
    """The entropy approximation: equal rates of decay; bounded ratio."""
    check = checks["entropy"]
    bounded = check["ratio_at_30"] / check["ratio_at_0"] <= 2
    near = abs(check["decay"] - 1) < 0.05
    return [_claim("entropy_rate", near, **check), _claim("entropy_ratio", bounded, **check)]


def lemma_claims(checks: Row) -> list[Claim]:
    """The closed form, the update signs where the theorem's conditions hold, and the step from sample to population."""
    closed = checks["closed_form"]
    claims = [_claim("closed_form", closed["paper_inside"] < 1e-8, **closed)]
    chosen = [s for s in checks["signs"] if s["kind"] == "derivative" and s["K"] in (0, 2)]
    readings = sorted((s for s in chosen if s["K"] == 2), key=lambda scan: scan["c0"] is not None)
    claims += _sign_claims(readings, f"that meets the conditions with beta w1 >= 2 alpha; {C0_RULE}")
    claims += _sign_claims([s for s in chosen if s["K"] == 0], "of the figure, w1 from 0.5 to 0.99")
    for check in checks["sample_gradients"]:
        worst, own = (max(map(abs, check[f"errors_from_{name}"])) for name in ("derivative", "mean"))
        claims.append(_claim("sample_gradients", worst < 4, worst=worst, own=own, **check))
    return claims


C0_RULE = "undecided where that depends on c0, of which the text says only that it exists"


def _sign_claims(readings: Sequence[Row], of: str) -> list[Claim]:
    """The lemma's two halves; where the readings of its conditions disagree, the text does not decide."""
    claims = []
    for holds, fails in (("true_grows", "true_falls"), ("noise_shrinks", "noise_grows")):
        verdict = agreed([judge_universal(scan[holds], scan[fails]) for scan in readings])
        undecided = "; not decided by the text" if verdict == "undecided" else ""
        claims.append(_claim(holds, verdict, by_reading(holds, readings) + undecided, of=of))
    return claims


def by_reading(name: str, readings: Sequence[Row]) -> str:
    """What a claim finds by each reading of the conditions, which is named where there are several."""
    names = ["any c0: " if row["c0"] is None else f"c0 = {row['c0']:g}: " for row in readings]
    texts = [CLAIMS[name]["ours"].format_map(row) for row in readings]
    return "; ".join(map(str.__add__, names, texts)) if len(readings) > 1 else texts[0]


def agreed(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that all readings of a sentence give, else none."""
    return verdicts[0] if len(set(verdicts)) == 1 else "undecided"


def theorem_claims(checks: Row) -> list[Claim]:
    """The theorem: its conditions at the figure's numbers, its conclusion under its conditions, its rate."""
    conclusions, rates = (checks["conclusion"], checks["conclusion_with_c0"]), checks["rates"]
    failed = ", ".join(c["name"] for c in checks["conditions"] if not c["holds"])
    of = f"that meets the conditions with beta w1 >= {conclusions[0]['K']:g} alpha; {C0_RULE}"
    verdict = agreed([judge_universal(row["reached"], row["noise_rose"]) for row in conclusions])
    fits = [fit for fit in rates if fit is not None]
    rate = "alpha={alpha:g}: T = {slope:.1f} log(1/eps), R2 = {r_squared:.4f}, theory {predicted:.1f}"
    near = [fit["r_squared"] > 0.99 and abs(fit["slope"] / fit["predicted"] - 1) < 0.1 for fit in fits]
    return [
        _claim("conditions", not failed, failed=failed or "none"),
        _claim("conclusion", verdict, by_reading("conclusion", conclusions), of=of),
        _claim("rate", len(fits) == len(rates) and all(near), fits="; ".join(map(rate.format_map, fits))),
    ]


def appendix_claims(checks: Row) -> list[Claim]:
    """What the proof leans on: the initial-feature lemma, bounds, and formulas as printed."""
    check = checks["appendix"]
    enough, margin = check["enough_examples"], check["margin_bound"]
    allowed = all(row["fails"] <= row["worst"] * row["cases"] for row in check["products"])
    products = "; ".join(map("{name}: {fails} of {cases:,}, {worst:g} allowed".format_map, check["products"]))
    lengths = ", ".join(f"{value:.3g} at alpha={alpha:g}" for alpha, value in check["gradient_norm"].items())
    best, printed = check["best_errors"]
    slips, gradients = max(check["erfc"].values()), check["gradients"]
    return [
        *(_claim("initial_feature", not row["fails"], **row) for row in check["initial_feature"]),
        _claim("enough_examples", 1 - enough["fails"] / enough["cases"] >= 0.95, **enough),
        _claim("products", allowed, products=products),
        _claim("margin_bound", 1 - margin["fails"] / margin["cases"] >= 0.95, **margin),
        _claim("gradient_norm", all(map(math.isfinite, check["gradient_norm"].values())), lengths=lengths),
        _claim("erfc", slips < 1e-12, slips=slips),
        _claim("gradients", gradients < 1e-9, gradients=gradients),
        _claim("best_errors", abs(printed / best - 1) < 0.01, best=best, printed=printed),
    ]


def sweep_claims(sweeps: Sequence[Row]) -> list[Claim]:
    """ERM's dependence on the noise: worse with fewer examples, and with more dimensions of noise."""
    claims = []
    for over, sign in (("n", -1), ("d", 1)):
        for sweep in (row for row in sweeps if row["over"] == over):
            means = sweep["erm_noise"]["mean"]
            worse = all(sign * (after - before) > 0 for before, after in pairwise(means))
            points = [f"{mean:.3f} at {over} = {n:g}" for n, mean in zip(sweep["values"], means, strict=True)]
            claims.append(_claim(over, worse, points=", ".join(points)))
    return claims


SCALES = {scale: Settings(draws=draws) for scale, draws in (("smoke", 20), ("small", 100), ("full", 1000))}
PARTS = 7
C0, MANY = 5.0, 1_000_000
"""The theorem's c0 where it is a constant, and the settings tried for it: few meet all conditions."""


def judge(study: Study) -> Study:
    """As it was judged: the verdicts are made of iterates that no record keeps."""
    return study


def run(settings: Settings, data_dir: Path | None, on_progress: OnProgress) -> Study:
    parts = iter(range(PARTS))

    def begin(part: str) -> None:
        on_progress(part, next(parts), PARTS)

    problem, single = settings.problem, replace(settings, alphas=(LARGE,))
    lengths = (settings.steps, 10 * settings.steps)
    begin("the figure: ERM, then RCAD")
    paths = simulation.run_trajectories(settings)
    begin("the lemmas, the theorem and the appendix")
    checks = _checked(settings)
    proofs = [claim for judged in (lemma_claims, theorem_claims, appendix_claims) for claim in judged(checks)]
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
    judged = [*figure_claims(paths), *entropy_claims(checks), start_claim(paths), *proofs, *sweep_claims(sweeps)]
    checks["rates"] = [fit for fit in checks["rates"] if fit is not None]
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


def _checked(settings: Settings) -> Row:
    """The lemmas, the theorem and the appendix as numbers."""
    problem = settings.problem
    generator, again = (torch.Generator().manual_seed(settings.seed + k) for k in (1, 2))
    checks: Row = {"entropy": lemmas.entropy_check(), "closed_form": lemmas.closed_form_check(generator)}
    checks["sample_gradients"] = [
        lemmas.sample_gradient_check(replace(problem, gamma=gamma), LARGE, generator) for gamma in (problem.gamma, 0.5)
    ]
    signs = [*lemmas.sign_scan(generator), *lemmas.path_signs(problem, LARGE)]
    conclusion = lemmas.conclusion_scan(generator)
    signs += lemmas.sign_scan(again, count=MANY, ks=(1.0, 2.0), c0=C0, kinds=("derivative",))
    return checks | {
        "signs": signs,
        "conditions": lemmas.conditions(problem, LARGE),
        "conclusion": conclusion,
        "conclusion_with_c0": lemmas.conclusion_scan(again, count=MANY, c0=C0),
        "appendix": appendix.appendix_check(problem, (problem.beta, LARGE), again),
        "rates": [lemmas.rate_fit(problem, alpha) for alpha in (problem.beta, LARGE)],
    }
