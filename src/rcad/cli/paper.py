"""`rcad paper`: the paper's tables and figures, made again and judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rcad.cli.options import (
    CacheFolder,
    DataFolder,
    Join,
    Json,
    Machines,
    Minutes,
    Text,
    Track,
    about,
    argument,
    bundled,
    group,
    option,
)

if TYPE_CHECKING:
    from rcad.paper.record import Study
    from rcad.paper.run import Outcome as Made
    from rcad.paper.suite import Order

app = group(
    "Reproduce the paper's tables and figures, with verdicts and the published numbers.",
    "rcad paper list",
    "rcad paper run T8 --scale smoke --out trial",
)
SCALES = ("smoke", "small", "full")
PRECISIONS = ("fp32", "bf16")
PROTOCOLS = {"one-view": "one view", "two-views": "two views", "tuned": "tuned"}
MODELS = ("small_cnn",)

RESULTS = Path("results")


@dataclass(frozen=True)
class Suite:
    """A bundle: which runs of a table or figure, and where they and its results are."""

    scale: Annotated[
        str,
        option(
            "--scale smoke|small|full",
            "smoke: seconds on tiny data; small: fewer epochs, seeds and images; full: as the paper.",
        ),
    ] = "full"
    seeds: Annotated[
        Text,
        option(
            "--seeds N|A,B,..", "Seeds for each number of the table. Default: 3; at full scale as many as the paper."
        ),
    ] = None
    protocol: Annotated[
        str,
        option(
            "--protocol one-view|two-views|tuned",
            "one-view: as the text; two-views: as the program; tuned: equal tuning budgets (T1, T2, T4).",
        ),
    ] = "one-view"
    precision: Annotated[
        str, option("--precision fp32|bf16", "Number format of training; bf16 is faster, for GPUs.")
    ] = "fp32"
    only: Annotated[
        list[str] | None, option("--only COLUMN", "Compute only this column or data set, e.g. n=500; repeatable.")
    ] = None
    rows: Annotated[
        list[str] | None,
        option(
            "--rows ROW",
            'Train only this row, e.g. "RCAD + LS", or a method of your own, mymodule:my_method; repeatable.',
        ),
    ] = None
    runs: Annotated[
        Path | None, option("--runs DIR", "Folder of the runs. Default: OUT/NAME. Packs in OUT/images count too.")
    ] = None
    data_dir: DataFolder = None
    cache_dir: CacheFolder = None
    out: Annotated[Path, option("--out DIR", "Folder of the results.")] = RESULTS

    def target(self, name: str) -> str:
        """The name of the table or figure, with the options checked."""
        from rcad.errors import one_of
        from rcad.paper.targets import TARGETS

        one_of("NAME", name.upper(), tuple(TARGETS))
        one_of("--scale", self.scale, SCALES)
        one_of("--protocol", self.protocol, tuple(PROTOCOLS))
        one_of("--precision", self.precision, PRECISIONS)
        return name.upper()

    @property
    def data(self) -> Path | None:
        from rcad.errors import expanded

        return None if self.data_dir is None else expanded(self.data_dir)

    def order(self, name: str, **more: Any) -> Order:
        """What is to be made of a suite."""
        from rcad.cli.request import parse_seeds
        from rcad.paper.benchmarks import SEEDS
        from rcad.paper.suite import Order
        from rcad.paper.targets import TARGETS

        usual = TARGETS[name].seeds if self.scale == "full" else SEEDS[self.scale]  # type: ignore[index]
        return Order(
            name=name,
            scale=self.scale,  # type: ignore[arg-type]
            views=PROTOCOLS[self.protocol],  # type: ignore[arg-type]
            seeds=parse_seeds(None, self.seeds or str(usual)),
            out=self.out,
            only=tuple(self.only or ()),
            rows=tuple(self.rows or ()),
            runs=self.runs,
            data_dir=self.data,
            cache_dir=self.cache_dir,
            precision=self.precision,  # type: ignore[arg-type]
            **more,
        )


@app.command(
    "list",
    help=about(
        "List the paper's tables and figures, and what each needs.", "rcad paper list", "rcad paper list --json"
    ),
)
def list_targets(as_json: Json = False) -> None:
    from rcad.cli.screen import say, say_json, table
    from rcad.paper.targets import TARGETS
    from rcad.report.terminal import paragraph

    rows = [
        [one.name, f"{one.folder}/{one.stem}", one.cost, ", ".join(one.data) or "none", one.about]
        for one in TARGETS.values()
    ]
    header = ["name", "files", "full scale", "needs data", "what"]
    if as_json:
        say_json([dict(zip(header, row, strict=True)) for row in rows])
        return
    table(header, rows, spare=["files", "needs data"])
    told = "Full scale: training runs on a GPU, or minutes on one CPU core. To try one in seconds:"
    say("\n".join(["", *paragraph(told), "  rcad paper run T4 --scale smoke --out trial"]))


@app.command(
    "run",
    help=about(
        "Reproduce a table or a figure: OUT/<name>/<name>.json and .md, some with a .png.",
        "rcad paper run T4 --scale smoke --only n=500 --out trial",
        "rcad paper run T7 --scale smoke --out trial",
        "rcad paper run F7",
        "rcad paper run T1 --scale smoke --protocol two-views --only CIFAR-10",
        "rcad paper run T4 --protocol tuned --precision bf16 --only n=500",
        "rcad paper run T4 --precision bf16 --join 5 --only n=500 --data-dir DATA",
        "rcad paper run T4 --scale smoke --only n=500 --rows RCAD --out trial",
        "rcad paper run T4 --scale smoke --only n=500 --rows mymodule:my_method",
        "rcad paper run F2 --scale smoke --dry-run",
        more="""Run the same command again to continue: finished runs are not repeated. Scale smoke takes seconds on
        tiny data; small has fewer epochs, seeds and images; full is the paper's protocol and needs a GPU for images.
        Missing data sets are named and left out. With --rows the table shows the other rows as far as their runs are
        there; no claim of the paper is about a method of your own.""",
    ),
)
@bundled
def run_target(
    *,
    name: Annotated[str, argument("NAME", "T1 to T8 or F1 to F7; see: rcad paper list.")],
    suite: Suite,
    machines: Machines,
    workers: Annotated[
        int | None, option("--workers N", "Worker processes on the CPU, or runs at once on a GPU.", min=1)
    ] = None,
    join: Join = 1,
    model: Annotated[Text, option("--model small_cnn", "Another network, for --protocol tuned.")] = None,
    weights: Annotated[
        Path | None, option("--weights FILE", "Pretrained weights for T5. Default: timm downloads them.")
    ] = None,
    minutes: Minutes = None,
    again: Annotated[bool, option("--again", "Compute a study again (T7, T8, F5, F7).")] = False,
    track: Track = None,
    dry_run: Annotated[bool, option("--dry-run", "List what is done and what is left; run nothing.")] = False,
) -> None:
    from rcad.errors import expanded, one_of
    from rcad.paper.targets import TARGETS
    from rcad.train.trackers import parse_trackers

    wanted, trackers = suite.target(name), parse_trackers(track)
    if wanted != "T5":
        _no_options(wanted, {"--weights": weights})
    if not TARGETS[wanted].is_suite:
        given: dict[str, object] = {"--seeds": suite.seeds, "--only": suite.only, "--runs": suite.runs}
        given |= {"--workers": workers, "--devices": machines.devices, "--executor": machines.executor}
        given |= {
            "--rows": suite.rows,
            "--minutes": minutes,
            "--model": model,
            "--join": None if join == 1 else join,
        }
        given |= {"--protocol": None if suite.protocol == "one-view" else suite.protocol}
        given |= {"--precision": None if suite.precision == "fp32" else suite.precision}
        _no_options(wanted, given)
        if dry_run:
            _overview(suite.out, False, wanted)
        else:
            _run_study(wanted, suite, again, trackers)
        return
    _no_options(wanted, {"--again": again or None})
    if model is not None:
        one_of("--model", model, MODELS)
        one_of("--protocol with --model", suite.protocol, ("tuned",))
    started = None if weights is None else str(expanded(weights))
    how = {**machines.places, "workers": workers, "joined": join, "minutes": minutes, "track": trackers}
    order = suite.order(wanted, **how, model=model, weights=started)
    if dry_run:
        _what_is_left(order)
    else:
        _run_suite(order)


@app.command(
    "status",
    help=about(
        "Show progress: all tables and figures, or the cells of one.",
        "rcad paper status",
        "rcad paper status T4 --scale smoke",
    ),
)
@bundled
def status(
    *,
    name: Annotated[Text, argument("NAME", "T1 to T8 or F1 to F7. Default: all.")] = None,
    suite: Suite,
    as_json: Json = False,
) -> None:
    from rcad.paper.targets import TARGETS

    wanted = None if name is None else suite.target(name)
    if wanted is not None and TARGETS[wanted].is_suite:
        _cells(suite.order(wanted), as_json)
    else:
        _overview(suite.out, as_json, wanted)


@app.command(
    "report",
    help=about(
        "Make one HTML report of all records in a folder.", "rcad paper report", "rcad paper report --out report"
    ),
)
def report(
    results: Annotated[Path, option("--results DIR", "Folder of the results.")] = RESULTS,
    out: Annotated[Path, option("--out DIR", "Folder of the report.")] = Path("report"),
) -> None:
    from rcad.cli.screen import say
    from rcad.errors import InputError
    from rcad.paper.report import build
    from rcad.runs.words import plural
    from rcad.train.progress import shown

    if not any(file.suffix in (".json", ".gz") for file in results.rglob("*")):
        raise InputError(f"expected records of studies in {results}, but there are none; e.g. rcad paper run F5 first")
    with shown(answer_first=True) as progress:
        files = build(results, out, progress)
    for file in files:
        if file.parent == out:
            say(str(file))
    for folder in dict.fromkeys(file.parent for file in files if file.parent != out):
        say(f"{folder}: {plural(sum(file.parent == folder for file in files), 'file')}")


def _no_options(name: str, given: dict[str, object]) -> None:
    from rcad.errors import InputError

    for words, value in given.items():
        if value is not None:
            raise InputError(f"expected no {words} for {name}, but got {value}; leave it out")


def _run_suite(order: Order) -> None:
    from rcad.cli.screen import warn
    from rcad.paper.run import make_suite
    from rcad.train.progress import shown
    from rcad.train.scheduler import Outcome

    with shown() as progress:
        outcome = make_suite(order, progress, warn)
    if isinstance(outcome, Outcome):
        warn(outcome.words())
        raise typer.Exit(outcome.exit_code)
    _say(order.name, order.scale, outcome, "every run was there already")


def _run_study(name: str, suite: Suite, again: bool, track: tuple[str, ...]) -> None:
    from rcad.paper.run import make_study
    from rcad.train.progress import shown

    with shown() as progress:
        told = progress.detail
        outcome = make_study(name, suite.scale, suite.out, suite.data, told, again=again, track=track)  # type: ignore[arg-type]
    again_words = "the numbers were there already, with the same settings; --again computes them again"
    _say(name, suite.scale, outcome, again_words)


def _say(name: str, scale: str, made: Made, reused: str) -> None:
    from rcad.cli.screen import say, warn

    if made.reused:
        say(f"{name}: {reused}")
    for file in made.files:
        say(str(file))
    if made.note:
        warn(made.note)
    say(f"{name}: {made.line}" + ("" if scale == "full" else f" ({scale} scale: a trial, no evidence)"))


def _overview(out: Path, as_json: bool, wanted: str | None = None) -> None:
    """A line for each target, or for one: its records, and what they found."""
    from rcad.cli.screen import say_json, table
    from rcad.paper.targets import TARGETS

    rows = [row for name in ([wanted] if wanted else TARGETS) for row in _records(name, out)]
    header = ["name", "record", "scale", "protocol", "claims", "our checks"]
    if as_json:
        say_json([dict(zip(header, (None if cell == "-" else cell for cell in row), strict=True)) for row in rows])
        return
    table(header, rows, spare=["record"])


def _cells(order: Order, as_json: bool) -> None:
    """Runs done of those planned, cell by cell."""
    from rcad.cli.screen import say, say_json, table
    from rcad.paper.run import standing

    found, missing = standing(order)
    if as_json:
        header = ["row", "column", "done", "planned"]
        say_json([dict(zip(header, one, strict=True)) for one in found])
        return
    rows, columns = list(dict.fromkeys(one[0] for one in found)), list(dict.fromkeys(one[1] for one in found))
    by = {(row, column): f"{done}/{total}" for row, column, done, total in found}
    table(["", *rows], [[column, *(by.get((row, column), "") for row in rows)] for column in columns])
    for sentence in missing:
        say(sentence)
    done, total = sum(one[2] for one in found), sum(one[3] for one in found)
    say(f"{order.name}, {order.scale}, {order.views}: {done} of {total} runs of its cells are done")


def _what_is_left(order: Order) -> None:
    """What `rcad paper run` would run: cells, seeds, and how many runs are done and left."""
    from rcad.cli.screen import say
    from rcad.paper.run import ahead

    _cells(order, False)
    say(f"seeds {', '.join(map(str, order.seeds))}")
    stages = ahead(order)
    for number, (planned, done) in enumerate(stages):
        total = len(planned.configs())
        what = "the search" if order.views == "tuned" and number == 0 else "the table"
        say(f"{what}: {total} runs, {done} done, {total - done} left")
    if order.views == "tuned" and len(stages) == 1:
        left = len({(one.row, one.column) for one in stages[0][0].runs}) * len(order.seeds)
        say(f"the table: {left} runs, of what the search will choose")


def _records(name: str, out: Path) -> list[list[str]]:
    from rcad.paper.record import Study
    from rcad.paper.targets import TARGETS

    target = TARGETS[name]
    folder = out / target.folder
    found = [
        folder / f"{target.stem}.json",
        folder / f"{target.stem}-two-views.json",
        *sorted(folder.glob(f"{target.stem}-tuned*.json")),
    ]
    rows = [_row(name, path, Study.read(path)) for path in found if path.is_file()]
    return rows or [[name, "-", "-", "-", "-", "-"]]


def _row(name: str, path: Path, study: Study) -> list[str]:
    from rcad.paper.claims import by_verdict

    return [name, str(path), study.scale, study.protocol or "-", *(by_verdict(side) or "-" for side in study.tally)]
