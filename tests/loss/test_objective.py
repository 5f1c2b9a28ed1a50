"""Terms as values and which of them are due; then their sum: views, weights, mappings, dense outputs, autocast."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from one_line import fails_in_one_line, refusals
from rcad import (
    Bernoulli,
    Categorical,
    Criterion,
    Gaussian,
    GradientStep,
    Objective,
    Term,
)
from rcad.loss.terms import MEASURES, Losses, active, check_terms, negative_entropy, nll, uniform_cross_entropy
from small_nets import CLASSES, images, smooth_net

OUTPUT = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def test_measures_are_functions_anyone_can_call() -> None:
    likelihood = Categorical()
    torch.testing.assert_close(nll(likelihood, OUTPUT, LABELS), likelihood.nll(OUTPUT, LABELS))
    torch.testing.assert_close(negative_entropy(likelihood, OUTPUT, LABELS), -likelihood.entropy(OUTPUT))
    torch.testing.assert_close(uniform_cross_entropy(likelihood, OUTPUT, LABELS), -OUTPUT.log_softmax(1).mean(1))
    assert uniform_cross_entropy(Bernoulli(), OUTPUT[:, 0], LABELS).shape == (6,)
    assert set(MEASURES) == {"nll", "negative_entropy", "uniform_cross_entropy"}
    own = Term("margin", lambda likelihood, output, target: output[:, 0])
    assert torch.equal(own.values(likelihood, OUTPUT, LABELS), OUTPUT[:, 0])


def test_losses_print_their_numbers_and_not_every_logit() -> None:
    torch.manual_seed(0)
    losses = Criterion(Categorical(), (Term("nll", "nll"),)).backward(torch.nn.Linear(4, 4), OUTPUT, LABELS)
    shown = losses._repr_html_()
    assert shown.startswith(f"<table><tr><th>total</th><td>{losses.total:.4g}</td></tr><tr><th>nll</th>")
    assert "<tr><th>output</th><td>a tensor of shape (6, 4)</td></tr>" in shown
    total = f"{losses.total:.4g}"
    assert repr(losses) == f"Losses(total: {total}, nll: {total}, output: a tensor of shape (6, 4))"
    assert "several 1.5, 2.5" in Losses(torch.tensor([1.5, 2.5]), {}, None)._repr_html_().replace("<td>", "several ")


THREE = f"measure of the term 'a' to take (likelihood, output, target), but got {os.path.relpath(__file__)}:"
test_wrong_terms_are_named = refusals(
    (lambda: Term(""), "non-empty string"),
    (lambda: Term("a", lambda output: output), f"{THREE}<lambda>(output); give it these three arguments"),
    (lambda: Term("a", lambda a, b, c, d: a), f"{THREE}<lambda>(a, b, c, d)"),
    (lambda: Term("a", lambda a, b, *, target: a), f"{THREE}<lambda>(a, b, *, target)"),
    # A sum over the batch would weigh it by the batch size, and (B, 1) meets weights of (B,) as (B, B).
    *(
        (Term("a", measure).values, Categorical(), OUTPUT, LABELS, f"number for each of 6 examples, but got {got}; sum")
        for measure, got in (
            (lambda likelihood, output, target: output.sum(), "shape ()"),
            (lambda likelihood, output, target: output.sum(1, keepdim=True), "shape (6, 1)"),
            (lambda likelihood, output, target: 1.0, "1.0"),
        )
    ),
    (uniform_cross_entropy, Gaussian(), OUTPUT[:, :2], OUTPUT[:, 2], "finitely many outcomes, but got Gaussian"),
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


RCAD_TERMS = (Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5)))


def test_segmentation_has_an_entropy_per_pixel() -> None:
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
    """A classifier of token sequences that takes embeddings, as transformers do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(11, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        # Padding is not masked here, so that only the mask of the perturbation keeps it still.
        return {"logits": scale * self.head(inputs_embeds.mean(1).tanh())}


def tokens(model: Tokens) -> dict[str, Tensor]:
    ids = torch.randint(11, (3, 4), generator=torch.Generator().manual_seed(0))
    return {
        "inputs_embeds": model.embedding(ids),
        "attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]),
    }


def test_a_mapping_is_perturbed_where_its_one_float_is() -> None:
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
def test_a_mask_that_is_added_is_refused(hidden: float) -> None:
    model = Tokens()
    inputs = tokens(model)
    added = torch.where(inputs["attention_mask"] > 0, 0.0, hidden)
    with fails_in_one_line("expected a mask of 0 and 1, 1 for the real positions, but got -"):
        Objective(model, terms=RCAD_TERMS)({**inputs, "attention_mask": added}, torch.tensor([0, 1, 2]))
    Objective(model)({**inputs, "attention_mask": added}, torch.tensor([0, 1, 2]))  # nothing moves


def test_a_mask_of_another_shape_is_warned_of() -> None:
    model, y = Tokens(), torch.tensor([0, 1, 2])
    inputs = tokens(model)
    broad = {**inputs, "attention_mask": inputs["attention_mask"][:, None, None]}
    with pytest.warns(UserWarning, match=r"attention_mask of shape \(3, 1, 1, 4\) does not say which positions"):
        Objective(model, terms=RCAD_TERMS)(broad, y)


def test_validation_is_not_counted_as_a_step() -> None:
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


def test_a_text_s_mask_does_not_touch_an_image() -> None:
    (x, y), net = images(), smooth_net()
    inputs = {"pixel_values": x, "attention_mask": torch.zeros(7, 3, dtype=torch.long)}
    both = Criterion(terms=RCAD_TERMS)(lambda pixel_values, attention_mask: net(pixel_values), inputs, y)
    torch.testing.assert_close(both, Objective(net, terms=RCAD_TERMS)(x, y).total)


WRONG: dict[str, Callable[[Tensor, Tensor], tuple[Any, ...]]] = {
    "expected finite inputs": lambda x, y: (x.index_fill(0, torch.tensor([1]), float("nan")), y),
    "but x holds NaN or inf": lambda x, y: (x / 0, y),
    "expected a floating-point input to perturb, but got torch.uint8": lambda x, y: ((x * 255).byte(), y),
    "at least one example": lambda x, y: (x[:0], y[:0]),
    "expected x to be a tensor or a mapping, but got list": lambda x, y: ([1, 2], y),
    "expected a floating-point input to perturb": lambda x, y: ({}, y),
    "but got only ids; embed tokens first": lambda x, y: ({"ids": y}, y),
    "expected input_key to name one of a, b": lambda x, y: ({"a": x, "b": x}, y),
    "expected 7 targets, one per example, but got shape (3,)": lambda x, y: (x, y[:3]),
    "expected the target to be a tensor, but got int": lambda x, y: (x, 3),
    "expected labels from 0 to 4 for a model with 5 outputs": lambda x, y: (x, y + 4),
    "expected integer labels of shape (7,)": lambda x, y: (x, y[:, None]),
    "sum to 1": lambda x, y: (x, torch.full((7, 5), 0.3)),
    "but got a smallest entry of nan": lambda x, y: (x, torch.full((7, 5), 0.2).index_fill(0, y[:1], float("nan"))),
    "probabilities of shape (7, 5)": lambda x, y: (x, torch.full((7, 4), 0.25)),
    "expected sample weights of shape (7,), but got (3,)": lambda x, y: (x, y, {"weight": torch.ones(3)}),
    "expected finite sample weights >= 0, but got -1 to 5": lambda x, y: (x, y, {"weight": torch.arange(-1.0, 6.0)}),
    "expected finite sample weights >= 0, but got inf to inf": lambda x, y: (x, y, {"weight": torch.ones(7) / 0}),
    "expected sample weights of shape (7,), but got list": lambda x, y: (x, y, {"weight": [1.0] * 7}),
    "expected a mapping with the key 'pixels'": lambda x, y: (x, y, {}, {"input_key": "pixels"}),
    "expected a tensor under the key 'a', but got the keys b": lambda x, y: ({"b": x}, y, {}, {"input_key": "a"}),
    "expected a mask under the key 'm'": lambda x, y: ({"b": x}, y, {}, {"mask_key": "m"}),
    "expected units to be one of pixels, input": lambda x, y: (x, y, {}, {"units": "pixel"}),
    "such as Categorical(), but got <class": lambda x, y: (x, y, {}, {"likelihood": Categorical}),
    "expected a likelihood": lambda x, y: (x, y, {}, {"likelihood": "categorical"}),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_batches_and_options_are_named_in_one_sentence(message: str) -> None:
    x, y, call, options, *_ = (*WRONG[message](*images()), {}, {})
    with fails_in_one_line(message):
        Objective(smooth_net(), terms=RCAD_TERMS, **options)(x, y, **call)


def test_one_output_and_inference_mode_are_named() -> None:
    x, y = images()
    with fails_in_one_line("expected at least 2 classes"):
        Objective(nn.Sequential(nn.Flatten(), nn.Linear(192, 1)), terms=RCAD_TERMS)(x, y)
    objective = Objective(smooth_net(), terms=RCAD_TERMS)
    with torch.inference_mode():
        inside = x + 0
        with fails_in_one_line("expected to be outside torch.inference_mode()"):
            objective(x, y)
    with fails_in_one_line("expected an input made outside torch.inference_mode()"):
        objective(inside, y)


def test_targets_weights_and_other_inputs_made_in_inference_mode_are_named() -> None:
    (x, y), objective = images(), Objective(Two(), terms=RCAD_TERMS, input_key="x")
    with torch.inference_mode():
        x_made, y_made, weight = x + 0, y + 0, torch.ones(len(x))
    inputs = {"x": x, "other": x}
    for call in (objective, partial(Criterion(terms=RCAD_TERMS, input_key="x").backward, objective.model)):
        with fails_in_one_line("expected a target made outside torch.inference_mode()", "pass its clone()"):
            call(inputs, y_made)
        with fails_in_one_line("expected a weight made outside torch.inference_mode()"):
            call(inputs, y, weight=weight)
        with fails_in_one_line("expected an input made outside torch.inference_mode()"):
            call({"x": x, "other": x_made}, y)
        call({"x": x, "other": x_made.clone()}, y_made.clone())


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = smooth_net()

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        output: Tensor = self.net(x * other)
        return output


@dataclass
class Tempered:
    temperature: float = 2.0

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output / self.temperature, target, reduction="none")

    def entropy(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        return Categorical().entropy(output / self.temperature)


def test_a_likelihood_that_cannot_be_hashed_is_named() -> None:
    with fails_in_one_line("expected a likelihood that can be hashed, but got", "write @dataclass(frozen=True)"):
        Criterion(Tempered(), RCAD_TERMS)
