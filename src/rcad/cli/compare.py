"""`rcad compare`: does it help on MY data?"""

from __future__ import annotations

from pathlib import Path

import typer

from rcad.cli import options
from rcad.cli.options import Machines, Reading, Source, Text, Training, option
from rcad.cli.screen import say, say_json, show_parts, warn


def compare(
    *,
    source: Source,
    methods: Text = option(
        "--methods A,B,..",
        "Default: erm, label_smoothing, rcad; for regression erm, rcad. Your own: mymodule:my_method.",
    ),
    reading: Reading,
    metric: Text = option("--metric METRIC", "The metric that decides: nll (default), accuracy, brier or rmse."),
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
) -> None:
    """Compare methods on your own data: equal tuning budgets, several splits, a statistical test, a report.

    The first line of the answer: is RCAD better than ERM by --metric? Each seed is another split of the data. ERM is
    always among the methods; with RCAD come its two controls: a random direction, and no step. The report is
    OUT/index.html, compare.md and compare.json. It names a winner only if the statistical test does. Run the same
    command again to continue or to add methods: nothing is trained twice.

    rcad compare --data my.csv --target colour --epochs 3 --budget 2
    rcad compare --data diabetes --methods rcad --seeds 4 --out diabetes
    rcad compare --data digits[:60] --methods rcad --no-controls --seeds 3
    rcad compare --data my.csv --target price --methods "rcad(alpha=1), me_ada"
    rcad compare --data digits[:60] --methods erm,mymodule:my_method --seeds 3
    """
    from rcad.cli.request import parse_seeds
    from rcad.report.terminal import part_lines
    from rcad.train.progress import show_progress

    numbers = parse_seeds(None, seeds or "10", training.setting)
    from rcad.study.backends import Stopped
    from rcad.study.compare import compare as compare_methods

    try:
        with show_progress(quiet=quiet, as_json=as_json, answer_first=True) as progress:
            comparison = compare_methods(
                source.required,
                methods,
                **reading.entry,
                **training.entry,
                metric=metric,
                seeds=numbers,
                budget=budget,
                controls=controls,
                out=out,
                runs=runs,
                **machines.places,
                track=track,
                progress=progress,
            )
    except Stopped as stop:
        warn(str(stop))
        raise typer.Exit(stop.exit_code) from None
    if as_json:
        say_json({**comparison.record, "files": [str(file) for file in comparison.files]})
    elif quiet:
        say(comparison.record["sentences"][0])
    else:
        first, _, differences, *_ = comparison.document.sections
        say("\n".join(part_lines(comparison.verdict)))
        show_parts([*first.parts[:2], *differences.tables[1:]])
        say("\n".join(["", *map(str, comparison.files)]))
