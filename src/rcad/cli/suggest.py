"""`rcad suggest-alpha`: how far RCAD should step on this data, measured before anything is tuned."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rcad.cli import options
from rcad.cli.options import Reading, Source, option
from rcad.cli.screen import say, say_json, table
from rcad.errors import InputError
from rcad.runs.files import replacing
from rcad.train.progress import Progress, show_progress

if TYPE_CHECKING:
    from rcad.loss.suggest_alpha import Along
    from rcad.runs.config import RunConfig
    from rcad.train.task import Problem

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BELOW, MOST = 4.0, 30
"""The curve begins at the distance where predictions flip divided by BELOW, or lower; no more points than MOST."""
EXAMPLES, EPOCHS = 512, 15
FORMATS = (".png", ".svg")


def suggest_alpha(
    *,
    source: Source,
    reading: Reading,
    check: bool = option(
        "--check/--no-check", "Train a small ERM model and find the distance where its predictions flip.", True
    ),
    figure: Path | None = option("--figure FILE", "Draw the curve here: a .png or .svg file."),
    as_json: bool = options.JSON,
) -> None:
    """Measure a good step length alpha for RCAD on your data.

    alpha is half the median distance from a training example to the nearest example of another class; this needs no
    training. Then a small ERM model is trained to find where its predictions flip along the adversarial direction: an
    alpha below that distance tends to hurt. rcad train --method rcad measures alpha in the same way.

    rcad suggest-alpha --data digits[:100]
    rcad suggest-alpha --data my.csv --target colour
    rcad suggest-alpha --data digits --no-check --json
    rcad suggest-alpha --data digits[:100] --figure alpha.png
    """
    if figure is not None:
        _check_figure(figure, check)
    import torch

    from rcad.loss.suggest_alpha import apart, flip_distance, nearest_other_class
    from rcad.runs.configure import configure
    from rcad.train.task import measured_alpha, prepare, read

    data = source.required
    config = configure({"name": data, **reading.main, **reading.own}, [("erm", ())], recipe="small", epochs=EPOCHS)
    with show_progress(as_json=as_json) as progress:
        problem = prepare(config, read(config.data, **reading.places, progress=progress), torch.device("cpu"))
    if not problem.classes:
        advice = f"begin at alpha = {measured_alpha(problem):g}, which rcad train takes for them"
        raise InputError(f"expected class labels, but {data} has regression targets; {advice}")
    with show_progress(as_json=as_json) as progress:
        generator, on_progress = torch.Generator().manual_seed(0), partial(progress.detail, "measuring")
        distances = nearest_other_class(*problem.train, generator=generator, progress=on_progress)
    distances = distances[apart(distances)]
    alpha = 0.5 * distances.quantile(0.5).item()
    if not as_json:
        shape, low, high = tuple(problem.train[0].shape[1:]), alpha / 2, 2 * alpha
        say(f"{data}: {len(problem.train[1]):,} training examples, inputs of shape {shape}")
        say(f"try alpha {alpha:.3g}, half the median distance to another class; tune from {low:.3g} to {high:.3g}")
    with show_progress(as_json=as_json) as progress:
        rows = _train_and_look(config, problem, alpha, progress) if check else []
    flip = flip_distance(rows)
    if figure is not None:
        draw(rows, alpha, flip, figure)
    if as_json:
        quantiles = {str(q): distances.quantile(q).item() for q in (0.05, 0.5, 0.95)}
        say_json({"alpha": alpha, "flip_distance": flip, "distance": quantiles, "curve": [r._asdict() for r in rows]})
        return
    cells = []
    for row in rows:
        marks = ["half the distance between classes"] if row.alpha == alpha else []
        marks += ["ERM's predictions flip"] if row.alpha == flip else []
        numbers = [f"{row.alpha:.3g}", f"{row.accuracy:.0%}", f"{row.entropy:.2f}", f"{row.flipped:.0%}"]
        cells.append([*numbers, "; ".join(marks)])
    if cells:
        say("training examples moved along ERM's own gradient (entropy in nats):\n")
        table(["alpha", "accuracy", "entropy", "flipped", "what it is"], cells)
        say()
    if flip is not None and flip > alpha:
        say(f"but ERM's predictions flip only at about {flip:.3g}: a smaller alpha may hurt, so start there")
    if figure is not None:
        say(str(figure))


def _check_figure(figure: Path, check: bool) -> None:
    """Raises if the picture cannot be drawn, before anything is computed."""
    from rcad.report import drawing

    if not check:
        raise InputError("expected --check with --figure: the curve is that of the short fit, but got --no-check")
    if figure.suffix.lower() not in FORMATS:
        raise InputError(f"expected a picture's name to end in {' or '.join(FORMATS)}, but got {figure.name!r}")
    drawing.matplotlib()
    if not figure.parent.is_dir():
        raise InputError(f"expected a folder to write {figure} to, but there is none; make it first")


def draw(rows: list[Along], alpha: float, flip: float | None, path: Path) -> None:
    """Draw entropy and accuracy against alpha; at 0 as a level, since the axis is logarithmic."""
    from rcad.report.drawing import blank, picture

    figure = blank(6.4, 4.2)
    left = figure.subplots()
    right = left.twinx()
    still, *moved = rows
    steps = [row.alpha for row in moved]
    left.axvspan(alpha / 2, 2 * alpha, color="#009E73", alpha=0.15, lw=0, label="the window to tune in")
    left.axvline(alpha, color="#009E73", lw=1.8, label=f"half the distance between classes, {alpha:.3g}")
    if flip is not None:
        left.axvline(flip, color="#666666", lw=1.4, ls=":", label=f"ERM's predictions flip, {flip:.3g}")
    left.plot(steps, [100 * row.accuracy for row in moved], "o-", color="#0072B2", label="accuracy (left)")
    right.plot(steps, [row.entropy for row in moved], "s--", color="#D55E00", label="entropy (right)")
    left.axhline(100 * still.accuracy, color="#0072B2", lw=0.9, ls=(0, (1, 2)), label="accuracy at x (left)")
    left.set_xscale("log", base=2)
    left.set_xticks(steps, [f"{step:.3g}" for step in steps])
    left.minorticks_off()
    left.set(xlabel="alpha", ylabel="accuracy on moved training examples, %", ylim=(-3, 103))
    right.set(ylabel="mean entropy, nats", ylim=(0, None))
    handles = [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=8.5, frameon=False)
    with replacing(path) as temporary:
        temporary.write_bytes(picture(figure, path.suffix[1:].lower()))


def _train_and_look(config: RunConfig, problem: Problem, alpha: float, progress: Progress) -> list[Along]:
    """Train a small network with ERM for a few epochs and look at its predictions at distances around alpha."""
    import torch

    from rcad.loss.growth import as_unit_float
    from rcad.loss.suggest_alpha import along_adversarial, flip_distance
    from rcad.train.loop import Trainer
    from rcad.train.machine import suitable_threads
    from rcad.train.task import method_of, model_of

    if problem.train[0].ndim == 4:
        config = replace(config, model=replace(config.model, name="small_cnn"))
    with torch.random.fork_rng(devices=[]), suitable_threads(problem.train[0]):
        trainer = Trainer(config, problem, method_of(config, problem), model_of(config, problem), progress)
        trainer.fit()
    trainer.model.eval()
    x, y = (part[:EXAMPLES] for part in problem.train)
    look = partial(along_adversarial, trainer.model, as_unit_float(x), y)
    rows = look([0.0, *(alpha * factor for factor in FACTORS)])
    while (flip := flip_distance(rows)) is not None and rows[1].alpha > flip / BELOW and len(rows) < MOST:
        rows[1:1] = look([rows[1].alpha / 4, rows[1].alpha / 2])
    return rows
