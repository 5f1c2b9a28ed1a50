"""`rcad predict`: a finished run on new examples."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rcad.cli import options
from rcad.cli.options import argument, option
from rcad.cli.screen import say, say_json


def predict(
    run: str = argument("RUN", "A run's id, its first characters, its folder, or last."),
    data: Path = option("--data FILE|DIR", "A folder with images, an image, or a table.", ...),
    out: Path = option("--out FILE", "The CSV file to write.", Path("predictions.csv")),
    coverage: float = option("--coverage P", "Probability that an interval contains the regression target.", 0.9),
    skip_bad: bool = options.SKIP_BAD,
    runs: Path = options.RUNS,
    device: str = options.DEVICE,
    as_json: bool = options.JSON,
    quiet: bool = options.QUIET,
) -> None:
    """Predict new examples with a finished run, into a CSV file.

    DATA is a folder of images (with sub-folders or not), one image, or a table with the training columns. Each row of
    the output names its file or its row number, from 1. For classes it has the prediction, its probability and the
    probability of every class; for regression the mean, the standard deviation and an interval. The training data is
    not needed.

    rcad predict 3f2a --data images --out predictions.csv
    rcad predict 3f2a --data images --skip-bad --quiet
    rcad predict 3f2a --data images/class0/0.png --json
    """
    from rcad.errors import without_advice
    from rcad.predict.predictor import load, write_csv
    from rcad.runs.store import NEWEST
    from rcad.runs.words import plural, title
    from rcad.train.progress import show_progress

    predictor = load(run, runs=runs, device=device)
    if run == NEWEST and not (quiet or as_json):
        say(f"run {predictor.record.id}: {title(predictor.record.config)}")
    with show_progress(quiet=quiet, as_json=as_json) as progress:
        on_progress = partial(progress.detail, "predicting")
        summary = write_csv(predictor, data, out, coverage=coverage, skip_bad=skip_bad, progress=on_progress)
    if as_json:
        say_json({"run": predictor.record.id, "data": str(data), "out": str(out), **summary})
        return
    skipped = summary["skipped"]
    if skipped and not quiet:
        say(f"{plural(len(skipped), 'image')} skipped, e.g.: {without_advice(skipped[0])}")
    if predictor.classes:
        words = "  ".join(f"{name} {count}" for name, count in summary["classes"].items() if count)
    else:
        words = "mean {}, from {} to {}".format(*(number(summary[key]) for key in ("mean", "least", "most")))
    words += f", {predictor.unit}" if predictor.unit else ""
    say(str(out) if quiet else f"{plural(summary['examples'], 'prediction')}: {words}\n{out}")


def number(value: float) -> str:
    """At least four digits, and all of those before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
