"""From the options of `rcad train` to configs: file or recipe first, options over it, `--set` last."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError
from rcad.loss.method_rows import Defaults, left_open, parse_method, rows_to_plain, spelled
from rcad.runs.config import RunConfig
from rcad.runs.configure import override
from rcad.runs.files import read_text
from rcad.runs.plain import from_plain, from_toml


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for; None where nothing was said. `own` has further fields of the data, where given."""

    data: str | None = None
    target: str | None = None
    task: str | None = None
    size: int | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    method: str | None = None
    recipe: str | None = None
    file: Path | None = None
    epochs: int | None = None
    batch_size: int | None = None
    model: str | None = None
    lr: float | None = None
    seeds: Sequence[int] | None = None
    settings: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.data is not None:
            object.__setattr__(self, "data", plain_path(self.data))

    def configs(self) -> list[RunConfig]:
        """One config per seed; without seeds the file's, else seed 0."""
        first = self._from_file(self.file) if self.file is not None else self._from_recipe()
        return [first] if self.seeds is None else [replace(first, seed=seed) for seed in self.seeds]

    def _from_recipe(self) -> RunConfig:
        from rcad.runs.configure import configure

        for option, value in (("--data", self.data), ("--method", self.method)):
            if value is None:
                raise InputError(f"expected {option}, but it is missing; see --help")
        assert self.method is not None
        fields = [
            f"{title}.{key}={value}" for title, key, value in self._fields() if title != "data" and key != "epochs"
        ]
        return configure(
            self._data(),
            parse_method(self.method),
            recipe=self.recipe,
            epochs=self.epochs,
            seed=0,
            settings=[*fields, *self.settings],
            methods=self._defaults(),
        )

    def _from_file(self, file: Path) -> RunConfig:
        text = read_text(file)
        try:
            plain: dict[str, Any] = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError):
            return from_toml(text, source=str(file))  # raises, with a line that says where
        if self.recipe is not None:
            plain["recipe"] = self.recipe
        if self.method is not None:
            rows = parse_method(self.method)
            plain["method"] = rows_to_plain(rows if "recipe" in plain else spelled(rows))
        for title, key, value in self._fields():
            # A section that is no table is left for the reader of configs to refuse.
            if isinstance(section := plain.setdefault(title, {}), dict):
                section[key] = value
        config = from_plain(plain, source=str(file))
        for words in left_open(config.method):
            print(f"note: {file} says nothing of {words}; write the one that is meant", file=sys.stderr)
        return override(config, self.settings, methods=self._defaults())

    def _defaults(self) -> Defaults | None:
        """The methods' parameters, where a setting is about one of them: knowing them takes torch."""
        if not any(setting.strip().startswith("method.") for setting in self.settings):
            return None
        from rcad.train.run import method_defaults

        return method_defaults()

    def _data(self) -> dict[str, Any]:
        return {key: value for title, key, value in self._fields() if title == "data"}

    def _fields(self) -> list[tuple[str, str, Any]]:
        """The options that stand for one field of a config, where given."""
        every = [
            ("data", "name", self.data),
            ("data", "target", self.target),
            ("data", "task", self.task),
            ("data", "size", self.size),
            *(("data", key, value) for key, value in self.own.items()),
            ("train", "epochs", self.epochs),
            ("train", "batch_size", self.batch_size),
            ("model", "name", self.model),
            ("optim", "lr", self.lr),
        ]
        return [(title, key, value) for title, key, value in every if value is not None]


def plain_path(data: str) -> str:
    """A path without "./" before and "/" behind it: however it is written, it is the same data, and so the same run.

    The path "./digits" keeps its dot, since "digits" is the name of another data set.
    """
    from rcad.data.registry import READERS

    name, bracket, subset = data.partition("[")
    plain = name.rstrip("/") if name.strip("/") else name
    while plain.startswith("./"):
        plain = plain[2:].lstrip("/")
    return data if plain in READERS else f"{plain}{bracket}{subset}"
