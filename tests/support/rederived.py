"""Each recipe once more, in words of the paper: plain loops over single examples, nothing shared with the package.

A function takes a net without BatchNorm, the batch, its labels and the un-augmented batch, and returns the loss.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


def log_p(net: nn.Module, x: Tensor) -> Tensor:
    """log p(.|x) of one example, (K,)."""
    z = net(x[None])[0]
    return z - z.exp().sum().log()


def cross_entropy(net: nn.Module, x: Tensor, y: Tensor, eps: float = 0.0, others: bool = False) -> Tensor:
    """-sum_k t_k log p_k of one example; y is a label or a row of probabilities."""
    logs = log_p(net, x)
    k = len(logs)
    total = torch.zeros((), dtype=x.dtype)
    for c in range(k):
        t = (1.0 if c == int(y) else 0.0) if y.ndim == 0 else y[c]
        t = (1 - eps) * t + (eps * (1 - t) / (k - 1) if others else eps / k)
        total = total - t * logs[c]
    return total


def entropy(net: nn.Module, x: Tensor) -> Tensor:
    """-sum_k p_k log p_k of one example."""
    logs = log_p(net, x)
    return -sum(logs[c].exp() * logs[c] for c in range(len(logs)))  # type: ignore[return-value]


def gradient(net: nn.Module, x: Tensor, y: Tensor, eps: float = 0.0) -> Tensor:
    """-grad_x log p(y|x) of one example, or of its smoothed loss, as a constant."""
    probe = x.clone().requires_grad_(True)
    (g,) = torch.autograd.grad(cross_entropy(net, probe, y, eps), probe)
    return g.detach()


def step(g: Tensor, norm: str) -> Tensor:
    if norm == "raw":
        return g
    if norm == "linf":
        return torch.tensor([[[math.copysign(1.0, v) for v in row] for row in plane] for plane in g], dtype=g.dtype)
    return g / math.sqrt(float((g * g).sum()))


def mean(values: list[Tensor]) -> Tensor:
    return sum(values) / len(values)  # type: ignore[return-value]


def erm(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    return mean([cross_entropy(net, x[i], y[i]) for i in range(len(x))])


def two_views(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    return 0.5 * erm(net, x, y, raw) + 0.5 * erm(net, raw, y, raw)


def label_smoothing(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    return mean([cross_entropy(net, x[i], y[i], eps=0.2) for i in range(len(x))])


def confidence_penalty(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    return erm(net, x, y, raw) - 0.1 * mean([entropy(net, x[i]) for i in range(len(x))])


def rcad(alpha: float, lam: float, norm: str, *, eps: float = 0.0, direction_eps: float = 0.0) -> Loss:
    """Labels may be smoothed; the step goes away from log p(y|x) itself, or up a smoothed loss."""

    def loss(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
        moved = [x[i] + alpha * step(gradient(net, x[i], y[i], direction_eps), norm) for i in range(len(x))]
        clean = mean([cross_entropy(net, x[i], y[i], eps) for i in range(len(x))])
        return clean - lam * mean([entropy(net, m) for m in moved])

    return loss


def rcad_released(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    """Two views; x' from the un-augmented image; lambda * (log K - H) has the gradient of -lambda * H."""
    moved = [raw[i] + 0.5 * step(gradient(net, raw[i], y[i]), "l2") for i in range(len(x))]
    return two_views(net, x, y, raw) - 0.02 * mean([entropy(net, m) for m in moved])


def adversarial_training(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    moved = [(x[i] + 0.05 * step(gradient(net, x[i], y[i]), "linf")).clamp(0, 1) for i in range(len(x))]
    return mean([cross_entropy(net, m, y[i]) for i, m in enumerate(moved)])


def adversarial_two_views(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    return 0.5 * adversarial_training(net, x, y, raw) + 0.5 * adversarial_training(net, raw, y, raw)


def ls_on_adv(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    moved = [x[i] + 0.02 * step(gradient(net, x[i], y[i]), "l2") for i in range(len(x))]
    return erm(net, x, y, raw) + mean([cross_entropy(net, m, y[i], eps=0.2) for i, m in enumerate(moved)])


REDERIVED: dict[str, Loss] = {
    "erm": erm,
    "two_views": two_views,
    "label_smoothing": label_smoothing,
    "confidence_penalty": confidence_penalty,
    "rcad": rcad(0.5, 0.02, "l2"),
    "rcad_text": rcad(0.5, 0.02, "raw"),
    "rcad_released": rcad_released,
    "adversarial_training": adversarial_training,
    "adversarial_two_views": adversarial_two_views,
    "ls_on_adv": ls_on_adv,
    # These change the data or the training set; their losses are the plain one.
    **dict.fromkeys(["ada", "me_ada", "data_augmentation", "cutout", "mixup", "cutmix"], erm),
}
