"""alpha="auto" in a loop: what is measured, on which batches, and that it stays."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rcad import (
    RCAD,
    Bernoulli,
    Categorical,
    Criterion,
    Gaussian,
    InputError,
    Objective,
    methods,
    rcad_loss,
    suggest_alpha,
)
from rcad.integrations.resolve import resolve
from rcad.loss.measured_alpha import BATCHES
from small_nets import CLASSES, images, smooth_net, soft
from workers import in_two


def batches(count: int, size: int = 7) -> list[tuple[Tensor, Tensor]]:
    return [images(size, seed=seed) for seed in range(count)]


def taught(criterion: Criterion, loader: list[tuple[Tensor, Tensor]], net: nn.Module | None = None) -> nn.Module:
    net = smooth_net() if net is None else net
    for x, y in loader:
        criterion.backward(net, x, y)
    return net


def four_digits(value: float) -> float:
    return float(f"{value:.4g}")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, BATCHES, BATCHES + 3])
def test_it_is_what_suggest_alpha_says_of_the_examples_up_to_the_last_power_of_two(count: int) -> None:
    criterion, loader = RCAD(), batches(count)
    assert criterion.alpha == "auto"
    taught(criterion, loader)
    looked_at = min(BATCHES, 2 ** (count.bit_length() - 1))
    x, y = (torch.cat(parts) for parts in zip(*loader[:looked_at], strict=True))
    assert criterion.alpha == four_digits(suggest_alpha(x, y, sample=None))
    assert criterion.settled == (count >= BATCHES)


def test_the_loss_is_that_of_the_number() -> None:
    x, y = images(12)
    net, criterion = smooth_net(), RCAD()
    loss = criterion(net, x, y)
    torch.testing.assert_close(loss, rcad_loss(net, x, y, alpha=criterion.alpha, lam=0.1))
    assert criterion.lam == 0.1


def test_it_is_logged_when_it_is_found_and_when_it_is_fixed(caplog: pytest.LogCaptureFixture) -> None:
    criterion = RCAD()
    with caplog.at_level(logging.INFO, logger="rcad"):
        taught(criterion, batches(BATCHES + 4))
    first, last = [record.message for record in caplog.records if "alpha" in record.message]
    assert "measured on the first 7 examples" in first
    assert last == f"alpha = {criterion.alpha:.4g}, measured on 112 examples of the first 16 batches"


def test_it_prints_that_alpha_is_still_measured() -> None:
    assert repr(RCAD()) == "RCAD(Categorical(), [Term(name='nll')]; alpha is measured on the first batches)"
    assert "measured" not in repr(RCAD(alpha=1.0))


def test_labels_that_are_all_equal_tell_nothing_and_the_term_rests() -> None:
    criterion, (x, y) = RCAD(), images(6)
    net = smooth_net()
    assert list(criterion.losses(net, x, torch.zeros_like(y)).parts) == ["nll"]
    assert list(criterion.losses(net, x[:1], y[:1] * 0 + 1).parts) == ["nll", "rcad"]
    with pytest.raises(InputError, match="expected the first 16 batches to differ in their labels"):
        taught(RCAD(), [(x, torch.zeros_like(y))] * BATCHES)


def test_validation_is_not_looked_at() -> None:
    criterion, (x, y) = RCAD(), images(6)
    with torch.no_grad():
        criterion(smooth_net(), 3 * x, y)
    assert criterion.alpha == "auto"


def test_normalised_images_are_measured_in_pixels() -> None:
    x, y = images(9)
    std = (0.2, 0.5, 0.25)
    given = RCAD(mean=(0.5,), std=std)
    taught(given, [((x - 0.5) / torch.tensor(std).view(1, 3, 1, 1), y)])
    assert given.alpha == pytest.approx(suggest_alpha(x, y), rel=1e-3)


@pytest.mark.parametrize("kind", ["soft", "yes or no", "mapping"])
def test_every_form_of_labels(kind: str) -> None:
    x, y = images(9)
    net, expected = smooth_net(), four_digits(suggest_alpha(x, y))
    target: Any = soft(y) if kind == "soft" else nn.functional.one_hot(y, CLASSES).float() if kind == "yes or no" else y
    criterion = RCAD(likelihood=Bernoulli() if kind == "yes or no" else Categorical())

    class Named(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            result: Tensor = net(pixels)
            return result

    criterion.backward(Named() if kind == "mapping" else net, {"pixels": x} if kind == "mapping" else x, target)
    assert criterion.alpha == (four_digits(suggest_alpha(x, soft(y).argmax(1))) if kind == "soft" else expected)


def test_real_targets_count_in_deviations_of_a_column() -> None:
    torch.manual_seed(0)
    x, y, net = 5 * torch.randn(2000, 4), torch.randn(2000), nn.Linear(4, 2)
    criterion = RCAD(likelihood=Gaussian())
    criterion.backward(net, x, y)
    assert criterion.alpha == pytest.approx(0.3 * 5, rel=0.05)
    assert criterion.lam == 0.3
    assert resolve("rcad", likelihood=Gaussian()).criterion.asked.terms[1].weight == 0.3


def test_real_targets_of_images_are_apart_where_they_differ_by_a_deviation() -> None:
    x = torch.zeros(4, 1, 2, 2)
    x[:, 0, 0, 0] = torch.tensor([0.0, 0.1, 1.0, 1.2])
    criterion = RCAD(likelihood=Gaussian())
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    criterion.backward(net, x, torch.tensor([-1.0, -0.9, 1.0, 1.1]))
    assert criterion.alpha == four_digits(0.5 * (0.9 + 1.0) / 2)  # 1.0, 0.9, 0.9, 1.1 to the nearest unlike


def test_what_was_measured_is_saved_and_goes_on() -> None:
    first = RCAD(every=2)
    taught(first, batches(5))
    second = RCAD(every=2)
    second.load_state_dict(first.state_dict())
    assert (second.alpha, second.settled) == (first.alpha, True)
    copied = copy.deepcopy(first)
    assert (copied.alpha, copied.settled) == (first.alpha, False)
    nets = [taught(one, batches(3), smooth_net()) for one in (RCAD(first.alpha, every=2), second)]
    # the counter goes on too: the fifth call of one is the first of the other
    assert not torch.equal(*(next(net.parameters()).grad for net in nets))
    unmeasured = RCAD()
    unmeasured.load_state_dict(RCAD().state_dict())
    assert (unmeasured.alpha, unmeasured.settled) == ("auto", False)


def test_shapes_that_change_from_batch_to_batch_are_taken_as_far_as_they_agree() -> None:
    net = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, CLASSES))
    criterion, (x, y) = RCAD(), images(6)
    taught(criterion, [(x, y), (torch.rand(6, 3, 5, 5), y)], net)
    assert criterion.alpha == four_digits(suggest_alpha(x, y))


def test_who_gives_a_number_is_warned_once_where_it_is_far_below(caplog: pytest.LogCaptureFixture) -> None:
    x, y = images(20)
    measured = suggest_alpha(x, y)
    for criterion in (RCAD(alpha=0.1, lam=0.1), resolve("rcad(alpha=0.1)").criterion):
        caplog.clear()
        taught(criterion, [(x, y)] * 3)
        (record,) = (one for one in caplog.records if one.levelno == logging.WARNING)
        assert f"alpha=0.1 is far below {measured:.3g}, half the median distance" in record.message
    caplog.clear()
    for unheard in (
        RCAD(0.3 * measured, 0.1),
        RCAD(0.1, 0.1, norm="raw"),
        RCAD(0.0, 0.1),
        methods.rcad(0.1).criterion(),
    ):
        taught(unheard, [(x, y)])
    assert not caplog.records


def test_where_nothing_can_be_remembered_a_number_is_asked_for() -> None:
    x, y = images()
    with pytest.raises(InputError, match="since a function cannot remember what it measured"):
        rcad_loss(smooth_net(), x, y, alpha="auto", lam=0.1)
    with pytest.raises(InputError, match="expected a number for alpha in an Objective"):
        methods.rcad().objective(smooth_net())
    with pytest.raises(InputError, match="expected a number for alpha with norm='linf'"):
        RCAD(norm="linf")
    with pytest.raises(InputError, match="expected a number for alpha outside of a criterion"):
        methods.rcad().terms[1].where(smooth_net(), x, y)
    assert Objective(smooth_net(), terms=methods.rcad(0.5).terms)


def test_accumulated_batches_are_looked_at_one_by_one() -> None:
    x, y = images(8)
    criterion, net = RCAD(), smooth_net()
    for rows in (slice(0, 4), slice(4, 8)):
        criterion.backward(net, x[rows], y[rows], accumulate=2)
    assert criterion.alpha == four_digits(suggest_alpha(x, y))


def test_a_compiled_model_changes_nothing() -> None:
    x, y = images(8)
    plain, fast = RCAD(), RCAD()
    taught(plain, [(x, y)] * 3)
    torch._dynamo.reset()
    compiled = torch.compile(smooth_net(), backend="eager")
    taught(fast, [(x, y)] * 3, compiled)
    assert fast.alpha == plain.alpha


WORKER = """
import sys
import torch
from rcad import RCAD, suggest_alpha
from small_nets import images, smooth_net

rank = int(sys.argv[-1])
torch.distributed.init_process_group("gloo")
x, y = images(8)
whole = suggest_alpha(x, y)
# Each sees other examples: they agree on the mean. Where the second sees one class only, the first one's word counts.
for mine, labels, wanted in ((x * (1 + rank), y, 1.5 * whole), (x, y if rank == 0 else 0 * y, whole)):
    criterion = RCAD()
    criterion.backward(smooth_net(), mine, labels)
    assert abs(criterion.alpha - wanted) < 1e-3 * wanted, (rank, criterion.alpha, wanted)
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_processes_take_the_mean_of_what_they_see() -> None:
    in_two(WORKER)
