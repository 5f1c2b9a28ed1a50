"""What attacks share: the points they may choose, the losses they climb, a look at the model that leaves no trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Categorical, full_precision
from rcad.loss.model_calls import Forward, Model, as_module, evaluating, preserved_rng
from rcad.loss.perturbations import Move, reaching_gradient, unit

# What the float arithmetic of one L2 projection may add to a length, relative to it; some hundreds of roundings.
ARITHMETIC = 16
# Inputs that leave the bounds by less than this share of their span do so by rounding, not by another scale.
OUTSIDE = 1e-5


class Ball:
    """The allowed points around a batch x, in float32 or float64.

    |x' - x| <= eps holds for the numbers that are returned, not only before rounding: in "linf" the limits of every
    coordinate are rounded towards x, in "l2" the radius is smaller by what rounding can add, some millionths of it.
    """

    def __init__(self, x: Tensor, move: Move) -> None:
        if x.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"expected inputs in float32 or float64, in which a small distance can be kept, but got {x.dtype}; "
                "call x.float() (the model may run under autocast)"
            )
        self.x, self.move = x, move
        self._ones = (-1, *[1] * (x.ndim - 1))
        self._std = self._scale(x)
        self._low, self._high = self._bounds()
        if move.norm == "linf":
            reach = torch.as_tensor(move.distance / self._scale(x.double()), device=x.device, dtype=torch.float64)
            self._low = torch.maximum(_limit(x, -reach), self._low)
            self._high = torch.minimum(_limit(x, reach), self._high)
        else:
            # Each coordinate of x' is rounded once, by at most half a unit in its last place.
            half = torch.finfo(x.dtype).eps / 2
            rounding = half * torch.linalg.vector_norm((x.abs() * self._std + move.distance).flatten(1), dim=1)
            exact = 1 - ARITHMETIC * torch.finfo(x.dtype).eps
            self._radius = ((move.distance - rounding) * exact).clamp(min=0).view(self._ones)

    def climbed(self, point: Tensor, gradient: Tensor, size: float | Tensor) -> Tensor:
        """The point moved by `size` (a number, or one per example) in the direction of a gradient, and projected."""
        if isinstance(size, Tensor):
            size = size.view(self._ones)
        return self.projected(point + size * self.move.direction(torch.nan_to_num(gradient)) / self._std)

    def projected(self, point: Tensor) -> Tensor:
        """The nearest allowed point ("l2" with bounds: first onto the sphere, then into the bounds)."""
        if self.move.norm == "l2":
            step = (point - self.x) * self._std
            length = torch.linalg.vector_norm(step.flatten(1), dim=1).view(self._ones)
            shrink = (self._radius / length.clamp(min=torch.finfo(step.dtype).tiny)).clamp(max=1.0)
            point = self.x + step * shrink / self._std
        return torch.clamp(point, self._low, self._high)

    def start(self, generator: torch.Generator) -> Tensor:
        """A random point: uniform in the cube ("linf"), or in any direction at a uniform distance up to eps ("l2")."""
        if self.move.norm == "linf":
            noise = 2 * self._drawn(torch.rand, self.x.shape, generator) - 1
        else:
            # Not from the sphere itself: from there, steps of 2.5 eps in all do not get round to the best point.
            noise = unit(self._drawn(torch.randn, self.x.shape, generator), "l2")
            noise = noise * self._drawn(torch.rand, (len(self.x), *self._ones[1:]), generator)
        return self._away(noise)

    def corner(self, generator: torch.Generator) -> Tensor:
        """A random point as far away as allowed: a corner of the cube ("linf"), or a point of the sphere ("l2")."""
        return self._away(unit(self._drawn(torch.randn, self.x.shape, generator), self.move.norm))

    def _drawn(self, sample: Callable[..., Tensor], shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Noise like x, from a generator on any device."""
        return sample(shape, generator=generator, device=generator.device, dtype=self.x.dtype).to(self.x.device)

    def _away(self, noise: Tensor) -> Tensor:
        return self.projected(self.x + self.move.distance * noise / self._std)

    def _scale(self, x: Tensor) -> float | Tensor:
        """By what x was divided when it was normalised."""
        return 1.0 if self.move.std is None else self.move._like(self.move.std, x)

    def _bounds(self) -> tuple[Tensor, Tensor]:
        x = self.x
        if self.move.bounds is None:
            return x.new_tensor(-torch.inf), x.new_tensor(torch.inf)
        limits = self.move._limits(x.double())
        low, high = (torch.as_tensor(v, device=x.device, dtype=torch.float64).to(x.dtype).expand_as(x) for v in limits)
        slack = OUTSIDE * (high - low)
        if bool(((x < low - slack) | (x > high + slack) | ~torch.isfinite(x)).any()):
            raise InputError(
                f"expected inputs within the bounds {self.move.bounds}, but got values from {x.min().item():g} to "
                f"{x.max().item():g}; give mean and std if they were normalised, or bounds=None for a table"
            )
        return torch.minimum(low, x), torch.maximum(high, x)

    def whole_space(self) -> float:
        """An eps that reaches every point of the bounds; without them, ten times the spread of the batch, or from 0."""
        if self.move.bounds is None:
            far = [((self.x - centre) * self._std).abs().max().item() for centre in (self.x.mean(0), 0.0)]
            spread = 10 * (far[0] or far[1] or 1.0)
        else:
            spread = self.move.bounds[1] - self.move.bounds[0]
        return spread if self.move.norm == "linf" else spread * math.sqrt(self.x[0].numel())


def _limit(x: Tensor, reach: Tensor) -> Tensor:
    """x + reach, rounded towards x where rounding to nearest would go beyond."""
    rounded = (x.double() + reach).to(x.dtype)
    beyond = (rounded.double() - x.double()).abs() > reach.abs()
    return torch.where(beyond, torch.nextafter(rounded, x), rounded)


AttackLoss = Callable[[Tensor, Tensor], Tensor]
LossName = Literal["ce", "dlr"]

# Keeps the ratio finite where the leading logits are equal.
TIE = 1e-12


def margin(output: Tensor, y: Tensor) -> Tensor:
    """The largest logit of the other classes, minus that of the label: positive where the prediction is wrong."""
    return without_label(output, y).amax(1) - output.gather(1, y[:, None]).squeeze(1)


def without_label(output: Tensor, y: Tensor) -> Tensor:
    """The logits with minus infinity for the label."""
    return output.scatter(1, y[:, None], -torch.inf)


def dlr(output: Tensor, y: Tensor) -> Tensor:
    """The difference of logits ratio (Croce and Hein, 2020): the margin over the first minus the third logit.

    Unlike the cross-entropy it does not change when the logits are scaled. Three classes or more.
    """
    output = full_precision(output)
    first, _, third = _leading(output, 3, "the DLR loss")
    return margin(output, y) / (first - third + TIE)


def dlr_towards(target: Tensor) -> AttackLoss:
    """The DLR loss with a class to reach (the same paper). Four classes or more."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        output = full_precision(output)
        first, _, third, fourth = _leading(output, 4, "the targeted DLR loss")
        gain = output.gather(1, target[:, None]) - output.gather(1, y[:, None])
        return gain.squeeze(1) / (first - (third + fourth) / 2 + TIE)

    return loss


def _leading(output: Tensor, count: int, loss: str) -> tuple[Tensor, ...]:
    if output.shape[1] < count:
        raise InputError(f'expected at least {count} classes for {loss}, but got {output.shape[1]}; use loss="ce"')
    return output.topk(count, dim=1).values.unbind(1)


LOSSES: Mapping[LossName, AttackLoss] = {"ce": Categorical().nll, "dlr": dlr}


def check_labels(x: Tensor, y: Tensor) -> None:
    if y.is_floating_point() or y.ndim != 1 or len(y) != len(x):
        raise InputError(f"expected one class label per example, but got {y.dtype} of shape {tuple(y.shape)}")


def batches(x: Tensor, y: Tensor, size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Examples and targets on the device, `size` at a time; pixels of 8 bits become numbers in [0, 1]."""
    for part, targets in zip(torch.split(x, size), torch.split(y, size), strict=True):
        yield as_unit_float(part.to(device)), targets.to(device)


def draw_rows(total: int, count: int, seed: int) -> Tensor:
    """`count` of the numbers below `total`, in ascending order, as the seed says."""
    if count >= total:
        return torch.arange(total)
    return torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].sort().values


def seeded(device: torch.device, seed: int = 0) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed)


@contextmanager
def watched(model: Model, device: torch.device) -> Iterator[None]:
    """Inside, the model is in eval mode and gradients are off, but can be switched on whatever the caller did.

    Afterwards its mode and the random state are as before, come what may.
    """
    module = as_module(model)
    quiet = nullcontext() if module is None else evaluating(module)
    with quiet, preserved_rng(device), torch.inference_mode(False), torch.no_grad():
        yield


class Look(NamedTuple):
    """One number per example at one point: the attack's loss, and whether the prediction is wrong."""

    loss: Tensor
    wrong: Tensor


class View:
    """A batch of labels and the model as an attack sees it, inside `watched`."""

    def __init__(self, model: Model, y: Tensor, loss: AttackLoss) -> None:
        self._forward, self._y, self._loss = Forward(model), y, loss
        self._checked = False

    def look(self, point: Tensor) -> Look:
        output = self._forward(point)
        if not self._checked:
            Categorical().check_shapes(output, self._y)
            Categorical().check_values(output, self._y)
            self._checked = True
        return Look(self._loss(output, self._y), output.argmax(1) != self._y)

    def climb(self, point: Tensor) -> tuple[Look, Tensor]:
        """The same, and the gradient of the summed loss with respect to the point. Parameters receive none."""
        with torch.enable_grad():
            probe = point.detach().requires_grad_(True)
            loss, wrong = self.look(probe)
            gradient = reaching_gradient(loss.sum(), probe)
        return Look(loss.detach(), wrong), gradient


class Best:
    """The best point of each example so far: a wrong prediction beats a right one, then the higher loss wins."""

    def __init__(self, point: Tensor, look: Look) -> None:
        self.point, self.loss, self.wrong = point.clone(), look.loss.clone(), look.wrong.clone()

    def offer(self, point: Tensor, look: Look | Best, rows: Tensor | slice = slice(None)) -> None:
        """Takes the points that are better; `rows` are the examples that they are for."""
        loss, wrong = self.loss[rows], self.wrong[rows]
        better = (look.wrong & ~wrong) | ((look.wrong == wrong) & (look.loss > loss))
        self.point[rows] = torch.where(better.view(-1, *[1] * (point.ndim - 1)), point, self.point[rows])
        self.loss[rows] = torch.where(better, look.loss, loss)
        self.wrong[rows] = wrong | look.wrong
