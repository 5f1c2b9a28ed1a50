"""Options that several commands share, alone or in bundles, and how their help is written."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import typer

from rcad.errors import InputError, finite, need, shown, whole
from rcad.train.place import Executor

HOW, WHERE = "How to train", "Where to train"
"""Panels of a command's help, each with a table of its own: one of all options leaves little room for sentences."""
Text = str | None
Check = Callable[[str, Any], None]
MOST_SEEDS = 10_000


def option(words: str, about: str, default: Any = None, *, check: Check | None = None, **more: Any) -> Any:
    """An option as the default of a command's parameter.

    Args:
        words: its spellings, and what it takes where it is no switch.
        default: its value where it is not used; ... if it is required.
        check: one of `rcad.errors`, called with the option's name and a value that is not None.
    """
    names = [word for word in words.split() if word.startswith("-")]

    def checked(value: Any) -> Any:
        if check is not None and value is not None:
            check(names[0], value)
        return value

    if check is not None:
        more["callback"] = checked
    return typer.Option(default, *names, metavar=" ".join(words.split()[len(names) :]) or None, help=about, **more)


def argument(name: str, about: str, default: Any = ...) -> Any:
    """An argument as its help shows it; required unless it has a default."""
    return typer.Argument(default, metavar=name, help=about)


def _check_device(option: str, name: str) -> None:
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", name):
        raise InputError(f"expected {option} to be one of auto, cpu, cuda, cuda:1, but got {name!r}")


RUNS = option("--runs DIR", "Folder of the runs.", Path("runs"))
STUDY_RUNS = option("--runs DIR", "Folder for its runs. Default: runs in --out. rcad compare keeps none for tables.")
DATA_DIR = option("--data-dir DIR", "Folder that holds the data sets.", envvar="RCAD_DATA")
CACHE_DIR = option("--cache-dir DIR", "Where decoded images are kept. Default: ~/.cache/rcad.", envvar="RCAD_CACHE")
_METHOD = 'E.g. rcad, "mixup + rcad", "rcad(alpha=1)" (see: rcad methods list), or your own: mymodule:my_method.'
METHOD, REQUIRED_METHOD = (option("--method METHOD", _METHOD, default) for default in (None, ...))
_SKIP_BAD = "Leave out unreadable images and, when training, rows without a target; count them."
SKIP_BAD = option("--skip-bad", _SKIP_BAD, False)
JSON = option("--json", "Print JSON, and nothing else, on stdout.", False)
JOIN = option(
    "--join N",
    "Train N seeds as one network on a GPU, which is faster; try 5 for long runs.",
    1,
    check=partial(whole, minimum=1),
    rich_help_panel=WHERE,
)
YES = option("--yes -y", "Remove them.", False)
FORCE = option("--force", "Replace a file that is there.", False)
QUIET = option("--quiet -q", "Print only the final line.", False)
REPAIR = option("--repair", "Rebuild damaged files; the old ones are kept as NAME.aside.", False)
DEVICE = option("--device auto|cpu|cuda", "Where to compute; cuda:1 is the second GPU.", "auto", check=_check_device)
TRACK = option("--track A,B,..", "Log to wandb, mlflow or tensorboard, e.g. --track wandb,mlflow.")
MINUTES = option(
    "--minutes N",
    "Stop after N minutes with everything saved; the same command continues.",
    check=partial(finite, above=0.0),
)


@dataclass(frozen=True)
class Source:
    """A bundle: which data."""

    data: Text = option(
        "--data NAME|FILE|DIR", "A name (rcad data list), a file, a folder, hf:OWNER/NAME or torchvision:NAME."
    )
    images: Text = option("--images DIR", "Instead of --data: the folder of images that --labels lists.")

    @property
    def name(self) -> str | None:
        """What --data or --images names, without "./" before and "/" behind it: the same data are the same run.

        The path "./digits" keeps its dot, since "digits" is the name of another data set.
        """
        from rcad.data.registry import READERS

        if self.data is not None and self.images is not None:
            raise InputError(f"expected --data or --images, but got both: {self.data} and {self.images}; leave one out")
        source = self.data if self.images is None else self.images
        if source is None:
            return None
        name, bracket, subset = source.partition("[")
        plain = name.rstrip("/") if name.strip("/") else name
        while plain.startswith("./"):
            plain = plain[2:].lstrip("/")
        return source if plain in READERS else f"{plain}{bracket}{subset}"

    @property
    def required(self) -> str:
        """The same; an InputError if neither option was used."""
        if (name := self.name) is None:
            raise InputError("expected --data, but it is missing; e.g. --data digits, my.csv or images/")
        return name


@dataclass(frozen=True)
class Reading:
    """A bundle: how the user's own data are read, and where data are found."""

    panel: ClassVar[str] = "How to read the data"
    target: Text = option("--target COLUMN", "The column of a table to predict.")
    task: Text = option("--task TASK", "classification or regression. Default: found from the target column.")
    size: int | None = option("--size N", "Resize images to this many pixels a side.")
    drop: Text = option("--drop A,B,..", "Columns of a table to ignore, e.g. id,name.")
    labels: Text = option("--labels FILE", "A table that lists the images and their labels (Kaggle's layout).")
    file_column: Text = option("--file-column COLUMN", "The column of --labels with file names. Default: found.")
    label_column: Text = option("--label-column COLUMN", "The column of --labels with classes. Default: found.")
    skip_bad: bool = SKIP_BAD
    data_dir: Path | None = DATA_DIR
    cache_dir: Path | None = CACHE_DIR

    @property
    def places(self) -> dict[str, Any]:
        return {"data_dir": self.data_dir, "cache_dir": self.cache_dir}

    @property
    def main(self) -> dict[str, Any]:
        """Target, task and size, as far as they were given."""
        return {key: value for key in ("target", "task", "size") if (value := getattr(self, key)) is not None}

    @property
    def own(self) -> dict[str, Any]:
        """The other fields of a config's data, as far as they were given."""
        dropped = [name.strip() for name in (self.drop or "").split(",") if name.strip()]
        keys = ("labels", "file_column", "label_column", "skip_bad")
        values = {"drop": dropped, **{key: getattr(self, key) for key in keys}}
        return {key: value for key, value in values.items() if value}

    @property
    def entry(self) -> dict[str, Any]:
        """The arguments of `rcad.tune` and `rcad.compare` for all of it."""
        return {**self.main, "data_options": self.own, **self.places}


@dataclass(frozen=True)
class Training:
    """A bundle: how a run is trained."""

    panel: ClassVar[str] = HOW
    recipe: Text = option(
        "--recipe NAME",
        "Named training settings: small, few-labels, paper, released, .. Default: chosen from the data.",
    )
    setting: list[str] | None = option(
        "--set KEY=VALUE", "Any field of the config, e.g. optim.clip=1.0; repeatable. See: rcad train --dry-run."
    )
    epochs: int | None = option("--epochs N", "Passes over the training data. Default: from the recipe.")
    model: Text = option("--model NAME", "E.g. resnet18, mlp, timm:NAME. Default: chosen from the data.")
    weights: Text = option(
        "--weights FILE|pretrained",
        "Finetune: start from a file of weights, or from those that timm has for its model.",
    )
    pretrained: bool = option("--pretrained", "The same as --weights pretrained.", False)
    batch_size: int | None = option("--batch-size N", "Examples in a training step. Default: from the recipe.")
    lr: float | None = option("--lr X", "Learning rate. Default: from the recipe.")

    @property
    def fields(self) -> dict[str, Any]:
        """By their field of the config, the options that `rcad.tune` and `rcad.compare` have no argument for."""
        if self.pretrained and self.weights not in (None, "pretrained"):
            raise InputError(f"expected --pretrained or --weights, but got both ({self.weights}); leave one out")
        weights = "pretrained" if self.pretrained else self.weights
        fields = {"model.weights": weights, "train.batch_size": self.batch_size, "optim.lr": self.lr}
        for setting in self.setting or ():
            if fields.get(key := setting.partition("=")[0].strip()) is not None:
                option_name = f"--{key.partition('.')[2].replace('_', '-')}"
                raise InputError(
                    f"expected {option_name} or --set {key}, but got both ({fields[key]} and {setting}); leave one out"
                )
        return fields

    @property
    def entry(self) -> dict[str, Any]:
        """The arguments of `rcad.tune` and `rcad.compare` for it."""
        settings = (*written(self.fields), *(self.setting or ()))
        return {"recipe": self.recipe, "epochs": self.epochs, "model": self.model, "settings": settings}


def written(fields: Mapping[str, Any]) -> list[str]:
    """Fields of a config as settings, "optim.lr=0.1", as far as they have a value."""
    return [f"{key}={value}" for key, value in fields.items() if value is not None]


@dataclass(frozen=True)
class Machines:
    """A bundle: the devices that train, of this machine or of a cluster."""

    panel: ClassVar[str] = WHERE
    device: str = DEVICE
    devices: Text = option(
        "--devices N|A,B,..", "Train on N GPUs, or on these, each with its own runs; without GPUs, in N processes."
    )
    executor: Text = option("--executor ray[://HOST:PORT]", "Train on a Ray cluster. Default: on this machine.")
    gpus_per_run: float | None = option(
        "--gpus-per-run X", "With Ray: the part of a GPU that a run gets, e.g. 0.1. Default: a whole one, shared."
    )
    cpus_per_run: float | None = option("--cpus-per-run X", "With Ray: CPU cores for a run. Default: 1.")
    store_mode: Text = option(
        "--store-mode shared|return", "With Ray: shared if all nodes see --runs (default); return sends the files back."
    )

    @property
    def places(self) -> dict[str, Any]:
        """The fields of a `Place` that say where runs are made."""
        keys = ("gpus_per_run", "cpus_per_run", "store_mode")
        of_ray = {key: value for key in keys if (value := getattr(self, key)) is not None}
        if self.executor is not None:
            if self.devices is not None:
                raise InputError(f"expected --devices or --executor, but got both: {self.devices} and {self.executor}")
            executor = Executor.parse(self.executor, **of_ray)
            need("ray", "ray", "ray")
            return {"device": self.device, "executor": executor}
        for key in of_ray:
            raise InputError(f"expected --executor ray with --{key.replace('_', '-')}, but it is missing")
        if self.devices is None:
            return {"device": self.device}
        from rcad.train.machine import pick_devices

        names = pick_devices(self.devices, self.device)
        return {"device": names[0], "devices": names}


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
    parts = [part.strip() for part in seeds.strip().removesuffix(",").split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts):
        forms = "a number of runs (3) or a list of seeds (3,5,7)"
        raise InputError(f"expected --seeds to be {forms}, but got {shown(seeds)}")
    numbers = list(map(int, parts))
    if "," not in seeds:
        if not 1 <= numbers[0] <= MOST_SEEDS:
            raise InputError(f"expected --seeds to be 1 to {MOST_SEEDS} runs, but got {seeds!r}")
        return list(range(numbers[0]))
    if len(set(numbers)) < len(numbers):
        raise InputError(f"expected each of --seeds once, but got {seeds!r}; a run with the same seed is the same run")
    return numbers


def bundled(function: Callable[..., None]) -> Callable[..., None]:
    """The function as Typer takes it: an option for each field of those of its parameters that are bundles."""
    types = get_type_hints(function)
    bundles: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in bundles:
            parameters.append(parameter.replace(annotation=types[name]))
            continue
        kinds = get_type_hints(bundles[name])
        for field in fields(bundles[name]):
            spec: Any = copy.copy(field.default)
            spec.rich_help_panel = getattr(bundles[name], "panel", spec.rich_help_panel)
            parameters.append(parameter.replace(name=field.name, default=spec, annotation=kinds[field.name]))

    def call(**values: Any) -> None:
        built = {name: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for name, kind in bundles.items()}
        function(**built, **values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a command, whose help is its docstring: a sentence for lists of commands, more on it, and examples.

    Examples are the last paragraph, each on a line of its own. A test runs them all.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        *paragraphs, examples = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        app.command(name, help=about(paragraphs, examples.splitlines()))(bundled(function))
        return function

    return add


def about(paragraphs: Iterable[str], examples: Iterable[str]) -> str:
    """The help of a command or a group."""
    lines = "\n".join(f"  {example}" for example in examples)
    return "\n\n".join([*(" ".join(paragraph.split()) for paragraph in paragraphs), f"\b\nExamples:\n{lines}"])


HELP = about(
    [
        "Train with RCAD (Reducing Confidence along Adversarial Directions) and every method it was compared with.",
        """Every command's --help has examples. Exit codes: 0 done; 1 a run diverged, a check failed or something
        unexpected; 2 the input needs fixing, or runs are left, and one line on stderr says what to do; 130 and 143
        interrupted.""",
    ],
    [
        "rcad demo",
        "rcad train --data digits --method rcad --seeds 3",
        "rcad compare --data my.csv --target price --seeds 3",
        "rcad runs list",
        "rcad doctor",
    ],
)


def _version(print_it: bool) -> None:
    if print_it:
        from rcad import __version__

        typer.echo(f"rcad {__version__}")
        raise typer.Exit


def plain_switches(command: Any, above: typer.Context | None = None) -> None:
    """Remove the <bool> that Typer's help prints after switches, for sub-commands too."""
    context = typer.Context(command, parent=above, **command.context_settings)
    for switch in (*command.params, command.get_help_option(context)):
        if getattr(switch, "is_flag", False) and switch.metavar is None:
            switch.metavar = ""
    for child in getattr(command, "commands", {}).values():
        plain_switches(child, context)


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None and (text := context.get_help()):  # rich prints it itself
        typer.echo(text)


def root(
    context: typer.Context,
    version: bool = option("--version", "Print the version and exit.", False, callback=_version, is_eager=True),
) -> None:
    help_without_command(context)


def group(text: str, *examples: str) -> typer.Typer:
    """A group of commands; called without a command, it prints its help."""
    return typer.Typer(invoke_without_command=True, callback=help_without_command, help=about([text], examples))
