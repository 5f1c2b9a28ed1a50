"""Several runs in one batch are as many batches: what is drawn, losses, gradients and statistics, run by run."""

import copy

import pytest
import torch
from torch import Tensor

from fused_cases import CASES
from one_line import fails_in_one_line
from rcad import METHODS, Categorical, Criterion, Gaussian
from rcad.loss.augmentations import Alternating, Cutmix, Cutout, Flip, Mixup, PadCrop
from rcad.loss.likelihoods import Bernoulli
from rcad.models import build
from rcad.models.joined import Joined

RUNS, EACH, CLASSES = 3, 4, 5
STEADY = {name: make() for name, make in METHODS.items() if make().growth is None}


def networks(outputs):
    made = []
    for seed in range(RUNS):
        torch.manual_seed(seed)
        mean = [0.4 + 0.1 * seed] * 3
        model = build("small_cnn", num_outputs=outputs, in_shape=(3, 8, 8), width=4, norm="batch", mean=mean)
        made.append(model.double().train())
    return made


def drawing():
    return [torch.Generator().manual_seed(seed) for seed in range(RUNS)]


def check(likelihood, terms, target=None, outputs=CLASSES, **options):
    """One backward of three networks against three of one; options that are tensors have a row for each example."""
    torch.manual_seed(9)
    x, raw = torch.rand(2, RUNS * EACH, 3, 8, 8, dtype=torch.float64)
    y = torch.arange(RUNS * EACH) % CLASSES if target is None else target
    singles = networks(outputs)
    views = copy.deepcopy(singles)
    joined, criterion = Joined(views), Criterion(likelihood, terms, checks="first")
    common = {"raw": raw, "raw_target": y, **options}
    together = criterion.backward(joined, x, y, step=0, generator=Alternating(drawing()), **common)
    torch.optim.SGD(joined.parameters(), lr=1.0).step()
    for run, (single, generator) in enumerate(zip(singles, drawing(), strict=True)):
        own = {name: value[run::RUNS] if isinstance(value, Tensor) else value for name, value in common.items()}
        alone = criterion.backward(single, x[run::RUNS], y[run::RUNS], step=0, generator=generator, **own)
        torch.testing.assert_close(together.total[run], alone.total)
        assert alone.parts.keys() == together.parts.keys()
        for name, value in alone.parts.items():
            torch.testing.assert_close(together.parts[name][run], value)
        if alone.output is not None:
            torch.testing.assert_close(together.output[run::RUNS], alone.output)
        torch.optim.SGD(single.parameters(), lr=1.0).step()
        torch.testing.assert_close(dict(views[run].state_dict()), dict(single.state_dict()))


@pytest.mark.parametrize("name", [*STEADY, *CASES])
def test_every_method_and_kind_of_loss(name):
    loss, real = STEADY.get(name) or CASES[name], torch.randn(RUNS * EACH, 1, dtype=torch.float64)
    if isinstance(loss.likelihood, Gaussian):
        check(loss.likelihood, loss.terms, real, outputs=2)
        check(loss.likelihood, loss.terms, real[:, 0], outputs=2)
    elif isinstance(loss.likelihood, Bernoulli):
        check(loss.likelihood, loss.terms, (real > 0).double(), outputs=1)
    else:
        check(loss.likelihood or Categorical(), loss.terms, accumulate=2)


def test_weights_accumulation_and_soft_targets():
    soft = torch.rand(RUNS * EACH, CLASSES, dtype=torch.float64).softmax(1)
    weight = torch.rand(RUNS * EACH, dtype=torch.float64) * (torch.arange(RUNS * EACH) > 2)
    for terms in (CASES["rcad"].terms, CASES["raw norm"].terms, CASES["two views"].terms):
        check(Categorical(0.2, "others"), terms, soft, accumulate=3)
        check(Categorical(0.2), terms, soft, accumulate=3, weight=weight)


@pytest.mark.parametrize(
    ("count", "learns", "words"),
    [
        (RUNS * EACH - 1, False, "as many examples for each of 3 runs, but got a batch of 11"),
        (RUNS * EACH, True, "one by one for 3 runs in one batch, but targets, weights or other inputs"),
    ],
)
def test_what_cannot_be_shared_out_or_run_backward_pass_by_pass_is_refused(count, learns, words):
    x, model = torch.rand(count, 3, 8, 8, dtype=torch.float64), Joined(networks(CLASSES))
    y = torch.rand(count, CLASSES, dtype=torch.float64, requires_grad=learns).softmax(1)
    with fails_in_one_line(words):
        Criterion(terms=CASES["rcad"].terms).backward(model, x, y, generator=Alternating(drawing()))


@pytest.mark.parametrize(
    "step", [PadCrop(), Flip(), Cutout(3), Mixup(), Cutmix(p=0.5)], ids=lambda step: type(step).__name__
)
def test_augmentations(step):
    x, y = torch.rand(EACH * RUNS, 3, 8, 8), torch.arange(EACH * RUNS) % 7
    together = step(x, y, classes=7, generator=Alternating(drawing()))
    for run, generator in enumerate(drawing()):
        alone = step(x[run::RUNS], y[run::RUNS], classes=7, generator=generator)
        for joined, single in zip(together, alone, strict=True):
            assert torch.equal(joined[run::RUNS], single)
