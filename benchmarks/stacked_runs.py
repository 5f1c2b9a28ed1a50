"""How many networks a core trains at once: the stacked trainer, torch.func.vmap and separate runs, turn by turn.

    python benchmarks/stacked_runs.py [--replicas 64,256,1340] [--methods erm,rcad] [--out FILE]

Nets of UCI size: one hidden layer of 50 ReLU, Gaussian head, Adam, batches of 32. With vmap the gradients of a plain
function are mapped over stacked weights and batches; a separate run is a plain PyTorch loop around
`Criterion.backward`. The record has microseconds for one network and step of each, medians over the rounds, and how
many times longer than the stacked trainer the others take, medians of the ratios in a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import head, in_turns, listed, write
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

from rcad.loss.likelihoods import Gaussian
from rcad.loss.methods import Method, compose, gaussian, rcad
from rcad.models.layers import MLP
from rcad.runs.config import OptimConfig
from rcad.stacked.train import Examples, StackedProblem, train_stacked
from rcad.train.task import derived

ALPHA, LAM = 0.3, 0.3
EXAMPLES, FEATURES, HIDDEN, BATCH, EPOCHS = 455, 13, 50, 32, 8
STEPS = -(-EXAMPLES // BATCH) * EPOCHS
SEPARATE = 6
"""Separate runs that are timed."""
METHODS: dict[str, Method] = {"erm": gaussian(), "rcad": compose(gaussian(), rcad(ALPHA, LAM))}
OPTIM = OptimConfig(name="adamw", lr=3e-3)


def made(replicas: int) -> tuple[Tensor, Tensor]:
    """A different regression for each network."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(replicas, EXAMPLES, FEATURES, generator=draw)
    y = x[..., 0] + x[..., 1].abs() + 0.3 * torch.randn(replicas, EXAMPLES, generator=draw)
    return x, (y - y.mean()) / y.std()


def network(seed: int) -> MLP:
    torch.manual_seed(derived(seed, "weights"))
    return MLP(num_outputs=2, in_shape=(FEATURES,), hidden=(HIDDEN,))


def train_separately(x: Tensor, y: Tensor, method: Method) -> None:
    """Runs as anybody would write them."""
    for seed in range(SEPARATE):
        net, criterion = network(seed), method.criterion(units="input", checks="first")
        optimizer = torch.optim.Adam(net.parameters(), lr=OPTIM.lr)
        for _ in range(EPOCHS):
            for index in torch.randperm(EXAMPLES).split(BATCH):
                optimizer.zero_grad()
                criterion.backward(net, x[seed, index], y[seed, index])
                optimizer.step()


def train_by_vmap(x: Tensor, y: Tensor, method: Method) -> None:
    """All runs at once, their gradients by vmap."""
    net, likelihood = network(0), Gaussian()
    weights, _ = stack_module_state([network(seed) for seed in range(len(x))])  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(weights.values(), lr=OPTIM.lr)

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        def nll(x: Tensor) -> Tensor:
            return likelihood.nll(functional_call(net, weights, (x,)), y)

        if method is METHODS["erm"]:
            return nll(x).mean()
        direction = grad(lambda x: nll(x).sum())(x).detach()
        far = x + ALPHA * direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return nll(x).mean() - LAM * likelihood.entropy(functional_call(net, weights, (far,))).mean()

    gradients, own = vmap(grad(loss)), torch.arange(len(x))[:, None]
    for _ in range(EPOCHS):
        order = torch.rand(len(x), EXAMPLES).argsort(dim=1)
        for index in order.split(BATCH, dim=1):
            for name, gradient in gradients(weights, x[own, index], y[own, index]).items():
                weights[name].grad = gradient
            optimizer.step()


def train_stacks(x: Tensor, y: Tensor, method: Method) -> None:
    """All runs at once, by the stacked trainer."""
    shape = {"epochs": EPOCHS, "batch_size": BATCH, "hidden": (HIDDEN,)}
    train_stacked(StackedProblem(Examples(x, y), 0), method, seeds=range(len(x)), optim=OPTIM, **shape)  # type: ignore[arg-type]


def measured(name: str, replicas: int, rounds: int) -> dict[str, float | int | str]:
    """Times of one method, the three trainers by turns."""
    x, y = made(replicas)

    def seconds(train: Callable[[Tensor, Tensor, Method], None], count: int) -> float:
        start = time.process_time()
        train(x, y, METHODS[name])
        return (time.process_time() - start) / (count * STEPS)

    ways = {"stacked": train_stacks, "vmap": train_by_vmap, "separate": train_separately}
    counts = replicas, replicas, SEPARATE
    jobs = [lambda way=way, count=count: seconds(way, count) for way, count in zip(ways.values(), counts, strict=True)]
    in_turns(jobs, 1)
    times = in_turns(jobs, rounds)
    row: dict[str, float | int | str] = {"method": name, "replicas": replicas}
    row |= {
        f"{way}_us": round(1e6 * statistics.median(own), 2)
        for way, own in zip(ways, zip(*times, strict=True), strict=True)
    }
    ratios = {"vmap_to_stacked": 1, "separate_to_stacked": 2}
    return row | {key: round(statistics.median(turn[k] / turn[0] for turn in times), 2) for key, k in ratios.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=listed(int), default=[64, 256, 1340])
    parser.add_argument("--methods", type=listed(), default=list(METHODS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measured(name, count, options.rounds) for name in options.methods for count in options.replicas]
    for row in rows:
        print(row)
    settings = {"examples": EXAMPLES, "features": FEATURES, "hidden": HIDDEN, "batch": BATCH, "epochs": EPOCHS}
    about = head("rcad stacked runs", torch.device("cpu")) | {"threads": 1, "times": "processor time", **settings}
    write(options.out, {**about, "rounds": options.rounds, "results": rows})


if __name__ == "__main__":
    main()
