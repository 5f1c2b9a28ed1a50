"""One number for many corruptions: mean error, mCE, relative mCE (Hendrycks & Dietterich, ICLR 2019).

Errors are percentages by corruption, one per severity or already their mean. mCE divides each corruption's error by a
baseline's before averaging, so that hard corruptions do not drown the others. The baseline's severities and kind
(generated or published) must be the model's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rcad.errors import InputError, is_number

Errors = Mapping[str, float | Sequence[float]]

# AlexNet's errors on ImageNet-C, from the paper; for other data take a run of your own as baseline.
ALEXNET_IMAGENET_C: Mapping[str, float] = MappingProxyType(
    {
        "gaussian_noise": 88.6,
        "shot_noise": 89.4,
        "impulse_noise": 92.3,
        "defocus_blur": 82.0,
        "glass_blur": 82.6,
        "motion_blur": 78.6,
        "zoom_blur": 79.8,
        "snow": 86.7,
        "frost": 82.7,
        "fog": 81.9,
        "brightness": 56.5,
        "contrast": 85.3,
        "elastic_transform": 64.6,
        "pixelate": 71.8,
        "jpeg_compression": 60.7,
    }
)
ALEXNET_IMAGENET = 43.5


def mean_error(errors: Errors) -> float:
    """The plain mean over severities and corruptions, in percent: what is usual for CIFAR-10-C."""
    return _mean(list(_by_corruption(errors).values()))


def corruption_errors(errors: Errors, baseline: Errors) -> dict[str, float]:
    """CE: each corruption's error in percent of the baseline's."""
    own, other = _paired(errors, baseline)
    return {name: 100 * _ratio(own[name], other[name], name) for name in own}


def mce(errors: Errors, baseline: Errors) -> float:
    """Mean corruption error: the mean of CE over the corruptions. 100 is as good as the baseline."""
    return _mean(list(corruption_errors(errors, baseline).values()))


def relative_corruption_errors(
    errors: Errors, clean: float, baseline: Errors, baseline_clean: float
) -> dict[str, float]:
    """Relative CE: how much a corruption adds to the clean error, in percent of what it adds to the baseline's."""
    own, other = _paired(errors, baseline)
    for name, value in (("clean", clean), ("baseline_clean", baseline_clean)):
        _check_percent(name, value)
    return {name: 100 * _ratio(own[name] - clean, other[name] - baseline_clean, name) for name in own}


def relative_mce(errors: Errors, clean: float, baseline: Errors, baseline_clean: float) -> float:
    """The mean of relative CE over the corruptions."""
    return _mean(list(relative_corruption_errors(errors, clean, baseline, baseline_clean).values()))


def severity_curve(errors: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
    """The error at each severity, averaged over the corruptions."""
    _by_corruption(errors)
    lengths = {len(values) for values in errors.values()}
    if len(lengths) != 1:
        raise InputError(f"expected as many severities for every corruption, but got {sorted(lengths)}")
    return tuple(_mean(list(column)) for column in zip(*errors.values(), strict=True))


def _by_corruption(errors: Errors) -> dict[str, float]:
    """The mean over the severities."""
    if not errors:
        raise InputError("expected the errors of at least one corruption, but got none")
    means = {}
    for name, values in errors.items():
        column: list[float] = [values] if isinstance(values, int | float) else list(values)
        if not column:
            raise InputError(f"expected an error per severity for {name}, but got none")
        for value in column:
            _check_percent(f"the error of {name}", value)
        means[name] = _mean(column)
    return means


def _paired(errors: Errors, baseline: Errors) -> tuple[dict[str, float], dict[str, float]]:
    own, other = _by_corruption(errors), _by_corruption(baseline)
    if missing := [name for name in own if name not in other]:
        raise InputError(f"expected the baseline to hold every corruption, but {missing[0]} is missing")
    for name in own:
        counts = [len(e[name]) for e in (errors, baseline) if not isinstance(e[name], int | float)]  # type: ignore[arg-type]
        if len(set(counts)) > 1:
            raise InputError(
                f"expected as many severities as the baseline for {name}, but got {counts[0]} and {counts[1]}"
            )
    return own, other


def _ratio(value: float, baseline: float, name: str) -> float:
    if baseline <= 0:
        raise InputError(
            f"expected a baseline that {name} makes worse, but its error there is {baseline:g}; take another"
        )
    return value / baseline


def _check_percent(name: str, value: float) -> None:
    if not (is_number(value) and 0 <= value <= 100):
        raise InputError(f"expected {name} to be a percentage from 0 to 100, but got {value!r}")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
