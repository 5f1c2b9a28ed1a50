"""The engine's numbers and the evaluation's are the same numbers, to the last bit."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import one_hot

from predictions import cases
from rcad.evaluate.classification import classification
from rcad.evaluate.regression import regression
from rcad.loss.predictions import label_scores, value_scores
from rcad.train.task import scores

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
