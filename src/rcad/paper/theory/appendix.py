"""The appendix in numbers: bounds and formulas that the proof leans on, each computed from both sides.

Where a statement hides a constant, it is taken as 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from rcad.paper.theory.lemmas import theorem_settings
from rcad.paper.theory.problem import (
    Problem,
    Row,
    Setting,
    erm_step,
    final,
    margins,
    on_sphere,
    paper_closed_form,
    population_gradient,
    random_directions,
    uniform,
)

DELTA = 0.05
"""The probability of failure that high-probability statements are tried at."""


def count(name: str, fails: int, cases: int, worst: float = 0.0) -> Row:
    """In how many cases a statement fails, and of how many."""
    return {"name": name, "fails": fails, "cases": cases, "worst": worst}


def true_feature_bound(setting: Setting, error: Tensor) -> Tensor:
    """The initial-feature lemma's lower bound on w1 for a test error: erfcinv(2 rho) sqrt(2 sigma_min) / beta."""
    smallest = setting.variances.amin(-1)
    return torch.erfinv(1 - 2 * error) * (2 * smallest).sqrt() / setting.beta


def initial_feature(generator: torch.Generator, settings: int = 20_000) -> list[Row]:
    """The lemma for random w and the test error that each has: on the sphere, and anywhere in the ball.

    The last step of its proof, s_w >= sqrt(sigma_min), needs ||w|| = 1; the class of predictors has ||w|| <= 1.
    """
    setting, on_the_sphere = theorem_settings(settings, generator)
    in_the_ball = on_the_sphere * uniform(generator, 0, 1, settings, 1)
    rows = []
    for name, w in (("||w|| = 1", on_the_sphere), ("||w|| <= 1", in_the_ball)):
        mean, deviation = setting.spread(w)
        error = torch.special.ndtr(-mean / deviation)
        exact = error > 1e-12  # beyond, erfcinv is rounding
        short = w[:, 0] < true_feature_bound(setting, error) * (1 - 1e-6)
        rows.append(count(name, int((short & exact).sum()), int(exact.sum())))
    return rows


def sample_size(problem: Problem, rho: float, delta: float = DELTA) -> int:
    """The lemma's number of examples for a test error of rho."""
    top = problem.beta**2 + math.log(1 / delta) * max(problem.variances) + sum(problem.variances)
    return math.ceil(top / (problem.gamma * rho) ** 2)


def enough_examples(generator: torch.Generator, *, problems: int = 60, draws: int = 10) -> Row:
    """Random problems at the lemma's sample size: ERM solutions within the constraint have a test error of at most rho.

    The constraint: at most rho / 2 of the training examples have a margin below gamma.
    """
    fails = cases = 0
    worst = 0.0
    for _ in range(problems):
        u = uniform(generator, 0, 1, 5).tolist()
        rho = (0.1, 0.2, 0.3)[int(3 * u[4])]
        beta, gamma = 0.5 + 3.5 * u[0], 0.3 + 1.2 * u[1]
        problem = Problem(1, 4, beta, 0.2 + 0.8 * u[2], 0.2 + 0.8 * u[3], gamma)
        problem = replace(problem, n=sample_size(problem, rho))
        sample = problem.sample(draws, generator)
        w = final(erm_step(sample, gamma), random_directions(draws, 5, generator), 200)
        inside = (margins(sample, w) < gamma).double().mean(-1) <= rho / 2
        error = 1 - problem.accuracy(w[inside])
        cases += len(error)
        fails += int((error > rho).sum())
        worst = max([worst, *(error / rho).tolist()])
    return count("test error <= rho", fails, cases, worst)


def norm_bound(problem: Problem, delta: float) -> float:
    """The proposition's bound on |<w, x>| for ||w|| <= 1: holds with probability 1 - delta / 2."""
    largest, trace = max(problem.variances), sum(problem.variances)
    return math.sqrt(2 * largest * math.log(2 / delta)) + math.sqrt(trace) + problem.beta


def products_are_bounded(problem: Problem, generator: torch.Generator, n: int = 200_000) -> list[Row]:
    """How often ||x||, the largest |<w, x>|, is beyond the bound; `worst` is the share that the bound allows."""
    lengths = replace(problem, n=n).sample(1, generator).x.norm(dim=-1)
    return [
        count(f"delta = {delta:g}", int((lengths > norm_bound(problem, delta)).sum()), n, delta / 2)
        for delta in (0.5, 0.1, 0.01)
    ]


def margin_bound(generator: torch.Generator, *, problems: int = 100, draws: int = 20, delta: float = DELTA) -> Row:
    """Test error against the margin error plus the printed gap, for random and for trained w; n from 5 to 5,000."""
    fails = cases = 0
    slack = math.inf
    for _ in range(problems):
        u = uniform(generator, 0, 1, 5).tolist()
        n, gamma = round(5 * 1000 ** u[0]), 0.1 + 1.9 * u[1]
        problem = Problem(n, 8, 0.1 + 2 * u[2], 0.1 + u[3], 0.1 + u[4], gamma)
        sample = problem.sample(draws, generator)
        start = random_directions(draws, 9, generator)
        reach = norm_bound(problem, delta)
        gap = 4 * reach / math.sqrt(n) / gamma + math.sqrt(math.log(1 / delta) / (2 * n))
        gap += math.sqrt(max(0.0, math.log(max(1.0, math.log(4 * reach / gamma)))) / n)
        for w in (start, final(erm_step(sample, gamma), start, 50)):
            room = (margins(sample, w) < gamma).double().mean(-1) + gap - (1 - problem.accuracy(w))
            fails, cases = fails + int((room < 0).sum()), cases + draws
            slack = min(slack, float(room.min()))
    return count("test error <= margin error + gap", fails, cases, slack)


def gradient_norm(problem: Problem, alphas: tuple[float, ...], points: int = 2000) -> dict[float, float]:
    """The largest ||grad_w2 M||^2 / ||w2||^2 over the sphere, by alpha: the lemma says that it is bounded."""
    w = on_sphere(torch.linspace(-0.9999, 0.9999, points, dtype=torch.float64), problem.d)
    largest = {}
    for alpha in alphas:
        gradient = population_gradient(Setting.of(problem, torch.full_like(w[:, 0], alpha)), w, "derivative")
        largest[alpha] = float((gradient[:, 1:].square().sum(-1) / w[:, 1:].square().sum(-1)).max())
    return largest


def erfc_bounds(points: int = 100_000) -> dict[str, float]:
    """How far the printed bounds and derivative of erfc(x / sqrt 2) are violated on 0 < x <= 12, over exp(-x^2 / 2)."""
    x = torch.linspace(12 / points, 12, points, dtype=torch.float64, requires_grad=True)
    scaled = torch.special.erfcx(x / math.sqrt(2))  # erfc(x / sqrt 2) exp(x^2 / 2)
    root = math.sqrt(2 / math.pi)
    (slope,) = torch.autograd.grad(torch.erfc(x / math.sqrt(2)).sum(), x)
    x, scaled = x.detach(), scaled.detach()
    upper, lower = root / x, 2 * root / (x + (x.square() + 4).sqrt())
    return {
        "upper bound": float((scaled - upper).clamp_min(0).max()),
        "lower bound": float((lower - scaled).clamp_min(0).max()),
        "derivative": float((slope + root * (-x.square() / 2).exp()).abs().max()),
    }


def printed_gradients(setting: Setting, w: Tensor) -> tuple[Tensor, Tensor]:
    """dM/dw1 and grad_w2 M as the appendix prints them, for ||w|| = 1 and alpha >= gamma: (...), (..., d)."""
    mean, s = setting.spread(w)
    first, second = w[..., 0], w[..., 1:]
    variance, noise = setting.variances[..., 0], setting.variances[..., 1:]
    a = (mean - setting.gamma) / s
    root = math.sqrt(2 / math.pi)
    e_a, e_b = 0.5 * (mean + s.square() / 2 - setting.alpha).exp(), 0.5 * (-mean + s.square() / 2).exp()
    tail_a, tail_b = torch.erfc((s + a) / math.sqrt(2)), torch.erfc((s - a) / math.sqrt(2))
    bell_a, bell_b = (root * (-(v**2) / 2).exp() for v in (s + a, s - a))
    shared = setting.beta + (setting.gamma - mean) * first * variance / s.square()
    along = e_a * ((setting.beta - 2 * setting.alpha * first + first * variance) * tail_a)
    along = along - e_a * (shared + first * variance) / s * bell_a
    along = along + e_b * ((-setting.beta + first * variance) * tail_b)
    along = along + e_b * (shared - first * variance) / s * bell_b
    turned = noise * second
    in_a = (tail_a - bell_a / s + bell_a * a / s.square())[..., None] * turned
    in_a = in_a - (2 * setting.alpha * tail_a)[..., None] * second
    in_b = (tail_b - bell_b / s - bell_b * a / s.square())[..., None] * turned
    return along, e_a[..., None] * in_a + e_b[..., None] * in_b


def gradients_as_printed(generator: torch.Generator, settings: int = 2000) -> float:
    """The largest difference between the printed gradients and autograd of the closed form, of order 1 otherwise."""
    ranges = ((0.05, 2.0), (1.0, 2.0), (0.05, 3.0))
    gamma, times, beta = (uniform(generator, *ends, settings) for ends in ranges)
    setting = Setting(gamma * times, beta, gamma, uniform(generator, 0.1, 1.5, settings, 4))
    w = random_directions(settings, 4, generator).requires_grad_()
    (exact,) = torch.autograd.grad(paper_closed_form(setting, w).sum(), w)
    along, across = printed_gradients(setting, w.detach())
    return float(torch.cat([along[:, None], across], -1).sub(exact).abs().max())


def best_errors(problem: Problem) -> tuple[float, float]:
    """The test error of w*, and what the corollary prints for it: erfc(beta / sqrt(2 sigma1)) / 2."""
    return 1 - problem.best_accuracy, 0.5 * math.erfc(problem.beta / math.sqrt(2 * problem.sigma1))


def appendix_check(problem: Problem, alphas: tuple[float, ...], generator: torch.Generator) -> Row:
    """Everything above, at the figure's numbers where a problem is needed."""
    return {
        "initial_feature": initial_feature(generator),
        "enough_examples": enough_examples(generator),
        "products": products_are_bounded(problem, generator),
        "margin_bound": margin_bound(generator),
        "gradient_norm": gradient_norm(problem, alphas),
        "erfc": erfc_bounds(),
        "gradients": gradients_as_printed(generator),
        "best_errors": best_errors(problem),
    }
