"""`rcad tune`: a method's numbers by the held-out split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcad.cli.options import (
    METHOD,
    Json,
    Machines,
    Quiet,
    Reading,
    Source,
    Text,
    Track,
    Training,
    about,
    bundled,
    option,
)

HELP = about(
    "Tune a method's hyperparameters on the validation split; the test split is never read.",
    "rcad tune --data diabetes --method rcad --budget 4 --epochs 2",
    'rcad tune --data diabetes --method rcad --space "lam=log(0.1, 1)" --epochs 2',
    "rcad tune --data diabetes --method rcad --search grid --budget 4 --epochs 2",
    "rcad tune --data my.csv --target colour --method label_smoothing --seeds 2",
    "rcad tune --data my.csv --target colour --method rcad --budget 3 --json",
    more="""The budget counts trials and is the same for every method; the first trial is the method's default. Each
    trial is trained on every seed. Run the same command again to continue, or with a larger budget to add trials.
    --space is key=log(A, B), uniform(A, B), int(A, B), choice(X, Y) or auto(A, B), where auto counts in half
    distances between classes; a key is a parameter of the method or a setting such as optim.lr.""",
)


@bundled
def tune(
    *,
    method: Annotated[str, METHOD],
    source: Source,
    budget: Annotated[int, option("--budget N", "Number of configurations to try.")] = 20,
    space: Annotated[
        Text, option("--space SPACE", "Hyperparameters to search. Default: the method's own ranges.")
    ] = None,
    search: Annotated[str, option("--search random|grid|optuna", "How to choose configurations.")] = "random",
    by: Annotated[
        Text,
        option(
            "--by METRIC", "Validation metric: accuracy, nll, brier or rmse. Default: accuracy; nll for regression."
        ),
    ] = None,
    reading: Reading,
    training: Training,
    seeds: Annotated[Text, option("--seeds N|A,B,..", "Average each trial over these seeds. Default: seed 0.")] = None,
    out: Annotated[Path, option("--out DIR", "Folder of the record and the page.")] = Path("rcad-tune"),
    runs: Annotated[Path | None, option("--runs DIR", "Folder for its runs. Default: runs in --out.")] = None,
    machines: Machines,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    from rcad.cli.request import parse_seeds
    from rcad.cli.screen import say, say_json, show_parts, warn
    from rcad.train.progress import show_progress

    numbers = parse_seeds(None, seeds, training.setting)
    from rcad.report.document import Command
    from rcad.study.tune import tune as tuned

    with show_progress(quiet=quiet, as_json=as_json, answer_first=True) as progress:
        found = tuned(
            source.required,
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
            **machines.places,
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
        warn(f"stopped after {done} of {found.record['planned']} trials; run the same command to continue")
        raise typer.Exit(outcome.exit_code)
    raise typer.Exit(int(found.best is None))
