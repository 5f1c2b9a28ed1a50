"""T7, T8 and F7, of stacked networks: the right rows, the right epoch, the same budget; records found again."""

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paper_records import silent
from rcad.data.dataset import Split
from rcad.errors import InputError
from rcad.loss.likelihoods import Gaussian
from rcad.loss.methods import compose, erm, gaussian, rcad
from rcad.paper import boundaries, moons, uci
from rcad.paper.moons import Cell, bayes_accuracy, examples
from rcad.paper.record import Study, as_stored, finished, refuse_to_replace_larger
from rcad.paper.stacked_tuning import Arm, Candidate, Fold, Job, Protocol, best, fit, places, tune
from rcad.paper.targets import TARGETS
from rcad.stacked.model import Layout, StackedMLP
from rcad.stacked.train import Examples, StackedProblem, train_stacked

PROTOCOL = Protocol("adamw", 1e-2, 8, 6, (5,))


def drawn(seed: int, rows: int = 24) -> Fold:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows + 8, 3, generator=generator)
    y = x[:, 0] + 0.1 * torch.randn(rows + 8, generator=generator)
    return Fold(x[:rows], y[:rows], x[rows:], y[rows:], 0, 2.0)


def stops(*epochs: int) -> tuple[Candidate, ...]:
    return tuple(Candidate({"epochs": e}, erm(), epochs=e) for e in epochs)


def test_each_job_is_measured_on_its_own_fold_at_its_own_epoch() -> None:
    folds = [drawn(0), drawn(1)]
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
    folds = [drawn(0), drawn(1)]
    jobs = [Job(one, k, k) for one in stops(2, 5) for k in (1, 0)]
    together = fit(jobs, folds, PROTOCOL)
    steps: list[tuple[int, int]] = []
    monkeypatch.setattr("rcad.paper.stacked_tuning.STACKED_NUMBERS", 1)
    apart = fit(jobs, folds, PROTOCOL, lambda done, total: steps.append((done, total)))
    assert apart.metrics["nll"] == pytest.approx(together.metrics["nll"], abs=1e-5)
    assert steps[-1][0] <= steps[-1][1]
    assert steps == sorted(steps)


def test_the_best_on_each_fold_is_chosen_and_never_a_run_that_diverged() -> None:
    scores, chosen = tune(Arm("erm", stops(6, 3, 1)), [drawn(k) for k in range(3)], PROTOCOL, "nll")
    assert chosen == [row.index(min(row)) for row in scores]
    assert best([math.nan, 3.0, 2.0, 2.0, -math.inf], "nll") == 2
    assert best([math.nan, 3.0, 2.0, 3.0], "accuracy") == 1
    assert best([math.nan, math.inf], "nll") == 0
    wild = replace(PROTOCOL, optimizer="sgd", lr=1e30)
    values = fit([Job(stops(6)[0], 0, 0)], [drawn(0)], wild).metrics["nll"]
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


SMOKE = uci.SCALES["smoke"]


@pytest.fixture(scope="module")
def made() -> Study:
    return uci.run(SMOKE, None, silent)


def test_scales_come_from_the_training_rows() -> None:
    data = uci.synthetic()
    train, held = np.arange(40), np.arange(40, 60)
    fold = uci.fold(data, train, held)
    x, y = data.train.x[train].astype(np.float64), data.train.y[train].astype(np.float64)
    assert fold.x.numpy() == pytest.approx((x - x.mean(0)) / x.std(0), abs=1e-5)
    assert fold.held_x.numpy() == pytest.approx((data.train.x[held] - x.mean(0)) / x.std(0), abs=1e-5)
    assert fold.held_y.numpy() == pytest.approx((data.train.y[held] - y.mean()) / y.std(), abs=1e-5)
    assert fold.scale == pytest.approx(y.std(), abs=1e-6)


def test_test_rows_change_the_score_and_nothing_else() -> None:
    settings = replace(SMOKE, splits=2)
    data = uci.synthetic(splits=2)
    # Both splits train on the same rows, so that the others can be spoilt.
    train, test = np.arange(50), np.arange(50, 60)
    spoilt = data.train.y.copy()
    spoilt[test] += 5
    data = replace(data, standard_splits=((train, test),) * 2)
    sets = (replace(data, train=Split(data.train.x, y)) for y in (data.train.y, spoilt))
    a, b = (uci.tune_and_refit(one, settings, silent) for one in sets)
    assert a["tuning"] == b["tuning"]
    for name in a["methods"]:
        assert min(b["methods"][name]["nll"]) > max(a["methods"][name]["nll"])


def test_every_number_is_there(made: Study) -> None:
    assert {row for row, _ in made.places} == set(TARGETS["T7"].rows.values())
    assert made.details["rows"]["synthetic"] == {"train": 54, "test": 6, "validation": 11, "features": 4}
    assert all(len(place.runs) == SMOKE.splits for place in made.places.values())
    inner = uci._inner(uci.synthetic(), SMOKE, 0)
    assert (len(inner.x), len(inner.held_x)) == (54 - 11, 11)  # what tunes is not fitted
    # ERM's first configuration is the last epoch, which is what the fixed row does.
    tuned, fixed = (made.places[row, "synthetic"].values("nll") for row in ("ERM", "ERM, last epoch"))
    chosen = made.details["tuning"]["synthetic"]["erm"]["chosen"]
    for choice, one, other in zip(chosen, tuned, fixed, strict=True):
        assert (one == pytest.approx(other, abs=1e-6)) == (choice == 0)


def test_records_are_found_again_and_marked(made: Study, tmp_path: Path) -> None:
    path = tmp_path / "uci.json"
    settings = SMOKE.to_dict()
    made = replace(made, scale="smoke", details={**made.details, "lost": float("nan")})
    made.write(path)
    found = finished(path, settings, "smoke")
    assert found.details["lost"] is None
    assert found.to_dict() == made.to_dict()
    assert finished(path, settings, "full") is finished(path, replace(SMOKE, splits=2).to_dict(), "smoke") is None
    refuse_to_replace_larger(path, "smoke")
    replace(made, scale="full").write(path)
    with pytest.raises(InputError, match="pass another --out"):
        refuse_to_replace_larger(path, "small")
    path.write_text(path.read_text().replace('"scale": "full"', '"scale": "small"'))
    with pytest.raises(InputError, match=r"uci.json: expected values that match their checksum, .* run it again"):
        Study.read(path)
    assert as_stored({"x": 1 / 3}) == {"x": 0.3333333}


def test_weights_by_hand_and_the_plane_with_the_other_dimensions_at_zero() -> None:
    layout = Layout(1, (4, 3, 2))
    net = StackedMLP(layout, torch.randn(layout.parameters, generator=torch.Generator().manual_seed(0)))
    weight = net.weights[0][0].double().numpy()
    expected = np.sqrt((weight[:, :2] ** 2).mean() / (weight[:, 2:] ** 2).mean())
    assert moons.weight_ratio(net) == pytest.approx(expected, rel=1e-6)
    points = boundaries.grid(6)
    assert points.shape == (24, 2)
    assert points[0].tolist() == [boundaries.LIMITS[0], boundaries.LIMITS[2]]
    assert (points[1] - points[0] > 0).tolist() == [True, False]
    before = boundaries.probability(net, points, 4)
    net.weights[0][0, :, 2:] += 10
    assert torch.equal(boundaries.probability(net, points, 4), before)
    with torch.no_grad():
        expected = net.module(0)(torch.tensor([[*points[7].tolist(), 0.0, 0.0]])).softmax(1)[0, 1]
    assert float(before[7]) == pytest.approx(float(expected), abs=1e-6)


def test_tuning_and_test_examples_are_other_examples() -> None:
    folds = [moons.draw(Cell(5, 0.1), 20, 20, seed) for seed in (0, 1, moons.TUNING_SEED)]
    rows = torch.cat([part for fold in folds for part in (fold.x, fold.held_x)])
    assert len(torch.unique(rows, dim=0)) == 120
    rest = moons.draw(Cell(5, 0.1, "rest"), 20, 20, 0)
    assert not torch.equal(rest.x[:, :2], folds[0].x[:, :2])
    assert torch.equal(rest.x[:, 2:], folds[0].x[:, 2:])


def test_the_table() -> None:
    settings = moons.SCALES["smoke"]
    made = moons.run(settings, None, silent)
    everywhere, controlled = made.columns
    rows = {name: {row for row, column in made.places if column == name} for name in made.columns}
    few = {"ERM", "ERM, last epoch", "RCAD", "random direction"}
    assert rows == {everywhere: set(moons.LABELS.values()), controlled: few}
    assert made.ceiling == {everywhere: pytest.approx(100 * bayes_accuracy(0.1)), controlled: 100}
    assert all(len(place.runs) == settings.seeds for place in made.places.values())


def test_rcad_unlearns_the_noise_where_the_boundary_is_drawn() -> None:
    protocol = Protocol("sgd", 0.05, 64, 70, (64,))
    settings = boundaries.Settings(Cell(200, 0.1), 300, 500, (60, 70), 12, 3, protocol=protocol)
    made = boundaries.judge(boundaries.run(settings, None, silent))
    # Measured with three draws: ERM 85 to 89, RCAD 95 to 98 percent.
    for name in ("accuracy", boundaries.SHARE):
        rcad, erm = (made.places[row, "epoch 70"].values(name) for row in ("RCAD", "ERM"))
        assert len(rcad) == 3
        assert min(rcad) > max(erm) + 3
    first, second, longer, fits = made.claims
    assert (first.where, second.where, longer.where) == ("epoch 60", "epoch 70", "epochs 60 to 70")
    assert (fits.statement, fits.verdict) == ("ERM's training accuracy is 100%", "reproduced")
    assert second.gain["mean"] > 3


def test_the_stream_is_fixed() -> None:
    x = examples(Cell(7, 0.25), 50, 8)[0].numpy()
    # Rounded: the last bit of a logarithm or a cosine is the C library's.
    rounded = np.round(x.astype(np.float64), 3) + 0.0
    assert hashlib.sha256(rounded.astype("<f8").tobytes()).hexdigest()[:16] == "c75d1c63f130d77c"


@pytest.mark.parametrize(
    ("sigma", "expected"), [(0.02, 1.0), (0.1, 0.999357), (0.3, 0.914590), (0.75, 0.756836), (2.0, 0.619982)]
)
def test_bayes_accuracy(sigma: float, expected: float) -> None:
    assert bayes_accuracy(sigma) == pytest.approx(expected, abs=2e-6)
    assert bayes_accuracy(sigma, "rest") == 1
