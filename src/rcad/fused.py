"""The same gradients in fewer passes: the clean backward also gives the gradient with respect to x.

RCAD takes 2 forwards and 2 backwards, where `evaluate` followed by `backward()` takes 2 forwards and 3 backwards
(one of them with respect to x alone). Exact, not an approximation: what cannot be done exactly is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from rcad.checks import NOTHING_TO_TRAIN, check_gradient, check_output
from rcad.errors import InputError
from rcad.likelihoods import Likelihood
from rcad.objective import direction_losses, perturbed
from rcad.passes import frozen_batch_stats
from rcad.terms import Losses, Term
from rcad.views import View

Scale = Callable[[Tensor], Tensor]


def refusal(
    likelihood: Likelihood, terms: Sequence[Term], views: dict[str, View], *, scaled: bool = False
) -> str | None:
    """Why the fused step would not be exact here; None if it is."""
    for name, view in views.items():
        mine = [term for term in terms if term.view == name]
        reason = _view_refusal(view, alone=len(views) == 1) or _term_refusal(likelihood, mine, view, scaled)
        if reason:
            return reason
    return None


def _view_refusal(view: View, *, alone: bool) -> str | None:
    if not view.x.requires_grad:
        return None
    if isinstance(view.forward.model, nn.parallel.DistributedDataParallel):
        return "what made the input learns in the clean pass, and gradients are exchanged in the last"
    return None if alone else "two views are part of one larger graph, which the first backward would free"


def _term_refusal(likelihood: Likelihood, terms: list[Term], view: View, scaled: bool) -> str | None:
    directions = direction_losses(likelihood, terms)
    if not directions:
        return None
    clean = [term for term in terms if term.where is None]
    if len(clean) != 1 or clean[0].measure != "nll" or clean[0].weight <= 0:
        return "the clean loss is not one negative log-likelihood, so its gradient is not the direction"
    if directions != [clean[0].likelihood or likelihood]:
        return "the direction comes from another loss than the clean term's"
    if view.weight is not None:
        return "sample weights may be zero, which would erase directions"
    raw = any(getattr(term.where, "norm", None) == "raw" for term in terms)
    return "a raw gradient cannot be told from its loss scale" if raw and scaled else None


def fused_backward(
    likelihood: Likelihood,
    terms: Sequence[Term],
    views: dict[str, View],
    *,
    scale: Scale | None = None,
    divide: float = 1.0,
    generator: torch.Generator | None = None,
    after_pass: Callable[[], None] | None = None,
) -> Losses:
    """Adds the gradients of the total to `.grad`, one backward per pass; returns detached losses.

    Args:
        after_pass: called after each backward, e.g. to take the gradients away.
        scale: what a GradScaler does to a loss before it is run backward.
        divide: the number of batches whose gradients are accumulated.
    """
    parts: dict[str, Tensor] = {}
    total: Tensor | None = None
    output: Tensor | None = None

    def run(group: list[Term], prediction: Tensor, view: View, x: Tensor | None = None) -> None:
        nonlocal total
        values = {term.name: term.mean(likelihood, prediction, view.target, view.weight) for term in group}
        loss = sum((term.weight * values[term.name] for term in group[1:]), group[0].weight * values[group[0].name])
        share = loss / divide if divide != 1 else loss
        if share.requires_grad:
            (share if scale is None else scale(share)).backward()  # type: ignore[no-untyped-call]
        elif not view.x.requires_grad:  # where x itself is learned, x' is a constant and a frozen model no mistake
            raise InputError(NOTHING_TO_TRAIN)
        if x is not None and x.grad is not None and view.x.requires_grad:
            view.x.backward(x.grad)  # type: ignore[no-untyped-call]  # on to what made x: a table of embeddings
        if after_pass is not None:
            after_pass()
        parts.update({name: value.detach() for name, value in values.items()})
        total = loss.detach() if total is None else total + loss.detach()

    passes_left = _passes(terms)
    for name, view in views.items():
        mine = [term for term in terms if term.view == name]
        clean = [term for term in mine if term.where is None]
        directions = direction_losses(likelihood, mine)
        gradients: dict[Likelihood, Tensor] = {}
        if clean:
            x = view.x.detach().requires_grad_(bool(directions) or view.x.requires_grad)
            passes_left -= 1
            with _quiet(view, passes_left):
                prediction = view.forward(x, last=not (passes_left or x.requires_grad))
                check_output(view, likelihood, prediction)
                run(clean, prediction, view, x)
            output = prediction.detach() if output is None else output
            del prediction
            if directions:
                # The backward ran on a mean: undo that for directions that keep the gradient's length.
                gradient = torch.zeros_like(x) if x.grad is None else x.grad * (len(x) * divide / clean[0].weight)
                gradients[directions[0]] = gradient
                check_gradient(view, gradient)
        for index, term in enumerate(t for t in mine if t.where is not None):
            x_adv = perturbed(term, likelihood, view, gradients, generator)
            passes_left -= 1
            # The backward stays inside: activation checkpointing runs the forward again there.
            with _quiet(view, passes_left), frozen_batch_stats(view.forward) if clean or index else nullcontext():
                run([term], view.forward(x_adv, last=not passes_left), view)
    assert total is not None
    return Losses(total, parts, output)


def _passes(terms: Sequence[Term]) -> int:
    """How many forwards with a backward there are: one for the clean terms of a view, one for each other term."""
    return len({term.view for term in terms if term.where is None}) + sum(term.where is not None for term in terms)


def _quiet(view: View, passes_left: int) -> AbstractContextManager[None]:
    """Under DistributedDataParallel only the last backward needs to exchange gradients: it carries the sum of all."""
    model = view.forward.model
    if passes_left and isinstance(model, nn.parallel.DistributedDataParallel):
        return model.no_sync()
    return nullcontext()
