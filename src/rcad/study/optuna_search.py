"""Optuna's sampler, asked for one point at a time. With the same answers it asks the same questions, so that an
interrupted search goes on by itself: finished runs are answered from their records."""

from __future__ import annotations

from typing import Any

from rcad.errors import need
from rcad.study.search_space import DIGITS, Parameter, Space, Values

EXTRA = "tune"


class OptunaSearch:
    """A study in memory.

    Args:
        space: without "auto".
        first: the point to begin with.
        seed: of the sampler.
    """

    def __init__(self, space: Space, first: Values | None, *, seed: int = 0) -> None:
        optuna = need("optuna", "optuna", EXTRA)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._distributions = {one.key: _distribution(optuna, one) for one in space}
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self._failed = optuna.trial.TrialState.FAIL
        self._first = first
        self._trial: Any = None

    def ask(self) -> Values:
        """The next point to try."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        self._trial = self._study.ask(self._distributions)
        return {key: _short(self._trial.params[key]) for key in self._distributions}

    def tell(self, score: float | None) -> None:
        """How good it was, larger being better; None where it diverged."""
        if self._trial is None:
            return  # the first point need not lie in the space, so the sampler does not learn from it
        if score is None:
            self._study.tell(self._trial, state=self._failed)
        else:
            self._study.tell(self._trial, score)


def _distribution(optuna: Any, one: Parameter) -> Any:
    if one.kind == "choice":
        return optuna.distributions.CategoricalDistribution(one.choices)
    if one.kind == "int":
        return optuna.distributions.IntDistribution(int(one.low), int(one.high))
    return optuna.distributions.FloatDistribution(one.low, one.high, log=one.kind == "log")


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
