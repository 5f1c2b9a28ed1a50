"""What the tests of the Lightning adapters share: modules, data, and the plain loop that they must equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from rcad import augment
from rcad.integrations.lightning import RCADMixin
from rcad.integrations.resolve import MethodLike, as_method
from small_nets import CLASSES, images, norm_net

RCAD_TEXT = "rcad(alpha=0.5, lam=0.1)"
QUIET = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def loader(data: Any = None) -> DataLoader[Any]:
    """Three batches of 8 images."""
    return DataLoader(TensorDataset(*images(24)) if data is None else data, batch_size=8)


class Plain(L.LightningModule):
    """A module as people have it, which knows nothing of rcad."""

    def __init__(self, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = norm_net() if net is None else net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        assert not torch.is_grad_enabled()
        self.log("val_nll", F.cross_entropy(self(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return sgd(self)


class Automatic(RCADMixin, Plain):
    """The mixin, and Lightning runs the loss backward."""

    def __init__(self, method: MethodLike = RCAD_TEXT, net: nn.Module | None = None, **options: Any) -> None:
        super().__init__(net)
        self.use_method(method, **options)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.regularised_loss(*batch)


class Manual(Automatic):
    """The mixin with the fused gradients, stepping every `accumulate` batches."""

    def __init__(self, *args: Any, accumulate: int = 1, clip: float | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.automatic_optimization = False
        self.accumulate, self.clip = accumulate, clip

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        optimizer = self.optimizers()
        if batch_idx % self.accumulate == 0:
            optimizer.zero_grad()
        self.regularised_backward(*batch, accumulate=self.accumulate)
        if (batch_idx + 1) % self.accumulate == 0:
            if self.clip is not None:
                self.clip_gradients(optimizer, gradient_clip_val=self.clip, gradient_clip_algorithm="norm")
            optimizer.step()


def scaled(kind: Any) -> Any:
    """A precision plugin with a GradScaler as in "16-mixed", but without autocast: its powers of two leave no trace."""

    class Scaled(kind):  # type: ignore[misc]
        def forward_context(self) -> torch.autocast:
            return torch.autocast("cpu", enabled=False)

    return Scaled("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def fit(module: Any, *callbacks: Any, data: Any = None, epochs: int = 2, **options: Any) -> L.Trainer:
    """Trains with a sanity check before and a validation after every epoch."""
    ckpt_path = options.pop("ckpt_path", None)
    trainer = L.Trainer(max_epochs=epochs, callbacks=list(callbacks), **{**QUIET, **options})
    trainer.fit(module, loader(data), loader(data), ckpt_path=ckpt_path)
    return trainer


def batches(epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(epochs):
        yield from loader()


def trained_plainly(
    method: str = RCAD_TEXT,
    *,
    fused: bool = False,
    epochs: int = 2,
    accumulate: int = 1,
    clip: float | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """The same training by a loop over the core, with nothing of Lightning's."""
    value = as_method(method)
    net, criterion = norm_net(), value.criterion()
    optimizer = sgd(net)
    for number, (x, y) in enumerate(batches(epochs)):
        if number % accumulate == 0:
            optimizer.zero_grad()
        views = {"raw": x, "raw_target": y, "generator": generator}
        x, y = augment(value.augment, x, y, classes=CLASSES, generator=generator)
        if fused:
            criterion.backward(net, x, y, accumulate=accumulate, **views)
        else:
            (criterion(net, x, y, **views) / accumulate).backward()
        if (number + 1) % accumulate == 0:
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
    return net
