"""Options that several commands share, alone or in bundles, and how their help is written."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

from rcad.errors import InputError, whole

RUNS = Path("runs")
HOW, WHERE = "How to train", "Where to train"
"""Panels of a command's help, each with a table of its own: one of all options leaves little room for sentences."""


def option(words: str, about: str, **more: Any) -> Any:
    """An option as its help shows it: its spellings, what it takes where it is no switch, and a sentence."""
    names = [word for word in words.split() if word.startswith("-")]
    return typer.Option(*names, metavar=" ".join(words.split()[len(names) :]) or None, help=about, **more)


def argument(name: str, about: str) -> Any:
    """An argument as its help shows it."""
    return typer.Argument(metavar=name, help=about)


def checked(name: str, check: Callable[..., None], *limits: Any, **more: Any) -> Callable[[Any], Any]:
    """A callback for an option: what was given must pass a check of `rcad.errors`."""

    def call(value: Any) -> Any:
        if value is not None:
            check(name, value, *limits, **more)
        return value

    return call


def _a_time(minutes: float | None) -> float | None:
    if minutes is not None and not 0 < minutes < float("inf"):
        raise InputError(f"expected --minutes to be a number above 0, but got {minutes:g}")
    return minutes


def _a_device(name: str) -> str:
    kind, colon, number = name.partition(":")
    if name not in ("auto", "cpu", "cuda") and not (kind == "cuda" and colon and number.isascii() and number.isdigit()):
        raise InputError(f"expected --device to be one of auto, cpu, cuda, cuda:1, but got {name!r}")
    return name


Text = str | None
RunsFolder = Annotated[Path, option("--runs DIR", "Folder of the runs.")]
DataFolder = Annotated[
    Path | None, option("--data-dir DIR", "Folder that holds the data sets.", envvar="RCAD_DATA", show_envvar=True)
]
_KEPT = "Where decoded images are kept. Default: ~/.cache/rcad."
CacheFolder = Annotated[Path | None, option("--cache-dir DIR", _KEPT, envvar="RCAD_CACHE", show_envvar=True)]
METHOD = option(
    "--method METHOD",
    'E.g. rcad, "mixup + rcad", "rcad(alpha=1)" (see: rcad methods list), or your own: mymodule:my_method.',
)
SkipBad = Annotated[
    bool, option("--skip-bad", "Leave out unreadable images and, when training, rows without a target; count them.")
]
Json = Annotated[bool, option("--json", "Print JSON, and nothing else, on stdout.")]
_FASTER = "Train N seeds as one network on a GPU, which is faster; try 5 for long runs."
Join = Annotated[int, option("--join N", _FASTER, callback=checked("--join", whole, minimum=1), rich_help_panel=WHERE)]
Quiet = Annotated[bool, option("--quiet -q", "Print only the final line.")]
Repair = Annotated[bool, option("--repair", "Make damaged files again; what they were stays beside as NAME.aside.")]
Device = Annotated[
    str, option("--device auto|cpu|cuda", "Where to compute; cuda:1 is the second GPU.", callback=_a_device)
]
Track = Annotated[Text, option("--track A,B,..", "Log to wandb, mlflow or tensorboard, e.g. --track wandb,mlflow.")]
Minutes = Annotated[
    float | None,
    option("--minutes N", "Stop after N minutes with everything saved; the same command continues.", callback=_a_time),
]


@dataclass(frozen=True)
class Source:
    """A bundle: which data."""

    data: Annotated[
        Text,
        option("--data NAME|FILE|DIR", "A name (rcad data list), a file, a folder, hf:OWNER/NAME or torchvision:NAME."),
    ] = None
    images: Annotated[Text, option("--images DIR", "Instead of --data: the folder of images that --labels lists.")] = (
        None
    )

    @property
    def name(self) -> str | None:
        """What --data or --images names, written as a run's config has it: without "./" before and "/" behind it.

        However a path is written, it is the same data, and so the same run. The path "./digits" keeps its dot, since
        "digits" is the name of another data set.
        """
        from rcad.data.registry import READERS

        if self.data is not None and self.images is not None:
            raise InputError(f"expected --data or --images, but got both: {self.data} and {self.images}; leave one out")
        given = self.data if self.images is None else self.images
        if given is None:
            return None
        name, bracket, subset = given.partition("[")
        plain = name.rstrip("/") if name.strip("/") else name
        while plain.startswith("./"):
            plain = plain[2:].lstrip("/")
        return given if plain in READERS else f"{plain}{bracket}{subset}"

    @property
    def required(self) -> str:
        """The same, where there is no other way to say it."""
        if (name := self.name) is None:
            raise InputError("expected --data, but it is missing; e.g. --data digits, my.csv or images/")
        return name


@dataclass(frozen=True)
class Reading:
    """A bundle: how data of one's own are read, and where they are found."""

    panel: ClassVar[str] = "How to read the data"
    target: Annotated[Text, option("--target COLUMN", "The column of a table to predict.")] = None
    task: Annotated[
        Text, option("--task TASK", "classification or regression. Default: found from the target column.")
    ] = None
    size: Annotated[int | None, option("--size N", "Resize images to this many pixels a side.")] = None
    drop: Annotated[Text, option("--drop A,B,..", "Columns of a table to ignore, e.g. id,name.")] = None
    labels: Annotated[
        Text, option("--labels FILE", "A table that lists the images and their labels (Kaggle's layout).")
    ] = None
    file_column: Annotated[
        Text, option("--file-column COLUMN", "The column of --labels with file names. Default: found.")
    ] = None
    label_column: Annotated[
        Text, option("--label-column COLUMN", "The column of --labels with classes. Default: found.")
    ] = None
    skip_bad: SkipBad = False
    data_dir: DataFolder = None
    cache_dir: CacheFolder = None

    @property
    def places(self) -> dict[str, Any]:
        return {"data_dir": self.data_dir, "cache_dir": self.cache_dir}

    @property
    def main(self) -> dict[str, Any]:
        """Target, task and size, as far as they were given."""
        every = {"target": self.target, "task": self.task, "size": self.size}
        return {key: value for key, value in every.items() if value is not None}

    @property
    def own(self) -> dict[str, Any]:
        """The other fields of a config's data, as far as they were given."""
        dropped = [name.strip() for name in (self.drop or "").split(",") if name.strip()]
        columns = {"file_column": self.file_column, "label_column": self.label_column}
        every = {"drop": dropped, "labels": self.labels, **columns, "skip_bad": self.skip_bad}
        return {key: value for key, value in every.items() if value}

    @property
    def entry(self) -> dict[str, Any]:
        """All of it, as `rcad.tune` and `rcad.compare` take it."""
        return {**self.main, "data_options": self.own, **self.places}


@dataclass(frozen=True)
class Training:
    """A bundle: how a run is trained."""

    panel: ClassVar[str] = HOW
    recipe: Annotated[
        Text,
        option(
            "--recipe NAME",
            "Named training settings: small, few-labels, paper, released, .. Default: chosen from the data.",
        ),
    ] = None
    setting: Annotated[
        list[str] | None,
        option(
            "--set KEY=VALUE", "Any field of the config, e.g. optim.clip=1.0; repeatable. See: rcad train --dry-run."
        ),
    ] = None
    epochs: Annotated[int | None, option("--epochs N", "Passes over the training data. Default: from the recipe.")] = (
        None
    )
    model: Annotated[Text, option("--model NAME", "E.g. resnet18, mlp, timm:NAME. Default: chosen from the data.")] = (
        None
    )
    weights: Annotated[
        Text,
        option(
            "--weights FILE|pretrained",
            "Finetune: start from a file of weights, or from those that timm has for its model.",
        ),
    ] = None
    pretrained: Annotated[bool, option("--pretrained", "The same as --weights pretrained.")] = False
    batch_size: Annotated[
        int | None, option("--batch-size N", "Examples in a training step. Default: from the recipe.")
    ] = None
    lr: Annotated[float | None, option("--lr X", "Learning rate. Default: from the recipe.")] = None

    @property
    def fields(self) -> dict[str, Any]:
        """Those that have no argument of their own in Python, by the field of the config."""
        if self.pretrained and self.weights not in (None, "pretrained"):
            raise InputError(f"expected --pretrained or --weights, but got both ({self.weights}); leave one out")
        weights = "pretrained" if self.pretrained else self.weights
        return {"model.weights": weights, "train.batch_size": self.batch_size, "optim.lr": self.lr}

    @property
    def entry(self) -> dict[str, Any]:
        """As `rcad.tune` and `rcad.compare` take it."""
        given = {"recipe": self.recipe, "epochs": self.epochs, "model": self.model}
        fields = [f"{key}={value}" for key, value in self.fields.items() if value is not None]
        return {**given, "settings": [*fields, *(self.setting or ())]}


@dataclass(frozen=True)
class Machines:
    """A bundle: which devices take part, and whose."""

    panel: ClassVar[str] = WHERE
    device: Device = "auto"
    devices: Annotated[
        Text,
        option(
            "--devices N|A,B,..", "Train on N GPUs, or on these, each with its own runs; without GPUs, in N processes."
        ),
    ] = None
    executor: Annotated[
        Text, option("--executor ray[://HOST:PORT]", "Make the runs on a Ray cluster; else on this machine.")
    ] = None
    gpus_per_run: Annotated[
        float | None, option("--gpus-per-run X", "With Ray: e.g. 0.1; else a GPU for those that share it.")
    ] = None
    cpus_per_run: Annotated[float | None, option("--cpus-per-run X", "With Ray: cores of a task. Default: 1.")] = None
    store_mode: Annotated[
        Text,
        option(
            "--store-mode shared|return", "With Ray: all nodes see --runs (default), or files return with the task."
        ),
    ] = None

    @property
    def places(self) -> dict[str, Any]:
        """The device and what else a `Place` says of where runs are made."""
        given = {key: getattr(self, key) for key in ("gpus_per_run", "cpus_per_run", "store_mode")}
        given = {key: value for key, value in given.items() if value is not None}
        if self.executor is not None:
            from rcad.train.place import Executor

            if self.devices is not None:
                raise InputError(f"expected --devices or --executor, but got both: {self.devices} and {self.executor}")
            return {"device": self.device, "executor": Executor.parse(self.executor, **given)}
        for key in given:
            raise InputError(f"expected --executor ray with --{key.replace('_', '-')}, but it is missing")
        if self.devices is None:
            return {"device": self.device}
        from rcad.train.machine import pick_devices

        names = pick_devices(self.devices, self.device)
        return {"device": names[0], "devices": names}


def bundled(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer takes it: an option for each field of those of its parameters that are bundles."""
    types = get_type_hints(command, include_extras=True)
    bundles: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}

    def options() -> Iterator[inspect.Parameter]:
        for name, one in inspect.signature(command).parameters.items():
            if name not in bundles:
                yield one.replace(annotation=types[name])
                continue
            inner = get_type_hints(bundles[name], include_extras=True)
            for field in fields(bundles[name]):
                (shared,), kind = inner[field.name].__metadata__, inner[field.name].__origin__
                told = copy.copy(shared)
                told.rich_help_panel = getattr(bundles[name], "panel", told.rich_help_panel)
                annotation = Annotated[kind, told]  # type: ignore[valid-type]
                yield inspect.Parameter(field.name, one.kind, default=field.default, annotation=annotation)

    def call(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in bundles.items()}
        command(**made, **given)

    flat = list(options())
    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in flat}
    return call


def about(text: str, *examples: str, more: str = "") -> str:
    """The help of a command: a sentence for lists of commands, more on it, and examples on lines of their own.

    A test runs every example.
    """
    paragraphs = [" ".join(paragraph.split()) for paragraph in (text, more) if paragraph]
    lines = "\n".join(f"  {example}" for example in examples)
    return "\n\n".join([*paragraphs, f"\b\nExamples:\n{lines}"])


HELP = about(
    "Train with RCAD (Reducing Confidence along Adversarial Directions) and every method it was compared with.",
    "rcad demo",
    "rcad train --data digits --method rcad --seeds 3",
    "rcad compare --data my.csv --target price --seeds 3",
    "rcad runs list",
    "rcad doctor",
    more="""Every command's --help has examples. Exit codes: 0 done; 1 a run diverged, a check failed or something
        unexpected; 2 the input needs fixing, and one line on stderr says how; 130 and 143 interrupted.""",
)


def _version(wanted: bool) -> None:
    if wanted:
        from rcad import __version__

        typer.echo(f"rcad {__version__}")
        raise typer.Exit


def root(
    context: typer.Context,
    version: Annotated[
        bool, option("--version", "Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    help_without_command(context)


def plain_switches(command: Any, above: typer.Context | None = None) -> None:
    """Take away the <bool> that Typer's help puts behind switches, as if they took a value; of sub-commands too."""
    context = typer.Context(command, parent=above, **command.context_settings)
    for option in (*command.params, command.get_help_option(context)):
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""
    for child in getattr(command, "commands", {}).values():
        plain_switches(child, context)


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:  # with rich's help it has been printed already
            typer.echo(text)


def group(text: str, *examples: str) -> typer.Typer:
    """Commands under one word, which alone prints their help."""
    return typer.Typer(invoke_without_command=True, callback=help_without_command, help=about(text, *examples))
