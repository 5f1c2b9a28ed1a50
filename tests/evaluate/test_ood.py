"""Telling known from foreign examples, and entropy against alpha: against scikit-learn, by loops, step by step."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import Tensor, nn

from one_line import refusals
from predictions import cases, random_logits
from rcad import Categorical, GradientStep
from rcad.evaluate.ood import SCORES, AlphaCurve, detection, entropy_against_alpha, out_of_distribution, scores
from rcad.loss.suggest_alpha import along_adversarial
from small_nets import images, left_alone, norm_net, smooth_net

NORMAL = torch.randn(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
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
    "an odd number": (NORMAL[:37] + 1, NORMAL[37:]),
}


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
    sure = torch.tensor([[60.0, 0.0], [70.0, 0.0]]), torch.tensor([[50.0, 0.0], [0.0, 45.0]])
    assert out_of_distribution(*sure)["msp_auroc"] == 1  # confidence that rounds to 1 is still told apart


LOGITS = torch.zeros(3, 4)
test_faults_are_named = refusals(
    (out_of_distribution, LOGITS, torch.zeros(3, 5), "of one model for both sets, but got 4 and 5 classes"),
    (out_of_distribution, torch.zeros(3), LOGITS, "expected logits of shape (B, K)"),
    (out_of_distribution, LOGITS, LOGITS[:0], "at least one example of each kind"),
    (out_of_distribution, LOGITS, LOGITS + torch.nan, "expected finite logits"),
    (detection, torch.zeros(2, 2), torch.zeros(2), "expected one score per example"),
    (detection, torch.zeros(2), torch.tensor([torch.nan]), "expected finite scores"),
)


ALPHAS = [0.0, 0.5, 4.0]


def test_it_agrees_with_the_curve_of_one_batch_and_quantiles_are_those_of_the_examples() -> None:
    net, (x, y) = smooth_net().eval(), images(41)
    rows, found = along_adversarial(net, x, y, ALPHAS), entropy_against_alpha(net, x, y, ALPHAS, batch_size=8)
    assert (found.alphas, found.unmoved, found.direction) == (tuple(ALPHAS), 0, "adversarial")
    assert found.entropy == pytest.approx([row.entropy for row in rows], rel=1e-5)
    assert found.accuracy == pytest.approx([100 * row.accuracy for row in rows])
    assert found.levels == (0.1, 0.5, 0.9)
    for alpha, quantiles in zip(ALPHAS, found.quantiles, strict=True):
        with torch.no_grad():
            entropy = Categorical().entropy(net(GradientStep(alpha)(net, x, y))).sort().values.tolist()
        assert quantiles == pytest.approx((entropy[4], entropy[20], entropy[36]), rel=1e-4)


def test_random_directions_have_the_length_asked_for_and_a_seed() -> None:
    seen: list[Tensor] = []
    net, x, y = nn.Flatten(), torch.rand(20, 3, 4, 4), torch.arange(20) % 3
    net.register_forward_pre_hook(lambda _, inputs: seen.append(*inputs))

    def along(seed: int) -> AlphaCurve:
        generator = torch.Generator().manual_seed(seed)
        return entropy_against_alpha(net, x, y, [1.0, 3.0], direction="random", generator=generator)

    first = along(4)
    assert len(seen) == 3  # one example to check the targets, then a pass for each alpha and none for a gradient
    seen = seen[1:]
    for moved, alpha in zip(seen, (1.0, 3.0), strict=True):
        torch.testing.assert_close((moved - x).flatten(1).norm(dim=1), torch.full((20,), alpha))
    assert ((seen[0] - x).flatten(1).sum(1).abs() < 4).all()  # all over the sphere: an orthant's sum to about 6
    torch.testing.assert_close(3 * (seen[0] - x), seen[1] - x)  # one direction, growing distance
    assert first == along(4)
    assert first.entropy != along(5).entropy


def test_examples_without_a_gradient_are_counted() -> None:
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-500.0, 0.0], [500.0, 0.0]]))  # the second input never has a gradient
    x, y = torch.tensor([[1.0, 1.0], [0.001, 1.0], [-1.0, 1.0], [2.0, 1.0]]), torch.ones(4, dtype=torch.long)
    assert entropy_against_alpha(net, x, y, [0.5]).unmoved == 0.5


def test_the_model_is_left_as_it_was_even_after_an_exception() -> None:
    net, (x, y) = norm_net(dropout=0.3), images(30)
    net.train()
    net[1].eval()
    with left_alone(net):
        assert entropy_against_alpha(net, x, y, [0.5]) == entropy_against_alpha(net, x, y, [0.5])  # no dropout
    with left_alone(net), pytest.raises(RuntimeError):
        entropy_against_alpha(net, x[:, :2], y, [0.5])


test_faulty_curves_are_named = refusals(
    (torch.zeros(6), [], "expected at least one alpha"),
    (torch.arange(5), [0.5], "6 examples and 5 targets"),
    (torch.full((6,), 11), [0.5], "expected labels from 0 to 4 for a model with 5 outputs, but got 11"),
    of=lambda y, alphas: entropy_against_alpha(smooth_net(), images(6)[0], y, alphas),
)
