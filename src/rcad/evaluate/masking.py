"""Is an attacked accuracy real, or do the gradients only fail to show the way? Signs of gradient masking.

A gradient attack is trusted if it behaves as an attack must: more steps and a larger radius never help the defender,
a radius without limit leaves nothing, and neither blind search nor another model's attack does better than it
(Athalye et al., 2018; Carlini et al., 2019). A check that fails says that the accuracy was measured too high.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from rcad.data.dataset import Progress, no_progress
from rcad.evaluate.attack_search import LOSSES, Ball, View, batches, seeded, watched
from rcad.evaluate.attacks import PGD, Attack, RandomSearch
from rcad.evaluate.robustness import Perturbs, attacked_accuracy, device_of
from rcad.loss.growth import as_unit_float
from rcad.loss.model_calls import Model

# Differences in percent that chance may make: one point, or two examples where that is more.
POINTS, EXAMPLES = 1.0, 2
# Percent of examples that may keep their label at any distance, or have no gradient at all.
LIMIT = 5.0


class Check(NamedTuple):
    """One sign of masking, looked for: `passed` is False where it is there; `numbers` were measured, in percent."""

    name: str
    passed: bool
    numbers: Mapping[str, float]
    sentence: str


class _Transferred(NamedTuple):
    """Another model's attacked examples."""

    source: Model
    attack: Attack

    def perturb(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.attack.perturb(self.source, x, y, generator)


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
    progress: Progress = no_progress,
) -> list[Check]:
    """All checks around one attack, which should be the one whose accuracy is to be reported.

    Args:
        attack: its steps and its radius are varied.
        twin: a model of the same kind trained without any defence (ERM), for the check of transfer.
        tries: points of the random search.
        progress: called with (checks done, checks in all).
    """
    device = device_of(model, x)
    slack = max(POINTS, 100 * EXAMPLES / len(y))

    @cache
    def left(attack: Perturbs) -> float:
        # Every attack gets the same stream: a difference is not one of luck.
        named, generator = {"it": attack}, seeded(device, seed)
        return attacked_accuracy(model, x, y, named, batch_size=batch_size, generator=generator).accuracies()["it"]

    def checks() -> Iterator[Check]:
        yield _gradients(model, x, y.to(device), batch_size)
        counts = sorted({max(1, attack.steps // 4), attack.steps, 4 * attack.steps})
        accuracies = {f"{count} steps": left(replace(attack, steps=count)) for count in counts}
        yield _never_rises("steps", "more steps", accuracies, slack)
        accuracies = {}
        for eps in (factor * attack.eps for factor in (0.5, 1, 2, 4)):
            size = None if attack.step_size is None else attack.step_size * eps / attack.eps
            accuracies[f"eps {eps:.4g}"] = left(replace(attack, eps=eps, step_size=size))
        yield _never_rises("radius", "a larger radius", accuracies, slack)
        # From x itself: a random start so far away would err without any gradient.
        eps = Ball(as_unit_float(x), attack.space()).whole_space()
        far = replace(attack, eps=eps, steps=max(attack.steps, 50), step_size=None, random_start=False, restarts=1)
        sentence = f"accuracy {left(far):.1f} where every input is within reach ({eps:.3g})"
        yield Check("unbounded", left(far) <= LIMIT, {"accuracy": left(far)}, sentence)
        search = RandomSearch(attack.eps, attack.norm, attack.bounds, attack.mean, attack.std, tries)
        yield _no_better("random", f"{tries} random points", left(attack), left(search), slack)
        if twin is not None:
            other = left(_Transferred(twin, attack))
            yield _no_better("transfer", "attacks made on the twin", left(attack), other, slack)

    results: list[Check] = []
    for check in checks():
        results.append(check)
        progress(len(results), 5 if twin is None else 6)
    return results


def _gradients(model: Model, x: Tensor, y: Tensor, batch_size: int) -> Check:
    """The cross-entropy must have a gradient where the prediction is right."""
    blind, right = [], []
    with watched(model, y.device):
        for part, labels in batches(x, y, batch_size, y.device):
            look, gradient = View(model, labels, LOSSES["ce"]).climb(part)
            flat = gradient.flatten(1)
            blind.append((flat == 0).all(1) | ~torch.isfinite(flat).all(1))
            right.append(~look.wrong)
    correct = torch.cat(right)
    share = 100 * ((torch.cat(blind) & correct).sum() / correct.sum().clamp(min=1)).item()
    sentence = f"{share:.1f}% of the rightly classified examples have no gradient to follow"
    return Check("gradients", share <= LIMIT, {"without": share}, sentence)


def _never_rises(name: str, change: str, accuracies: Mapping[str, float], slack: float) -> Check:
    values = list(accuracies.values())
    rise = max(later - min(values[:i]) for i, later in enumerate(values) if i)
    listed = ", ".join(f"{value:.1f} at {key}" for key, value in accuracies.items())
    verdict = "never helped" if rise <= slack else f"helped by {rise:.1f} points"
    return Check(name, rise <= slack, accuracies, f"accuracy {listed}: {change} {verdict} the defender")


def _no_better(name: str, points: str, own: float, other: float, slack: float) -> Check:
    passed = other >= own - slack
    verdict = "no better than" if passed else "better than"
    sentence = f"{points} leave an accuracy of {other:.1f}: {verdict} the model's own gradients ({own:.1f})"
    return Check(name, passed, {"gradient": own, name: other}, sentence)
