"""From the options of `rcad train` to configs: file or recipe first, options over it, `--set` last; and seeds."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rcad.cli.options import written
from rcad.errors import InputError, one_line, shown
from rcad.loss.method_rows import (
    check_named,
    has_own,
    left_open,
    method_rows,
    method_text,
    named_method,
    rows_to_plain,
    spelled,
)
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure, override
from rcad.runs.files import read_text
from rcad.runs.plain import from_plain, from_toml
from rcad.runs.recipes import RECIPES

MOST_SEEDS = 10_000


def requested(
    file: Path | None,
    data: Mapping[str, Any],
    method: str | None,
    recipe: str | None,
    fields: Mapping[str, Any],
    settings: Sequence[str],
) -> RunConfig:
    """The config that the options of `rcad train` ask for; None where nothing was said.

    Args:
        file: of --config, whose fields the options replace.
        data: fields of the config's data by name.
        fields: options that stand for another field of the config, by its key.
        settings: of --set.
    """
    # Knowing the methods' parameters takes torch.
    of_method = any(setting.strip().startswith("method.") for setting in settings)
    defaults = import_module("rcad.loss.methods").method_defaults() if of_method else None
    if file is not None:
        return override(_from_file(file, data, method, recipe, fields), settings, methods=defaults)
    if method is None and (named := RECIPES.get(recipe or "")):
        method = named.method or None
    if method is None:
        raise InputError("expected --method, but it is missing; e.g. --method rcad")
    settings = [*written(fields), *settings]
    return configure(data, named_method(method), recipe=recipe, settings=settings, methods=defaults)


def _from_file(
    file: Path, data: Mapping[str, Any], method: str | None, recipe: str | None, fields: Mapping[str, Any]
) -> RunConfig:
    text = read_text(file)
    try:
        plain: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError):
        return from_toml(text, source=str(file))  # raises, with a line that says where
    if recipe is not None:
        plain["recipe"] = recipe
    if method is not None:
        rows = named_method(method)
        former = plain.get("method")
        if has_own(rows) and former and method_text(before := method_rows(former)) == method_text(rows):
            from rcad.loss.own import imported

            imported(before)  # raises if the code has changed since the file was written
        plain["method"] = rows_to_plain(rows if "recipe" in plain else spelled(rows))
    for key, value in {**{f"data.{key}": value for key, value in data.items()}, **fields}.items():
        title, _, name = key.partition(".")
        # A section that is no table is left for the reader of configs to refuse.
        if value is not None and isinstance(section := plain.setdefault(title, {}), dict):
            section[name] = value
    config = from_plain(plain, source=str(file))
    check_named(config.method)
    for words in left_open(config.method):
        print(one_line(f"note: {file} says nothing of {words}; write the one that is meant"), file=sys.stderr)
    return config


def parse_seeds(seed: int | None, seeds: str | None, settings: Sequence[str] | None = None) -> list[int]:
    """The seeds of `--seed 4`, `--seeds 3` (0, 1, 2) or `--seeds 3,5,7`; seed 0 where nothing was said.

    A `--set seed=` beside them would do nothing, and is refused.
    """
    for setting in settings or ():
        if setting.partition("=")[0].strip() == "seed":
            raise InputError(f"expected seeds from --seeds alone, but got --set {setting}; say e.g. --seeds 3,5")
    if seeds is None:
        return [0 if seed is None else seed]
    if seed is not None:
        raise InputError(f"expected --seed or --seeds, but got both ({seed} and {seeds!r}); leave one out")
    numbers = [_number(part, seeds) for part in seeds.strip().removesuffix(",").split(",")]
    if "," not in seeds:
        if not 1 <= numbers[0] <= MOST_SEEDS:
            raise InputError(f"expected --seeds to be 1 to {MOST_SEEDS} runs, but got {seeds!r}")
        return list(range(numbers[0]))
    if len(set(numbers)) < len(numbers):
        raise InputError(f"expected each of --seeds once, but got {seeds!r}; a run with the same seed is the same run")
    return numbers


def _number(text: str, whole: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise InputError(
            f"expected --seeds to be a number of runs (3) or a list of seeds (3,5,7), but got {shown(whole)}"
        )
    return int(digits)
