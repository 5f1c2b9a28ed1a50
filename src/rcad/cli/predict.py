"""`rcad predict`: a finished run on new examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcad.cli.options import RUNS, Device, Json, Quiet, RunsFolder, SkipBad, about

HELP = about(
    "Predict new examples with a finished run, into a CSV file.",
    "rcad predict 3f2a --data images --out predictions.csv",
    "rcad predict 3f2a --data images --skip-bad --quiet",
    "rcad predict 3f2a --data images/class0/0.png --json",
    more="""DATA is a folder with images (in sub-folders or not), one image, or a table with the columns of training. A
    row keeps its file name or its number, from 1. For classes there are the prediction, its probability and those of
    all classes; for a real target the mean, the deviation and an interval. The training data need not be there.""",
)


def predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="An id or its beginning, or the folder of a run.")],
    data: Annotated[
        Path, typer.Option("--data", metavar="FILE|DIR", help="A folder with images, an image, or a table.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The CSV file to write.")] = Path(
        "predictions.csv"
    ),
    coverage: Annotated[
        float, typer.Option("--coverage", metavar="P", help="How probably an interval holds a real target.")
    ] = 0.9,
    skip_bad: SkipBad = False,
    runs: RunsFolder = RUNS,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    from rcad.cli.screen import say, say_json
    from rcad.predict.predictor import load
    from rcad.predict.table import write
    from rcad.runs.words import plural
    from rcad.train.progress import shown

    predictor = load(run, runs=runs, device=device)
    with shown(quiet=quiet, as_json=as_json) as progress:

        def told(done: int, total: int) -> None:
            progress.detail("predicting", done, total)

        found = write(predictor, data, out, coverage=coverage, skip_bad=skip_bad, progress=told)
    if as_json:
        say_json({"run": predictor.record.id, "data": str(data), "out": str(out), **found})
        return
    skipped = found["skipped"]
    if skipped and not quiet:
        say(f"{plural(len(skipped), 'image')} skipped, e.g.: {skipped[0]}")
    what = (
        "  ".join(f"{name} {count}" for name, count in found["classes"].items() if count)
        if predictor.classes
        else f"mean {found['mean']:.4g}, from {found['least']:.4g} to {found['most']:.4g}"
    )
    say(str(out) if quiet else f"{plural(found['examples'], 'prediction')}: {what}\n{out}")
