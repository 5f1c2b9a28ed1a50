"""The numbers that every run reports, batched and on the device, with one synchronisation at the end."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from rcad.loss.calibration import BINS, top_label_error
from rcad.loss.growth import as_unit_float
from rcad.loss.model_calls import logits_of
from rcad.loss.predictions import Labelled, label_scores, value_scores
from rcad.train.task import Problem

Progress = Callable[[int, int], None]


def measure(
    model: nn.Module,
    problem: Problem,
    x: Tensor,
    y: Tensor,
    *,
    batch_size: int = 1024,
    calibration: bool = False,
    progress: Progress = lambda done, total: None,
) -> dict[str, float]:
    """Metrics of a model on examples, in eval mode; the model's mode is restored.

    Classification: accuracy (percent), nll, brier. Regression, in the target's own unit: nll, rmse.

    Args:
        calibration: adds a classifier's ece, the expected calibration error as a fraction.
        progress: told after each batch how many examples of how many are behind.
    """
    return read(measuring(model, problem, x, y, batch_size=batch_size, calibration=calibration, progress=progress))


@torch.no_grad()
def measuring(
    model: nn.Module,
    problem: Problem,
    x: Tensor,
    y: Tensor,
    *,
    batch_size: int = 1024,
    calibration: bool = False,
    progress: Progress = lambda done, total: None,
) -> dict[str, Tensor]:
    """`measure`, launched but not waited for: `read` gives the numbers."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    outputs: list[Tensor] = []
    try:
        for part in torch.split(x, batch_size):
            outputs.append(logits_of(model(as_unit_float(part.to(problem.device)))).float())
            progress(min(len(outputs) * batch_size, len(x)), len(x))
    finally:
        for module, training in modes:
            module.training = training
    output, y = torch.cat(outputs), y.to(problem.device)
    found = _scores(output, y, problem.target_scale)
    if calibration and problem.target_scale is None:
        found["ece"] = top_label_error(Labelled.of(output, y), BINS, "width").float()
    return found


def read(values: dict[str, Tensor]) -> dict[str, float]:
    """Numbers of a device, fetched in one go."""
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))


def scores(output: Tensor, y: Tensor, target_scale: float | None) -> dict[str, float]:
    """The metrics of predictions; `target_scale` is the unit in which a regression was trained, None for classes."""
    return read(_scores(output, y, target_scale))


def _scores(output: Tensor, y: Tensor, target_scale: float | None) -> dict[str, Tensor]:
    if target_scale is not None:
        means = {name: rows.mean() for name, rows in value_scores(output, y).items()}
        # The density of y in its own unit is that of the scaled target divided by the scale.
        return {"nll": means["nll"] + math.log(target_scale), "rmse": means["square"].sqrt() * target_scale}
    means = {name: rows.mean() for name, rows in label_scores(output, y).items()}
    return {"accuracy": 100 * means["hit"], "nll": means["nll"], "brier": means["brier"]}
