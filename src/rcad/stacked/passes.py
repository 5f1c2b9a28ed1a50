"""The forward and backward pass of stacked perceptrons by hand, into memory that is kept from step to step.

Autograd would give the same numbers (a test compares them); written out, the step allocates nothing, sums the
gradients of several passes in place, and leaves the input's gradient or the weights' out where nobody asks for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rcad.stacked.model import StackedMLP

relu_backward = torch.ops.aten.threshold_backward.grad_input


class Passes:
    """Forward and backward passes of one model on batches of one size.

    Args:
        model: whose parameters are used; they may change between passes.
        gradient: flat tensor in the model's layout, which receives the gradients.
        batch: B examples for each replica.
    """

    def __init__(self, model: StackedMLP, gradient: Tensor, batch: int) -> None:
        self.model = model
        views = model.layout.views(gradient)
        self._weight_grads, self._bias_grads = views[0::2], views[1::2]
        shapes = [(model.replicas, batch, size) for size in model.layout.sizes]
        self._values = [gradient.new_empty(shape) for shape in shapes[1:]]
        self._grads = [gradient.new_empty(shape) for shape in shapes[:-1]]
        self._bias_sums = [torch.empty_like(g) for g in self._bias_grads]
        self._x: Tensor | None = None
        self._fresh = True

    def start(self) -> None:
        """The next weight gradients replace those of the step before."""
        self._fresh = True

    def forward(self, x: Tensor) -> Tensor:
        """(R, B, D) -> (R, B, K), valid until the next forward."""
        self._x = x
        last = len(self._values) - 1
        for k, (weight, bias) in enumerate(zip(self.model.weights, self.model.biases, strict=True)):
            value = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2), out=self._values[k])
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
                self._add(k, gradient, below)
            if k:
                gradient = torch.bmm(gradient, self.model.weights[k], out=self._grads[k])
                relu_backward(gradient, below, 0, grad_input=gradient)
        if weights:
            self._fresh = False
        return torch.bmm(gradient, self.model.weights[0], out=self._grads[0]) if inputs else None

    def _add(self, k: int, gradient: Tensor, below: Tensor) -> None:
        beta = 0 if self._fresh else 1
        self._weight_grads[k].baddbmm_(gradient.transpose(1, 2), below, beta=beta)
        if self._fresh:
            torch.sum(gradient, 1, out=self._bias_grads[k])
        else:
            self._bias_grads[k].add_(torch.sum(gradient, 1, out=self._bias_sums[k]))
