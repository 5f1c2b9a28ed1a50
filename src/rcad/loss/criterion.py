"""RCAD for anybody's training loop: a criterion that is called with the model, not with its output."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from rcad.errors import InputError, finite, one_of, shaped, shown, whole
from rcad.loss.augmentations import Alternating, Source
from rcad.loss.fused import BackwardStep, refusal, third_backward
from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.method_rows import AUTO
from rcad.loss.model_calls import Inputs, Model, Output, View, whole_steps
from rcad.loss.objective import ERM, Checks, Loss, StepCounter, Units, evaluate
from rcad.loss.perturbations import Alpha, Channels, GradientStep, Norm
from rcad.loss.suggest_alpha import Gauge
from rcad.loss.terms import Losses, MeasureName, Plan, Term, weight_for

log = logging.getLogger("rcad")


class Scaler(Protocol):
    """The part of torch.amp.GradScaler that is needed."""

    def scale(self, outputs: Tensor) -> Tensor: ...


class Criterion:
    """Any sum of terms as a loss for one's own loop. `Objective` is the same thing with the model inside.

    Args:
        likelihood: what the model's output means.
        terms: what is summed; the default is the plain negative log-likelihood.
        input_key, mask_key, units, checks, output: see `Loss`.
        watch: warn at the first batch where alpha is far below the distance measured there.

    Attributes:
        loss: what is minimised now, with alpha="auto" measured on the first batches; `asked` is it as it was written.

    Example:
        >>> criterion = Criterion(terms=[Term("nll"), Term("entropy", "negative_entropy", 0.1, GradientStep(0.5))])
        >>> loss = criterion(model, x, y)  # doctest: +SKIP
    """

    def __init__(
        self,
        likelihood: Likelihood = Categorical(),
        terms: Sequence[Term] = ERM,
        *,
        input_key: str | None = None,
        mask_key: str | None = None,
        units: Units = "pixels",
        checks: Checks = "always",
        output: Output | None = None,
        watch: bool = False,
    ) -> None:
        self.asked = Loss(likelihood, tuple(terms), input_key, mask_key, units, checks, output)
        self._gauge = Gauge(self.asked, watch=watch)
        self.loss = self._gauge.loss()
        self._counter = StepCounter()
        self._logged: set[str] = set()

    def __repr__(self) -> str:
        waiting = "" if self.settled else "; alpha is measured on the first batches"
        return f"{type(self).__name__}({self.loss.likelihood}, {list(self.loss.terms)}{waiting})"

    @property
    def settled(self) -> bool:
        """Whether the loss will stay as it is: alpha is a number, or its measuring is over."""
        return self._gauge.settled

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs: how many calls were counted, for every > 1, and alpha as far as it was measured."""
        return {"step": self._counter.value, "alpha": self._gauge.alpha, "batches": self._gauge.batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; a measured alpha is not measured again, one that was given stays."""
        state = shaped("the criterion's state", state, {"step": int, "alpha": (float, None), "batches": int})
        self._counter.value = state["step"]
        self._gauge.load(state["alpha"], state["batches"])
        self.loss = self._gauge.loss()

    def _planned(
        self, model: Model, x: Inputs, y: Tensor, step: int | None, options: Mapping[str, Any]
    ) -> tuple[Plan, list[View]]:
        """The passes of this step and their views, with alpha measured where that is due."""
        for option in options:
            one_of("an option", option, ("weight", "raw", "raw_target"))
        number = self._counter.next(step) if self.asked.periods else 0  # a new one is compiled anew
        if self._gauge.busy:
            self.loss = self._gauge.look(model, x, y, number, options)
        plan = self.loss.plan(number)
        return plan, self.loss.views(model, plan, x, y, **options)

    def __call__(self, model: Model, x: Inputs, y: Tensor | None = None, **options: Any) -> Tensor:
        """The loss, to be run backward by the caller. Options as in `Objective.forward`."""
        if y is None:
            raise InputError("expected model, inputs and targets, but got two of them: criterion(model, x, y)")
        return self.losses(model, x, y, **options).total

    def losses(
        self,
        model: Model,
        x: Inputs,
        y: Tensor,
        *,
        step: int | None = None,
        generator: Source | None = None,
        **options: Any,
    ) -> Losses:
        """The loss with its parts and the model's output. Options as in `Objective.forward`."""
        plan, views = self._planned(model, x, y, step, options)
        return evaluate(self.loss.likelihood, plan, views, generator=generator)

    def backward(
        self,
        model: Model,
        x: Inputs,
        y: Tensor,
        *,
        scaler: Scaler | None = None,
        accumulate: int = 1,
        share: float = 1.0,
        step: int | None = None,
        generator: Source | None = None,
        after_pass: Callable[[], None] | None = None,
        **options: Any,
    ) -> Losses:
        """Adds the loss's gradients to `.grad` in the fewest passes and returns the detached losses.

        On an exception, the model's own or Ctrl-C, `.grad` is what it was, and the step does not count.

        Args:
            scaler: a torch.amp.GradScaler, which then scales the loss as usual.
            accumulate: how many batches are summed before the optimizer steps; the gradients are divided by it.
            share: what the gradients are multiplied by, where accumulated batches, or the parts of a batch over whose
                gradients processes average, are not equally large: this one's examples over the mean of all.
            after_pass: called after each backward, e.g. to take the gradients away before the next adds to them.
            generator: with an `Alternating` the model holds as many networks, whose examples alternate in the batch.
        """
        whole("accumulate", accumulate, minimum=1)
        finite("share", share, above=0.0)
        runs = len(generator) if isinstance(generator, Alternating) else 1
        if runs > 1 and len(y) % runs:
            raise InputError(f"expected as many examples for each of {runs} runs, but got a batch of {len(y)}")
        if not torch.is_grad_enabled():
            raise InputError("expected gradients to be enabled, but backward() was called under no_grad")
        calls, gauge = self._counter.value, vars(self._gauge).copy()
        try:
            with nullcontext(False) if after_pass is not None else whole_steps(model, x) as hooked:
                plan, views = self._planned(model, x, y, step, options)
                scale = None if scaler is None else scaler.scale
                passes = BackwardStep(self.loss.likelihood, scale, accumulate / share, generator, after_pass, runs)
                return self._run_backward(passes, plan, views, hooked=hooked)
        except BaseException as error:
            self._counter.value = calls  # the step was not taken
            vars(self._gauge).update(gauge)
            self.loss = self._gauge.loss()
            if isinstance(error, RuntimeError) and "backward through the graph a second time" in str(error):
                raise InputError(
                    "expected passes with graphs of their own, but got one that they share, such as a weight that the "
                    "model keeps; use criterion(model, x, y).backward()"
                ) from error
            raise

    def _run_backward(self, passes: BackwardStep, plan: Plan, views: Sequence[View], *, hooked: bool) -> Losses:
        reason = refusal(plan, views)
        if hooked and not plan.one_pass:
            reason = "parameters have hooks that are called with their gradient, which must be the whole one"
        if reason is None:
            own_backward = third_backward(plan, views, scaled=passes.scale is not None)
            if own_backward is not None:
                self._log_once(f"the direction takes a backward of its own ({own_backward})")
            return passes.pass_by_pass(plan, views)
        if passes.runs > 1:
            raise InputError(
                f"expected passes that can be run backward one by one for {passes.runs} runs in one batch, but {reason}"
            )
        self._log_once(f"the passes cannot be run backward one by one ({reason}); using one graph for all")
        return passes.in_one_graph(plan, views)

    def _log_once(self, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.info(message)


class RCAD(Criterion):
    """Reducing Confidence along Adversarial Directions: -log p(y|x) - lam * H(p(.|x')), x' = x + alpha * direction.

    Args:
        alpha: the distance from x to x', in the units of the input: an L2 distance in [0, 1] pixel space for images.
            Its useful window is set by the distance between classes; a value from another data set is a guess. "auto"
            measures it on the first 16 batches and logs it; `rcad.suggest_alpha(x, y)` on the whole training set.
        lam: the weight of the entropy. "auto" is 0.1, and 0.3 for regression targets (a Gaussian).
        likelihood: Categorical(), Gaussian() or Bernoulli().
        norm: "l2" (each example moves by alpha), "raw" (alpha times the gradient, the paper's formula), "linf".
        steps: ascent steps to that distance.
        bounds: limits on x', in the same units; none by default, as in the paper.
        mean, std: the numbers by which the images were already normalised, so that alpha stays in pixels.
        measure: "negative_entropy", or "uniform_cross_entropy".
        direction: "plain" goes away from log p(y|x), the paper's formula; "training" up the likelihood's own loss,
            with its label smoothing and class weights.
        every: apply the regulariser at every k-th step only, with k times the weight. The calls are counted unless
            `step` is given, so each of several models needs a criterion of its own.
        input_key, mask_key, units, checks, output: see `Loss`.

    Example:
        >>> criterion = RCAD()  # or RCAD(alpha=rcad.suggest_alpha(x, y), lam=0.1)
        >>> criterion(model, x, y).backward()      # autograd  # doctest: +SKIP
        >>> criterion.backward(model, x, y)        # the same gradients, faster  # doctest: +SKIP
    """

    lam: float

    def __init__(
        self,
        alpha: Alpha = AUTO,
        lam: Alpha = AUTO,
        *,
        likelihood: Likelihood = Categorical(),
        norm: Norm = "l2",
        steps: int = 1,
        bounds: tuple[float, float] | None = None,
        mean: Channels | None = None,
        std: Channels | None = None,
        measure: MeasureName = "negative_entropy",
        every: int = 1,
        direction: Literal["plain", "training"] = "plain",
        input_key: str | None = None,
        mask_key: str | None = None,
        units: Units = "pixels",
        checks: Checks = "always",
        output: Output | None = None,
    ) -> None:
        weight = weight_for(lam, real=isinstance(likelihood, Gaussian))
        where = GradientStep(alpha, norm, bounds, mean, std, steps, loss=direction)
        terms = (Term("nll"), Term("rcad", measure, weight, where, every))
        keys = {"input_key": input_key, "mask_key": mask_key}
        super().__init__(likelihood, terms, **keys, units=units, checks=checks, output=output, watch=True)
        self._alpha, vars(self)["lam"] = alpha, weight

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("alpha", "lam"):
            got = f"but got {name} = {shown(value)}"
            raise InputError(f"expected the {name} that the criterion was built with, {got}; build a new one")
        super().__setattr__(name, value)

    @property
    def alpha(self) -> Alpha:
        """The distance; "auto" as long as it has not been measured."""
        return self._alpha if self._gauge.alpha is None else self._gauge.alpha


def rcad_loss(model: Model, x: Inputs, y: Tensor, *, alpha: Alpha, lam: Alpha, **options: Any) -> Tensor:
    """The RCAD loss of one batch, to be run backward.

    Args:
        model: anything that maps x to logits (a tensor, a tuple, a mapping, or an object with `.logits`).
        x: the batch, with values in [0, 1] for images.
        y: labels (B,), probabilities (B, K), or regression targets.
        alpha, lam, options: see `RCAD`; weight, generator, raw, raw_target and step: see `Objective.forward`.
            With `every` the step must be given, since nothing counts the calls here.

    Example:
        >>> loss = rcad_loss(model, x, y, alpha=0.5, lam=0.02)  # doctest: +SKIP
        >>> loss.backward()  # doctest: +SKIP
    """
    of_a_call = {"weight", "generator", "raw", "raw_target", "step"}
    call = {key: options.pop(key) for key in of_a_call & options.keys()}
    if options.get("every", 1) != 1 and "step" not in call:
        raise InputError("expected step= with every=, since a function cannot count its calls; or use RCAD(...)")
    if isinstance(alpha, str):
        raise InputError(
            f"expected a number for alpha, since a function cannot remember what it measured, but got {alpha!r}; use "
            "rcad.suggest_alpha(x, y), or RCAD()"
        )
    return RCAD(alpha, lam, **options)(model, x, y, **call)
