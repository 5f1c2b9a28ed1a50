"""The ways to take a training step that `stacks.py` times, of frameworks that bring a loop: adapter and plain loss."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from rcad.models.convnets import resnet18

WARM, STEPS = 2, 4
"""Steps of a turn that are not timed, and those that are: even, so that every=2 has as many of both kinds."""
METHODS = {"erm": "erm", "rcad": "rcad(alpha=0.5, lam=0.02)", "every=2": "rcad(alpha=0.5, lam=0.02, every=2)"}
RESNET, MLP = "ResNet-18 of width 16, 64 images of 32x32", "MLP of 512, batches of 128"
Marks = list[float]
Run = Callable[[str | None, Marks], None]
"""Trains with a method, None for the plain loss, for the steps that warm up and those timed; marks the end of each."""


class Way(NamedTuple):
    """One way to take a step: its passes are "forwards + backwards" of RCAD."""

    stack: str
    how: str
    model: str
    passes: str
    run: Run
    methods: tuple[str, ...] = tuple(METHODS)
    steps: int = STEPS


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


MODELS: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...], int]] = {
    RESNET: (partial(resnet18, num_outputs=10, width=16), 64, (3, 32, 32), STEPS),
    MLP: (perceptron, 128, (256,), 60),
}
"""Network, batch, shape of an input, timed steps."""


def made(name: str) -> tuple[nn.Module, TensorDataset, int]:
    """The network from a fixed seed, as much noise as it sees in a turn, and the size of a batch."""
    make, batch, shape, steps = MODELS[name]
    torch.manual_seed(0)
    count = batch * (WARM + steps)
    return make(), TensorDataset(torch.rand(count, *shape), torch.randint(10, (count,))), batch


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def mark(marks: Marks, *_: Any, **__: Any) -> None:
    marks.append(time.process_time())


def lightning_ways() -> Iterator[Way]:
    import lightning

    from rcad.integrations.lightning import FabricCriterion, RCADCallback, RCADMixin

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "max_epochs": 1, "accelerator": "cpu", "devices": 1}

    class Net(RCADMixin, lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, net: nn.Module, way: str, method: str | None) -> None:
            super().__init__()
            self.net, self.way = net, way
            self.regularised = method is not None and way != "callback"
            self.automatic_optimization = way != "regularised_backward"
            if self.regularised:
                self.use_method(method)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            if self.automatic_optimization:
                return self.regularised_loss(x, y) if self.regularised else F.cross_entropy(self(x), y)
            optimizer = self.optimizers()
            optimizer.zero_grad()
            if self.regularised:
                self.regularised_backward(x, y)
            else:
                self.manual_backward(F.cross_entropy(self(x), y))
            optimizer.step()
            return None

        def configure_optimizers(self) -> Any:
            return sgd(self)

    class Watch(lightning.Callback):  # type: ignore[misc]
        def __init__(self, marks: Marks) -> None:
            self.on_train_batch_end = partial(mark, marks)

    def trainer(way: str, method: str | None, marks: Marks) -> None:
        net, data, batch = made(RESNET)
        ours = [RCADCallback(method)] if way == "callback" and method is not None else []
        fit = lightning.Trainer(**quiet, callbacks=[*ours, Watch(marks)]).fit
        fit(Net(net, way, method), DataLoader(data, batch))

    def fabric(method: str | None, marks: Marks) -> None:
        net, data, batch = made(RESNET)
        here = lightning.Fabric(accelerator="cpu", devices=1)
        model, optimizer = here.setup(net, sgd(net))
        criterion = None if method is None else FabricCriterion(here, method)
        for x, y in here.setup_dataloaders(DataLoader(data, batch)):
            optimizer.zero_grad()
            if criterion is None:
                here.backward(F.cross_entropy(model(x), y))
            else:
                criterion.backward(model, x, y)
            optimizer.step()
            mark(marks)

    yield Way("lightning", "Trainer, callback", RESNET, "2 + 3", partial(trainer, "callback"))
    for name, passes in (("regularised_loss", "2 + 3"), ("regularised_backward", "2 + 2")):
        yield Way("lightning", f"Trainer, `{name}`", RESNET, passes, partial(trainer, name))
    yield Way("lightning", "Fabric, `criterion.backward`", RESNET, "2 + 2", fabric)


def accelerate_ways() -> Iterator[Way]:
    from accelerate import Accelerator

    from rcad.integrations.accelerate import AccelerateCriterion

    def run(name: str, method: str | None, marks: Marks) -> None:
        net, data, batch = made(name)
        accelerator = Accelerator(cpu=True)
        model, optimizer, loader = accelerator.prepare(net, sgd(net), DataLoader(data, batch))
        criterion = None if method is None else AccelerateCriterion(accelerator, method)
        for x, y in loader:
            with accelerator.accumulate(model):
                if criterion is None:
                    accelerator.backward(F.cross_entropy(model(x), y))
                else:
                    criterion.backward(model, x, y)
                optimizer.step()
                optimizer.zero_grad()
            mark(marks)

    for name in MODELS:
        yield Way("accelerate", "`AccelerateCriterion`", name, "2 + 2", partial(run, name), steps=MODELS[name][3])


def skorch_ways() -> Iterator[Way]:
    from skorch import NeuralNetClassifier
    from skorch.callbacks import Callback

    from rcad.integrations.skorch import RCADNetClassifier

    class Watch(Callback):  # type: ignore[misc]
        def __init__(self, marks: Marks) -> None:
            self.on_batch_end = partial(mark, marks)

    def run(name: str, method: str | None, marks: Marks) -> None:
        net, data, batch = made(name)
        kind: Any = partial(NeuralNetClassifier, criterion=nn.CrossEntropyLoss)
        if method is not None:
            kind = partial(RCADNetClassifier, method=method)
        settings = {"max_epochs": 1, "batch_size": batch, "lr": 0.01, "train_split": None, "verbose": 0}
        x, y = (part.numpy() for part in data.tensors)
        kind(net, callbacks=[Watch(marks)], **settings).fit(x, y)

    for name in MODELS:
        yield Way("skorch", "`RCADNetClassifier`", name, "2 + 2", partial(run, name), steps=MODELS[name][3])
