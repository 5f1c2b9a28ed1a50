"""The kernels against clip_grad_norm_ and torch.optim.SGD. Where there is no GPU, the tables they are given."""

import copy

import pytest
import torch
from torch import Tensor, nn

from rcad.kernels.fused_sgd import BLOCK, ClippedSGD, Run, _chunks, _dense, _like, same_order, suits


def test_chunks_cover_every_element_once():
    sizes = [1, BLOCK, BLOCK + 1, 3 * BLOCK]
    chunks = _chunks(sizes, [0, 0, 0, 1]).tolist()
    assert [i for i, _, _ in chunks] == [0, 1, 2, 2, 3, 3, 3]
    assert all(start % BLOCK == 0 and start < sizes[i] for i, start, _ in chunks)
    assert len({(i, start) for i, start, _ in chunks}) == 7
    assert [run for _, _, run in chunks] == [0, 0, 0, 0, 1, 1, 1]


def test_the_order_in_memory_is_what_counts():
    grad = torch.arange(48.0).view(4, 3, 2, 2)
    weight = torch.zeros(4, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    assert _dense(weight)
    assert not _dense(torch.zeros(4, 6)[:, ::2])
    assert not _dense(torch.zeros(8)[1:5])  # begins 4 bytes after a place where wide loads may begin
    assert not same_order(grad, weight)
    narrow = torch.zeros(4, 3, 1, 1)  # here both layouts are the same bytes
    assert same_order(narrow, narrow.contiguous(memory_format=torch.channels_last))
    moved = _like(grad, weight)
    assert same_order(moved, weight)
    assert torch.equal(moved, grad)
    assert _like(moved, weight) is moved


def test_each_run_has_its_own_momentum_and_a_weight_without_a_copy_is_written_once():
    """Also where it comes as a view: its bf16 copy would be written over it."""
    weights = [[nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(16))] for _ in range(3)]
    leaves = [[one.detach()[:], other.detach().bfloat16()] for one, other in weights]
    runs = [Run(torch.optim.SGD(own, momentum=0.9), own, copies) for own, copies in zip(weights, leaves, strict=True)]
    assert not suits(runs[0])  # without a GPU torch does the work
    first, second = (runs[0].optimizer.state[weight] for weight in weights[0])
    kept = first["momentum_buffer"] = torch.ones(8)
    kernels = ClippedSGD(runs, 1.0)
    assert first["momentum_buffer"] is kept
    assert torch.equal(second["momentum_buffer"], torch.zeros(16)), "it lies before what steps leave behind"
    assert kernels._owners == [0, 0, 1, 1, 2, 2]
    assert len(kernels._divisors) == 3
    table = kernels._table([0, 3, 5], [[torch.ones(8), torch.ones(16), torch.ones(16)]])
    chosen = [(runs[0], weights[0][0]), (runs[1], weights[1][1]), (runs[2], weights[2][1])]
    places = [run.optimizer.state[weight]["momentum_buffer"].data_ptr() for run, weight in chosen]
    copies = [0, leaves[1][1].data_ptr(), leaves[2][1].data_ptr()]
    assert table[:, 1:4].T.tolist() == [[weight.data_ptr() for _, weight in chosen], places, copies]


def net() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 70, 3, bias=False), nn.BatchNorm2d(70), nn.Conv2d(70, 16, 3), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(256, 100), nn.Linear(7, 5)).cuda().to(memory_format=torch.channels_last)


def pair(**settings: float) -> tuple[list[nn.Parameter], torch.optim.SGD, list[nn.Parameter], torch.optim.SGD]:
    ours, plain = net(), net()
    rate = torch.tensor(0.1, device="cuda")
    options = {"momentum": 0.9, "weight_decay": 5e-4, **settings}
    one, other = (list(model.parameters()) for model in (ours, plain))
    return one, torch.optim.SGD(one, lr=rate, **options), other, torch.optim.SGD(other, lr=0.1, **options)


def draw(leaves: list[nn.Parameter], passes: int) -> list[list[Tensor | None]]:
    """Gradients of each pass; the last layer has none, the third parameter none in the second pass."""
    grads = [[torch.randn_like(leaf) for leaf in leaves] for _ in range(passes)]
    return [
        [None if i >= len(leaves) - 2 or (k == 1 and i == 2) else grad for i, grad in enumerate(row)]
        for k, row in enumerate(grads)
    ]


def sum_into(weights: list[nn.Parameter], passes: list[list[Tensor | None]]) -> None:
    for i, weight in enumerate(weights):
        found = [row[i].float().clone() for row in passes if row[i] is not None]  # clipping works in place
        weight.grad = sum(found[1:], found[0]) if found else None


@pytest.mark.gpu
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("limit", [None, 0.5, 1e4])
@pytest.mark.parametrize("passes", [1, 2, 5])
@pytest.mark.parametrize("half", [False, True])
def test_it_is_clipping_and_sgd(nesterov, limit, passes, half):
    weights, optimizer, others, plain = pair(nesterov=nesterov)
    leaves = [nn.Parameter(w.detach().bfloat16()) if half and w.ndim > 1 else w for w in weights]
    run = Run(optimizer, weights, leaves)
    assert suits(run)
    kernels = ClippedSGD([run], limit)
    for turn in range(3):
        grads = draw(leaves, passes)
        if turn == 1:  # in another memory order than the weight
            grads[0][0] = None if grads[0][0] is None else grads[0][0].contiguous()
        with torch.no_grad():
            kernels.step([[row] for row in grads])
        sum_into(others, grads)
        if limit is not None:
            nn.utils.clip_grad_norm_(others, limit)
        plain.step()
        torch.testing.assert_close(weights, others, rtol=1e-5, atol=1e-6)
        for one, other, leaf in zip(weights, others, leaves, strict=True):
            assert leaf is one or torch.equal(leaf, one.bfloat16())
            theirs = plain.state[other].get("momentum_buffer", torch.zeros_like(other))  # none without gradients
            torch.testing.assert_close(optimizer.state[one]["momentum_buffer"], theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_momentum_from_a_checkpoint_is_taken_up_in_any_memory_order():
    weights, optimizer, others, plain = pair()
    kernels = ClippedSGD([Run(optimizer, weights, weights)], 1.0)
    for turn in range(2):
        grads = draw(weights, 2)
        sum_into(others, grads)
        nn.utils.clip_grad_norm_(others, 1.0)
        plain.step()
        if turn == 0:
            for one, other in zip(weights, others, strict=True):
                one.data.copy_(other)
                memory = copy.deepcopy(plain.state[other])
                optimizer.state[one] = {key: value.contiguous() for key, value in memory.items()}
        else:
            with torch.no_grad():
                kernels.step([[row] for row in grads])
    torch.testing.assert_close(weights, others, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("limit", [None, 1.0])
def test_runs_that_step_together_are_clipped_each_by_itself(limit):
    made = [pair() for _ in range(3)]
    kernels = ClippedSGD([Run(optimizer, weights, weights) for weights, optimizer, _, _ in made], limit)
    for _ in range(3):
        # Gradients of very different lengths; the shortest stays below the limit.
        grads = [draw(weights, 2) for weights, _, _, _ in made]
        grads = [
            [[None if grad is None else scale * grad for grad in row] for row in rows]
            for rows, scale in zip(grads, (1e-4, 1.0, 100.0), strict=True)
        ]
        with torch.no_grad():
            kernels.step([[rows[k] for rows in grads] for k in range(2)])
        for (weights, _, others, plain), rows in zip(made, grads, strict=True):
            sum_into(others, rows)
            if limit is not None:
                nn.utils.clip_grad_norm_(others, limit)
            plain.step()
            torch.testing.assert_close(weights, others, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_other_optimizers_are_left_to_torch():
    weights, _, _, _ = pair()

    def suited(optimizer):
        return suits(Run(optimizer, weights, weights))

    for odd in ({"momentum": 0.0}, {"momentum": 0.9, "dampening": 0.1}, {"momentum": 0.9, "maximize": True}):
        assert not suited(torch.optim.SGD(weights, lr=0.1, **odd))
    assert not suited(torch.optim.AdamW(weights))
    assert not suited(torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:]}], momentum=0.9))
    assert suited(torch.optim.SGD(weights, lr=0.1, momentum=0.9))
