"""The estimators' parameters, checked where training begins, each with one line that says what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rcad.errors import InputError, finite, fraction, whole


def check_parameters(estimator: Any) -> None:
    """All but the method's: `method_for` checks these."""
    units = estimator.hidden_layer_sizes
    if isinstance(units, str | dict | set) or not hasattr(units, "__iter__"):
        raise InputError(f"expected hidden_layer_sizes as a tuple such as (100,), but got {units!r}")
    counts = {name: getattr(estimator, name) for name in ("max_iter", "n_iter_no_change")}
    if not (isinstance(estimator.batch_size, str) and estimator.batch_size == "auto"):
        counts["batch_size"] = estimator.batch_size
    for name, value in [*counts.items(), *(("hidden_layer_sizes", size) for size in units)]:
        whole(name, int(value) if isinstance(value, np.integer) else value, minimum=1)
    finite("learning_rate", estimator.learning_rate, above=0.0)
    finite("weight_decay", estimator.weight_decay, minimum=0.0)
    for name in ("early_stopping", "warm_start"):
        value = getattr(estimator, name)
        if not isinstance(value, bool | np.bool_):
            raise InputError(f"expected {name} to be True or False, but got {value!r}")
    if not isinstance(estimator.verbose, bool | int | np.bool_ | np.integer):
        raise InputError(f"expected verbose to be True, False or a whole number, but got {estimator.verbose!r}")
    fraction("validation_fraction", estimator.validation_fraction)
    if estimator.early_stopping and estimator.validation_fraction == 0:
        raise InputError("expected validation_fraction above 0 beside early_stopping=True, but got 0; try 0.1")
    check_device(estimator.device)


def check_device(device: Any) -> None:
    """A device that torch knows and that is here."""
    wanted = f"expected a device such as 'cpu' or 'cuda', but got {device!r}"
    if not isinstance(device, str | torch.device):
        raise InputError(wanted)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"{wanted}: {reason}") from None


def check_class_weight(weights: Any, classes: Any) -> None:
    """The word "balanced", or finite weights by class, which may leave classes out but not name others instead."""
    if isinstance(weights, str) and weights == "balanced":
        return
    if not isinstance(weights, dict):
        shown = repr(weights) if isinstance(weights, str) else type(weights).__name__
        raise InputError(f"expected class_weight to be None, 'balanced' or a dict of weights by class, but got {shown}")
    for label, value in weights.items():
        finite(f"class_weight of {label!r}", value, minimum=0.0)
    known = classes.tolist()
    foreign = [label for label in weights if label not in known]
    if foreign and not set(known) <= set(weights):
        raise InputError(f"expected class_weight for classes among {known}, but got one for {foreign[0]!r}")


def check_streaming(estimator: Any) -> None:
    """What `partial_fit` cannot do, since it sees one batch at a time."""
    if estimator.early_stopping:
        raise InputError(
            "expected early_stopping=False with partial_fit, but got True; use fit, or hold rows out yourself"
        )
    if isinstance(getattr(estimator, "class_weight", None), str):
        raise InputError(
            "expected class_weight=None or a dict with partial_fit, but got 'balanced'; give the weights by class"
        )
