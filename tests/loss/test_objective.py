"""Terms as values and which of them are due; then their sum: views, weights, mappings, dense outputs, autocast."""

import os
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn

from one_line import fails_in_one_line, refusals
from rcad import Categorical, Criterion, Gaussian, GradientStep, Objective, Term
from rcad.loss.terms import MEASURES, active, check_terms, uniform_cross_entropy
from small_nets import CLASSES, images, smooth_net

OUTPUT = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def test_measures_are_functions_anyone_can_call():
    likelihood = Categorical()
    torch.testing.assert_close(uniform_cross_entropy(likelihood, OUTPUT, LABELS), -OUTPUT.log_softmax(1).mean(1))
    assert set(MEASURES) == {"nll", "negative_entropy", "uniform_cross_entropy"}
    own = Term("margin", lambda likelihood, output, target: output[:, 0])
    assert torch.equal(own.values(likelihood, OUTPUT, LABELS), OUTPUT[:, 0])


THREE = f"measure of the term 'a' to take (likelihood, output, target), but got {os.path.relpath(__file__)}:"
test_wrong_terms_are_named = refusals(
    (lambda: Term(""), "non-empty string"),
    (lambda: Term("a", lambda output: output), f"{THREE}<lambda>(output); give it these three arguments"),
    # It would meet weights of (B,) as (B, B).
    (Term("a", lambda *three: OUTPUT[:, :1]).values, Categorical(), OUTPUT, LABELS, "6 examples, but got shape (6, 1)"),
    (uniform_cross_entropy, Gaussian(), OUTPUT[:, :2], OUTPUT[:, 2], "finitely many outcomes, but got Gaussian"),
    (lambda: Term("a", "entropy"), "expected measure to be one of nll, negative_entropy"),
    (lambda: Term("a", weight=float("nan")), "expected weight to be a finite number"),
    (lambda: Term("a", view="augmented"), "expected view to be one of batch, raw"),
    (lambda: check_terms([Term("a"), Term("a")]), "distinct names, but got 'a' twice"),
    (lambda: check_terms([]), "at least one term"),
    (lambda: check_terms([Term("a", every=2), Term("b", every=3)]), "a term that counts at every step"),
)


def test_the_plan_of_a_step_has_the_terms_that_are_due():
    terms = (Term("nll"), *(Term(f"at{k}", "negative_entropy", 1.0, GradientStep(0.5), every=k) for k in (4, 6, 8)))
    loss = Criterion(terms=terms).loss
    for step in range(50):
        planned = [term for look in loss.plan(step).looks for term in look.terms]
        assert planned == active(terms, step)
        assert loss.plan(step).passes == len(planned)
        assert loss.plan(step) is loss.plan(step + 24)


RCAD_TERMS = (Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5)))


def test_segmentation_has_an_entropy_per_pixel():
    net = nn.Conv2d(3, CLASSES, 3, padding=1)
    x, _ = images()
    y = torch.randint(CLASSES, (7, 8, 8))
    y[:, 0] = -100
    losses = Objective(net, terms=RCAD_TERMS)(x, y)
    torch.testing.assert_close(losses.parts["nll"], nn.functional.cross_entropy(net(x), y).detach())
    moved = net(GradientStep(0.5)(net, x, y))[:, :, 1:]
    expected = (moved.softmax(1) * moved.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(losses.parts["rcad"], expected.detach())


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(11, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, inputs_embeds, attention_mask, scale=1.0):
        # Padding is not masked here, so that only the mask of the perturbation keeps it still.
        return {"logits": scale * self.head(inputs_embeds.mean(1).tanh())}


def tokens(model):
    ids = torch.randint(11, (3, 4), generator=torch.Generator().manual_seed(0))
    return {
        "inputs_embeds": model.embedding(ids),
        "attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]),
    }


def test_a_mapping_is_perturbed_where_its_one_float_is():
    model, y = Tokens(), torch.tensor([0, 1, 2])
    inputs = tokens(model)
    losses = Objective(model, terms=RCAD_TERMS)(inputs, y)
    x, mask = inputs["inputs_embeds"].detach(), inputs["attention_mask"]
    moved = GradientStep(0.5)(lambda e: model(e, mask), x, y, mask=mask)
    expected = -Categorical().entropy(model(moved, mask)["logits"]).mean().detach()
    torch.testing.assert_close(losses.parts["rcad"], expected)
    assert torch.equal(moved[mask == 0], x[mask == 0])
    losses.total.backward()
    assert model.embedding.weight.grad.abs().sum() > 0
    named = Objective(model, terms=RCAD_TERMS, input_key="inputs_embeds", mask_key="attention_mask")
    torch.testing.assert_close(named({**inputs, "attention_mask": mask.float()}, y).total, losses.total)


@pytest.mark.parametrize("hidden", [-1e4, -torch.inf])
def test_a_mask_that_is_added_is_refused(hidden):
    model = Tokens()
    inputs = tokens(model)
    added = torch.where(inputs["attention_mask"] > 0, 0.0, hidden)
    with fails_in_one_line("expected a mask of 0 and 1, 1 for the real positions, but got -"):
        Objective(model, terms=RCAD_TERMS)({**inputs, "attention_mask": added}, torch.tensor([0, 1, 2]))


def test_a_mask_of_another_shape_is_warned_of():
    model, y = Tokens(), torch.tensor([0, 1, 2])
    inputs = tokens(model)
    broad = {**inputs, "attention_mask": inputs["attention_mask"][:, None, None]}
    with pytest.warns(UserWarning, match=r"attention_mask of shape \(3, 1, 1, 4\) does not say which positions"):
        Objective(model, terms=RCAD_TERMS)(broad, y)


def test_validation_is_not_counted_as_a_step():
    (x, y), net = images(), smooth_net()
    rests = (RCAD_TERMS[0], Term("rcad", "negative_entropy", 0.1, GradientStep(0.5), every=2))
    criterion, objective = Criterion(terms=rests), Objective(net, terms=rests)
    for loss in (lambda: criterion.losses(net, x, y), lambda: objective(x, y)):
        found = []
        for quiet in (False, True, False, True, False):
            with torch.set_grad_enabled(not quiet):
                parts = loss().parts
            if not quiet:
                found.append("rcad" in parts)
        assert found == [True, False, True]


X, Y = images()
test_wrong_batches_and_options_are_named_in_one_sentence = refusals(
    (X.index_fill(0, torch.tensor([1]), float("nan")), Y, "expected finite inputs, but x holds NaN or inf"),
    ((X * 255).byte(), Y, "expected a floating-point input to perturb, but got torch.uint8"),
    (X[:0], Y[:0], "at least one example"),
    ([1, 2], Y, "expected x to be a tensor or a mapping, but got list"),
    ({"ids": Y}, Y, "expected a floating-point input to perturb, but got only ids; embed tokens first"),
    ({"a": X, "b": X}, Y, "expected input_key to name one of a, b"),
    (X, Y[:3], "expected 7 targets, one per example, but got shape (3,)"),
    (X, Y + 4, "expected labels from 0 to 4 for a model with 5 outputs"),
    (X, torch.full((7, 4), 0.25), "expected integer labels of shape (7,) or probabilities of shape (7, 5)"),
    (X, Y, {"weight": torch.ones(3)}, "expected sample weights of shape (7,), but got (3,)"),
    (X, Y, {"weight": torch.arange(-1.0, 6.0)}, "expected finite sample weights >= 0, but got -1 to 5"),
    (X, Y, {"weight": torch.ones(7) / 0}, "expected finite sample weights >= 0, but got inf to inf"),
    ({"b": X}, Y, {}, {"input_key": "a"}, "expected a tensor under the key 'a', but got the keys b"),
    (X, Y, {}, {"units": "pixel"}, "expected units to be one of pixels, input"),
    (X, Y, {}, {"likelihood": Categorical}, "such as Categorical(), but got <class"),
    of=lambda x, y, call={}, options={}: Objective(smooth_net(), terms=RCAD_TERMS, **options)(x, y, **call),
)


def test_targets_weights_and_other_inputs_made_in_inference_mode_are_named() -> None:
    (x, y), objective = images(), Objective(Two(), terms=RCAD_TERMS, input_key="x")
    with torch.inference_mode():
        x_made, y_made, weight = x + 0, y + 0, torch.ones(len(x))
    inputs = {"x": x, "other": x}
    with torch.inference_mode(), fails_in_one_line("expected to be outside torch.inference_mode()"):
        objective(inputs, y)
    for call in (objective, partial(Criterion(terms=RCAD_TERMS, input_key="x").backward, objective.model)):
        with fails_in_one_line("expected a target made outside torch.inference_mode()", "pass its clone()"):
            call(inputs, y_made)
        with fails_in_one_line("expected a weight made outside torch.inference_mode()"):
            call(inputs, y, weight=weight)
        with fails_in_one_line("expected an input made outside torch.inference_mode()"):
            call({"x": x, "other": x_made}, y)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = smooth_net()

    def forward(self, x, other):
        return self.net(x * other)


@dataclass
class Tempered:
    temperature: float = 2.0

    def nll(self, output, target):
        return nn.functional.cross_entropy(output / self.temperature, target, reduction="none")

    def entropy(self, output, valid=None):
        return Categorical().entropy(output / self.temperature)


def test_a_likelihood_that_cannot_be_hashed_is_named() -> None:
    with fails_in_one_line("expected a likelihood that can be hashed, but got", "write @dataclass(frozen=True)"):
        Criterion(Tempered(), RCAD_TERMS)
