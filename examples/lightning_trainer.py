"""RCAD in Lightning's Trainer: a callback for a module that stays as it is, a mixin for your own training step.
Both train on 100 of scikit-learn's digits and end with the same weights up to rounding; no file is written."""

import logging
import warnings

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from rcad.integrations.lightning import RCADCallback, RCADMixin

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")  # its advice about workers, which 100 images do not need
METHOD, LABELS, EPOCHS = "rcad(alpha=0.8, lam=0.5)", 100, 60


class Net(L.LightningModule):
    """What people have."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def test_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log_dict({"accuracy": (logits.argmax(1) == y).float().mean(), "nll": F.cross_entropy(logits, y)})

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 2e-3)


class RegularisedNet(RCADMixin, Net):
    """The mixin with manual optimisation, which takes one backward less than `return self.regularised_loss(x, y)`."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.use_method(METHOD)

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.regularised_backward(*batch)  # in place of self.manual_backward(cross_entropy(self(x), y))
        optimizer.step()


def main():
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images).float()[order] / 16, torch.tensor(labels)[order]
    train = DataLoader(TensorDataset(x[:LABELS], y[:LABELS]), batch_size=50)
    test = DataLoader(TensorDataset(x[LABELS:], y[LABELS:]), batch_size=len(x))
    nets = {}
    for name, kind, callbacks in (
        ("as it is", Net, []),
        ("with the callback", Net, [RCADCallback(METHOD)]),
        ("with the mixin", RegularisedNet, []),
    ):
        torch.manual_seed(0)
        nets[name] = kind()
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = L.Trainer(
            accelerator="cpu", max_epochs=EPOCHS, callbacks=callbacks, enable_model_summary=False, **quiet
        )
        trainer.fit(nets[name], train)
        parts = {key: round(value.item(), 3) for key, value in trainer.callback_metrics.items()}
        scores = trainer.test(nets[name], test, verbose=False)[0]
        print(f"{name:18} {100 * scores['accuracy']:.1f}% of {len(x) - LABELS} test images, NLL {scores['nll']:.3f}")
        print(f"{'':18} parts of the last loss: {parts}" if parts else f"{'':18} nothing logged")
    one, other = (nets[name].parameters() for name in ("with the callback", "with the mixin"))
    difference = max((a - b).abs().max().item() for a, b in zip(one, other, strict=True))
    print(f"callback and mixin: weights differ by at most {difference:.0e}")


if __name__ == "__main__":
    main()
