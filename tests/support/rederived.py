"""Each recipe once more, in words of the paper: plain loops over single examples, nothing shared with the package."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]  # net, batch, labels, un-augmented batch


def log_p(net: nn.Module, x: Tensor) -> Tensor:
    """log p(.|x) of one example, (K,)."""
    z = net(x[None])[0]
    return z - z.exp().sum().log()


def cross_entropy(net: nn.Module, x: Tensor, y: Tensor, eps: float = 0.0) -> Tensor:
    """-sum_k t_k log p_k of one example; y is a label or a row of probabilities."""
    logs = log_p(net, x)
    total = torch.zeros((), dtype=x.dtype)
    for c in range(len(logs)):
        t = float(c == int(y)) if y.ndim == 0 else y[c]
        total = total - ((1 - eps) * t + eps / len(logs)) * logs[c]
    return total


def nll(net: nn.Module, x: Sequence[Tensor], y: Tensor, eps: float = 0.0) -> Tensor:
    return sum(cross_entropy(net, x[i], y[i], eps) for i in range(len(x))) / len(x)  # type: ignore[return-value]


def entropy(net: nn.Module, x: Sequence[Tensor]) -> Tensor:
    """-sum_k p_k log p_k, the mean over the examples."""
    rows = [log_p(net, one) for one in x]
    return -sum(log.exp() * log for row in rows for log in row) / len(x)  # type: ignore[return-value]


def moved(net: nn.Module, x: Tensor, y: Tensor, alpha: float, norm: str = "l2", eps: float = 0.0) -> list[Tensor]:
    """x + alpha g, where g = -grad_x log p(y|x), or the gradient of its smoothed loss, is a constant."""
    found = []
    for i in range(len(x)):
        probe = x[i].clone().requires_grad_(True)
        (g,) = torch.autograd.grad(cross_entropy(net, probe, y[i], eps), probe)
        if norm == "linf":
            g = torch.tensor([[[math.copysign(1.0, v) for v in row] for row in plane] for plane in g], dtype=g.dtype)
        elif norm == "l2":
            g = g / math.sqrt(float((g * g).sum()))
        found.append(x[i] + alpha * g)
    return found


def rcad(alpha: float, lam: float, norm: str, *, eps: float = 0.0, direction_eps: float = 0.0) -> Loss:
    """Labels may be smoothed; the step goes away from log p(y|x) itself, or up a smoothed loss."""
    return lambda net, x, y, raw: nll(net, x, y, eps) - lam * entropy(net, moved(net, x, y, alpha, norm, direction_eps))


def adversarial(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nll(net, [one.clamp(0, 1) for one in moved(net, x, y, 0.05, "linf")], y)


def two_views(net: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Tensor:
    return 0.5 * nll(net, x, y) + 0.5 * nll(net, raw, y)


REDERIVED: dict[str, Loss] = {
    "erm": lambda net, x, y, raw: nll(net, x, y),
    "two_views": two_views,
    "label_smoothing": lambda net, x, y, raw: nll(net, x, y, 0.2),
    "confidence_penalty": lambda net, x, y, raw: nll(net, x, y) - 0.1 * entropy(net, x),
    "rcad": rcad(0.5, 0.02, "l2"),
    "rcad_text": rcad(0.5, 0.02, "raw"),
    # Two views; x' from the un-augmented image; lambda * (log K - H) has the gradient of -lambda * H.
    "rcad_released": lambda net, x, y, raw: two_views(net, x, y, raw) - 0.02 * entropy(net, moved(net, raw, y, 0.5)),
    "adversarial_training": lambda net, x, y, raw: adversarial(net, x, y),
    "adversarial_two_views": lambda net, x, y, raw: 0.5 * adversarial(net, x, y) + 0.5 * adversarial(net, raw, y),
    "ls_on_adv": lambda net, x, y, raw: nll(net, x, y) + nll(net, moved(net, x, y, 0.02), y, 0.2),
}
# These change the data or the training set; their losses are the plain one.
REDERIVED |= dict.fromkeys(("ada", "me_ada", "data_augmentation", "cutout", "mixup", "cutmix"), REDERIVED["erm"])
