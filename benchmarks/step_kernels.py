"""Which kernels a step spends its time in; on a CPU, which operators.

    python benchmarks/step_kernels.py --method rcad --mode graph --replicas 1x5 --batch 32
    python benchmarks/step_kernels.py --method "rcad reference" --batch 512 --out kernels.txt

One line for each: microseconds and launches of one step of all runs, the largest first. Kernels of several runs overlap
on a GPU, so the total may be more than the step takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from step_jobs import METHODS, Job, Layout, problem_of
from torch.profiler import ProfilerActivity, profile

from rcad.train.machine import deterministic, device_words

STEPS = 8


def kernels(job: Job, device: torch.device) -> list[tuple[float, float, str]]:
    """Microseconds and launches per step, and the name."""
    gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as seen:
        job.run(STEPS)
    rows = [
        ((event.self_device_time_total if gpu else event.self_cpu_time_total) / STEPS, event.count / STEPS, event.key)
        for event in seen.key_averages()
    ]
    return sorted((row for row in rows if row[0] > 0), reverse=True)


def main(arguments: Sequence[str] | None = None) -> None:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=[name for name in METHODS if name != "me_ada"], default="rcad")
    parser.add_argument("--mode", choices=["eager", "graph", "compile"], default="graph" if gpu else "eager")
    parser.add_argument("--replicas", type=Layout.parse, default=Layout(1, 1))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--model", default="resnet18" if gpu else "small_cnn")
    parser.add_argument("--size", type=int, default=32, help="pixels a side")
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--lines", type=int, default=60, help="how many to write")
    parser.add_argument("--out", type=Path, help="write them here as well")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    with deterministic(False, device):
        settings, problem = problem_of(options, options.batch, device, 4 * STEPS)
        job = Job(options.method, settings, problem, options.mode, options.replicas, seconds=0.1, limit=4)
        rows = kernels(job, device)
    runs = f"runs {options.replicas.teams}x{options.replicas.joined}"
    total = sum(time for time, _, _ in rows)
    lines = [
        f"{device_words(device)}, {options.model}, batch {options.batch}, {options.method}, {options.mode}, {runs}"
    ]
    lines.append(f"us per step {total:.1f}, launches per step {sum(count for _, count, _ in rows):.0f}")
    lines += [f"{time:9.1f} {count:6.1f}  {name[:150]}" for time, count, name in rows[: options.lines]]
    print("\n".join(lines))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
