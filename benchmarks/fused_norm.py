"""Would steps that are captured but not compiled be faster with BatchNorm, addition and ReLU in kernels of our own?

    TRITON_INTERPRET=1 python benchmarks/fused_norm.py --check             # on a CPU; without the variable on a GPU
    python benchmarks/fused_norm.py [--layouts 1,10,2x5] [--methods erm,rcad] [--out results/benchmarks/x.json]

A prototype. Times are taken in turns with torch's own layers, in graphs, and with the compiled model beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics as averages
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # heard only before CUDA starts

import norm_kernels as kernels
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import relu

BLOCK_M, BLOCK_C, PROGRAMS = 32, 64, 264


def _grid(rows: int, channels: int) -> tuple[int, int, dict[str, int]]:
    """Shares of the rows, rows in each, and the sizes of the blocks."""
    columns = -(-channels // BLOCK_C)
    wanted = max(1, PROGRAMS // columns)
    share = -(-rows // wanted)
    share += -share % BLOCK_M
    return -(-rows // share), share, {"BLOCK_M": BLOCK_M, "BLOCK_C": BLOCK_C}


class NormFunction(torch.autograd.Function):
    """relu(BatchNorm(x) + residual) with the batch's statistics; memory order is channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, relu_after: bool,
                layer: nn.BatchNorm2d) -> Tensor:  # fmt: skip
        rows, channels = x.numel() // x.shape[1], x.shape[1]
        shares, share, blocks = _grid(rows, channels)
        columns = -(-channels // BLOCK_C)
        mean, rstd = (torch.empty(channels, device=x.device) for _ in range(2))
        means, squares = (torch.empty(shares, channels, device=x.device) for _ in range(2))
        kernels.statistics[(shares, columns)](x, means, squares, rows, channels, ROWS=share, **blocks)
        track = layer.track_running_stats and layer.running_mean is not None
        kernels.settle[(columns,)](
            means, squares, mean, rstd, layer.running_mean, layer.running_var, rows, channels, layer.eps,
            layer.momentum, ROWS=share, SHARES=shares, TRACK=track, BLOCK_S=32, BLOCK_C=BLOCK_C,
        )  # fmt: skip
        y = torch.empty_like(x)
        kernels.apply[(-(-rows // BLOCK_M), columns)](
            x, residual, y, mean, rstd, weight, bias, rows, channels,
            ADD=residual is not None, RELU=relu_after, **blocks,
        )  # fmt: skip
        ctx.save_for_backward(x, y if relu_after else None, mean, rstd, weight)
        ctx.adds, ctx.relu_after = residual is not None, relu_after
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, y, mean, rstd, weight = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        rows, channels = x.numel() // x.shape[1], x.shape[1]
        shares, share, blocks = _grid(rows, channels)
        columns = -(-channels // BLOCK_C)
        plain, along = (torch.empty(shares, channels, device=x.device) for _ in range(2))
        kernels.sums[(shares, columns)](
            dy, y, x, mean, rstd, plain, along, rows, channels, ROWS=share, RELU=ctx.relu_after, **blocks
        )
        dbias, dweight = (torch.empty(channels, device=x.device) for _ in range(2))
        kernels.add_up[(columns,)](plain, along, dbias, dweight, channels, SHARES=shares, BLOCK_S=32, BLOCK_C=BLOCK_C)
        dx, dresidual = torch.empty_like(x), torch.empty_like(x) if ctx.adds else None
        kernels.apply_back[(-(-rows // BLOCK_M), columns)](
            dy, y, x, dx, dresidual, mean, rstd, weight, dbias, dweight, rows, channels,
            ADD=ctx.adds, RELU=ctx.relu_after, **blocks,
        )  # fmt: skip
        return dx, dweight, dbias, dresidual, None, None


def fused(norm: nn.Module, x: Tensor, residual: Tensor | None = None, *, relu_after: bool = True) -> Tensor:
    """relu(norm(x) + residual), by our kernels where they can do it."""
    ordered = x.is_contiguous(memory_format=torch.channels_last)
    if type(norm) is nn.BatchNorm2d and norm.training and norm.momentum is not None and ordered:
        if residual is not None:
            residual = residual.contiguous(memory_format=torch.channels_last)
        y: Tensor = NormFunction.apply(x, norm.weight, norm.bias, residual, relu_after, norm)  # type: ignore[no-untyped-call]
        return y
    y = norm(x) if residual is None else norm(x) + residual
    return relu(y) if relu_after else y


def block_forward(self: Any, x: Tensor) -> Tensor:
    y = fused(self.bn1, self.conv1(x))
    shortcut = self.downsample
    beside = x if isinstance(shortcut, nn.Identity) else fused(shortcut[1], shortcut[0](x), relu_after=False)
    return fused(self.bn2, self.conv2(y), beside)


def features(self: Any, x: Tensor) -> Tensor:
    x = self.maxpool(fused(self.bn1, self.conv1(self.normalize(x))))
    x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
    return x.mean((2, 3))


@contextmanager
def patched() -> Iterator[None]:
    """ResNet-18 with the kernels inside."""
    from rcad.models.resnet import BasicBlock, ResNet

    before: tuple[Callable[..., Any], Callable[..., Any]] = BasicBlock.forward, ResNet.features
    BasicBlock.forward, ResNet.features = block_forward, features  # type: ignore[method-assign]
    try:
        yield
    finally:
        BasicBlock.forward, ResNet.features = before  # type: ignore[method-assign]


def check(device: str) -> None:
    """Values, gradients and running averages against torch's own."""
    draw = torch.Generator().manual_seed(0)
    for shape in ((4, 8, 3, 3), (5, 70, 2, 2), (2, 130, 9, 9), (3, 64, 1, 1)):
        for adds, relu_after, track in ((True, True, True), (False, True, False), (False, False, True)):
            ours, plain = nn.BatchNorm2d(shape[1]).to(device), nn.BatchNorm2d(shape[1]).to(device)
            with torch.no_grad():
                ours.weight.copy_(torch.randn(shape[1], generator=draw))
                ours.bias.copy_(torch.randn(shape[1], generator=draw))
            plain.load_state_dict(ours.state_dict())
            ours.track_running_stats = track
            data = [torch.randn(shape, generator=draw).to(device) + 3 for _ in range(3)]
            found = []
            for layer in (ours, plain):
                x, residual = (
                    d.clone().contiguous(memory_format=torch.channels_last).requires_grad_(True) for d in data[:2]
                )
                extra = residual if adds else None
                if layer is ours:
                    y = fused(layer, x, extra, relu_after=relu_after)
                else:
                    y = layer(x) if extra is None else layer(x) + extra
                    y = relu(y) if relu_after else y
                (y * data[2]).sum().backward()
                found.append([y, x.grad, layer.weight.grad, layer.bias.grad, residual.grad if adds else None])
            for one, other in zip(*found, strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
            if track:
                torch.testing.assert_close(ours.running_mean, plain.running_mean, rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(ours.running_var, plain.running_var, rtol=1e-4, atol=1e-5)
            else:
                assert ours.running_mean is not None
                assert not ours.running_mean.any()
    print("values, gradients and running averages are torch's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--layouts", default="1,10,2x5,4x5")
    parser.add_argument("--methods", default="erm,rcad")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default="graph,fused,compile")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.check:
        check("cuda" if torch.cuda.is_available() else "cpu")
        return
    from step_jobs import Job, Layout
    from step_time import problem_of

    from rcad.experiments.machine import deterministic

    device, rows = torch.device("cuda"), []
    shape = SimpleNamespace(channels=3, size=32, classes=100, model="resnet18")
    torch._dynamo.config.recompile_limit = 64
    with deterministic(False, device):
        settings, problem = problem_of(shape, options.batch, device, 64 * (options.rounds + 1))
        for text in options.layouts.split(","):
            for method in options.methods.split(","):
                jobs = {}
                for way in options.ways.split(","):
                    mode: Any = "compile" if way == "compile" else "graph"
                    with patched() if way == "fused" else nullcontext():  # replays need no patch
                        layout = Layout.parse(text)
                        jobs[way] = Job(method, settings, problem, mode, layout, seconds=0.5, limit=64)
                times: dict[str, list[float]] = {way: [] for way in jobs}
                for _ in range(options.rounds):
                    for way, job in jobs.items():
                        times[way].append(job.seconds())
                for way, job in jobs.items():
                    ms = averages.median(times[way]) / Layout.parse(text).replicas * 1e3
                    row = {"layout": text, "method": method, "way": way, "ms_per_seed_step": round(ms, 4)}
                    rows.append(row | {"gib": round(job.memory / 2**30, 3)})
                    print(rows[-1], flush=True)
                del jobs, job
    if options.out:
        about = {"torch": torch.__version__, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        options.out.write_text(json.dumps({**about, "batch": options.batch, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
