"""The two pictures of README.md: the idea on two moons, trained here, and gains with few labels, from the records.

`make pages` writes docs/images/idea.svg and docs/images/few-labels-short.svg.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import rcad
from rcad.paper.report.few_labels import MEASURES, Gain, figure
from rcad.report import drawing
from rcad_docs.few_labels import N500, N2000, gain, studies

ROOT = Path(__file__).parents[1]
ROWS = (
    ("RCAD", "paper", "RCAD"),
    ("random direction (control)", "paper", "random direction"),
    ("label smoothing", "paper", "LS"),
    ("ME-ADA", "paper", "ME-ADA"),
    ("ERM, weight decay tuned", "tuned", "ERM"),
    ("mixup, weight decay tuned", "tuned", "MixUp"),
    ("two views, weight decay tuned", "tuned", "two views"),
)
"""Names of the picture, and of the studies and their rows."""
EXAMPLES, GAP, NOISE, STEPS, LAM = 60, 0.0, 0.08, 1500, 0.5
LIMITS = (-1.8, 2.8, -1.7, 1.7)
ARROWS = range(0, EXAMPLES, 7)


def moons(generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two half circles with noise."""
    angle = generator.uniform(0, np.pi, EXAMPLES)
    label = np.arange(EXAMPLES) % 2
    curve = np.where(label == 0, [np.cos(angle), np.sin(angle)], [1 - np.cos(angle), GAP - np.sin(angle)]).T
    x = curve + generator.normal(0, NOISE, curve.shape)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(label)


def trained(criterion: rcad.Criterion, x: torch.Tensor, y: torch.Tensor) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        criterion.backward(model, x, y)
        optimizer.step()
    return model


def idea() -> Any:
    """How sure plain training and RCAD are in the plane, with RCAD's steps from a few examples."""
    x, y = moons(np.random.default_rng(0))
    alpha = rcad.suggest_alpha(x, y)
    across, up = torch.linspace(*LIMITS[:2], 240), torch.linspace(*LIMITS[2:], 176)
    plane = torch.stack(torch.meshgrid(across, up, indexing="xy"), -1)
    drawn = drawing.blank(8.4, 3.3)
    methods = {
        "plain training: sure almost everywhere": rcad.methods.erm(),
        "RCAD: unsure one step up the loss (arrows)": rcad.methods.rcad(alpha=alpha, lam=LAM),
    }
    for ax, (title, method) in zip(drawn.subplots(1, 2), methods.items(), strict=True):
        model = trained(method.criterion(), x, y)
        with torch.no_grad():
            chance = model(plane.reshape(-1, 2)).softmax(1)[:, 1].reshape(plane.shape[:2])
        style = {"origin": "lower", "extent": LIMITS, "aspect": "equal", "vmin": 0, "vmax": 1, "alpha": 0.75}
        image = ax.imshow(chance, cmap="RdBu", interpolation="none", **style)
        for label, marker, colour in ((0, "o", "#6B0000"), (1, "s", "#00205F")):
            ax.scatter(*x[y == label].T, marker=marker, s=12, color=colour, lw=0, zorder=3)
        if method.name == "rcad":
            moved = rcad.GradientStep(alpha=alpha)(model, x, y, rcad.Categorical())
            for k in ARROWS:
                ax.annotate("", moved[k].tolist(), x[k].tolist(), arrowprops={"arrowstyle": "->", "lw": 1.3}, zorder=4)
        ax.set_title(title, fontsize=10)
        ax.set(xlim=LIMITS[:2], ylim=LIMITS[2:], xticks=[], yticks=[])
    bar = drawn.colorbar(image, ax=drawn.axes, shrink=0.85, ticks=[0, 0.5, 1])
    bar.ax.set_yticklabels(["red class", "unsure", "blue class"], fontsize=8.5)
    return drawn


def few_labels() -> list[Gain]:
    """Gains over plain training with the paper's settings: other methods with these settings, and tuned ones."""
    every, rows = studies(ROOT), []
    for column in (N500, N2000):
        base = every["paper"].places["ERM", column]
        for name, kind, row in ROWS:
            place = every[kind].places[row, column]
            gains = {metric: gain(place, base, metric) for metric in MEASURES}
            rows.append(Gain("ResNet-18, against ERM with the paper's settings", column, name, place, gains))
    return rows


def numbers(rows: list[Gain]) -> str:
    """The numbers of the picture, as a comment at its end: by it a test knows a picture that is out of date."""
    words = [
        f"{row.column} {row.row} {metric} {gain.mean:.3f}"
        for row in rows
        for metric, gain in row.gains.items()
        if gain is not None
    ]
    return f"<!-- {'; '.join(words)} -->\n"


if __name__ == "__main__":
    folder = ROOT / "docs" / "images"
    (folder / "idea.svg").write_bytes(drawing.picture(idea(), "svg"))
    short = drawing.picture(figure(few_labels()).drawing, "svg") + numbers(few_labels()).encode()
    (folder / "few-labels-short.svg").write_bytes(short)
