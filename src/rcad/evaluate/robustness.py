"""The accuracy that attacks leave, with the examples that withstood them; also under the standard suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from rcad.data.dataset import Progress, no_progress
from rcad.errors import InputError, finite, need, one_of, whole
from rcad.evaluate.attack_search import batches, check_labels, seeded, watched
from rcad.loss.growth import as_unit_float
from rcad.loss.model_calls import Forward, Model, as_module


class Perturbs(Protocol):
    """What `attacked_accuracy` needs of an attack."""

    def perturb(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Tensor: ...


@dataclass(frozen=True)
class Attacked:
    """Which examples a model got right: (N,) `clean`, without attack; by attack, (N,) right before and after it."""

    clean: Tensor
    survived: Mapping[str, Tensor]

    @property
    def worst(self) -> Tensor:
        """(N,) right without attack and after every one."""
        return reduce(torch.logical_and, self.survived.values(), self.clean)

    def accuracies(self) -> dict[str, float]:
        """Percent right: "clean", each attack by name, and "worst"."""
        masks = {"clean": self.clean, **self.survived, "worst": self.worst}
        values = torch.stack([100 * mask.double().mean() for mask in masks.values()]).tolist()
        return dict(zip(masks, values, strict=True))


def attacked_accuracy(
    model: Model,
    x: Tensor,
    y: Tensor,
    attacks: Mapping[str, Perturbs] | Sequence[Perturbs],
    *,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: Progress = no_progress,
) -> Attacked:
    """Runs attacks on the examples that the model gets right, and asks it again at each x'.

    What an attack without random starts finds does not depend on `batch_size`, but for the rounding of the model's own
    sums. Random starts are drawn batch by batch: the result is a function of the arguments, `batch_size` among them.

    Args:
        x: all examples (N, ...): uint8 pixels (read as [0, 1]) or floats, on any device.
        y: labels (N,).
        attacks: by name, or a list (named by what they print).
        generator: for random starts; None takes a new one, seeded 0.
        progress: called with (examples done, examples in all), over all attacks.
    """
    named = attacks if isinstance(attacks, Mapping) else {str(attack): attack for attack in attacks}
    _check(named, len(attacks), x, y, batch_size)
    device = device_of(model, x)
    generator, y = generator or seeded(device), y.to(device)
    clean = _right(model, x, y, batch_size)
    survived: dict[str, Tensor] = {}
    for place, (name, attack) in enumerate(named.items()):
        mask = clean.clone()
        done = len(x) * place
        for rows in torch.split(clean.nonzero().squeeze(1), batch_size):
            part, labels = as_unit_float(x[rows.to(x.device)].to(device)), y[rows]
            mask[rows] = _right(model, attack.perturb(model, part, labels, generator), labels, batch_size)
            done += len(rows)
            progress(done, len(x) * len(named))
        survived[name] = mask
        # Examples that needed no attack count as done.
        progress(len(x) * len(survived), len(x) * len(named))
    return Attacked(clean, survived)


def accuracy_under(
    model: Model,
    x: Tensor,
    y: Tensor,
    attack: Perturbs,
    *,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
) -> float:
    """The percentage right at x', every example attacked: how the RCAD paper counts (T6).

    An example that was wrong and turns right by the attack counts as right here, in `attacked_accuracy` it does not.
    """
    _check({"attack": attack}, 1, x, y, batch_size)
    device = device_of(model, x)
    generator = generator or seeded(device)
    right = [
        _right(model, attack.perturb(model, part, labels, generator), labels, batch_size)
        for part, labels in batches(x, y, batch_size, device)
    ]
    return 100 * torch.cat(right).double().mean().item()


def device_of(model: Model, x: Tensor) -> torch.device:
    """Where the model's parameters are; where x is if it has none."""
    module = as_module(model)
    parameter = None if module is None else next(module.parameters(), None)
    return x.device if parameter is None else parameter.device


def _right(model: Model, x: Tensor, y: Tensor, batch_size: int) -> Tensor:
    device = device_of(model, x)
    with watched(model, device):
        forward = Forward(model)
        parts = [forward(as_unit_float(part.to(device))).argmax(1) for part in torch.split(x, batch_size)]
        return torch.cat(parts) == y


def _check(named: Mapping[str, Perturbs], count: int, x: Tensor, y: Tensor, batch_size: int) -> None:
    whole("batch_size", batch_size, minimum=1)
    if not named:
        raise InputError("expected at least one attack, but got none")
    if len(named) < count:
        raise InputError("expected different attacks, but got one of them twice; give them names in a dict")
    if reserved := {"clean", "worst"} & set(named):
        names = ", ".join(sorted(reserved))
        raise InputError(f"expected other names for attacks than clean and worst, but got {names}")
    if not len(x):
        raise InputError("expected at least one example to attack, but got none")
    check_labels(x, y)


SUITE = ("apgd-ce", "apgd-t", "fab-t", "square")
# The targeted losses need four classes; the untargeted FAB does not.
SUITE_OF_FEW_CLASSES = ("apgd-ce", "fab", "square")
TARGETS = 9


def standard_suite(
    model: Model,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Literal["linf", "l2"] = "linf",
    *,
    batch_size: int = 256,
    progress: Progress = no_progress,
    queries: int = 5000,
) -> Attacked:
    """APGD-CE, targeted APGD-DLR, targeted FAB and Square, each on the survivors of those before it.

    The settings are the suite's: 100 steps, no restarts, 9 target classes (or all others, if they are fewer). With
    fewer than 4 classes the targeted attacks are not defined and the untargeted FAB stands in for them.

    Args:
        x: images (N, C, H, W) in [0, 1], or uint8.
        queries: how often Square may ask; the suite has 5000. Fewer is no longer the standard suite.
    """
    pyautoattack = need("pyautoattack", "pyautoattack", "attacks")
    finite("eps", eps, above=0.0)
    one_of("norm", norm, ("linf", "l2"))
    device = device_of(model, x)
    x, y = as_unit_float(x).to(device).float(), y.to(device)
    if x.ndim != 4 or bool(((x < 0) | (x > 1)).any()):
        raise InputError(f"expected images (N, C, H, W) in [0, 1], but got {tuple(x.shape)}; tables: use APGD and PGD")
    seed = int(torch.randint(2**31, (), generator=seeded(device), device=device).item())
    with watched(model, device), _sheltered(model):
        forward = _Logits(model)
        right = _right(model, x, y, batch_size)
        classes = forward(x[:1]).shape[1]
        names = SUITE if classes >= 4 else SUITE_OF_FEW_CLASSES
        clean, survived = right, {}
        for done, name in enumerate(names, 1):
            rows = right.nonzero().squeeze(1)
            if len(rows):
                options = {"eps": eps, "norm": {"linf": "Linf", "l2": "L2"}[norm], "seed": seed, "device": device}
                suite = pyautoattack.AutoAttack(forward, attacks=[name], version="custom", **options)
                suite.apgd.n_restarts = suite.apgd_targeted.n_restarts = suite.fab.n_restarts = 1
                suite.apgd_targeted.n_target_classes = suite.fab.n_target_classes = min(TARGETS, classes - 1)
                suite.square.n_queries = queries
                with torch.enable_grad():
                    x_adv, _ = suite.run_standard_evaluation(x[rows], y[rows], batch_size=batch_size)
                right = right.index_put((rows,), _right(model, x_adv, y[rows], batch_size))
            survived[name] = right
            progress(done * len(x), len(names) * len(x))
    return Attacked(clean, survived)


class _Logits(nn.Module):
    """Any model as a module that gives logits."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._forward = Forward(model)  # not a submodule: the package must not change its mode

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(x)


@contextmanager
def _sheltered(model: Model) -> Iterator[None]:
    """FAB calls `backward`, which would add to the parameters' `.grad`; a check of the package ends all tracing."""
    module = as_module(model)
    trained = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    trace = sys.gettrace()
    try:
        yield
    finally:
        sys.settrace(trace)
        for parameter in trained:
            parameter.requires_grad_(True)
