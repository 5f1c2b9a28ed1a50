"""Telling known from foreign examples: against scikit-learn and torchmetrics, by double loops, with ties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from torch import Tensor

from predictions import cases, random_logits
from rcad import InputError
from rcad.evaluate.ood import SCORES, detection, out_of_distribution, scores

DRAW = torch.Generator().manual_seed(0)
NORMAL = torch.randn(500, generator=DRAW, dtype=torch.float64)
PAIRS = {
    "separate": (NORMAL[:200] + 9, NORMAL[200:]),
    "overlapping": (NORMAL[:200] + 1, NORMAL[200:]),
    "reversed": (NORMAL[:200] - 9, NORMAL[200:]),
    "ties": ((3 * NORMAL[:200] + 2).round(), (3 * NORMAL[200:]).round()),
    "few values": (NORMAL[:20].sign(), NORMAL[200:].sign()),
    "constant": (torch.zeros(30), torch.zeros(70)),
    "one each": (torch.ones(1), torch.zeros(1)),
    "one known": (NORMAL[:1], NORMAL[1:]),
    "twenty": (NORMAL[:20], NORMAL[20:]),
}


def by_loops(known: list[float], foreign: list[float]) -> dict[str, float]:
    """Every pair, every threshold."""
    wins = sum((a > b) + 0.5 * (a == b) for a in known for b in foreign)

    def precision(positive: list[float], negative: list[float]) -> float:
        total = 0.0
        for threshold in positive:
            accepted = sum(v >= threshold for v in positive)
            total += accepted / (accepted + sum(v >= threshold for v in negative))
        return total / len(positive)

    enough = [t for t in known if sum(v >= t for v in known) / len(known) >= 0.95]
    return {
        "auroc": wins / len(known) / len(foreign),
        "aupr_in": precision(known, foreign),
        "aupr_out": precision([-v for v in foreign], [-v for v in known]),
        "fpr95": sum(v >= max(enough) for v in foreign) / len(foreign),
    }


@pytest.mark.parametrize("pair", PAIRS)
def test_loops_give_the_same(pair: str) -> None:
    known, foreign = PAIRS[pair]
    assert detection(known, foreign) == pytest.approx(by_loops(known.tolist(), foreign.tolist()), abs=1e-12)


@pytest.mark.parametrize("pair", PAIRS)
def test_scikit_learn_gives_the_same(pair: str) -> None:
    known, foreign = (part.numpy() for part in PAIRS[pair])
    label, score = np.r_[np.ones(len(known)), np.zeros(len(foreign))], np.r_[known, foreign]
    false, true, _ = metrics.roc_curve(label, score, drop_intermediate=False)
    assert detection(*PAIRS[pair]) == pytest.approx(
        {
            "auroc": metrics.roc_auc_score(label, score),
            "aupr_in": metrics.average_precision_score(label, score),
            "aupr_out": metrics.average_precision_score(1 - label, -score),
            "fpr95": false[true >= 0.95].min(),
        },
        abs=1e-10,
    )


@pytest.mark.parametrize("pair", PAIRS)
def test_torchmetrics_gives_the_same(pair: str) -> None:
    functional = pytest.importorskip("torchmetrics.functional.classification")
    known, foreign = PAIRS[pair]
    score = torch.cat([known, foreign])
    # torchmetrics squeezes what lies outside [0, 1] through a sigmoid; ranks inside are left alone.
    rank = torch.unique(score, return_inverse=True)[1] / 1000
    label = torch.cat([torch.ones(len(known)), torch.zeros(len(foreign))]).long()
    found = detection(known, foreign)
    assert found["auroc"] == pytest.approx(functional.binary_auroc(rank, label).item(), abs=1e-6)
    assert found["aupr_in"] == pytest.approx(functional.binary_average_precision(rank, label).item(), abs=1e-6)
    other = functional.binary_average_precision(0.9 - rank, 1 - label).item()
    assert found["aupr_out"] == pytest.approx(other, abs=1e-6)


@given(
    known=st.lists(st.integers(-4, 4), min_size=1, max_size=40),
    foreign=st.lists(st.integers(-4, 4), min_size=1, max_size=40),
)
@settings(max_examples=80, deadline=None)
def test_monotone_maps_change_nothing_and_mirrors_swap(known: list[int], foreign: list[int]) -> None:
    a, b = torch.tensor(known).double(), torch.tensor(foreign).double()
    found = detection(a, b)
    assert found == detection((a / 3).exp(), (b / 3).exp()) == detection(7 * a.atan() - 2, 7 * b.atan() - 2)
    assert found == pytest.approx(by_loops([float(v) for v in known], [float(v) for v in foreign]), abs=1e-12)
    mirrored = detection(-b, -a)
    assert mirrored["auroc"] == pytest.approx(found["auroc"], abs=1e-12)
    assert (mirrored["aupr_in"], mirrored["aupr_out"]) == (found["aupr_out"], found["aupr_in"])
    assert detection(b, a)["auroc"] == pytest.approx(1 - found["auroc"], abs=1e-12)


@pytest.mark.parametrize("count", [1, 7, 19, 20, 21, 60, 100, 140, 180, 1000])
def test_the_threshold_keeps_just_enough(count: int) -> None:
    """Of the known scores 1 .. N, ceil(0.95 N) are kept; the foreign ones just below the least kept are not."""
    known = torch.arange(1, count + 1).double()
    kept = -(-95 * count // 100)
    least = count - kept + 1
    assert detection(known, torch.tensor([least - 0.5, least, least + 0.5]))["fpr95"] == pytest.approx(2 / 3)


def test_another_rate() -> None:
    known = torch.arange(1.0, 11.0)
    assert detection(known, torch.tensor([5.5, 6.0, 6.5]), tpr=0.5)["fpr95"] == pytest.approx(2 / 3)
    # 0.55 * 100 rounds to a little more than 55; the 55 best, down to a score of 46, are still enough.
    assert detection(torch.arange(1.0, 101.0), torch.tensor([45.5]), tpr=0.55)["fpr95"] == 0
    with pytest.raises(InputError, match=r"expected tpr to be a number in \[0, 1\)"):
        detection(known, known, tpr=1.5)


@pytest.mark.parametrize("case", cases())
def test_scores_by_their_formulas(case: str) -> None:
    output, _ = cases()[case]
    found = scores(output)
    assert tuple(found) == SCORES
    for i in range(0, len(output), 37):
        z = output[i].double().tolist()
        total = math.log(math.fsum(math.exp(v - max(z)) for v in z)) + max(z)
        p = [math.exp(v - total) for v in z]
        assert found["msp"][i].exp().item() == pytest.approx(max(p))
        assert found["entropy"][i].item() == pytest.approx(math.fsum(q * math.log(q) for q in p), abs=1e-9)
        assert found["energy"][i].item() == pytest.approx(total)
        assert found["max_logit"][i].item() == max(z)


def test_all_scores_at_once() -> None:
    inside, outside = random_logits(120, 5, scale=4.0)[0], random_logits(80, 5, seed=1, scale=0.5)[0]
    found = out_of_distribution(inside, outside)
    assert len(found) == 16
    for name in SCORES:
        own = detection(scores(inside)[name], scores(outside)[name])
        assert {f"{name}_{key}": value for key, value in own.items()}.items() <= found.items()
        assert found[f"{name}_auroc"] > 0.6  # all point the same way: larger for known examples


def test_confidence_that_rounds_to_one_is_still_told_apart() -> None:
    inside, outside = torch.tensor([[60.0, 0.0], [70.0, 0.0]]), torch.tensor([[50.0, 0.0], [0.0, 45.0]])
    assert out_of_distribution(inside, outside)["msp_auroc"] == 1


@pytest.mark.parametrize(
    ("inside", "outside", "says"),
    [
        (torch.zeros(3, 4), torch.zeros(3, 5), "expected logits of one model for both sets, but got 4 and 5 classes"),
        (torch.zeros(3), torch.zeros(3, 5), r"expected logits of shape \(B, K\)"),
        (torch.zeros(3, 2).long(), torch.zeros(3, 2), r"expected logits of shape \(B, K\)"),
        (torch.zeros(3, 1), torch.zeros(3, 1), r"expected logits of shape \(B, K\)"),
        (torch.zeros(3, 4), torch.zeros(0, 4), "at least one example of each kind"),
        (torch.zeros(3, 4), torch.full((2, 4), torch.nan), "expected finite logits"),
        (torch.full((2, 4), torch.inf), torch.zeros(3, 4), "expected finite logits"),
    ],
)
def test_faults_are_named(inside: Tensor, outside: Tensor, says: str) -> None:
    with pytest.raises(InputError, match=says):
        out_of_distribution(inside, outside)


def test_faulty_scores_are_named() -> None:
    for known, foreign, says in (
        (torch.zeros(0), torch.zeros(2), "at least one example of each kind"),
        (torch.zeros(2, 2), torch.zeros(2), "expected one score per example"),
        (torch.zeros(2), torch.tensor([torch.nan]), "expected finite scores"),
    ):
        with pytest.raises(InputError, match=says):
            detection(known, foreign)
