"""Entropy against alpha: the same steps one by one, the random control, and a model left as it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rcad import Categorical, Gaussian, GradientStep, InputError
from rcad.evaluate.alpha_curve import entropy_against_alpha
from rcad.loss.suggest_alpha import along_adversarial
from small_nets import images, norm_net, smooth_net

ALPHAS = [0.0, 0.5, 4.0]


def test_it_agrees_with_the_curve_of_one_batch() -> None:
    net, (x, y) = smooth_net().eval(), images(41)
    rows, found = along_adversarial(net, x, y, ALPHAS), entropy_against_alpha(net, x, y, ALPHAS, batch_size=8)
    assert found.alphas == tuple(ALPHAS)
    assert found.entropy == pytest.approx([row.entropy for row in rows], rel=1e-5)
    assert found.accuracy == pytest.approx([100 * row.accuracy for row in rows])
    assert found.unmoved == 0
    assert found.direction == "adversarial"


def test_quantiles_are_those_of_the_examples() -> None:
    net, (x, y) = smooth_net().eval(), images(41)
    found = entropy_against_alpha(net, x, y, ALPHAS, levels=(0.0, 0.25, 0.5, 1.0), batch_size=10)
    assert found.levels == (0.0, 0.25, 0.5, 1.0)
    for alpha, quantiles in zip(ALPHAS, found.quantiles, strict=True):
        with torch.no_grad():
            entropy = Categorical().entropy(net(GradientStep(alpha)(net, x, y))).sort().values.tolist()
        assert quantiles == pytest.approx((entropy[0], entropy[10], entropy[20], entropy[40]), rel=1e-4)


def test_random_directions_have_the_length_asked_for_and_a_seed() -> None:
    seen: list[torch.Tensor] = []

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return x.flatten(1)[:, :3]

    x, y = torch.rand(20, 3, 4, 4), torch.arange(20) % 3
    first = entropy_against_alpha(
        Spy(), x, y, [1.0, 3.0], direction="random", generator=torch.Generator().manual_seed(4)
    )
    assert (
        len(seen) == 3
    )  # the first example to check the targets, then one pass for each alpha and none for a gradient
    seen = seen[1:]
    for moved, alpha in zip(seen, (1.0, 3.0), strict=True):
        torch.testing.assert_close((moved - x).flatten(1).norm(dim=1), torch.full((20,), alpha))
    assert ((seen[0] - x).flatten(1).sum(1).abs() < 4).all()  # all over the sphere: an orthant's sum to about 6
    torch.testing.assert_close(3 * (seen[0] - x), seen[1] - x)  # one direction, growing distance
    again = entropy_against_alpha(
        Spy(), x, y, [1.0, 3.0], direction="random", generator=torch.Generator().manual_seed(4)
    )
    other = entropy_against_alpha(
        Spy(), x, y, [1.0, 3.0], direction="random", generator=torch.Generator().manual_seed(5)
    )
    assert first == again
    assert first.entropy != other.entropy


def test_a_linear_model_loses_its_accuracy_along_the_gradient_only() -> None:
    torch.manual_seed(0)
    net = nn.Linear(300, 2, bias=False)
    x = torch.randn(200, 300)
    y = net(x).argmax(1)
    far = [1.0, 2.0, 40.0]
    adversarial = entropy_against_alpha(net, x, y, far)
    random = entropy_against_alpha(net, x, y, far, direction="random", generator=torch.Generator().manual_seed(0))
    assert adversarial.accuracy[-1] == 0
    assert random.accuracy[1] > adversarial.accuracy[1] + 20


def test_bounds_and_bytes() -> None:
    net, (x, y) = smooth_net().eval(), images(20)
    stored = (255 * x).round().byte()
    found = entropy_against_alpha(net, stored, y, ALPHAS, bounds=(0.0, 1.0))
    pixels = stored.float() / 255
    with torch.no_grad():
        moved = GradientStep(4.0, bounds=(0.0, 1.0))(net, pixels, y)
        assert found.entropy[2] == pytest.approx(Categorical().entropy(net(moved)).mean().item(), rel=1e-5)
    assert found.entropy[2] != entropy_against_alpha(net, stored, y, ALPHAS).entropy[2]


def test_examples_without_a_gradient_are_counted() -> None:
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-500.0, 0.0], [500.0, 0.0]]))  # the second input never has a gradient
    x, y = torch.tensor([[1.0, 1.0], [0.001, 1.0], [-1.0, 1.0], [2.0, 1.0]]), torch.ones(4, dtype=torch.long)
    assert entropy_against_alpha(net, x, y, [0.5]).unmoved == 0.5


def test_regression_has_entropy_and_no_accuracy() -> None:
    net, x, y = nn.Linear(3, 2), torch.randn(9, 3), torch.randn(9)
    found = entropy_against_alpha(net, x, y, ALPHAS, Gaussian(cap=None))
    assert found.accuracy == ()
    with torch.no_grad():
        assert found.entropy[0] == pytest.approx(Gaussian(cap=None).entropy(net(x)).mean().item(), rel=1e-5)
    assert len(found.quantiles) == 3


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails: bool) -> None:
    net, (x, y) = norm_net(dropout=0.3), images(30)
    net.train()
    net[1].eval()
    modes = [module.training for module in net.modules()]
    state = {name: value.clone() for name, value in net.state_dict().items()}
    if fails:
        with pytest.raises(RuntimeError):
            entropy_against_alpha(net, x[:, :2], y, [0.5])
    else:
        assert entropy_against_alpha(net, x, y, [0.5]) == entropy_against_alpha(net, x, y, [0.5])  # no dropout
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    net, (x, y) = smooth_net(), images(20)
    entropy_against_alpha(net, x, y, [0.5], batch_size=8, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(8, 20), (16, 20), (20, 20)]


def test_faults_are_named() -> None:
    net, (x, y) = smooth_net(), images(6)
    with pytest.raises(InputError, match="expected at least one alpha"):
        entropy_against_alpha(net, x, y, [])
    with pytest.raises(InputError, match="6 examples and 5 targets"):
        entropy_against_alpha(net, x, y[:5], [0.5])
    with pytest.raises(InputError, match=r"expected alpha to be a finite number >= 0, but got -1\.0"):
        entropy_against_alpha(net, x, y, [-1.0])
    with pytest.raises(InputError, match="expected labels from 0 to 4 for a model with 5 outputs, but got 11"):
        entropy_against_alpha(net, x, y + 7, [0.5])
    with pytest.raises(InputError, match="expected finite targets"):
        entropy_against_alpha(nn.Linear(3, 2), torch.ones(3, 3), torch.full((3,), torch.nan), [0.5], Gaussian())
    with pytest.raises(InputError, match="did you mean 'random'"):
        entropy_against_alpha(net, x, y, [0.5], direction="randm")
    with pytest.raises(InputError, match="expected levels of quantiles from 0 to 1"):
        entropy_against_alpha(net, x, y, [0.5], levels=(0.5, 5.0))
    with pytest.raises(InputError, match="expected batch_size"):
        entropy_against_alpha(net, x, y, [0.5], batch_size=0)
