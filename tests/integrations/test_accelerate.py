"""Accelerate with a method's loss, beyond what `test_adapters` says of every adapter."""

from unittest.mock import Mock

import pytest
import torch

pytest.importorskip("accelerate")

from accelerate.utils import DistributedType

from equal import same_parameters
from one_line import refusals
from rcad import RCAD
from rcad.integrations.accelerate import AccelerateCriterion
from small_nets import images, smooth_net
from workers import in_two

METHOD = "rcad(alpha=0.5, lam=0.3)"


FSDP_1, DEEPSPEED = (Mock(distributed_type=DistributedType[kind], is_fsdp2=False) for kind in ("FSDP", "DEEPSPEED"))
test_what_cannot_be_done_is_refused_in_one_line = refusals(
    (FSDP_1, METHOD, "DistributedDataParallel or FSDP2 (fsdp_version=2), but got FSDP of version 1;"),
    (DEEPSPEED, METHOD, "DistributedDataParallel or FSDP2 (fsdp_version=2), but got DEEPSPEED;"),
    (METHOD, "the accelerator", "expected the accelerator before the method, but got str"),
    of=AccelerateCriterion,
)


WORKER = """
import sys, torch
from accelerate import Accelerator
from rcad import InputError
from rcad.integrations.accelerate import AccelerateCriterion
from sharding import FSDPModule, gathered, sharded
from small_nets import images, smooth_net
kind, out, rank = sys.argv[1:]
x, y = images(24)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
if kind == "fsdp2":
    sharded(accelerator)
criterion, net = AccelerateCriterion(accelerator, "rcad(alpha=0.5, lam=0.3)"), smooth_net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(net, optimizer)
wrapper = FSDPModule if kind == "fsdp2" else torch.nn.parallel.DistributedDataParallel
assert isinstance(model, wrapper), type(model)
for half in torch.arange(24).view(2, 2, 6)[int(rank)]:
    with accelerator.accumulate(model):
        criterion.backward(model, x[half], y[half])
        optimizer.step()
        optimizer.zero_grad()
torch.save(gathered(net), f"{out}/{rank}.pt")
try:
    if kind == "ddp":
        criterion.backward(torch.compile(model, backend="eager"), x, y)
except InputError as error:
    assert "compiled before DistributedDataParallel" in str(error)
else:
    assert kind == "fsdp2", "a compiled wrapper was not refused"
accelerator.end_training()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_processes_equal_one(kind, tmp_path):
    in_two(WORKER, kind, tmp_path, ACCELERATE_USE_CPU="true")
    alone = smooth_net()
    RCAD(0.5, 0.3).backward(alone, *images(24))
    torch.optim.SGD(alone.parameters(), lr=0.1).step()
    for rank in (0, 1):
        together = smooth_net()
        together.load_state_dict(torch.load(tmp_path / f"{rank}.pt", weights_only=True))
        same_parameters(alone, together, rtol=1e-5, atol=1e-6)
