"""What looks like a mistake warns once per model, and only then."""

import pickle
import warnings

import pytest
import torch
from torch import nn

from rcad import RCAD, Categorical, Gaussian, suggest_alpha
from small_nets import images, norm_net, smooth_net

X, Y = images()
TABLE, REAL = torch.randn(32, 4), 100 * torch.randn(32)
TOKENS, TAGS = torch.rand(5, 3, 4), torch.randint(3, (5, 3))


def messages(criterion, net, x, y, times=1):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            criterion(net, x, y)
    assert {w.filename for w in caught} <= {__file__}, "a warning points at the user's line"
    return [str(w.message) for w in caught]


def deaf():
    net = smooth_net()
    nn.init.zeros_(net[1].weight)
    return net


PLAIN, REALS = RCAD(0.5, 0.1), RCAD(0.3, 0.3, likelihood=Gaussian())
IN_PIXELS = "but alpha is a distance in [0, 1] pixels"
WARNS = {
    "normalised": (PLAIN, norm_net, 5 * X - 2.5, Y, f"look normalised, {IN_PIXELS}; pass std="),
    "scaled": (PLAIN, norm_net, 255 * X, Y, f"look scaled, {IN_PIXELS}; divide them by 255"),
    "bounds": (RCAD(bounds=(0, 1)), norm_net, 5 * X - 2.5, Y, f"look normalised, {IN_PIXELS}"),
    "frozen": (PLAIN, lambda: norm_net().requires_grad_(False), X, Y, "nothing will be trained"),
    "softmax": (PLAIN, lambda: nn.Sequential(smooth_net(), nn.Softmax(1)), X, Y, "look like probabilities, but logits"),
    "deaf": (PLAIN, deaf, X, Y, "zero gradient with respect to every input"),
    "eval behind a function": (PLAIN, lambda: norm_net().eval().forward, X, Y, "call model.train()"),
    "cap": (REALS, lambda: nn.Linear(4, 2), TABLE, REAL, "a variance of exp(cap=0); standardise the targets"),
    # (B, T, K) with T == K reads as (B, K, T) too; nothing but the user's word tells them apart.
    "class_dim": (PLAIN, lambda: nn.Linear(4, 3), TOKENS, TAGS, "use Categorical(class_dim=-1), else class_dim=-2"),
}


@pytest.mark.parametrize("name", WARNS)
def test_a_mistake_warns_once_for_each_model(name):
    criterion, make, x, y, words = WARNS[name]
    for _ in range(2):
        (message,) = messages(criterion, make(), x, y, times=3)
        assert words in message


@pytest.mark.parametrize(
    ("criterion", "make", "x", "y"),
    [
        (PLAIN, norm_net, X, Y),
        (RCAD(0.5, 0.1, std=(0.2,) * 3), norm_net, 5 * X - 2.5, Y),
        (RCAD(), norm_net, 5 * X - 2.5, Y),  # alpha is measured in their units
        (PLAIN, lambda: nn.Linear(4, 3), 5 * TABLE, torch.randint(3, (32,))),  # a table is no image
        (RCAD(0.3, 0.3, likelihood=Gaussian.fit(REAL)), lambda: nn.Linear(4, 2), TABLE, REAL),
        (RCAD(0.5, 0.1, likelihood=Categorical(class_dim=-1)), lambda: nn.Linear(4, 3), TOKENS, TAGS),
        (PLAIN, lambda: nn.Conv1d(4, 3, 1), torch.rand(5, 4, 6), torch.randint(3, (5, 6))),
    ],
)
def test_what_is_no_mistake_is_silent(criterion, make, x, y):
    assert messages(criterion, make(), x, y, times=2) == []


def test_an_alpha_measured_on_normalised_images_is_in_their_units():
    normalised = 5 * X - 2.5
    alpha = suggest_alpha(normalised, Y)
    assert messages(RCAD(pickle.loads(pickle.dumps(alpha)), 0.1), norm_net(), normalised, Y) == []
    # Measured in pixels, or with bounds in pixels, it does not fit.
    for wrong in (RCAD(suggest_alpha(X, Y), 0.1), RCAD(alpha, 0.1, bounds=(0, 1))):
        (message,) = messages(wrong, norm_net(), normalised, Y)
        assert f"look normalised, {IN_PIXELS}" in message
