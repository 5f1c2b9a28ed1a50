"""What looks like a mistake warns once per model, and only then."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from rcad import RCAD, Categorical, Gaussian, InputError
from small_nets import images, norm_net, smooth_net


def said(criterion: RCAD, net: nn.Module, x: Tensor, y: Tensor, times: int = 1) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            criterion(net, x, y)
    return [str(w.message) for w in caught]


def test_an_ordinary_batch_is_silent() -> None:
    assert said(RCAD(0.5, 0.1), norm_net(), *images(), times=2) == []


def test_normalised_images_warn_once() -> None:
    x, y = images()
    z = (x - 0.5) / 0.2
    messages = said(RCAD(0.5, 0.1), norm_net(), z, y, times=3)
    assert len(messages) == 1
    assert "look normalised, but alpha is a distance in [0, 1] pixels; pass std=" in messages[0]
    assert said(RCAD(0.5, 0.1, std=(0.2,) * 3), norm_net(), z, y) == []
    assert said(RCAD(0.5, 0.1, units="input"), norm_net(), z, y) == []


def test_bytes_as_floats_are_told_from_normalised_images() -> None:
    x, y = images()
    messages = said(RCAD(0.5, 0.1), norm_net(), 255 * x, y)
    assert len(messages) == 1
    assert "look scaled" in messages[0]
    assert "divide them by 255" in messages[0]


def test_a_frozen_model_warns_and_bad_weights_and_inference_mode_raise() -> None:
    x, y = images()
    assert "nothing will be trained" in said(RCAD(0.5, 0.1), norm_net().requires_grad_(False), x, y)[0]
    with pytest.raises(InputError, match="expected sample weights >= 0, but got -1"):
        RCAD(0.5, 0.1)(norm_net(), x, y, weight=torch.tensor([1.0, -1, 1, 1, 1, 1, 1]))
    with torch.inference_mode(), pytest.raises(InputError, match=r"expected to be outside torch\.inference_mode"):
        RCAD(0.5, 0.1)(norm_net(), x, y)


def test_standardised_tables_are_no_images() -> None:
    net = nn.Linear(4, 3)
    assert said(RCAD(0.5, 0.1), net, 5 * torch.randn(8, 4), torch.randint(3, (8,))) == []


def test_probabilities_in_place_of_logits_warn_once() -> None:
    net = nn.Sequential(smooth_net(), nn.Softmax(1))
    messages = said(RCAD(0.5, 0.1), net, *images(), times=3)
    assert len(messages) == 1
    assert "look like probabilities, but logits are expected" in messages[0]


def test_a_model_that_ignores_the_input_warns_once() -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(torch.randn(5))

        def forward(self, x: Tensor) -> Tensor:
            return self.logits + 0 * x.flatten(1)[:, :5]

    messages = said(RCAD(0.5, 0.1), Deaf(), *images(), times=3)
    assert len(messages) == 1
    assert "zero gradient with respect to every input" in messages[0]


def test_eval_mode_warns_while_training_but_not_while_validating() -> None:
    net = norm_net().eval()
    messages = said(RCAD(0.5, 0.1), net, *images(), times=2)
    assert len(messages) == 1
    assert "call model.train()" in messages[0]
    with torch.no_grad():
        assert said(RCAD(0.5, 0.1), norm_net().eval(), *images()) == []


def test_targets_far_above_the_cap_warn() -> None:
    net = nn.Linear(4, 2)
    x, y = torch.randn(32, 4), 100 * torch.randn(32)
    criterion = RCAD(0.3, 0.3, likelihood=Gaussian())
    messages = said(criterion, net, x, y, times=2)
    assert len(messages) == 1
    assert "standardise the targets" in messages[0]
    assert said(RCAD(0.3, 0.3, likelihood=Gaussian.fit(y)), nn.Linear(4, 2), x, y) == []


def test_as_many_tokens_as_classes_warn_which_dimension_was_taken() -> None:
    """(B, T, K) with T == K reads as (B, K, T) too; nothing but the user's word tells them apart."""
    x, y = torch.rand(5, 3, 4), torch.randint(3, (5, 3))
    messages = said(RCAD(0.5, 0.1), nn.Linear(4, 3), x, y, times=2)
    assert len(messages) == 1
    assert "the shape (5, 3, 3), and dimension 1 was taken for the classes" in messages[0]
    assert "use Categorical(class_dim=-1), else class_dim=-2 says that 1 is meant" in messages[0]
    for dim in (-1, -2):
        assert said(RCAD(0.5, 0.1, likelihood=Categorical(class_dim=dim)), nn.Linear(4, 3), x, y) == []
    assert said(RCAD(0.5, 0.1), nn.Conv1d(4, 3, 1), torch.rand(5, 4, 6), torch.randint(3, (5, 6))) == []


def test_another_model_is_warned_about_again() -> None:
    x, y = images()
    criterion = RCAD(0.5, 0.1)
    with pytest.warns(UserWarning, match="normalised"):
        criterion(norm_net(), 4 * x - 2, y)
    with pytest.warns(UserWarning, match="normalised"):
        criterion(norm_net(), 4 * x - 2, y)


def test_the_warning_points_at_the_users_line() -> None:
    x, y = images()
    with pytest.warns(UserWarning, match="normalised") as caught:
        RCAD(0.5, 0.1)(norm_net(), 4 * x - 2, y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("fused", [False, True])
def test_a_model_that_detaches_its_input_warns_and_trains(fused: bool) -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = smooth_net()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x.detach())

    net, (x, y) = Detached(), images()
    criterion = RCAD(0.5, 0.1)
    step = criterion.backward if fused else lambda *batch: criterion(*batch).backward()
    with pytest.warns(UserWarning, match="zero gradient"):
        step(net, x, y)
    assert net.net[1].weight.grad is not None
