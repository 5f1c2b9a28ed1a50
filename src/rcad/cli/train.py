"""`rcad train`: one run, or one per seed."""

from __future__ import annotations

import statistics
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from rcad.cli import options
from rcad.cli.options import HOW, WHERE, Machines, Reading, Source, Text, Training, option, parse_seeds, written
from rcad.cli.runs import metric_cells, run_object
from rcad.cli.screen import say, say_json, table, warn
from rcad.errors import InputError, MissingExtraError, command, one_line, one_of, whole
from rcad.loss import method_rows
from rcad.runs.config import RunConfig
from rcad.runs.files import read_text
from rcad.runs.plain import config_id, from_plain, from_toml, to_plain, to_toml
from rcad.runs.recipes import RECIPES
from rcad.runs.record import RunRecord, advised
from rcad.runs.store import WEIGHTS, Store
from rcad.runs.words import duration, leading, mean_and_spread, quicker, said, seconds, too_short
from rcad.train.place import ENGINES, Place, follows, world
from rcad.train.progress import SILENT, Calls, show_progress

if TYPE_CHECKING:
    from rcad.train.scheduler import Outcome

METRICS_SHOWN = 3
NO_METHOD = (
    "expected --method, but it is missing; --method rcad is RCAD with alpha measured on your data, --method erm is "
    "training without it; for all others: rcad methods list"
)


@dataclass(frozen=True)
class Pace:
    """A bundle: how the steps of runs are taken."""

    panel: ClassVar[str] = WHERE
    engine: str = option(
        "--engine auto|eager|..",
        "How steps run: eager, or on a GPU graph (CUDA graphs, the default) or compile.",
        "auto",
        check=partial(one_of, choices=ENGINES),
    )
    at_once: int | None = option(
        "--at-once N", "Runs that share one GPU. Default: as many as make it faster.", check=partial(whole, minimum=1)
    )
    join: int = options.JOIN
    sync_batch_norm: bool = option(
        "--sync-batch-norm/--no-sync-batch-norm", "One run on several devices: BatchNorm over whole batches.", True
    )

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a `Place` that they set."""
        if self.join > 1 and self.at_once == 1:
            raise InputError(f"expected several runs at once for --join {self.join}, but got --at-once 1")
        return {"engine": self.engine, "joined": self.join, "sync_batch_norm": self.sync_batch_norm}


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
    pace: Pace,
    minutes: float | None = options.MINUTES,
    track: Text = options.TRACK,
    tensorboard: bool = option("--tensorboard", "The same as --track tensorboard.", False),
    repair: bool = options.REPAIR,
    as_json: bool = options.JSON,
    quiet: bool = options.QUIET,
    dry_run: bool = option("--dry-run", "Check the data; print the config, its id and the time; train nothing.", False),
) -> None:
    """Train a model and save its record.

    Run the same command again to continue an interrupted run; a finished run is not repeated. --data takes a name (rcad
    data list), a file or a folder; cifar100[:2000] is a subset. --recipe few-labels is for a few thousand labelled
    images or fewer, and needs no --method. On a GPU several seeds train side by side; --devices 0,1 gives each of two
    GPUs its own seeds, or half of every batch of a single run. Seeds that another process is training are left to it.
    --executor ray://HOST:6379 trains on a Ray cluster. --track logs every run, finished ones too, to wandb, mlflow or
    tensorboard. Exit code 1: a run diverged; 2: runs are left (--minutes, another process), or the input is wrong.

    rcad train --data digits --method rcad --epochs 3
    rcad train --data digits --method erm --seeds 3 --epochs 3
    rcad train --data my.csv --target price --method "rcad(alpha=0.3)"
    rcad train --data images/ --method "cutout + rcad" --epochs 2
    rcad train --data digits[:500] --method rcad --set train.ema=0.9 --dry-run
    rcad train --config run.toml --seed 4 --quiet
    rcad train --data cifar100[:2000] --method rcad --data-dir data
    rcad train --data cifar100[:2000] --recipe few-labels --data-dir data
    rcad train --data hf:scikit-learn/iris --target Species --method rcad
    rcad train --data digits --method rcad --seeds 4 --devices 2 --epochs 2
    """
    data = {"name": source.required if config is None else source.name, **reading.main, **reading.own}
    first = _requested(config, data, method, training)
    configs = [first]
    if seed is not None or seeds is not None:
        configs = [replace(first, seed=number) for number in parse_seeds(seed, seeds, training.setting)]
    where = {**reading.places, **machines.places, **pace.fields, "stream": stream}
    if track or tensorboard:
        from rcad.train.trackers import parse_trackers

        where["track"] = parse_trackers([*(track or "").split(","), *(["tensorboard"] if tensorboard else [])])
    place = Place.of(runs, **where)
    if dry_run:
        _print_configs(configs, place, as_json)
        return
    outcome = _run_all(configs, place, minutes, pace.at_once, repair=repair, as_json=as_json, quiet=quiet)
    if not follows():
        _show(outcome, place.store, quiet=quiet, as_json=as_json)
    raise typer.Exit(outcome.exit_code)


def _requested(file: Path | None, data: Mapping[str, Any], method: str | None, training: Training) -> RunConfig:
    """The config that the options ask for: the file of --config or a recipe first, options and --set over it."""
    from rcad.runs.configure import configure, override

    settings = training.setting or []
    fields = {"train.epochs": training.epochs, "model.name": training.model, **training.fields}
    defaults = None
    if any(setting.strip().startswith("method.") for setting in settings):
        from rcad.loss.methods import method_defaults  # which takes torch

        defaults = method_defaults()
    if file is not None:
        return override(_from_file(file, data, method, training.recipe, fields), settings, methods=defaults)
    if method is None and (named := RECIPES.get(training.recipe or "")):
        method = named.method or None
    if method is None:
        raise InputError(NO_METHOD)
    settings = [*written(fields), *settings]
    rows = method_rows.named_method(method)
    return configure(data, rows, recipe=training.recipe, settings=settings, methods=defaults)


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
        rows = method_rows.named_method(method)
        if method_rows.has_own(rows) and plain.get("method"):
            before = method_rows.method_rows(plain["method"])
            if method_rows.method_text(before) == method_rows.method_text(rows):
                from rcad.loss.own import imported

                imported(before)  # raises if the code has changed since the file was written
        plain["method"] = method_rows.rows_to_plain(rows if "recipe" in plain else method_rows.spelled(rows))
    for key, value in {**{f"data.{key}": value for key, value in data.items()}, **fields}.items():
        title, _, name = key.partition(".")
        # A section that is no table is left for the reader of configs to refuse.
        if value is not None and isinstance(section := plain.setdefault(title, {}), dict):
            section[name] = value
    config = from_plain(plain, source=str(file))
    method_rows.check_named(config.method)
    for words in method_rows.left_open(config.method):
        print(one_line(f"note: {file} says nothing of {words}; write the one that is meant"), file=sys.stderr)
    return config


def _run_all(
    configs: Sequence[RunConfig],
    place: Place,
    minutes: float | None,
    at_once: int | None,
    *,
    repair: bool,
    as_json: bool,
    quiet: bool,
) -> Outcome:
    """Make every run, or one run on several devices: as one of their processes, or by starting them."""
    from rcad.train.repair import refuse_damaged
    from rcad.train.repair import repair as mend
    from rcad.train.scheduler import canonical_config, schedule

    ranks = world()
    if ranks is not None and len(configs) > 1:
        told = f"expected one run under torchrun, but got {len(configs)}"
        raise InputError(f"{told}; without it, --devices gives each GPU its own")
    several = len(configs) == 1 and ranks is None and len(place.devices) > 1
    by_id = {config_id(config): config for config in map(canonical_config, configs)}
    existing = [run for run in by_id if place.store.folder(run).is_dir()]
    if existing and not repair:
        refuse_damaged(place.store, existing, warn)
    with show_progress(quiet=quiet or follows(), as_json=as_json) as progress:
        if existing and repair and not follows():
            mend(place, existing, progress, configs=by_id)
        if ranks is not None:
            from rcad.train.cluster.ranks import as_rank

            return as_rank(configs[0], place, progress, minutes=minutes)
        if not several:
            return schedule(configs, place, progress, at_once=at_once, minutes=minutes)
    from rcad.train.cluster.ranks import launch

    return launch(configs[0], place, minutes=minutes, quiet=quiet, as_json=as_json)


def _print_configs(configs: Sequence[RunConfig], place: Place, as_json: bool) -> None:
    """Print the configs as TOML that `--config` reads, with id and plan in comments; raises if the run cannot begin.

    As JSON they are printed without a look at the data.
    """
    from rcad.train.run import plan_of
    from rcad.train.scheduler import canonical_config, check_data
    from rcad.train.task import with_numbers

    with_numbers(configs[0].method)
    configs = [canonical_config(config) for config in configs]
    if as_json:
        say_json([{"id": config_id(config), "config": to_plain(config)} for config in configs])
        return
    left = [config for config in configs if place.final_record(config) is None]
    refusal, plans = None, {config: "# done already\n" for config in configs if config not in left}
    try:
        check_data([config for config in configs if config not in left], place, SILENT)
        if left:  # the first stands for the others
            notes: list[str] = []
            words, total = plan_of(left[0], place, Calls(SILENT.overall, SILENT.detail, notes.append))
            shares = _shares(place.devices, len(left))
            plans[left[0]] = f"# {words}, about {duration(total)} without evaluation{shares}{quicker(words, total)}\n"
            plans[left[0]] += "".join(f"# {one_line(note)}\n" for note in notes)
    except (InputError, MissingExtraError) as error:
        refusal, plans = error, {}
    say("\n\n".join(f"# run {config_id(config)}\n{plans.get(config, '')}{_toml(config)}" for config in configs))
    if refusal is not None:
        raise refusal


def _shares(devices: Sequence[str], runs: int) -> str:
    """What --devices makes of the runs."""
    if len(devices) < 2:
        return ""
    on = "processes" if devices[0] == "cpu" else "GPUs"
    what, among = (f"{runs} runs", min(len(devices), runs)) if runs > 1 else ("every batch", len(devices))
    return f"; {what} split among {among} {on}"


def _toml(config: RunConfig) -> str:
    """The config as TOML; parameters left out of a method's row because they had a former default are comments."""
    head, *blocks = to_toml(config).rstrip().split("\n[[method]]\n")
    for place, (row, full) in enumerate(zip(config.method, method_rows.as_recorded(config.method), strict=True)):
        missing = [f"\n# {key} = {value!r}" for key, value in full[1] if key not in dict(row[1])]
        blocks[place] = blocks[place].rstrip("\n") + "".join(missing) + "\n" * (place + 1 < len(blocks))
    return "\n[[method]]\n".join([head, *blocks])


def _show(outcome: Outcome, store: Store, *, quiet: bool, as_json: bool) -> None:
    """Print the results of a grid; why it stopped early goes to stderr."""
    if as_json:
        say_json([run_object(record, store) for record in outcome.records])
    elif quiet:
        say(_final_line(outcome))
    elif outcome.records:
        say()
        _show_table(outcome.records, store)
    if words := outcome.words():
        warn(words)


def _show_table(records: Sequence[RunRecord], store: Store) -> None:
    """A row per run, a row of means over the finished ones, and the folder."""
    names = leading((name for record in records for name in record.metrics), METRICS_SHOWN)
    done = [record for record in records if record.status == "done"]
    status = ["status"] if len(done) < len(records) else []  # a column of "done" says nothing
    last: list[str] = []
    if len(done) > 1:
        took = duration(statistics.fmean(seconds(record) or 0.0 for record in done))
        last = ["mean", *_means(done, names), *("" for _ in status), took, ""]
    rows = []
    for record in records:
        ending = [*([record.status] if status else []), duration(seconds(record)), record.id]
        rows.append([str(record.config.seed), *metric_cells(record, names), *ending])
    table(["seed", *names, *status, "time", "run"], rows, last=last)
    spread = "mean ± standard deviation over seeds; " if last else ""
    several = len(records) > 1
    say(f"\n{spread}each in {store.path / '<run>'}" if several else f"\nin {store.where(records[0].id)}")
    if longer := advised([record.more_epochs for record in done]):
        say(f"\n{too_short(longer)}")
    saved = [folder for record in done if ((folder := store.where(record.id)) / WEIGHTS).exists()]
    if saved:
        which = " with one of them" if several else ""
        say(f"\nNext. Predict new examples{which}:\n  {command('rcad', 'predict', str(saved[0]))} --data NEW")


def _final_line(outcome: Outcome) -> str:
    """The grid in one line."""
    if len(outcome.records) == 1:
        record = outcome.records[0]
        already = record.id in outcome.already
        return said(record, already) + ("" if already else f"  run {record.id}")
    done = [record for record in outcome.records if record.status == "done"]
    names = leading((name for record in done for name in record.metrics), METRICS_SHOWN)
    means = [f"{name} {mean}" for name, mean in zip(names, _means(done, names), strict=True)]
    spread = ", mean ± standard deviation" if len(done) > 1 else ""
    return "  ".join([f"{len(done)} of {len(outcome.records)} runs done{spread}", *means])


def _means(records: Sequence[RunRecord], names: Sequence[str]) -> list[str]:
    return [mean_and_spread(name, [record.metrics.get(name) for record in records]) for name in names]
