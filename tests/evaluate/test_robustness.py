"""The accuracy that attacks leave, ours and those of pyautoattack; models that hide their gradients are caught."""

import sys
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from attacked_net import Quantised, Saturated, fitted, patterns
from rcad import InputError
from rcad.evaluate.attacks import APGD, FGSM, PGD, Worst, accuracy_under, attacked_accuracy
from rcad.evaluate.masking import Check, masking_checks
from rcad.evaluate.robustness import standard_suite
from small_nets import left_alone, norm_net


def seen(attack: Mock) -> int:
    """How many examples it was given."""
    return sum(len(call.args[1]) for call in attack.perturb.call_args_list)


def test_accuracies_count_survivors_of_the_right() -> None:
    net, (x, y) = fitted(), patterns(300, 1)
    with torch.no_grad():
        right = net(x).argmax(1) == y
        after = net(FGSM(0.03).perturb(net, x, y)).argmax(1) == y
    weak, strong = Mock(wraps=FGSM(0.03)), Mock(wraps=PGD(0.03, random_start=False))
    progress = Mock()
    alone = attacked_accuracy(net, x, y, {"fgsm": weak, "pgd": strong}, batch_size=64, progress=progress)
    assert seen(weak) == seen(strong) == right.sum()
    assert torch.equal(alone.clean, right)
    assert torch.equal(alone.survived["fgsm"], right & after)
    assert alone.accuracies()["fgsm"] == pytest.approx(100 * (right & after).double().mean().item())
    assert torch.equal(alone.worst, alone.survived["fgsm"] & alone.survived["pgd"])
    progress.assert_called_with(600, 600)  # last
    assert accuracy_under(net, x, y, FGSM(0.03), batch_size=64) == pytest.approx(100 * after.double().mean().item())


def test_pixels_of_eight_bits_are_read_as_unit_floats() -> None:
    net, (x, y) = fitted(), patterns(50, 1)
    pixels = (255 * x).round().to(torch.uint8)
    one, other = (attacked_accuracy(net, z, y, [FGSM(0.03)]).worst for z in (pixels, pixels.float() / 255))
    assert torch.equal(one, other)
    right = net(pixels / 255).argmax(1) == y
    assert accuracy_under(net, pixels, y, FGSM(0.0)) == pytest.approx(100 * right.double().mean().item())


def test_the_worst_case_spares_what_is_broken() -> None:
    net, (x, y) = fitted(), patterns(200, 1)
    with torch.no_grad():
        right = net(x).argmax(1) == y
    first, second = Mock(wraps=FGSM(0.03)), Mock(wraps=PGD(0.03, random_start=False))
    moved = Worst([first, second]).perturb(net, x, y)
    weak, strong = FGSM(0.03).perturb(net, x, y), PGD(0.03, random_start=False).perturb(net, x, y)
    broken = net(weak).argmax(1) != y
    assert (seen(first), seen(second)) == (right.sum(), (right & ~broken).sum())
    assert torch.equal(moved[~right], x[~right])
    torch.testing.assert_close(moved[right & broken], weak[right & broken])
    torch.testing.assert_close(moved[right & ~broken], strong[right & ~broken], atol=1e-4, rtol=0)


def test_the_four_attacks_one_after_the_other() -> None:
    pytest.importorskip("pyautoattack")
    net, (x, y) = fitted(), patterns(30, 1)
    calls: list[tuple[int, int]] = []
    result = standard_suite(net, x, y, 0.03, queries=50, progress=lambda done, of: calls.append((done, of)))
    assert list(result.survived) == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert torch.equal(result.clean, net(x).argmax(1) == y)
    before = result.clean
    for mask in result.survived.values():
        assert bool((mask <= before).all())
        before = mask
    assert torch.equal(result.worst, before)
    assert 0 < result.worst.sum() < 0.7 * result.clean.sum()
    assert calls == [(30 * i, 120) for i in range(1, 5)]
    again = standard_suite(net, (255 * x[:5]).round().to(torch.uint8), y[:5], 0.0001, "l2", queries=5)
    assert again.worst.sum() >= again.clean.sum() - 1


def test_ours_find_what_the_suite_finds() -> None:
    pytest.importorskip("pyautoattack")
    net, (x, y) = fitted(), patterns(200, 1)
    suite = standard_suite(net, x, y, 0.05, queries=100)
    named = {"ce": APGD(0.05), "t": APGD(0.05, loss="dlr", targets=4)}
    ours = attacked_accuracy(net, x, y, named)
    assert ours.accuracies()["worst"] <= suite.accuracies()["worst"] + 0.5


def test_the_suite_leaves_nothing_behind() -> None:
    pytest.importorskip("pyautoattack")
    net, (x, y) = norm_net(dropout=0.5), patterns(4, 1)
    net[0].weight.requires_grad_(False)
    with torch.no_grad():
        y = net.eval()(x).argmax(1)  # all right, so that every attack has work to do
    net.train()
    trace = sys.gettrace()
    with left_alone(net):
        standard_suite(net, x, y, 1e-5, queries=2)
    assert sys.gettrace() is trace


@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes_go_without_targets(classes: int) -> None:
    pytest.importorskip("pyautoattack")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, classes))
    x, _ = patterns(10, 1)
    y = net(x).argmax(1)
    result = standard_suite(net, x, y, 0.1, queries=20)
    assert list(result.survived) == ["apgd-ce", "fab", "square"]
    assert result.worst.sum() < 10


def test_bad_calls_are_refused() -> None:
    pytest.importorskip("pyautoattack")
    for x in (torch.zeros(5, 4), torch.full((5, 3, 8, 8), 2.0)):
        with pytest.raises(InputError, match="expected images"):
            standard_suite(fitted(), x, torch.zeros(5, dtype=torch.long), 0.03)


def checks(model: nn.Module, **options: Any) -> dict[str, Check]:
    x, y = patterns(200, 1)
    return {c.name: c for c in masking_checks(model, x, y, PGD(0.03, steps=8), twin=fitted(), **options)}


def test_an_ordinary_model_passes() -> None:
    found = checks(fitted(), progress=(progress := Mock()))
    assert list(found) == ["gradients", "steps", "radius", "unbounded", "random", "transfer"]
    assert all(check.passed for check in found.values()), found
    assert [call.args for call in progress.call_args_list] == [(i, 6) for i in range(1, 7)]
    assert list(found["steps"].numbers) == ["2 steps", "8 steps", "32 steps"]
    assert list(found["radius"].numbers) == ["eps 0.015", "eps 0.03", "eps 0.06", "eps 0.12"]
    assert found["unbounded"].numbers["accuracy"] == 0
    assert found["transfer"].numbers["transfer"] == found["transfer"].numbers["gradient"]


@pytest.mark.parametrize("kind", [Saturated, Quantised])
def test_hidden_gradients_are_caught(kind: type[nn.Module]) -> None:
    found = checks(kind(fitted()), tries=50)
    failed = [name for name, check in found.items() if not check.passed]
    assert failed == ["gradients", "unbounded", "random", "transfer"]
    assert found["gradients"].numbers["without"] > 95
    assert "better than the model's own gradients" in found["transfer"].sentence
    assert found["random"].sentence.startswith("50 random points leave an accuracy of")


def ripples(x: Tensor) -> Tensor:
    """Right at 0, wrong from 0.6 on, and between them waves in which small steps are caught."""
    margin = 0.5 - x[:, 0] + 0.1 * torch.cos(2 * torch.pi * x[:, 0] / 0.1)
    return torch.stack([margin, torch.zeros_like(margin)], 1)


def test_steps_that_help_the_defender_are_caught() -> None:
    x, y = torch.zeros(20, 1), torch.zeros(20, dtype=torch.long)
    attack = PGD(1.0, bounds=(-4.0, 4.0), steps=100, random_start=False)
    found = {check.name: check for check in masking_checks(ripples, x, y, attack)}
    assert "transfer" not in found
    assert found["steps"].numbers["25 steps"] == 0
    assert found["steps"].numbers["100 steps"] == 100
    assert not found["steps"].passed
    assert "more steps helped by 100.0 points the defender" in found["steps"].sentence


def window(x: Tensor) -> Tensor:
    """Wrong only around 0.65, over which long steps jump."""
    margin = (x[:, 0] - 0.65).abs() - 0.05
    return torch.stack([margin, torch.zeros_like(margin)], 1)


def test_the_model_is_left_alone() -> None:
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192), nn.Dropout(0.5), nn.Linear(192, 5))
    twin, (x, y) = fitted(), patterns(40, 0)
    with left_alone(net):
        masking_checks(net, x, y, PGD(0.03, steps=2), twin=twin, tries=2)


@pytest.mark.parametrize(("copies", "passes"), [(1, True), (50, False)])
def test_a_larger_radius_that_helps_is_caught_and_few_examples_are_given_more_room(copies: int, passes: bool) -> None:
    """Two of twenty may be chance, a hundred of a thousand are not."""
    x, y = torch.zeros(20 * copies, 1), torch.zeros(20 * copies, dtype=torch.long)
    x[: 18 * copies] = 9.0  # beyond the window, whatever the radius
    attack = PGD(0.65, bounds=(-40.0, 40.0), steps=8, step_size=0.65, random_start=False)
    found = {check.name: check for check in masking_checks(window, x, y, attack)}
    assert list(found["radius"].numbers.values())[:3] == [100, 90, 100]
    assert found["radius"].passed == passes
    assert passes or "a larger radius helped by 10.0 points the defender" in found["radius"].sentence
