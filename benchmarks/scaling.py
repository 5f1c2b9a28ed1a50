"""How time per example and memory grow: with the batch, the images, the classes, the network and the runs at once.

    python benchmarks/scaling.py --minutes 2.5 --out results/benchmarks/scaling_h200.json
    python benchmarks/scaling.py --more --minutes 2.5 --out results/benchmarks/scaling_h200.json   # what it lacks
    python benchmarks/scaling.py --axes batch,runs --batches 32,128 --runs 1,8
    python benchmarks/scaling.py --device cpu --model small_cnn --side 8 --batch 8 --batches 4,8 --sides 8,12 \
        --class-counts 3,9 --models small_cnn@8 --runs 1,2,4 --team 2 --seconds 0.01

ERM and fused RCAD, timed in turns, one thing growing at a time from ResNet-18, batches of 128, 32x32 images and 100
classes. One run steps through `rcad.capture`; runs at once are those of `rcad train`, batches of 32, joined by eight
(fewer where there are fewer). On a GPU: bf16, channels last, SGD, clipped gradients, one CUDA graph a step. The floor
is the arithmetic of the passes at the rate of a large matrix product on this device. A point that fails leaves its
error in its row; the record is written after each, the ends of the axes first.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # heard only before CUDA starts

import torch
from common import head, in_a_line, in_turns, listed, print_row, wait, write
from step_jobs import PASSES, Job, Layout, criterion_of, flops_of, memory, problem_of, rate_of, take_step
from torch import nn

import rcad
from rcad.models import build
from rcad.runs.config import RunConfig
from rcad.train.machine import deterministic
from rcad.train.place import Engine
from rcad.train.task import Problem

AXES = ("batch", "classes", "model", "side", "runs")
METHODS = ("erm", "rcad")
WARM_STEPS, STEPS_MORE, LEAST_STEPS, MOST_STEPS = 2, 3, 4, 64
"""Steps that choose algorithms; those in which the step is captured; at least and at most so many in a round."""
COLUMNS = ("axes", "model", "batch", "side", "classes", "runs", "method", "us_per_example", "ratio_to_erm")
COLUMNS = (*COLUMNS, "ratio_to_floor", "peak_memory_gib", "engine")


class Point(NamedTuple):
    """Where ERM and RCAD are compared."""

    model: str
    batch: int
    side: int
    classes: int
    runs: int = 1
    joined: int = 1
    step: str = "capture"  # or "engine"


class Loop:
    """One run that steps through `rcad.capture`; batches lie on the device."""

    def __init__(self, method: str, point: Point, device: torch.device) -> None:
        self.device = device
        gpu = device.type == "cuda"
        x = torch.rand(point.batch, 3, point.side, point.side, device=device)
        self.batch = x, torch.arange(point.batch, device=device) % point.classes
        before = memory(device)
        net = network(point, device)
        net = net.to(memory_format=torch.channels_last if gpu else torch.contiguous_format)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        criterion = criterion_of(method)
        self.step = rcad.capture(net, optimizer, criterion, clip=1.0, autocast=torch.bfloat16 if gpu else None)
        self.run(WARM_STEPS)
        memory(device)  # the peak is counted from here: algorithms were chosen with memory that goes again
        self.run(STEPS_MORE)
        self.peak = torch.cuda.max_memory_allocated(device) - before[0] if gpu else 0
        self.held = memory(device)[1] - before[1]

    @property
    def engine(self) -> str:
        return "graph" if self.step.captured else f"eager: {self.step.reason}" if self.step.reason else "eager"

    def run(self, steps: int) -> float:
        """Seconds for so many steps."""
        wait(self.device)
        if self.device.type != "cuda":
            start = time.perf_counter()
            for _ in range(steps):
                self.step(*self.batch)
            return time.perf_counter() - start
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(steps):
            self.step(*self.batch)
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3


class Teams:
    """Runs at once, in teams that are joined; more teams are added as the axis grows."""

    def __init__(self, method: str, device: torch.device) -> None:
        self.method, self.device = method, device
        self.jobs: list[Job] = []

    def grow(self, point: Point, settings: RunConfig, problem: Problem) -> None:
        if self.jobs and len(self.jobs[0].trainers) != point.joined:
            self.jobs.clear()
        mode: Engine = "graph" if self.device.type == "cuda" else "eager"
        while len(self.jobs) * point.joined < point.runs:
            layout = Layout(1, point.joined)
            self.jobs.append(Job(self.method, settings, problem, mode, layout, seconds=0.05, limit=4))

    @property
    def engine(self) -> str:
        return self.jobs[0].trainers[0].stepper.name

    @property
    def peak(self) -> int:
        return sum(job.peak for job in self.jobs)

    @property
    def held(self) -> int:
        return sum(job.held for job in self.jobs)

    def run(self, steps: int) -> float:
        wait(self.device)
        start = time.perf_counter()
        for _ in range(steps):
            for job in self.jobs:
                take_step(job.teams[0])
        wait(self.device)
        return time.perf_counter() - start


def network(point: Point, device: torch.device) -> nn.Module:
    """The network; a ResNet-18 has the first layer for small images whatever their size."""
    torch.manual_seed(0)
    stem: dict[str, Any] = {"stem": "cifar"} if point.model == "resnet18" else {}
    with device:
        return build(point.model, num_outputs=point.classes, in_shape=(3, point.side, point.side), **stem)


def points_of(options: argparse.Namespace) -> dict[Point, list[str]]:
    """Every point with its axes: the ends of the axes, runs at once, the rest. What lies on several is there once."""
    base = Point(options.model, options.batch, options.side, options.classes)
    axes: dict[str, list[Point]] = {
        "batch": [base._replace(batch=value) for value in options.batches],
        "classes": [base._replace(classes=value) for value in options.class_counts],
        "model": [base._replace(model=name, side=side) for name, side in options.models],
        "side": [base._replace(side=value) for value in options.sides],
        "runs": [
            base._replace(batch=options.run_batch, runs=runs, joined=min(runs, options.team), step="engine")
            for runs in options.runs
        ],
    }
    chosen = {axis: points for axis, points in axes.items() if axis in options.axes}
    single = [points for axis, points in chosen.items() if axis != "runs"]
    ends = [point for points in single for point in (points[0], points[-1])]
    rest = [point for points in single for point in points]
    ordered = dict.fromkeys([*([base] if base in rest else []), *ends, *chosen.get("runs", ()), *rest])
    return {point: [axis for axis, points in chosen.items() if point in points] for point in ordered}


class Bench:
    """What all points share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.rate = rate_of(self.device)
        self.teams = {method: Teams(method, self.device) for method in METHODS}
        self.problem: tuple[RunConfig, Problem] | None = None

    def rows(self, point: Point, axes: list[str]) -> list[dict[str, Any]]:
        """ERM and RCAD at one point, timed in turns; where something fails, rows that say what."""
        facts = {"axes": axes, **point._asdict()}
        try:
            meta = network(point, torch.device("cpu")).to("meta")
            facts["parameters"] = sum(p.numel() for p in meta.parameters())
            one = torch.zeros(1, 3, point.side, point.side, device="meta")
            floor = 3 * flops_of(meta, one) / self.rate * 1e6
            return [facts | row for row in self._timed(point, floor)]
        except Exception as error:  # no memory, a network that is not installed: the others go on
            return [facts | {"method": method, "error": in_a_line(error)} for method in METHODS]
        finally:
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _timed(self, point: Point, floor: float) -> list[dict[str, Any]]:
        loops: Mapping[str, Loop | Teams] = self.teams
        if point.step == "capture":
            loops = {method: Loop(method, point, self.device) for method in METHODS}
        else:
            if self.problem is None:
                self.problem = problem_of(self.options, point.batch, self.device, 8 * MOST_STEPS)
            for teams in self.teams.values():
                teams.grow(point, *self.problem)
        each = {method: loop.run(2) / 2 for method, loop in loops.items()}
        steps = {m: max(LEAST_STEPS, min(MOST_STEPS, int(self.options.seconds / each[m]))) for m in METHODS}
        jobs = [lambda m=m: loops[m].run(steps[m]) / steps[m] for m in METHODS]
        rounds = [dict(zip(METHODS, times, strict=True)) for times in in_turns(jobs, self.options.rounds)]
        rows = []
        for method, loop in loops.items():
            seconds = statistics.median(times[method] for times in rounds)
            examples = point.batch * point.runs
            row: dict[str, Any] = {"method": method, "ms_per_step_of_all": round(seconds * 1e3, 4)}
            row["us_per_example"] = round(seconds / examples * 1e6, 4)
            ratios = sorted(times[method] / times["erm"] for times in rounds)
            row["ratio_to_erm"] = round(statistics.median(ratios), 4)
            row["least_ratio"], row["most_ratio"] = round(ratios[0], 4), round(ratios[-1], 4)
            row["floor_us_per_example"] = round(floor * PASSES.get(method, 1.0), 5)
            row["ratio_to_floor"] = round(row["us_per_example"] / row["floor_us_per_example"], 3)
            row |= {"peak_memory_gib": None, "held_memory_gib": None, "steps": steps[method], "engine": loop.engine}
            if self.device.type == "cuda":
                row["peak_memory_gib"] = round(loop.peak / 2**30, 4)
                row["held_memory_gib"] = round(loop.held / 2**30, 4)
            rows.append(row)
        return rows


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--axes", type=listed(str), default=list(AXES), help=f"out of {','.join(AXES)}")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--side", type=int, default=32, help="pixels")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--batches", type=listed(int), default=[32, 64, 128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--sides", type=listed(int), default=[32, 64, 96, 128, 224])
    parser.add_argument("--class-counts", type=listed(int), default=[10, 100, 1_000, 10_000, 100_000])
    models = "resnet18@32,wrn28_10@32,resnet50@224,timm:vit_small_patch16_224@224"
    parser.add_argument("--models", type=listed(_sized), default=listed(_sized)(models), help="NAME@PIXELS")
    parser.add_argument("--runs", type=listed(int), default=[1, 4, 8, 16, 32, 64])
    parser.add_argument("--run-batch", type=int, default=32, help="of each of several runs")
    parser.add_argument("--team", type=int, default=8, help="runs in a joined network, at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.12, help="of one round")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no point after so many")
    parser.add_argument("--more", action="store_true", help="keep the record that is there; measure what it lacks")
    parser.add_argument("--out", type=Path, help="write the record here, as it grows")
    options = parser.parse_args(arguments)
    options.size, options.channels = options.side, 3  # as `problem_of` calls them
    start, device = time.perf_counter(), torch.device(options.device)
    record = head("rcad scaling", device)
    record |= {"precision": "bf16" if device.type == "cuda" else "fp32", "rows": [], "left_out": []}
    done: set[Point] = set()
    if options.more and options.out and options.out.is_file():
        before = json.loads(options.out.read_text())
        record["rows"] = [row for row in before["rows"] if "error" not in row]
        record["dates"] = [*before.get("dates", [before["date"]]), record["date"]]
        done = {Point(*(row[name] for name in Point._fields)) for row in record["rows"]}
    print_row(COLUMNS)
    with deterministic(False, device):
        bench = Bench(options)
        record["tflops_of_a_matrix_product"] = round(bench.rate / 1e12, 2)
        for point, axes in points_of(options).items():
            if point in done:
                continue
            if time.perf_counter() - start > 60 * options.minutes:
                record["left_out"].append({"axes": axes, **point._asdict()})
                continue
            rows = bench.rows(point, axes)
            for row in rows:
                print_row([*(row.get(key, "") for key in COLUMNS), row.get("error", "")])
            record["rows"] += rows
            record["seconds"] = round(time.perf_counter() - start, 1)
            print(f"{'':>14}  after {record['seconds']} s", flush=True)
            write(options.out, record)
    return record


def _sized(text: str) -> tuple[str, int]:
    name, _, side = text.rpartition("@")
    return name, int(side)


if __name__ == "__main__":
    main()
