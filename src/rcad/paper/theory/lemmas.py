"""The paper's lemmas and its theorem as numbers: both sides of each statement, and how far apart they are.

The theorem's conditions hide constants ("up to a constant"). Here every hidden constant is 1 or larger, and drawn at
random in the scan, so that a failure is not that of a badly chosen constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from statistics import correlation, linear_regression
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from rcad.paper.theory.problem import (
    Gradient,
    Problem,
    Row,
    Setting,
    final,
    growth_at_best,
    norms,
    on_sphere,
    paper_closed_form,
    population_gradient,
    population_step,
    population_surrogate,
    pushes,
    random_directions,
    surrogate,
    trajectory,
    uniform,
)


def entropy_ratio(z: Tensor) -> Tensor:
    """H(sigmoid(z)) / exp(-|z|), without the cancellation of computing either first. (...) -> (...).

    H = log(1 + q) + z q / (1 + q) with q = exp(-|z|), so the ratio tends to 1 + |z|: the rates agree, not the sizes.
    """
    z = z.abs()
    q = (-z).exp()
    return torch.log1p(q) / q + z / (1 + q)


def entropy_check() -> Row:
    """Lemma "entropy approximation" on |z| <= 30: the entropy of a Bernoulli with logit z against exp(-|z|).

    decay: -d log H / dz at z = 30 (1 is that of exp(-z)). ratio_at_0, ratio_at_30: H / exp(-|z|), exactly log 2 and
    about 31. bracketed: log 2 <= H exp(|z|) <= 1 + |z| everywhere on the grid.
    """
    z = torch.linspace(-30, 30, 6001, dtype=torch.float64)
    ratio = entropy_ratio(z)
    bracketed = bool(((ratio >= math.log(2) - 1e-12) & (ratio <= 1 + z.abs() + 1e-12)).all())
    step = 1e-3
    ends = entropy_ratio(torch.tensor([30 - step, 30 + step], dtype=torch.float64)).log()
    decay = 1 - (ends[1] - ends[0]).item() / (2 * step)
    ends_of = {"ratio_at_0": ratio[3000].item(), "ratio_at_30": ratio[-1].item()}
    return {"decay": decay, **ends_of, "bracketed": bracketed}


def _integrate(setting: Setting, w: Tensor, integrand: Callable[[Tensor, Tensor], Tensor], nodes: int = 120) -> Tensor:
    """Sum over nodes of integrand(m, mass): Gauss-Legendre between the kinks, where everything is smooth.

    It gets margins and their probability mass, both (..., nodes), and returns (..., nodes) or (..., features, nodes).
    """
    points, weights = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(nodes))
    mean, deviation = setting.spread(w)
    # exp(+-m) moves the Gaussian's bulk by up to deviation^2.
    reach = 12 * deviation + deviation.square()
    a = setting.alpha * w.square().sum(-1)
    kinks = torch.stack([mean - reach, torch.minimum(a, setting.gamma), setting.gamma.expand_as(a), mean + reach], -1)
    kinks = torch.minimum(torch.maximum(kinks, kinks[..., :1]), kinks[..., -1:])
    total = torch.zeros(())
    for low, high in ((0, 1), (1, 2), (2, 3)):
        half = 0.5 * (kinks[..., high] - kinks[..., low])[..., None]
        m = half * (points + 1) + kinks[..., low, None]
        z = (m - mean[..., None]) / deviation[..., None]
        density = (-0.5 * z.square()).exp() / (math.sqrt(2 * math.pi) * deviation[..., None])
        total = total + (integrand(m, density * half * weights)).sum(-1)
    return total


def gradient_by_quadrature(setting: Setting, w: Tensor, kind: Gradient) -> Tensor:
    """The mean sample gradient ("through", "constant") by integration over the margin: (..., features)."""
    mean, deviation = setting.spread(w)
    times = 1 if kind == "constant" else 2

    def terms(m: Tensor, mass: Tensor) -> Tensor:
        u = _argument(setting, w, m)
        slope = -u.sign() * (-u.abs()).exp() * mass
        away = (m - mean[..., None]) / deviation[..., None] ** 2
        expected = setting.variances[..., None] * w[..., None] * away[..., None, :]
        expected[..., 0, :] += setting.beta[..., None]
        moved = (m < setting.gamma[..., None]).to(w.dtype) * setting.alpha[..., None]
        return slope[..., None, :] * (expected - times * moved[..., None, :] * w[..., None])

    return _integrate(setting, w, terms)


def _argument(setting: Setting, w: Tensor, m: Tensor) -> Tensor:
    """y<w, x~> as a function of the margin m: (..., nodes)."""
    a = setting.alpha * w.square().sum(-1)
    return m - torch.where(m < setting.gamma[..., None], a[..., None], 0.0)


def closed_form_check(generator: torch.Generator, count: int = 500) -> Row:
    """Largest relative errors against quadrature: ours everywhere, the paper's inside its domain, and outside.

    Random settings with four features on the unit sphere; "inside" means alpha >= gamma, as the paper requires.
    """
    ranges = ((0.01, 3.0, count), (0.05, 3.0, count), (0.05, 3.0, count), (0.1, 1.5, count, 4))
    setting = Setting(*(uniform(generator, *ends) for ends in ranges))
    w = random_directions(count, 4, generator)
    exact = _integrate(setting, w, lambda m, mass: (-_argument(setting, w, m).abs()).exp() * mass)
    paper = (paper_closed_form(setting, w) / exact - 1).abs()
    inside = setting.alpha >= setting.gamma
    gap = population_gradient(setting, w, "constant") - gradient_by_quadrature(setting, w, "constant")
    return {
        "settings": count,
        "ours": (population_surrogate(setting, w) / exact - 1).abs().max().item(),
        "gradient": gap.abs().max().item(),
        "paper_inside": paper[inside].max().item(),
        "paper_outside": paper[~inside].max().item(),
    }


def sample_gradient_check(
    problem: Problem, alpha: float, generator: torch.Generator, *, n: int = 400_000, batches: int = 100
) -> Row:
    """Autograd of the sample objective with x~ moving with w, at one w with w1 = 0.7, in `batches` parts for its error.

    How far it is from the derivative of M, which the paper's finite-sample step takes it for, along w1 and along w2.
    sample: by autograd; mean: the exact mean of the examples' gradients; derivative: of M, exact. errors_from_*: sample
    minus exact, in standard errors of the sample.
    """
    sample = replace(problem, n=n // batches).sample(batches, generator)
    w = random_directions(1, problem.d + 1, generator)[0]
    w[1:] *= math.sqrt(1 - 0.49) / w[1:].norm()
    w[0] = 0.7
    copies = w.expand(batches, -1).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(sample, copies, alpha, problem.gamma, "through").sum(), copies)
    parts = _inner(gradient, w)
    setting = Setting.of(problem, torch.tensor(alpha, dtype=torch.float64))
    mean, derivative = (_inner(population_gradient(setting, w, k), w) for k in ("through", "derivative"))
    error = parts.std(0) / math.sqrt(batches)
    centre = parts.mean(0)
    pairs = {
        "sample": centre,
        "mean": mean,
        "derivative": derivative,
        "errors_from_mean": (centre - mean) / error,
        "errors_from_derivative": (centre - derivative) / error,
    }
    return {"n": n, "alpha": alpha, "gamma": problem.gamma} | {name: pair.tolist() for name, pair in pairs.items()}


def _inner(gradient: Tensor, w: Tensor) -> Tensor:
    """<grad1, w1> and <grad2, w2>: (..., features) -> (..., 2)."""
    product = gradient * w
    return torch.stack([product[..., 0], product[..., 1:].sum(-1)], -1)


def conditions(problem: Problem, alpha: float) -> list[Row]:
    """The theorem's conditions "left >= right" with every hidden constant 1. c0 is left out: some c0 always serves.

    alpha lies below beta w1 by K = 1 at the start; the probability of failure is 5%, the final ||w2|| 1/4.
    """
    largest, rare = max(problem.variances), math.log(1 / 0.05)
    tail = math.erfc(alpha / math.sqrt(2 * min(problem.variances)))
    start = (problem.beta**2 + rare * largest + sum(problem.variances)) / problem.gamma**2
    needed = (start / tail**2 if tail > 1e-150 else math.inf) + rare / 0.25**4
    sides = {
        "beta >= ||Sigma||": (problem.beta, largest),
        "beta >= alpha": (problem.beta, alpha),
        "alpha >= gamma": (alpha, problem.gamma),
        "alpha >= ||Sigma||": (alpha, largest),
        "n >= the theorem's sample size": (problem.n, needed),
    }
    return [
        {"name": name, "left": left, "right": right, "holds": left >= right} for name, (left, right) in sides.items()
    ]


def theorem_settings(count: int, generator: torch.Generator) -> tuple[Setting, Tensor]:
    """Random settings with beta >= alpha >= max(gamma, ||Sigma||) and w on the unit sphere, both (count, ...).

    The ratios are log-uniform up to several thousand; w1 is uniform, so that beta w1 / alpha covers many K.
    """

    def log_uniform(low: float, high: float) -> Tensor:
        return (math.log(low) + uniform(generator, 0, 1, count) * math.log(high / low)).exp()

    beta = log_uniform(0.05, 20)
    deviations = torch.stack([log_uniform(0.02, 5), log_uniform(0.02, 5)], -1)
    variances = torch.minimum(deviations.square(), beta[:, None])
    largest = variances.amax(-1)
    alpha = largest * (beta / largest) ** uniform(generator, 0, 1, count)
    gamma = alpha * log_uniform(1e-3, 1)
    w1 = 0.02 + 0.979 * uniform(generator, 0, 1, count)
    return Setting(alpha, beta, gamma, variances), torch.stack([w1, (1 - w1.square()).sqrt()], -1)


SIGNS = ("true_grows", "true_falls", "noise_shrinks", "noise_grows", "noise_loses")
"""<dM/dw1, w1> > 0, and < 0; <grad2 M, w2> < 0, and > 0; ||w2|| / w1 falls, which is what decides on the sphere."""


def _scan(K: float, kind: str, statements: Tensor, c0: float | None = None) -> Row:
    """Shares of settings with beta w1 >= K alpha in which each of the SIGNS of the update lemma holds.

    c0: of the condition gamma + c0 sigma_min >= beta; None where it is left out, as the text says only that it exists.
    """
    shares = dict(zip(SIGNS, statements.mean(0).tolist(), strict=True))
    return {"K": K, "kind": kind, "settings": len(statements), **shares, "c0": c0}


def sign_scan(
    generator: torch.Generator,
    *,
    count: int = 200_000,
    ks: tuple[float, ...] = (1.0, 2.0, 5.0),
    c0: float | None = None,
    kinds: tuple[Gradient, ...] = get_args(Gradient),
) -> list[Row]:
    """The update lemma over random settings, for the derivative of M and for the two sample gradients."""
    setting, w = theorem_settings(count, generator)
    scans = []
    for kind in kinds:
        statements = _statements(setting, w, kind)
        scans += [_scan(K, kind, statements[_allowed(setting, w, K, c0)], c0) for K in ks]
    return scans


def _allowed(setting: Setting, w: Tensor, K: float, c0: float | None) -> Tensor:
    """Where beta w1 >= K alpha and, unless c0 is left open, gamma + c0 sigma_min >= beta. (settings,)."""
    chosen = setting.beta * w[:, 0] >= K * setting.alpha
    return chosen if c0 is None else chosen & (setting.gamma + c0 * setting.variances.amin(-1) >= setting.beta)


def path_signs(problem: Problem, alpha: float, *, points: int = 100) -> list[Row]:
    """The same for one problem, whatever its conditions, at unit vectors with w1 from 0.5 to 0.99 (K = 0)."""
    w = on_sphere(torch.linspace(0.5, 0.99, points, dtype=torch.float64), problem.d)
    setting = Setting.of(problem, torch.full_like(w[:, 0], alpha))
    return [_scan(0.0, kind, _statements(setting, w, kind)) for kind in get_args(Gradient)]


def _statements(setting: Setting, w: Tensor, kind: Gradient) -> Tensor:
    """1 where one of the SIGNS holds: (settings, 5)."""
    first, second = pushes(setting, w, kind)
    # Sums of terms of order 1: below 1e-13 the sign is rounding and counts for neither side.
    signed = (first, -first, -second, second, first - second)
    return torch.stack([push > 1e-13 for push in signed], -1).double()


def conclusion_scan(
    generator: torch.Generator, *, K: float = 2.0, c0: float | None = None, count: int = 4000, steps: int = 2000
) -> Row:
    """Projected ascent on the population objective from a start that the theorem allows, with beta w1 >= K alpha.

    Shares of settings in which ||w2|| <= 0.05 is reached, and it fell or rose; those that start there are left out.
    """
    eps, lr = 0.05, 0.02
    setting, w = theorem_settings(count, generator)
    chosen = _allowed(setting, w, K, c0) & (w[:, 1] > eps)
    setting = Setting(*(getattr(setting, field.name)[chosen] for field in fields(setting)))
    start = w[chosen]
    end = final(population_step(setting, "derivative", lr), start, steps)
    noise, before = end[:, 1].abs(), start[:, 1]
    statements = {
        "reached": (noise <= eps) & (end[:, 0] > 0),
        "noise_fell": noise < before - 1e-9,
        "noise_rose": noise > before + 1e-9,
    }
    shares = {name: holds.double().mean().item() for name, holds in statements.items()}
    return {"K": K, "settings": len(start), **shares, "c0": c0}


def rate_fit(problem: Problem, alpha: float, *, steps: int = 1000) -> Row | None:
    """Iterations T until ||w2|| <= eps, fitted by T = slope * log(1 / eps) + c. predicted: slope by the closed form.

    Exact ascent from ||w2|| = 0.7; None where ||w2|| never falls to the smallest eps.
    """
    setting, lr = Setting.of(problem, alpha), 0.05
    w = on_sphere(torch.tensor(math.sqrt(1 - 0.7**2), dtype=torch.float64), problem.d)
    noise = norms(trajectory(population_step(setting, "through", lr), w, steps))[1]
    eps = tuple(10.0**-k for k in range(1, 8))
    if noise.min() > eps[-1]:
        return None
    iterations = tuple(int((noise <= e).nonzero()[0].item()) for e in eps)
    logs = [math.log(1 / e) for e in eps]
    true, noises = growth_at_best(setting, "through")
    # ||w2|| shrinks by this factor per iteration, once it is small; the slowest feature decides.
    contraction = (1 + lr * noises.max().item()) / (1 + lr * true.item())
    return {
        "alpha": alpha,
        "lr": lr,
        "eps": eps,
        "iterations": iterations,
        "slope": linear_regression(logs, iterations).slope,
        "predicted": -1 / math.log(contraction),
        "r_squared": correlation(logs, iterations) ** 2,
    }
