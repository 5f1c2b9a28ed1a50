"""T8 and F7: weights, boundaries and claims against what can be said without training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rcad.data.toys import bayes_accuracy
from rcad.paper import boundaries, moons, moons_claims, moons_report
from rcad.paper.stacked_tuning import Protocol
from rcad.stacked.model import Layout, StackedMLP


def silent(what: str, done: int, total: int) -> None:
    pass


def model(d: int = 4, hidden: int = 3) -> StackedMLP:
    layout = Layout(1, (d, hidden, 2))
    return StackedMLP(layout, torch.randn(layout.parameters, generator=torch.Generator().manual_seed(0)))


def test_weight_ratio_by_hand() -> None:
    net = model()
    weight = net.weights[0][0].double().numpy()
    expected = np.sqrt((weight[:, :2] ** 2).mean() / (weight[:, 2:] ** 2).mean())
    assert moons.weight_ratio(net) == pytest.approx(expected, rel=1e-6)
    net.weights[0][0, :, :2] *= 3
    assert moons.weight_ratio(net) == pytest.approx(3 * expected, rel=1e-6)


def test_the_plane_has_the_other_dimensions_at_zero() -> None:
    net = model()
    points = boundaries.grid(6)
    assert points.shape == (24, 2)
    assert points[0].tolist() == [boundaries.LIMITS[0], boundaries.LIMITS[2]]
    assert points[1, 0] > points[0, 0]
    assert points[1, 1] == points[0, 1]
    before = boundaries.probability(net, points, 4)
    net.weights[0][0, :, 2:] += 10
    assert torch.equal(boundaries.probability(net, points, 4), before)
    with torch.no_grad():
        expected = net.module(0)(torch.tensor([[*points[7].tolist(), 0.0, 0.0]])).softmax(1)[0, 1]
    assert float(before[7]) == pytest.approx(float(expected), abs=1e-6)


def test_tuning_and_test_examples_are_other_examples() -> None:
    cell = moons.Cell(5, 0.1)
    folds = [moons.draw(cell, 20, 20, seed) for seed in (0, 1, moons.TUNING_SEED)]
    rows = torch.cat([part for fold in folds for part in (fold.x, fold.held_x)])
    assert len(torch.unique(rows, dim=0)) == 120
    rest = moons.draw(moons.Cell(5, 0.1, "rest"), 20, 20, 0)
    assert not torch.equal(rest.x[:, :2], folds[0].x[:, :2])
    assert torch.equal(rest.x[:, 2:], folds[0].x[:, 2:])


def test_the_table() -> None:
    settings = moons.SCALES["smoke"]
    results = moons.run(settings, silent)
    everywhere, controlled = results["cells"].values()
    assert set(everywhere["methods"]) == set(moons_claims.LABELS)
    assert set(controlled["methods"]) == {"erm", "erm_fixed", "rcad", "rcad_random"}
    assert everywhere["bayes"] == pytest.approx(100 * bayes_accuracy(0.1))
    assert controlled["bayes"] == 100
    assert [row["n"] for row in results["sweep"]] == [20, 40]
    assert np.asarray(results["weight_ratio"]["rcad"]).shape == (3, 3)
    for one in everywhere["methods"].values():
        assert len(one["accuracy"]) == settings.seeds


def cell(d: int = 625, sigma: float = 0.1, noise: str = "all", **shift: float) -> dict[str, Any]:
    noisy = np.random.default_rng(0).normal(0, 0.5, (len(moons_claims.LABELS), 5))
    methods = {
        name: {"accuracy": (80 + shift.get(name, 0.0) + row).tolist()}
        for name, row in zip(moons_claims.LABELS, noisy, strict=True)
    }
    return {"d": d, "sigma": sigma, "noise": noise, "bayes": 75.9, "methods": methods}


def test_claims_are_the_printed_signs() -> None:
    claims = {one.statement: one for one in moons_claims.claims({"a": cell(rcad=10.0, fgsm_linf=15.0)})}
    assert claims["RCAD is more accurate than ERM"].published == pytest.approx(14.5)
    assert claims["RCAD is more accurate than ERM"].verdict == "reproduced"
    assert claims["ERM is more accurate than FGSM linf"].published == pytest.approx(1.6)
    assert claims["ERM is more accurate than FGSM linf"].verdict == "opposite"
    assert claims["RCAD is more accurate than FGSM linf"].verdict == "opposite"


def test_other_noise_has_no_published_row() -> None:
    claims = moons_claims.claims({"a": cell(noise="rest", rcad=10.0)})
    assert all(one.published is None for one in claims)


def test_accuracies_above_the_best_possible_are_named() -> None:
    assert "RCAD 89.6" in moons_report._impossible({"a": cell(sigma=0.75)})
    assert moons_report._impossible({"a": {**cell(sigma=0.75), "bayes": 99.0}}) == ""


def test_rcad_unlearns_the_noise_where_the_boundary_is_drawn() -> None:
    settings = boundaries.Settings(
        moons.Cell(200, 0.1), 300, 500, (60, 70), 12, 2, protocol=Protocol("sgd", 0.05, 64, 70, (64,))
    )
    panels = {(p["method"], p["epoch"]): p for p in boundaries.run(settings, silent)["panels"]}
    assert len(panels) == 4
    # Measured with three draws: ERM 85 to 89, RCAD 95 to 98 percent.
    for name in ("validation_accuracy", "arc_accuracy"):
        rcad, erm = panels["rcad", 70][name], panels["erm", 70][name]
        assert len(rcad) == 2
        assert min(rcad) > max(erm) + 3
    first, second, longer, fits = moons_claims.boundary_claims(list(panels.values()))
    assert (first.where, second.where, longer.where) == ("epoch 60", "epoch 70", "epochs 60 to 70")
    assert fits.to_dict()["rule"] == "reproduced: in every draw"
    assert all(len(panel["training_accuracy"]) == 2 for panel in panels.values())
    assert second.gain is not None
    assert second.gain.mean > 3


def test_what_the_text_says_of_erm_as_training_goes_on() -> None:
    def panel(method: str, epoch: int, **numbers: list[float]) -> dict[str, object]:
        return {"method": method, "epoch": epoch, "arc_accuracy": [90.0, 91.0, 92.0], **numbers}

    def judged(late: list[float], fitted: list[float]) -> list[str]:
        panels = [
            panel(name, epoch, validation_accuracy=[90.0, 90.5, 90.2]) for name in ("rcad", "erm") for epoch in (1, 3)
        ]
        panels[-1] |= {"validation_accuracy": late, "training_accuracy": fitted}
        return [claim.verdict for claim in moons_claims.boundary_claims(panels)[2:]]

    assert judged([88.0, 88.6, 88.1], [100.0] * 3) == ["reproduced", "reproduced"]
    assert judged([92.0, 92.6, 92.1], [100.0, 99.9, 100.0]) == ["opposite", "not reproduced"]
