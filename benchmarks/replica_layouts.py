"""How should several runs share a GPU? The convolutions of R networks on R streams, or as one grouped convolution.

    python benchmarks/replica_layouts.py [--replicas 8] [--batch 32] [--out results/benchmarks/replica_layouts.json]

Forward and backward of the 3x3 convolutions of ResNet-18's four stages on 32x32 images, bf16, channels last, each
layout captured in CUDA graphs; microseconds per network. Needs a GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import torch
from common import head, write
from torch import Tensor
from torch.nn.functional import conv2d

STAGES = ((64, 32), (128, 16), (256, 8), (512, 4))
REPEATS = 20


def captured(channels: int, size: int, batch: int, groups: int, stream: torch.cuda.Stream) -> Any:
    """A graph of REPEATS forwards and backwards of one convolution with `groups` independent parts."""
    like: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(batch, groups * channels, size, size, **like).contiguous(memory_format=torch.channels_last)
    w = torch.randn(groups * channels, channels, 3, 3, **like).contiguous(memory_format=torch.channels_last)
    x.requires_grad_(True)
    w.requires_grad_(True)
    up = torch.randn_like(x)

    def work() -> tuple[Tensor, ...]:
        return torch.autograd.grad(conv2d(x, w, padding=1, groups=groups), (x, w), up)

    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(REPEATS):
            work()
    return graph, (x, w, up)


def microseconds(replay: Callable[[], None], networks: int) -> float:
    replay()
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        start = time.perf_counter()
        replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / REPEATS / networks * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    rows = []
    for channels, size in STAGES:
        streams = [torch.cuda.Stream() for _ in range(options.replicas)]
        graphs = [captured(channels, size, options.batch, 1, stream) for stream in streams]
        (grouped, _kept) = captured(channels, size, options.batch, options.replicas, streams[0])

        def side_by_side(graphs: list[Any] = graphs, streams: list[torch.cuda.Stream] = streams) -> None:
            for (graph, _), stream in zip(graphs, streams, strict=True):
                with torch.cuda.stream(stream):
                    graph.replay()

        row = {
            "channels": channels,
            "size": size,
            "alone": round(microseconds(graphs[0][0].replay, 1), 2),
            "streams": round(microseconds(side_by_side, options.replicas), 2),
            "grouped": round(microseconds(grouped.replay, options.replicas), 2),
        }
        rows.append(row)
        print(row, flush=True)
    unit = "microseconds per network, forward and backward of one 3x3 convolution"
    record = head("rcad replica layouts", torch.device("cuda")) | {"replicas": options.replicas, "batch": options.batch}
    write(options.out, record | {"unit": unit, "rows": rows})


if __name__ == "__main__":
    main()
