"""Auto-PGD against a slow twin, one example at a time, written from the paper's algorithm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attacked_net import fitted, patterns
from rcad.evaluate.attack_search import Ball, Look
from rcad.evaluate.attacks import APGD, _Pace, checkpoints
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


def test_targets_are_the_likeliest_wrong_classes() -> None:
    net, (x, y) = fitted(), patterns(60, 1)
    losses = APGD(0.03, loss="dlr", targets=4)
    ranks = net(x).scatter(1, y[:, None], -torch.inf).topk(4, dim=1).indices
    output = torch.randn(len(x), 5, generator=torch.Generator().manual_seed(0))
    for turn in range(8):
        loss = losses._loss(net, x, y, turn)(output, y)
        gain = output.gather(1, ranks[:, turn % 4, None]).squeeze(1) - output.gather(1, y[:, None]).squeeze(1)
        assert torch.equal(loss > 0, gain > 0)


def test_a_step_size_is_halved_once_when_the_best_loss_stands_still() -> None:
    start, gradient = torch.zeros(1, 2), torch.zeros(1, 2)
    pace = _Pace(start, torch.tensor([10.0]), gradient, 0.4)
    climbing = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]

    def stretch(losses: list[float]) -> tuple[float, bool]:
        """The step size after a stretch of such losses, and whether the search went back to the best point."""
        for loss in losses:
            pace.record(start + loss, Look(torch.tensor([loss]), torch.tensor([False])), gradient + loss)
        point, slope = pace.checked(start + losses[-1], gradient + losses[-1])
        assert torch.equal(point, slope)
        return pace.size.item(), torch.equal(point, start)

    assert stretch(climbing) == pytest.approx((0.2, True))  # rises in 7 of 8 steps, and yet never above 10
    assert stretch(climbing) == pytest.approx((0.2, False))  # halved at the last checkpoint: another chance
    assert stretch([8.1, 8.2, 8.3, 8.4]) == pytest.approx((0.1, True))
    assert stretch([10.1, 10.2, 10.3, 10.2]) == pytest.approx((0.1, False))  # 3 of 4 is enough
    assert stretch([10.1, 10.4, 10.3, 10.2]) == pytest.approx((0.05, False))  # 1 of 4 is not: back to 10.4
    assert pace._top_point.flatten().tolist() == pytest.approx([10.4, 10.4])
    # The best point is the one compared with from now on: 10.3 is a fall, so 2 of 3 steps rise.
    assert stretch([10.3, 10.35, 10.41]) == pytest.approx((0.025, False))
