"""How many replicas a core trains at once: the stacked trainer against separate runs, turn by turn in one process.

    python benchmarks/stacked_runs.py [--replicas 64 256 1340] [--features 13] [--examples 455] [--rounds 3]

Nets of UCI size: one hidden layer of 50 ReLU, Gaussian head, Adam, batches of 32. A separate run is a plain PyTorch
loop around `Criterion.backward`. Prints JSON: microseconds per replica and step of each, and the ratio of the two,
the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from torch import Tensor

from rcad.loss.methods import Method, adversarial_training, compose, gaussian, me_ada, rcad, rcad_random
from rcad.models.mlp import MLP
from rcad.runs.config import OptimConfig
from rcad.stacked.task import Examples, StackedProblem
from rcad.stacked.train import train_stacked
from rcad.train.task import derived

METHODS: dict[str, Method] = {
    "erm": gaussian(),
    "rcad": compose(gaussian(), rcad(0.3, 0.3)),
    "rcad_random": compose(gaussian(), rcad_random(0.3, 0.3)),
    "fgsm": compose(gaussian(), adversarial_training(0.1, "l2", None)),
    "me_ada": compose(gaussian(), me_ada(steps=5, step_size=0.1, epochs=1, rounds=1, levels=None)),
}
OPTIM = OptimConfig(name="adamw", lr=3e-3)


def made(replicas: int, examples: int, features: int) -> tuple[Tensor, Tensor]:
    """A different regression for each replica."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(replicas, examples, features, generator=draw)
    y = x[..., 0] + x[..., 1].abs() + 0.3 * torch.randn(replicas, examples, generator=draw)
    return x, (y - y.mean()) / y.std()


def separate(x: Tensor, y: Tensor, method: Method, seed: int, epochs: int, batch: int, hidden: int) -> None:
    """One run as anybody would write it."""
    torch.manual_seed(derived(seed, "weights"))
    net = MLP(num_outputs=2, in_shape=x.shape[1:], hidden=(hidden,))
    optimizer = torch.optim.Adam(net.parameters(), lr=OPTIM.lr)
    criterion = method.criterion(units="input", checks="first")
    for epoch in range(epochs):
        for index in torch.randperm(len(y)).split(batch):
            optimizer.zero_grad()
            criterion.backward(net, x[index], y[index])
            optimizer.step()
        if method.growth is not None and method.growth.due(epoch + 1) and epoch + 1 < epochs:
            new = method.growth.grow(net, x, y, criterion.loss.likelihood)
            x, y = torch.cat([x, new[0]]), torch.cat([y, new[1]])


def measured(name: str, replicas: int, options: argparse.Namespace) -> dict[str, float | int | str]:
    """Times of one method, the two trainers by turns."""
    x, y = made(replicas, options.examples, options.features)
    problem = StackedProblem(Examples(x, y), 0)
    method, shape = METHODS[name], (options.epochs, options.batch, options.hidden)
    steps = -(-options.examples // options.batch) * options.epochs

    def together() -> float:
        start = time.perf_counter()
        train_stacked(
            problem,
            method,
            seeds=range(replicas),
            optim=OPTIM,
            epochs=options.epochs,
            batch_size=options.batch,
            hidden=(options.hidden,),
            group=options.group,
        )
        return (time.perf_counter() - start) / (replicas * steps)

    def alone() -> float:
        start = time.perf_counter()
        for r in range(options.separate):
            separate(x[r], y[r], method, r, *shape)
        return (time.perf_counter() - start) / (options.separate * steps)

    together(), alone()
    pairs = [(together(), alone()) for _ in range(options.rounds)]
    return {
        "method": name,
        "replicas": replicas,
        "stacked_us": round(1e6 * statistics.median(a for a, _ in pairs), 2),
        "separate_us": round(1e6 * statistics.median(b for _, b in pairs), 1),
        "ratio": round(statistics.median(b / a for a, b in pairs), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[64, 256, 1340])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["erm", "rcad"])
    parser.add_argument("--features", type=int, default=13)
    parser.add_argument("--examples", type=int, default=455)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=50)
    parser.add_argument("--separate", type=int, default=6, help="separate runs that are timed")
    parser.add_argument("--group", type=int, default=None, help="replicas worked on at a time")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measured(name, count, options) for name in options.methods for count in options.replicas]
    settings = {key: value for key, value in vars(options).items() if key not in ("methods", "replicas")}
    print(json.dumps({"threads": torch.get_num_threads(), **settings, "results": rows}, indent=1))


if __name__ == "__main__":
    main()
