"""A method in any of its forms becomes the same loss and the same batches."""

import numpy as np
import pytest
import torch

from one_line import refusals
from rcad import RCAD, Bernoulli, Categorical, Gaussian, Method, Mixup, Term, compose, methods
from rcad.integrations.resolve import as_method, resolve
from small_nets import CLASSES, images


@pytest.mark.parametrize("given", ["rcad(alpha=0.7, lam=0.1)", methods.rcad(0.7, 0.1), "rcad(alpha=9, lam=1)", "rcad"])
def test_text_value_and_parameters_say_the_same(given):
    loss = resolve(given, parameters={"alpha": 0.7, "lam": 0.1, "steps": None}).criterion.loss
    assert loss == RCAD(0.7, 0.1).loss


def test_the_rest_of_a_composition_stays():
    value = as_method("mixup(alpha=0.2) + label_smoothing(eps=0.1) + rcad", {"lam": 0.4})
    expected = compose(methods.mixup(0.2), methods.label_smoothing(0.1), methods.rcad(lam=0.4))
    assert value == expected
    resolved = resolve(value)
    assert (resolved.augment, resolved.terms) == ((Mixup(0.2),), expected.terms)


def test_a_method_s_own_likelihood_comes_first():
    assert resolve("rcad").likelihood == Categorical()
    real = resolve("rcad", likelihood=Gaussian())
    assert (real.likelihood, real.terms[1].weight) == (Gaussian(), 0.3)
    assert resolve("bernoulli + rcad", likelihood=Gaussian()).likelihood == Bernoulli()


def test_regression_targets_have_one_weight_by_every_entrance():
    expected, mine = RCAD(likelihood=Gaussian()).asked, Term("mine", "negative_entropy", 0.1)
    value = compose(methods.gaussian(), methods.rcad(), Method(extra=(mine,)))
    assert Method.parse("gaussian + rcad").criterion().asked == expected
    for terms in (value.terms, compose(value).terms, resolve(value).terms):
        assert terms == (*expected.terms, mine)
    assert compose(methods.gaussian(), methods.rcad(lam=0.1)).extra[0].weight == 0.1


def test_every_move_is_told_how_images_were_normalised():
    mean, std = (0.5,) * 3, (0.25,) * 3
    value = compose(methods.rcad(), methods.rcad_random(), methods.confidence_penalty())
    moves = [term.where for term in resolve(value, mean=mean, std=std).terms]
    assert [None if move is None else (move.mean, move.std) for move in moves] == [None, *[(mean, std)] * 2, None]


def test_batches_are_augmented_in_pixels_and_come_back_normalised():
    x, y = images(6)
    resolved = resolve("cutout(length=4) + two_views", mean=(0.5,) * 3, std=(0.25,) * 3)
    batch = resolved.batch((x - 0.5) / 0.25, y, generator=torch.Generator().manual_seed(0))
    black = (batch.x - (0 - 0.5) / 0.25).abs() < 1e-6
    assert 0.01 < black.float().mean() < 0.3  # what is cut out is black, not grey
    torch.testing.assert_close(batch.x[~black], ((x - 0.5) / 0.25)[~black])
    assert torch.equal(batch.views["raw"], (x - 0.5) / 0.25)
    assert torch.equal(batch.views["raw_target"], y)


def test_labels_are_mixed_with_their_images():
    x, y = images(6)
    batch = resolve("mixup + rcad").batch(x, y, classes=np.int64(CLASSES))
    assert batch.target.shape == (6, CLASSES)
    already = resolve("mixup").batch(x, batch.target)  # probabilities say themselves how many classes there are
    assert already.target.shape == (6, CLASSES)
    untouched = resolve("rcad_released").batch(x, y)
    assert untouched.x is x
    assert untouched.views == {}  # without augmentation the batch is its own raw view


def test_parts_are_named_for_readers():
    parts = {name: torch.tensor(value) for name, value in (("nll", 2.0), ("rcad", -1.0))}
    assert resolve("rcad").readable(parts) == {"nll": 2.0, "entropy": 1.0}
    parts["confidence_penalty"] = torch.tensor(-0.5)
    both = resolve("rcad + confidence_penalty").readable(parts)
    assert both == {"nll": 2.0, "entropy_rcad": 1.0, "entropy_confidence_penalty": 0.5}


test_what_cannot_be_is_named_in_one_line = refusals(
    (lambda: resolve("me_ada + rcad"), "'me_ada' enlarges it between epochs; use `rcad train`"),
    (lambda: resolve(7), "expected a method such as"),
    (lambda: resolve("mixup + rcad", alpha=0.5), """write it into the method's text: "rcad(alpha=0.5)\""""),
    (lambda: resolve("rcad", imput_key="x"), "but got 'imput_key'; did you mean 'input_key'?"),
    (lambda: resolve(RCAD(0.1, 0.1), parameters={"lam": 0.0}), "expected a Criterion to be given by itself"),
    (lambda: resolve("erm", parameters={"lam": 1.0}), "expected lam=1.0 to belong to one part of 'erm', but it"),
    (lambda: resolve("mixup + rcad(alpha=2)", parameters={"alpha": 1.0}), "but it belongs to mixup and rcad; write"),
    (lambda: resolve("cutout", mean=(0.5,)), "expected std beside mean, but got mean alone; pass std=(1,)"),
    (lambda: resolve("ls_on_adv", likelihood=Gaussian()), "expected class labels for 'ls_on_adv'"),
    (lambda: resolve("mixup").batch(torch.rand(4, 3), torch.zeros(4)), "expected a tensor of images (B, C, H, W) for"),
    (lambda: resolve("cutmix").batch(*images(4)), "'cutmix' mixes integer labels, but got none; pass classes=K"),
    (lambda: resolve("mixup").batch(*images(4), classes=2), "expected labels from 0 to 1 with classes=2, but got"),
)
