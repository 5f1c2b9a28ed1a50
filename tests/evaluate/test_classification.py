"""A classifier's numbers: against other libraries, by loops and by hand; each aggregate is fetched once."""

import math
import warnings
from collections.abc import Callable
from functools import partialmethod
from itertools import pairwise, permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn import metrics
from torch import Tensor
from torch.nn.functional import cross_entropy

from predictions import calibrated, cases, random_logits
from rcad.evaluate import classification as module
from rcad.evaluate.classification import before_and_after, classification, fit_temperature, risk_coverage, top_accuracy
from rcad.evaluate.ood import out_of_distribution
from rcad.evaluate.regression import regression
from rcad.loss.predictions import ece, reliability

CASES = cases()
NAMES = """accuracy top5 nll brier brier_reliability brier_resolution brier_uncertainty brier_within_bins ece ece_mass
ece_classwise aurc excess_aurc confidence overconfidence entropy"""


@pytest.mark.parametrize("case", CASES)
def test_scikit_learn_gives_the_same(case: str) -> None:
    output, y = CASES[case]
    p, classes = output.double().softmax(1), list(range(output.shape[1]))
    found = classification(output, y)
    assert list(found) == NAMES.split()
    assert found["accuracy"] == pytest.approx(100 * metrics.accuracy_score(y, output.argmax(1)))
    if case not in ("perfect", "hopeless"):  # log_loss clips probabilities, so certain predictors differ
        assert found["nll"] == pytest.approx(metrics.log_loss(y, p, labels=classes), rel=1e-9)
    if len(classes) == 2:
        assert found["brier"] == pytest.approx(2 * metrics.brier_score_loss(y, p[:, 1]), rel=1e-9)


@pytest.mark.parametrize("bins", [4, 15])
@pytest.mark.parametrize("case", CASES)
def test_each_number_is_that_of_its_own_function(case: str, bins: int) -> None:
    output, y = CASES[case]
    found, curve = classification(output.clone().requires_grad_(), y.int(), bins=bins), risk_coverage(output, y)
    for name, kind in (("ece", "width"), ("ece_mass", "mass"), ("ece_classwise", "classwise")):
        assert found[name] == ece(output, y, kind=kind, bins=bins)
    assert (found["aurc"], found["excess_aurc"]) == (curve.aurc, curve.excess_aurc)
    assert (found["accuracy"], found["top5"]) == (top_accuracy(output, y, 1), top_accuracy(output, y))
    p = output.double().softmax(1)
    assert found["confidence"] == pytest.approx(p.max(1).values.mean().item())
    assert found["overconfidence"] == pytest.approx(100 * found["confidence"] - found["accuracy"], abs=1e-9)
    assert found["entropy"] == pytest.approx(torch.special.entr(p).sum(1).mean().item(), abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_top_k_by_sorting(case: str) -> None:
    output, y = CASES[case]
    ordered = [sorted(range(len(row)), key=lambda c: (-row[c], c)) for row in output.tolist()]
    for k in (1, 2, 3, 5, 9):
        hits = [label in classes[:k] for classes, label in zip(ordered, y.tolist(), strict=True)]
        assert top_accuracy(output, y, k) == pytest.approx(100 * sum(hits) / len(hits))


def by_loops(output: Tensor, y: Tensor, bins: int) -> dict[str, float]:
    p, labels = output.double().softmax(1).tolist(), y.tolist()
    sums = dict.fromkeys(("reliability", "resolution", "uncertainty", "within_bins"), 0.0)
    for k in range(len(p[0])):
        base = labels.count(k) / len(labels)
        sums["uncertainty"] += base * (1 - base)
        for b in range(bins):
            inside = [i for i in range(len(p)) if b / bins < p[i][k] <= (b + 1) / bins or (b == 0 and p[i][k] == 0)]
            if not inside:
                continue
            share = len(inside) / len(labels)
            mean = sum(p[i][k] for i in inside) / len(inside)
            seen = sum(labels[i] == k for i in inside) / len(inside)
            variance = sum((p[i][k] - mean) ** 2 for i in inside) / len(inside)
            covariance = sum((p[i][k] - mean) * ((labels[i] == k) - seen) for i in inside) / len(inside)
            sums["reliability"] += share * (mean - seen) ** 2
            sums["resolution"] += share * (seen - base) ** 2
            sums["within_bins"] += share * (variance - 2 * covariance)
    return sums


@pytest.mark.parametrize("bins", [1, 3, 15])
@pytest.mark.parametrize("case", [name for name in CASES if name != "many classes"])
def test_loops_give_the_same(case: str, bins: int) -> None:
    output, y = CASES[case]
    found = classification(output, y, bins=bins)
    for name, value in by_loops(output, y, bins).items():
        assert found[f"brier_{name}"] == pytest.approx(value, abs=1e-12), name


def area(losses: list[float]) -> float:
    """The mean, over k, of the mean of the first k."""
    return sum(sum(losses[:k]) / k for k in range(1, len(losses) + 1)) / len(losses)


def test_five_examples_by_hand() -> None:
    confidence = torch.tensor([0.9, 0.55, 0.8, 0.6, 0.7])
    found = risk_coverage(torch.stack([confidence, 1 - confidence], 1).log(), torch.tensor([0, 1, 1, 0, 0]))
    assert found.coverage == pytest.approx((0.2, 0.4, 0.6, 0.8, 1.0))
    assert found.risk == pytest.approx((0, 1 / 2, 1 / 3, 1 / 4, 2 / 5))
    assert found.aurc == pytest.approx((1 / 2 + 1 / 3 + 1 / 4 + 2 / 5) / 5)
    assert found.excess_aurc == pytest.approx(found.aurc - (1 / 4 + 2 / 5) / 5)


@given(rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 1.0, 2.5])), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_ties_count_as_the_mean_over_all_orders(rows: list[tuple[int, float]]) -> None:
    confidence, loss = torch.tensor(rows, dtype=torch.float64).unbind(1)
    found = module.areas(confidence, loss)
    allowed = [order for order in permutations(rows) if all(a[0] >= b[0] for a, b in pairwise(order))]
    expected = sum(area([loss for _, loss in order]) for order in allowed) / len(allowed)
    assert found["aurc"].item() == pytest.approx(expected, abs=1e-12)
    assert found["excess_aurc"].item() >= -1e-12
    assert module.risks(confidence, loss)[-1].item() == pytest.approx(loss.mean().item())


LOOSE = ("perfect", "hopeless", "constant", "one example", "tied rows")  # no best temperature, or none inside the range


def nll(output: Tensor, y: Tensor, t: float) -> float:
    return cross_entropy(output.double() / t, y).item()


@pytest.mark.parametrize("case", [name for name in CASES if name not in LOOSE])
def test_scipy_finds_the_same(case: str) -> None:
    output, y = CASES[case]
    found = fit_temperature(output, y)
    options = {"bounds": (-6.9, 6.9), "method": "bounded", "options": {"xatol": 1e-12}}
    other = minimize_scalar(lambda b: nll(output, y, math.exp(-b)), **options)
    assert not found.at_limit
    assert found.nll_after == pytest.approx(other.fun, abs=1e-12)
    assert found.value == pytest.approx(math.exp(-other.x), rel=1e-5)
    assert found.nll_before == pytest.approx(nll(output, y, 1.0), rel=1e-12)
    assert found.nll_after == pytest.approx(nll(output, y, found.value), rel=1e-12)


def test_where_there_is_nothing_to_fit() -> None:
    """A perfect predictor wants T = 0, a hopeless one T = infinity, a constant one nothing."""
    output, y = CASES["perfect"]
    cold = fit_temperature(output / 20, y)
    assert (cold.value, cold.at_limit) == (pytest.approx(module.COLDEST), True)
    assert cold.nll_after == 0
    hot = fit_temperature(*CASES["hopeless"])
    assert (hot.value, hot.at_limit) == (pytest.approx(module.HOTTEST), True)
    assert math.log(7) < hot.nll_after < hot.nll_before
    still = fit_temperature(*CASES["constant"])
    assert (still.value, still.at_limit) == (1, False)
    assert still.nll_after == still.nll_before == pytest.approx(math.log(7))
    sure = fit_temperature(1000 * output, y)
    assert (sure.value, sure.nll_before, sure.nll_after) == (1, 0, 0)


def test_before_and_after_on_other_examples() -> None:
    logits, y = calibrated(6000)
    fitted = fit_temperature(4 * logits[:3000], y[:3000])
    test = 4 * logits[3000:], y[3000:]
    found = before_and_after(fitted, *test)
    scaled = classification(test[0] / fitted.value, test[1])
    again = {f"{name}_scaled": value for name, value in scaled.items() if name not in ("accuracy", "top5")}
    assert found == {"temperature": fitted.value, **classification(*test), **again}
    assert found["nll_scaled"] < found["nll"]
    assert found["ece_scaled"] < 0.3 * found["ece"]


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

    def counted(self: Tensor, name: str, original: Any, *args: Any, **options: Any) -> Any:
        seen.append(name)
        return original(self, *args, **options)

    for name in FETCHES:
        monkeypatch.setattr(Tensor, name, partialmethod(counted, name, getattr(Tensor, name)))
    function(*tensors)
    assert seen == ["tolist"]


def numbers(result: Any) -> list[float]:
    values = list(result.values()) if isinstance(result, dict) else [result]
    values = list(vars(result).values()) if hasattr(result, "__dict__") else values
    return [number for value in values for number in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.gpu
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
def test_a_gpu_fits_the_same_temperature_and_survives_a_wrong_label() -> None:
    fitted = fit_temperature(LOGITS.cuda(), LABELS)
    assert fitted.value == pytest.approx(fit_temperature(LOGITS, LABELS).value, rel=1e-10)
    with pytest.raises(ValueError, match="expected labels from 0 to 6"):
        classification(LOGITS.cuda(), LABELS.cuda() + 1)
    assert classification(LOGITS.cuda(), LABELS.cuda())["accuracy"] > 0  # no kernel failed
