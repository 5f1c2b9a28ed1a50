"""Tuning and refitting: the right rows, the right epoch, the same budget, and no run that must diverge."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from rcad.errors import InputError
from rcad.loss.likelihoods import Gaussian
from rcad.loss.methods import compose, erm, gaussian, rcad
from rcad.paper import moons, uci
from rcad.paper.stacked_tuning import Arm, Candidate, Fold, Job, Protocol, best, fit, places, tune
from rcad.paper.targets import TARGETS
from rcad.stacked.train import Examples, StackedProblem, train_stacked

PROTOCOL = Protocol("adamw", 1e-2, 8, 6, (5,))


def made(seed: int, rows: int = 24) -> Fold:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows + 8, 3, generator=generator)
    y = x[:, 0] + 0.1 * torch.randn(rows + 8, generator=generator)
    return Fold(x[:rows], y[:rows], x[rows:], y[rows:], 0, 2.0)


def stops(*epochs: int) -> tuple[Candidate, ...]:
    return tuple(Candidate({"epochs": e}, erm(), epochs=e) for e in epochs)


def test_each_job_is_measured_on_its_own_fold_at_its_own_epoch() -> None:
    folds = [made(0), made(1)]
    jobs = [Job(one, k, 10 + k) for k in range(2) for one in stops(2, 5)]
    fitted = fit(jobs, folds, PROTOCOL)
    for k, job in enumerate(jobs):
        fold = folds[job.fold]
        held = Examples(fold.held_x, fold.held_y)
        problem = StackedProblem(Examples(fold.x, fold.y), 0, held, target_scale=torch.tensor([2.0]))
        how: dict[str, Any] = {"epochs": job.candidate.epochs, "batch_size": 8, "hidden": (5,)}
        alone = train_stacked(problem, erm(), seeds=[job.seed], optim=PROTOCOL.optim(0.0), **how)
        assert fitted.metrics["nll"][k] == pytest.approx(float(alone.curves["val_nll"][0, -1]), abs=1e-5)
        # By hand, from the weights: the density in the target's own unit.
        output = fitted.models[k](fold.held_x[None])[0]
        nll = Gaussian().nll(output, fold.held_y).double().mean() + math.log(2.0)
        assert fitted.metrics["nll"][k] == pytest.approx(float(nll), abs=1e-5)
    assert len(set(fitted.metrics["nll"])) == 4


def test_fold_by_fold_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    folds = [made(0), made(1)]
    jobs = [Job(one, k, k) for one in stops(2, 5) for k in (1, 0)]
    together = fit(jobs, folds, PROTOCOL)
    steps: list[tuple[int, int]] = []
    monkeypatch.setattr("rcad.paper.stacked_tuning.STACKED_NUMBERS", 1)
    apart = fit(jobs, folds, PROTOCOL, lambda done, total: steps.append((done, total)))
    assert apart.metrics["nll"] == pytest.approx(together.metrics["nll"], abs=1e-5)
    assert steps[-1][0] <= steps[-1][1]
    assert steps == sorted(steps)


def test_the_best_on_each_fold_is_chosen_and_never_a_run_that_diverged() -> None:
    scores, chosen = tune(Arm("erm", stops(6, 3, 1)), [made(k) for k in range(3)], PROTOCOL, "nll")
    assert chosen == [row.index(min(row)) for row in scores]
    assert best([math.nan, 3.0, 2.0, 2.0, -math.inf], "nll") == 2
    assert best([math.nan, 3.0, 2.0, 3.0], "accuracy") == 1
    assert best([math.nan, math.inf], "nll") == 0
    wild = replace(PROTOCOL, optimizer="sgd", lr=1e30)
    values = fit([Job(stops(6)[0], 0, 0)], [made(0)], wild).metrics["nll"]
    assert math.isnan(values[0])


def test_cells_know_which_runs_diverged_and_what_is_printed() -> None:
    numbers = {"nll": [1.0, math.nan, None], "rmse": [2.0, 2.0, 2.0], "other": [0.0] * 3}
    cells = places({"boston": {"rcad": numbers}}, {"rcad": "RCAD"}, ("nll", "rmse"), TARGETS["T7"].printed)
    assert cells["RCAD", "boston"].published == TARGETS["T7"].printed["boston"]["RCAD"]
    runs = cells["RCAD", "boston"].runs
    assert [(run.seed, run.status) for run in runs] == [(0, "done"), (1, "diverged"), (2, "diverged")]
    assert runs[0].metrics == {"nll": 1.0, "rmse": 2.0}


def test_an_uncapped_entropy_is_stopped_unless_it_is_wanted() -> None:
    uncapped = compose(gaussian(cap=None), rcad(0.3, 0.9))
    with pytest.raises(InputError, match="expected a cap"):
        Candidate({}, uncapped)
    Candidate({}, uncapped, may_diverge=True)


@pytest.mark.parametrize("settings", [*uci.SCALES.values(), *moons.SCALES.values()])
def test_every_method_has_the_same_budget(settings: uci.Settings | moons.Settings) -> None:
    arms = settings.arms()
    assert {"erm", "me_ada", "rcad", "rcad_random", "confidence_penalty"} <= {arm.name for arm in arms}
    for arm in arms:
        assert len({repr(one.numbers) for one in arm.candidates}) == (settings.budget or 8)
