"""Every aggregate fetches its numbers once, and a GPU gives those of the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from predictions import cases, random_logits
from rcad.evaluate.classification import classification, fit_temperature, risk_coverage
from rcad.evaluate.ood import out_of_distribution
from rcad.evaluate.regression import regression
from rcad.loss.predictions import ece, reliability

LOGITS, LABELS = cases()["tied logits"]
HEAD, VALUES = random_logits(50, 2)[0], random_logits(50, 2, seed=1)[0][:, 0]
CALLS: dict[str, tuple[Callable[..., Any], Tensor, Tensor]] = {
    "classification": (classification, LOGITS, LABELS),
    "ece": (lambda output, y: ece(output, y, kind="mass"), LOGITS, LABELS),
    "reliability": (reliability, LOGITS, LABELS),
    "selective": (risk_coverage, LOGITS, LABELS),
    "regression": (regression, HEAD, VALUES),
    "ood": (out_of_distribution, LOGITS, 2 * LOGITS[:90]),
}
OUTPUT, TRUTH = random_logits(300, 7, seed=2)
APART = dict.fromkeys(CALLS, (OUTPUT, TRUTH)) | {"regression": (HEAD, VALUES), "ood": (OUTPUT, 2 * OUTPUT[:90])}
FETCHES = ("tolist", "item", "__bool__", "__float__", "__int__", "__index__", "nonzero", "cpu", "numpy", "unique")


@pytest.mark.parametrize("call", CALLS)
def test_numbers_are_fetched_once(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, *tensors = CALLS[call]
    seen: list[str] = []
    for name in FETCHES:
        original = getattr(Tensor, name)

        def counted(self: Tensor, *args: Any, _name: str = name, _original: Any = original, **options: Any) -> Any:
            seen.append(_name)
            return _original(self, *args, **options)

        monkeypatch.setattr(Tensor, name, counted)
    function(*tensors)
    assert seen == ["tolist"]


def numbers(result: Any) -> list[float]:
    values = list(result.values()) if isinstance(result, dict) else [result]
    values = list(vars(result).values()) if hasattr(result, "__dict__") else values
    return [number for value in values for number in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("call", CALLS)
def test_a_gpu_gives_the_same_with_one_synchronisation(call: str) -> None:
    function, *_ = CALLS[call]
    tensors = APART[call]  # a GPU's softmax may part by one bit what the CPU's leaves tied
    there = [tensor.cuda() for tensor in tensors]
    function(*there)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = function(*there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sum("synchroniz" in str(warning.message) for warning in caught) <= 1
    assert numbers(found) == pytest.approx(numbers(function(*tensors)), abs=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_fits_the_same_temperature_and_survives_a_wrong_label() -> None:
    fitted = fit_temperature(LOGITS.cuda(), LABELS)
    assert fitted.value == pytest.approx(fit_temperature(LOGITS, LABELS).value, rel=1e-10)
    with pytest.raises(ValueError, match="expected labels from 0 to 6"):
        classification(LOGITS.cuda(), LABELS.cuda() + 1)
    assert classification(LOGITS.cuda(), LABELS.cuda())["accuracy"] > 0  # no kernel failed
