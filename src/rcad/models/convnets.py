"""The convolutional networks: ResNets, Wide ResNets, and a small one for few images.

The parameter names of the ResNets (He et al., 2015) are torchvision's, so its weights load as they are. Wide ResNets
(Zagoruyko and Komodakis, 2016) have pre-activation blocks with dropout. The small one has by default no normalisation.
All take images (B, C, H, W) in [0, 1]; what the options that they share mean, `build` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from rcad.errors import InputError
from rcad.kernels.bn_relu import activated, forked, normalised
from rcad.models.layers import FirstConv2d, Model, Norm, Residual, StridedPointwise, init_convs, norm2d

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


class BasicBlock(Residual):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = norm2d(norm, width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = norm2d(norm, width)
        self.downsample = _shortcut(inputs, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        x, shortcut = forked(x)
        y = activated(self.bn1, self.conv1(x))
        return activated(self.bn2, self.conv2(y), self.downsample(shortcut))


class Bottleneck(Residual):
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
        stem: "cifar" (3x3 convolution) or "imagenet" (7x7 with stride 2, then a max pool).
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
    ) -> None:
        super().__init__(channels)
        large = stem == "imagenet"
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


class WideBlock(Residual):
    """Norm, ReLU, 3x3 convolution, twice, with dropout between; a 1x1 shortcut where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.bn1 = norm2d(norm, inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn2 = norm2d(norm, width)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = None if inputs == width and stride == 1 else nn.Conv2d(inputs, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = activated(self.bn1, x)
        y: Tensor = self.conv2(self.dropout(activated(self.bn2, self.conv1(active))))
        # Where the shape changes, the shortcut too starts from the activated input.
        return y + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(Model):
    """Three stages of `(depth - 4) / 6` blocks.

    Args:
        depth: layers, 6n + 4.
        width: channels of the stem; the stages have widen * width times 1, 2 and 4.
        dropout: probability in [0, 1), inside every block.
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
    ) -> None:
        super().__init__(channels)
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

    def features(self, x: Tensor) -> Tensor:
        x = self.stages(self.conv1(self.normalize(x)))
        return activated(self.bn, x).mean((2, 3))


wrn28_10 = partial(WideResNet, 28, 10, dropout=0.3)
wrn16_8 = partial(WideResNet, 16, 8, dropout=0.4)


class SmallCNN(Model):
    """Two 3x3 convolutions with a max pool after each, a third, then one hidden layer on the flattened map.

    Args:
        in_shape: (C, H, W) of the images, H and W at least 4.
        width: channels of the first convolution; the others have 2 * width, the hidden layer 4 * width units.
        dropout: probability in [0, 1) on the hidden layer.
    """

    def __init__(
        self,
        *,
        num_outputs: int,
        in_shape: tuple[int, int, int],
        width: int = 32,
        dropout: float = 0.0,
        norm: Norm = "none",
    ) -> None:
        channels, height, breadth = in_shape
        super().__init__(channels)
        if min(height, breadth) < 4:
            raise InputError(f"expected images of at least 4x4 pixels, but got {height}x{breadth}; take 'mlp'")
        self.conv1 = FirstConv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = norm2d(norm, width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.bn2 = norm2d(norm, 2 * width)
        self.conv3 = nn.Conv2d(2 * width, 2 * width, 3, padding=1, bias=False)
        self.bn3 = norm2d(norm, 2 * width)
        self.hidden = nn.Linear(2 * width * (height // 4) * (breadth // 4), 4 * width)
        self.dropout = nn.Dropout(dropout)
        self.num_features = 4 * width
        self.fc = nn.Linear(4 * width, num_outputs)
        init_convs(self, norm)
        nn.init.kaiming_normal_(self.hidden.weight, nonlinearity="relu")
        nn.init.zeros_(self.hidden.bias)

    def features(self, x: Tensor) -> Tensor:
        x = self.normalize(x)
        x = max_pool2d(activated(self.bn1, self.conv1(x)), 2)
        x = max_pool2d(activated(self.bn2, self.conv2(x)), 2)
        x = activated(self.bn3, self.conv3(x))
        features: Tensor = self.dropout(relu(self.hidden(x.flatten(1))))
        return features
