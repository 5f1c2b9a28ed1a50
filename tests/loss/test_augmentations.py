"""What happens to a batch, per example and under a generator; and to the training set, in ADA's own units."""

import logging
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn.functional import mse_loss, nll_loss

from one_line import fails_in_one_line, refusals
from rcad import Cutmix, Cutout, FeatureAscent, Flip, Mixup, PadCrop, augment, methods
from rcad.loss.augmentations import beta
from rcad.models import build
from small_nets import CLASSES, images, left_alone, soft

ALL = [PadCrop(), Flip(), Cutout(4), Mixup(), Cutmix()]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("step", ALL, ids=lambda step: type(step).__name__)
def test_shape_range_and_generator(step):
    x, y = images(64)
    kept, rng = x.clone(), torch.get_rng_state()
    moved, target = step(x, y, classes=CLASSES, generator=seeded())
    assert (moved.shape, moved.dtype) == (x.shape, x.dtype)
    assert 0 <= moved.min() <= moved.max() <= 1
    assert torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), rng)
    again = step(x, y, classes=CLASSES, generator=seeded())
    assert all(map(torch.equal, again, (moved, target)))
    assert not torch.equal(moved, step(x, y, classes=CLASSES, generator=seeded(1))[0])


def test_crops_are_windows_of_the_padded_image():
    x, y = images(200)
    moved, target = PadCrop(2)(x, y, generator=seeded())
    assert torch.equal(target, y)
    padded = torch.nn.functional.pad(x, [2] * 4)
    places = []
    for image, frame in zip(moved, padded, strict=True):
        windows = [(i, j) for i in range(5) for j in range(5) if torch.equal(frame[:, i : i + 8, j : j + 8], image)]
        places.append(windows[0])
    assert len(set(places)) == 25


def test_flips_mirror_about_half():
    x, y = images(400)
    moved, _ = Flip()(x, y, generator=seeded())
    mirrored = torch.tensor([torch.equal(a, b.flip(-1)) for a, b in zip(moved, x, strict=True)])
    same = torch.tensor([torch.equal(a, b) for a, b in zip(moved, x, strict=True)])
    assert bool((mirrored ^ same).all())
    assert 160 < int(mirrored.sum()) < 240
    assert torch.equal(Flip(p=0.0)(x, y)[0], x)
    assert torch.equal(Flip(p=1.0)(x, y)[0], x.flip(-1))


def test_cutout_blackens_one_clipped_square():
    x, y = torch.ones(300, 3, 8, 8), torch.zeros(300, dtype=torch.long)
    moved, _ = Cutout(4)(x, y, generator=seeded())
    holes = (moved == 0).all(1)
    assert torch.equal(moved[:, 0] == 0, holes)
    assert len(holes.unique(dim=0)) >= 30, "each example has a draw of its own"
    sides = holes.any(2).sum(1), holes.any(1).sum(1)
    assert torch.equal(sides[0] * sides[1], holes.flatten(1).sum(1))  # a rectangle
    assert {int(s) for s in torch.cat(sides)} == {2, 3, 4}  # clipped at the border, whole inside


def test_mixup_blends_images_and_targets_alike():
    x = torch.eye(CLASSES)[:, :, None, None].expand(CLASSES, CLASSES, 2, 2)  # image c is 1 in channel c
    mixed, target = Mixup(1.0)(x, torch.arange(CLASSES), classes=CLASSES, generator=seeded())
    torch.testing.assert_close(mixed[:, :, 0, 0], target)
    torch.testing.assert_close(target.sum(1), torch.ones(CLASSES))  # nothing is smoothed
    assert len(target.amax(1).unique()) >= 3, "each example has a draw of its own"
    blend = soft(torch.arange(CLASSES))
    _, target = Mixup(1.0)(x, blend, generator=seeded())
    torch.testing.assert_close(target, mixed[:, :, 0, 0] @ blend)


def test_cutmix_targets_are_the_pasted_areas():
    x = torch.eye(CLASSES)[:, :, None, None].expand(CLASSES, CLASSES, 8, 8).repeat(20, 1, 1, 1)
    y = torch.arange(CLASSES).repeat(20)
    mixed, target = Cutmix()(x, y, classes=CLASSES, generator=seeded())
    torch.testing.assert_close(mixed.mean((2, 3)), target)
    assert bool((mixed.sum(1) == 1).all())  # every pixel comes from one image
    assert len(target.amax(1).unique()) >= 10, "each example has a draw of its own"
    assert torch.equal(Cutmix(p=0.0)(x, y, classes=CLASSES, generator=seeded())[0], x)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_the_blend_is_beta_distributed(alpha):
    draws = beta(alpha, torch.empty(20_000), seeded())
    assert stats.kstest(draws.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 1e-3
    assert 0.45 < beta(1e-4, torch.empty(5_000), seeded()).mean() < 0.55


def small_net():
    torch.manual_seed(0)
    return build("small_cnn", num_outputs=CLASSES, in_shape=(3, 8, 8), width=4, norm="batch")


@pytest.mark.parametrize(("eta", "gamma"), [(0.0, 1.0), (1.0, 1.0), (2.0, 0.7)])
def test_the_ascent_is_that_of_the_program_in_its_own_units(eta, gamma):
    """Inputs in [-1, 1], means over a batch of 128, a step of 20.0; here each example by itself, whatever its batch."""
    net, (x, y) = small_net().double(), images(128, dtype=torch.float64)
    growth = replace(methods.me_ada().growth, eta=eta, gamma=gamma, levels=None)
    grown, labels = growth.grow(net, x, y, batch_size=100)
    net.eval()
    scaled, anchor = 2 * x - 1, net.features(x).detach()
    for _ in range(15):
        probe = scaled.clone().requires_grad_(True)
        features = net.features((probe + 1) / 2)
        log_p = net.head(features).log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        gain = nll_loss(log_p, y) - gamma * mse_loss(features, anchor) + eta * entropy
        (gradient,) = torch.autograd.grad(gain, probe)
        scaled = scaled + 20.0 * gradient
    assert (scaled + 1 - 2 * x).abs().max() > 1e-2
    torch.testing.assert_close(grown, (scaled + 1) / 2)
    assert torch.equal(labels, y)
    assert methods.ada().growth == replace(methods.me_ada().growth, eta=0.0)


def test_images_stay_images_of_8_bits():
    net, (x, y) = small_net(), images()
    stored = (x * 255).round().byte()
    growth = FeatureAscent(steps=2, step_size=50.0)
    grown, _ = growth.grow(net, stored, y)
    assert grown.dtype == torch.uint8
    assert not torch.equal(grown, stored)
    floats, _ = growth.grow(net, stored.float() / 255, y)
    torch.testing.assert_close(floats, grown.float() / 255)
    assert 0 <= floats.min() <= floats.max() <= 1


def test_the_model_is_left_as_it_was_and_progress_is_reported():
    net, calls = small_net().train(), []
    net.get_submodule("bn1").eval()
    with left_alone(net):
        FeatureAscent(steps=2).grow(net, *images(), batch_size=3, progress=lambda *call: calls.append(call))
    assert calls == [(3, 7), (6, 7), (7, 7)]


def test_memory_is_capped_and_said(caplog):
    net, (x, y) = small_net(), images(20)
    growth = FeatureAscent(steps=1, max_bytes=8 * x[0].numel() * 4, levels=None, step_size=1e-9)
    with caplog.at_level(logging.WARNING, "rcad"):
        grown, labels = growth.grow(net, x, y, generator=seeded())
    assert len(grown) == len(labels) == 8
    assert "growing 8 of 20 examples" in caplog.text
    sources = [next(i for i in range(20) if torch.allclose(x[i], g, atol=1e-5)) for g in grown]
    assert torch.equal(labels, y[sources])


def test_rounds_come_every_so_many_epochs():
    growth = FeatureAscent(epochs=10, rounds=2)
    assert [epoch for epoch in range(60) if growth.due(epoch)] == [10, 20]


test_wrong_values_are_named = refusals(
    (lambda: PadCrop(0), "expected padding to be a whole number >= 1"),
    (lambda: Flip(1.5), "expected p to be a probability"),
    (lambda: Mixup(0.0), "expected alpha to be a finite number > 0"),
    (lambda: Mixup()(*images()), "expected the number of classes"),
    (lambda: Mixup().images(images()[0]), "Mixup mixes labels too"),
    (lambda: Mixup()(images()[0].byte(), images()[1], classes=5), "inputs to mix, but got torch.uint8; convert"),
    (lambda: augment([Cutmix()], torch.rand(7, 9), torch.arange(7), classes=7), "(B, C, H, W) for Cutmix"),
    (lambda: FeatureAscent().grow(nn.Linear(2, 2), *images()), "features() and head(), but got Linear"),
)


@pytest.mark.parametrize("step", ALL, ids=lambda step: type(step).__name__)
def test_a_mask_is_not_left_behind(step) -> None:
    x, _ = images()
    for mask in (torch.randint(CLASSES, (7, 8, 8)), torch.rand(7, CLASSES, 8, 8)):
        if isinstance(step, Cutout | Mixup):
            augment([step], x, mask, classes=CLASSES)
            continue
        with fails_in_one_line("expected one target for each image with", "augment images and masks by yourself"):
            augment([step], x, mask, classes=CLASSES)
