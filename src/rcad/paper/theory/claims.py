"""The paper's claims about the linear problem, each with the rule that judges it. The rules know no result.

A claim about a comparison is judged by the mean paired difference over draws and its 95% interval; one about a level
("reaches 100%") by the share of draws that show it, since the paper shows one draw; one that a proof states for all
settings by whether it holds in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from torch import Tensor

from rcad.paper.claims import TOGETHER, TRIAL
from rcad.paper.theory.bands import Interval, mean_interval, share_interval
from rcad.paper.theory.checks import ClosedFormCheck, EntropyCheck, SampleGradientCheck
from rcad.paper.theory.linear import margins, norms, training_accuracy
from rcad.paper.theory.projected import erm_step, final
from rcad.paper.theory.study import LARGE, SMALL, Study
from rcad.paper.theory.theorem import ConclusionScan, Condition, RateFit, SignScan

Verdict = Literal["reproduced", "not reproduced", "opposite", "undecided"]
NEAR_ZERO, NEAR_ONE, HUNDRED_PERCENT = 0.1, 0.99, 0.995
VISIBLE = 0.01  # a reversal smaller than this cannot be seen in a plot from 0 to 1


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, what we find, and the verdict its rule gives."""

    where: str
    statement: str
    ours: str
    rule: str
    verdict: Verdict | Literal["a trial"]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge_difference(interval: Interval) -> Verdict:
    """Positive differences speak for the claim."""
    if interval.low > 0:
        return "reproduced"
    return "opposite" if interval.high < 0 else "undecided"


def judge_share(interval: Interval) -> Verdict:
    """The claim is about what one draw shows: most draws must show it."""
    if interval.low > 0.5:
        return "reproduced"
    return "not reproduced" if interval.high < 0.5 else "undecided"


def judge_universal(holds: float, reversed_: float) -> Verdict:
    """A proof's statement: one counterexample refutes it; the reverse in most settings is the opposite."""
    if holds == 1:
        return "reproduced"
    return "opposite" if reversed_ > 0.5 else "not reproduced"


def judge_fact(holds: bool) -> Verdict:
    return "reproduced" if holds else "not reproduced"


def _difference(where: str, statement: str, label: str, values: Tensor, unit: float = 1.0) -> Claim:
    interval = mean_interval(values)
    share = (values > 0).double().mean().item()
    number = f"{label} {unit * interval.value:+.3g} [{unit * interval.low:+.3g}, {unit * interval.high:+.3g}]"
    ours = f"{number}; so in {share:.1%} of draws"
    return Claim(where, statement, ours, "mean paired difference, 95% interval above 0", judge_difference(interval))


def _level(where: str, statement: str, what: str, holds: Tensor) -> Claim:
    interval = share_interval(holds)
    ours = f"{interval.value:.1%} of draws [{interval.low:.1%}, {interval.high:.1%}]"
    return Claim(where, statement, ours, f"{what} in most draws, 95% interval above 50%", judge_share(interval))


def _largest_fall(values: Tensor) -> Tensor:
    """How far a path falls below its own running maximum. (iterations, draws) -> (draws,)."""
    return (values.cummax(0).values - values).amax(0)


def figure_claims(study: Study) -> list[Claim]:
    """Section 5's reading of its figure, (i) to (iii), over all draws."""
    erm, large, small = study.erm[-1], study.path(LARGE), study.path(SMALL)[-1]
    accuracy = [study.accuracy(w) for w in (erm, large[-1], small)]
    noise = [norms(w)[1] for w in (erm, large[-1], small)]
    true = norms(large)[0]
    fall = _largest_fall(true)
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


def _longer_erm(study: Study, times: int = 10) -> Claim:
    settings = study.settings
    step = erm_step(study.sample, settings.problem.gamma, lr=settings.erm_lr, projection=settings.projection)
    longer = final(step, study.erm[-1], (times - 1) * settings.steps)
    pairs = ((study.accuracy(w), training_accuracy(study.sample, w)) for w in (longer, study.erm[-1]))
    (test, train), (test_before, train_before) = pairs
    gains = [mean_interval(v) for v in (train - train_before, test - test_before)]
    ours = ", ".join(f"{n} {100 * g.value:+.2f} points" for n, g in zip(("training", "test"), gains, strict=True))
    rule = "training accuracy up (95% interval above 0), test accuracy up by less than 1 point"
    verdict = judge_fact(gains[0].low > 0 and gains[1].value < 0.01)
    return Claim("F5 (iii)", f"{times} times the iterations of ERM improve training accuracy only", ours, rule, verdict)


def start_claim(study: Study) -> Claim:
    """The constrained problem asks that at most rho / 2 of the training examples lie within the margin; rho <= 1."""
    problem = study.settings.problem
    inside = (margins(study.sample, study.erm[-1]) < problem.gamma).double().mean(-1)
    claim = _level(
        "constrained problem", "RCAD starts where the constraint holds", "margin error <= 1/2", inside <= 0.5
    )
    return Claim(
        claim.where,
        claim.statement,
        f"{claim.ours}; {inside.mean().item():.1%} of the examples have a margin below gamma={problem.gamma:g}",
        claim.rule,
        claim.verdict,
    )


def entropy_claims(check: EntropyCheck) -> list[Claim]:
    """The entropy approximation: equal rates of decay; bounded ratio."""
    rate = f"-d log H / dz = {check.decay:.3f} at z = 30"
    ratio = f"H / exp(-|z|) grows like 1 + |z|: {check.ratio_at_0:.3f} at 0, {check.ratio_at_30:.1f} at 30"
    bounded = check.ratio_at_30 / check.ratio_at_0 <= 2
    return [
        Claim(
            "entropy lemma",
            "H decays at the rate of exp(-|z|)",
            rate,
            "within 0.05 of 1",
            judge_fact(abs(check.decay - 1) < 0.05),
        ),
        Claim(
            "entropy lemma", "H is exp(-|z|) up to a constant", ratio, "ratio within a factor of 2", judge_fact(bounded)
        ),
    ]


def lemma_claims(closed: ClosedFormCheck, gradients: list[SampleGradientCheck], scans: list[SignScan]) -> list[Claim]:
    """The closed form, the update signs where the theorem's conditions hold, and the step from sample to population."""
    claims = [
        Claim(
            "closed form lemma",
            "the closed form of M, for alpha >= gamma",
            f"largest relative error {closed.paper_inside:.1g} (and {closed.paper_outside:.2g} where alpha < gamma)",
            "below 1e-8 against quadrature",
            judge_fact(closed.paper_inside < 1e-8),
        )
    ]
    chosen = [s for s in scans if s.kind == "derivative" and s.K in (0, 2)]
    for scan in chosen:
        place = "that meets the conditions with beta w1 >= 2 alpha" if scan.K else "of the figure, w1 from 0.5 to 0.99"
        claims += _sign_claims(scan, f"in every setting {place}")
    for check in gradients:
        worst = max(abs(e) for e in check.errors_from_derivative)
        own = max(abs(e) for e in check.errors_from_mean)
        ours = f"{worst:.0f} standard errors apart at n = {check.n}; from the gradient without the jump, {own:.1f}"
        text = f"sample gradients approach the derivative of M (gamma={check.gamma:g}, alpha={check.alpha:g})"
        claims.append(Claim("finite-sample theorem", text, ours, "within 4 standard errors", judge_fact(worst < 4)))
    return claims


def _sign_claims(scan: SignScan, rule: str) -> list[Claim]:
    statements = (
        ("<dM/dw1, w1> > 0", scan.true_grows, scan.true_falls),
        ("<dM/dw2, w2> < 0", scan.noise_shrinks, scan.noise_grows),
    )
    return [
        Claim(
            "update lemma",
            statement,
            f"{holds:.1%} of {scan.settings} settings; the reverse in {fails:.1%}",
            rule,
            judge_universal(holds, fails),
        )
        for statement, holds, fails in statements
    ]


def theorem_claims(met: list[Condition], conclusion: ConclusionScan, rates: list[RateFit | None]) -> list[Claim]:
    """The theorem: its conditions at the figure's numbers, its conclusion under its conditions, its rate."""
    failed = [c.name for c in met if not c.holds]
    fits = [fit for fit in rates if fit is not None]
    text = "; ".join(
        f"alpha={f.alpha:g}: T = {f.slope:.1f} log(1/eps), R2 = {f.r_squared:.4f}, theory {f.predicted:.1f}"
        for f in fits
    )
    good = len(fits) == len(rates) and all(f.r_squared > 0.99 and abs(f.slope / f.predicted - 1) < 0.1 for f in fits)
    return [
        Claim(
            "main theorem",
            "the figure's numbers meet its conditions",
            f"violated: {', '.join(failed) or 'none'}",
            "all, with constants 1",
            judge_fact(not failed),
        ),
        Claim(
            "main theorem",
            "under its conditions ascent on M ends at w*",
            f"||w2|| <= 0.05 in {conclusion.reached:.1%} of {conclusion.settings} settings; "
            f"it rose in {conclusion.noise_rose:.1%}",
            f"in every setting that meets the conditions with beta w1 >= {conclusion.K:g} alpha",
            judge_universal(conclusion.reached, conclusion.noise_rose),
        ),
        Claim(
            "main theorem",
            "T = O(log 1/eps), figure's numbers, n = infinity",
            text,
            "R2 > 0.99, slope within 10% of the closed form's",
            judge_fact(good),
        ),
    ]


def in_trial(claims: Sequence[Claim]) -> list[Claim]:
    """The claims where the draws are too few to judge them by."""
    return [replace(claim, verdict=TRIAL) for claim in claims]


def tally(claims: Sequence[Claim]) -> dict[str, int]:
    """How many claims got each verdict."""
    order: tuple[Verdict, ...] = ("reproduced", "not reproduced", "opposite", "undecided")
    tried = sum(claim.verdict == TRIAL for claim in claims)
    return {TRIAL: tried} if tried else {verdict: sum(c.verdict == verdict for c in claims) for verdict in order}
