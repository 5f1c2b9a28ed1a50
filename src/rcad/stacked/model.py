"""Many perceptrons of one shape in one tensor: the parameters of R replicas, their passes and their optimizers.

All weights lie in one flat tensor, layer by layer, and within a layer replica by replica. A layer's view is then
contiguous, as batched matrix products want it, and the optimizer sees one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from rcad.errors import InputError
from rcad.models.layers import MLP
from rcad.runs.config import OptimConfig
from rcad.train.loop import learning_rate
from rcad.train.machine import own_randomness
from rcad.train.task import derived


@dataclass(frozen=True)
class Layout:
    """Where each replica's numbers lie in a flat tensor of `replicas * parameters` numbers."""

    replicas: int
    sizes: tuple[int, ...]  # units from input to output, e.g. (13, 50, 2)

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

    def spread(self, values: Tensor) -> Tensor:
        """One number per replica (R,) as one per parameter, in the flat order."""
        return torch.cat([values.repeat_interleave(math.prod(shape)) for shape in self.shapes])


class StackedMLP:
    """R perceptrons with ReLU between the layers; replica r is the `MLP` whose `state_dict` is `replica(r)`.

    (R, B, D) -> (R, B, K): replica r sees its own batch. The training step has a backward of its own (`Passes`).
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
        with own_randomness(torch.device("cpu")), torch.no_grad():
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
        """One replica as an ordinary model; no random number is drawn."""
        sizes = self.layout.sizes
        with torch.device("meta"):
            net = MLP(num_outputs=sizes[-1], in_shape=sizes[:1], hidden=sizes[1:-1])
        net.load_state_dict(self.replica(r), assign=True)
        return net

    def take(self, index: Tensor) -> StackedMLP:
        """Some of the replicas, copied."""
        flat = torch.cat([view[index].reshape(-1) for view in self.layout.views(self.flat)])
        return StackedMLP(Layout(len(index), self.layout.sizes), flat)

    def put(self, index: Tensor, other: StackedMLP) -> None:
        """Writes the replicas of `other` over those at `index`."""
        for mine, theirs in zip(self.layout.views(self.flat), other.layout.views(other.flat), strict=True):
            mine[index] = theirs

    def finite(self) -> Tensor:
        """Which replicas hold finite numbers only, bool (R,)."""
        return torch.stack([view.flatten(1).isfinite().all(1) for view in self.layout.views(self.flat)]).all(0)


relu_backward = torch.ops.aten.threshold_backward.grad_input


class Passes:
    """Forward and backward passes of one model, whose parameters may change between them, on batches of one size.

    Args:
        gradient: flat tensor in the model's layout, which receives the gradients.
        batch: B examples for each replica.
    """

    def __init__(self, model: StackedMLP, gradient: Tensor, batch: int) -> None:
        self.model, self.batch = model, batch
        views = model.layout.views(gradient)
        self._weight_grads, self._bias_grads = views[0::2], views[1::2]
        shapes = [(model.replicas, batch, size) for size in model.layout.sizes]
        self._values = [gradient.new_empty(shape) for shape in shapes[1:]]
        self._grads = [gradient.new_empty(shape) for shape in shapes[:-1]]
        self._bias_sums = [torch.empty_like(g) for g in self._bias_grads]
        self._layers = [(w.transpose(1, 2), b[:, None]) for w, b in zip(model.weights, model.biases, strict=True)]
        self._x: Tensor | None = None
        self._fresh = True

    def start(self) -> None:
        """The next weight gradients replace those of the step before."""
        self._fresh = True

    def forward(self, x: Tensor) -> Tensor:
        """(R, B, D) -> (R, B, K), valid until the next forward."""
        self._x = x
        last = len(self._values) - 1
        for k, (weight, bias) in enumerate(self._layers):
            value = torch.baddbmm(bias, x, weight, out=self._values[k])
            x = value if k == last else value.relu_()
        return self._values[-1]

    def backward(self, gradient: Tensor, *, weights: bool = True, inputs: bool = False) -> Tensor | None:
        """From the gradient with respect to the output (R, B, K) of the last forward.

        Args:
            weights: add to the flat gradient (or begin it, see `start`).
            inputs: return the gradient with respect to x, (R, B, D), valid until the next backward.
        """
        assert self._x is not None
        for k in reversed(range(len(self._values))):
            below = self._values[k - 1] if k else self._x
            if weights:
                self._weight_grads[k].baddbmm_(gradient.transpose(1, 2), below, beta=0 if self._fresh else 1)
                if self._fresh:
                    torch.sum(gradient, 1, out=self._bias_grads[k])
                else:
                    self._bias_grads[k].add_(torch.sum(gradient, 1, out=self._bias_sums[k]))
            if k:
                gradient = torch.bmm(gradient, self.model.weights[k], out=self._grads[k])
                relu_backward(gradient, below, 0, grad_input=gradient)
        if weights:
            self._fresh = False
        return torch.bmm(gradient, self.model.weights[0], out=self._grads[0]) if inputs else None


BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch.optim's defaults for Adam


class StackedOptimizer:
    """One optimizer for all replicas.

    Args:
        configs: one per replica; they may differ in lr, weight_decay and clip.
        like: a flat tensor, for dtype and device.
        epochs: of the whole training, for the schedule.
    """

    def __init__(self, configs: Sequence[OptimConfig], layout: Layout, like: Tensor, epochs: int) -> None:
        self.layout, self.epochs = layout, epochs
        self.shared, *others = (replace(config, lr=1.0, weight_decay=0.0, clip=None) for config in configs)
        for other in others:
            if other != self.shared:
                raise InputError(
                    f"expected optimizers that differ in lr, weight_decay and clip only, but got {self.shared} and "
                    f"{other}"
                )
        clips = [float("inf") if config.clip is None else config.clip for config in configs]
        rate, decay, clip = (
            like.new_tensor(values)
            for values in ([config.lr for config in configs], [config.weight_decay for config in configs], clips)
        )
        # One rate for all is a factor; different ones are a tensor as long as the parameters.
        self._rate: Tensor | float = layout.spread(rate) if len({c.lr for c in configs}) > 1 else configs[0].lr
        self._decay = layout.spread(decay) if bool(decay.any()) else None
        self._clip = clip if bool(clip.isfinite().any()) else None
        self.steps = 0
        self._adam = self.shared.name == "adamw"
        self.first = torch.zeros_like(like) if self._adam or self.shared.momentum else None
        self.second = torch.zeros_like(like) if self._adam else None
        self._work = torch.empty_like(like)
        self._shrinking: tuple[float, Tensor] | None = None  # what decay leaves of the weights, at a rate's factor

    def step(self, flat: Tensor, gradient: Tensor, progress: float) -> None:
        """Moves the parameters; `gradient` is used up. `progress`: epochs done, a fraction inside an epoch."""
        self.steps += 1
        if self._clip is not None:
            self._shrink(gradient, self._clip)
        factor = learning_rate(self.shared, self.epochs, progress)
        if self._adam:
            self._adam_step(flat, gradient, factor)
        else:
            self._sgd_step(flat, gradient, factor)

    def _shrink(self, gradient: Tensor, clip: Tensor) -> None:
        """As clip_grad_norm_, for each replica by itself."""
        views = self.layout.views(gradient)
        squares = torch.stack([view.flatten(1).square().sum(1) for view in views]).sum(0)
        factor = (clip / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for view in views:
            view.mul_(factor.view(-1, *[1] * (view.ndim - 1)))

    def _sgd_step(self, flat: Tensor, gradient: Tensor, factor: float) -> None:
        if self._decay is not None:
            gradient.addcmul_(self._decay, flat)
        if self.first is not None:
            self.first.mul_(self.shared.momentum).add_(gradient)
            if self.shared.nesterov:
                gradient.add_(self.first, alpha=self.shared.momentum)
            else:
                gradient = self.first
        self._descend(flat, gradient, factor)

    def _adam_step(self, flat: Tensor, gradient: Tensor, factor: float) -> None:
        assert self.first is not None
        assert self.second is not None
        if self._decay is not None:
            flat.mul_(self._left(self._decay, factor))
        first, second = (1 - beta**self.steps for beta in BETAS)
        self.first.lerp_(gradient, 1 - BETAS[0])
        self.second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        torch.sqrt(self.second, out=self._work).mul_(second**-0.5).add_(EPSILON)
        torch.div(self.first, self._work, out=gradient)
        self._descend(flat, gradient, factor / first)

    def _left(self, decay: Tensor, factor: float) -> Tensor:
        """The share of each weight that decay leaves in a step; a constant rate has it once."""
        if self._shrinking is None or self._shrinking[0] != factor:
            room = torch.empty_like(self._work) if self._shrinking is None else self._shrinking[1]
            self._shrinking = factor, torch.mul(decay, self._rate, out=room).mul_(-factor).add_(1.0)
        return self._shrinking[1]

    def _descend(self, flat: Tensor, step: Tensor, factor: float) -> None:
        if isinstance(self._rate, Tensor):
            flat.addcmul_(self._rate, step, value=-factor)
        else:
            flat.add_(step, alpha=-factor * self._rate)
