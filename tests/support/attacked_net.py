"""What the tests of attacks share: a fitted net, its test images, and models that hide their gradients."""

from functools import cache

import torch
from torch import Tensor, nn

from small_nets import CLASSES, fit


def patterns(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy images (count, 3, 8, 8) in [0, 1] of five patterns."""
    pattern = torch.rand(CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(99)) - 0.5
    y = torch.arange(count) % CLASSES
    noise = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return (0.5 + 0.24 * pattern[y] + 0.2 * noise).clamp(0, 1), y


@cache
def fitted() -> nn.Module:
    """A small convnet that has learnt the patterns; do not change it."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(32, CLASSES))
    fit(net, torch.optim.Adam(net.parameters(), lr=5e-3), *patterns(400, 0), steps=60)
    return net.eval()


class Saturated(nn.Module):
    """The same predictions with logits so large that the softmax is 0 or 1."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return 1e4 * self.net(x)


class Quantised(Saturated):
    """Rounds its input: the gradient is zero everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        return self.net((8 * x).round() / 8)
