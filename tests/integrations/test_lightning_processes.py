"""Lightning where it needs processes of its own: two of them with DDP, and one whose CPU is told to do bfloat16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("lightning")

from rcad import RCAD
from small_nets import images, smooth_net
from workers import in_bf16, in_two

DDP = """
import sys, logging, warnings
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import lightning as L, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from lit import QUIET, RCAD_TEXT, Automatic, Manual, Plain
from rcad.integrations.lightning import FabricCriterion, RCADCallback
from small_nets import images, smooth_net

folder, results = sys.argv[1], {}
x, y = images(8)


class Half(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        index += 4 * dist.get_rank()
        return x[index], y[index]


def once(module, *callbacks):
    settings = {**QUIET, "devices": 2, "strategy": "ddp", "use_distributed_sampler": False}
    trainer = L.Trainer(max_epochs=1, callbacks=list(callbacks), **settings)
    trainer.fit(module, torch.utils.data.DataLoader(Half(), batch_size=4))
    return module.net


results["mixin"] = once(Automatic(net=smooth_net()))
results["manual"] = once(Manual(net=smooth_net()))
results["callback"] = once(Plain(net=smooth_net()), RCADCallback(RCAD_TEXT))

fabric = L.Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
half = slice(4 * fabric.global_rank, 4 * fabric.global_rank + 4)
for how in ("call", "backward", "accumulated"):
    net = smooth_net()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    criterion = FabricCriterion(fabric, RCAD_TEXT)
    wrapper, sent = model._forward_module, []
    assert isinstance(wrapper, DistributedDataParallel)

    def hook(state, bucket, sent=sent):
        sent.append(1)
        return dist.all_reduce(bucket.buffer().div_(2), async_op=True).get_future().then(lambda f: f.value()[0])

    wrapper.register_comm_hook(None, hook)
    if how == "call":
        fabric.backward(criterion(model, x[half], y[half]))
    elif how == "backward":
        criterion.backward(model, x[half], y[half])
    else:
        mine = torch.arange(half.start, half.stop).split(2)
        with fabric.no_backward_sync(model):
            criterion.backward(model, x[mine[0]], y[mine[0]], accumulate=2)
        assert not sent, "nothing is exchanged before the last batch"
        criterion.backward(model, x[mine[1]], y[mine[1]], accumulate=2)
    assert len(sent) == 1, "gradients are exchanged once"
    optimizer.step()
    results[how] = net
torch.save({how: net.state_dict() for how, net in results.items()}, f"{folder}/{dist.get_rank()}.pt")
dist.barrier()
"""

BF16 = """
import lightning as L, torch
from lit import RCAD_TEXT
from rcad import RCAD
from rcad.integrations.lightning import FabricCriterion
from small_nets import images, norm_net

x, y = images(8)
for fused in (False, True):
    fabric, net = L.Fabric(accelerator="cpu", devices=1, precision="bf16-mixed"), norm_net()
    seen, inside = [], []
    net.register_forward_pre_hook(lambda m, inputs: seen.append(inputs[0].detach()))
    net[-1].register_forward_hook(lambda m, i, output: inside.append(output.dtype))
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    criterion = FabricCriterion(fabric, RCAD_TEXT)
    losses = criterion.backward(model, x, y) if fused else criterion.losses(model, x, y)
    if not fused:
        fabric.backward(losses.total)
    assert [value.dtype for value in seen] == [torch.float32] * 2
    assert set(inside) == {torch.bfloat16}
    assert torch.equal(seen[0], x)
    torch.testing.assert_close((seen[1] - x).flatten(1).norm(dim=1), torch.full((8,), 0.5))
    expected = RCAD(0.5, 0.1).losses(norm_net(), x, y)
    torch.testing.assert_close(losses.total.float(), expected.total, rtol=2e-2, atol=2e-2)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes_equal_one(tmp_path: Path) -> None:
    """Each process sees half of the batch; sums over halves round otherwise than sums over the whole."""
    in_two(DDP, tmp_path)
    x, y = images(8)
    net = smooth_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    RCAD(0.5, 0.1).backward(net, x, y)
    optimizer.step()
    start = smooth_net().state_dict()
    for rank in (0, 1):
        results = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert results.keys() == {"mixin", "manual", "callback", "call", "backward", "accumulated"}
        for how, state in results.items():
            for name, value in net.state_dict().items():
                torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-6, msg=f"{how}: {name}")
                assert not torch.equal(state[name], start[name])


@pytest.mark.slow
def test_bf16_mixed_attacks_in_fp32() -> None:
    """In Fabric, whose wrapper would round x; in the Trainer it is Lightning's own autocast."""
    in_bf16(BF16)
