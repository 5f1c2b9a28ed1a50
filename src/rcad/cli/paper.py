"""`rcad paper`: the paper's tables and figures, made again and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rcad.cli import options
from rcad.cli.options import Machines, Text, argument, command, group, option, parse_seeds
from rcad.cli.screen import say, say_json, table, warn
from rcad.errors import InputError, expanded, one_of, whole
from rcad.paper.targets import TARGETS
from rcad.report.terminal import paragraph
from rcad.runs.words import plural
from rcad.train.progress import show_progress

if TYPE_CHECKING:
    from rcad.paper.run import Outcome
    from rcad.paper.suite import Order

app = group(
    "Reproduce the paper's tables and figures, with verdicts and the published numbers.",
    "rcad paper list",
    "rcad paper run T8 --scale smoke --out trial",
)
PROTOCOLS = {"one-view": "one view", "two-views": "two views", "tuned": "tuned"}
RESULTS = Path("results")


@dataclass(frozen=True)
class Suite:
    """A bundle: which runs of a table or figure, and where they and its results are."""

    scale: str = option(
        "--scale smoke|small|full",
        "smoke: seconds on tiny data; small: fewer epochs, seeds and images; full: as the paper.",
        "full",
        check=partial(one_of, choices=("smoke", "small", "full")),
    )
    seeds: Text = option(
        "--seeds N|A,B,..", "Seeds for each number of the table. Default: 3; at full scale as many as the paper."
    )
    protocol: str = option(
        "--protocol one-view|two-views|tuned",
        "one-view: as the text; two-views: as the program; tuned: equal tuning budgets (T1, T2, T4).",
        "one-view",
        check=partial(one_of, choices=PROTOCOLS),
    )
    precision: str = option(
        "--precision fp32|bf16",
        "Number format of training; bf16 is faster, for GPUs.",
        "fp32",
        check=partial(one_of, choices=("fp32", "bf16")),
    )
    only: list[str] | None = option("--only COLUMN", "Compute only this column or data set, e.g. n=500; repeatable.")
    rows: list[str] | None = option(
        "--rows ROW",
        'Train only this row, e.g. "RCAD + LS", or a method of your own, mymodule:my_method; repeatable.',
    )
    runs: Path | None = option("--runs DIR", "Folder of the runs. Default: OUT/NAME. Packs in OUT/images count too.")
    data_dir: Path | None = options.DATA_DIR
    cache_dir: Path | None = options.CACHE_DIR
    out: Path = option("--out DIR", "Folder of the results.", RESULTS)

    @property
    def data(self) -> Path | None:
        return None if self.data_dir is None else expanded(self.data_dir)

    def order(self, name: str, **more: Any) -> Order:
        """The order for `make_suite`: these options and more."""
        from rcad.paper.benchmarks import SEEDS
        from rcad.paper.suite import Order

        usual = TARGETS[name].seeds if self.scale == "full" else SEEDS[self.scale]  # type: ignore[index]
        seeds = parse_seeds(None, self.seeds or str(usual))
        only, rows = tuple(self.only or ()), tuple(self.rows or ())
        same = {key: getattr(self, key) for key in ("scale", "precision", "runs", "cache_dir", "out")}
        where = {**same, "data_dir": self.data, **more}
        return Order(name=name, views=PROTOCOLS[self.protocol], seeds=seeds, only=only, rows=rows, **where)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Effort:
    """A bundle: how the runs of a table are made, and with what."""

    workers: int | None = option(
        "--workers N", "Worker processes on the CPU, or runs at once on a GPU.", check=partial(whole, minimum=1)
    )
    join: int = options.JOIN
    model: Text = option("--model small_cnn", "Another network, for --protocol tuned.")
    candidates: int | None = option(
        "--candidates N",
        "For --protocol tuned: candidates of each method. Default: 8; more have the weight decay that ERM chose.",
        check=partial(whole, minimum=9),
    )
    weights: Path | None = option("--weights FILE", "Pretrained weights for T5. Default: timm downloads them.")
    minutes: float | None = options.MINUTES
    finished: bool = option("--finished", "Train nothing: make the table from the runs that are finished.", False)
    again: bool = option("--again", "Compute a study again (T7, T8, F5, F7).", False)

    def checked(self, target: str, suite: Suite) -> dict[str, Any]:
        """The fields of an order that they set."""
        _refuse(target, _used(self, "again"))
        if self.model is not None:
            one_of("--model", self.model, ("small_cnn",))
        for name in _used(self, "model", "candidates"):
            one_of(f"--protocol with {name}", suite.protocol, ("tuned",))
        same = {key: getattr(self, key) for key in ("workers", "minutes", "finished", "model", "candidates")}
        weights = None if self.weights is None else str(expanded(self.weights))
        return {**same, "joined": self.join, "weights": weights}


@command(app, "list")
def list_targets(as_json: bool = options.JSON) -> None:
    """List the paper's tables and figures, and what each needs.

    rcad paper list
    rcad paper list --json
    """
    rows = [
        [target.name, f"{target.folder}/{target.stem}", target.cost, ", ".join(target.data) or "none", target.about]
        for target in TARGETS.values()
    ]
    header = ["name", "files", "full scale", "needs data", "what"]
    if as_json:
        say_json([dict(zip(header, row, strict=True)) for row in rows])
        return
    table(header, rows, spare=["files", "needs data"])
    words = "Full scale: training runs on a GPU, or minutes on one CPU core. To try one in seconds:"
    say("\n".join(["", *paragraph(words), "  rcad paper run T4 --scale smoke --out trial"]))


@command(app, "run")
def run_target(
    *,
    name: str = argument("NAME", "T1 to T8 or F1 to F7; see: rcad paper list."),
    suite: Suite,
    machines: Machines,
    effort: Effort,
    track: Text = options.TRACK,
    dry_run: bool = option("--dry-run", "List what is done and what is left; run nothing.", False),
) -> None:
    """Reproduce a table or a figure: OUT/<name>/<name>.json and .md, some with a .png.

    Run the same command again to continue: finished runs are not repeated. Scale smoke takes seconds on tiny data;
    small has fewer epochs, seeds and images; full is the paper's protocol and needs a GPU for images. Missing data sets
    are named and left out. With --rows the table shows the other rows as far as their runs are there; no claim of the
    paper is about a method of your own.

    rcad paper run T4 --scale smoke --only n=500 --out trial
    rcad paper run F7
    rcad paper run T1 --scale smoke --protocol two-views --only CIFAR-10
    rcad paper run T4 --protocol tuned --only n=2,000 --candidates 16
    rcad paper run T4 --scale smoke --only n=500 --rows RCAD --out trial
    rcad paper run T4 --scale smoke --only n=500 --rows mymodule:my_method
    rcad paper run F2 --scale smoke --dry-run
    rcad paper run T4 --precision bf16 --finished --data-dir DATA
    """
    from rcad.train.trackers import parse_trackers

    target, trackers = _target(name), parse_trackers(track)
    if target != "T5":
        _refuse(target, _used(effort, "weights"))
    if not TARGETS[target].is_suite:
        _refuse(target, _used(suite, "seeds", "only", "runs", "rows", "protocol", "precision"))
        _refuse(target, _used(machines, "devices", "executor"))
        _refuse(target, _used(effort, "workers", "minutes", "candidates", "model", "finished", "join"))
        _run_study(target, suite, effort, trackers, dry_run)
        return
    order = suite.order(target, **effort.checked(target, suite), **machines.places, track=trackers)
    if dry_run:
        _show_plan(order)
        return
    from rcad.paper.run import make_suite
    from rcad.train.scheduler import Outcome as Unfinished

    with show_progress() as progress:
        done = make_suite(order, progress, warn)
    if isinstance(done, Unfinished):
        warn(done.words())
        raise typer.Exit(done.exit_code)
    _show_made(target, done, suite.scale)


def _run_study(target: str, suite: Suite, effort: Effort, trackers: Sequence[str], dry_run: bool) -> None:
    """Make what is computed as a whole, not run by run."""
    from rcad.paper.run import check_study, make_study

    scale: Any = suite.scale
    if dry_run:
        check_study(target, scale, suite.out, suite.data, again=effort.again)
        _show_records(suite.out, False, target)
        return
    with show_progress() as progress:
        where = (scale, suite.out, suite.data, progress.detail)
        made = make_study(target, *where, again=effort.again, track=trackers)
    _show_made(target, made, suite.scale)


def _show_made(target: str, made: Outcome, scale: str) -> None:
    """Print the files of a table or figure, and its verdicts in one line."""
    if made.reused:
        study = "the numbers were there already, with the same settings; --again computes them again"
        say(f"{target}: {'every run was there already' if TARGETS[target].is_suite else study}")
    for file in made.files:
        say(str(file))
    if made.note:
        warn(made.note)
    say(f"{target}: {made.line}" + ("" if scale == "full" else f" ({scale} scale: a trial, no evidence)"))


@command(app, "status")
def status(
    *,
    name: Text = argument("NAME", "T1 to T8 or F1 to F7. Default: all.", None),
    suite: Suite,
    as_json: bool = options.JSON,
) -> None:
    """Show progress: all tables and figures, or the cells of one.

    rcad paper status
    rcad paper status T4 --scale smoke
    """
    target = None if name is None else _target(name)
    if target is not None and TARGETS[target].is_suite:
        _show_cells(suite.order(target), as_json)
    else:
        _show_records(suite.out, as_json, target)


@command(app, "report")
def report(
    results: Path = option("--results DIR", "Folder of the results.", RESULTS),
    out: Path = option("--out DIR", "Folder of the report.", Path("report")),
) -> None:
    """Make one HTML report of all records in a folder.

    rcad paper report
    rcad paper report --out report
    """
    from rcad.paper.report import build

    if not any(file.suffix in (".json", ".gz") for file in results.rglob("*")):
        raise InputError(f"expected records of studies in {results}, but there are none; e.g. rcad paper run F5 first")
    with show_progress(answer_first=True) as progress:
        files = build(results, out, progress)
    for file in files:
        if file.parent == out:
            say(str(file))
    for folder in dict.fromkeys(file.parent for file in files if file.parent != out):
        say(f"{folder}: {plural(sum(file.parent == folder for file in files), 'file')}")


def _target(name: str) -> str:
    """The name of a table or figure as the paper writes it."""
    one_of("NAME", name.upper(), TARGETS)
    return name.upper()


def _used(bundle: Any, *names: str) -> dict[str, object]:
    """Those of a bundle's options that differ from their default."""
    values = {name: getattr(bundle, name) for name in names}
    return {f"--{name}": value for name, value in values.items() if value != getattr(type(bundle), name).default}


def _refuse(target: str, values: dict[str, object]) -> None:
    for words, value in values.items():
        raise InputError(f"expected no {words} for {target}, but got {value}; leave it out")


def _show_records(out: Path, as_json: bool, target: str | None = None) -> None:
    """A line for each target, or for one: its records, and what they found."""
    from rcad.paper.claims import by_verdict
    from rcad.paper.record import Study

    rows = []
    for name in [target] if target else TARGETS:
        folder, stem = out / TARGETS[name].folder, TARGETS[name].stem
        tuned = sorted(folder.glob(f"{stem}-tuned*.json"))
        paths = [folder / f"{stem}.json", folder / f"{stem}-two-views.json", *tuned]
        studies = {path: Study.read(path) for path in paths if path.is_file()}
        for path, study in studies.items():
            verdicts = [by_verdict(side) or "-" for side in study.tally.values()]
            rows.append([name, str(path), study.scale, study.protocol or "-", *verdicts])
        rows += [] if studies else [[name, *["-"] * 5]]
    header = ["name", "record", "scale", "protocol", "claims", "our checks"]
    if as_json:
        say_json([dict(zip(header, (None if cell == "-" else cell for cell in row), strict=True)) for row in rows])
        return
    table(header, rows, spare=["record"])


def _show_cells(order: Order, as_json: bool) -> None:
    """Runs done of those planned, cell by cell."""
    from rcad.paper.run import standing

    cells, missing = standing(order)
    if as_json:
        say_json([dict(zip(("row", "column", "done", "planned"), cell, strict=True)) for cell in cells])
        return
    by_place = {(row, column): f"{done}/{total}" for row, column, done, total in cells}
    rows, columns = dict.fromkeys(row for row, _ in by_place), dict.fromkeys(column for _, column in by_place)
    table(["", *rows], [[column, *(by_place.get((row, column), "") for row in rows)] for column in columns])
    for sentence in missing:
        say(sentence)
    done, total = sum(cell[2] for cell in cells), sum(cell[3] for cell in cells)
    say(f"{order.name}, {order.scale}, {order.views}: {done} of {total} runs of its cells are done")


def _show_plan(order: Order) -> None:
    """What `rcad paper run` would run: cells, seeds, and how many runs are done and left."""
    from rcad.paper.run import ahead

    _show_cells(order, False)
    say(f"seeds {', '.join(map(str, order.seeds))}")
    stages, searches = ahead(order), 0
    if order.views == "tuned":
        searches = 1 if order.candidates is None else 2
    for number, (planned, done) in enumerate(stages):
        total = len(planned.configs())
        say(f"{'the search' if number < searches else 'the table'}: {total} runs, {done} done, {total - done} left")
    if len(stages) <= searches:
        left = len({(run.row, run.column) for run in stages[0][0].runs}) * len(order.seeds)
        say(f"the table: {left} runs, of what the search will choose")
