"""`rcad train`: one run, or one per seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rcad.cli import options
from rcad.cli.options import HOW, WHERE, Machines, Reading, Source, Text, Training, option
from rcad.cli.screen import warn
from rcad.errors import InputError, one_of, whole

if TYPE_CHECKING:
    from rcad.runs.config import RunConfig
    from rcad.train.place import Place
    from rcad.train.scheduler import Outcome

ENGINES = ("auto", "eager", "graph", "compile")


def train(
    *,
    source: Source,
    method: Text = options.METHOD,
    reading: Reading,
    stream: bool = option(
        "--stream",
        "Read images from disk while training. Default: if they do not fit in memory.",
        False,
        rich_help_panel=Reading.panel,
    ),
    training: Training,
    config: Path | None = option(
        "--config FILE.toml",
        "Read data, method and settings from a file; options override it.",
        rich_help_panel=HOW,
    ),
    seed: int | None = option("--seed S", "One run with this seed."),
    seeds: Text = option("--seeds N|A,B,..", "N runs (seeds 0 to N-1), or these seeds. Default: seed 0."),
    runs: Path = options.RUNS,
    machines: Machines,
    engine: str = option(
        "--engine auto|eager|..",
        "How steps run: eager, or on a GPU graph (CUDA graphs, the default) or compile.",
        "auto",
        check=partial(one_of, choices=ENGINES),
        rich_help_panel=WHERE,
    ),
    at_once: int | None = option(
        "--at-once N",
        "Runs that share one GPU. Default: as many as make it faster.",
        check=partial(whole, minimum=1),
        rich_help_panel=WHERE,
    ),
    join: int = options.JOIN,
    sync_batch_norm: bool = option(
        "--sync-batch-norm/--no-sync-batch-norm",
        "BatchNorm over whole batches, not over each device's part.",
        True,
        rich_help_panel="One run on several devices",
    ),
    minutes: float | None = options.MINUTES,
    track: Text = options.TRACK,
    tensorboard: bool = option("--tensorboard", "The same as --track tensorboard.", False),
    repair: bool = options.REPAIR,
    as_json: bool = options.JSON,
    quiet: bool = options.QUIET,
    dry_run: bool = option("--dry-run", "Print the config and its id; train nothing.", False),
) -> None:
    """Train a model and save its record.

    Run the same command again to continue an interrupted run; a finished run is not repeated. --data takes a name (rcad
    data list), a file or a folder; cifar100[:2000] is a subset. --recipe few-labels is for a few thousand labelled
    images or fewer, and needs no --method. On a GPU several seeds train side by side; --devices 0,1 gives each of two
    GPUs its own seeds, or half of every batch of a single run. Seeds that another process is training are left to it.
    --executor ray://HOST:6379 makes the runs on a Ray cluster. --track logs every run, finished ones too, to wandb,
    mlflow or tensorboard. Exit code 1: a run diverged; 2: seeds were left to another process, or the input is wrong.

    rcad train --data digits --method rcad --epochs 3
    rcad train --data digits --method erm --seeds 3 --epochs 3
    rcad train --data my.csv --target price --method "rcad(alpha=0.3)"
    rcad train --data images/ --method "cutout + rcad" --epochs 2
    rcad train --data digits[:500] --method rcad --set train.ema=0.9 --dry-run
    rcad train --config run.toml --seed 4 --quiet
    rcad train --data digits --method rcad --epochs 2 --json
    rcad train --data cifar100[:2000] --method rcad --data-dir data
    rcad train --data cifar100[:2000] --recipe few-labels --data-dir data
    rcad train --data digits --method rcad --weights start.safetensors --dry-run
    rcad train --data hf:scikit-learn/iris --target Species --method rcad
    rcad train --data digits --method rcad --seeds 4 --at-once 2 --epochs 2
    rcad train --data digits --method rcad --seeds 4 --devices 2 --epochs 2
    rcad train --data digits --method rcad --devices 2 --device cpu --epochs 2
    rcad train --data digits --method rcad --epochs 3 --repair
    """
    from rcad.cli.request import parse_seeds, requested
    from rcad.cli.results import print_configs, show
    from rcad.train.place import Place, follows

    if join > 1 and at_once == 1:
        raise InputError(f"expected several runs at once for --join {join}, but got --at-once 1; leave one of them out")
    first = requested(
        config,
        {"name": source.required if config is None else source.name, **reading.main, **reading.own},
        method,
        training.recipe,
        {"train.epochs": training.epochs, "model.name": training.model, **training.fields},
        training.setting or (),
    )
    configs = [first]
    if seed is not None or seeds is not None:
        configs = [replace(first, seed=number) for number in parse_seeds(seed, seeds, training.setting)]
    if dry_run:
        from rcad.train.run import plan_of

        place = Place.of(runs, **reading.places, device=machines.device, stream=stream)
        print_configs(configs, as_json, None if as_json else plan_of(first, place) + _shares(machines, len(configs)))
        return
    where = {**reading.places, **machines.places, "stream": stream}
    if track or tensorboard:
        from rcad.train.trackers import parse_trackers

        where["track"] = parse_trackers([*(track or "").split(","), *(["tensorboard"] if tensorboard else [])])
    place = Place.of(runs, **where, engine=engine, joined=join, sync_batch_norm=sync_batch_norm)
    outcome = _run_all(configs, place, minutes=minutes, at_once=at_once, repair=repair, as_json=as_json, quiet=quiet)
    if not follows():
        show(outcome, place.store, quiet=quiet, as_json=as_json)
    raise typer.Exit(outcome.exit_code)


def _shares(machines: Machines, runs: int) -> str:
    """What --devices or --executor makes of the runs, for a dry run; or why that cannot be had on this machine."""
    try:
        devices = machines.places.get("devices", ())
    except InputError as error:
        return f"; this machine cannot begin it: {error}"
    if len(devices) < 2:
        return ""
    on = "processes" if devices[0] == "cpu" else "GPUs"
    return f"; {f'{runs} runs' if runs > 1 else 'every batch'} split among {len(devices)} {on}"


def _run_all(
    configs: Sequence[RunConfig],
    place: Place,
    *,
    minutes: float | None,
    at_once: int | None,
    repair: bool,
    as_json: bool,
    quiet: bool,
) -> Outcome:
    """Make every run, or one run on several devices: as one of their processes, or by starting them."""
    from rcad.runs.plain import config_id
    from rcad.train.place import follows, world
    from rcad.train.progress import show_progress
    from rcad.train.scheduler import canonical_config, schedule

    ranks = world()
    if ranks is not None and len(configs) > 1:
        raise InputError(
            f"expected one run under torchrun, but got {len(configs)}; without it, --devices gives each GPU its own"
        )
    several = len(configs) == 1 and ranks is None and len(place.devices) > 1
    by_id = {config_id(config): config for config in map(canonical_config, configs)}
    existing = [run for run in by_id if place.store.folder(run).is_dir()]
    if existing and not repair:
        from rcad.train.repair import refuse_damaged

        refuse_damaged(place.store, existing, warn)
    with show_progress(quiet=quiet or follows(), as_json=as_json) as progress:
        if existing and repair and not follows():
            from rcad.train.repair import repair as mend

            mend(place, existing, progress, configs=by_id)
        if ranks is not None:
            from rcad.train.cluster.ranks import as_rank

            return as_rank(configs[0], place, progress, minutes=minutes)
        if not several:
            return schedule(configs, place, progress, at_once=at_once, minutes=minutes)
    from rcad.train.cluster.ranks import launch

    return launch(configs[0], place, minutes=minutes, quiet=quiet, as_json=as_json)
