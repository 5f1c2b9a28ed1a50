"""A small convnet for few images of 8x8 to 32x32 pixels, by default without any normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from rcad.errors import InputError
from rcad.kernels.bn_relu import activated
from rcad.models.layers import FirstConv2d, Model, Norm, init_convs, layer_zero, norm2d


class SmallCNN(Model):
    """Two 3x3 convolutions with a max pool after each, a third, then one hidden layer on the flattened map.

    Args:
        num_outputs: size of the output.
        in_shape: (C, H, W) of the images, H and W at least 4.
        width: channels of the first convolution; the others have 2 * width, the hidden layer 4 * width units.
        dropout: probability in [0, 1) on the hidden layer.
        norm: "none" (biases and a factor), "group" or "batch".
        mean, std: per channel, in [0, 1] pixels; none leaves the pixels as they are.

    Shape:
        (B, C, H, W) in [0, 1] -> (B, num_outputs).
    """

    def __init__(
        self,
        *,
        num_outputs: int,
        in_shape: tuple[int, int, int],
        width: int = 32,
        dropout: float = 0.0,
        norm: Norm = "none",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        channels, height, breadth = in_shape
        if min(height, breadth) < 4:
            raise InputError(f"expected images of at least 4x4 pixels, but got {height}x{breadth}; take 'mlp'")
        self.normalize = layer_zero(channels, mean, std)
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
