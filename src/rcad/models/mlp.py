"""A multilayer perceptron for tables, toys and small images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import relu

from rcad.errors import check_parameters, shown
from rcad.models.layers import Model


class MLP(Model):
    """Linear layers with ReLU and dropout, then a linear head.

    Args:
        num_outputs: K logits for a categorical likelihood; 2 for a Gaussian one, (mean, log-variance).
        in_shape: (D,) for features, which should be standardised; (C, H, W) for images, which are flattened.
        hidden: units of each hidden layer; () is a linear model.
        dropout: probability in [0, 1) after each hidden layer.
    """

    def __init__(
        self, *, num_outputs: int, in_shape: Sequence[int], hidden: Sequence[int] = (128,), dropout: float = 0.0
    ) -> None:
        super().__init__(in_shape[0] if len(in_shape) == 3 else None)
        sizes = (math.prod(in_shape), *hidden)
        count = sum((a + 1) * b for a, b in pairwise((*sizes, num_outputs)))
        check_parameters(f"hidden layers of {shown(tuple(hidden))}", count)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.dropout = nn.Dropout(dropout)
        self.num_features = sizes[-1]
        self.fc = nn.Linear(sizes[-1], num_outputs)

    def features(self, x: Tensor) -> Tensor:
        x = self.normalize(x).flatten(1)
        for layer in self.layers:
            x = self.dropout(relu(layer(x)))
        return x
