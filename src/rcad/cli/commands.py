"""What a search says on the way and at its end: held-out numbers, and a command that a user can copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rcad.cli.request import Request
from rcad.loss.method_rows import label
from rcad.runs.config import KEYS, RunConfig


def train_line(request: Request, config: RunConfig, values: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """`rcad train ...` for the runs of `config`.

    Args:
        request: what the user asked for; its options are repeated.
        config: the chosen configuration, whose method has its numbers.
        values: what was chosen; those that are fields of a config are set.
    """
    words = ["rcad", "train", "--data", config.data.name, "--method", label(config.method)]
    words += _options(request)
    # The method's own settings are in its text already, and a chosen field comes after the user's.
    kept = [setting for setting in request.settings if not setting.strip().startswith("method")]
    for setting in [*kept, *(f"{key}={value}" for key, value in values.items() if key in KEYS)]:
        words += ["--set", setting]
    words += ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]
    return shlex.join(words)


def compare_line(request: Request, methods: str, seeds: Sequence[int], budget: int, *, controls: bool) -> str:
    """`rcad compare ...` with what was left to it written out."""
    words = ["rcad", "compare", "--data", str(request.data), "--methods", methods]
    words += _options(request)
    words += [word for setting in request.settings for word in ("--set", setting)]
    words += ["--seeds", str(len(seeds)) if list(seeds) == list(range(len(seeds))) else ",".join(map(str, seeds))]
    return shlex.join([*words, "--budget", str(budget), *([] if controls else ["--no-controls"])])


def _options(request: Request) -> list[str]:
    """The options that were given."""
    options = {
        "--target": request.target,
        "--task": request.task,
        "--size": request.size,
        "--recipe": request.recipe,
        "--epochs": request.epochs,
        "--batch-size": request.batch_size,
        "--model": request.model,
        "--lr": request.lr,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    return words + own_words(request.own)


def own_words(own: Mapping[str, Any]) -> list[str]:
    """The options for own data that gave these fields of a config."""
    words = []
    for key, value in own.items():
        words.append(f"--{key.replace('_', '-')}")
        if value is not True:
            words.append(value if isinstance(value, str) else ",".join(value))
    return words
