"""Many perceptrons of one shape in one tensor: the parameters of R replicas, stacked.

All weights lie in one flat tensor, layer by layer, and within a layer replica by replica. A layer's view is then
contiguous, as batched matrix products want it, and the optimizer sees one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from rcad.errors import InputError, whole
from rcad.models.mlp import MLP
from rcad.train.seeds import derived


@dataclass(frozen=True)
class Layout:
    """Where each replica's numbers lie in a flat tensor of `replicas * parameters` numbers.

    Args:
        replicas: R.
        sizes: units from input to output, e.g. (13, 50, 2).
    """

    replicas: int
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        whole("replicas", self.replicas, minimum=1)
        if len(self.sizes) < 2 or any(size < 1 for size in self.sizes):
            raise InputError(f"expected positive numbers of units from input to output, but got {self.sizes}")

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """One replica's tensors, in the order of `MLP.parameters()`: weight (out, in) and bias (out,) by turns."""
        return [shape for a, b in pairwise(self.sizes) for shape in ((b, a), (b,))]

    @property
    def parameters(self) -> int:
        """Numbers in one replica."""
        return sum(map(math.prod, self.shapes))

    def views(self, flat: Tensor) -> list[Tensor]:
        """The tensors of all replicas, (R, *shape) each, as views."""
        parts = torch.split(flat, [self.replicas * math.prod(shape) for shape in self.shapes])
        return [part.view(self.replicas, *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def join(self, views: Sequence[Tensor]) -> Tensor:
        """A new flat tensor from tensors (R, *shape)."""
        return torch.cat([view.reshape(-1) for view in views])

    def spread(self, values: Tensor) -> Tensor:
        """One number per replica (R,) as one per parameter, in the flat order."""
        return torch.cat([values.repeat_interleave(math.prod(shape)) for shape in self.shapes])

    def take(self, flat: Tensor, index: Tensor) -> Tensor:
        """The flat tensor of some of the replicas."""
        return self.join([view[index] for view in self.views(flat)])


class StackedMLP:
    """R perceptrons with ReLU between the layers; replica r is the `MLP` whose `state_dict` is `replica(r)`.

    Args:
        layout: number of replicas and units.
        flat: all parameters, see `Layout`.

    Shape:
        (R, B, D) -> (R, B, K): replica r sees its own batch. Differentiable with respect to x; the training step has
        its own backward (`passes`).
    """

    def __init__(self, layout: Layout, flat: Tensor) -> None:
        if flat.shape != (layout.replicas * layout.parameters,):
            raise InputError(
                f"expected {layout.replicas * layout.parameters} parameters, but got a tensor {tuple(flat.shape)}"
            )
        self.layout, self.flat = layout, flat
        views = layout.views(flat)
        self.weights, self.biases = views[0::2], views[1::2]

    @classmethod
    def initial(
        cls,
        seeds: Sequence[int],
        sizes: Sequence[int],
        *,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> StackedMLP:
        """Each replica as the single run with its seed begins."""
        sizes = tuple(sizes)
        layout = Layout(len(seeds), sizes)
        flat = torch.empty(layout.replicas * layout.parameters)
        views = layout.views(flat)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            net = MLP(num_outputs=sizes[-1], in_shape=sizes[:1], hidden=sizes[1:-1])
            layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
            for r, seed in enumerate(seeds):
                # A layer draws the same numbers when it is reset as when it is made, in a fraction of the time.
                torch.default_generator.manual_seed(derived(int(seed), "weights"))
                for layer in layers:
                    layer.reset_parameters()
                for view, parameter in zip(views, net.parameters(), strict=True):
                    view[r] = parameter
        return cls(layout, flat.to(device=device, dtype=dtype))

    @property
    def replicas(self) -> int:
        return self.layout.replicas

    def features(self, x: Tensor) -> Tensor:
        """(R, B, D) -> the last hidden layer, (R, B, F)."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = relu(torch.baddbmm(bias[:, None], x, weight.transpose(1, 2)))
        return x

    def head(self, features: Tensor) -> Tensor:
        """(R, B, F) -> (R, B, K)."""
        return torch.baddbmm(self.biases[-1][:, None], features, self.weights[-1].transpose(1, 2))

    def __call__(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))

    def replica(self, r: int) -> dict[str, Tensor]:
        """One replica's weights under the names of `MLP`."""
        state: dict[str, Tensor] = {}
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            name = "fc" if k == len(self.weights) - 1 else f"layers.{k}"
            state[f"{name}.weight"], state[f"{name}.bias"] = weight[r].clone(), bias[r].clone()
        return state

    def module(self, r: int) -> MLP:
        """One replica as an ordinary model."""
        sizes = self.layout.sizes
        net = MLP(num_outputs=sizes[-1], in_shape=sizes[:1], hidden=sizes[1:-1]).to(self.flat)
        net.load_state_dict(self.replica(r))
        return net

    def take(self, index: Tensor) -> StackedMLP:
        """Some of the replicas, copied."""
        return StackedMLP(Layout(len(index), self.layout.sizes), self.layout.take(self.flat, index))

    def put(self, index: Tensor, other: StackedMLP) -> None:
        """Writes the replicas of `other` over those at `index`."""
        for mine, theirs in zip(self.layout.views(self.flat), other.layout.views(other.flat), strict=True):
            mine[index] = theirs

    def finite(self) -> Tensor:
        """Which replicas hold finite numbers only, bool (R,)."""
        return torch.stack([view.flatten(1).isfinite().all(1) for view in self.layout.views(self.flat)]).all(0)

    def copy(self) -> StackedMLP:
        return StackedMLP(self.layout, self.flat.clone())
