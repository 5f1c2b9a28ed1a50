"""Act 1: the paper's linear theory. RCAD starts where ERM ended; test accuracies are exact, nothing is sampled."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rcad.demo.settings import Say
from rcad.demo.settings import Settings as Demo
from rcad.paper.theory.figure import typical_draw
from rcad.paper.theory.linear import norms
from rcad.paper.theory.study import LARGE, SMALL, Settings, Study, run_study


def run(settings: Demo, say: Say) -> dict[str, Any]:
    """By classifier and draw: test accuracy (percent), |w1| and ||w2||; and the median draw's plane."""
    say("200 draws of ERM, then RCAD" if settings.draws == 200 else "ERM, then RCAD", 0.0)
    study = run_study(Settings(draws=settings.draws))
    ends = {"erm": study.erm[-1], "rcad": study.path(LARGE)[-1], "rcad_small": study.path(SMALL)[-1]}
    say("the median draw", 1.0)
    return {
        "alpha": LARGE,
        "alpha_small": SMALL,
        "draws": settings.draws,
        "best": 100 * study.settings.problem.best_accuracy,
        "classifiers": {name: _numbers(study, w) for name, w in ends.items()},
        "plane": _plane(study, ends),
    }


def _numbers(study: Study, w: Tensor) -> dict[str, list[float]]:
    true, noise = norms(w)
    return {"accuracy": (100 * study.accuracy(w)).tolist(), "w1": true.tolist(), "w2": noise.tolist()}


def _plane(study: Study, ends: dict[str, Tensor]) -> dict[str, Any]:
    """The draw of the median gain, seen along the true feature and the direction in the noise that ERM learnt.

    A boundary is w1 x1 + (w2 . u) s = 0, kept as x1 over s: the noise's weight may be 0, the feature's is not.
    """
    index = typical_draw(study)
    u = ends["erm"][index, 1:]
    u = u / u.norm()
    x = study.sample.x[index]
    slopes = {name: float(-(w[index, 1:] @ u) / w[index, 0]) for name, w in ends.items()}
    return {
        "x1": x[:, 0].tolist(),
        "s": (x[:, 1:] @ u).tolist(),
        "y": study.sample.y[index].tolist(),
        "slopes": slopes,
    }
