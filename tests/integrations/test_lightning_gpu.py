"""Mixed precision where it is used: Lightning and timm on a GPU, in bf16 and in fp16 with a scaler."""

import copy

import pytest
import torch

from rcad import RCAD

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
L = pytest.importorskip("lightning", exc_type=Exception)

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import lit  # noqa: E402
from rcad.integrations.lightning import FabricCriterion, RCADCallback  # noqa: E402
from rcad.models import build  # noqa: E402

TEXT, CLASSES = "rcad(alpha=0.5, lam=0.1)", 10


def data():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(96, 3, 32, 32, generator=generator), torch.randint(CLASSES, (96,), generator=generator)


def resnet():
    torch.manual_seed(0)
    return build("resnet18", num_outputs=CLASSES, in_shape=(3, 32, 32), width=16)


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.02)


def direction(net):
    """The way from the first weights to those after training."""
    pairs = zip(net.cpu().parameters(), resnet().parameters(), strict=True)
    return torch.cat([(now - before).detach().flatten() for now, before in pairs])


def exact():
    net = resnet().cuda()
    optimizer = sgd(net)
    for x, y in DataLoader(TensorDataset(*data()), batch_size=32):
        optimizer.zero_grad()
        RCAD(0.5, 0.1).backward(net, x.cuda(), y.cuda())
        optimizer.step()
    return net


def assert_near(net, expected):
    assert torch.cosine_similarity(direction(net), direction(expected), dim=0) > 0.9


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("how", ["mixin", "manual", "callback"])
def test_the_trainer_in_mixed_precision(how, precision, monkeypatch):
    monkeypatch.setattr(lit, "sgd", sgd)
    module = {"mixin": lit.Automatic, "manual": lit.Manual, "callback": lit.Plain}[how](net=resnet())
    inside = []
    module.net.register_forward_hook(lambda module, inputs, output: inside.append(output.dtype))
    settings = {**lit.QUIET, "accelerator": "gpu", "precision": precision}
    trainer = L.Trainer(max_epochs=1, callbacks=[RCADCallback(TEXT)] if how == "callback" else [], **settings)
    trainer.fit(module, DataLoader(TensorDataset(*data()), batch_size=32))
    assert set(inside) == {torch.bfloat16 if precision == "bf16-mixed" else torch.float16}
    if precision == "16-mixed":
        assert trainer.precision_plugin.scaler.get_scale() == 65536, "a step was skipped"
    assert_near(module.net, exact())


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed", "bf16-true"])
@pytest.mark.parametrize("fused", [False, True])
def test_fabric_in_every_precision(fused, precision):
    fabric = L.Fabric(accelerator="gpu", devices=1, precision=precision)
    net, seen = resnet(), []
    net.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().clone()))
    model, optimizer = fabric.setup(net, sgd(net))
    criterion = FabricCriterion(fabric, TEXT)
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(*data()), batch_size=32))
    for x, y in loader:
        optimizer.zero_grad()
        if fused:
            criterion.backward(model, x, y)
        else:
            fabric.backward(criterion(model, x, y))
        optimizer.step()
    distance = (seen[1].float() - seen[0].float()).flatten(1).norm(dim=1)
    if precision == "bf16-true":  # the input itself is rounded, to about 1 part in 256
        assert seen[0].dtype == torch.bfloat16
        torch.testing.assert_close(distance, torch.full_like(distance, 0.5), rtol=0.1, atol=0.0)
        return
    assert seen[0].dtype == torch.float32
    torch.testing.assert_close(distance, torch.full_like(distance, 0.5))
    assert_near(net, exact())


def test_timm_s_scaler_in_fp16():
    pytest.importorskip("timm.task", exc_type=Exception)
    import timm
    from timm.utils import NativeScaler

    from rcad.integrations.timm import RCADTask

    torch.manual_seed(0)
    start = timm.create_model("test_resnet", num_classes=CLASSES).cuda()
    start = start.to(memory_format=torch.channels_last)
    moves = []
    for half in (True, False):
        task = RCADTask(net := copy.deepcopy(start), method=TEXT, device=torch.device("cuda"), verbose=False)
        optimizer, scaler = sgd(net), NativeScaler()
        for x, y in DataLoader(TensorDataset(*data()), batch_size=32):
            x = ((x.cuda() - 0.5) / 0.5).contiguous(memory_format=torch.channels_last)
            with torch.autocast("cuda", dtype=torch.float16, enabled=half):
                result = task(x, y.cuda())
            scaler(result["loss"], optimizer, clip_grad=1.0, parameters=task.get_clip_parameters())
            optimizer.zero_grad()
        assert scaler.state_dict()["scale"] == 65536, "a step was skipped"
        pairs = zip(net.parameters(), start.parameters(), strict=True)
        moves.append(torch.cat([(now - before).detach().flatten() for now, before in pairs]))
    assert torch.cosine_similarity(*moves, dim=0) > 0.9
