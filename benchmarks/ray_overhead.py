"""What a Ray cluster costs over our own processes: the same tiny runs through both, in turns, on two cores.

    python benchmarks/ray_overhead.py --out results/benchmarks/ray_overhead_cpu.json [--runs 200] [--rounds 3]

In the first round both start their workers, torch's import included: that is the ratio. Later Ray has them still, as a
cluster does, and our processes start afresh. The cluster itself is up before, and how long that took is said apart.
Ray's workers are given the priority of any process: by default they step back behind others, which on a busy machine is
all that would be measured. Records must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from common import head, write

from rcad.errors import cores, need
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.store import Store
from rcad.train.cluster.on_ray import OnRay, connect
from rcad.train.place import Executor, Place
from rcad.train.processes import Processes
from rcad.train.scheduler import Backend, schedule


def seconds(configs: list[RunConfig], folder: Path, backend: Backend) -> tuple[float, list[dict[str, float | None]]]:
    place = Place(Store.open(folder), device="cpu")
    start = time.perf_counter()
    outcome = schedule(configs, place, backend=backend, notes=False)
    taken = time.perf_counter() - start
    assert outcome.complete
    return taken, [dict(record.metrics) for record in outcome.records]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    workers, executor = min(2, cores()), Executor()
    start = time.perf_counter()
    ray = connect(executor)
    up = time.perf_counter() - start
    own, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        draw = np.random.default_rng(0)
        np.savez(root / "arrays.npz", x=draw.integers(0, 255, (120, 8, 8), np.uint8), y=np.arange(120) % 3)
        settings = ["model.width=4", "train.batch_size=20"]
        configs = [
            configure(str(root / "arrays.npz"), [("rcad", ())], epochs=arguments.epochs, seed=seed, settings=settings)
            for seed in range(arguments.runs)
        ]
        for number in range(arguments.rounds):
            ours, first = seconds(configs, root / f"own{number}", Processes(workers))
            rays, second = seconds(configs, root / f"ray{number}", OnRay(executor))
            assert first == second, "records differ"
            own.append(ours)
            theirs.append(rays)
            ratio = f"ratio {rays / ours:.3f}"
            print(f"round {number + 1}: own processes {ours:.1f} s, Ray {rays:.1f} s, {ratio}", flush=True)
    ratios = [rays / ours for rays, ours in zip(theirs, own, strict=True)]
    record = head("rcad ray overhead", torch.device("cpu")) | {
        "device": f"CPU, {workers} workers of one thread",
        "ray": need("ray", "ray", "ray").__version__,
        "runs": arguments.runs,
        "epochs_of_a_run": arguments.epochs,
        "own_seconds": [round(seconds, 2) for seconds in own],
        "ray_seconds": [round(seconds, 2) for seconds in theirs],
        "ratios": [round(ratio, 3) for ratio in ratios],
        "ratio": round(ratios[0], 3),
        "ratio_with_warm_workers": round(median(ratios[1:] or ratios), 3),
        "start_of_the_cluster_seconds": round(up, 1),
    }
    ray.shutdown()
    print(json.dumps(record, indent=1))
    write(arguments.out, record)


if __name__ == "__main__":
    main()
