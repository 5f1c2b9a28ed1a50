"""What the tests of the Lightning adapters share: modules and data."""

from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from equal import plain_loop, sgd
from rcad.integrations.lightning import RCADCallback, RCADMixin
from rcad.integrations.resolve import MethodLike
from small_nets import images, norm_net

RCAD_TEXT = "rcad(alpha=0.5, lam=0.1)"
QUIET = {"accelerator": "cpu", "devices": 1, "logger": False}
QUIET |= {f"enable_{name}": False for name in ("checkpointing", "progress_bar", "model_summary")}


def loader(data: Any = None) -> DataLoader[Any]:
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


def fit(module: Any, *callbacks: Any, data: Any = None, epochs: int = 2, **options: Any) -> L.Trainer:
    """Trains with a sanity check before and a validation after every epoch."""
    ckpt_path = options.pop("ckpt_path", None)
    trainer = L.Trainer(max_epochs=epochs, callbacks=list(callbacks), **{**QUIET, **options})
    trainer.fit(module, loader(data), loader(data), ckpt_path=ckpt_path)
    return trainer


def plain(method: Any = RCAD_TEXT, *, epochs: int = 2, fused: bool = False, **options: Any) -> nn.Module:
    """The same training by a loop over the core, with nothing of Lightning's."""
    return plain_loop(norm_net(), method, [*loader()] * epochs, fused=fused, per_step=False, **options)


def ways(how: str, method: str = RCAD_TEXT, **options: Any) -> tuple[Any, list[Any]]:
    """A module that trains with the method in one of the ways, and the callbacks that it needs."""
    if how in ("callback", "captured"):
        return Plain(), [RCADCallback(method, captured=how == "captured", **options)]
    return {"mixin": Automatic, "manual": Manual}[how](method, **options), []
