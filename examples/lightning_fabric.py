"""RCAD in a loop with Lightning's Fabric: gradients accumulated over two batches and clipped, on 100 digits.
The criterion looks inside the model that Fabric wrapped, under Fabric's precision and strategy."""

import logging

import torch
from lightning.fabric import Fabric
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from rcad.integrations.lightning import FabricCriterion

logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
LABELS, EPOCHS, GROUP = 100, 60, 2


def train(method, data):
    fabric = Fabric(accelerator="cpu", devices=1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    model, optimizer = fabric.setup(net, torch.optim.Adam(net.parameters(), 2e-3))
    loader = fabric.setup_dataloaders(data)
    criterion = FabricCriterion(fabric, method)
    for _ in range(EPOCHS):
        for index, (x, y) in enumerate(loader):
            last = (index + 1) % GROUP == 0
            with fabric.no_backward_sync(model, enabled=not last):
                # In place of fabric.backward(cross_entropy(model(x), y) / GROUP):
                losses = criterion.backward(model, x, y, accumulate=GROUP)
            if last:
                fabric.clip_gradients(model, optimizer, max_norm=5.0)
                optimizer.step()
                optimizer.zero_grad()
    return model, losses


@torch.inference_mode()
def test(model, x, y):
    logits = model(x)
    return 100 * (logits.argmax(1) == y).float().mean().item(), F.cross_entropy(logits, y).item()


def main():
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images).float()[order] / 16, torch.tensor(labels)[order]
    data = DataLoader(TensorDataset(x[:LABELS], y[:LABELS]), batch_size=25)
    for method in ("erm", "rcad_random(alpha=0.8, lam=0.5)", "rcad(alpha=0.8, lam=0.5)"):
        model, losses = train(method, data)
        accuracy, nll = test(model, x[LABELS:], y[LABELS:])
        parts = {name: round(value.item(), 3) for name, value in losses.parts.items()}
        print(f"{method:34} accuracy {accuracy:.1f}%, NLL {nll:.3f}; parts of the last loss {parts}")


if __name__ == "__main__":
    main()
