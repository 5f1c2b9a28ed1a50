"""Attacks: their distances hold; against closed forms and a slow twin; their promises about the model."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attacked_net import fitted, patterns
from one_line import refusals
from rcad.evaluate.attack_search import Ball, dlr, dlr_towards, margin
from rcad.evaluate.attacks import APGD, FGSM, PGD, Attack, RandomSearch, Worst, attacked_accuracy, checkpoints
from rcad.loss.perturbations import Move
from small_nets import images, left_alone, norm_net, smooth_net

WITHOUT_CHANCE = (FGSM(0.05), FGSM(0.5, "l2"), PGD(0.5, "l2", steps=3, random_start=False))
ALL: list[Any] = [
    *WITHOUT_CHANCE,
    PGD(0.05, steps=3, restarts=2),
    PGD(0.05, steps=3, loss="dlr"),
    APGD(0.05, steps=6),
    APGD(0.5, "l2", steps=6, loss="dlr", restarts=2),
    APGD(0.05, steps=6, loss="dlr", targets=3),
    RandomSearch(0.05, tries=3),
    Worst([FGSM(0.05), PGD(0.05, steps=3)]),
]
ids = [repr(attack) for attack in ALL]


def two_classes(w: Tensor, b: float) -> nn.Linear:
    """Logits whose difference is w.x + b."""
    model = nn.Linear(len(w), 2).to(w.dtype)
    with torch.no_grad():
        model.weight.copy_(torch.stack([-w / 2, w / 2]))
        model.bias.copy_(torch.tensor([-b / 2, b / 2]))
    return model


@pytest.mark.parametrize("attack", [FGSM(0.3), PGD(0.3), PGD(0.3, random_start=False), APGD(0.3, steps=20)])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_linear_model_loses_the_margin_of_the_closed_form(attack: Any, norm: Any) -> None:
    torch.manual_seed(0)
    w = torch.randn(7, dtype=torch.float64)
    model, x, y = two_classes(w, 0.2), torch.randn(9, 7, dtype=torch.float64), torch.arange(9) % 2
    moved = replace(attack, norm=norm, bounds=None).perturb(model, x, y)
    dual = w.abs().sum() if norm == "linf" else w.norm()
    sign = torch.where(y == 1, -1.0, 1.0).double()
    # After a random start the steps of PGD reach the best point of the sphere only nearly.
    slack = {"FGSM": 1e-9, "APGD": 1e-3}.get(type(attack).__name__, 1e-2) if norm == "l2" else 1e-9
    torch.testing.assert_close((moved - x) @ w, sign * 0.3 * dual, rtol=slack, atol=0)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_more_steps_and_more_restarts_break_more(norm: Any) -> None:
    net, (x, y) = fitted(), patterns(200, 1)
    eps = 0.03 if norm == "linf" else 0.3
    # The points visited by fewer steps of the same size are among those of more.
    longer = [PGD(eps, norm, steps=steps, step_size=eps / 4, random_start=False) for steps in (1, 4, 16)]
    again = [PGD(eps, norm, steps=3, restarts=restarts) for restarts in (1, 6)]
    for attacks in (longer, again):
        masks = [attacked_accuracy(net, x, y, [attack], batch_size=200).worst for attack in attacks]
        assert all(bool((many <= few).all()) for few, many in pairwise(masks))
        assert masks[0].sum() > masks[-1].sum()


@pytest.mark.parametrize("attack", ALL, ids=ids)
def test_nothing_is_left_behind_even_after_an_exception(attack: Any) -> None:
    net, (x, y) = norm_net(dropout=0.5), images(9)
    net[1].eval()
    net[0].weight.requires_grad_(False)
    net[4].weight.grad = torch.ones_like(net[4].weight)
    called: list[str] = []
    net[9].weight.register_hook(lambda g: called.append("a gradient of a parameter"))
    original = x.clone()
    with left_alone(net):
        moved = attack.perturb(net, x, y)
    assert not moved.requires_grad
    assert moved.data_ptr() != x.data_ptr()
    assert torch.equal(x, original)
    assert x.grad is None
    assert not called
    assert attack.perturb(net, x[:0], y[:0]).shape == (0, 3, 8, 8)
    calls = iter([None] * (not isinstance(attack, FGSM)))
    net.register_forward_hook(lambda *_: next(calls))
    with pytest.raises(StopIteration), left_alone(net):
        attack.perturb(net, x, y)


@pytest.mark.parametrize("attack", ALL, ids=ids)
def test_it_repeats_itself_in_eval_mode_whatever_the_caller_switched_off(attack: Any) -> None:
    net, (x, y) = norm_net(dropout=0.5), images(9)
    expected = attack.perturb(net.eval(), x, y)
    assert not torch.equal(expected, x)
    assert torch.equal(attack.perturb(net.train(), x, y), expected)
    assert torch.equal(attack.perturb(net, x, y, torch.Generator().manual_seed(0)), expected)
    for switched_off in (torch.no_grad, torch.inference_mode):
        with switched_off():
            assert torch.equal(attack.perturb(net, x, y), expected)
    other_seed = attack.perturb(net, x, y, torch.Generator().manual_seed(1))
    assert torch.equal(other_seed, expected) == (attack in WITHOUT_CHANCE)
    if attack in WITHOUT_CHANCE:  # and the batch does not matter
        parts = [attack.perturb(net, *part) for part in zip(x.split(2), y.split(2), strict=True)]
        torch.testing.assert_close(torch.cat(parts), expected)


def test_the_steps_of_pgd_have_the_stated_length() -> None:
    w = torch.ones(2, dtype=torch.float64)
    model, x, y = two_classes(w, 0.0), torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0])
    for steps, size, expected in ((10, None, 0.4), (10, 0.01, 0.1), (1, 0.01, 0.01)):
        attack = PGD(0.4, bounds=None, steps=steps, step_size=size, random_start=False)
        torch.testing.assert_close(attack.perturb(model, x, y), torch.full_like(x, expected))


test_bad_calls_are_refused = refusals(
    (lambda net, x, y: FGSM(-0.1), "expected eps to be a finite number >= 0"),
    (lambda net, x, y: PGD(0.1, restarts=2, random_start=False), "expected random_start=True with several restarts"),
    (lambda net, x, y: APGD(0.1, targets=3), 'expected loss="dlr" with targets=3'),
    (lambda net, x, y: FGSM(0.1, bounds=(1, 0)), "expected bounds as"),
    (lambda net, x, y: Worst([]), "expected at least one attack"),
    (lambda net, x, y: PGD(0.1).perturb(net, x, y.float()), "expected one class label per example"),
    (lambda net, x, y: PGD(0.1).perturb(net, x, y + 9), "expected labels from 0 to 4"),
    (lambda net, x, y: PGD(0.1).perturb(net, 1.5 * x, y), "within the bounds .. give mean and std"),
    (lambda net, x, y: PGD(0.1).perturb(net, x.half(), y), "expected inputs in float32 or float64"),
    (lambda net, x, y: PGD(0.1).perturb(lambda x: net(x)[:, :1], x, 0 * y), "expected at least 2 classes"),
    (lambda net, x, y: APGD(0.1, loss="dlr").perturb(lambda x: net(x)[:, :2], x, y % 2), "at least 3 classes"),
    (lambda net, x, y: APGD(0.1, loss="dlr", targets=5).perturb(net, x, y), "use targets=4"),
    (lambda net, x, y: attacked_accuracy(net, x, y, [FGSM(0.1)] * 2), "expected different attacks"),
    (lambda net, x, y: attacked_accuracy(net, x, y, {"clean": FGSM(0.1)}), "expected other names"),
    (lambda net, x, y: attacked_accuracy(net, x[:0], y[:0], [FGSM(0.1)]), "expected at least one example"),
    of=lambda call: call(smooth_net(), *images()),
)


@pytest.mark.gpu
@pytest.mark.parametrize("attack", ALL, ids=ids)
def test_on_a_gpu(attack: Any) -> None:
    net, (x, y) = smooth_net().double(), images(9, dtype=torch.float64)
    expected = attack.perturb(net, x, y, torch.Generator().manual_seed(0))
    moved = attack.perturb(net.cuda(), x.cuda(), y.cuda(), torch.Generator().manual_seed(0))
    torch.testing.assert_close(moved.cpu(), expected, rtol=0, atol=1e-6)
    assert attack.perturb(net, x.cuda(), y.cuda()).is_cuda
    assert attacked_accuracy(net, x, y, {"it": attack}).worst.is_cuda


def test_the_checkpoints_are_the_papers() -> None:
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(7) == [2, 3, 4, 5, 6, 7]


def slow_apgd(net: Any, x: Tensor, y: Tensor, eps: float, norm: str, start: Tensor, steps: int) -> tuple[Tensor, set]:
    """Algorithm 1 of Croce and Hein (2020) for one example in float64; also where it halved the step size."""

    def projected(z: Tensor) -> Tensor:
        step = z - x
        step = step.clamp(-eps, eps) if norm == "linf" else step * (eps / step.norm()).clamp(max=1)
        return (x + step).clip(0, 1)

    def evaluated(z: Tensor) -> tuple[float, Tensor, bool]:
        z = z.clone().requires_grad_(True)
        logits = net(z[None])[0]
        loss = logits.logsumexp(0) - logits[y]
        return loss.item(), torch.autograd.grad(loss, z)[0], bool(logits.argmax() != y)

    places, xs, size, halved = [0, *checkpoints(steps)], [start], 2 * eps, set()
    f, g, wrong = evaluated(start)
    losses, visited, best = [f], [(wrong, f, start)], (f, start, g)
    best_at, size_at = {0: f}, {0: size}
    for k in range(1, steps + 1):
        z = projected(xs[-1] + size * (g.sign() if norm == "linf" else g / g.norm()))
        new = z if k == 1 else projected(xs[-1] + 0.75 * (z - xs[-1]) + 0.25 * (xs[-1] - xs[-2]))
        f, g, wrong = evaluated(new)
        visited.append((wrong, f, new))
        xs.append(new)
        losses.append(f)
        if f > best[0]:
            best = f, new, g
        if k in places and k < steps:
            last = places[places.index(k) - 1]
            few = sum(losses[i + 1] > losses[i] for i in range(last, k)) < 0.75 * (k - last)
            stuck = size_at[last] == size and best_at[last] == best[0]
            size_at[k], best_at[k] = size, best[0]
            if few or stuck:
                halved.add(k)
                size /= 2
                losses[-1], xs[-1], g = best
    return max(visited, key=lambda seen: seen[:2])[2], halved


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.03), ("linf", 0.3), ("l2", 0.5), ("l2", 3.0)])
def test_equals_the_slow_twin(norm: Any, eps: float) -> None:
    net, (x, y) = smooth_net().double(), images(12, dtype=torch.float64)
    net[-1].weight.data.mul_(3)
    moved = APGD(eps, norm, steps=40).perturb(net, x, y, torch.Generator().manual_seed(3))
    start = Ball(x, Move(eps, norm, (0.0, 1.0))).start(torch.Generator().manual_seed(3))
    halved: set[int] = set()
    for i in range(len(x)):
        expected, at = slow_apgd(net, x[i], y[i], eps, norm, start[i], 40)
        torch.testing.assert_close(moved[i], expected, rtol=0, atol=1e-6)
        halved |= at
    assert len(halved) > 2


KINDS = (FGSM, PGD, APGD, RandomSearch)


def distance(moved: Tensor, x: Tensor, norm: str, scale: float | Tensor = 1.0) -> Tensor:
    order: float = 2 if norm == "l2" else math.inf
    step = (moved.double() - x.double()) * scale
    return torch.linalg.vector_norm(step.flatten(1), ord=order, dim=1)


def made(kind: type[Attack], *arguments: Any, **more: Any) -> Attack:
    few: dict[str, int] = {"FGSM": {}, "RandomSearch": {"tries": 3}}.get(kind.__name__, {"steps": 4, "restarts": 2})  # type: ignore[assignment]
    return kind(*arguments, **more, **few)


@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 4),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    exponent=st.floats(-6, 1),
    norm=st.sampled_from(["l2", "linf"]),
    scale=st.sampled_from([None, 1e-3, 1.0, 300.0]),
)
@settings(max_examples=60, deadline=None)
def test_the_distance_holds_exactly(kind, count, shape, dtype, exponent, norm, scale):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 3)).to(dtype)
    eps, bounds = 10**exponent, (0.0, 1.0) if scale is None else None
    x = torch.rand(count, *shape, dtype=dtype) if scale is None else scale * torch.randn(count, *shape, dtype=dtype)
    moved = made(kind, eps, norm, bounds).perturb(model, x, torch.randint(3, (count,)))
    assert (moved.shape, moved.dtype) == (x.shape, dtype)
    assert bool((distance(moved, x, norm) <= eps * (1 + 1e-12)).all())
    if bounds is not None:
        assert 0 <= moved.min() <= moved.max() <= 1


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("kind", KINDS)
def test_normalised_inputs_keep_pixel_units(kind: Any, norm: Any) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    shift, scale = (torch.tensor(v).view(1, 3, 1, 1) for v in (mean, std))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    x, y = torch.rand(6, 3, 8, 8), torch.randint(3, (6,))
    attack, twin = made(kind, 0.1, norm), made(kind, 0.1, norm, mean=mean, std=std)
    inside = (x - shift) / scale
    moved = twin.perturb(lambda z: net(z * scale + shift), inside, y)
    assert bool((distance(moved, inside, norm, scale.double()) <= 0.1 * (1 + 1e-6)).all())
    torch.testing.assert_close(moved * scale + shift, attack.perturb(net, x, y), rtol=0, atol=2e-5)


def test_a_gradient_that_is_not_a_number_moves_nothing() -> None:
    x = torch.rand(2, 4)
    for norm in ("l2", "linf"):
        ball = Ball(x, Move(0.1, norm, (0.0, 1.0)))  # type: ignore[arg-type]
        assert torch.equal(ball.climbed(x, torch.full_like(x, torch.nan), 0.1), x)
        assert bool(torch.isfinite(ball.climbed(x, torch.full_like(x, torch.inf), 0.1)).all())


def test_random_points_are_where_they_should_be() -> None:
    generator = torch.Generator().manual_seed(0)
    cube, ball = (Ball(torch.zeros(4000, 3), Move(0.2, norm)) for norm in ("linf", "l2"))  # type: ignore[arg-type]
    draws = (cube.start, ball.start, ball.corner, cube.corner)
    in_cube, in_ball, on_sphere, at_corner = (draw(generator) for draw in draws)
    for points in (in_cube, in_ball, on_sphere, at_corner):
        assert points.mean(0).abs().max() < 0.02
    assert in_cube.std(0).tolist() == pytest.approx([0.2 / math.sqrt(3)] * 3, rel=0.03)
    assert in_ball.norm(dim=1).quantile(torch.tensor([0.25, 0.75])).tolist() == pytest.approx([0.05, 0.15], rel=0.1)
    assert on_sphere.norm(dim=1).tolist() == pytest.approx([0.2] * 4000, rel=1e-4)
    assert at_corner.abs().min() > 0.199


def test_the_losses_by_hand() -> None:
    torch.manual_seed(0)
    output, y = torch.randn(20, 6, dtype=torch.float64), torch.randint(6, (20,))
    target = (y + 2) % 6
    towards = dlr_towards(target)(output, y)
    for i, (row, label) in enumerate(zip(output.tolist(), y.tolist(), strict=True)):
        ordered = sorted(row, reverse=True)
        lead = max(v for k, v in enumerate(row) if k != label) - row[label]
        assert margin(output, y)[i].item() == pytest.approx(lead)
        assert dlr(output, y)[i].item() == pytest.approx(lead / (ordered[0] - ordered[2]))
        gain = row[int(target[i])] - row[label]
        assert towards[i].item() == pytest.approx(gain / (ordered[0] - (ordered[2] + ordered[3]) / 2))
    torch.testing.assert_close(dlr(1000 * output + 3, y), dlr(output, y))
    assert dlr(output.half(), y).dtype == torch.float32
    assert bool(torch.isfinite(dlr(torch.zeros(2, 3), torch.tensor([0, 1]))).all())
