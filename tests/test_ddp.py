"""Two gloo processes: each sees half of the batch, both end with the gradients of the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rcad import RCAD, GradientStep, Objective, Term
from support import assert_same_state, images, smooth_net

TERMS = (Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5)))
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")

WORKER = """
import sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from support import images, smooth_net, norm_net
from rcad import RCAD, Objective
from test_ddp import TERMS
rank, how, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
x, y = images(8)
half = slice(4 * rank, 4 * rank + 4)
net = norm_net() if how == "norm" else smooth_net()
if how in ("objective", "norm"):
    model = DDP(Objective(net, terms=TERMS))
    model(x[half], y[half]).total.backward()
elif how == "criterion":
    model, calls = DDP(net), []
    model.register_forward_hook(lambda *call: calls.append(1))
    RCAD(0.5, 0.1)(model, x[half], y[half]).backward()
    assert len(calls) == 1, "only the clean pass goes through the wrapper"
else:
    model, sent = DDP(net), []

    def hook(state, bucket):
        sent.append(1)
        return dist.all_reduce(bucket.buffer().div_(2), async_op=True).get_future().then(lambda f: f.value()[0])

    model.register_comm_hook(None, hook)
    RCAD(0.5, 0.1).backward(model, x[half], y[half])
    assert len(sent) == 1, "only the last backward exchanges gradients"
torch.save({n: p.grad for n, p in net.named_parameters()}, f"{folder}/{rank}.pt")
dist.barrier()
dist.destroy_process_group()
"""


def in_two_processes(how: str, folder: Path) -> list[dict[str, torch.Tensor]]:
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(rank), how, str(folder)], env=environment)
        for rank in (0, 1)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("how", ["objective", "criterion", "backward"])
def test_two_processes_equal_one(how: str, tmp_path: Path) -> None:
    results = in_two_processes(how, tmp_path)
    x, y = images(8)
    plain, joined = smooth_net(), smooth_net()
    Objective(plain, terms=TERMS)(x, y).total.backward()
    RCAD(0.5, 0.1).backward(joined, x, y)
    assert_same_state(plain, joined)
    for gradients in results:
        for name, p in joined.named_parameters():
            p.grad = gradients[name]
        assert_same_state(plain, joined)


def test_batch_norm_in_two_processes_ends_with_equal_gradients(tmp_path: Path) -> None:
    one, two = in_two_processes("norm", tmp_path)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(value.abs().sum() > 0 for value in one.values())
