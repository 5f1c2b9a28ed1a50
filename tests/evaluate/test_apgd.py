"""Auto-PGD against a slow twin, one example at a time, written from the paper's algorithm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rcad.evaluate.attack_search import Ball
from rcad.evaluate.attacks import APGD, checkpoints
from rcad.loss.perturbations import Move
from small_nets import images, smooth_net


def test_the_checkpoints_are_the_papers() -> None:
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(7) == [2, 3, 4, 5, 6, 7]


class Slow:
    """Algorithm 1 of Croce and Hein (2020) for one example in float64. Keeps every point it visits."""

    def __init__(self, net: nn.Module, x: Tensor, y: Tensor, eps: float, norm: str) -> None:
        self.net, self.x, self.y, self.eps, self.norm = net, x, y, eps, norm
        self.halvings: list[tuple[int, bool, bool]] = []

    def project(self, z: Tensor) -> Tensor:
        step = z - self.x
        if self.norm == "linf":
            step = torch.minimum(torch.maximum(step, torch.tensor(-self.eps)), torch.tensor(self.eps))
        elif step.norm() > self.eps:
            step = step * self.eps / step.norm()
        return (self.x + step).clip(0, 1)

    def evaluate(self, z: Tensor) -> tuple[float, Tensor, bool]:
        z = z.clone().requires_grad_(True)
        logits = self.net(z[None])[0]
        loss = logits.logsumexp(0) - logits[self.y]
        loss.backward()
        assert z.grad is not None
        return loss.item(), z.grad, bool(logits.argmax() != self.y)

    def ascend(self, z: Tensor, gradient: Tensor, size: float) -> Tensor:
        direction = gradient.sign() if self.norm == "linf" else gradient / gradient.norm()
        return self.project(z + size * direction)

    def run(self, start: Tensor, steps: int) -> Tensor:
        places = [0, *checkpoints(steps)]
        xs = [start]
        f, g, wrong = self.evaluate(start)
        losses, visited = [f], [(wrong, f, start)]
        best_f, best_x, best_g = f, start, g
        best_at = {0: f}
        size_at = {0: 2 * self.eps}
        size = 2 * self.eps
        for k in range(1, steps + 1):
            z = self.ascend(xs[-1], g, size)
            new = z if k == 1 else self.project(xs[-1] + 0.75 * (z - xs[-1]) + 0.25 * (xs[-1] - xs[-2]))
            f, g, wrong = self.evaluate(new)
            visited.append((wrong, f, new))
            xs.append(new)
            losses.append(f)
            if f > best_f:
                best_f, best_x, best_g = f, new, g
            if k in places and k < steps:
                last = places[places.index(k) - 1]
                rises = sum(losses[i + 1] > losses[i] for i in range(last, k))
                few = rises < 0.75 * (k - last)
                stuck = size_at[last] == size and best_at[last] == best_f
                size_at[k], best_at[k] = size, best_f
                if few or stuck:
                    self.halvings.append((k, few, stuck))
                    size /= 2
                    xs[-1], g, losses[-1] = best_x, best_g, best_f
        return max(visited, key=lambda seen: seen[:2])[2]


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.03), ("linf", 0.3), ("l2", 0.5), ("l2", 3.0)])
def test_equals_the_slow_twin(norm: Any, eps: float) -> None:
    net, (x, y) = smooth_net().double(), images(12, dtype=torch.float64)
    net[-1].weight.data.mul_(3)
    moved = APGD(eps, norm, steps=40).perturb(net, x, y, torch.Generator().manual_seed(3))
    start = Ball(x, Move(eps, norm, (0.0, 1.0))).start(torch.Generator().manual_seed(3))
    halvings: list[tuple[int, bool, bool]] = []
    for i in range(len(x)):
        slow = Slow(net, x[i], y[i], eps, norm)
        torch.testing.assert_close(moved[i], slow.run(start[i], 40), rtol=0, atol=1e-6)
        halvings += slow.halvings
    assert {few for _, few, _ in halvings} >= {True}
    assert len({k for k, _, _ in halvings}) > 2
