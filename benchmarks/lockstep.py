"""Would several runs train faster as one network, side by side in the channels of grouped layers?

    python benchmarks/lockstep.py [--layouts 1x8,1x10,4x2,8x1] [--methods erm,rcad] [--out results/benchmarks/x.json]
    python benchmarks/lockstep.py --check          # on any device: the joined network is the single ones

A layout RxG is G networks of R runs each. Joined runs share every kernel: convolutions are grouped, BatchNorm has R
times the channels, the update has one table. Steps are those of the engine, at R times the batch.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import torch
from step_jobs import Job
from step_time import problem_of
from torch import Tensor, nn
from torch.nn.functional import pad

from rcad.experiments.config import RunConfig
from rcad.experiments.machine import deterministic
from rcad.models.build import build
from rcad.models.first_conv import CHANNELS, FirstConv2d
from rcad.models.normalize import Normalize
from rcad.train.problem import Problem, model_of

SINGLE_BATCH = 32


class JoinedLinear(nn.Linear):
    """R linear layers: (B, R * F) -> (B * R, K), the examples of all runs in turn."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__(1, 1)
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]).unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        runs, outputs, features = self.weight.shape
        rows = x.view(len(x), runs, features).transpose(0, 1)
        y = torch.baddbmm(self.bias, rows, self.weight.transpose(1, 2))
        return y.transpose(0, 1).reshape(-1, outputs)


def joined_conv(layers: Sequence[nn.Conv2d]) -> nn.Conv2d:
    first, runs = layers[0], len(layers)
    missing = -first.in_channels % CHANNELS if isinstance(first, FirstConv2d) else 0
    inputs = (first.in_channels + missing) * runs
    joined = nn.Conv2d(
        inputs,
        first.out_channels * runs,
        first.kernel_size,  # type: ignore[arg-type]
        first.stride,  # type: ignore[arg-type]
        first.padding,  # type: ignore[arg-type]
        groups=runs,
        bias=False,
    )
    weights = torch.cat([layer.weight.detach() for layer in layers])
    joined.weight = nn.Parameter(pad(weights, (0, 0, 0, 0, 0, missing)))
    return joined


def joined_norm(layers: Sequence[nn.BatchNorm2d]) -> nn.BatchNorm2d:
    joined = nn.BatchNorm2d(sum(layer.num_features for layer in layers))
    for name in ("weight", "bias"):
        setattr(joined, name, nn.Parameter(torch.cat([getattr(layer, name).detach() for layer in layers])))
    return joined


def joined_normalize(layers: Sequence[Normalize], missing: int) -> Normalize:
    """Besides the channels of the image there are `missing` zero ones, which stay zero."""
    mean = [*layers[0].mean.tolist(), *[0.0] * missing] * len(layers)
    std = [*layers[0].std.tolist(), *[1.0] * missing] * len(layers)
    return Normalize(mean, std)


class Joined(nn.Module):
    """R networks of one architecture as one: (B * R, C, H, W) -> (B * R, K), the examples of all runs in turn."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.runs = len(networks)
        self.network = copy.deepcopy(networks[0])
        self.missing = 0
        names = [name for name, module in networks[0].named_modules() if isinstance(module, FirstConv2d)]
        first = networks[0].get_submodule(names[0])
        assert isinstance(first, FirstConv2d)
        self.missing = -first.in_channels % CHANNELS
        for name, module in list(self.network.named_modules()):
            layers: list[Any] = [network.get_submodule(name) for network in networks]
            new: nn.Module | None = None
            if isinstance(module, nn.Conv2d):
                new = joined_conv(layers)
            elif isinstance(module, nn.BatchNorm2d):
                new = joined_norm(layers)
            elif isinstance(module, nn.Linear):
                new = JoinedLinear(layers)
            elif isinstance(module, Normalize):
                new = joined_normalize(layers, self.missing)
            if new is not None:
                parent, _, last = name.rpartition(".")
                setattr(self.network.get_submodule(parent), last, new)

    def forward(self, x: Tensor) -> Tensor:
        x = pad(x, (0, 0, 0, 0, 0, self.missing))
        count, channels, height, width = x.shape
        x = x.reshape(count // self.runs, self.runs * channels, height, width)
        y: Tensor = self.network(x.contiguous(memory_format=torch.channels_last))
        return y


def joined_model(config: RunConfig, problem: Problem, runs: int) -> nn.Module:
    return Joined([model_of(config, problem) for _ in range(runs)])


def check(runs: int = 3, batch: int = 5) -> None:
    """Outputs and gradients of the joined network against the single ones, in float64."""
    torch.manual_seed(0)
    singles = [build("resnet18", num_outputs=7, in_shape=(3, 8, 8), width=8).double() for _ in range(runs)]
    joined = Joined(singles).double()
    x = torch.rand(batch * runs, 3, 8, 8, dtype=torch.float64)
    y = joined(x)
    y.square().sum().backward()
    for i, single in enumerate(singles):
        mine = single(x[i::runs])
        torch.testing.assert_close(mine, y[i::runs])
        mine.square().sum().backward()
        wide = joined.network.get_submodule("layer2.0.conv1").weight.grad
        narrow = single.get_submodule("layer2.0.conv1").weight.grad
        assert isinstance(wide, Tensor)
        torch.testing.assert_close(wide[len(wide) // runs * i : len(wide) // runs * (i + 1)], narrow)
    print("the joined network is the single ones")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", default="1x8,1x10,4x2,8x1")
    parser.add_argument("--methods", default="erm,rcad")
    parser.add_argument("--mode", default="compile" if torch.cuda.is_available() else "eager")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.check:
        check()
        return
    options.channels, options.classes = 3, 100
    device, record = torch.device(options.device), []
    torch._dynamo.config.recompile_limit = 64
    with deterministic(False, device, thorough=options.mode == "compile"):
        for layout in options.layouts.split(","):
            runs, groups = map(int, layout.split("x"))
            settings, problem = problem_of(options, SINGLE_BATCH * runs, device, 64 * (options.rounds + 1))
            make = model_of if runs == 1 else partial(joined_model, runs=runs)
            for method in options.methods.split(","):
                job = Job(method, settings, problem, options.mode, groups, seconds=0.5, limit=64, make_model=make)
                times = [job.seconds() for _ in range(options.rounds)]
                ms = statistics.median(times) / (runs * groups) * 1e3
                row = {"layout": layout, "method": method, "ms_per_seed_step": round(ms, 4)}
                record.append(row | {"gib": round(job.memory / 2**30, 3)})
                print(record[-1], flush=True)
                del job
    if options.out:
        about = {"device": options.device, "torch": torch.__version__, "date": datetime.now(UTC).isoformat()}
        options.out.write_text(json.dumps({**about, "mode": options.mode, "rows": record}, indent=1) + "\n")


if __name__ == "__main__":
    main()
