"""`rcad compare`: does it help on MY data? `rcad tune`: a method's numbers by the held-out split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from rcad.cli import options
from rcad.cli.options import Machines, Reading, Source, Text, Training, option, parse_seeds
from rcad.cli.screen import say, say_json, show_parts, table, warn
from rcad.runs.words import duration, plural, quicker
from rcad.train.progress import show_progress

METRIC = option("--metric METRIC", "The metric that decides: nll (default), accuracy, brier or rmse.")
_DRY_RUN = "Check the data; print what would be trained, and the time; train nothing."
DRY_RUN = option("--dry-run", _DRY_RUN, False)


def compare(
    *,
    source: Source,
    methods: Text = option(
        "--methods A,B,..",
        "Default: erm, label_smoothing, rcad; for regression erm, rcad. Your own: mymodule:my_method.",
    ),
    question: Text = option(
        "--question METHOD", "The method that is asked about first. Default: rcad, or the first of --methods."
    ),
    reading: Reading,
    metric: Text = METRIC,
    seeds: Text = option("--seeds N|A,B,..", "N splits (seeds 0 to N-1), or these. Default: 10."),
    budget: int | None = option(
        "--budget N", "Configurations that each method tries. Default: 8; on images 1, which means no tuning."
    ),
    controls: bool = option("--controls/--no-controls", "Include RCAD's two controls.", True),
    training: Training,
    out: Path = option("--out DIR", "Folder of the report.", Path("rcad-compare")),
    runs: Path | None = options.STUDY_RUNS,
    machines: Machines,
    track: Text = options.TRACK,
    as_json: bool = options.JSON,
    quiet: bool = options.QUIET,
    dry_run: bool = DRY_RUN,
) -> None:
    """Compare methods on your own data: equal tuning budgets, several splits, a statistical test, a report.

    The first line answers: is RCAD, or the method of --question, better than ERM by --metric? Each seed is another
    split of the data. ERM is always among the methods; with RCAD come its two controls: a random direction, and no
    step. The report is OUT/index.html, compare.md and compare.json. It names a winner only if the statistical test
    does. Run the same command again to continue or to add methods: nothing is trained twice. Exit code 1: a run that
    was tested diverged.

    rcad compare --data my.csv --target colour --epochs 3 --budget 2
    rcad compare --data diabetes --methods rcad --seeds 4 --out diabetes
    rcad compare --data my.csv --target price --methods "rcad(alpha=1), me_ada"
    rcad compare --data digits[:60] --question mymodule:my_method --seeds 3
    rcad compare --data my.csv --target colour --dry-run
    """
    numbers = parse_seeds(None, seeds or "10", training.setting)
    from rcad.report.terminal import part_lines
    from rcad.study.compare import Work
    from rcad.study.compare_page import UNTRAINED
    from rcad.study.outputs import workplace
    from rcad.study.study import Setup

    setup = Setup(source.required, own=reading.own, **reading.main, **training.entry)
    with (
        workplace(out, runs, track=track, **reading.places, **machines.places) as (folder, place),
        show_progress(quiet=quiet or dry_run, as_json=as_json, answer_first=True) as progress,
    ):
        work = Work(setup, methods, question, metric, numbers, budget, controls, folder, place)
        if dry_run:
            plan = work.plan()
            say_json(plan) if as_json else _show_comparison(plan, work.omissions)
            return
        comparison = work.go(progress)
    if as_json:
        say_json({**comparison.record, "files": [str(file) for file in comparison.files]})
    elif quiet:
        verdict, *more = comparison.record["sentences"]
        say("\n".join([verdict, *(sentence for sentence in more if sentence.startswith(UNTRAINED))]))
    else:
        first, _, differences, *_ = comparison.document.sections
        say("\n".join(part_lines(comparison.verdict)))
        show_parts([*first.parts[:2], *differences.tables])
        say("\n".join(["", *map(str, comparison.files)]))
    raise typer.Exit(int(comparison.diverged > 0))


def _show_comparison(plan: Mapping[str, Any], omissions: Sequence[str]) -> None:
    splits = f" on each of {plural(len(plan['seeds']), 'split')} (seeds {', '.join(map(str, plan['seeds']))})"
    question = f"question: is {plan['question']['method']} better than ERM by {plan['metric']}?"
    rows = []
    for method in plan["methods"]:
        tuned = [words.partition("=")[0] for words in method["space"]]
        rows.append([method["name"], method["role"], ", ".join(tuned) or "-", str(method["runs"]), str(method["left"])])
    counted = f"{plural(plan['budget'], 'candidate')} on each split"
    _show_plan(plan, [splits, *omissions, question], [["method", "role", "tuned", "runs", "left"], *rows], counted)


def _show_search(plan: Mapping[str, Any], omissions: Sequence[str]) -> None:
    judged = f"judged by the validation split's {plan['metric']}; the test split is not read"
    header, rows = list(plan["trials"][0]), [list(map(str, values.values())) for values in plan["trials"]]
    rows += [["..."] * len(header)] * (plan["planned"] > len(rows))
    numbered = [[str(number), *row] for number, row in enumerate(rows, 1)]
    counted = f"{plural(plan['planned'], 'trial')} on {plural(len(plan['seeds']), 'seed')}"
    _show_plan(plan, ["", *omissions, judged], [["trial", *header], *numbered], counted)


def _show_plan(plan: Mapping[str, Any], words: Sequence[str], rows: Sequence[Sequence[str]], counted: str) -> None:
    """Print what a study would train: its data and its question, its methods or trials, the runs that are left."""
    from rcad.report.terminal import part_lines

    sizes = ", ".join(f"{count:,} {name}" for name, count in plan["sizes"].items())
    first, *others = words
    text = "\n".join([f"{plan['data']}: {sizes} examples{first}", *others, f"one run: {plan['run']}"])
    say("\n".join([*part_lines(text), ""]))
    table(rows[0], rows[1:])
    faster = "; they train side by side, which is faster" if plan.get("side_by_side") else ""
    faster += quicker(plan["run"], plan["seconds"])
    time = f", about {duration(plan['seconds'])} one after the other, without evaluation{faster}"
    show_parts([f"{counted}, {plural(plan['left'], 'run')} left{time if plan['left'] else ''}"])


def tune(
    *,
    method: str = options.REQUIRED_METHOD,
    source: Source,
    budget: int = option("--budget N", "Number of configurations to try.", 20),
    space: Text = option("--space SPACE", "Hyperparameters to search. Default: the method's own ranges."),
    search: str = option("--search random|grid|optuna", "How to choose configurations.", "random"),
    reading: Reading,
    metric: Text = METRIC,
    training: Training,
    seeds: Text = option("--seeds N|A,B,..", "Average each trial over these seeds. Default: seed 0."),
    out: Path = option("--out DIR", "Folder of the record and the page.", Path("rcad-tune")),
    runs: Path | None = options.STUDY_RUNS,
    machines: Machines,
    track: Text = options.TRACK,
    as_json: bool = options.JSON,
    quiet: bool = options.QUIET,
    dry_run: bool = DRY_RUN,
) -> None:
    """Tune a method's hyperparameters on the validation split; the test split is never read.

    The budget counts trials; the first one has the method's defaults, as rcad train does, but in a grid, which goes
    from end to end. Each trial is trained on every seed. Run the same command again to continue, or with a larger
    budget to add trials. --space is key=log(A, B), uniform(A, B), int(A, B), choice(X, Y) or auto(A, B), where auto
    multiplies what rcad suggest-alpha measures; a key is a parameter of the method or a setting such as optim.lr.

    rcad tune --data diabetes --method rcad --budget 4 --epochs 2
    rcad tune --data diabetes --method rcad --space "lam=log(0.1, 1)" --epochs 2
    rcad tune --data my.csv --target colour --method label_smoothing --seeds 2
    rcad tune --data my.csv --target colour --method rcad --dry-run
    """
    numbers = parse_seeds(None, seeds, training.setting)
    from rcad.report.document import Command
    from rcad.study.outputs import workplace
    from rcad.study.study import Setup
    from rcad.study.tune import Work

    setup = Setup(source.required, own=reading.own, **reading.main, **training.entry)
    with (
        workplace(out, runs, track=track, **reading.places, **machines.places) as (folder, place),
        show_progress(quiet=quiet or dry_run, as_json=as_json, answer_first=True) as progress,
    ):
        work = Work(setup, method, space, search, metric, budget, numbers, folder, place)
        if dry_run:
            plan = work.plan()
            say_json(plan) if as_json else _show_search(plan, work.omissions)
            return
        tuning = work.go(progress)
    record_file, page, *pictures = map(str, tuning.files)
    if as_json:
        say_json({**tuning.record, "files": {"record": record_file, "page": page, "pictures": pictures}})
    elif quiet:
        say("\n".join([tuning.verdict, *([tuning.command] if tuning.command else [])]))
    else:
        table, *parts = tuning.document.sections[0].parts
        show_parts([table, tuning.verdict, *(part for part in parts if isinstance(part, Command))])
        say("\n".join(["", *map(str, tuning.files)]))
    done, outcome = len(tuning.record["trials"]), tuning.outcome
    if outcome is not None and not outcome.complete:
        warn(f"stopped after {done} of {tuning.record['planned']} trials; run the same command to continue")
        raise typer.Exit(outcome.exit_code)
    raise typer.Exit(int(tuning.best is None))
