"""`rcad tune`: a method's numbers by the held-out split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcad.cli.options import (
    DATA,
    DEVICES,
    METHOD,
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
    "Find a method's numbers on this data by its held-out split, never by its test split.",
    "rcad tune --data diabetes --method rcad --budget 4 --epochs 2",
    'rcad tune --data diabetes --method rcad --space "lam=log(0.01, 1)" --epochs 2',
    "rcad tune --data digits[:100] --method rcad --search grid --budget 4 --epochs 2",
    "rcad tune --data my.csv --target colour --method label_smoothing --seeds 2",
    "rcad tune --data my.csv --target colour --method rcad --budget 3 --json",
    more="""The budget counts trials, the same for every method, the first being the method as it stands; each is
    trained on every seed. The same command run again goes on where it stopped, and with a larger budget keeps what it
    has. Without --space each method has a range of its own. A space is key=log(A, B), uniform(A, B), int(A, B),
    choice(X, Y) or auto(A, B), which counts in half distances between classes; a key is a parameter of the method or
    a field such as optim.lr.""",
)
SEARCHES = ("random", "grid", "optuna")
Text = str | None


def tune(
    method: Annotated[str, METHOD],
    data: Annotated[Text, DATA] = None,
    budget: Annotated[int, typer.Option("--budget", metavar="N", help="How many configurations to try.")] = 20,
    space: Annotated[
        Text, typer.Option("--space", metavar="SPACE", help="What to try; else the method's own range.")
    ] = None,
    search: Annotated[
        str, typer.Option("--search", metavar="random|grid|optuna", help="How the configurations are chosen.")
    ] = "random",
    by: Annotated[
        Text,
        typer.Option(
            "--by", metavar="METRIC", help="accuracy, nll, brier or rmse. Default: accuracy; of real targets nll."
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
    recipe: Recipe = None,
    setting: Settings = None,
    epochs: Epochs = None,
    model: Model = None,
    seeds: Annotated[
        Text,
        typer.Option("--seeds", metavar="N|A,B,..", help="Each trial is the mean over these seeds. Default: seed 0."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the record and the page.")] = Path(
        "rcad-tune"
    ),
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
    one_of("--search", search, SEARCHES)
    whole("--budget", budget, minimum=1)
    numbers = parse_seeds(None, seeds, setting) or [0]
    from rcad.report.document import Command
    from rcad.report.terminal import part_lines
    from rcad.study.tune import tune as tuned

    with shown(quiet=quiet, as_json=as_json) as progress:
        found = tuned(
            plain_path(required_data(data, images)),
            method,
            budget=budget,
            space=space,
            search=search,  # type: ignore[arg-type]
            by=by,
            target=target,
            task=task,
            size=size,
            data_options=own_data(drop, labels, file_column, label_column, skip_bad),
            seeds=numbers,
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
    record_file, page, *pictures = map(str, found.files)
    if as_json:
        say_json({**found.record, "files": {"record": record_file, "page": page, "pictures": pictures}})
    elif quiet:
        say("\n".join([found.verdict, *([found.command] if found.command else [])]))
    else:
        table, *rest = found.document.sections[0].parts
        for part in (table, found.verdict, *(one for one in rest if isinstance(one, Command))):
            say("\n".join(["", *part_lines(part)]))
        say("\n".join(["", *map(str, found.files)]))
    done, outcome = len(found.record["trials"]), found.outcome
    if outcome is not None and not outcome.complete:
        warn(f"stopped after {done} of {found.record['planned']} trials; the same command goes on from here")
        raise typer.Exit(outcome.exit_code)
    raise typer.Exit(int(found.best is None))
