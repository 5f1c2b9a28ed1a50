"""T8 and F7: where the moons lie, that they never change, and what is said of weights, boundaries and claims."""

import hashlib

import numpy as np
import pytest
import torch

from paper_records import silent
from rcad.paper import boundaries, moons
from rcad.paper.moons import Cell, bayes_accuracy, examples
from rcad.paper.stacked_tuning import Protocol
from rcad.stacked.model import Layout, StackedMLP


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


@pytest.mark.parametrize(("bayes", "named"), [(75.9, True), (99.0, False)])
def test_accuracies_above_the_best_possible_are_named(bayes: float, named: bool) -> None:
    cell = {"d": 625, "sigma": 0.75, "noise": "all", "bayes": bayes, "methods": {}, "tuning": {}}
    sizes = [{"n": 10, "draws": 1, "epochs": 1, "accuracy": {"erm": [1.0]}, "seconds": 1.0}]
    made = moons.describe(moons.Settings(), {"d=625, sigma=0.75, noise on all": cell}, sizes, {"epochs": []})
    assert any("RCAD 89.6, while no classifier exceeds 75.9" in note for note in made.notes) == named


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
