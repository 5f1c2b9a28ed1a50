"""Looking at a model from many points without leaving a trace, and remembering the best point of each example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from rcad.evaluate.attack_losses import AttackLoss
from rcad.loss.likelihoods import Categorical
from rcad.loss.model_calls import Forward, Model, as_module, preserved_rng
from rcad.loss.perturbations import reaching_gradient


@contextmanager
def watched(model: Model, device: torch.device) -> Iterator[None]:
    """Inside, the model is in eval mode; afterwards its mode and the random state are as before, come what may."""
    module = as_module(model)
    modes = [] if module is None else [(part, part.training) for part in module.modules()]
    if module is not None:
        module.eval()
    try:
        # Gradients are needed even where the caller has switched them off.
        with preserved_rng(device), torch.inference_mode(False):
            yield
    finally:
        for part, training in modes:
            part.training = training


class Look(NamedTuple):
    """One number per example at one point: the attack's loss, and whether the prediction is wrong."""

    loss: Tensor
    wrong: Tensor


class View:
    """A batch of labels and the model as an attack sees it."""

    def __init__(self, model: Model, y: Tensor, loss: AttackLoss) -> None:
        self._forward, self._y, self._loss = Forward(model), y, loss
        self._checked = False

    def look(self, point: Tensor) -> Look:
        with torch.no_grad():
            return self._seen(point)[1]

    def climb(self, point: Tensor) -> tuple[Look, Tensor]:
        """The same, and the gradient of the summed loss with respect to the point. Parameters receive none."""
        with torch.enable_grad():
            probe = point.detach().requires_grad_(True)
            loss, look = self._seen(probe)
            return look, reaching_gradient(loss.sum(), probe)

    def _seen(self, point: Tensor) -> tuple[Tensor, Look]:
        output = self._forward(point)
        if not self._checked:
            Categorical().check_shapes(output, self._y)
            Categorical().check_values(output, self._y)
            self._checked = True
        loss = self._loss(output, self._y)
        return loss, Look(loss.detach(), output.detach().argmax(1) != self._y)


class Best:
    """The best point of each example so far: a wrong prediction beats a right one, then the higher loss wins."""

    def __init__(self, point: Tensor, look: Look) -> None:
        self.point, self.loss, self.wrong = point, look.loss, look.wrong

    def offer(self, point: Tensor, look: Look) -> None:
        better = self._better(look, self.wrong, self.loss)
        self.point = torch.where(better.view(-1, *[1] * (point.ndim - 1)), point, self.point)
        self.loss = torch.where(better, look.loss, self.loss)
        self.wrong = self.wrong | look.wrong

    def offer_for(self, rows: Tensor, other: Best) -> None:
        """Takes over what another search found for some of the examples."""
        better = self._better(Look(other.loss, other.wrong), self.wrong[rows], self.loss[rows])
        places = (rows[better],)
        self.point = self.point.index_put(places, other.point[better])
        self.loss = self.loss.index_put(places, other.loss[better])
        self.wrong = self.wrong.index_put(places, other.wrong[better])

    @staticmethod
    def _better(look: Look, wrong: Tensor, loss: Tensor) -> Tensor:
        return (look.wrong & ~wrong) | ((look.wrong == wrong) & (look.loss > loss))
