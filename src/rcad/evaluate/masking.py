"""Is an attacked accuracy real, or do the gradients only fail to show the way? Signs of gradient masking.

A gradient attack is trusted if it behaves as an attack must: more steps and a larger radius never help the defender,
a radius without limit leaves nothing, and neither blind search nor another model's attack does better than it
(Athalye et al., 2018; Carlini et al., 2019). A check that fails says that the accuracy was measured too high.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rcad.evaluate.attack_search import Ball, View, cross_entropy, watched
from rcad.evaluate.attacks import PGD, Attack, RandomSearch
from rcad.evaluate.robustness import Perturbs, attacked_accuracy, device_of
from rcad.loss.growth import as_unit_float
from rcad.loss.model_calls import Model

# Differences in percent that chance may make: one point, or two examples where that is more.
POINTS, EXAMPLES = 1.0, 2
# Percent of examples that may keep their label at any distance, or have no gradient at all.
LIMIT = 5.0


class Check(NamedTuple):
    """One sign of masking, looked for.

    Attributes:
        name: which.
        passed: False where the sign is there.
        numbers: what was measured, in percent.
        sentence: the same in words.
    """

    name: str
    passed: bool
    numbers: Mapping[str, float]
    sentence: str


@dataclass(frozen=True)
class _Transferred:
    """Another model's attacked examples."""

    source: Model
    attack: Attack

    def perturb(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.attack.perturb(self.source, x, y, generator)


@dataclass
class _Bench:
    """A model and examples, and the accuracies measured so far: several checks ask for the same attack."""

    model: Model
    x: Tensor
    y: Tensor
    batch_size: int
    seed: int
    known: dict[str, float] = field(default_factory=dict)

    def accuracy(self, attack: Perturbs) -> float:
        # Every attack gets the same stream: a difference is not one of luck.
        if repr(attack) not in self.known:
            generator = torch.Generator(device=device_of(self.model, self.x)).manual_seed(self.seed)
            result = attacked_accuracy(
                self.model, self.x, self.y, {"it": attack}, batch_size=self.batch_size, generator=generator
            )
            self.known[repr(attack)] = result.accuracies()["it"]
        return self.known[repr(attack)]

    @property
    def tolerance(self) -> float:
        return max(POINTS, 100 * EXAMPLES / len(self.y))


def masking_checks(
    model: Model,
    x: Tensor,
    y: Tensor,
    attack: PGD,
    *,
    twin: Model | None = None,
    tries: int = 100,
    batch_size: int = 256,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Check]:
    """All checks around one attack, which should be the one whose accuracy is to be reported.

    Args:
        attack: its steps and its radius are varied.
        twin: a model of the same kind trained without any defence (ERM), for the check of transfer.
        tries: points of the random search.
        progress: called with (checks done, checks in all).
    """
    bench = _Bench(model, x, y, batch_size, seed)
    checks: list[Callable[[], Check]] = [
        partial(_gradients, bench),
        partial(_steps, bench, attack),
        partial(_radius, bench, attack),
        partial(_unbounded, bench, attack),
        partial(_random, bench, attack, tries),
    ]
    if twin is not None:
        checks.append(partial(_transfer, bench, attack, twin))
    results = []
    for check in checks:
        results.append(check())
        if progress is not None:
            progress(len(results), len(checks))
    return results


def _gradients(bench: _Bench) -> Check:
    """The cross-entropy must have a gradient where the prediction is right."""
    device = device_of(bench.model, bench.x)
    blind, right = [], []
    with watched(bench.model, device):
        for part, labels in zip(
            torch.split(bench.x, bench.batch_size), torch.split(bench.y.to(device), bench.batch_size), strict=True
        ):
            look, gradient = View(bench.model, labels, cross_entropy).climb(as_unit_float(part.to(device)))
            flat = gradient.flatten(1)
            blind.append((flat == 0).all(1) | ~torch.isfinite(flat).all(1))
            right.append(~look.wrong)
    asked = torch.cat(right)
    share = 100 * ((torch.cat(blind) & asked).sum() / asked.sum().clamp(min=1)).item()
    return Check(
        "gradients",
        share <= LIMIT,
        {"without": share},
        f"{share:.1f}% of the rightly classified examples have no gradient to follow",
    )


def _never_rises(name: str, what: str, accuracies: Mapping[str, float], tolerance: float) -> Check:
    values = list(accuracies.values())
    rise = max(later - min(values[:i]) for i, later in enumerate(values) if i)
    listed = ", ".join(f"{value:.1f} at {key}" for key, value in accuracies.items())
    verdict = "never helped" if rise <= tolerance else f"helped by {rise:.1f} points"
    return Check(name, rise <= tolerance, accuracies, f"accuracy {listed}: {what} {verdict} the defender")


def _steps(bench: _Bench, attack: PGD) -> Check:
    counts: Sequence[int] = sorted({max(1, attack.steps // 4), attack.steps, 4 * attack.steps})
    accuracies = {f"{count} steps": bench.accuracy(replace(attack, steps=count)) for count in counts}
    return _never_rises("steps", "more steps", accuracies, bench.tolerance)


def _radius(bench: _Bench, attack: PGD) -> Check:
    radii = [factor * attack.eps for factor in (0.5, 1, 2, 4)]
    size = attack.step_size
    accuracies = {
        f"eps {eps:.4g}": bench.accuracy(
            replace(attack, eps=eps, step_size=None if size is None else size * eps / attack.eps)
        )
        for eps in radii
    }
    return _never_rises("radius", "a larger radius", accuracies, bench.tolerance)


def _unbounded(bench: _Bench, attack: PGD) -> Check:
    """From x itself: a random start so far away would err without any gradient."""
    eps = Ball(as_unit_float(bench.x), attack.space()).whole_space()
    far = replace(attack, eps=eps, steps=max(attack.steps, 50), step_size=None, random_start=False, restarts=1)
    left = bench.accuracy(far)
    return Check(
        "unbounded",
        left <= LIMIT,
        {"accuracy": left},
        f"accuracy {left:.1f} where every input is within reach ({eps:.3g})",
    )


def _random(bench: _Bench, attack: PGD, tries: int) -> Check:
    blind = RandomSearch(attack.eps, attack.norm, attack.bounds, attack.mean, attack.std, tries)
    numbers = {"gradient": bench.accuracy(attack), "random": bench.accuracy(blind)}
    return _no_better("random", f"{tries} random points", numbers, bench.tolerance)


def _transfer(bench: _Bench, attack: PGD, twin: Model) -> Check:
    numbers = {"gradient": bench.accuracy(attack), "transfer": bench.accuracy(_Transferred(twin, attack))}
    return _no_better("transfer", "attacks made on the twin", numbers, bench.tolerance)


def _no_better(name: str, what: str, numbers: Mapping[str, float], tolerance: float) -> Check:
    own, other = numbers.values()
    passed = other >= own - tolerance
    verdict = "no better than" if passed else "better than"
    sentence = f"{what} leave an accuracy of {other:.1f}: {verdict} the model's own gradients ({own:.1f})"
    return Check(name, passed, numbers, sentence)
