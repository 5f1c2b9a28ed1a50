"""`rcad train`: one run, or one per seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rcad.cli.options import (
    DATA,
    DEVICES,
    ENGINES,
    METHOD,
    RUNS,
    CacheFolder,
    DataFolder,
    Device,
    Drop,
    Epochs,
    FileColumn,
    Images,
    Join,
    Json,
    LabelColumn,
    Labels,
    Minutes,
    Model,
    Quiet,
    Recipe,
    RunsFolder,
    Settings,
    Size,
    SkipBad,
    Target,
    Task,
    about,
    check_minutes,
    data_name,
    own_data,
)

HELP = about(
    "Train a model and keep its record.",
    "rcad train --data digits --method rcad --epochs 3",
    "rcad train --data digits --method erm --seeds 3 --epochs 3",
    'rcad train --data my.csv --target price --method "rcad(alpha=0.3)"',
    'rcad train --data images/ --method "cutout + rcad" --epochs 2',
    "rcad train --data digits[:500] --method rcad --set train.ema=0.9 --dry-run",
    "rcad train --config run.toml --seed 4 --quiet",
    "rcad train --data digits --method rcad --epochs 2 --json",
    "rcad train --data cifar100[:2000] --method rcad --data-dir data",
    "rcad train --data digits --method rcad --seeds 4 --at-once 2 --epochs 2",
    more="""The same command run again says that it is done; an interrupted one goes on where it stopped. Data is a name
    (rcad data list), a file or a folder; cifar100[:2000] takes a subset. On a GPU several seeds
    train side by side. Seeds that another process is training are left to it. Exit code 1: a run diverged; 2: seeds
    were left, or the input is wrong.""",
)

if TYPE_CHECKING:
    from rcad.runs.config import RunConfig
    from rcad.train.progress import Tracker

Text = str | None


def train(
    data: Annotated[Text, DATA] = None,
    method: Annotated[Text, METHOD] = None,
    target: Target = None,
    task: Task = None,
    size: Size = None,
    drop: Drop = None,
    images: Images = None,
    labels: Labels = None,
    file_column: FileColumn = None,
    label_column: LabelColumn = None,
    skip_bad: SkipBad = False,
    recipe: Recipe = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE.toml", help="Data, method and all else from a file; options win."),
    ] = None,
    setting: Settings = None,
    epochs: Epochs = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="N", help="Examples in a step; else by the recipe.")
    ] = None,
    model: Model = None,
    lr: Annotated[
        float | None, typer.Option("--lr", metavar="X", help="The learning rate; else by the recipe.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="S", help="One run with this seed.")] = None,
    seeds: Annotated[
        Text,
        typer.Option("--seeds", metavar="N|A,B,..", help="N runs (seeds 0 to N-1), or these seeds. Default: seed 0."),
    ] = None,
    data_dir: DataFolder = None,
    cache_dir: CacheFolder = None,
    runs: RunsFolder = RUNS,
    device: Device = "auto",
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="auto|eager|..", help="On a GPU also graph (which auto takes there) and compile."
        ),
    ] = "auto",
    at_once: Annotated[
        int | None, typer.Option("--at-once", metavar="N", help="Runs that share a GPU; else as many as pay.")
    ] = None,
    join: Join = 1,
    minutes: Minutes = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard files, beside the record.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the config and its id; train nothing.")] = False,
) -> None:
    from rcad.cli.request import Request
    from rcad.cli.results import print_configs, show
    from rcad.cli.seeds import parse_seeds
    from rcad.runs.plain import config_id
    from rcad.train.place import Place
    from rcad.train.progress import shown
    from rcad.train.scheduler import schedule

    _check_machine(device, engine, at_once, join)
    check_minutes(minutes)
    request = Request(
        data=data_name(data, images),
        target=target,
        task=task,
        size=size,
        own=own_data(drop, labels, file_column, label_column, skip_bad),
        method=method,
        recipe=recipe,
        file=config,
        epochs=epochs,
        batch_size=batch_size,
        model=model,
        lr=lr,
        seeds=None if seed is None and seeds is None else parse_seeds(seed, seeds, setting),
        settings=setting or (),
    )
    configs = request.configs()
    if dry_run:
        print_configs(configs, as_json)
        return
    place = Place.of(runs, data_dir=data_dir, cache_dir=cache_dir, device=device, engine=engine, joined=join)

    def trackers(config: RunConfig) -> list[Tracker]:
        if not tensorboard:
            return []
        from rcad.cli.tensorboard import TensorBoard

        return [TensorBoard(place.store.folder(config_id(config)) / "tensorboard")]

    with shown(quiet=quiet, as_json=as_json) as progress:
        outcome = schedule(configs, place, progress, at_once=at_once, minutes=minutes, trackers=trackers)
    show(outcome, place.store, quiet=quiet, as_json=as_json)
    raise typer.Exit(outcome.exit_code)


def _check_machine(device: str, engine: str, at_once: int | None, join: int) -> None:
    """Where and how the runs are made, before anything heavy is imported."""
    from rcad.errors import InputError, one_of, whole

    one_of("--device", device, DEVICES)
    one_of("--engine", engine, ENGINES)
    if at_once is not None:
        whole("--at-once", at_once, minimum=1)
    whole("--join", join, minimum=1)
    if join > 1 and at_once == 1:
        raise InputError(f"expected several runs at once for --join {join}, but got --at-once 1; leave one of them out")
