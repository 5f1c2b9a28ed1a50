"""Wide ResNet-28-10 and -16-8 (Zagoruyko and Komodakis, 2016): pre-activation blocks with dropout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from rcad.errors import InputError
from rcad.kernels.bn_relu import activated
from rcad.models.layers import FirstConv2d, Model, Norm, init_convs, init_fixup, layer_zero, norm2d


class WideBlock(nn.Module):
    """Norm, ReLU, 3x3 convolution, twice, with dropout between; a 1x1 shortcut where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.bn1 = norm2d(norm, inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn2 = norm2d(norm, width)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = None if inputs == width and stride == 1 else nn.Conv2d(inputs, width, 1, stride, bias=False)

    @property
    def branch(self) -> tuple[nn.Conv2d, ...]:
        return self.conv1, self.conv2

    def forward(self, x: Tensor) -> Tensor:
        active = activated(self.bn1, x)
        y: Tensor = self.conv2(self.dropout(activated(self.bn2, self.conv1(active))))
        # Where the shape changes, the shortcut too starts from the activated input.
        return y + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(Model):
    """Three stages of `(depth - 4) / 6` blocks.

    Args:
        depth: layers, 6n + 4.
        widen: the factor on the widths of the stages.
        num_outputs: size of the output.
        channels: channels of the images.
        width: channels of the stem; the stages have widen * width times 1, 2 and 4.
        dropout: probability in [0, 1), inside every block.
        norm: "batch"; "group"; "none" (a factor and biases instead, started as Fixup does).
        mean, std: per channel, in [0, 1] pixels; none leaves the pixels as they are.

    Shape:
        (B, C, H, W) in [0, 1] -> (B, num_outputs).
    """

    def __init__(
        self,
        depth: int,
        widen: int,
        *,
        num_outputs: int,
        channels: int = 3,
        width: int = 16,
        dropout: float = 0.3,
        norm: Norm = "batch",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise InputError(f"expected depth to be 6n + 4 with n >= 1, but got {depth}")
        self.normalize = layer_zero(channels, mean, std)
        self.conv1 = FirstConv2d(channels, width, 3, padding=1, bias=False)
        inputs, stages = width, []
        for outputs, stride in ((widen * width, 1), (2 * widen * width, 2), (4 * widen * width, 2)):
            blocks = [WideBlock(inputs, outputs, stride, dropout, norm)]
            blocks += [WideBlock(outputs, outputs, 1, dropout, norm) for _ in range((depth - 4) // 6 - 1)]
            stages.append(nn.Sequential(*blocks))
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.bn = norm2d(norm, inputs)
        self.num_features = inputs
        self.fc = nn.Linear(inputs, num_outputs)
        init_convs(self, norm)
        if norm == "none":
            init_fixup([m.branch for m in self.modules() if isinstance(m, WideBlock)])

    def features(self, x: Tensor) -> Tensor:
        x = self.stages(self.conv1(self.normalize(x)))
        return activated(self.bn, x).mean((2, 3))


wrn28_10 = partial(WideResNet, 28, 10, dropout=0.3)
wrn16_8 = partial(WideResNet, 16, 8, dropout=0.4)
