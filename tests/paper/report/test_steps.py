"""F4's picture and sentences are those of the record: gains over ERM on the same seeds, by step size and epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rcad.paper.record import Study
from rcad.paper.report import curves

ROOT = Path(__file__).parents[3]
F4 = Study.read(ROOT / "results/F4/F4.json")


def by_hand(row: str, base: str, column: str, metric: str) -> tuple[float, float, float]:
    """Mean and interval of the paired difference, positive for the first."""
    ours, theirs = ({run.seed: run.metrics[metric] for run in F4.places[name, column].runs} for name in (row, base))
    gain = np.array([ours[seed] - theirs[seed] for seed in ours])  # type: ignore[operator]
    gain = -gain if metric.endswith("nll") else gain
    half = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / np.sqrt(len(gain))
    return gain.mean(), gain.mean() - half, gain.mean() + half


@pytest.mark.parametrize("metric", ["accuracy", "nll"])
@pytest.mark.parametrize("epoch", ["", "last_"])
def test_gains_are_those_of_the_runs(metric: str, epoch: str) -> None:
    found = curves.step_gains(F4, "RCAD", "ERM", metric, epoch)
    assert len(found) == 9
    for column, alpha in curves.step_sizes(F4).items():
        assert (found[alpha].mean, found[alpha].low, found[alpha].high) == pytest.approx(
            by_hand("RCAD", "ERM", column, epoch + metric)
        )


def test_what_does_not_depend_on_the_step_is_a_line_across() -> None:
    figure = curves.by_step(F4)
    ax = figure.drawing.axes[0]
    dashed = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert [line.get_label() for line in dashed] == ["entropy at x"]
    assert dashed[0].get_ydata()[0] == pytest.approx(by_hand("entropy at x", "ERM", "alpha 1", "accuracy")[0])
