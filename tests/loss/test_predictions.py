"""What cannot be scored is named in one line; the engine and an evaluation give the same numbers, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from predictions import cases
from rcad import InputError
from rcad.evaluate.classification import brier_parts, classification, fit_temperature, risk_coverage, top_accuracy
from rcad.evaluate.regression import regression
from rcad.loss.calibration import ece, reliability
from rcad.loss.predictions import Check, fetch, label_scores, log_confidence, value_scores
from rcad.train.task import scores

METRICS = [brier_parts, ece, reliability, classification, top_accuracy, risk_coverage, fit_temperature]
GOOD, LABELS = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
BAD = {
    "nan": (torch.full((4, 3), torch.nan), LABELS, "expected finite logits, but got NaN or inf"),
    "inf": (GOOD.clone().index_fill(1, torch.tensor([1]), torch.inf), LABELS, "expected finite logits"),
    "too large": (GOOD, LABELS + 1, "expected labels from 0 to 2 for a model with 3 outputs, but got 3"),
    "negative": (GOOD, LABELS - 100, "but got -100"),
    "empty": (GOOD[:0], LABELS[:0], "expected at least one example, but got none"),
    "one label short": (GOOD, LABELS[:3], r"expected integer labels of shape \(4,\)"),
    "dense": (torch.randn(4, 3, 2), LABELS, r"expected logits of shape \(B, K\)"),
    "one logit": (GOOD[:, :1], LABELS, "expected at least 2 classes"),
    "soft labels": (GOOD, GOOD.softmax(1), "expected integer labels of shape"),
    "integer logits": (LABELS[:, None].repeat(1, 3), LABELS, r"expected logits of shape \(B, K\)"),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("fault", BAD)
def test_faults_are_named(metric: Callable[..., Any], fault: str) -> None:
    output, y, says = BAD[fault]
    with pytest.raises(InputError, match=says) as caught:
        metric(output, y)
    assert "\n" not in str(caught.value)


def test_fetch_keeps_names_and_lengths_apart() -> None:
    fine = Check(torch.tensor(False), lambda: "never")
    found = fetch({"a": torch.tensor(2), "b": torch.tensor([[1.5], [2.5]]), "c": torch.zeros(0)}, [fine, fine])
    assert found == {"a": [2.0], "b": [1.5, 2.5], "c": []}
    with pytest.raises(InputError, match="second"):
        fetch({"a": torch.tensor(2)}, [fine, Check(torch.tensor(True), lambda: "second")])


def test_confidence_that_rounds_to_one_still_ranks() -> None:
    z: Tensor = torch.tensor([[0.0, 50.0, 0.0], [100.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 1.0, 2.0]]).double()
    found = log_confidence(z)
    assert z.softmax(1).amax(1)[0] == z.softmax(1).amax(1)[1]
    assert found[0] < found[1] < 0
    assert found[0].item() == pytest.approx(-2 * math.exp(-50), rel=1e-12)
    torch.testing.assert_close(found[2:], z[2:].log_softmax(1).amax(1))


CASES = cases()


@pytest.mark.parametrize("case", CASES)
def test_labels_one_by_one(case: str) -> None:
    output, y = CASES[case]
    found = label_scores(output, y)
    for i in range(0, len(y), 17):
        p = [math.exp(v) for v in output[i].double().log_softmax(0).tolist()]
        first = max(range(len(p)), key=lambda k: (output[i, k].item(), -k))
        assert found["hit"][i].item() == (first == y[i].item())
        assert found["nll"][i].item() == pytest.approx(-output[i].double().log_softmax(0)[y[i]].item(), abs=1e-14)
        truth = one_hot(y[i], len(p)).tolist()
        assert found["brier"][i].item() == pytest.approx(sum((a - b) ** 2 for a, b in zip(p, truth, strict=True)))


@pytest.mark.parametrize("case", CASES)
def test_the_engine_agrees_exactly(case: str) -> None:
    output, y = CASES[case]
    engine, evaluation = scores(output, y, None), classification(output, y)
    assert set(engine) == {"accuracy", "nll", "brier"}
    assert {name: evaluation[name] for name in engine} == engine


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_engine_agrees_exactly_on_values(dtype: torch.dtype) -> None:
    output, y = torch.randn(999, 2, dtype=dtype), torch.randn(999, dtype=dtype)
    output[:, 1] *= 20  # below the floor of the log-variance too
    engine, evaluation = scores(output, y, 3.7), regression(output, y, 3.7)
    assert set(engine) == {"nll", "rmse"}
    assert {name: evaluation[name] for name in engine} == engine


def test_nothing_is_checked_so_that_a_diverged_run_is_seen() -> None:
    broken = torch.full((3, 2), torch.nan)
    assert label_scores(broken, torch.zeros(3, dtype=torch.long))["nll"].isnan().all()
    assert value_scores(broken, torch.zeros(3))["nll"].isnan().all()
    assert math.isnan(scores(broken, torch.zeros(3), 1.0)["nll"])
    assert math.isnan(scores(broken, torch.zeros(3, dtype=torch.long), None)["brier"])
