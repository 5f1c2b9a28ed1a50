"""`rcad tune`: a method's numbers by the held-out split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcad.cli.options import (
    METHOD,
    Data,
    Device,
    Images,
    Json,
    Machines,
    Quiet,
    Reading,
    Track,
    Training,
    about,
    bundled,
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
Text = str | None


@bundled
def tune(
    *,
    method: Annotated[str, METHOD],
    data: Data = None,
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
    images: Images = None,
    reading: Reading,
    training: Training,
    seeds: Annotated[
        Text,
        typer.Option("--seeds", metavar="N|A,B,..", help="Each trial is the mean over these seeds. Default: seed 0."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the record and the page.")] = Path(
        "rcad-tune"
    ),
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Folder of the runs it makes. Default: runs in --out.")
    ] = None,
    device: Device = "auto",
    machines: Machines,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    from rcad.cli.request import parse_seeds
    from rcad.cli.screen import say, say_json, show_parts, warn
    from rcad.train.progress import shown

    numbers = parse_seeds(None, seeds, training.setting)
    from rcad.report.document import Command
    from rcad.study.tune import tune as tuned

    with shown(quiet=quiet, as_json=as_json) as progress:
        found = tuned(
            required_data(data, images),
            method,
            **reading.entry,
            **training.entry,
            budget=budget,
            space=space,
            search=search,  # type: ignore[arg-type]
            by=by,
            seeds=numbers,
            out=out,
            runs=runs,
            **machines.places(device),
            track=track,
            progress=progress,
        )
    record_file, page, *pictures = map(str, found.files)
    if as_json:
        say_json({**found.record, "files": {"record": record_file, "page": page, "pictures": pictures}})
    elif quiet:
        say("\n".join([found.verdict, *([found.command] if found.command else [])]))
    else:
        table, *rest = found.document.sections[0].parts
        show_parts([table, found.verdict, *(one for one in rest if isinstance(one, Command))])
        say("\n".join(["", *map(str, found.files)]))
    done, outcome = len(found.record["trials"]), found.outcome
    if outcome is not None and not outcome.complete:
        warn(f"stopped after {done} of {found.record['planned']} trials; the same command goes on from here")
        raise typer.Exit(outcome.exit_code)
    raise typer.Exit(int(found.best is None))
