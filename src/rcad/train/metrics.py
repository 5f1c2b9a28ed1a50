"""The numbers that every run reports, batched and on the device, with one synchronisation at the end."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rcad.growth import as_unit_float
from rcad.likelihoods import Categorical, Gaussian
from rcad.passes import logits_of
from rcad.train.problem import Problem


@torch.no_grad()
def measure(model: nn.Module, problem: Problem, x: Tensor, y: Tensor, *, batch_size: int = 1024) -> dict[str, float]:
    """Metrics of a model on examples, in eval mode; the model's mode is restored.

    Classification: accuracy (percent), nll, brier. Regression, in the target's own unit: nll, rmse.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        outputs = [
            logits_of(model(as_unit_float(part.to(problem.device)))).float() for part in torch.split(x, batch_size)
        ]
    finally:
        for module, training in modes:
            module.training = training
    return scores(torch.cat(outputs), y.to(problem.device), problem.target_scale)


def scores(output: Tensor, y: Tensor, target_scale: float | None) -> dict[str, float]:
    """The metrics of predictions; `target_scale` is the unit in which a regression was trained, None for classes."""
    if target_scale is not None:
        # The density of y in its own unit is that of the scaled target divided by the scale.
        nll = Gaussian().nll(output, y).double().mean() + math.log(target_scale)
        rmse = (output[:, 0] - y).double().square().mean().sqrt() * target_scale
        values = {"nll": nll, "rmse": rmse}
    else:
        p = output.double().softmax(1)
        truth = nn.functional.one_hot(y, output.shape[1])
        values = {
            "accuracy": 100 * (output.argmax(1) == y).double().mean(),
            "nll": Categorical().nll(output.double(), y).mean(),
            "brier": (p - truth).square().sum(1).mean(),
        }
    numbers = torch.stack(list(values.values())).tolist()
    return dict(zip(values, numbers, strict=True))
