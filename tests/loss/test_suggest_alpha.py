"""Distances by a loop, and what a model says along its adversarial directions."""

import logging
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import one_hot

from one_line import fails_in_one_line, refusals
from rcad import RCAD, Bernoulli, Categorical, Gaussian, GradientStep, methods, rcad_loss, suggest_alpha
from rcad.loss.suggest_alpha import BATCHES, along_adversarial, flip_distance, nearest_other_class
from small_nets import CLASSES, images, left_alone, norm_net, smooth_net, soft
from workers import in_two


@given(count=st.integers(2, 40), width=st.integers(1, 5), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_a_loop_gives_the_same(count, width, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator)
    y = torch.randint(3, (count,), generator=generator)
    y[0], y[1] = 0, 1
    by_hand = [min(math.dist(x[i], x[j]) for j in range(count) if y[j] != y[i]) for i in range(count)]
    torch.testing.assert_close(nearest_other_class(x, y), torch.tensor(by_hand), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("offset", "kind"), [(1e4, torch.float32), (1e4, torch.float64), (1e9, torch.float64)])
def test_an_offset_that_all_share_changes_nothing(offset, kind):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(300, 5, generator=generator, dtype=torch.float64) + offset).to(kind)
    y = torch.randint(3, (300,), generator=generator)
    apart = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
    half = 0.5 * apart.masked_fill(y[:, None] == y, math.inf).amin(1).quantile(0.5).item()
    assert suggest_alpha(x, y) == pytest.approx(half, rel=1e-3)
    criterion = RCAD()
    criterion.backward(nn.Linear(5, 3, dtype=kind), x, y)
    assert criterion.alpha == pytest.approx(half, rel=1e-3)


def test_a_sample_asks_some_and_searches_all():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(3000, 4, generator=generator), torch.randint(2, (3000,), generator=generator)
    sample = nearest_other_class(x, y, sample=100, generator=torch.Generator().manual_seed(1)).tolist()
    assert len(sample) == 100
    assert set(sample) <= set(nearest_other_class(x, y, sample=None).tolist())


@pytest.mark.filterwarnings("error")
def test_arrays_lists_and_bytes_are_read_too():
    x, y = images(30)
    expected, stored = suggest_alpha(x, y), (x * 255).round().byte()
    fixed = x.numpy().astype(">f4")
    fixed.flags.writeable = False  # as the columns of a data frame
    assert suggest_alpha(x.numpy(), y.numpy()) == suggest_alpha(fixed, y.tolist()) == expected
    assert suggest_alpha(x.numpy()[:, :, ::-1], y) == pytest.approx(expected)
    assert suggest_alpha(stored, y) == pytest.approx(suggest_alpha(stored.float() / 255, y))
    with pytest.warns(UserWarning, match=r"span \[0.*, 25.*\] and look scaled, .*; divide them by 255"):
        scaled = suggest_alpha(255 * x, y)
    assert scaled == pytest.approx(255 * expected)
    whole = (1000 * x[:, 0, 0, 0]).long()
    assert suggest_alpha(whole, y) == suggest_alpha(whole[:, None].double(), y) > 0
    assert suggest_alpha(whole + 1_700_000_000, y) == suggest_alpha(whole, y), "whole numbers keep their digits"


TWINS = torch.tensor([[0.0], [0.0], [0.0], [0.0], [5.0], [7.0]]), torch.tensor([0, 1, 0, 1, 0, 1])


IMAGES = images()[0]
test_examples_that_cannot_be_measured_are_named = refusals(
    (IMAGES, torch.zeros(7), "expected one class label per example"),
    (IMAGES, torch.zeros(7, dtype=torch.long), "at least two classes"),
    (IMAGES, ["a", "b"] * 3, "expected y to hold numbers, but got an array of <U1"),
    (TWINS[0][:4], TWINS[1][:4], "expected examples unlike those of other classes, but each has an identical one"),
    (IMAGES / 0, torch.arange(7), "expected finite examples, but got NaN or inf; drop or impute those rows"),
    (1e25 * IMAGES.flatten(1), torch.arange(7), "expected examples whose distances can be measured, but got"),
    of=suggest_alpha,
)


def test_the_curve_is_what_the_steps_give():
    net, (x, y) = norm_net().eval(), images(40)
    with left_alone(net):
        rows = along_adversarial(net, x, y, [0.0, 0.5, 4.0])
    output = net(GradientStep(0.5)(net, x, y))
    assert rows[1].accuracy == pytest.approx((output.argmax(1) == y).float().mean().item())
    assert rows[1].entropy == pytest.approx(Categorical().entropy(output).mean().item(), rel=1e-5)
    assert rows[0].flipped == 0


def test_a_linear_model_flips_at_its_margin():
    """For two classes along one axis the prediction at x = m flips exactly after a step of m."""
    x, y = torch.full((9, 1), 0.75), torch.ones(9, dtype=torch.long)
    rows = along_adversarial(lambda x: torch.cat([-x, x], 1), x, y, [0.1 * k for k in range(12)])
    assert flip_distance(rows) == pytest.approx(0.8)
    assert flip_distance(rows[:5]) is None


def batches(count, size=7):
    return [images(size, seed=seed) for seed in range(count)]


def taught(criterion, loader, net=None):
    net = smooth_net() if net is None else net
    for x, y in loader:
        criterion.backward(net, x, y)
    return net


def four_digits(value):
    return float(f"{value:.4g}")


def test_what_tells_nothing_about_alpha_is_not_looked_at():
    (x, y), net, criterion = images(12), smooth_net(), RCAD()
    with torch.no_grad():
        criterion(net, 3 * x, y)  # validation
    assert list(criterion.losses(net, x, torch.zeros_like(y)).parts) == ["nll"], "one class: the term rests"
    assert (criterion.alpha, criterion.lam) == ("auto", 0.1)
    loss = RCAD()(net, x, y)
    torch.testing.assert_close(loss, rcad_loss(net, x, y, alpha=four_digits(suggest_alpha(x, y)), lam=0.1))
    with fails_in_one_line("expected the first 16 batches to differ in their labels"):
        taught(RCAD(), [(x, torch.zeros_like(y))] * BATCHES)


@pytest.mark.parametrize("count", [1, 3, 4, BATCHES, BATCHES + 3])
def test_it_is_what_suggest_alpha_says_of_the_examples_up_to_the_last_power_of_two(count, caplog):
    criterion, loader = RCAD(), batches(count)
    with caplog.at_level(logging.INFO, logger="rcad"):
        taught(criterion, loader)
    first, *last = [record.message for record in caplog.records if "alpha" in record.message]
    assert "measured on the first 7 examples" in first
    looked_at = min(BATCHES, 2 ** (count.bit_length() - 1))
    x, y = (torch.cat(parts) for parts in zip(*loader[:looked_at], strict=True))
    assert criterion.alpha == four_digits(suggest_alpha(x, y, sample=None))
    assert criterion.settled == (count >= BATCHES)
    fixed = f"alpha = {criterion.alpha:.4g}, measured on 112 examples of the first 16 batches"
    assert last == [fixed] * criterion.settled


X, Y = images(9)
STD, GAUSSIAN = (0.2, 0.5, 0.25), {"likelihood": Gaussian()}
NORMALISED = (X - 0.5) / torch.tensor(STD).view(1, 3, 1, 1)
TABLE = 5 * torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
DEVIATIONS = 0.3 * TABLE.var(0).mean().sqrt()
DOTS = torch.tensor([0.0, 0.1, 0.8, 1.0]).view(4, 1, 1, 1).repeat(1, 3, 1, 1)
SIZELESS = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2 * CLASSES))
MEASURED = {
    "soft labels": ({}, smooth_net(), [(X, soft(Y))], suggest_alpha(X, soft(Y).argmax(1))),
    "yes or no": ({"likelihood": Bernoulli()}, smooth_net(), [(X, one_hot(Y, CLASSES).float())], suggest_alpha(X, Y)),
    "normalised images": ({"mean": (0.5,), "std": STD}, smooth_net(), [(NORMALISED, Y)], suggest_alpha(X, Y)),
    "shapes that change": ({}, SIZELESS, [(X, Y), (torch.rand(6, 3, 5, 5), Y[:6])], suggest_alpha(X, Y)),
    "twins of another class": ({}, nn.Linear(1, 2), [TWINS], 1.0),
    "a table, by its columns": (GAUSSIAN, nn.Linear(4, 2), [(TABLE, TABLE[:, 0])], DEVIATIONS),
    # From each to the nearest whose target is a deviation away or more: 0.8, 0.7, 0.7, 0.9 in each of three channels.
    "reals of images": (GAUSSIAN, SIZELESS[:2].append(nn.Linear(3, 2)), [(DOTS, DOTS[:, 0, 0, 0])], 0.375 * 3**0.5),
}


@pytest.mark.parametrize("name", MEASURED)
def test_alpha_is_measured_on_every_kind_of_batch(name):
    options, net, loader, expected = MEASURED[name]
    criterion = RCAD(**options)
    taught(criterion, loader, net)
    assert criterion.alpha == pytest.approx(float(expected), rel=1e-3)
    assert criterion.lam == (0.3 if options is GAUSSIAN else 0.1)


@pytest.mark.parametrize("alpha", [1.0, "auto"])
def test_floats_in_place_of_labels_are_refused_and_labels_taken_afterwards(alpha):
    criterion = RCAD(alpha)
    with fails_in_one_line("expected integer labels, ", "torch.float32 of shape (9,); pass y.long(), or for"):
        taught(criterion, [(X, Y.float())])
    taught(criterion, [(X, Y)])
    assert criterion.alpha == (1.0 if alpha == 1.0 else four_digits(suggest_alpha(X, Y)))


def test_what_was_measured_is_saved_and_goes_on():
    first = RCAD(every=2)
    taught(first, batches(5))
    second = RCAD(every=2)
    second.load_state_dict(first.state_dict())
    assert (second.alpha, second.settled) == (first.alpha, True)
    nets = [taught(criterion, batches(3), smooth_net()) for criterion in (RCAD(first.alpha, every=2), second)]
    # the counter goes on too: the fifth call of one is the first of the other
    assert not torch.equal(*(next(net.parameters()).grad for net in nets))
    fixed = RCAD(2.0)
    fixed.load_state_dict(first.state_dict())
    assert (fixed.alpha, fixed.loss.terms[1].where.alpha, fixed.state_dict()["alpha"]) == (2.0, 2.0, None)


test_where_nothing_can_be_remembered_a_number_is_asked_for = refusals(
    (lambda: rcad_loss(smooth_net(), X, Y, alpha="auto", lam=0.1), "since a function cannot remember what it measured"),
    (lambda: methods.rcad().objective(smooth_net()), "expected a number for alpha in an Objective"),
    (lambda: RCAD(norm="linf"), "expected a number for alpha with norm='linf'"),
    (lambda: methods.rcad().terms[1].where(smooth_net(), X, Y), "expected a number for alpha outside of a criterion"),
)


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
def test_processes_take_the_mean_of_what_they_see():
    in_two(WORKER)


@pytest.mark.parametrize("alpha", [0.5, "auto"])
def test_measuring_draws_none_of_the_users_random_numbers(alpha) -> None:
    x, y = torch.rand(2_100, 4), torch.arange(2_100) % CLASSES
    torch.manual_seed(0)
    RCAD(alpha, 0.1).backward(nn.Linear(4, CLASSES), x, y)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    nn.Linear(4, CLASSES)
    assert torch.equal(torch.get_rng_state(), after)


def test_a_step_that_failed_does_not_count() -> None:
    criterion, (x, y) = RCAD(), (X, Y)

    def failing(x):
        raise KeyboardInterrupt

    for _ in range(BATCHES):
        with pytest.raises(KeyboardInterrupt):
            criterion.backward(failing, 2 * x, y)
    assert (criterion.alpha, criterion.settled) == ("auto", False)
    taught(criterion, [(x, y)])
    assert criterion.alpha == four_digits(suggest_alpha(x, y))


@pytest.mark.parametrize("alpha", [0.5, "auto"])
def test_one_number_for_each_example_needs_no_second_dimension(alpha) -> None:
    x, y, nets = torch.rand(20), torch.arange(20) % CLASSES, []
    for rows in (x, x[:, None]):
        torch.manual_seed(0)
        nets.append(nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (20, 1)), nn.Linear(1, CLASSES)))
        RCAD(alpha, 0.1).backward(nets[-1], rows, y)
    assert torch.equal(*(net[2].weight.grad for net in nets))
    taught(RCAD(**GAUSSIAN), [(x, x)], nn.Sequential(nn.Unflatten(0, (20, 1)), nn.Linear(1, 2)))
