"""A loop with Fabric and rcad trains what a plain loop over the core trains, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

L = pytest.importorskip("lightning")

from lightning.fabric.plugins import MixedPrecision  # noqa: E402

from equal import same_parameters  # noqa: E402
from lit import RCAD_TEXT, batches, scaled, sgd, trained_plainly  # noqa: E402
from rcad import InputError  # noqa: E402
from rcad.integrations.lightning import FabricCriterion, inner  # noqa: E402
from small_nets import CLASSES, images, norm_net  # noqa: E402


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def trained_with_fabric(
    method: str = RCAD_TEXT,
    *,
    fused: bool,
    accumulate: int = 1,
    clip: float | None = None,
    compiled: bool = False,
    **options: Any,
) -> nn.Module:
    fabric = L.Fabric(accelerator="cpu", devices=1, **options)
    net = norm_net()
    start = torch.compile(net, backend="eager") if compiled else net
    model, optimizer = fabric.setup(start, sgd(net))
    criterion = FabricCriterion(fabric, method, classes=CLASSES, generator=seeded())
    for number, (x, y) in enumerate(batches(2)):
        last = (number + 1) % accumulate == 0
        with fabric.no_backward_sync(model, enabled=not last):
            if fused:
                criterion.backward(model, x, y, accumulate=accumulate)
            else:
                fabric.backward(criterion(model, x, y) / accumulate)
        if last:
            if clip is not None:
                fabric.clip_gradients(model, optimizer, max_norm=clip)
            optimizer.step()
            optimizer.zero_grad()
    return net


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        RCAD_TEXT,
        "mixup + rcad(alpha=0.5, lam=0.1, every=2)",
        "data_augmentation + rcad_released(alpha=0.5, lam=0.1)",
    ],
)
def test_fabric_equals_a_plain_loop(method: str, fused: bool) -> None:
    expected = trained_plainly(method, fused=fused, generator=seeded())
    same_parameters(trained_with_fabric(method, fused=fused), expected)


@pytest.mark.parametrize("fused", [False, True])
def test_accumulation_and_clipping(fused: bool) -> None:
    settings = {"accumulate": 3, "clip": 0.02}
    expected = trained_plainly(fused=fused, **settings)
    same_parameters(trained_with_fabric(fused=fused, **settings), expected)


@pytest.mark.parametrize("fused", [False, True])
def test_the_precision_plugin_scales_every_backward(fused: bool) -> None:
    plugin = scaled(MixedPrecision)
    same_parameters(trained_with_fabric(fused=fused, plugins=[plugin]), trained_plainly(fused=fused))
    assert plugin.scaler.get_scale() == 1024, "a step was skipped"


@pytest.mark.parametrize("fused", [False, True])
def test_a_compiled_model(fused: bool) -> None:
    torch._dynamo.reset()
    same_parameters(trained_with_fabric(fused=fused, compiled=True), trained_plainly(fused=fused))


def test_a_given_step_decides_where_terms_rest() -> None:
    fabric = L.Fabric(accelerator="cpu", devices=1)
    criterion = FabricCriterion(fabric, "rcad(alpha=0.5, lam=0.1, every=2)")
    model = fabric.setup(norm_net())
    assert criterion.losses(model, *images(8), step=1).parts.keys() == {"nll"}
    assert criterion.backward(model, *images(8), step=2).parts.keys() == {"nll", "rcad"}


def test_a_measured_alpha_is_saved(tmp_path: Path) -> None:
    fabric = L.Fabric(accelerator="cpu", devices=1)
    net = norm_net()
    model, _ = fabric.setup(net, sgd(net))
    criterion, again = FabricCriterion(fabric, "rcad"), FabricCriterion(fabric, "rcad")
    criterion.backward(model, *images())
    fabric.save(tmp_path / "a.ckpt", {"model": model, "criterion": criterion})
    fabric.load(tmp_path / "a.ckpt", {"model": model, "criterion": again})
    assert again.step.resolved.criterion.settled
    assert again.step.resolved.criterion.loss == criterion.step.resolved.criterion.loss


def test_says_what_was_expected() -> None:
    fabric = L.Fabric(accelerator="cpu", devices=1)
    with pytest.raises(InputError, match=r"expected the model that fabric.setup\(...\) returned, but got Sequential"):
        FabricCriterion(fabric, RCAD_TEXT)(norm_net(), *images(8))


def test_a_model_compiled_around_ddp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapper(nn.Module):
        pass

    monkeypatch.setattr(nn.parallel, "DistributedDataParallel", Wrapper)
    model = L.Fabric(accelerator="cpu", devices=1).setup(torch.compile(norm_net(), backend="eager"))
    assert isinstance(inner(model), nn.Module)
    model._forward_module._orig_mod = Wrapper()
    with pytest.raises(InputError, match="_reapply_compile=False"):
        inner(model)
