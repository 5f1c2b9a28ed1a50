"""The accuracy that attacks leave; the adapter to pyautoattack, and our attacks beside those of other packages."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attacked_net import fitted, patterns
from rcad import InputError
from rcad.errors import MissingExtraError
from rcad.evaluate.attacks import APGD, FGSM, PGD, Attack, Worst, accuracy_under, attacked_accuracy
from rcad.evaluate.robustness import standard_suite
from small_nets import left_alone, norm_net


class Spy:
    """Counts the examples an attack is given."""

    def __init__(self, attack: Attack) -> None:
        self.attack, self.seen = attack, 0

    def perturb(self, model: Any, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self.seen += len(x)
        return self.attack.perturb(model, x, y, generator)


def test_accuracies_count_survivors_of_the_right() -> None:
    net, (x, y) = fitted(), patterns(300, 1)
    with torch.no_grad():
        right = net(x).argmax(1) == y
        after = net(FGSM(0.03).perturb(net, x, y)).argmax(1) == y
    weak, strong = Spy(FGSM(0.03)), Spy(PGD(0.03, random_start=False))
    calls: list[tuple[int, int]] = []
    alone = attacked_accuracy(
        net, x, y, {"fgsm": weak, "pgd": strong}, batch_size=64, progress=lambda done, of: calls.append((done, of))
    )
    assert weak.seen == strong.seen == right.sum()
    assert torch.equal(alone.clean, right)
    assert torch.equal(alone.survived["fgsm"], right & after)
    assert alone.accuracies()["fgsm"] == pytest.approx(100 * (right & after).double().mean().item())
    assert torch.equal(alone.worst, alone.survived["fgsm"] & alone.survived["pgd"])
    assert calls[-1] == (600, 600)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)

    assert accuracy_under(net, x, y, FGSM(0.03), batch_size=64) == pytest.approx(100 * after.double().mean().item())


def test_pixels_of_eight_bits_are_read_as_unit_floats() -> None:
    net, (x, y) = fitted(), patterns(50, 1)
    pixels = (255 * x).round().to(torch.uint8)
    one, other = (attacked_accuracy(net, z, y, [FGSM(0.03)]).worst for z in (pixels, pixels.float() / 255))
    assert torch.equal(one, other)
    assert accuracy_under(net, pixels, y, FGSM(0.0)) == pytest.approx(
        100 * (net(pixels / 255).argmax(1) == y).double().mean().item()
    )


def test_the_worst_case_spares_what_is_broken() -> None:
    net, (x, y) = fitted(), patterns(200, 1)
    with torch.no_grad():
        right = net(x).argmax(1) == y
    first, second = Spy(FGSM(0.03)), Spy(PGD(0.03, random_start=False))
    moved = Worst([first, second]).perturb(net, x, y)  # type: ignore[list-item]
    weak, strong = FGSM(0.03).perturb(net, x, y), PGD(0.03, random_start=False).perturb(net, x, y)
    broken = net(weak).argmax(1) != y
    assert (first.seen, second.seen) == (right.sum(), (right & ~broken).sum())
    assert torch.equal(moved[~right], x[~right])
    torch.testing.assert_close(moved[right & broken], weak[right & broken])
    torch.testing.assert_close(moved[right & ~broken], strong[right & ~broken], atol=1e-4, rtol=0)


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    x, y = patterns(5, 1)
    with pytest.raises(MissingExtraError, match=r"pyautoattack.*pip install .* '\.\[attacks\]'"):
        standard_suite(fitted(), x, y, 0.03)


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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": torch.zeros(5, 4)}, "expected images"),
        ({"x": torch.full((5, 3, 8, 8), 2.0)}, "expected images"),
    ],
)
def test_bad_calls_are_refused(change: dict[str, Any], says: str) -> None:
    pytest.importorskip("pyautoattack")
    x, y = patterns(5, 1)
    with pytest.raises(InputError, match=says):
        standard_suite(**{"model": fitted(), "x": x, "y": y, "eps": 0.03, **change})
