"""Pictures drawn by hand as SVG: their colours follow the page, light or dark."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

GEOMETRY = Path(__file__).parents[1] / "geometry.html"


def geometry() -> str:
    """x, x', the boundary, and what the model should say at both."""
    return GEOMETRY.read_text(encoding="utf-8").rstrip()


def window(root: Path) -> str:
    """Accuracy over alpha, from the records of the linear theory and of the moons."""
    theory = json.loads((root / "results/theory/linear.json").read_text(encoding="utf-8"))
    sweep = next(sweep for sweep in theory["details"]["sweeps"] if sweep["over"] == "alpha")
    beta = sweep["base"]["problem"]["beta"]
    scaled = {name: [100 * value for value in sweep[name]["median"]] for name in ("erm_accuracy", "rcad_accuracy")}
    left = _panel(
        "Linear theory", sweep["values"], scaled["rcad_accuracy"], fmean(scaled["erm_accuracy"]),
        (beta, f"distance of a class from 0: {beta:g}"),
    )  # fmt: skip
    record = json.loads((root / "results/alpha/alpha.json").read_text(encoding="utf-8"))
    moons = max(record["details"]["moons"], key=lambda setting: setting["d"])
    right = _panel(
        f"Moons in {moons['d']} dimensions", moons["alphas"], [fmean(values) for values in moons["grid"]],
        moons["erm"], (moons["suggested"]["alpha"], f"measured alpha: {moons['suggested']['alpha']:.2g}"),
    )  # fmt: skip
    return (
        f'<figure class="drawn" markdown="0">\n<div class="beside">\n{left}\n{right}\n</div>\n'
        "<figcaption>Accuracy over alpha (logarithmic): the curve is RCAD, the level line ERM. Made from "
        "<code>results/theory/linear.json</code> (medians of 1,000 draws) and <code>results/alpha/alpha.json</code> "
        "(means of 3 draws). Below the useful range RCAD harms; above it the gain is lost, and in the linear theory "
        "RCAD is worse than ERM again. With much noise the measured alpha is too large."
        "</figcaption>\n</figure>"
    )


def _panel(
    title: str,
    alphas: Sequence[float],
    values: Sequence[float],
    level: float,
    mark: tuple[float, str],
) -> str:
    pairs = [(alpha, value) for alpha, value in zip(alphas, values, strict=True) if alpha >= 0.05]
    low, high = min([level, *(v for _, v in pairs)]) - 2, max(v for _, v in pairs) + 1
    first, last = math.log(pairs[0][0]), math.log(pairs[-1][0])

    def across(alpha: float) -> float:
        return 46 + 262 * (math.log(alpha) - first) / (last - first)

    def up(value: float) -> float:
        return 218 - 160 * (value - low) / (high - low)

    curve = " ".join(f"{across(a):.1f},{up(v):.1f}" for a, v in pairs)
    dots = "".join(f'<circle cx="{across(a):.1f}" cy="{up(v):.1f}" r="2.8" class="fill-step"/>' for a, v in pairs)
    ticks = [a for a in (0.05, 0.1, 0.25, 0.5, 1, 2, 4) if pairs[0][0] <= a <= pairs[-1][0]]
    labels = "".join(f'<text x="{across(a):.1f}" y="236" class="tick middle">{a:g}</text>' for a in ticks)
    heights = [round(low + 2), round((low + high) / 2), round(high - 1)]
    labels += "".join(f'<text x="38" y="{up(h) + 4:.1f}" class="tick end">{h}%</text>' for h in heights)
    alpha, words = mark
    x = across(alpha)
    return (
        f'<svg viewBox="0 0 352 264" role="img" aria-label="{title}: accuracy of RCAD over alpha, beside ERM.">'
        f'<text x="46" y="20" class="strong">{title}</text>'
        f'<line x1="46" y1="218" x2="312" y2="218" class="axis"/>'
        f'<line x1="46" y1="54" x2="46" y2="218" class="axis"/>'
        f'<line x1="{x:.1f}" y1="54" x2="{x:.1f}" y2="218" class="mark"/>'
        f'<text x="{x:.1f}" y="46" class="soft middle">{words}</text>'
        f'<line x1="46" y1="{up(level):.1f}" x2="312" y2="{up(level):.1f}" class="level"/>'
        f'<text x="316" y="{up(level) + 4:.1f}" class="tick">ERM</text>'
        f'<polyline points="{curve}" class="curve"/>{dots}{labels}'
        f'<text x="177" y="258" class="tick middle">alpha</text></svg>'
    )
