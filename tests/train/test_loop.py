"""The loop against a hand-written one, and what it does between epochs."""

import copy
import functools
import math
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

import tiny_runs
from equal import same_parameters
from one_line import fails_in_one_line, refusals
from rcad import suggest_alpha
from rcad.data.dataset import Dataset, Split
from rcad.loss.likelihoods import Gaussian
from rcad.loss.method_rows import parse_method
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig
from rcad.runs.files import DamagedError
from rcad.stacked.train import train_configs
from rcad.train.checkpoint import load_tensors, restore_trainer, save_tensors, save_trainer
from rcad.train.loop import Trainer, learning_rate
from rcad.train.task import channel_statistics, derived, method_of, model_of, prepare
from tiny_runs import CPU, dataset, trainer

STEPS = OptimConfig(lr=0.05, weight_decay=1e-3, clip=1.0, schedule="multistep", milestones=(2,))


def table(count: int = 90) -> Dataset:
    x = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    return Dataset("table", "regression", Split(x, (10 * x.sum(1) + 3).astype(np.float32)))


def config(method: str = "erm", *, dropout: Any = None, optim: OptimConfig = STEPS, **train: Any) -> RunConfig:
    made = tiny_runs.config(method, **{"epochs": 4, **train})
    return replace(made, optim=optim, model=ModelConfig(name="small_cnn", width=4, dropout=dropout))


@functools.cache
def whole_run(settings: RunConfig) -> Trainer:
    """The run without a pause. Nobody changes it: tests share it."""
    run = trainer(settings)
    assert run.fit() == "done"
    run.restore_selected()
    return run


def test_the_loop_is_the_hand_written_one_bit_for_bit():
    settings = config(ema=0.8, accumulate=2, optim=replace(STEPS, schedule="cosine"))
    ours = trainer(settings)
    ours.fit()
    problem = prepare(settings, dataset(), CPU)
    net = model_of(settings, problem)
    average = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    x, y = problem.train
    losses: list[float] = []
    for epoch in range(4):
        losses.append(0.0)
        generator = torch.Generator().manual_seed(derived(0, "batches", epoch))
        batches = torch.randperm(len(y), generator=generator).split(16)
        assert len(batches) % 2  # the last step of an epoch has one batch
        for first in range(0, len(batches), 2):
            # The rate of a step is that of its first batch.
            optimizer.param_groups[0]["lr"] = learning_rate(settings.optim, 4, epoch + first / len(batches))
            optimizer.zero_grad()
            for index in (group := batches[first : first + 2]):
                loss = nn.functional.cross_entropy(net(x[index].float() / 255), y[index])
                (loss / len(group)).backward()
                losses[-1] += loss.item() * len(index) / len(y)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            for kept, value in zip(average.parameters(), net.parameters(), strict=True):
                kept.data = 0.8 * kept.data + 0.2 * value.data
    same_parameters(ours.model, net)
    same_parameters(ours.average, average, rtol=1e-5, atol=1e-6)
    assert [row["loss"] for row in ours.rows] == pytest.approx(losses)


@pytest.mark.parametrize(
    "settings",
    [
        config("rcad"),
        config("data_augmentation + mixup + rcad_random", ema=0.9, accumulate=2),
        config("rcad_released", selection="last"),
        config("rcad_text", dropout=0.5),
        config("two_views", optim=OptimConfig(name="adamw", lr=0.01)),
        replace(config(), method=(("me_ada", (("epochs", 1), ("rounds", 2), ("steps", 2))),)),
    ],
    ids=lambda c: c.method[-1][0],
)
@pytest.mark.parametrize("pauses", [1, 7])
def test_a_pause_between_any_steps_changes_nothing(settings, pauses, tmp_path):
    part = trainer(settings)
    for _ in range(90):
        calls = iter(range(1, 1000))
        torch.manual_seed(99)  # whatever happens to the global generator in between
        if (tmp_path / "saved").exists():
            part = trainer(settings)
            restore_trainer(part, tmp_path / "saved")
        if part.fit(pause=lambda calls=calls: next(calls) > pauses) == "done":
            break
        save_trainer(part, tmp_path / "saved")
    assert part.epoch == 4
    part.restore_selected()
    whole = whole_run(settings)
    assert len(whole.y) == len(whole.problem.train[1]) * (4 if settings.method[0][0] == "me_ada" else 1)
    same_parameters(part.model, whole.model)
    same_parameters(part.selected, whole.selected)
    assert [{**row, "seconds": 0.0} for row in part.rows] == [{**row, "seconds": 0.0} for row in whole.rows]


def test_a_checkpoint_with_half_a_memory_or_a_billion_threads_is_refused(tmp_path):
    settings = replace(config(), optim=OptimConfig(name="adamw", lr=0.01))
    part, fresh, saved = trainer(settings), trainer(settings), tmp_path / "saved"
    part.fit(pause=lambda: part.step > 0)
    save_trainer(part, saved)
    tensors, meta = load_tensors(saved)
    half = {name: one for name, one in tensors.items() if name != "optim.0.exp_avg"}
    for left, changed, says in ((half, {}, "not whole"), (tensors, {"threads": 10**9}, "1000000000 threads")):
        save_tensors(saved, left, meta | changed)
        with pytest.raises(DamagedError, match=says):
            restore_trainer(fresh, saved)
        assert fresh.step == 0
        same_parameters(fresh.model, trainer(settings).model)


def test_patience_ends_a_run_early():
    run = trainer(config(epochs=50, patience=2, optim=replace(STEPS, lr=1e-12)))
    assert run.fit() == "done"
    assert run.epoch < 10


def test_pixels_and_real_targets_are_scaled_by_those_of_the_training_examples():
    x = np.random.default_rng(0).integers(0, 256, (5000, 3, 4, 4)).astype(np.uint8)
    np.testing.assert_allclose(channel_statistics(x), ((x / 255).mean((0, 2, 3)), (x / 255).std((0, 2, 3))))
    problem = prepare(told("erm"), table(), CPU)
    y = problem.train[1].double()
    assert (y.mean().item(), y.std().item()) == pytest.approx((0.0, 1.0), abs=0.01)
    assert problem.target_scale == pytest.approx(20.0, rel=0.2)


test_a_method_that_does_not_fit_the_data_is_named = refusals(
    (config("bernoulli"), dataset(), "expected a method for one target per example, but got 'bernoulli'"),
    (config("adversarial_training"), table(), "say so, e.g. adversarial_training(bounds=none)"),
    of=lambda settings, data: method_of(settings, prepare(settings, data, CPU)),
)


def test_alpha_auto_is_measured_on_the_training_examples():
    settings = replace(config(), method=parse_method("rcad(alpha='auto', lam='auto')"))
    problem = prepare(settings, dataset(), CPU)
    by_images, by_table = (method_of(settings, one).terms[-1] for one in (problem, prepare(settings, table(), CPU)))
    assert (by_images.where.alpha, by_images.weight) == (pytest.approx(suggest_alpha(*problem.train), abs=1e-4), 0.1)
    assert (by_table.where.alpha, by_table.weight) == (pytest.approx(0.3, rel=0.05), 0.3)
    with fails_in_one_line("expected alpha=auto for one of rcad"):
        method_of(replace(settings, method=parse_method("mixup(alpha='auto')")), problem)


def test_batches_are_numbered_through_the_run():
    run = trainer(config("rcad", epochs=3, accumulate=2))
    run.criterion.backward = backward = Mock(wraps=run.criterion.backward)
    run.fit()
    assert [call.kwargs["step"] for call in backward.call_args_list] == [*range(3 * math.ceil(len(run.y) / 16))]


def test_cosine_ends_at_zero_after_a_linear_warm_up_and_multistep_drops_at_its_milestones():
    optim = OptimConfig(lr=0.2, schedule="cosine", warmup=5)
    rates = [learning_rate(optim, 25, progress) for progress in (2.5, 5, 10, 25)]
    assert rates == pytest.approx([0.1, 0.2, 0.1 * (1 + math.cos(math.pi / 4)), 0.0], abs=1e-12)
    assert 0 < learning_rate(optim, 25, 0) < 0.001
    dropped = [learning_rate(STEPS, 4, progress) for progress in (0, 1.9, 2, 4)]
    assert dropped == pytest.approx([0.05, 0.05, 0.005, 0.005])


def told(method: str) -> RunConfig:
    """A network for a table, trained by it."""
    data, model = DataConfig(name="synthetic", validation=0.0), ModelConfig(name="mlp", hidden=(4,))
    return replace(config(epochs=1, selection="last"), data=data, model=model, method=parse_method(method))


@pytest.mark.parametrize("method", ["rcad(alpha=1, lam=0.9)", "rcad(alpha=1, lam=0.5) + confidence_penalty(lam=0.4)"])
def test_an_entropy_without_a_cap_is_refused_where_too_much_is_paid_for_it(method):
    chosen = told(f"gaussian(cap=none) + {method}")
    problem = prepare(chosen, table(), CPU)
    for refused in (lambda: method_of(chosen, problem), lambda: train_configs([chosen], [problem])):
        with fails_in_one_line("expected a cap on the Gaussian's entropy, or lam < 0.9, but got cap=None and lam="):
            refused()
    assert method_of(told(method), problem).likelihood == Gaussian()  # the engine's own is capped
    assert Gaussian().cap is not None
    assert method_of(told(f"gaussian(cap=0.0) + {method}"), problem).name
    assert method_of(told("gaussian(cap=none) + rcad(alpha=0.3, lam=0.89)"), problem).name


def test_the_examples_go_by_the_run_s_seed_unless_data_have_their_own():
    def found(seed, of_data):
        chosen = replace(config(), seed=seed, data=DataConfig(name="images[:60]", validation=0.2, seed=of_data))
        return prepare(chosen, dataset(), CPU).fingerprint

    assert found(0, None) != found(1, None)
    assert found(0, 7) == found(1, 7) == found(7, None)
    assert found(0, 0) == found(0, None) != found(0, 7)
