"""The data of a search, looked at before anything is trained."""

from __future__ import annotations

from pathlib import Path

import torch

from rcad.loss.suggest_alpha import suggest_alpha
from rcad.runs.config import RunConfig
from rcad.train.task import Problem, prepare, read


def opened(config: RunConfig, data_dir: Path | None, cache_dir: Path | None) -> Problem:
    """The config's examples, on the CPU."""
    return prepare(config, read(config.data, data_dir, cache_dir), torch.device("cpu"))


def measured(problem: Problem) -> float | None:
    """Half the median distance between classes among the training examples; None for real targets."""
    if not problem.classes:
        return None
    return suggest_alpha(*problem.train, generator=torch.Generator(problem.device).manual_seed(0))
