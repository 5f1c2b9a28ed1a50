"""The `method` parameter on a table: from what the user wrote to a Method whose distance fits the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from rcad.errors import InputError, finite
from rcad.loss.augmentations import Mixup
from rcad.loss.likelihoods import Bernoulli
from rcad.loss.method_rows import SEARCHED, MethodRow, method_rows, named_method, rows_to_plain, spelled
from rcad.loss.methods import METHODS, Method, bernoulli, compose
from rcad.loss.perturbations import Move
from rcad.loss.suggest_alpha import REAL_STEP, SAMPLE, apart, nearest_other_class, suggest_alpha
from rcad.study.space import started
from rcad.train.task import check_table, match_targets, resolve_auto


def method_for(
    method: str | Method, given: Mapping[str, float], *, classes: int, several: bool, measure: Callable[[], float]
) -> Method:
    """The method for standardised training examples.

    What neither the text nor `given` says has its default: of RCAD and its controls alpha measured and lam = 0.1 on
    class labels, 0.3 and 0.3 for regression. There are no bounds of pixels.

    Args:
        method: a name, a text such as "rcad(alpha=0.3, lam=0.1)", or a value, whose numbers `given` replaces.
        given: alpha and lam, as far as they are set beside the method.
        classes: how many; 0 for regression targets and several labels.
        several: whether each example has several yes/no labels.
        measure: the distance, asked only where it is needed.
    """
    for name, value in given.items():
        finite(name, value, minimum=0.0)
    written: tuple[MethodRow, ...] = ()
    if isinstance(method, str):
        rows = written = spelled(named_method(method), leave=SEARCHED)
    elif not isinstance(method, Method):
        raise InputError(f"expected method to be a name, a text or a Method, but got {type(method).__name__}")
    elif method.recipe:
        rows = method_rows(method.recipe)
    elif given:
        raise InputError("expected alpha=None and lam=None beside a method built from terms; set them in its terms")
    else:
        return _fitting(method, classes, several)
    labels = bool(classes) or several
    rows = started(rows, labels=labels, table=True)
    for key, value in given.items():
        rows = _filled(rows, key, value, written)
    plain = [resolve_auto(row, labels, measure if labels else lambda: REAL_STEP) for row in rows_to_plain(rows)]
    return _fitting(Method.from_dict({"methods": plain}), classes, several)


def _fitting(method: Method, classes: int, several: bool) -> Method:
    """The method with a likelihood for its targets; raises if it is for others, or for images."""
    if several:
        method = compose(bernoulli(), method) if method.likelihood is None else method
        parts = [method.likelihood, *(term.likelihood for term in method.terms)]
        if not all(part is None or isinstance(part, Bernoulli) for part in parts):
            raise InputError(
                f"expected a method for several yes/no labels each, but got {method.name!r}; choose another"
            )
    else:
        method = match_targets(method, classes)
    images = [step for step in method.augment if not isinstance(step, Mixup)]
    if images:
        raise InputError(f"expected a method for tables, but {method.name!r} has {images[0]!r}; it needs images")
    check_table(method)
    return method


def distance_of(method: Method) -> float | None:
    """alpha of the method's first step, if it takes one."""
    moves: list[Any] = [term.where for term in method.terms if isinstance(term.where, Move)]
    return moves[0].distance if moves else None


def measured_alpha(x: Tensor, y: Tensor, weight: Tensor | None) -> float:
    """`suggest_alpha`, with each example counted by its weight."""
    if bool((y == y[0]).all()):
        raise InputError(
            "expected two or more classes in the first rows to measure alpha, but got one; give alpha a number, or "
            "begin with rows of several classes"
        )
    generator = torch.Generator(x.device).manual_seed(0)
    if weight is None or len(x) > SAMPLE:
        alpha = suggest_alpha(x, y, generator=generator)
    else:
        distance = nearest_other_class(x, y, generator=generator)
        rows = apart(distance)
        distance, order = distance[rows].sort()
        mass = weight[rows][order].double().cumsum(0)
        # Where the weights split evenly, rounding must not decide which of the two middle distances is taken.
        edges = mass[-1] / 2 * mass.new_tensor([1 - 1e-9, 1 + 1e-9])
        alpha = 0.25 * float(distance[torch.searchsorted(mass, edges).clamp(max=len(mass) - 1)].sum())
    return round(alpha, 4) or float(f"{alpha:.1g}")  # never zero: RCAD without a step is another method


def _filled(
    rows: tuple[MethodRow, ...], key: str, value: float, written: tuple[MethodRow, ...]
) -> tuple[MethodRow, ...]:
    """The rows with a parameter of the estimator in those that have it; what was written in a text must agree."""
    owners = {name for name, _ in rows if name in METHODS and _takes(name, key)}
    if not owners:
        names = " + ".join(name for name, _ in rows)
        raise InputError(f"expected a method with a parameter {key} of its step, but got {names}; leave {key}=None")
    for said in (dict(values).get(key, value) for name, values in written if name in owners):
        if said != value:
            raise InputError(
                f"expected {key} once, but got {key}={said} in the text of the method and {key}={value:g} beside it; "
                f"leave one out"
            )
    return method_rows(
        [(name, {**dict(values), key: float(value)} if name in owners else values) for name, values in rows]
    )


def _takes(name: str, key: str) -> bool:
    """Whether a method has this parameter; the alpha of mixing is no distance and does not count."""
    if key not in signature(METHODS[name]).parameters:
        return False
    return key != "alpha" or any(isinstance(term.where, Move) for term in METHODS[name]().terms)
