"""What is done with finished runs: `rcad predict`, `rcad evaluate`, `rcad export`, `rcad push`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import typer

from rcad.cli import options
from rcad.cli.options import Text, argument, option
from rcad.cli.screen import say, say_json
from rcad.errors import InputError, without_advice
from rcad.runs.store import NEWEST, Store
from rcad.runs.words import plural, title
from rcad.train.progress import show_progress

LEFT_OUT = 2
RUN = argument("RUN", "A run's id, its first characters, its folder, or last.")


def predict(
    run: str = RUN,
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
    from rcad.predict.predictor import load, write_csv

    predictor = load(run, runs=runs, device=device)
    if run == NEWEST and not (quiet or as_json):
        say(f"run {predictor.record.id}: {title(predictor.record.config)}")
    with show_progress(quiet=quiet, as_json=as_json) as progress:
        on_progress = partial(progress.detail, "predicting")
        summary = write_csv(predictor, data, out, coverage=coverage, skip_bad=skip_bad, progress=on_progress)
    if as_json:
        say_json({"run": predictor.record.id, "data": str(data), "out": str(out), **summary})
        return
    if quiet:
        say(str(out))
        return
    if skipped := summary["skipped"]:
        say(f"{plural(len(skipped), 'image')} skipped, e.g.: {without_advice(skipped[0])}")
    if predictor.classes:
        words = "  ".join(f"{name} {count}" for name, count in summary["classes"].items() if count)
    else:
        words = "mean {}, from {} to {}".format(*(_number(summary[key]) for key in ("mean", "least", "most")))
    words += f", {predictor.unit}" if predictor.unit else ""
    say(f"{plural(summary['examples'], 'prediction')}: {words}\n{out}")


def _number(value: float) -> str:
    """At least four digits, and all of those before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def evaluate(
    chosen: list[str] = argument("RUN", "Ids of runs, or their first characters; last; or all."),
    suite: str = option("--suite NAME,..", "all, or some of calibration, attacks, corruptions, ood.", "all"),
    ood_data: str = option("--ood-data NAME,..", "Out-of-distribution data: names, paths, or noise.", "noise"),
    corrupted: Path | None = option(
        "--corrupted DIR", "Folder of a published corrupted test set, e.g. CIFAR-10-C. Default: generate one."
    ),
    attack_eps: Text = option("--attack-eps X,..", "Radii of attacks. Default: 2/255, 4/255, 8/255, 0.05."),
    standard: bool = option("--standard", "Also run AutoAttack (slow; needs pyautoattack).", False),
    limit: int | None = option(
        "--limit N", "Test examples for each suite, 0 for all. Default: depends on suite and device."
    ),
    out: Path = option("--out DIR", "Folder of the report.", Path("rcad-evaluation")),
    again: bool = option("--again", "Compute results again that exist already.", False),
    data_dir: Path | None = options.DATA_DIR,
    cache_dir: Path | None = options.CACHE_DIR,
    runs: Path = options.RUNS,
    device: str = options.DEVICE,
    as_json: bool = options.JSON,
    quiet: bool = options.QUIET,
) -> None:
    """Evaluate finished runs beyond accuracy: calibration, attacks, corruptions, OOD data.

    Prints tables and writes OUT/evaluation.html. Runs are grouped by method over their seeds and compared with the ERM
    runs among them. Results are saved beside each run and computed once; Ctrl-C keeps what is finished. A run that
    cannot be evaluated is named and left out; the exit code is then 2.

    rcad evaluate 3f2a
    rcad evaluate all --suite calibration,ood --out report
    rcad evaluate 3f2a --suite attacks --attack-eps 0.02,0.05 --limit 50
    rcad evaluate 3f2a --suite ood --ood-data noise,images --quiet
    """
    from rcad.evaluate.saved_run.settings import Settings, parse_suites

    suites = parse_suites(suite)
    eps = Settings.attack_eps if attack_eps is None else [_radius(part) for part in attack_eps.split(",")]

    from rcad.study.evaluations import evaluate_run

    with show_progress(quiet=quiet or as_json) as progress:
        what: Any = {"limit": limit, "attack_eps": eps, "standard": standard, "corrupted": corrupted}
        what |= {"ood_data": [part.strip() for part in ood_data.split(",")], "again": again}
        where: Any = {"out": out, "runs": runs, "data_dir": data_dir, "cache_dir": cache_dir, "device": device}
        report = evaluate_run(chosen, suites, **what, **where, progress=progress)
    page = str(report.files[0])
    if as_json:
        say_json({**report.record, "page": page})
    else:
        say(page if quiet else f"{report}\n\n{page}")
    if report.left_out:
        raise typer.Exit(LEFT_OUT)


def _radius(text: str) -> float:
    """0.05, or 8/255."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"expected --attack-eps to be numbers like 0.05 or 8/255, but got {text!r}") from None


def export(
    run: str = RUN,
    out: Path = option("--out FILE", "The .pt2 or .onnx file to write.", ...),
    to: Text = option("--to torch|onnx", "The format. Default: from the ending of --out."),
    runs: Path = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """Write a finished run as a file that torch or ONNX Runtime can run without rcad.

    The file includes the scaling of the inputs and takes batches of any size. It returns probabilities, or mean and
    standard deviation in the target's own unit. It is checked against the run before it is written. --to onnx needs the
    extra onnx.

    rcad export 3f2a --to torch --out model.pt2
    """
    from rcad.predict.export import description, export
    from rcad.predict.predictor import load

    predictor = load(run, runs=runs, device="cpu")
    difference = export(predictor, out, to)
    if as_json:
        say_json({**description(predictor), "out": str(out), "largest_difference": difference})
        return
    unit = "deviations of the target" if predictor.target else "in probability"
    say(f"the file's outputs are those of run {predictor.record.id}, up to {difference:.2g} {unit}\n{out}")


def push(
    run: str = argument("RUN", "A run's id, its first characters, or last."),
    repo: str = argument("OWNER/NAME", "The repository; made where there is none."),
    comparison: Path | None = option("--comparison DIR", "The --out of an rcad compare on the same data."),
    private: bool = option("--private", "Make the repository a private one.", False),
    dry_run: bool = option("--dry-run", "Print the card; send nothing.", False),
    runs: Path = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """Send a finished run to the Hugging Face Hub, with a model card made from its record.

    It sends the weights (safetensors), record.json, config.toml and the card: test metrics with intervals, over the
    seeds that lie beside the run too, and with --comparison the paired differences to ERM and both controls. Look at
    the card first with --dry-run: the config names the data as you did, a local path too. rcad.load and rcad predict
    take hf:OWNER/NAME. Log in once with: hf auth login.

    rcad push 3f2a me/digits --dry-run
    rcad push 3f2a me/digits --private
    rcad push 3f2a me/digits --comparison rcad-compare
    """
    from rcad.evaluate.saved_run.loading import finished
    from rcad.study import card

    if dry_run:
        store = Store.open(runs, create=False)
        text = card.card(finished(store, run), store, repo, comparison)
        plain = {"repo": repo, "card": text}
    else:
        commit = card.push(run, repo, runs=runs, comparison=comparison, private=private)
        text = f'sent to hf:{repo}@{commit}\nuse it: rcad.load("hf:{repo}"), or rcad predict hf:{repo} --data new.csv'
        plain = {"repo": repo, "commit": commit, "address": f"hf:{repo}@{commit}"}
    if as_json:
        say_json(plain)
    else:
        say(text)
