"""What cannot be scored is named in one line; the engine gives an evaluation's numbers, which scikit-learn confirms."""

import math
from statistics import fmean

import pytest
import torch

from one_line import fails_in_one_line, refusals
from predictions import cases
from rcad.evaluate.classification import classification, fit_temperature, risk_coverage, top_accuracy
from rcad.loss.predictions import ece, log_confidence, reliability, width_bins

METRICS = [ece, reliability, classification, top_accuracy, risk_coverage, fit_temperature]
GOOD, LABELS = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
BAD = {
    "nan": (torch.full((4, 3), torch.nan), LABELS, "expected finite logits, but got NaN or inf"),
    "inf": (GOOD.clone().index_fill(1, torch.tensor([1]), torch.inf), LABELS, "expected finite logits"),
    "too large": (GOOD, LABELS + 1, "expected labels from 0 to 2 for a model with 3 outputs, but got 3"),
    "empty": (GOOD[:0], LABELS[:0], "expected at least one example, but got none"),
    "one label short": (GOOD, LABELS[:3], r"expected integer labels of shape \(4,\)"),
    "one logit": (GOOD[:, :1], LABELS, "expected at least 2 classes"),
    "soft labels": (GOOD, GOOD.softmax(1), "expected integer labels of shape"),
    "integer logits": (LABELS[:, None].repeat(1, 3), LABELS, r"expected logits of shape \(B, K\)"),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("fault", BAD)
def test_faults_are_named(metric, fault):
    output, y, says = BAD[fault]
    with fails_in_one_line(match=says):
        metric(output, y)


def test_confidence_that_rounds_to_one_still_ranks():
    z = torch.tensor([[0.0, 50.0, 0.0], [100.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 1.0, 2.0]]).double()
    found = log_confidence(z)
    assert z.softmax(1).amax(1)[0] == z.softmax(1).amax(1)[1]
    assert found[0] < found[1] < 0
    assert found[0].item() == pytest.approx(-2 * math.exp(-50), rel=1e-12)
    torch.testing.assert_close(found[2:], z[2:].log_softmax(1).amax(1))


CASES = cases()


def in_mass_bins(p, right, bins):
    """Bins filled one example after the other; equals share their mean outcome."""
    filled = [0.0] * bins
    for place, forecast in enumerate(sorted(p)):
        outcome = fmean(hit for other, hit in zip(p, right, strict=True) if other == forecast)
        filled[place * bins // len(p)] += outcome - forecast
    return sum(map(abs, filled)) / len(p)


@pytest.mark.parametrize("bins", [1, 2, 15, 400])
@pytest.mark.parametrize("case", CASES)
def test_a_loop_gives_bins_of_equal_mass(case, bins):
    output, y = CASES[case]
    p, right = output.double().softmax(1).amax(1).tolist(), (output.argmax(1) == y).double().tolist()
    assert ece(output, y, bins=bins, kind="mass") == pytest.approx(in_mass_bins(p, right, bins), abs=1e-12)


@pytest.mark.parametrize("bins", [2, 15, 400])
@pytest.mark.parametrize("case", CASES)
def test_torchmetrics_gives_the_same(case, bins):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    output, y = CASES[case]
    p, classes = output.double().softmax(1), output.shape[1]
    other = functional.multiclass_calibration_error(p, y, classes, n_bins=bins, norm="l1").item()
    assert ece(output, y, bins=bins) == pytest.approx(other, abs=1e-6)
    each = [
        functional.binary_calibration_error(p[:, k].contiguous(), (y == k).long(), n_bins=bins).item()
        for k in range(classes)
    ]
    assert ece(output, y, bins=bins, kind="classwise") == pytest.approx(sum(each) / classes, abs=1e-6)


def test_bins_are_closed_on_the_right():
    edges = [0.0, 1e-300, 1 / 15, math.nextafter(1 / 15, 1), 7 / 15, 8 / 15, 14 / 15, 1.0]
    p = torch.tensor(edges, dtype=torch.float64)
    assert width_bins(p, 15).tolist() == [0, 0, 0, 1, 6, 7, 13, 14]
    assert width_bins(p, 1).tolist() == [0] * 8


@pytest.mark.parametrize("kind", ["width", "mass"])
@pytest.mark.parametrize("bins", [1, 15, 400])
@pytest.mark.parametrize("case", CASES)
def test_the_curve_holds_every_example_and_gives_the_error(case, bins, kind):
    output, y = CASES[case]
    curve = reliability(output, y, bins=bins, kind=kind)
    assert sum(curve.count) == len(y)
    assert min(curve.count) > 0
    gaps = [n * abs(a - c) for n, a, c in zip(curve.count, curve.accuracy, curve.confidence, strict=True)]
    assert sum(gaps) / len(y) == pytest.approx(ece(output, y, bins=bins, kind=kind), abs=1e-12)
    for low, high, mean in zip(curve.lower, curve.upper, curve.confidence, strict=True):
        assert low - 1e-12 <= mean <= high + 1e-12
    assert kind == "width" or max(curve.count) - min(curve.count) <= 1


test_wrong_arguments_are_named = refusals(
    (ece, {"bins": 0}, "expected bins to be a whole number >= 1, but got 0"),
    (ece, {"kind": "masss"}, "did you mean 'mass'"),
    of=lambda metric, options: metric(*CASES["random"], **options),
)
