"""timm's task with rcad, beyond what `test_adapters` says of every adapter."""

import pytest
import torch
from torch import nn

from equal import plain_loop, same_parameters, sgd
from one_line import refusals
from rcad import RCAD, Bernoulli, Categorical
from timm_folder import load

timm = load()
pytest.importorskip("timm.task")

from timm.data import Mixup  # noqa: E402
from timm.loss import BinaryCrossEntropy, JsdCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy  # noqa: E402
from timm.task import ClassificationTask  # noqa: E402

from rcad.integrations.timm import RCADTask, normalisation, rcad_for  # noqa: E402

RCAD_TEXT, CLASSES = "rcad(alpha=0.5, lam=0.1)", 5
MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
"""Those of timm's test_resnet."""


def network(name="test_resnet", **options):
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=CLASSES, **options)


def made(loss=None, method="rcad", model=None, **options):
    return RCADTask(model or network(), loss, method, verbose=False, **options)


def batches(count=4, size=6):
    """Images as timm's loader gives them: normalised."""
    draw = {"generator": torch.Generator().manual_seed(1)}
    pairs = [(torch.rand(size, 3, 32, 32, **draw), torch.randint(CLASSES, (size,), **draw)) for _ in range(count)]
    return [((x - 0.5) / 0.5, y) for x, y in pairs]


def test_a_criterion_for_one_s_own_script():
    assert rcad_for(network(), 0.5, 0.1).loss == RCAD(0.5, 0.1, mean=MEAN, std=STD).loss
    assert rcad_for(network()).asked == RCAD(mean=MEAN, std=STD).asked
    other = rcad_for(network(), 0.5, 0.1, mean=(0.0,), std=(1.0,), steps=2)
    assert other.loss == RCAD(0.5, 0.1, mean=(0.0,), std=(1.0,), steps=2).loss
    assert normalisation(torch.nn.DataParallel(network("test_efficientnet")))["mean"] == timm.data.IMAGENET_DEFAULT_MEAN


CATEGORICAL, SMOOTHED = Categorical(), Categorical(smoothing=0.2)


@pytest.mark.parametrize(
    ("loss", "likelihood"),
    [
        (SoftTargetCrossEntropy(), CATEGORICAL),
        (LabelSmoothingCrossEntropy(0.2), SMOOTHED),
        (nn.CrossEntropyLoss(label_smoothing=0.2), SMOOTHED),
        (BinaryCrossEntropy(0.0), Bernoulli()),
    ],
)
def test_the_script_s_loss_is_rcad_with_its_likelihood(loss, likelihood):
    """On soft targets as timm's Mixup makes them, with numpy's global generator; on yes and no for each class."""
    data = batches()
    if likelihood is CATEGORICAL:
        mixer = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES)
        data = [mixer(x.clone(), y) for x, y in data]
    task, net = made(loss, RCAD_TEXT).train(), network()
    optimizer = sgd(task.get_trainable_module(), lr=0.05)
    for x, y in data:
        optimizer.zero_grad()
        task(x, y)["loss"].backward()
        optimizer.step()
    if likelihood == Bernoulli():
        data = [(x, nn.functional.one_hot(y, CLASSES).float()) for x, y in data]
    criterion = RCAD(0.5, 0.1, mean=MEAN, std=STD, likelihood=likelihood)
    expected = plain_loop(net, criterion, data, sgd(net, lr=0.05), fused=False)
    same_parameters(task.get_trainable_module(), expected)


BCE = [BinaryCrossEntropy(**one) for one in ({}, {"target_threshold": 0.2}, {"sum_classes": True, "pos_weight": 2.0})]


@pytest.mark.parametrize("loss", [*BCE, LabelSmoothingCrossEntropy(0.2), nn.CrossEntropyLoss(label_smoothing=0.2)])
@pytest.mark.parametrize("mixed", [False, True])
def test_without_a_method_it_is_the_script_s_loss(loss, mixed):
    x, y = batches()[0]
    if mixed and loss not in BCE:
        pytest.skip("for labels")
    target = (0.7 * nn.functional.one_hot(y, CLASSES) + 0.3 * nn.functional.one_hot(y.flip(0), CLASSES)) if mixed else y
    for training in (True, False):
        task = made(loss, "erm").train(training)
        torch.testing.assert_close(task(x, target)["loss"], loss(network().train(training)(x), target))


def test_what_the_script_s_loss_ignores_no_method_trains_on():
    net, labels = nn.Conv2d(3, CLASSES, 1), torch.arange(6 * 32 * 32).view(6, 32, 32) % CLASSES
    options = {"method": "label_smoothing + rcad(alpha=0.5, lam=0.1)", "model": net, "mean": MEAN, "std": STD}
    unlabelled, left_out = (
        made(nn.CrossEntropyLoss(ignore_index=ignored), **options)(X, torch.where(labels == 0, ignored, labels))["loss"]
        for ignored in (0, -100)
    )
    assert torch.equal(unlabelled, left_out)


def test_a_sum_over_classes_is_a_sum_of_entropies_too():
    whole, mean = (made(BinaryCrossEntropy(0.0, sum_classes=add), RCAD_TEXT)(*batches()[0]) for add in (True, False))
    for part in ("loss", "rcad/entropy"):
        torch.testing.assert_close(whole[part], CLASSES * mean[part])


def test_in_eval_mode_the_loss_is_the_plain_one():
    """As timm's own task gives it, and nothing of the method is left."""
    (x, y), loss = batches()[0], LabelSmoothingCrossEntropy(0.2)
    ours = made(loss, "mixup + rcad(alpha=0.5, lam=0.5, every=2)").eval()
    with torch.inference_mode():
        result = ours(x * 1.0, y * 1)
    expected = ClassificationTask(network(), loss, verbose=False).eval()(x, y)
    assert result.keys() == expected.keys() == {"loss", "output"}
    torch.testing.assert_close(result, expected)
    assert ours.batches == 0


(X, Y), ONES = batches()[0], torch.ones(CLASSES)
test_says_what_was_expected = refusals(
    (lambda: made(JsdCrossEntropy()), "to be a mean cross-entropy .. but got JsdCrossEntropy; use"),
    (lambda: made(BinaryCrossEntropy(pos_weight=ONES)), "but got BinaryCrossEntropy with a pos_weight per class; use"),
    (lambda: made(BinaryCrossEntropy(), "label_smoothing + rcad"), "from the criterion or from .. but got both"),
    (lambda: made(nn.CrossEntropyLoss(reduction="sum")), "to be a mean .. CrossEntropyLoss with reduction='sum'"),
    (lambda: made(model=network(in_chans=1))(X[:, :1], Y), "one number per channel of (6, 1, 32, 32), but got 3; pass"),
    (lambda: rcad_for(network(), "rcad(alpha=0.5)"), "the text of a method goes to RCADTask"),
    (lambda: made(nn.CrossEntropyLoss(), RCAD(0.5, 0.1)), "expected a Criterion to be given by itself"),
    (lambda: made(model=nn.Linear(3, 3)), "but got Linear; pass mean= and std="),
)
