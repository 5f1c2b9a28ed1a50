"""ResNet-18, -34 and -50 (He et al., 2015), with the stem for small or for large images.

Parameter names are torchvision's, so its weights load as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

from torch import Tensor, nn

from rcad.errors import one_of
from rcad.kernels.bn_relu import activated, forked, normalised
from rcad.models.layers import FirstConv2d, Model, Norm, StridedPointwise, init_convs, init_fixup, layer_zero, norm2d

Stem = Literal["cifar", "imagenet"]


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    kind = StridedPointwise if size == 1 and stride > 1 else nn.Conv2d
    return kind(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return Projection(_conv(inputs, outputs, 1, stride), norm2d(norm, outputs))


class Projection(nn.Sequential):
    """A 1x1 convolution and a normalisation: the shortcut where the shape changes."""

    def forward(self, x: Tensor) -> Tensor:
        conv, norm = self
        return normalised(norm, conv(x))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = norm2d(norm, width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = norm2d(norm, width)
        self.downsample = _shortcut(inputs, width, stride, norm)

    @property
    def branch(self) -> tuple[nn.Conv2d, ...]:
        return self.conv1, self.conv2

    def forward(self, x: Tensor) -> Tensor:
        x, shortcut = forked(x)
        y = activated(self.bn1, self.conv1(x))
        return activated(self.bn2, self.conv2(y), self.downsample(shortcut))


class Bottleneck(nn.Module):
    """1x1, 3x3 (which carries the stride) and 1x1 convolutions beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = norm2d(norm, width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = norm2d(norm, width)
        self.conv3 = _conv(width, outputs, 1)
        self.bn3 = norm2d(norm, outputs)
        self.downsample = _shortcut(inputs, outputs, stride, norm)

    @property
    def branch(self) -> tuple[nn.Conv2d, ...]:
        return self.conv1, self.conv2, self.conv3

    def forward(self, x: Tensor) -> Tensor:
        x, shortcut = forked(x)
        y = activated(self.bn1, self.conv1(x))
        y = activated(self.bn2, self.conv2(y))
        return activated(self.bn3, self.conv3(y), self.downsample(shortcut))


class ResNet(Model):
    """Four stages of residual blocks, each stage after the first at half the size and twice the width.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: blocks in each of the four stages.
        num_outputs: size of the output.
        channels: channels of the images.
        stem: "cifar" (3x3 convolution) or "imagenet" (7x7 with stride 2, then a max pool).
        width: channels of the first stage.
        norm: "batch"; "group"; "none" (a factor and biases instead, started as Fixup does).
        mean, std: per channel, in [0, 1] pixels; none leaves the pixels as they are.

    Shape:
        (B, C, H, W) in [0, 1] -> (B, num_outputs).
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        *,
        num_outputs: int,
        channels: int = 3,
        stem: Stem = "cifar",
        width: int = 64,
        norm: Norm = "batch",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        one_of("stem", stem, get_args(Stem))
        large = stem == "imagenet"
        self.normalize = layer_zero(channels, mean, std)
        size, stride = (7, 2) if large else (3, 1)
        self.conv1 = FirstConv2d(channels, width, size, stride, padding=size // 2, bias=False)
        self.bn1 = norm2d(norm, width)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if large else nn.Identity()
        self.num_features = width
        self.layer1 = self._stage(block, width, depths[0], 1, norm)
        self.layer2 = self._stage(block, 2 * width, depths[1], 2, norm)
        self.layer3 = self._stage(block, 4 * width, depths[2], 2, norm)
        self.layer4 = self._stage(block, 8 * width, depths[3], 2, norm)
        self.fc = nn.Linear(self.num_features, num_outputs)
        init_convs(self, norm)
        if norm == "none":
            init_fixup([m.branch for m in self.modules() if isinstance(m, BasicBlock | Bottleneck)])

    def _stage(
        self, block: type[BasicBlock] | type[Bottleneck], width: int, depth: int, stride: int, norm: Norm
    ) -> nn.Sequential:
        stage = nn.Sequential()
        for i in range(depth):
            stage.append(block(self.num_features, width, stride if i == 0 else 1, norm))
            self.num_features = width * block.expansion
        return stage

    def features(self, x: Tensor) -> Tensor:
        x = self.normalize(x)
        x = self.maxpool(activated(self.bn1, self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


resnet18 = partial(ResNet, BasicBlock, (2, 2, 2, 2))
resnet34 = partial(ResNet, BasicBlock, (3, 4, 6, 3))
resnet50 = partial(ResNet, Bottleneck, (3, 4, 6, 3))
