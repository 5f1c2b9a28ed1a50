"""RCAD's step in your own loop as one function: one CUDA graph on a GPU, the plain loop bit for bit on a CPU.
Scikit-learn's digits with 200 labels, AdamW, a schedule, clipping, a moving average and a smaller last batch."""

import copy
import time

import torch
from sklearn.datasets import load_digits
from torch import nn

import rcad

EPOCHS, BATCH, ALPHA, LAM, CLIP, DECAY = 40, 64, 0.8, 0.5, 1.0, 0.95
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def digits():
    """200 images to train on, the rest to test on; pixels in [0, 1]."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images).float()[order].view(-1, 1, 8, 8) / 16, torch.tensor(labels)[order]
    return x[:200], y[:200], x[200:], y[200:]


def parts():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 10)),
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    return model, optimizer, schedule, rcad.RCAD(ALPHA, LAM), copy.deepcopy(model)


def fit(captured):
    model, optimizer, schedule, criterion, average = parts()
    step = rcad.capture(model, optimizer, criterion, clip=CLIP, average=average, decay=DECAY)
    x, y, _, _ = digits()
    start = time.perf_counter()
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x)).split(BATCH):
            if captured:
                losses = step(x[index], y[index])
            else:  # what the one line stands for
                optimizer.zero_grad()
                losses = criterion.backward(model, x[index].to(DEVICE), y[index].to(DEVICE))
                nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                with torch.no_grad():
                    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - DECAY)
                    torch._foreach_copy_(list(average.buffers()), list(model.buffers()))
        schedule.step()
    seconds = time.perf_counter() - start
    return average.eval(), losses, seconds, step


def main():
    torch.set_num_threads(1)  # for nets this small more threads only wait for each other
    _, _, x, y = digits()
    weights = []
    for name, captured in (("plain loop", False), ("rcad.capture", True)):
        average, losses, seconds, step = fit(captured)
        with torch.no_grad():
            right = 100 * (average(x.to(DEVICE)).argmax(1) == y.to(DEVICE)).float().mean()
        how = "in a CUDA graph" if step.captured else "eagerly"
        print(f"{name}: {right:.1f}% of {len(y)} test images, last loss {losses.total:.4f}, {how}, {seconds:.1f} s")
        weights.append(average.state_dict())
    same = all(torch.equal(one, other) for one, other in zip(*(w.values() for w in weights), strict=True))
    print(f"the averaged weights are equal bit for bit: {same}")


if __name__ == "__main__":
    main()
