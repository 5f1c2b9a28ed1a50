"""Methods of a net's class that the method's loss would pass over in training."""

from __future__ import annotations

from typing import Any

import torch
from skorch import NeuralNet, NeuralNetBinaryClassifier, NeuralNetClassifier, NeuralNetRegressor

from rcad.errors import InputError, whole

OWN = (NeuralNet, NeuralNetClassifier, NeuralNetBinaryClassifier, NeuralNetRegressor)

# What to do instead. Of the first two nothing is used in training, wherever they are; of the others not what lies
# behind the mixin.
ANYWHERE = {
    "get_loss": "accumulate with accumulate=, weigh classes with method=rcad.RCAD(..., "
    "likelihood=rcad.Categorical(weight=...)), and add gradients of penalties in a callback's on_grad_computed",
    "infer": "do it in the module's forward",
}
BEHIND = {"train_step_single": "override it in a subclass of the net with the mixin, and call super()"}
ACCUMULATING = {"train_step": "leave that or accumulate= out"}


def check_net(net: Any, mixin: type) -> None:
    """Refuses what would be ignored in silence."""
    whole("accumulate", net.accumulate, minimum=1)
    several = net.accumulate > 1
    if several and isinstance(net.optimizer_, torch.optim.LBFGS):
        raise InputError("expected an optimizer without a closure for accumulate, but got LBFGS; use larger batches")
    order = type(net).__mro__
    behind = order[order.index(mixin) + 1 :]
    _refuse(order, ANYWHERE)
    _refuse(behind, BEHIND | (ACCUMULATING if several else {}))


def _refuse(classes: tuple[type, ...], names: dict[str, str]) -> None:
    for name, instead in names.items():
        owner = next((kind for kind in classes if name in vars(kind) and kind not in OWN), None)
        if owner is not None:
            raise InputError(
                f"expected skorch's own {name}, whose place the method takes in training, but got "
                f"{owner.__name__}.{name}; {instead}"
            )


def not_reached(net: Any) -> InputError:
    """A train_step_single in front of the mixin that does not call it trains without the method."""
    return InputError(
        f"expected {type(net).__name__}.train_step_single to return what super().train_step_single returned, where the "
        "method's loss is, but it did not; call it and add to its dict"
    )
