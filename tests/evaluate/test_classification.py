"""All numbers at once: against other libraries, by hand, and their cost."""

from __future__ import annotations

import math
import time

import pytest
import torch
from sklearn import metrics
from torch import Tensor

from predictions import cases, random_logits
from rcad import InputError
from rcad.evaluate.brier import brier_parts
from rcad.evaluate.classification import classification, top_accuracy
from rcad.evaluate.selective import risk_coverage
from rcad.loss.calibration import ece

CASES = cases()
# Of equal logits other libraries prefer any: their top five are compared where there are none.
DISTINCT = [name for name, (output, _) in CASES.items() if all(len(set(row)) == len(row) for row in output.tolist())]
NAMES = [
    *("accuracy", "top5", "nll", "brier", "brier_reliability", "brier_resolution", "brier_uncertainty"),
    *("brier_within_bins", "ece", "ece_mass", "ece_classwise", "aurc", "excess_aurc", "confidence", "entropy"),
]


@pytest.mark.parametrize("case", CASES)
def test_scikit_learn_gives_the_same(case: str) -> None:
    output, y = CASES[case]
    p, classes = output.double().softmax(1), list(range(output.shape[1]))
    found = classification(output, y)
    assert found["accuracy"] == pytest.approx(100 * metrics.accuracy_score(y, output.argmax(1)))
    if case not in ("perfect", "hopeless"):  # log_loss clips probabilities, so certain predictors differ
        assert found["nll"] == pytest.approx(metrics.log_loss(y, p, labels=classes), rel=1e-9)
    if len(classes) == 2:
        assert found["brier"] == pytest.approx(2 * metrics.brier_score_loss(y, p[:, 1]), rel=1e-9)
    elif case in DISTINCT:
        top = metrics.top_k_accuracy_score(y, p, k=5, labels=classes)
        assert found["top5"] == pytest.approx(100 * top)


@pytest.mark.parametrize("case", DISTINCT)
def test_torchmetrics_gives_the_same(case: str) -> None:
    functional = pytest.importorskip("torchmetrics.functional.classification")
    output, y = CASES[case]
    p, classes = output.double().softmax(1), output.shape[1]
    found = classification(output, y)
    for name, k in (("accuracy", 1), ("top5", 5)):
        if k < classes:
            other = functional.multiclass_accuracy(p, y, classes, average="micro", top_k=k)
            assert found[name] == pytest.approx(100 * other.item(), abs=1e-4)


def test_most_cases_have_distinct_logits() -> None:
    assert {"random", "two classes", "many classes", "tied rows", "one class", "one example"} <= set(DISTINCT)


def test_the_names_are_stable() -> None:
    assert list(classification(*CASES["random"])) == NAMES
    assert list(classification(*CASES["two classes"])) == NAMES


@pytest.mark.parametrize("case", CASES)
def test_each_number_is_that_of_its_own_function(case: str) -> None:
    output, y = CASES[case]
    found, parts, curve = classification(output, y), brier_parts(output, y), risk_coverage(output, y)
    assert found["brier"] == parts.brier
    for name in ("reliability", "resolution", "uncertainty", "within_bins"):
        assert found[f"brier_{name}"] == getattr(parts, name)
    for name, kind in (("ece", "width"), ("ece_mass", "mass"), ("ece_classwise", "classwise")):
        assert found[name] == ece(output, y, kind=kind)
    assert (found["aurc"], found["excess_aurc"]) == (curve.aurc, curve.excess_aurc)
    assert (found["accuracy"], found["top5"]) == (top_accuracy(output, y, 1), top_accuracy(output, y))
    p = output.double().softmax(1)
    assert found["confidence"] == pytest.approx(p.max(1).values.mean().item())
    assert found["entropy"] == pytest.approx(torch.special.entr(p).sum(1).mean().item(), abs=1e-12)


def test_bins_are_handed_on() -> None:
    output, y = CASES["random"]
    found = classification(output, y, bins=4)
    for name, kind in (("ece", "width"), ("ece_mass", "mass"), ("ece_classwise", "classwise")):
        assert found[name] == ece(output, y, kind=kind, bins=4)
    assert found["brier_reliability"] == brier_parts(output, y, bins=4).reliability


def test_limits() -> None:
    perfect = classification(*CASES["perfect"])
    assert perfect["accuracy"] == perfect["top5"] == 100
    for name in ("nll", "brier", "ece", "ece_mass", "ece_classwise", "aurc", "excess_aurc", "brier_reliability"):
        assert perfect[name] == pytest.approx(0, abs=1e-12)
    hopeless = classification(*CASES["hopeless"])
    assert (hopeless["accuracy"], hopeless["aurc"]) == (0, 1)
    assert hopeless["brier"] == pytest.approx(2)
    assert hopeless["ece"] == pytest.approx(1)
    assert hopeless["nll"] == pytest.approx(60)
    output, y = CASES["constant"]
    constant, share = classification(output, y), (y == 0).double().mean().item()
    assert constant["accuracy"] == pytest.approx(100 * share)
    assert constant["top5"] == pytest.approx(100 * (y < 5).double().mean().item())
    assert constant["entropy"] == pytest.approx(math.log(7))
    for name in ("ece", "ece_mass"):
        assert constant[name] == pytest.approx(abs(share - 1 / 7))


def by_sorting(output: Tensor, y: Tensor, k: int) -> float:
    """Percent of labels among the k first of the classes sorted by logit, then index."""
    hits = 0
    for row, label in zip(output.tolist(), y.tolist(), strict=True):
        hits += label in sorted(range(len(row)), key=lambda c: (-row[c], c))[:k]
    return 100 * hits / len(y)


@pytest.mark.parametrize("case", CASES)
def test_the_top_k_by_sorting(case: str) -> None:
    output, y = CASES[case]
    for k in (1, 2, 3, 5, 9):
        assert top_accuracy(output, y, k) == pytest.approx(by_sorting(output, y, k))


def test_gradients_and_other_integer_types_do_no_harm() -> None:
    output, y = CASES["random"]
    assert classification(output.clone().requires_grad_(), y.int()) == classification(output, y)


def test_wrong_arguments_are_named() -> None:
    output, y = CASES["random"]
    with pytest.raises(InputError, match="expected k to be a whole number >= 1, but got 0"):
        top_accuracy(output, y, 0)
    with pytest.raises(InputError, match="expected bins to be a whole number >= 1"):
        classification(output, y, bins=0)


def test_large_sets_are_quick() -> None:
    output, y = random_logits(20_000, 100)
    classification(output[:100], y[:100])
    start = time.perf_counter()
    classification(output, y)
    assert time.perf_counter() - start < 3  # about 0.2 s on one core
