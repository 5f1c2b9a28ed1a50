"""What several test files share: small nets, batches, and the comparison of two models."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rcad.models import build

CLASSES = 5


def images(count: int = 7, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """A batch of random 3x8x8 images in [0, 1] and labels; an odd number, so that nothing divides it."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, 8, 8, generator=generator, dtype=dtype)
    return x, torch.randint(CLASSES, (count,), generator=generator)


@contextmanager
def left_alone(net: nn.Module) -> Iterator[None]:
    """Weights, buffers, modes, flags, gradients and the random state must be as before, even after an exception."""

    def state() -> list[object]:
        values = [*net.state_dict().values(), *(p.grad for p in net.parameters())]
        flags = [p.requires_grad for p in net.parameters()], [m.training for m in net.modules()]
        return [*flags, torch.get_rng_state().tolist(), [None if v is None else v.tolist() for v in values]]

    before = state()
    try:
        yield
    finally:
        assert state() == before


def soft(y: Tensor, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    noise = torch.rand(len(y), CLASSES, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return 0.6 * nn.functional.one_hot(y, CLASSES) + 0.4 * noise / noise.sum(1, keepdim=True)


def smooth_net(seed: int = 0, *, dropout: float = 0.0) -> nn.Sequential:
    """A small net without BatchNorm, smooth enough for exact comparisons."""
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(192, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, CLASSES)]
    layers[-1].weight.data.mul_(6)  # confident enough that entropies and gradients differ between examples
    return nn.Sequential(*layers)


def norm_net(seed: int = 0, *, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(seed)
    first = [nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(dropout)]
    second = [nn.Conv2d(6, 8, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))


def fitted_resnet() -> nn.Module:
    """A narrow ResNet-18 with BatchNorm after some steps of training: its statistics are no longer the initial ones."""
    torch.manual_seed(0)
    net = build("resnet18", num_outputs=CLASSES, in_shape=(3, 8, 8), width=8)
    fit(net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), *images(40, seed=9), steps=12)
    return net


def fit(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, *, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()


def gradients(net: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def assert_same_state(first: nn.Module, second: nn.Module, *, rtol: float = 1e-5, atol: float = 1e-7) -> None:
    """Every gradient and every buffer agrees, relative to the largest entry of its tensor."""
    left, right = gradients(first), gradients(second)
    assert left.keys() == right.keys()
    assert left, "no gradient at all"
    for name, value in left.items():
        limit = rtol * max(value.abs().max().item(), right[name].abs().max().item()) + atol
        difference = (value - right[name]).abs().max().item()
        assert difference <= limit, f"gradient of {name} differs by {difference:.3g}, allowed {limit:.3g}"
    for (name, value), (_, twin) in zip(first.named_buffers(), second.named_buffers(), strict=True):
        assert torch.allclose(value.double(), twin.double(), rtol=rtol, atol=atol), f"buffer {name} differs"


class PassCounter:
    """Counts the forwards and backwards of a model by hooks."""

    forwards = backwards = 0

    def __init__(self, net: nn.Module) -> None:
        net.register_forward_hook(self._forward)

    def _forward(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        self.forwards += 1
        if output.requires_grad:
            output.register_hook(self._backward)

    def _backward(self, gradient: Tensor) -> None:
        self.backwards += 1
