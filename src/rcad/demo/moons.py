"""Act 2: two moons among hundreds of noise dimensions, and what each method makes of their plane."""

from __future__ import annotations

from typing import Any

from rcad.data.toys import bayes_accuracy
from rcad.demo.settings import LABELS, Say, Settings, rivals, sign_step
from rcad.paper.arms import Candidate
from rcad.paper.boundaries import SHOWN, grid, noiseless, probability
from rcad.paper.moons import Cell, draw
from rcad.paper.stacked_tuning import Job, fit


def run(settings: Settings, say: Say) -> dict[str, Any]:
    """A contest (see `verdicts.Contest`), with the planes of the first draw."""
    moons = settings.moons
    say("drawing the moons", 0.0)
    folds = [draw(Cell(moons.d, moons.sigma), moons.n, moons.n_test, seed) for seed in range(moons.draws)]
    methods = rivals(moons.alpha, moons.lam, sign_step(moons.fgsm, pixels=False))
    arcs, sides = noiseless()
    results, planes = {}, {}
    for k, (name, method) in enumerate(methods.items()):

        def progress(done: int, total: int, name: str = name, k: int = k) -> None:
            say(LABELS[name], (k + done / total) / len(methods))

        jobs = [Job(Candidate({}, method), seed, seed) for seed in range(moons.draws)]
        fitted = fit(jobs, folds, moons.protocol, progress)
        results[name] = {"accuracy": fitted.metrics["accuracy"], "nll": fitted.metrics["nll"]}
        right = [(probability(model, arcs, moons.d) > 0.5) == (sides == 1) for model in fitted.models]
        shown = probability(fitted.models[0], grid(moons.grid), moons.d)
        planes[name] = {
            "on_the_curves": [100 * float(hits.double().mean()) for hits in right],
            "probability": [round(100 * value) for value in shown.tolist()],
        }
    first = folds[0]
    return {
        "title": "moons",
        "primary": "accuracy",
        "test_ratio": 0.0,
        "methods": results,
        "planes": planes,
        "points": {"x": first.x[:SHOWN, :2].double().tolist(), "y": first.y[:SHOWN].tolist()},
        "bayes": 100 * bayes_accuracy(moons.sigma),
    }
