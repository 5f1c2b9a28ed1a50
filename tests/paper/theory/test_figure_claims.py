"""What the paper's figure claims, over 200 training sets: the direction of each claim that holds, with a margin."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rcad.paper.theory.problem import final, norms, rcad_step
from rcad.paper.theory.simulation import (
    LARGE,
    SMALL,
    Settings,
    Trajectories,
    attracting_alphas,
    reading_gap,
    run_finals,
    run_trajectories,
    step_sizes,
    sweep,
    together,
    variants,
    window,
)

BASE = Settings(alphas=(LARGE,))


@pytest.fixture(scope="module")
def study() -> Trajectories:
    return run_trajectories(Settings(alphas=(SMALL, 0.5, LARGE, 1.5, 2.0)))


def test_alpha_07_beats_erm_in_every_draw_and_forgets_the_noise(study: Trajectories) -> None:
    erm, rcad = study.accuracy(study.erm[-1]), study.accuracy(study.path(LARGE)[-1])
    assert len(erm) == 200
    assert (rcad - erm).min() > 0.02
    assert 0.67 < erm.mean() < 0.695
    assert 0.95 < rcad.mean() < 0.97
    assert study.accuracy(study.path(0.5)[-1]).mean() > 0.98
    before, after = norms(study.erm[-1])[1].mean(), norms(study.path(LARGE)[-1])[1].mean()
    assert 0.70 < before < 0.75
    assert after < 0.4 * before
    true = norms(study.path(LARGE))[0]
    assert true[-1].mean() > 0.95
    fall = (true.cummax(0).values - true).amax(0)  # it rises to the eye, but not at every iteration
    assert (fall <= 0.01).double().mean() > 0.9
    assert (fall <= 1e-9).double().mean() < 0.1


@pytest.mark.parametrize(("alpha", "least", "share"), [(SMALL, 0.005, 0.57), (1.5, 0.01, 0.6), (2.0, 0.01, 0.95)])
def test_a_step_far_from_beta_is_worse_than_erm(study: Trajectories, alpha: float, least: float, share: float) -> None:
    loss = study.accuracy(study.erm[-1]) - study.accuracy(study.path(alpha)[-1])
    assert loss.mean() > least
    assert (loss > 0).double().mean() > share


@pytest.mark.parametrize("alpha", [0.5, 0.7])
def test_on_the_sphere_both_readings_agree(alpha: float) -> None:
    gap = reading_gap(BASE, alpha)
    assert 0 < gap["mean_accuracy_gap"] < 0.005
    assert gap["max_accuracy_gap"] < 0.05
    assert gap["mean_distance"] < 0.05


def test_on_the_sphere_the_readings_part_by_the_length_of_a_step_only() -> None:
    base = replace(BASE, draws=40)
    coarse = reading_gap(base, LARGE)["mean_distance"]
    fine = reading_gap(replace(base, rcad_lr=0.005, steps=1000), LARGE)["mean_distance"]
    assert fine < coarse / 4


def test_the_ball_with_constant_x_collapses(study: Trajectories) -> None:
    step = rcad_step(study.sample, 2.0, LARGE, projection="ball", reading="constant")
    w = study.erm[-1]
    lengths = []
    for _ in range(3):
        w = final(step, w, 300)
        lengths.append(w.norm(dim=-1))
    assert (w.norm(dim=-1) < 0.1).all()
    assert study.accuracy(w).mean() < 0.55
    # What is left is the size of a step: a tenth of the step leaves about a tenth.
    finer = final(rcad_step(study.sample, 2.0, LARGE, lr=0.005, projection="ball"), w, 300)
    assert finer.norm(dim=-1).mean() < lengths[-1].mean() / 5


def test_the_ball_with_moving_x_keeps_w_at_beta_over_alpha() -> None:
    (row,) = (v for v in variants(BASE, (LARGE,), (100,)) if (v["projection"], v["reading"]) == ("ball", "through"))
    assert abs(row["norm"] - 0.5 / 0.7) < 0.05
    assert row["accuracy"] > 0.98


def test_the_window_lies_around_beta() -> None:
    for beta in (0.25, 0.5, 1.0):
        found = window(beta, BASE)
        assert 0.8 * beta <= found["best_alpha"] <= 1.3 * beta
        assert found["best"] > found["erm"] + 0.03
        assert found["attracting"][0] < beta < found["attracting"][1]
        assert beta in found["helpful"]
        assert all(0.3 * beta < alpha < 5 * beta for alpha in found["helpful"])


def test_the_population_s_window_at_the_paper_s_numbers() -> None:
    low, high = attracting_alphas(BASE.problem) or (0, 0)
    assert 0.28 < low < 0.33
    assert 0.72 < high < 0.77


def test_sweeps_agree_with_single_runs() -> None:
    by_alpha = sweep("alpha", (0.01, 0.7), BASE)
    erm, rcad = run_finals(BASE)
    accuracy = BASE.problem.accuracy(rcad[0])
    assert by_alpha["rcad_accuracy"]["mean"][1] == pytest.approx(accuracy.mean().item(), abs=1e-5)
    assert by_alpha["rcad_accuracy"]["median"][1] == pytest.approx(accuracy.quantile(0.5).item(), abs=1e-5)
    assert by_alpha["rcad_accuracy"]["q05"][1] == pytest.approx(accuracy.quantile(0.05).item(), abs=1e-5)
    assert by_alpha["erm_noise"]["mean"][0] == pytest.approx(norms(erm)[1].mean().item(), abs=1e-5)
    assert by_alpha["better"] == [pytest.approx(0.35, abs=0.08), 1.0]


def test_more_data_and_fewer_noisy_features_help_both() -> None:
    by_n = sweep("n", (10, 20, 100), BASE)
    assert by_n["erm_accuracy"]["mean"] == sorted(by_n["erm_accuracy"]["mean"])
    assert by_n["rcad_accuracy"]["mean"] == sorted(by_n["rcad_accuracy"]["mean"])
    by_d = sweep("d", (2, 8, 64), BASE)
    assert by_d["erm_accuracy"]["mean"] == sorted(by_d["erm_accuracy"]["mean"], reverse=True)
    # With three times as many features as examples RCAD no longer helps.
    assert by_d["better"][1] > 0.95
    assert by_d["better"][2] < 0.05


def test_the_figure_s_claims_seldom_hold_together() -> None:
    large, half = together(BASE, LARGE), together(BASE, 0.5)
    assert large["together"] < 0.15
    assert 0.25 < half["together"] < 0.5
    assert large["together"] <= min(large["right"], large["capped"], large["poorer"])


def test_the_harm_of_a_tiny_step_depends_on_the_learning_rate() -> None:
    slow, usual = step_sizes(BASE, (0.01, 0.05), (100,))
    assert slow["small_better"] > 0.55 > 0.45 > usual["small_better"]
    assert min(slow["large_better"], usual["large_better"]) > 0.98


def test_everything_is_a_function_of_the_seed() -> None:
    small = replace(BASE, draws=10, steps=5)
    assert torch.equal(run_finals(small)[1], run_finals(small)[1])
    assert not torch.equal(run_finals(small)[1], run_finals(replace(small, seed=1))[1])
