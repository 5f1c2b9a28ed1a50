"""What an attack climbs: one number per example that grows as the prediction leaves its label, in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.likelihoods import Categorical, full_precision

AttackLoss = Callable[[Tensor, Tensor], Tensor]
LossName = Literal["ce", "dlr"]

# Keeps the ratio finite where the leading logits are equal.
TIE = 1e-12


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Minus the log-probability of the label."""
    return Categorical().nll(output, y)


def margin(output: Tensor, y: Tensor) -> Tensor:
    """The largest logit of the other classes, minus that of the label: positive where the prediction is wrong."""
    own = output.gather(1, y[:, None])
    others = output.scatter(1, y[:, None], -torch.inf)
    return others.amax(1) - own.squeeze(1)


def dlr(output: Tensor, y: Tensor) -> Tensor:
    """The difference of logits ratio (Croce and Hein, 2020): the margin over the first minus the third logit.

    Unlike the cross-entropy it does not change when the logits are scaled. Three classes or more.
    """
    _enough_classes(output, 3, "the DLR loss")
    output = full_precision(output)
    first, _, third = output.topk(3, dim=1).values.unbind(1)
    return margin(output, y) / (first - third + TIE)


def dlr_towards(target: Tensor) -> AttackLoss:
    """The DLR loss with a class to reach (the same paper). Four classes or more."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        _enough_classes(output, 4, "the targeted DLR loss")
        output = full_precision(output)
        first, _, third, fourth = output.topk(4, dim=1).values.unbind(1)
        gain = output.gather(1, target[:, None]) - output.gather(1, y[:, None])
        return gain.squeeze(1) / (first - (third + fourth) / 2 + TIE)

    return loss


def _enough_classes(output: Tensor, least: int, what: str) -> None:
    if output.shape[1] < least:
        raise InputError(f'expected at least {least} classes for {what}, but got {output.shape[1]}; use loss="ce"')


LOSSES: Mapping[LossName, AttackLoss] = {"ce": cross_entropy, "dlr": dlr}
