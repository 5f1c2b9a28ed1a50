"""Run configs of one shape as one stacked run: what `loop.Trainer` would give for each, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rcad.errors import InputError
from rcad.runs.config import ModelConfig, RunConfig, TrainConfig
from rcad.stacked.result import StackedResult
from rcad.stacked.task import StackedProblem
from rcad.stacked.train import Progress, train_stacked
from rcad.train.task import Problem, method_of

HIDDEN = (128,)
"""What `MLP` takes where a config names no hidden layers."""


def train_configs(
    configs: Sequence[RunConfig],
    problems: Sequence[Problem],
    *,
    report: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> StackedResult:
    """Trains one replica per config.

    Args:
        configs: may differ in seed, data, the numbers of the method, and lr, weight_decay and clip.
        problems: their data, as `problem.prepare` gives it.
        report, progress: see `train_stacked`.
    """
    if not configs or len(configs) != len(problems):
        raise InputError(f"expected one problem for each config, but got {len(configs)} and {len(problems)}")
    first = configs[0]
    for config in configs:
        refusal = why_not(config)
        if refusal is not None:
            raise InputError(refusal)
        if (config.train, config.model) != (first.train, first.model):
            raise InputError(f"expected one train and one model section for all, but got {first} and {config}")
    return train_stacked(
        StackedProblem.of(problems),
        [method_of(config, problem) for config, problem in zip(configs, problems, strict=True)],
        seeds=[config.seed for config in configs],
        optim=[config.optim for config in configs],
        epochs=first.train.epochs,
        batch_size=first.train.batch_size,
        hidden=HIDDEN if first.model.hidden is None else first.model.hidden,
        selection=first.train.selection,
        report=report,
        progress=progress,
    )


def why_not(config: RunConfig) -> str | None:
    """Why a config cannot be stacked, as a sentence; None if it can, as far as the config alone tells."""
    if config.model.name not in ("auto", "mlp"):
        return f"expected model.name 'mlp' in a stacked run, but got {config.model.name!r}"
    if replace(config.model, name="auto", hidden=None, dropout=config.model.dropout or None) != ModelConfig():
        return f"expected a perceptron without dropout and given weights in a stacked run, but got {config.model}"
    plain = TrainConfig(epochs=config.train.epochs, batch_size=config.train.batch_size)
    if replace(config.train, selection=plain.selection) != plain:
        return f"expected train to set epochs, batch_size and selection only in a stacked run, but got {config.train}"
    return None
