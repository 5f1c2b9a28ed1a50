"""Closed forms, PyTorch's own losses, limits, gradients, saturation and wrong input."""

import math

import pytest
import torch
from torch.distributions import Bernoulli as TorchBernoulli
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Normal
from torch.nn import functional as F

from one_line import refusals
from rcad import Bernoulli, Categorical, Gaussian

LOGITS = torch.randn(9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
LABELS = torch.randint(5, (9,), generator=torch.Generator().manual_seed(1))
SOFT = torch.rand(9, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64).softmax(1)


@pytest.mark.parametrize("eps", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("weight", [None, (0.5, 1.0, 2.0, 0.0, 3.0)])
def test_categorical_equals_torch_cross_entropy(eps, weight):
    ours = Categorical(smoothing=eps, weight=weight)
    torch_weight = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    for target in (LABELS, SOFT):
        theirs = F.cross_entropy(LOGITS, target, torch_weight, reduction="none", label_smoothing=eps)
        torch.testing.assert_close(ours.nll(LOGITS, target), theirs)


def test_the_papers_smoothing_leaves_one_minus_eps_on_the_label():
    eps, k = 0.3, 5
    target = torch.full((9, k), eps / (k - 1), dtype=torch.float64).scatter(1, LABELS[:, None], 1 - eps)
    expected = -(target * LOGITS.log_softmax(1)).sum(1)
    smoothed = Categorical(smoothing=eps, convention="others")
    torch.testing.assert_close(smoothed.nll(LOGITS, LABELS), expected)
    hard_as_soft = F.one_hot(LABELS, k).double()
    torch.testing.assert_close(smoothed.nll(LOGITS, hard_as_soft), expected)


@pytest.mark.parametrize("k", [2, 3, 100])
def test_uniform_logits_have_the_largest_entropy(k):
    output, most = torch.full((4, k), 1.7), torch.full((4,), math.log(k))
    torch.testing.assert_close(Categorical().entropy(output), most)
    torch.testing.assert_close(Categorical().uniform_nll(output), most)


@pytest.mark.parametrize("width", [1, 2])
def test_gaussian_equals_torch_distributions(width):
    output, y = LOGITS[:, : 2 * width], LOGITS[:, 5 - width :]
    normal = Normal(output[:, :width], (0.5 * output[:, width:]).exp())
    free, capped = Gaussian(cap=None), Gaussian(cap=(0.5, -0.5)[:width])
    torch.testing.assert_close(free.nll(output, y), -normal.log_prob(y).mean(1))
    torch.testing.assert_close(free.entropy(output), normal.entropy().mean(1))
    limited = torch.minimum(output[:, width:], torch.tensor([[0.5, -0.5]])[:, :width])
    torch.testing.assert_close(capped.entropy(output), (0.5 * (math.log(2 * math.pi * math.e) + limited)).mean(1))


def test_fit_measures_the_marginal():
    y = torch.tensor([1.0, 3.0, 5.0, 7.0])
    assert Gaussian.fit(y).cap == pytest.approx(math.log(5.0))
    fitted = Gaussian.fit(torch.stack([y, 2 * y], 1)).cap
    assert fitted == pytest.approx((math.log(5.0), math.log(20.0)))


@pytest.mark.parametrize("shape", [(9,), (9, 4)])
def test_bernoulli_equals_torch(shape):
    z = LOGITS.flatten()[: math.prod(shape)].view(shape)
    y = (torch.arange(math.prod(shape)).view(shape) % 2).double()
    nll = F.binary_cross_entropy_with_logits(z, y, reduction="none")
    entropy = TorchBernoulli(logits=z).entropy()
    average = (lambda t: t.mean(1)) if len(shape) > 1 else (lambda t: t)
    torch.testing.assert_close(Bernoulli().nll(z, y), average(nll))
    torch.testing.assert_close(Bernoulli().entropy(z), average(entropy))
    weighted = F.binary_cross_entropy_with_logits(z, y, reduction="none", pos_weight=torch.tensor(3.0))
    torch.testing.assert_close(Bernoulli(positive_weight=3.0).nll(z, y), average(weighted))
    torch.testing.assert_close(Bernoulli(smoothing=0.2).nll(z, y), Bernoulli().nll(z, 0.8 * y + 0.1))


def test_dense_outputs_average_their_pixels_and_skip_ignored_ones():
    output = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(3))
    target = torch.randint(5, (2, 3, 4), generator=torch.Generator().manual_seed(4))
    whole, pixels = Categorical(), TorchCategorical(logits=output.movedim(1, -1))
    torch.testing.assert_close(whole.nll(output, target), -pixels.log_prob(target).flatten(1).mean(1))
    torch.testing.assert_close(whole.entropy(output), pixels.entropy().flatten(1).mean(1))
    last, channels = Categorical(class_dim=-1), output.movedim(1, -1)
    torch.testing.assert_close(last.nll(channels, target), whole.nll(output, target))
    torch.testing.assert_close(last.entropy(channels), whole.entropy(output))
    target[0, 0, :] = -100
    kept = F.cross_entropy(output[0:1], target[0:1])  # torch averages over what is not ignored
    torch.testing.assert_close(whole.nll(output, target)[0], kept)
    torch.testing.assert_close(whole.entropy(output, whole.valid(target))[0], pixels.entropy()[0, 1:].mean())


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e30, 3e38])
@pytest.mark.parametrize("likelihood", [Categorical(), Categorical(0.1), Categorical(0.1, "others"), Bernoulli()])
def test_saturated_logits_give_no_nan(scale, likelihood):
    z = torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 1.0]], requires_grad=True)
    target = torch.tensor([0, 1]) if isinstance(likelihood, Categorical) else torch.tensor([[1.0, 0, 1], [0, 1, 0]])
    for value in (likelihood.entropy(z * scale), likelihood.uniform_nll(z * scale), likelihood.nll(z * scale, target)):
        assert not value.isnan().any()
    (gradient,) = torch.autograd.grad(likelihood.entropy(z * scale).sum(), z)
    assert not gradient.isnan().any()


def test_a_masked_class_adds_nothing_and_a_perfect_fit_stays_finite():
    z = torch.tensor([[0.5, -math.inf, 0.5]], requires_grad=True)
    output = torch.tensor([[1.0, -1e4], [1.0, 1e4]], requires_grad=True)
    entropy, nll = Categorical().entropy(z), Gaussian().nll(output, torch.tensor([1.5, 1.0]))
    assert entropy.item() == pytest.approx(math.log(2))
    for value, given in ((entropy, z), (nll, output)):
        assert value.isfinite().all()
        assert torch.autograd.grad(value.sum(), given)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_outputs_are_measured_in_full(dtype):
    small = LOGITS.to(dtype)
    assert Categorical().nll(small, LABELS).dtype == torch.float32
    torch.testing.assert_close(Categorical().entropy(small), Categorical().entropy(small.float()))
    assert Gaussian().nll(small[:, :2], LABELS.to(dtype)).dtype == torch.float32
    assert Bernoulli().entropy(small[:, 0]).dtype == torch.float32


@pytest.mark.parametrize(
    ("likelihood", "width", "target"),
    [
        (Categorical(), 5, LABELS),
        (Categorical(), 5, SOFT),
        (Categorical(0.2, "others", (1.0, 2.0, 0.5, 1.0, 1.0)), 5, LABELS),
        (Gaussian(cap=None), 2, LOGITS[:, 3]),
        (Gaussian(cap=0.3), 4, LOGITS[:, :2]),
        (Bernoulli(0.1), 3, (LOGITS[:, :3] > 0).double()),
    ],
)
def test_gradcheck(likelihood, width, target):
    z = LOGITS[:, :width].clone().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda z: likelihood.nll(z, target), z)
    assert torch.autograd.gradcheck(likelihood.entropy, z)
    if not isinstance(likelihood, Gaussian):
        assert torch.autograd.gradcheck(likelihood.uniform_nll, z)


def test_plain_forgets_smoothing_and_weights():
    assert Categorical(0.2, "others", (1.0, 2.0), class_dim=-1).plain() == Categorical(0.0, "others", class_dim=-1)
    assert Bernoulli(0.2, 3.0).plain() == Bernoulli()
    assert Gaussian(cap=1.0).plain() == Gaussian(cap=1.0)


@pytest.mark.parametrize(("classes", "label"), [(200, 156), (300, 250)])
def test_labels_of_8_bits_are_compared_as_numbers(classes, label):
    """In 8 bits -100 is 156, and 300 is 44."""
    logits, target = torch.randn(2, classes, 3), torch.full((2, 3), label, dtype=torch.uint8)
    Categorical().check_values(logits, target)
    for likelihood in (Categorical(), Categorical(ignore_index=3)):
        assert torch.equal(likelihood.nll(logits, target), likelihood.nll(logits, target.long()))
        assert likelihood.valid(target).all()


test_wrong_input_is_named_in_one_sentence = refusals(
    (lambda: Categorical(smoothing=1.0), "expected smoothing to be a number in [0, 1), but got 1.0"),
    (lambda: Categorical(convention="paper"), "expected convention to be one of all, others"),
    (lambda: Categorical(weight=2.0), "weight to be numbers, one per class, but got 2.0"),
    (lambda: Categorical(ignore_index=2).check_values(LOGITS, LABELS * 0 + 2), "dense ones, but got 2; drop the"),
    (lambda: Gaussian(cap=math.inf), "expected cap to be a finite number"),
    (lambda: Gaussian.fit([2.0, 2.0]), "constant"),
    (lambda: Bernoulli(positive_weight=-1), "positive_weight"),
    (lambda: Categorical().check_shapes(LOGITS[:, 0], LABELS), "expected logits of shape (B, K, ...)"),
    (lambda: Categorical().check_shapes(LOGITS[:, :1], LABELS), "Bernoulli()"),
    (lambda: Categorical(weight=(1.0, 2.0)).check_shapes(LOGITS, LABELS), "expected 5 class weights"),
    (lambda: Categorical().check_values(LOGITS, SOFT + torch.tensor([-0.5, 0.5, 0, 0, 0])), "smallest entry"),
    (lambda: Categorical().check_values(LOGITS, 1.5 * SOFT), "sum to 1"),
    (lambda: Categorical().check_values(LOGITS, SOFT / 0 * 0), "but got a smallest entry of nan"),
    (lambda: Gaussian().check_shapes(LOGITS, LOGITS[:, 0]), "D means and D log-variances"),
    (lambda: Gaussian().check_values(LOGITS[:, :2], LOGITS[:, 0] / 0), "finite targets"),
    (lambda: Bernoulli().check_shapes(LOGITS, LABELS), "like the prediction"),
    (lambda: Bernoulli().check_values(LOGITS[:, 0], LABELS), "binary targets in [0, 1]"),
)
