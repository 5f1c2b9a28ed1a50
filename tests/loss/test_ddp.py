"""Two gloo processes: each sees half of the batch, both end with the gradients of the whole, exchanged once."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fused_cases import NLL, PLAIN, RCAD, STEP
from rcad import Categorical, Criterion, Objective, RandomStep, Term
from small_nets import assert_same_state, gradients, images, smooth_net
from workers import in_two

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed"),
]

TERMS = (NLL, RCAD)
WEIGHT = torch.tensor([0.0, 1.0, 2.0, 0.5, 1.5, 0.0, 3.0, 1.0])


class Tokens(nn.Module):
    """A model whose input is made by its own table, outside of its forward."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.net = nn.Linear(192, 192), smooth_net()

    def forward(self, x):
        return self.net(x)


class Skipping(nn.Module):
    """Uses one of its layers at the first pass of a step only, as layers that are dropped at random may be."""

    def __init__(self):
        super().__init__()
        self.net, self.extra, self.calls = smooth_net(), nn.Linear(5, 5), 0
        nn.init.eye_(self.extra.weight)

    def forward(self, x):
        self.calls += 1
        output = self.net(x)
        return self.extra(output) if self.calls == 1 else output


def backward(model, x, y, part, terms=TERMS, **options):
    Criterion(terms=terms).backward(model, x[part], y[part], **options)


def smoothed(model, x, y, part):
    terms = (NLL, RCAD, Term("adv", weight=0.5, where=PLAIN), Term("raw", view="raw"))
    Criterion(Categorical(0.2), terms).backward(model, x[part], y[part], raw=x[part] / 2)


def learned(model, x, y, part):
    table = getattr(model, "module", model).table
    made = table(x[part].flatten(1)).view(-1, 3, 8, 8)
    Criterion(terms=TERMS, units="input").backward(model, made, y[part])


def by_autograd(model, x, y, part, terms=TERMS):
    Criterion(terms=terms)(model, x[part], y[part]).backward()


def accumulated(model, x, y, part):
    """The caller's own no_sync around all but the last batch."""
    half = (part.stop - part.start) // 2
    for start, quiet in ((part.start, True), (part.start + half, False)):
        piece = slice(start, start + half)
        with model.no_sync() if quiet and isinstance(model, DistributedDataParallel) else nullcontext():
            backward(model, x, y, piece, accumulate=2, weight=WEIGHT[piece])


ADVERSARIAL = (Term("adv", where=STEP), Term("moved", where=RandomStep(0.0)))
STEPS = {
    "rcad": (backward, smooth_net),
    "sample weights": (lambda *call: backward(*call, weight=WEIGHT[call[-1]]), smooth_net),
    "adversarial": (lambda *call: backward(*call, terms=ADVERSARIAL[:1]), smooth_net),
    "two moved terms": (lambda *call: backward(*call, terms=ADVERSARIAL), smooth_net),
    "two directions and views": (smoothed, smooth_net),
    "accumulated": (accumulated, smooth_net),
    "learned input": (learned, Tokens),
    "a layer unused in the last pass": (backward, Skipping),
    "autograd": (by_autograd, smooth_net),
    "adversarial by autograd": (lambda *call: by_autograd(*call, terms=ADVERSARIAL[:1]), smooth_net),
}
THROUGH_THE_WRAPPER = {"autograd": 1, "adversarial by autograd": 1, "adversarial": 1, "sample weights": 2}


def exchange(sent, bucket):
    """The mean over both processes, with a mark that it was asked for."""
    sent.append(1)
    future = torch.distributed.all_reduce(bucket.buffer().div_(2), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def work(rank, folder):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    x, y = images(8)
    half = slice(4 * rank, 4 * rank + 4)
    found = {}
    for name, (step, make) in STEPS.items():
        net, sent, calls = make(), [], []
        model = DistributedDataParallel(net, find_unused_parameters=isinstance(net, Skipping))
        model.register_comm_hook(sent, exchange)
        model.register_forward_hook(lambda *call, calls=calls: calls.append(1))
        step(model, x, y, half)
        assert len(sent) == 1, f"{name}: gradients were exchanged {len(sent)} times"
        assert len(calls) == THROUGH_THE_WRAPPER.get(name, len(calls)), f"{name}: {len(calls)} calls of the wrapper"
        found[name] = gradients(net)
    model = DistributedDataParallel(Objective(net := smooth_net(), terms=TERMS))  # must outlive the backward
    model(x[half], y[half]).total.backward()
    found["objective"] = gradients(net)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    in_two("import sys\nfrom loss.test_ddp import work\nwork(int(sys.argv[2]), sys.argv[1])", folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("name", [*STEPS, "objective"])
def test_two_processes_equal_one(name, results):
    step, make = STEPS.get(name, (by_autograd, smooth_net))
    plain, joined = make(), make()
    step(plain, *images(8), slice(0, 8))
    for found in results:
        for key, p in joined.named_parameters():
            p.grad = found[name].get(key)
        assert_same_state(plain, joined)
