"""Stacked replicas against separate runs: the same numbers for every method, whoever trains beside them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rcad.data.dataset import Dataset, Split
from rcad.loss.likelihoods import Categorical
from rcad.loss.methods import (
    Method,
    ada,
    adversarial_training,
    compose,
    confidence_penalty,
    erm,
    gaussian,
    label_smoothing,
    ls_on_adv,
    me_ada,
    rcad,
    rcad_random,
    rcad_text,
)
from rcad.loss.perturbations import GradientStep
from rcad.loss.terms import Term
from rcad.models.layers import MLP
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.stacked.train import Examples, StackedProblem, StackedResult, train_configs, train_stacked
from rcad.train.loop import Trainer
from rcad.train.task import derived, method_of, model_of, prepare

SEEDS = (3, 11, 4)
NUMBERS = ((0.3, 0.2), (0.8, 0.5), (1.5, 0.05))
EPOCHS, BATCH, COUNT, FEATURES = 5, 8, 37, 4  # 37 = 4 * 8 + 5: the last batch is smaller
ADAM = [OptimConfig(name="adamw", lr=lr, weight_decay=wd) for lr, wd in ((0.01, 0.0), (0.02, 0.1), (0.005, 0.01))]
SGD = [
    OptimConfig(lr=lr, weight_decay=wd, clip=clip)
    for lr, wd, clip in ((0.1, 0.0, 0.5), (0.03, 0.01, None), (0.05, 0.001, 0.1))
]
GROWTH = {"steps": 4, "step_size": 0.3, "epochs": 2, "rounds": 2, "levels": None}

Build = Callable[[float, float], Method]
CLASSIFIERS: dict[str, Build] = {
    "erm": lambda a, b: erm(),
    "label_smoothing": lambda a, b: label_smoothing(b),
    "label_smoothing others": lambda a, b: label_smoothing(b, "others"),
    "confidence_penalty": lambda a, b: confidence_penalty(b),
    "rcad": lambda a, b: rcad(a, b),
    "rcad raw": lambda a, b: rcad_text(a, b),
    "rcad linf": lambda a, b: rcad(a / 4, b, norm="linf"),
    "rcad steps": lambda a, b: rcad(a, b, steps=3, bounds=(-1.5, 1.5)),
    "rcad raw steps": lambda a, b: rcad(a, b, steps=2, norm="raw"),
    "rcad every": lambda a, b: rcad(a, b, every=2, measure="uniform_cross_entropy"),
    "rcad_random": lambda a, b: rcad_random(a, b),
    "rcad_random linf": lambda a, b: rcad_random(a / 4, b, "linf", (-1.0, 1.0)),
    "rcad_random every": lambda a, b: rcad_random(a, b, every=2, measure="uniform_cross_entropy"),
    "confidence_penalty every": lambda a, b: confidence_penalty(b, "uniform_cross_entropy", 2),
    "fgsm": lambda a, b: adversarial_training(a / 4, bounds=(-1.0, 1.0)),
    "fgsm l2": lambda a, b: adversarial_training(a, "l2", None),
    "ls_on_adv": lambda a, b: ls_on_adv(a, b),
    "ls_on_adv others": lambda a, b: ls_on_adv(a, b, "linf", "others"),
    "smoothed rcad": lambda a, b: compose(label_smoothing(b), rcad(a, b)),
    "smoothed rcad, plain direction": lambda a, b: compose(
        label_smoothing(b), Method(extra=(Term("plain", "negative_entropy", b, GradientStep(a, "raw", loss="plain")),))
    ),
    "two penalties": lambda a, b: compose(confidence_penalty(b), rcad(a, b, norm="raw")),
    "a clean loss of its own": lambda a, b: compose(
        Method(clean=(Term("nll", weight=2.0, likelihood=Categorical(b)),)), rcad_text(a, b)
    ),
    "a clean loss of weight zero": lambda a, b: compose(
        Method(clean=(Term("nll", weight=0.1 * (a - 0.3)),)), rcad_text(a, b)
    ),
    "ada": lambda a, b: ada(gamma=a, **GROWTH),
    "me_ada": lambda a, b: me_ada(eta=b, gamma=a, **GROWTH),
    "me_ada with rcad": lambda a, b: compose(me_ada(eta=b, **GROWTH), rcad(a, b)),
}
REGRESSIONS: dict[str, Build] = {
    "erm": lambda a, b: gaussian(),
    "confidence_penalty": lambda a, b: compose(gaussian(), confidence_penalty(b)),
    "rcad": lambda a, b: compose(gaussian(), rcad(a, b)),
    "rcad uncapped": lambda a, b: compose(gaussian(None), rcad(a, b)),
    "rcad raw": lambda a, b: compose(gaussian(), rcad_text(a, b)),
    "rcad linf": lambda a, b: compose(gaussian(), rcad(a / 4, b, norm="linf")),
    "rcad_random": lambda a, b: compose(gaussian(), rcad_random(a, b)),
    "fgsm": lambda a, b: compose(gaussian(), adversarial_training(a / 4, "l2", None)),
    "me_ada": lambda a, b: compose(gaussian(), me_ada(eta=b, gamma=a, **GROWTH)),
}


def problem(classes: int, dtype: torch.dtype = torch.float64, replicas: int = 3) -> StackedProblem:
    """Blobs, or a bent plane with noise; each replica has its own."""
    draw = torch.Generator().manual_seed(0)
    sets = []
    for count in (COUNT, 20):
        x = torch.randn(replicas, count, FEATURES, generator=draw, dtype=dtype)
        noise = torch.randn(replicas, count, generator=draw, dtype=dtype)
        score = x[..., 0] + x[..., 1].abs() + 0.3 * noise
        y = (score > 0.3).long() + (score > 1.3).long() if classes else (score - 0.8) / 1.2
        sets.append(Examples(x, y))
    scale = None if classes else torch.tensor([2.0, 5.0, 0.5], dtype=torch.float64)[:replicas]
    return StackedProblem(sets[0], classes, sets[1], scale)


def single(data: StackedProblem, r: int, method: Method, optim: OptimConfig, seed: int) -> nn.Module:
    """An ordinary run: torch's optimizer, the package's criterion, the engine's streams."""
    x, y = data.train.x[r], data.train.y[r]
    torch.manual_seed(derived(seed, "weights"))
    net = MLP(num_outputs=data.outputs, in_shape=(FEATURES,), hidden=(7, 6)).to(x)
    if optim.name == "adamw":
        optimizer: Any = torch.optim.AdamW(net.parameters(), lr=optim.lr, weight_decay=optim.weight_decay)
    else:
        optimizer = torch.optim.SGD(
            net.parameters(), optim.lr, optim.momentum, nesterov=optim.nesterov, weight_decay=optim.weight_decay
        )
    criterion = method.criterion(units="input")
    for epoch in range(EPOCHS):
        noise = torch.Generator().manual_seed(derived(seed, "noise", epoch))
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(derived(seed, "batches", epoch)))
        for index in order.split(BATCH):
            optimizer.zero_grad()
            criterion.backward(net, x[index], y[index], generator=noise)
            if optim.clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), optim.clip)
            optimizer.step()
        if method.growth is not None and method.growth.due(epoch + 1):
            new_x, new_y = method.growth.grow(net, x, y, criterion.loss.likelihood)
            x, y = torch.cat([x, new_x]), torch.cat([y, new_y])
    return net


def stacked(data: StackedProblem, methods: Any, optim: Any, **options: Any) -> StackedResult:
    shape = {"seeds": SEEDS, "epochs": EPOCHS, "batch_size": BATCH, "hidden": (7, 6)}
    return train_stacked(data, methods, optim=optim, **{**shape, **options})


def distance(ours: dict[str, Tensor], net: nn.Module) -> float:
    """The largest difference between two sets of weights, relative to each tensor's largest entry."""
    theirs = net.state_dict()
    assert ours.keys() == theirs.keys()
    return max(float((ours[k] - v).abs().max() / v.abs().max()) for k, v in theirs.items())


@pytest.mark.parametrize(
    ("build", "classes", "optim"),
    [
        *(pytest.param(build, 3, ADAM, id=name) for name, build in CLASSIFIERS.items()),
        *(pytest.param(build, 0, SGD, id=f"regression, {name}") for name, build in REGRESSIONS.items()),
    ],
)
def test_replicas_equal_separate_runs(build: Build, classes: int, optim: Sequence[OptimConfig]) -> None:
    data, methods = problem(classes), [build(*numbers) for numbers in NUMBERS]
    result = stacked(data, methods, optim)
    assert not result.diverged.any()
    for r, (method, seed) in enumerate(zip(methods, SEEDS, strict=True)):
        assert distance(result.model.replica(r), single(data, r, method, optim[r], seed)) < 1e-10


def config(method: tuple[Any, ...], seed: int, *, lr: float, regression: bool) -> RunConfig:
    return RunConfig(
        data=DataConfig(name="table", validation=0.2),
        model=ModelConfig(name="mlp", hidden=(9,)),
        method=method,
        optim=OptimConfig(
            lr=lr, weight_decay=1e-3, clip=1.0, schedule="multistep" if regression else "cosine", milestones=(2,)
        ),
        train=TrainConfig(epochs=EPOCHS, batch_size=16, selection="best"),
        seed=seed,
    )


@pytest.mark.parametrize("regression", [True, False])
@pytest.mark.parametrize("name", ["rcad", "rcad_random", "me_ada"])
def test_configs_equal_the_engine(name: str, regression: bool) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 4)).astype(np.float32)
    score = x[:, 0] + np.abs(x[:, 1]) + 0.3 * draw.normal(size=90)
    y = (10 * score + 3).astype(np.float32) if regression else (score > 0.8).astype(np.int64)
    task: Any = "regression" if regression else "classification"
    data = Dataset("table", task, Split(x, y), classes=() if regression else ("a", "b"))
    values = [
        (("epochs", 2), ("step_size", a / 20), ("levels", None)) if name == "me_ada" else (("alpha", a), ("lam", b))
        for a, b in NUMBERS
    ]
    configs = [
        config(((name, v),), seed, lr=lr, regression=regression)
        for v, seed, lr in zip(values, SEEDS, (0.05, 0.02, 0.01), strict=True)
    ]
    problems = [prepare(c, data, torch.device("cpu")) for c in configs]
    result = train_configs(configs, problems)
    assert not result.diverged.any()
    for r, (c, p) in enumerate(zip(configs, problems, strict=True)):
        trainer = Trainer(c, p, method_of(c, p), model_of(c, p))
        trainer.fit()
        trainer.restore_selected()
        assert int(result.best_epoch[r]) == trainer.best_epoch
        assert distance(result.model.replica(r), trainer.model) < 1e-5
        for k, theirs in enumerate(trainer.rows):
            ours = {name: float(curve[r, k]) for name, curve in result.curves.items()}
            kept = {name: value for name, value in theirs.items() if name not in ("epoch", "lr", "seconds")}
            assert ours == pytest.approx(kept, rel=1e-5)


@pytest.mark.parametrize("name", ["rcad_random", "me_ada", "smoothed rcad"])
def test_a_replica_does_not_depend_on_its_neighbours(name: str) -> None:
    data, methods = problem(3, torch.float32), [CLASSIFIERS[name](*numbers) for numbers in NUMBERS]
    together = stacked(data, methods, ADAM)
    alone = stacked(data.take(torch.tensor([1])), methods[1], ADAM[1], seeds=SEEDS[1:2])
    in_pairs = stacked(data, methods, ADAM, group=2)
    for other, r in ((alone, 0), (in_pairs, 1)):
        assert distance(together.model.replica(1), other.model.module(r)) < 1e-6
        assert torch.allclose(other.curves["val_nll"][r], together.curves["val_nll"][1], rtol=1e-6)


def test_shared_data_is_the_same_data_for_all() -> None:
    data = problem(3)
    one = data.train.x[0], data.train.y[0]
    shared = StackedProblem(Examples(*one), 3, data.val.take(torch.tensor([0])))
    methods = [rcad(a, b) for a, b in NUMBERS]
    result = stacked(shared, methods, ADAM)
    copies = StackedProblem(Examples(one[0].repeat(3, 1, 1), one[1].repeat(3, 1)), 3)
    assert torch.equal(result.model.flat, stacked(copies, methods, ADAM).model.flat)
    assert (result.model.replica(0)["fc.weight"] != result.model.replica(1)["fc.weight"]).all()


@pytest.mark.parametrize(("name", "wild"), [("sgd", 1e4), ("adamw", 1e200)])
def test_a_diverged_replica_stops_and_leaves_the_others_alone(name: Any, wild: float) -> None:
    data = problem(0)
    methods = [compose(gaussian(None), rcad(0.5, lam)) for lam in (0.3, 40.0, 0.3)]
    optim = [OptimConfig(name=name, lr=lr) for lr in (0.05, wild, 0.05)]
    result = stacked(data, methods, optim, snapshots=(5,), may_diverge=True)
    assert result.diverged.tolist() == [False, True, False]
    stopped = int(result.diverged_at[1])
    assert 1 <= stopped < EPOCHS
    assert result.curves["loss"][1, : stopped - 1].isfinite().all()
    assert result.curves["loss"][1, stopped:].isnan().all()
    for r in (0, 2):
        assert distance(result.model.replica(r), single(data, r, methods[r], optim[r], SEEDS[r])) < 1e-10
        assert distance(result.snapshots[5].replica(r), result.model.module(r)) == 0
    assert result.snapshots[5].replica(1)["fc.bias"].isnan().all()
    all_gone = stacked(data, methods[1], optim[1], may_diverge=True)
    assert all_gone.diverged.all()


def test_reports_snapshots_and_progress() -> None:
    data, seen = problem(0), []
    result = stacked(data, [gaussian()] * 3, SGD, snapshots=(2,), progress=lambda *done: seen.append(done))
    assert seen == [(3 * k, 15) for k in range(1, 6)]
    assert not stacked(data, [gaussian()] * 3, SGD, epochs=1, report=False).curves
    early = stacked(data, [gaussian()] * 3, SGD, epochs=2)
    assert torch.equal(result.snapshots[2].flat, early.model.flat)
    assert torch.equal(result.curves["loss"][:, :2], early.curves["loss"])


def test_what_is_not_finite_is_marked_even_at_the_very_end() -> None:
    data = replace(problem(0, torch.float32), val=None)
    jump = [OptimConfig(lr=0.05), OptimConfig(lr=100.0, weight_decay=3e38), OptimConfig(lr=0.05)]
    result = stacked(data, [gaussian()] * 3, jump, epochs=1, batch_size=COUNT)
    assert result.curves["loss"].isfinite().all()
    assert result.diverged_at.tolist() == [0, 1, 0]
