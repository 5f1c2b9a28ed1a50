"""`rcad evaluate`: finished runs beyond their accuracy."""

from __future__ import annotations

import signal
from pathlib import Path

import typer

from rcad.cli import options
from rcad.cli.options import Text, argument, option
from rcad.cli.screen import say, say_json
from rcad.errors import InputError

LEFT_OUT = 2


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
    rcad evaluate all --suite calibration --json
    """
    from rcad.evaluate.saved_run.settings import Settings, parse_suites
    from rcad.train.progress import show_progress
    from rcad.train.stop import Interrupted

    suites = parse_suites(suite)
    eps = Settings.attack_eps if attack_eps is None else [_number(part) for part in attack_eps.split(",")]

    from rcad.study.evaluations import evaluate_run

    try:
        with show_progress(quiet=quiet or as_json) as progress:
            report = evaluate_run(
                chosen,
                suites,
                limit=limit,
                attack_eps=eps,
                standard=standard,
                corrupted=corrupted,
                ood_data=[part.strip() for part in ood_data.split(",")],
                again=again,
                out=out,
                runs=runs,
                data_dir=data_dir,
                cache_dir=cache_dir,
                device=device,
                progress=progress,
            )
    except KeyboardInterrupt as stop:
        words = "interrupted; every finished suite is kept beside its run; run the same command again to go on"
        raise Interrupted(getattr(stop, "number", signal.SIGINT), words) from None
    page = str(report.files[0])
    if as_json:
        say_json({**report.record, "page": page})
    else:
        say(page if quiet else f"{report}\n\n{page}")
    if report.left_out:
        raise typer.Exit(LEFT_OUT)


def _number(text: str) -> float:
    """A radius as one writes it: 0.05, or 8/255."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"expected --attack-eps to be numbers like 0.05 or 8/255, but got {text!r}") from None
