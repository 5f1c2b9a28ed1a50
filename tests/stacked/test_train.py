"""Stacked replicas against separate runs: the same numbers for every method, whoever trains beside them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from one_line import refusals
from rcad import methods
from rcad.data.dataset import Dataset, Split
from rcad.loss.likelihoods import Bernoulli, Categorical, Gaussian
from rcad.loss.methods import Method, compose, confidence_penalty, erm, gaussian, label_smoothing, rcad, rcad_random
from rcad.loss.perturbations import GradientStep, ProjectedAscent
from rcad.loss.terms import Term
from rcad.models.layers import MLP
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.stacked.method import Part, StackedMethod, StackedStep, nll_slopes, pulled
from rcad.stacked.model import Layout, Passes, StackedMLP
from rcad.stacked.train import Examples, StackedProblem, StackedResult, train_configs, train_stacked, why_not
from rcad.train.loop import Trainer
from rcad.train.task import derived, method_of, model_of, prepare

SEEDS = (3, 11, 4)
NUMBERS = ((0.3, 0.2), (0.8, 0.5), (1.5, 0.05))
EPOCHS, BATCH, COUNT, FEATURES = 5, 8, 37, 4  # 37 = 4 * 8 + 5: the last batch is smaller
ADAM = [OptimConfig(name="adamw", lr=lr, weight_decay=wd) for lr, wd in ((0.01, 0.0), (0.02, 0.1), (0.005, 0.01))]
SGD = [OptimConfig(lr=r, weight_decay=d, clip=c) for r, d, c in ((0.1, 0, 0.5), (0.03, 0.01, None), (0.05, 0.001, 0.1))]
GROWTH = {"steps": 4, "step_size": 0.3, "epochs": 2, "rounds": 2, "levels": None}

Build = Callable[[float, float], Method]
CLASSIFIERS: dict[str, Build] = {
    "erm": lambda a, b: erm(),
    "label_smoothing": lambda a, b: label_smoothing(b),
    "label_smoothing others": lambda a, b: label_smoothing(b, "others"),
    "confidence_penalty": lambda a, b: confidence_penalty(b),
    "rcad": lambda a, b: rcad(a, b),
    "rcad raw": lambda a, b: methods.rcad_text(a, b),
    "rcad linf": lambda a, b: rcad(a / 4, b, norm="linf"),
    "rcad steps": lambda a, b: rcad(a, b, steps=3, bounds=(-1.5, 1.5)),
    "rcad every": lambda a, b: rcad(a, b, every=2, measure="uniform_cross_entropy"),
    "rcad_random": lambda a, b: rcad_random(a, b),
    "rcad_random linf": lambda a, b: rcad_random(a / 4, b, "linf", (-1.0, 1.0)),
    "rcad_random every": lambda a, b: rcad_random(a, b, every=2, measure="uniform_cross_entropy"),
    "confidence_penalty every": lambda a, b: confidence_penalty(b, "uniform_cross_entropy", 2),
    "fgsm": lambda a, b: methods.adversarial_training(a / 4, bounds=(-1.0, 1.0)),
    "ls_on_adv": lambda a, b: methods.ls_on_adv(a, b),
    "ls_on_adv others": lambda a, b: methods.ls_on_adv(a, b, "linf", "others"),
    "smoothed rcad": lambda a, b: compose(label_smoothing(b), rcad(a, b)),
    "smoothed rcad, plain direction": lambda a, b: compose(
        label_smoothing(b), Method(extra=(Term("plain", "negative_entropy", b, GradientStep(a, "raw", loss="plain")),))
    ),
    "two penalties": lambda a, b: compose(confidence_penalty(b), rcad(a, b, norm="raw")),
    "a clean loss of its own": lambda a, b: compose(
        Method(clean=(Term("nll", weight=2.0, likelihood=Categorical(b)),)), methods.rcad_text(a, b)
    ),
    "a clean loss of weight zero": lambda a, b: compose(
        Method(clean=(Term("nll", weight=0.1 * (a - 0.3)),)), methods.rcad_text(a, b)
    ),
    "ada": lambda a, b: methods.ada(gamma=a, **GROWTH),
    "me_ada": lambda a, b: methods.me_ada(eta=b, gamma=a, **GROWTH),
    "me_ada with rcad": lambda a, b: compose(methods.me_ada(eta=b, **GROWTH), rcad(a, b)),
}
REGRESSIONS: dict[str, Build] = {
    "erm": lambda a, b: gaussian(),
    "confidence_penalty": lambda a, b: compose(gaussian(), confidence_penalty(b)),
    "rcad": lambda a, b: compose(gaussian(), rcad(a, b)),
    "rcad uncapped": lambda a, b: compose(gaussian(None), rcad(a, b)),
    "rcad raw": lambda a, b: compose(gaussian(), methods.rcad_text(a, b)),
    "rcad linf": lambda a, b: compose(gaussian(), rcad(a / 4, b, norm="linf")),
    "rcad_random": lambda a, b: compose(gaussian(), rcad_random(a, b)),
    "fgsm": lambda a, b: compose(gaussian(), methods.adversarial_training(a / 4, "l2", None)),
    "me_ada": lambda a, b: compose(gaussian(), methods.me_ada(eta=b, gamma=a, **GROWTH)),
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
def test_replicas_equal_separate_runs(build, classes, optim):
    data, methods = problem(classes), [build(*numbers) for numbers in NUMBERS]
    result = stacked(data, methods, optim)
    assert not result.diverged.any()
    for r, (method, seed) in enumerate(zip(methods, SEEDS, strict=True)):
        assert distance(result.model.replica(r), single(data, r, method, optim[r], seed)) < 1e-10


def config(method: tuple[Any, ...], seed: int, *, lr: float, regression: bool) -> RunConfig:
    schedule: Any = "multistep" if regression else "cosine"
    return RunConfig(
        data=DataConfig(name="table", validation=0.2),
        model=ModelConfig(name="mlp", hidden=(9,)),
        method=method,
        optim=OptimConfig(lr=lr, weight_decay=1e-3, clip=1.0, schedule=schedule, milestones=(2,)),
        train=TrainConfig(epochs=EPOCHS, batch_size=16, selection="best"),
        seed=seed,
    )


@pytest.mark.parametrize("regression", [True, False])
@pytest.mark.parametrize("name", ["rcad", "rcad_random", "me_ada"])
def test_configs_equal_the_engine(name, regression):
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
def test_a_replica_does_not_depend_on_its_neighbours(name):
    data, methods = problem(3, torch.float32), [CLASSIFIERS[name](*numbers) for numbers in NUMBERS]
    together = stacked(data, methods, ADAM)
    alone = stacked(data.take(torch.tensor([1])), methods[1], ADAM[1], seeds=SEEDS[1:2])
    in_pairs = stacked(data, methods, ADAM, group=2)
    for other, r in ((alone, 0), (in_pairs, 1)):
        assert distance(together.model.replica(1), other.model.module(r)) < 1e-6
        assert torch.allclose(other.curves["val_nll"][r], together.curves["val_nll"][1], rtol=1e-6)


def test_shared_data_is_the_same_data_for_all():
    data, methods = problem(3), [rcad(a, b) for a, b in NUMBERS]
    x, y = data.train.x[0], data.train.y[0]
    shared = stacked(StackedProblem(Examples(x, y), 3, data.val.take(torch.tensor([0]))), methods, ADAM).model
    copies = StackedProblem(Examples(x.repeat(3, 1, 1), y.repeat(3, 1)), 3)
    assert torch.equal(shared.flat, stacked(copies, methods, ADAM).model.flat)
    assert (shared.replica(0)["fc.weight"] != shared.replica(1)["fc.weight"]).all()


@pytest.mark.parametrize(("name", "wild"), [("sgd", 1e4), ("adamw", 1e200)])
def test_a_diverged_replica_stops_and_leaves_the_others_alone(name, wild):
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
    assert stacked(data, methods[1], optim[1], may_diverge=True).diverged.all()


def test_reports_snapshots_and_progress():
    data, seen = problem(0), []
    result = stacked(data, [gaussian()] * 3, SGD, snapshots=(2,), progress=lambda *done: seen.append(done))
    assert seen == [(3 * k, 15) for k in range(1, 6)]
    assert not stacked(data, [gaussian()] * 3, SGD, epochs=1, report=False).curves
    early = stacked(data, [gaussian()] * 3, SGD, epochs=2)
    assert torch.equal(result.snapshots[2].flat, early.model.flat)
    assert torch.equal(result.curves["loss"][:, :2], early.curves["loss"])


def test_what_is_not_finite_is_marked_even_at_the_very_end():
    data = replace(problem(0, torch.float32), val=None)
    jump = [OptimConfig(lr=0.05), OptimConfig(lr=100.0, weight_decay=3e38), OptimConfig(lr=0.05)]
    result = stacked(data, [gaussian()] * 3, jump, epochs=1, batch_size=COUNT)
    assert result.curves["loss"].isfinite().all()
    assert result.diverged_at.tolist() == [0, 1, 0]


OPTIM = OptimConfig(lr=0.1)


def test_a_weight_changes_no_direction():
    state = torch.get_rng_state()
    stack, method = StackedMLP.initial([0], (4, 6, 5, 3), dtype=torch.float64), methods.rcad_text(0.5, 0.3)
    assert torch.equal(torch.get_rng_state(), state), "the first weights leave the random state alone"
    gradient, net = torch.empty_like(stack.flat), stack.module(0)
    x, y = torch.randn(1, 7, 4, dtype=torch.float64), torch.arange(7)[None] % 3
    weight = torch.arange(7.0, dtype=torch.float64)
    stacked = StackedMethod.of([method], Categorical(), x)
    step = StackedStep(stacked, Passes(stack, gradient, 7), noise=torch.randn)
    total, _ = step(x, y, 0, weight[None])
    losses = method.criterion().backward(net, x[0], y[0], weight=weight)
    torch.testing.assert_close(total[0], losses.total)
    found = [view[0] for view in stack.layout.views(gradient)]
    torch.testing.assert_close(found, [parameter.grad for parameter in net.parameters()])


def fit(methods: Any, optim: Any = OPTIM) -> None:
    problem = StackedProblem(Examples(torch.rand(2, 10, 4), torch.arange(10).repeat(2, 1) % 2), 2)
    train_stacked(problem, methods, seeds=(0, 1), optim=optim, epochs=1, batch_size=4)


test_what_cannot_be_is_said = refusals(
    (fit, [rcad(0.5), erm()], "expected methods that differ in numbers only, but got rcad"),
    (fit, [rcad(0.5), rcad(0.5, norm="linf")], "differ in numbers only"),
    (fit, erm(), [OPTIM, OptimConfig(lr=0.1, nesterov=False)], "differ in lr, weight_decay and clip only"),
    (fit, [compose(gaussian(None), rcad(0.3, lam)) for lam in (0.89, 1.2)], "but got cap=None and lam=1.2"),
    (fit, methods.cutout(), "expected no augmentation in a stacked run"),
    (fit, methods.rcad_released(), "expected terms on the batch"),
    (fit, methods.me_ada(), "expected levels=None to grow stacked tables, but got levels=255"),
    (fit, Method(extra=(Term("pgd", where=ProjectedAscent(0.1)),)), "but got ProjectedAscent"),
    (fit, Method(likelihood=Bernoulli()), "expected Categorical or Gaussian"),
    (fit, Method(likelihood=Categorical(weight=(1.0, 2.0))), "expected no class weights"),
    (lambda: StackedMLP(Layout(1, (1, 2)), torch.zeros(1)), "expected 4 parameters, but got a tensor"),
)


def test_which_configs_can_be_stacked():
    for model, train, words in (
        ({"name": "resnet18"}, {}, "expected model.name 'mlp'"),
        ({"dropout": 0.5}, {}, "without dropout"),
        ({}, {"ema": 0.9}, "epochs, batch_size and selection only"),
        ({"name": "mlp", "hidden": (3,), "dropout": 0.0}, {"selection": "last"}, "None"),
    ):
        parts = {"model": ModelConfig(**model), "train": TrainConfig(epochs=1, batch_size=1, **train)}
        config = RunConfig(data=DataConfig(name="boston"), method=(("erm", ()),), optim=OPTIM, **parts)
        assert words in str(why_not(config))


REPLICAS, ROWS = 3, 7
TASKS = {
    "labels": Method(),
    "reals": gaussian(cap=0.3),
    "uncapped": gaussian(cap=None),
    "smoothed": label_smoothing(eps=0.2),
    "a cap for each target": gaussian(cap=(0.3,)),
}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parts(method: Method) -> list[Part]:
    """nll and negative entropy, with a weight of its own for each replica."""
    methods = [compose(method, confidence_penalty(lam=0.1 + 0.2 * r)) for r in range(REPLICAS)]
    stack = StackedMethod.of(methods, method.likelihood or Categorical(), numbers(1))
    return [Part.of(term, ROWS) for term in stack.terms]


def examples(method: Method) -> tuple[Tensor, Tensor]:
    if not isinstance(method.likelihood, Gaussian):
        return numbers(REPLICAS, ROWS, 4), torch.arange(REPLICAS * ROWS) % 4
    output = numbers(REPLICAS, ROWS, 2)
    output[0, 0, 1], output[0, 1, 1] = -25.0, 2.0  # below the floor, above the cap
    return output, numbers(REPLICAS * ROWS, seed=1)


@pytest.mark.parametrize("shares", [None, numbers(REPLICAS * ROWS, seed=2).abs()], ids=["equal", "weighed"])
@pytest.mark.parametrize("task", TASKS)
def test_values_and_gradients_are_autograd_s(task, shares):
    output, y = examples(TASKS[task])
    nll, entropy = parts(TASKS[task])
    assert (nll.closed is None) == (task in ("smoothed", "a cap for each target"))
    for part in (nll, entropy):
        before = output.clone()
        total, pull = pulled([part], output, y, shares)
        expected, slopes = pulled([part._replace(closed=None)], output, y, shares)
        torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(pull, slopes, rtol=1e-11, atol=1e-12)
        assert torch.equal(output, before)
        assert not total.requires_grad
        assert not pull.requires_grad
        if task == "labels":
            assert all(values.isfinite().all() for values in pulled([part], 1000 * output, y, shares))
    leaf = output.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(nll.term.likelihood.nll(leaf.flatten(0, 1), y).sum(), leaf)
    torch.testing.assert_close(nll_slopes(nll.term.likelihood, output, y), expected)
