"""How long a training step takes, for every method, engine and number of runs at once, all measured in one go.

    python benchmarks/step_time.py                                     # what suits the device at hand
    python benchmarks/step_time.py --model small_cnn --size 8 --out results/benchmarks/cpu.json
    python benchmarks/step_time.py --batches 32 --methods erm,rcad --modes graph,compile --replicas 1,8,2x5

Steps are those of the engine: batches drawn on the device, crop and flip, passes, clipping, optimizer. Times of one
group (batch, mode, replicas) are taken in turns, so that ratios within it compare like with like. The floor is the
arithmetic of the method's passes at the rate of a large matrix product on this device, measured in the same run.
"2x5" stands for ten runs in two teams of five, each team one joined network. On a CPU only the ratios mean anything.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # heard only before CUDA starts

import torch
from common import head, in_turns, listed, print_row, wait, write
from step_jobs import CRITERIA, EPOCHS, METHODS, PASSES, Job, Layout, flops_of, problem_of, rate_of

from rcad.train.loop import Trainer
from rcad.train.machine import deterministic
from rcad.train.place import Engine
from rcad.train.task import model_of

ROUND_SECONDS = 0.25
"""How long a round of one job takes; twice as long for several runs, so that their last steps count little."""
SHARED = ("rcad reference", "rcad every=4")
"""Other methods that are timed at larger batches and among several runs."""
ASKED = (Layout(8, 1), Layout(2, 5))
"""Where more methods than two are timed among several runs."""
SHARING = {
    ("graph", 32): None,
    ("graph", 128): (*ASKED, Layout(4, 5)),
    ("graph", 512): (Layout(8, 1),),
    ("compile", 32): (Layout(4, 1),),
}
"""Which several runs at once are worth their time to build; none stands for all that are asked for."""


def growing(trainer: Trainer, erm_ms: float, batch: int) -> float:
    """Milliseconds per ERM step that ME-ADA takes over the paper's 200 epochs: more examples, and their making."""
    growth = trainer.method.growth
    assert growth is not None
    device, x, y = trainer.problem.device, *trainer.problem.train
    few = min(512, len(y))
    growth.grow(trainer.model, x[:few], y[:few])
    wait(device)
    start = time.perf_counter()
    growth.grow(trainer.model, x[:few], y[:few])
    wait(device)
    per_batch = (time.perf_counter() - start) * 1e3 * batch / few
    seen, made, size = 0.0, 0.0, 1.0
    for epoch in range(1, EPOCHS + 1):
        seen += size
        if growth.due(epoch):
            made, size = made + size, 2 * size
    return (seen * erm_ms + made * per_batch) / EPOCHS


def measure(
    options: argparse.Namespace, batch: int, mode: Engine, layout: Layout, floor: Callable[[str, int], float]
) -> list[dict[str, Any]]:
    """The rows of one group, their times taken in turns."""
    device = torch.device(options.device)
    gc.collect()  # the group before: its memory would be freed while this one's is measured
    replicas = layout.replicas
    longer = 1 if replicas == 1 else 2
    settings, problem = problem_of(options, batch, device, longer * options.steps * (options.rounds + 1))
    names = [
        name for name in options.methods if name != "me_ada" and (options.all or _worthwhile(name, batch, mode, layout))
    ]
    length: dict[str, Any] = {"seconds": longer * ROUND_SECONDS, "limit": longer * options.steps}
    jobs = [Job(name, settings, problem, mode, layout, **length) for name in names]
    rounds = in_turns([job.seconds for job in jobs], options.rounds)
    erm = names.index("erm")
    rows = []
    for index, job in enumerate(jobs):
        seconds = statistics.median(times[index] for times in rounds)
        ratio = statistics.median(times[index] / times[erm] for times in rounds)
        rows.append(_row(options, batch, job.method, mode, layout, seconds / replicas * 1e3, ratio))
        rows[-1]["engine"] = job.trainers[0].stepper.name
        rows[-1] |= {"peak_memory_gib": None, "held_memory_gib": None}  # known of GPUs alone
        if device.type == "cuda":
            rows[-1]["peak_memory_gib"] = round(job.peak / 2**30, 4)
            rows[-1]["held_memory_gib"] = round(job.held / 2**30, 4)
            rows[-1]["launch_ms_per_seed_step"] = round(job.launching * 1e3, 4)
        if job.method in CRITERIA and "rcad" in names:
            fused = names.index("rcad")
            rows[-1]["fused_over_this"] = round(statistics.median(times[fused] / times[index] for times in rounds), 4)
    if "me_ada" in options.methods and mode == "eager" and replicas == 1:
        base = rows[erm]["ms_per_seed_step"]
        grown = Job("me_ada", settings, problem, mode, layout, **length)
        ms = growing(grown.trainers[0], base, batch)
        rows.append(_row(options, batch, "me_ada", mode, layout, ms, ms / base))
        rows[-1] |= {"engine": "eager", "peak_memory_gib": None, "held_memory_gib": None}
    for row in rows:
        limit = floor(row["method"], batch)
        row["ratio_to_floor"] = round(row["ms_per_seed_step"] / limit, 3)
        print_row(row[key] for key in COLUMNS)
    return rows


COLUMNS = (
    "batch",
    "mode",
    "replicas",
    "joined",
    "method",
    "ms_per_seed_step",
    "ratio_to_erm",
    "ratio_to_floor",
    "peak_memory_gib",
)


def _row(
    options: argparse.Namespace, batch: int, method: str, mode: str, layout: Layout, ms: float, ratio: float
) -> dict[str, Any]:
    return {
        "model": options.model,
        "batch": batch,
        "method": method,
        "mode": mode,
        "replicas": layout.replicas,
        "joined": layout.joined,
        "ms_per_seed_step": round(ms, 4),
        "ratio_to_erm": round(ratio, 4),
    }


def _worthwhile(method: str, batch: int, mode: str, layout: Layout) -> bool:
    """Unless all are asked for: what takes long to compile or to build many times over is left out."""
    if method in ("erm", "rcad"):
        return True
    if layout.replicas > 1:
        return layout in ASKED and batch <= 32 and mode == "graph" and method in (*SHARED, "rcad_released")
    if batch > 32:
        return (mode != "compile" and method in SHARED) or (mode == "eager" and method in CRITERIA)
    if method == "rcad autograd":
        return mode == "eager"
    return mode != "compile"


def groups(options: argparse.Namespace) -> list[tuple[int, Engine, Layout]]:
    """Batch, mode, layout; several runs at once only where graphs let them overlap and batches leave room."""
    every = itertools.product(options.batches, options.modes, options.replicas)
    return [
        (batch, mode, layout)
        for batch, mode, layout in every
        if layout.replicas == 1 or (mode != "eager" and (options.all or _shares(batch, mode, layout)))
    ]


def _shares(batch: int, mode: str, layout: Layout) -> bool:
    worth = SHARING.get((mode, batch), ())
    return worth is None or layout in worth


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--model", default="resnet18" if gpu else "small_cnn")
    parser.add_argument("--size", type=int, default=32, help="pixels a side")
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--batches", type=listed(int), default=[32, 128, 512] if gpu else [32, 128])
    parser.add_argument("--methods", type=listed(str), default=list(METHODS))
    parser.add_argument("--modes", type=listed(str), default=["eager", "graph", "compile"] if gpu else ["eager"])
    layouts = "1,4,8,10,2x5,4x5,4x8" if gpu else "1"
    parser.add_argument("--replicas", type=listed(Layout.parse), default=listed(Layout.parse)(layouts))
    parser.add_argument("--steps", type=int, default=32 if gpu else 4)
    parser.add_argument("--rounds", type=int, default=5 if gpu else 9)
    parser.add_argument("--all", action="store_true", help="every method in every mode, which takes long")
    parser.add_argument("--out", type=Path, help="write the record here, as it grows")
    options = parser.parse_args(arguments)
    if "erm" not in options.methods:
        parser.error("expected erm among --methods, since ratios are to it")
    if len(options.modes) > 1:
        return mode_by_mode(options, sys.argv[1:] if arguments is None else arguments)
    device = torch.device(options.device)
    torch._dynamo.config.recompile_limit = 64  # every method and batch size is a graph of its own
    with deterministic(False, device):
        rate = rate_of(device)
        settings, problem = problem_of(options, 2, device)
        flops = flops_of(model_of(settings, problem).to(device), problem.train[0][:1].float() / 255)

        def floor(method: str, batch: int) -> float:
            """Milliseconds: a backward costs two forwards."""
            return 3 * flops * batch * PASSES.get(method, 1.0) / rate * 1e3

        record = head("rcad step times", device)
        record |= {
            "tflops_of_a_matrix_product": round(rate / 1e12, 2),
            "precision": settings.train.precision,
            "rows": [],
        }
        print_row(COLUMNS)
        for group in groups(options):
            record["rows"] += measure(options, *group, floor)
            write(options.out, record)
    return record


def mode_by_mode(options: argparse.Namespace, arguments: Sequence[str]) -> dict[str, Any]:
    """Each mode in a process of its own: which convolutions were found to be fastest is remembered by a process."""
    record: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for mode in options.modes:
            part = Path(folder, "part.json") if options.out is None else options.out.with_suffix(f".{mode}.json")
            command = [sys.executable, __file__, *arguments, "--modes", mode, "--out", str(part)]
            subprocess.run(command, check=True)
            found = json.loads(part.read_text())
            part.unlink()
            record = {**found, **record, "rows": [*record.get("rows", ()), *found["rows"]]}
            write(options.out, record)
    return record


if __name__ == "__main__":
    main()
