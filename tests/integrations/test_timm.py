"""timm's task with rcad, beyond what `test_adapters` says of every adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from equal import plain_loop, same_parameters, sgd
from one_line import refusals
from rcad import RCAD, Bernoulli, Categorical, augment
from rcad.integrations.resolve import as_method
from timm_folder import load

timm: Any = load()
pytest.importorskip("timm.task")

from timm.data import Mixup  # noqa: E402
from timm.loss import (  # noqa: E402
    BinaryCrossEntropy,
    JsdCrossEntropy,
    LabelSmoothingCrossEntropy,
    SoftTargetCrossEntropy,
)
from timm.task import ClassificationTask  # noqa: E402

from rcad.integrations.timm import RCADTask, likelihood_of, normalisation, rcad_for  # noqa: E402

RCAD_TEXT, CLASSES = "rcad(alpha=0.5, lam=0.1)", 5
MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
"""Those of timm's test_resnet."""


def network(name: str = "test_resnet", **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=CLASSES, **options)  # type: ignore[no-any-return]


def made(loss: nn.Module | None = None, method: Any = "rcad", model: nn.Module | None = None, **options: Any) -> Any:
    return RCADTask(model or network(), loss, method, verbose=False, **options)


def batches(count: int = 4, size: int = 6) -> list[tuple[Tensor, Tensor]]:
    """Images as timm's loader gives them: normalised."""
    generator = torch.Generator().manual_seed(1)
    draw = {"generator": generator}
    return [
        ((torch.rand(size, 3, 32, 32, **draw) - 0.5) / 0.5, torch.randint(CLASSES, (size,), **draw))
        for _ in range(count)
    ]


def trained(task: Any, data: Any = None) -> None:
    """The heart of timm's script."""
    optimizer = sgd(task.get_trainable_module(), lr=0.05)
    task.train()
    for input, target in batches() if data is None else data:
        optimizer.zero_grad()
        task(input, target)["loss"].backward()
        optimizer.step()


def trained_plainly(criterion: Any, data: Any = None, net: nn.Module | None = None) -> nn.Module:
    net = network() if net is None else net
    return plain_loop(net, criterion, batches() if data is None else data, sgd(net, lr=0.05), fused=False)


def test_a_criterion_for_one_s_own_script() -> None:
    assert rcad_for(network(), 0.5, 0.1).loss == RCAD(0.5, 0.1, mean=MEAN, std=STD).loss
    assert rcad_for(network()).asked == RCAD(mean=MEAN, std=STD).asked
    other = rcad_for(network(), 0.5, 0.1, mean=(0.0,), std=(1.0,), steps=2)
    assert other.loss == RCAD(0.5, 0.1, mean=(0.0,), std=(1.0,), steps=2).loss
    assert normalisation(torch.nn.DataParallel(network("test_efficientnet")))["mean"] == timm.data.IMAGENET_DEFAULT_MEAN


def test_mixup_of_timm_s() -> None:
    """timm mixes with numpy's global generator and writes smoothed soft targets."""
    mixer = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES)
    data = [mixer(x.clone(), y) for x, y in batches()]
    assert data[0][1].shape == (6, CLASSES)
    task = made(SoftTargetCrossEntropy(), RCAD_TEXT)
    trained(task, data)
    criterion = RCAD(0.5, 0.1, mean=MEAN, std=STD)
    same_parameters(task.get_trainable_module(), trained_plainly(criterion, data))


@pytest.mark.parametrize("loss", [LabelSmoothingCrossEntropy(0.2), nn.CrossEntropyLoss(label_smoothing=0.2)])
def test_label_smoothing_of_the_script(loss: nn.Module) -> None:
    assert likelihood_of(loss) == Categorical(smoothing=0.2)
    task = made(loss, "erm")
    x, y = batches()[0]
    torch.testing.assert_close(task(x, y)["loss"], loss(network()(x), y))
    trained(task := made(loss, RCAD_TEXT))
    criterion = RCAD(0.5, 0.1, mean=MEAN, std=STD, likelihood=Categorical(smoothing=0.2))
    same_parameters(task.get_trainable_module(), trained_plainly(criterion))


BCE = [
    BinaryCrossEntropy(),
    BinaryCrossEntropy(0.0),
    BinaryCrossEntropy(target_threshold=0.2),
    BinaryCrossEntropy(sum_classes=True, pos_weight=2.0),
]


@pytest.mark.parametrize("loss", BCE)
@pytest.mark.parametrize("mixed", [False, True])
def test_bce_loss_of_the_script(loss: nn.Module, mixed: bool) -> None:
    """--bce-loss with its smoothing, threshold and sum, for labels and for Mixup's soft targets."""
    x, y = batches()[0]
    target = (0.7 * nn.functional.one_hot(y, CLASSES) + 0.3 * nn.functional.one_hot(y.flip(0), CLASSES)) if mixed else y
    for training in (True, False):
        task = made(loss, "erm").train(training)
        torch.testing.assert_close(task(x, target)["loss"], loss(network().train(training)(x), target))


def test_bce_loss_is_rcad_with_bernoulli() -> None:
    trained(task := made(BinaryCrossEntropy(0.0), RCAD_TEXT))
    data = [(x, nn.functional.one_hot(y, CLASSES).float()) for x, y in batches()]
    criterion = RCAD(0.5, 0.1, mean=MEAN, std=STD, likelihood=Bernoulli())
    same_parameters(task.get_trainable_module(), trained_plainly(criterion, data))
    x, y = batches()[0]
    whole = made(BinaryCrossEntropy(0.0, sum_classes=True), RCAD_TEXT)(x, y)
    mean = made(BinaryCrossEntropy(0.0), RCAD_TEXT)(x, y)
    torch.testing.assert_close(whole["loss"], CLASSES * mean["loss"])
    torch.testing.assert_close(whole["rcad/entropy"], CLASSES * mean["rcad/entropy"])


def test_the_method_s_own_augmentations_work_on_pixels() -> None:
    """Black is -1 in these inputs, and 0 only in pixels."""
    method = "cutout(length=8) + mixup + rcad(alpha=0.5, lam=0.1)"
    seen: list[Tensor] = []
    net = network()
    net.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    x, y = batches()[0]
    result = RCADTask(net, method=method, generator=torch.Generator().manual_seed(4), verbose=False)(x, y)
    generator = torch.Generator().manual_seed(4)
    pixels, target = augment(as_method(method).augment, x * 0.5 + 0.5, y, classes=CLASSES, generator=generator)
    torch.testing.assert_close(seen[0], (pixels - 0.5) / 0.5)
    expected = RCAD(0.5, 0.1, mean=MEAN, std=STD)(network(), (pixels - 0.5) / 0.5, target)
    torch.testing.assert_close(result["loss"], expected)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_under_ddp_only_the_clean_pass_goes_through_the_wrapper(tmp_path: Path) -> None:
    """One process: what two of them do with a criterion and DDP is shown in `test_ddp`."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        task, passed = RCADTask(net := network(), method=RCAD_TEXT, verbose=False), []
        task.prepare_distributed()
        task.trainable_module.register_forward_hook(lambda *call: passed.append(1))
        with task.no_sync():
            task(*batches()[0])["loss"].backward()
        assert passed == [1]
        task.zero_grad()
        trained(task)
        plain = network()
        plain(batches()[0][0])  # the statistics of the batch above
        same_parameters(net, trained_plainly(RCAD(0.5, 0.1, mean=MEAN, std=STD), net=plain))
    finally:
        torch.distributed.destroy_process_group()


def test_in_eval_mode_the_loss_is_the_plain_one() -> None:
    """As timm's own task gives it, and nothing of the method is left."""
    x, y = batches()[0]
    for loss in (nn.CrossEntropyLoss(), LabelSmoothingCrossEntropy(0.2)):
        ours = made(loss, "mixup + rcad(alpha=0.5, lam=0.5, every=2)").eval()
        theirs = ClassificationTask(network(), loss, verbose=False).eval()
        with torch.inference_mode():
            result, expected = ours(x * 1.0, y * 1), theirs(x, y)
        torch.testing.assert_close(result["loss"], expected["loss"])
        assert torch.equal(result["output"], expected["output"])
        assert result.keys() == {"loss", "output"}
        assert ours.batches == 0
        assert "rcad/entropy" in ours.train()(x, y)


def test_a_criterion_brings_its_own_settings() -> None:
    x, y = batches()[0]
    criterion = RCAD(0.5, 0.1, units="input")
    assert torch.equal(made(method=criterion)(x, y)["loss"], criterion(network(), x, y))


ONES = torch.ones(CLASSES)
test_says_what_was_expected = refusals(
    (lambda: made(JsdCrossEntropy()), "to be a mean cross-entropy .. but got JsdCrossEntropy; use"),
    (lambda: made(BinaryCrossEntropy(weight=ONES)), "but got BinaryCrossEntropy with class weights; use"),
    (lambda: made(BinaryCrossEntropy(pos_weight=ONES)), "but got BinaryCrossEntropy with a pos_weight per class; use"),
    (lambda: made(BinaryCrossEntropy(), "label_smoothing + rcad"), "from the criterion or from"),
    (lambda: made(nn.CrossEntropyLoss(ONES)), "CrossEntropyLoss with class weights; use"),
    (
        lambda: made(nn.CrossEntropyLoss(reduction="sum")),
        "expected the criterion to be a mean .. but got CrossEntropyLoss with reduction='sum'; use",
    ),
    (
        lambda: made(model=network(in_chans=1))(batches()[0][0][:, :1], batches()[0][1]),
        "expected one number per channel of (6, 1, 32, 32), but got 3; pass such mean= and std=",
    ),
    (
        lambda: rcad_for(network(), method="rcad"),
        "expected rcad_for(model) or rcad_for(model, alpha=0.5, lam=0.02), but got a method",
    ),
    (lambda: rcad_for(network(), "rcad(alpha=0.5)"), "the text of a method goes to RCADTask"),
    (lambda: rcad_for(network(), 0.5, 0.1, method="rcad"), "but got a method"),
    (lambda: rcad_for(network(), 0.5, "much"), "or no numbers"),
    (
        lambda: made(LabelSmoothingCrossEntropy(), "label_smoothing + rcad"),
        "from the criterion or from the method 'label_smoothing + rcad', but got both",
    ),
    (lambda: made(nn.CrossEntropyLoss(), RCAD(0.5, 0.1)), "expected a Criterion to be given by itself"),
    (lambda: made(mean=MEAN), "expected both mean and std, or neither"),
    (lambda: made(model=nn.Linear(3, 3)), "but got Linear; pass mean= and std="),
)
