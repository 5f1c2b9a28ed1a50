"""The standard suite of four attacks (Croce and Hein, ICML 2020), as the package `pyautoattack` runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError, finite, one_of
from rcad.evaluate.attack_search import watched
from rcad.evaluate.attacked import Attacked, Progress, device_of
from rcad.loss.growth import as_unit_float
from rcad.loss.model_calls import Forward, Model, as_module

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
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    queries: int = 5000,
) -> Attacked:
    """APGD-CE, targeted APGD-DLR, targeted FAB and Square, each on the survivors of those before it.

    The settings are the suite's: 100 steps, no restarts, 9 target classes (or all others, if they are fewer). With
    fewer than 4 classes the targeted attacks are not defined and the untargeted FAB stands in for them.

    Args:
        x: images (N, C, H, W) in [0, 1], or uint8.
        queries: how often Square may ask; the suite has 5000. Fewer is no longer the standard suite.
    """
    try:
        import pyautoattack  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise MissingExtraError("pyautoattack", "attacks") from None
    finite("eps", eps, above=0.0)
    one_of("norm", norm, ("linf", "l2"))
    device = device_of(model, x)
    x, y = as_unit_float(x).to(device).float(), y.to(device)
    if x.ndim != 4 or bool(((x < 0) | (x > 1)).any()):
        raise InputError(f"expected images (N, C, H, W) in [0, 1], but got {tuple(x.shape)}; tables: use APGD and PGD")
    if generator is None:
        generator = torch.Generator(device=device).manual_seed(0)
    seed = int(torch.randint(2**31, (), generator=generator, device=generator.device).item())

    with watched(model, device), _sheltered(model):
        forward = _Logits(model)
        right = _right(forward, x, y, batch_size)
        classes = _classes(forward, x)
        names = SUITE if classes >= 4 else SUITE_OF_FEW_CLASSES
        clean, survived = right, {}
        for done, name in enumerate(names, 1):
            rows = right.nonzero().squeeze(1)
            if len(rows):
                suite = pyautoattack.AutoAttack(
                    forward,
                    attacks=[name],
                    device=device,
                    eps=eps,
                    norm={"linf": "Linf", "l2": "L2"}[norm],
                    seed=seed,
                    version="custom",
                )
                _set(suite, min(TARGETS, classes - 1), queries)
                x_adv, _ = suite.run_standard_evaluation(x[rows], y[rows], batch_size=batch_size)
                right = right.index_put((rows,), _right(forward, x_adv, y[rows], batch_size))
            survived[name] = right
            if progress is not None:
                progress(done * len(x), len(names) * len(x))
    return Attacked(clean, survived, cumulative=True)


class _Logits(nn.Module):
    """Any model as a module that gives logits."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._forward = Forward(model)  # not a submodule: the package must not change its mode

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(x)


def _set(suite: Any, targets: int, queries: int) -> None:
    suite.apgd.n_restarts = suite.apgd_targeted.n_restarts = suite.fab.n_restarts = 1
    suite.apgd_targeted.n_target_classes = suite.fab.n_target_classes = targets
    suite.square.n_queries = queries


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


@torch.no_grad()
def _right(forward: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> Tensor:
    return torch.cat([forward(part).argmax(1) for part in torch.split(x, batch_size)]) == y


@torch.no_grad()
def _classes(forward: nn.Module, x: Tensor) -> int:
    return int(forward(x[:1]).shape[1])
