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
    data_name,
    own_data,
)

HELP = about(
    "Compare methods on your own data: tuned alike, tested once on each split, with statistics and a report.",
    "rcad compare --data my.csv --target colour --epochs 3 --budget 2",
    "rcad compare --data diabetes --methods rcad --seeds 4 --out diabetes",
    "rcad compare --data digits[:60] --methods rcad --no-controls --seeds 3 --json",
    'rcad compare --data my.csv --target price --methods "rcad(alpha=0.3), me_ada" -q',
    more="""Each seed is a split of its own. ERM is always among the methods, and where RCAD is, so are its two
    controls: a random direction, and no step. The report is OUT/index.html, compare.md and compare.json. It names a
    winner only where the test says so. The same command run again trains nothing twice.""",
)
SEEDS = 10
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
    from rcad.cli.compare_job import Job
    from rcad.cli.request import Request
    from rcad.cli.seeds import parse_seeds
    from rcad.errors import need, one_of, whole

    one_of("--device", device, DEVICES)
    if budget is not None:
        whole("--budget", budget, minimum=1)
    for module, package, extra in (
        ("jinja2", "jinja2", "report"),
        ("matplotlib.figure", "matplotlib", "report"),
        ("scipy.stats", "scipy", "data"),
    ):
        need(module, package, extra)
    request = Request(
        data=data_name(data, images),
        target=target,
        task=task,
        size=size,
        own=own_data(drop, labels, file_column, label_column, skip_bad),
        recipe=recipe,
        epochs=epochs,
        model=model,
        settings=setting or (),
    )
    wanted = parse_seeds(None, seeds or str(SEEDS), setting)
    job = Job(request, methods, wanted, budget, controls, out.expanduser(), data_dir, cache_dir, device)
    code = job.work(runs or out.expanduser() / "runs", quiet=quiet, as_json=as_json)
    raise typer.Exit(code)
