"""Terms as values, the measures, and which of them are due."""

from __future__ import annotations

import pytest
import torch

from one_line import refusals
from rcad import Bernoulli, Categorical, Criterion, Gaussian, GradientStep, InputError, Term
from rcad.loss.terms import MEASURES, Losses, active, check_terms, negative_entropy, nll, uniform_cross_entropy

OUTPUT = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def test_measures_are_functions_anyone_can_call() -> None:
    likelihood = Categorical()
    torch.testing.assert_close(nll(likelihood, OUTPUT, LABELS), likelihood.nll(OUTPUT, LABELS))
    torch.testing.assert_close(negative_entropy(likelihood, OUTPUT, LABELS), -likelihood.entropy(OUTPUT))
    torch.testing.assert_close(uniform_cross_entropy(likelihood, OUTPUT, LABELS), -OUTPUT.log_softmax(1).mean(1))
    assert set(MEASURES) == {"nll", "negative_entropy", "uniform_cross_entropy"}


def test_losses_print_their_numbers_and_not_every_logit() -> None:
    torch.manual_seed(0)
    losses = Criterion(Categorical(), (Term("nll", "nll"),)).backward(torch.nn.Linear(4, 4), OUTPUT, LABELS)
    shown = losses._repr_html_()
    assert shown.startswith(f"<table><tr><th>total</th><td>{losses.total:.4g}</td></tr><tr><th>nll</th>")
    assert "<tr><th>output</th><td>a tensor of shape (6, 4)</td></tr>" in shown
    total = f"{losses.total:.4g}"
    assert repr(losses) == f"Losses(total: {total}, nll: {total}, output: a tensor of shape (6, 4))"
    assert "several 1.5, 2.5" in Losses(torch.tensor([1.5, 2.5]), {}, None)._repr_html_().replace("<td>", "several ")


def test_cross_entropy_to_uniform_needs_finitely_many_outcomes() -> None:
    with pytest.raises(InputError, match="finitely many outcomes, but got Gaussian"):
        uniform_cross_entropy(Gaussian(), OUTPUT[:, :2], OUTPUT[:, 2])
    assert uniform_cross_entropy(Bernoulli(), OUTPUT[:, 0], LABELS).shape == (6,)


def test_a_term_may_have_a_likelihood_and_a_measure_of_its_own() -> None:
    smoothed = Categorical(smoothing=0.3)
    own = Term("nll", likelihood=smoothed)
    torch.testing.assert_close(own.values(Categorical(), OUTPUT, LABELS), smoothed.nll(OUTPUT, LABELS))
    custom = Term("margin", lambda likelihood, output, target: output[:, 0])
    torch.testing.assert_close(custom.values(Categorical(), OUTPUT, LABELS), OUTPUT[:, 0])


@pytest.mark.parametrize("keep", [False, True])
def test_a_measure_of_ones_own_gives_one_number_per_example(keep: bool) -> None:
    """A sum over the batch would weigh it by the batch size, and (B, 1) meets weights of (B,) as (B, B)."""

    def of_the_batch(likelihood, output, target):
        return output.square().sum(1, keepdim=True) if keep else output.square().sum()

    says = r"the term 'own' to give one number for each of 4 examples, but got shape \((4, 1)?\)"
    with pytest.raises(InputError, match=says):
        Term("own", of_the_batch).mean(Categorical(), torch.ones(4, 3), torch.zeros(4).long(), None)


test_wrong_terms_are_named = refusals(
    (lambda: Term(""), "non-empty string"),
    (lambda: Term("a", "entropy"), "expected measure to be one of nll, negative_entropy"),
    (lambda: Term("a", weight=float("nan")), "expected weight to be a finite number"),
    (lambda: Term("a", every=0), "expected every to be a whole number >= 1"),
    (lambda: Term("a", view="augmented"), "expected view to be one of batch, raw"),
    (lambda: check_terms([Term("a"), Term("a")]), "distinct names, but got 'a' twice"),
    (lambda: check_terms([Term("a", weight=0.0)]), "at least one term"),
    (lambda: check_terms([]), "at least one term"),
    (lambda: check_terms([Term("a", every=2), Term("b", every=3)]), "a term that counts at every step"),
)


def test_the_plan_of_a_step_has_the_terms_that_are_due() -> None:
    terms = (Term("nll"), *(Term(f"at{k}", "negative_entropy", 1.0, GradientStep(0.5), every=k) for k in (4, 6, 8)))
    loss = Criterion(terms=terms).loss
    for step in range(50):
        planned = [term for look in loss.plan(step).looks for term in look.terms]
        assert planned == active(terms, step)
        assert loss.plan(step).passes == len(planned)
        assert loss.plan(step) is loss.plan(step + 24)
