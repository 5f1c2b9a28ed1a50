"""How many images a second each corruption takes, at the size of CIFAR: the best of several rounds per severity.

    python benchmarks/corruptions.py [--threads 2] [--batch 256] [--rounds 7] [--device cpu] [--save FILE.json]

Prints a table with the slowest and the fastest severity of each, uint8 in and out; `--save` writes the record.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
from common import wait, write

from rcad.evaluate.corruptions import CORRUPTIONS, SEVERITIES, corrupt_numbered
from rcad.runs.record import versions


def pictures(count: int, device: torch.device) -> torch.Tensor:
    """Smooth random images (count, 3, 32, 32), uint8; only for shot noise does it matter what they show."""
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    fine = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic", align_corners=False)
    return (fine.clamp(0, 1) * 255).to(torch.uint8).to(device)


def seconds(x: torch.Tensor, name: str, severity: int, first: int) -> float:
    wait(x.device)
    start = time.perf_counter()
    corrupt_numbered(x, name, severity, seed=0, first=first)
    wait(x.device)
    return time.perf_counter() - start


def images_per_second(x: torch.Tensor, rounds: int) -> dict[str, list[int]]:
    """By corruption, the best rate at each severity. Each round goes through all, so that a busy moment hits all."""
    cells = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    for cell in cells:  # builds matrices and textures
        seconds(x, *cell, 0)
    best = dict.fromkeys(cells, float("inf"))
    for index in range(rounds):
        for cell in cells:
            best[cell] = min(best[cell], seconds(x, *cell, index * len(x)))
    return {name: [round(len(x) / best[name, severity]) for severity in SEVERITIES] for name in CORRUPTIONS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    rates = images_per_second(pictures(options.batch, device), options.rounds)
    print(f"{'corruption':<20}{'slowest':>10}{'fastest':>10}   images a second")
    for name, values in rates.items():
        print(f"{name:<20}{min(values):>10,}{max(values):>10,}")
    record = {
        "what": "images a second by severity, 32 x 32 x 3 uint8, best of rounds",
        "images_per_second": rates,
        "batch": options.batch,
        "rounds": options.rounds,
        "threads": options.threads,
        "load_average": round(os.getloadavg()[0], 1),  # of other processes too: rates are lower on a busy machine
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    write(options.save, record)


if __name__ == "__main__":
    main()
