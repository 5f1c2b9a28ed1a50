"""`rcad compare`: does it help on MY data?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcad.cli.options import (
    DATA,
    DEVICES,
    CacheFolder,
    DataFolder,
    Device,
    Drop,
    Epochs,
    FileColumn,
    Images,
    Json,
    LabelColumn,
    Labels,
    Model,
    Quiet,
    Recipe,
    Settings,
    Size,
    SkipBad,
    Target,
    Task,
    about,
    own_data,
    required_data,
)

HELP = about(
    "Compare methods on your own data: tuned alike, tested once on each split, with statistics and a report.",
    "rcad compare --data my.csv --target colour --epochs 3 --budget 2",
    "rcad compare --data diabetes --methods rcad --seeds 4 --out diabetes",
    "rcad compare --data digits[:60] --methods rcad --no-controls --seeds 3 --json",
    'rcad compare --data my.csv --target price --methods "rcad(alpha=0.3), me_ada" -q',
    more="""The first line answers one question: is RCAD better than ERM by --metric? Each seed is a split of its own.
    ERM is always among the methods, and where RCAD is, so are its two controls: a random direction, and no step. The
    report is OUT/index.html, compare.md and compare.json. It names a winner only where the test says so. The same
    command run again trains nothing twice.""",
)
Text = str | None


def compare(
    data: Annotated[Text, DATA] = None,
    methods: Annotated[
        Text,
        typer.Option(
            "--methods", metavar="A,B,..", help="Default: erm,label_smoothing,rcad; on real targets erm,rcad."
        ),
    ] = None,
    target: Target = None,
    task: Task = None,
    size: Size = None,
    drop: Drop = None,
    images: Images = None,
    labels: Labels = None,
    file_column: FileColumn = None,
    label_column: LabelColumn = None,
    skip_bad: SkipBad = False,
    metric: Annotated[
        Text,
        typer.Option("--metric", metavar="METRIC", help="What decides: nll (default), accuracy, brier or rmse."),
    ] = None,
    seeds: Annotated[
        Text, typer.Option("--seeds", metavar="N|A,B,..", help="N splits (seeds 0 to N-1), or these. Default: 10.")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget", metavar="N", help="Configurations each method tries. Default: 8; 1, no tuning, on images."
        ),
    ] = None,
    controls: Annotated[bool, typer.Option("--controls/--no-controls", help="Bring RCAD's two controls along.")] = True,
    epochs: Epochs = None,
    recipe: Recipe = None,
    model: Model = None,
    setting: Settings = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the report.")] = Path("rcad-compare"),
    data_dir: DataFolder = None,
    cache_dir: CacheFolder = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Folder of the runs it makes. Default: runs in --out.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    from rcad.cli.request import plain_path
    from rcad.cli.screen import say, say_json, warn
    from rcad.cli.seeds import parse_seeds
    from rcad.errors import one_of, whole
    from rcad.train.progress import shown

    one_of("--device", device, DEVICES)
    if budget is not None:
        whole("--budget", budget, minimum=1)
    numbers = parse_seeds(None, seeds or "10", setting)
    from rcad.report.terminal import part_lines
    from rcad.study.backends import Stopped
    from rcad.study.compare import compare as compared

    try:
        with shown(quiet=quiet, as_json=as_json) as progress:
            found = compared(
                plain_path(required_data(data, images)),
                methods,
                target=target,
                task=task,
                size=size,
                data_options=own_data(drop, labels, file_column, label_column, skip_bad),
                metric=metric,
                seeds=numbers,
                budget=budget,
                controls=controls,
                epochs=epochs,
                recipe=recipe,
                model=model,
                settings=setting or (),
                out=out,
                runs=runs,
                data_dir=data_dir,
                cache_dir=cache_dir,
                device=device,
                progress=progress,
            )
    except Stopped as stop:
        warn(str(stop))
        raise typer.Exit(stop.exit_code) from None
    if as_json:
        say_json({**found.record, "files": [str(file) for file in found.files]})
    elif quiet:
        say(found.record["sentences"][0])
    else:
        first, _, differences, *_ = found.document.sections
        for part in (found.verdict, *first.parts[:2], *differences.tables[1:]):
            say("\n".join(["", *part_lines(part)]))
        say("\n".join(["", *map(str, found.files)]))
