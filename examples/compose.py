"""MixUp, label smoothing and RCAD as one value: composed, trained with, saved, and a conflict caught.
A method fills slots (likelihood, clean loss, terms, augmentation, growth); each slot has one owner."""

import json

import torch
from sklearn.datasets import load_digits
from torch import nn

import rcad
from rcad import methods

EPOCHS, CLASSES = 20, 10


def digits():
    """500 images to train on, the rest to test on: (B, 1, 8, 8) in [0, 1]."""
    data = load_digits()
    x, y = torch.tensor(data.images).float()[:, None] / 16, torch.tensor(data.target)
    return x[:500], y[:500], x[500:], y[500:]


def train(method, x, y):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, CLASSES)
    )
    criterion = method.criterion()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x), generator=generator).split(50):
            # Mixing makes the labels probabilities, so it has to know how many classes there are.
            images, targets = rcad.augment(method.augment, x[index], y[index], classes=CLASSES, generator=generator)
            optimizer.zero_grad()
            losses = criterion.backward(model, images, targets)
            optimizer.step()
    return model, losses


def main():
    torch.set_num_threads(1)  # for nets this small more threads only wait for each other
    method = rcad.compose(methods.mixup(alpha=0.2), methods.label_smoothing(eps=0.1), methods.rcad(alpha=1.0, lam=0.1))
    print("method:    ", method.name)
    print("augment:   ", method.augment)
    print("likelihood:", method.likelihood)
    print("terms:     ", method.terms)

    x, y, x_test, y_test = digits()
    for each in (methods.erm(), method):
        model, losses = train(each, x, y)
        accuracy = (model(x_test).argmax(1) == y_test).float().mean()
        parts = {part: round(value.item(), 3) for part, value in losses.parts.items()}
        print(f"{each.name}: {100 * accuracy:.1f}% of {len(y_test)} test images (one seed); last parts {parts}")

    restored = rcad.Method.from_dict(json.loads(json.dumps(method.to_dict())))
    assert restored == method
    print("written as JSON and read back:", restored)

    try:
        rcad.compose(method, methods.cutmix())
    except rcad.InputError as error:
        print("conflict:", error)


if __name__ == "__main__":
    main()
