"""RCAD in an Accelerate loop: scikit-learn's digits with 100 labels, accumulation and clipping.
The call that replaces accelerator.backward(loss) does what the accelerator would: divide, scale, exchange."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import rcad
from rcad.integrations.accelerate import AccelerateCriterion

LABELS, EPOCHS, LAM = 100, 60, 0.5


def digits():
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images).float()[order] / 16, torch.tensor(labels)[order]
    return (x[:LABELS], y[:LABELS]), (x[LABELS:], y[LABELS:])


def prepared(accelerator, data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    loader = DataLoader(TensorDataset(*data), batch_size=25, shuffle=True)
    return accelerator.prepare(model, optimizer, loader)


def train(accelerator, data, method=None):
    """The loop of Accelerate's documentation; with a method, one line of it is another."""
    model, optimizer, loader = prepared(accelerator, data)
    criterion = None if method is None else AccelerateCriterion(accelerator, method)
    for _ in range(EPOCHS):
        for x, y in loader:
            with accelerator.accumulate(model):
                if criterion is None:
                    accelerator.backward(F.cross_entropy(model(x), y))
                else:
                    criterion.backward(model, x, y)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    return model


@torch.no_grad()
def report(name, model, x, y):
    logits = model.eval()(x)
    accuracy, nll = 100 * (logits.argmax(1) == y).float().mean(), F.cross_entropy(logits, y)
    print(f"{name}: accuracy {accuracy:.1f}%, NLL {nll:.3f} on {len(y)} test images (one seed)")


def main():
    torch.set_num_threads(1)  # for nets this small more threads only wait for each other
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    train_set, test_set = digits()
    alpha = rcad.suggest_alpha(*train_set)
    print(f"alpha, measured on the training set: {alpha:.2f}")
    plain = train(accelerator, train_set)
    report("plain loop", plain, *test_set)
    report("RCAD", train(accelerator, train_set, f"rcad(alpha={alpha:.2f}, lam={LAM})"), *test_set)
    off = train(accelerator, train_set, "rcad(lam=0)")
    equal = all(torch.equal(p, q) for p, q in zip(plain.parameters(), off.parameters(), strict=True))
    print(f"with lam=0 the parameters equal the plain loop's, bit for bit: {equal}")


if __name__ == "__main__":
    main()
