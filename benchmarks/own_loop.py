"""How long a step takes in one's own loop, launched kernel by kernel and captured, against the engine's own step.

    python benchmarks/own_loop.py --minutes 2 --out results/benchmarks/own_loop_h200.json
    python benchmarks/own_loop.py --device cpu --models ours --size 8 --batch 4 --steps 2 --rounds 1

The ResNet-18 of torchvision and of timm, with the first layer that small images need (3x3, no pooling), which makes
them as much work as ours; bf16, channels last, SGD, gradients clipped, batches from pinned memory. "engine" is the step
of `rcad train`, which also draws and crops its batches. All times of a method are taken in turns in one process.
`--compiled` adds captured steps through torch.compile, which takes a minute more. At the end the losses of both loops
are compared with deterministic algorithms, in a process of its own (`--exact` does this alone): they must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from common import head, in_a_line, in_turns, listed, print_row, wait, write
from step_jobs import Job, Layout, criterion_of, problem_of
from torch import Tensor, nn

import rcad
from rcad.models import build
from rcad.train.machine import deterministic

COMPARED = 50
"""Steps over which the losses of both loops are compared."""
BATCHES = 8
ROUND_SECONDS = 0.25


def model_of(name: str, classes: int, size: int) -> nn.Module:
    """A ResNet-18 for small images, as its library writes it."""
    torch.manual_seed(0)
    if name == "ours":
        return build("resnet18", num_outputs=classes, in_shape=(3, size, size))
    net: Any
    if name == "torchvision":
        from torchvision.models import resnet18

        net = resnet18(num_classes=classes)
    elif name == "timm":
        from timm import create_model

        net = create_model("resnet18", num_classes=classes)
    else:
        raise ValueError(f"expected torchvision, timm or ours, but got {name!r}")
    net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return net  # type: ignore[no-any-return]


class Loop:
    """One's own loop over batches from pinned memory."""

    def __init__(self, options: argparse.Namespace, model: str, method: str, kind: str, *, exact: bool = False) -> None:
        self.model, self.method, self.kind = model, method, kind
        self.device = torch.device(options.device)
        gpu = self.device.type == "cuda"
        draw = torch.Generator().manual_seed(0)
        shape = (options.batch, 3, options.size, options.size)
        self.batches = [
            (torch.rand(shape, generator=draw), torch.randint(options.classes, shape[:1], generator=draw))
            for _ in range(BATCHES)
        ]
        if gpu:
            self.batches = [(x.pin_memory(), y.pin_memory()) for x, y in self.batches]
        self.net = model_of(model, options.classes, options.size).to(self.device, memory_format=torch.channels_last)
        # Learning rates are numbers in one loop and float32 in the other, so they are a power of two to compare bits.
        rest: dict[str, Any] = {"lr": 2.0**-7, "fused": True} if exact else {"lr": 0.01}
        self.optimizer = torch.optim.SGD(self.net.parameters(), momentum=0.9, weight_decay=5e-4, **rest)
        self.criterion = criterion_of(method)
        self.autocast = torch.bfloat16 if gpu else None
        self.captured = rcad.capture(
            self.net, self.optimizer, self.criterion, clip=1.0, autocast=self.autocast, compiled="compiled" in kind
        )
        self.number = 0

    def step(self) -> Tensor:
        x, y = self.batches[self.number % BATCHES]
        self.number += 1
        if self.kind != "eager":
            return self.captured(x, y).total
        x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            losses = self.criterion.backward(self.net, x, y)
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return losses.total

    def run(self, steps: int) -> float:
        """Seconds for so many steps."""
        wait(self.device)
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        wait(self.device)
        return time.perf_counter() - start


def measure(options: argparse.Namespace, method: str) -> list[dict[str, Any]]:
    """The rows of one method, their times taken in turns."""
    device = torch.device(options.device)
    kinds = ["eager", "captured", *(["captured, compiled"] if options.compiled else [])]
    loops, compared, rows = [], [], []
    for model, kind in [(model, kind) for model in options.models for kind in kinds]:
        try:
            loop = Loop(options, model, method, kind)
            compared.append(torch.stack([loop.step() for _ in range(options.compared)]).tolist())
            loops.append(loop)
            state = "ready"
        except Exception as error:  # the others go on
            state = in_a_line(error)
            rows.append({"model": model, "method": method, "loop": kind, "error": state})
        print(f"  {model}, {method}, {kind}: {state}", flush=True)
    settings, problem = problem_of(options, options.batch, device, options.steps * (options.rounds + 1))
    engine = "graph" if device.type == "cuda" else "eager"
    job = Job(method, settings, problem, engine, Layout(1, 1), seconds=ROUND_SECONDS, limit=options.steps)
    counts = [max(1, min(options.steps, int(ROUND_SECONDS / (loop.run(2) / 2)))) for loop in loops]
    timed: list[Callable[[], float]] = [
        *(lambda loop=loop, count=count: loop.run(count) / count for loop, count in zip(loops, counts, strict=True)),
        job.seconds,
    ]
    rounds = in_turns(timed, options.rounds)
    for place, loop in enumerate(loops):
        eager = next((i for i, one in enumerate(loops) if (one.model, one.kind) == (loop.model, "eager")), place)
        row = {"model": loop.model, "method": method, "loop": loop.kind, **_times(rounds, place)}
        row["over_engine"] = round(statistics.median(times[place] / times[-1] for times in rounds), 4)
        row["eager_over_this"] = round(statistics.median(times[eager] / times[place] for times in rounds), 4)
        row["largest_difference_of_losses"] = max(
            abs(one - other) for one, other in zip(compared[place], compared[eager], strict=True)
        )
        row |= {"losses": [round(value, 6) for value in compared[place]], "captured": loop.captured.captured}
        rows.append(row | {"reason": loop.captured.reason})
    rows.append({"model": "ours", "method": method, "loop": f"engine, {job.trainers[0].stepper.name}"})
    rows[-1] |= _times(rounds, -1)
    for row in rows:
        print_row([row.get(key, "") for key in COLUMNS], 18)
    return rows


COLUMNS = ("model", "method", "loop", "ms", "over_engine", "eager_over_this", "largest_difference_of_losses")


def exact(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Whether the losses of both loops are the same bits where algorithms are deterministic."""
    rows = []
    for model in options.models:
        row: dict[str, Any] = {"model": model, "method": "rcad", "steps": options.compared}
        try:
            with deterministic(True, torch.device(options.device)):
                loops = [Loop(options, model, "rcad", kind, exact=True) for kind in ("eager", "captured")]
                eager, captured = ([loop.step().item() for _ in range(options.compared)] for loop in loops)
            row["equal"] = eager == captured
            row["largest_difference"] = max(abs(a - b) for a, b in zip(eager, captured, strict=True))
            row |= {"captured": loops[1].captured.captured, "reason": loops[1].captured.reason}
        except Exception as error:
            row["error"] = in_a_line(error)
        rows.append(row)
    return rows


def _times(rounds: Sequence[Sequence[float]], place: int) -> dict[str, float]:
    times = sorted(one[place] * 1e3 for one in rounds)
    return {"ms": round(statistics.median(times), 4), "least_ms": round(times[0], 4), "most_ms": round(times[-1], 4)}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--models", type=listed(), default=["torchvision", "timm", "ours"])
    parser.add_argument("--methods", type=listed(), default=["rcad", "erm"])
    parser.add_argument("--model", default="resnet18", help="the engine's")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=32, help="pixels a side")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=64, help="at most, in one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compared", type=int, default=COMPARED, help="steps whose losses are compared")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--exact", action="store_true", help="only compare losses with deterministic algorithms")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after so many")
    parser.add_argument("--out", type=Path, help="write the record here, as it grows")
    options = parser.parse_args(arguments)
    options.channels = 3
    if options.exact:
        found = {"deterministic": exact(options)}
        print(json.dumps(found))
        return found
    record = head("rcad own loop", torch.device(options.device))
    record |= {"batch": options.batch, "size": options.size, "missing": {}, "rows": []}
    for name in list(options.models):
        try:
            model_of(name, 2, 8)
        except Exception as error:  # a torchvision built for another torch fails in many ways
            record["missing"][name] = in_a_line(error)
            options.models.remove(name)
            print(f"{name} is left out: {record['missing'][name]}", file=sys.stderr)
    print_row(COLUMNS, 18)
    start = time.perf_counter()

    def keep() -> None:
        record["seconds"] = round(time.perf_counter() - start, 1)
        write(options.out, record)

    with deterministic(False, torch.device(options.device)):
        for method in options.methods:
            if time.perf_counter() - start < 60 * options.minutes:
                try:
                    record["rows"] += measure(options, method)
                except Exception as error:
                    record["rows"].append({"method": method, "error": in_a_line(error)})
                    print(record["rows"][-1], flush=True)
                keep()
    if time.perf_counter() - start < 60 * options.minutes:
        command = [
            sys.executable,
            __file__,
            "--exact",
            "--device",
            options.device,
            "--models",
            ",".join(options.models),
        ]
        for name in ("batch", "size", "classes", "compared"):
            command += [f"--{name}", str(getattr(options, name))]
        environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["no words"]
        record |= json.loads(lines[-1]) if done.returncode == 0 else {"deterministic": [{"error": lines[-1][:300]}]}
        print(record["deterministic"], flush=True)
        keep()
    return record


if __name__ == "__main__":
    main()
