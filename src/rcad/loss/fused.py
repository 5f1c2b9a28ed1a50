"""The same gradients pass by pass, and in fewer of them: the clean backward also gives the gradient with respect to x.

RCAD takes 2 forwards and 2 backwards, where `evaluate` followed by `backward()` takes 2 forwards and 3 backwards
(one of them with respect to x alone) and holds both passes in memory. Exact, not an approximation: where the clean
gradient is not the direction, the third backward is taken; what cannot be done pass by pass is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from rcad.errors import InputError
from rcad.loss.augmentations import Source
from rcad.loss.likelihoods import Likelihood
from rcad.loss.model_calls import REENTRANT, View, frozen_batch_stats, keep_passes_whole, reenters
from rcad.loss.objective import check_gradient, check_output, evaluate, nothing_to_train, perturbed
from rcad.loss.perturbations import reaching_gradient
from rcad.loss.terms import Look, Losses, Plan, Term

Scale = Callable[[Tensor], Tensor]


def refusal(plan: Plan, views: Sequence[View]) -> str | None:
    """Why the passes cannot be run backward one after the other; None if they can."""
    for view in views:
        if view.x.requires_grad:
            if isinstance(view.forward.model, nn.parallel.DistributedDataParallel):
                return "what made the input learns in the clean pass, and gradients are exchanged in the last"
            if len(views) > 1:
                return "two views are part of one larger graph, which the first backward would free"
        shared = (view.target, view.weight, *view.forward.others.values())
        if not plan.one_pass and any(isinstance(value, Tensor) and value.grad_fn is not None for value in shared):
            return "targets, weights or other inputs come from a larger graph, which the first backward would free"
    return None


def third_backward(plan: Plan, views: Sequence[View], *, scaled: bool = False) -> str | None:
    """Why the clean backward of some view does not give the directions, so that they need one of their own."""
    pairs = zip(plan.looks, views, strict=True)
    reasons = (look.why_apart(weighted=view.weight is not None, scaled=scaled) for look, view in pairs)
    return next(filter(None, reasons), None)


def goes_back_twice(plan: Plan) -> bool:
    """Whether some pass is run backward for a direction and then once more, without weights or a scaler."""
    return any(look.apart is not None and len(look.directions) + bool(look.clean) > 1 for look in plan.looks)


@dataclass
class BackwardStep:
    """The passes of one batch run backward, which adds the gradients of the total to `.grad`.

    A pass is a method, so that what its graph keeps by other means than saved tensors goes with its output.
    """

    likelihood: Likelihood
    scale: Scale | None  # what a GradScaler does to a loss before it is run backward
    divide: float  # the number of batches whose gradients are accumulated
    generator: Source | None
    after_pass: Callable[[], None] | None  # called after each backward, e.g. to take the gradients away
    runs: int  # how many runs' examples alternate in the batch
    passes_left: int = field(default=0, init=False)
    reentrant: bool = field(default=False, init=False)
    blind: bool = field(default=False, init=False)  # a pass was made at an input that needs no gradient
    parts: dict[str, Tensor] = field(default_factory=dict, init=False)
    total: Tensor | None = field(default=None, init=False)
    output: Tensor | None = field(default=None, init=False)

    def pass_by_pass(self, plan: Plan, views: Sequence[View]) -> Losses:
        """One backward for each pass; returns detached losses."""
        self.passes_left = plan.passes
        for look, view in zip(plan.looks, views, strict=True):
            self._look(view, look)
        assert self.total is not None
        return Losses(self.total, self.parts, self.output)

    def in_one_graph(self, plan: Plan, views: Sequence[View]) -> Losses:
        """One backward for all passes, which are in memory together; returns detached losses."""
        losses = evaluate(self.likelihood, plan, views, generator=self.generator)
        if not losses.total.requires_grad:
            raise nothing_to_train(views[0].forward.model)
        self._run_backward(losses.total)
        self._passed()
        return losses._replace(total=losses.total.detach())

    def _look(self, view: View, look: Look) -> None:
        learned = bool(look.clean) and view.x.requires_grad  # x' is a constant
        checked = bool(look.clean or look.directions)
        gradients = self._at_x(view, look, learned=learned) if checked else []
        advanced = bool(look.clean)
        for term, source in zip(look.terms, look.source, strict=True):
            if term.where is not None:
                gradient = None if source is None else gradients[source]
                self._beside_x(view, term, gradient, advanced=advanced, checked=checked, learned=learned)
                advanced = True

    def _at_x(self, view: View, look: Look, *, learned: bool) -> list[Tensor]:
        """The clean terms go backward; the gradients for the directions, taken before them or left by them."""
        clean, directions = look.clean, look.directions
        apart = look.why_apart(weighted=view.weight is not None, scaled=self.scale is not None) is not None
        x = view.x.detach().requires_grad_(bool(directions) or view.x.requires_grad or self.reentrant)
        gradients: list[Tensor] = []
        self.passes_left -= bool(clean)
        with _quiet(view, self.passes_left), nullcontext() if clean else frozen_batch_stats(view.forward):
            forward = view.forward if clean else view.forward.inner()
            if apart and len(directions) + bool(clean) > 1:
                keep_passes_whole()
            prediction = forward(x, last=not (self.passes_left or x.requires_grad))
            check_output(view, self.likelihood, prediction)
            # Where the model is known to checkpoint by re-entering, inputs need a gradient for its layers to learn.
            self.reentrant = self.reentrant or (x.requires_grad and reenters(view.forward, prediction))
            self.blind = self.blind or not x.requires_grad
            if self.reentrant and self.blind:
                raise InputError(REENTRANT)
            for number, loss in enumerate(directions if apart else (), 1):
                value = loss.nll(prediction, view.target).sum()
                gradients.append(reaching_gradient(value, x, retain_graph=bool(clean) or number < len(directions)))
            if clean:
                self._backward(clean, prediction, view, learned=learned)
                if learned and x.grad is not None:
                    view.x.backward(x.grad)  # type: ignore[no-untyped-call]  # on to what made x: a table of embeddings
                self._passed()
        if self.output is None:
            self.output = prediction.detach()
        if directions and not apart:
            # The backward ran on a mean: undo that for directions that keep the gradient's length. Where the loss
            # is scaled there are none, and gradients in half precision would overflow.
            overflows = self.scale is not None and x.dtype.itemsize < 4
            undo = 1.0 if overflows else len(x) // self.runs * self.divide / clean[0].weight
            gradients.append(torch.zeros_like(x) if x.grad is None else x.grad * undo)
        for gradient in gradients:
            check_gradient(view, gradient)
        return gradients

    def _beside_x(
        self, view: View, term: Term, gradient: Tensor | None, *, advanced: bool, checked: bool, learned: bool
    ) -> None:
        """The pass at a term's x'; BatchNorm's averages stay where they are if a pass has advanced them."""
        x_adv = perturbed(term, self.likelihood, view, gradient, self.generator, reentrant=self.reentrant)
        self.passes_left -= 1
        # The backward stays inside: activation checkpointing runs the forward again there.
        with _quiet(view, self.passes_left), frozen_batch_stats(view.forward) if advanced else nullcontext():
            moved = view.forward(x_adv, last=not self.passes_left)
            if not checked:
                check_output(view, self.likelihood, moved)
            self._backward((term,), moved, view, learned=learned)
            self._passed()

    def _backward(self, group: Sequence[Term], prediction: Tensor, view: View, *, learned: bool) -> None:
        values = {
            term.name: term.mean(self.likelihood, prediction, view.target, view.weight, self.runs) for term in group
        }
        loss = sum((term.weight * values[term.name] for term in group[1:]), group[0].weight * values[group[0].name])
        share = loss if self.runs == 1 else loss.sum()
        if prediction.requires_grad and not share.requires_grad:  # a measure without a gradient, such as an accuracy
            share = share + 0 * prediction.sum()  # a backward all the same: the last one exchanges what others left
        if share.requires_grad:
            self._run_backward(share)
        elif not learned:  # where x is learned in the clean pass, a frozen model is no mistake
            raise nothing_to_train(view.forward.model)
        self.parts.update({name: value.detach() for name, value in values.items()})
        self.total = loss.detach() if self.total is None else self.total + loss.detach()

    def _run_backward(self, loss: Tensor) -> None:
        loss = loss if self.divide == 1 else loss / self.divide
        (loss if self.scale is None else self.scale(loss)).backward()  # type: ignore[no-untyped-call]

    def _passed(self) -> None:
        if self.after_pass is not None:
            self.after_pass()


def _quiet(view: View, passes_left: int) -> AbstractContextManager[None]:
    """Under DistributedDataParallel only the last backward needs to exchange gradients: it carries the sum of all."""
    model = view.forward.model
    if passes_left and isinstance(model, nn.parallel.DistributedDataParallel):
        return model.no_sync()
    return nullcontext()
