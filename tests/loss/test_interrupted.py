"""An exception, Ctrl-C, another thread, a fork, tensors without values: what a step leaves behind."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rcad import RCAD, Criterion, GradientStep, InputError, RandomStep, Term, suggest_alpha


class Net(nn.Module):
    """With BatchNorm and dropout; one of its passes, forward or backward, may fail."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.passes, self.fails, self.error = 0, "", KeyboardInterrupt

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        self._fail(f"forward {self.passes}")
        hidden = self.norm(self.first(x)).relu()
        if hidden.requires_grad and self.fails:
            number = self.passes
            hidden.register_hook(lambda gradient: self._fail(f"backward {number}"))
        return self.last(hidden)

    def _fail(self, where: str) -> None:
        if where == self.fails:
            raise self.error("now")


CRITERIA: dict[str, Callable[[], Criterion]] = {
    "shared": lambda: RCAD(0.5, 0.1, every=1),
    "third backward": lambda: Criterion(
        terms=[Term("nll", weight=0.0), Term("a", "negative_entropy", 1.0, GradientStep(0.5))]
    ),
    "two terms": lambda: Criterion(
        terms=[
            Term("nll"),
            Term("a", "negative_entropy", 0.1, GradientStep(0.5)),
            Term("b", weight=0.5, where=RandomStep(0.3)),
        ]
    ),
}


def batch() -> tuple[Tensor, Tensor]:
    return torch.rand(16, 6, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 3


def state(net: Net) -> dict[str, Any]:
    modes = [(module.training, getattr(module, "track_running_stats", None)) for module in net.modules()]
    return {"modes": modes, "needs": [one.requires_grad for one in net.parameters()]}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, torch.OutOfMemoryError])
@pytest.mark.parametrize("accumulated", [False, True])
@pytest.mark.parametrize("name", CRITERIA)
def test_no_half_step_is_left(name: str, accumulated: bool, error: type[BaseException]) -> None:
    failed = 0
    for fails in (f"{way} {number}" for number in (1, 2, 3) for way in ("forward", "backward")):
        net, criterion, (x, y) = Net(), CRITERIA[name](), batch()
        learned = [*net.parameters(), x.requires_grad_()]
        net.norm.eval()
        if accumulated:
            criterion.backward(net, x, y)
        before = [None if one.grad is None else one.grad.clone() for one in learned]
        held, modes, calls = [one.grad for one in learned], state(net), criterion._counter.value
        net.passes, net.fails, net.error = 0, fails, error
        random = torch.get_rng_state()
        try:
            criterion.backward(net, x, y, generator=torch.Generator().manual_seed(0))
        except error:
            failed += 1
            for one, gradient, was in zip(learned, before, held, strict=True):
                assert one.grad is was
                assert (gradient is None) == (one.grad is None)
                assert gradient is None or torch.equal(one.grad, gradient)  # type: ignore[arg-type]
            assert criterion._counter.value == calls
        assert state(net) == modes
        assert torch.equal(torch.get_rng_state(), random)
    assert failed >= 2


def trained(seed: int, net: Net | None = None) -> list[Tensor]:
    net, (x, y) = net or Net(seed), batch()
    criterion, optimizer = RCAD(0.5, 0.1), torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(20):
        optimizer.zero_grad()
        criterion.backward(net, x, y)
        optimizer.step()
    return [*net.state_dict().values()]


def test_threads_that_train_two_models_do_not_meet() -> None:
    expected = [trained(seed) for seed in range(4)]
    found: dict[int, list[Tensor]] = {}
    nets = [Net(seed) for seed in range(4)]  # here: first weights are drawn from the generator of the process
    threads = [threading.Thread(target=lambda s=seed: found.update({s: trained(s, nets[s])})) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, weights in enumerate(expected):
        for one, other in zip(weights, found[seed], strict=True):  # a thread may have another number of workers
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_fork_after_use_trains_the_same() -> None:
    expected = trained(0)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send([one.numpy() for one in trained(0)]))
    child.start()
    assert ours.poll(60)
    found = ours.recv()
    child.join(60)
    assert all(torch.equal(one, torch.from_numpy(other)) for one, other in zip(expected, found, strict=True))


def test_the_meta_device_is_refused() -> None:
    x, y = batch()
    net = Net()
    for call in (RCAD(0.5, 0.1), RCAD(0.5, 0.1).backward):
        with pytest.raises(InputError, match="expected inputs with values, but got the meta device"):
            call(net, x.to("meta"), y.to("meta"))
        with pytest.raises(InputError, match=r"expected a model with values, but got the meta device, .*to_empty"):
            call(Net().to("meta"), x, y)
    with pytest.raises(InputError, match="expected x with values, but got the meta device"):
        suggest_alpha(x.to("meta"), y)
