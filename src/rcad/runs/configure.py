"""From a few words to a whole config: which protocol suits the data, and what the user changed. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rcad.data.splits import parse_spec
from rcad.errors import one_of
from rcad.runs.config import RunConfig
from rcad.runs.overrides import override
from rcad.runs.recipes import RECIPES

SUBSET_2K, SUBSET_10K = 2_000, 10_000
"""Up to these sizes the paper's batches are smaller."""
BENCHMARKS = {"cifar10": "paper", "cifar100": "paper", "tiny-imagenet": "paper", "svhn": "paper-svhn"}


def default_recipe(data: str) -> str:
    """The protocol that is used where none is named: the paper's for its data sets, "small" for all others."""
    name, count = parse_spec(data)
    recipe = BENCHMARKS.get(name, "small")
    if recipe == "paper" and count is not None and count <= SUBSET_10K:
        return "paper-2k" if count <= SUBSET_2K else "paper-10k"
    return recipe


def configure(
    data: str | Mapping[str, Any],
    method: Any,
    *,
    recipe: str | None = None,
    epochs: int | None = None,
    seed: int = 0,
    settings: Sequence[str] = (),
    methods: Mapping[str, Mapping[str, Any]] | None = None,
) -> RunConfig:
    """The config of a run.

    Args:
        data: a name such as "cifar100[:2000]", or fields of DataConfig.
        method: rows of (name, parameters).
        recipe: a key of RECIPES; by default the one that suits the data.
        epochs: instead of the recipe's.
        settings: "train.batch_size=64" and the like, applied last.
        methods: the parameters of every method and their defaults, for settings such as "method.alpha=1".
    """
    name = data if isinstance(data, str) else str(data.get("name", ""))
    recipe = default_recipe(name) if recipe is None else recipe
    one_of("recipe", recipe, RECIPES)
    config = RECIPES[recipe].config(data, method, seed)
    if epochs is not None:
        config = replace(config, train=replace(config.train, epochs=epochs))
    return override(config, settings, methods=methods)
