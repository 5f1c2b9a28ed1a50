"""Decoding to the cache against a bare Pillow loop over the same bytes on the same cores, in one run.

    python benchmarks/decode.py path/to/cifar100 [--repeats 3]

The bare loop is given every advantage: its bytes are already in memory, its processes are started before the clock
and it keeps nothing. Ours reads and hashes the shards, starts its processes, writes, hashes and syncs the cache.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import threading
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from rcad.data.image_parquet import IMAGE_COLUMNS, find_shards, load


def encoded_images(folder: Path) -> list[bytes]:
    images: list[bytes] = []
    for shard in (shard for shards in find_shards(folder).values() for shard in shards):
        table = pq.read_table(shard)
        column = next(table[name] for name in IMAGE_COLUMNS if name in table.column_names)
        images += [value for chunk in column.chunks for value in chunk.field("bytes").to_pylist()]
    return images


def bare_loop(images: list[bytes], start: Barrier, end: Barrier) -> None:
    start.wait()
    for data in images:
        np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    end.wait()


def time_bare(images: list[bytes], cores: int) -> float:
    context = get_context("fork")  # inherits the bytes instead of sending them
    start, end = context.Barrier(cores + 1), context.Barrier(cores + 1)
    processes = [context.Process(target=bare_loop, args=(images[i::cores], start, end)) for i in range(cores)]
    for process in processes:
        process.start()
    start.wait()
    began = time.perf_counter()
    end.wait()
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return seconds


def time_cache(folder: Path) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as cache:
        began = time.perf_counter()
        load(str(folder), cache_dir=Path(cache))
        built = time.perf_counter()
        load(str(folder), cache_dir=Path(cache))
        return built - began, time.perf_counter() - built


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder of image Parquet shards")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    images = encoded_images(arguments.folder)
    assert threading.active_count() == 1, "forking needs a process without threads"
    bare, build, reopen = [], [], []
    for _ in range(arguments.repeats):  # alternating, so that a busy moment hits both
        bare.append(time_bare(images, cores))
        built, opened = time_cache(arguments.folder)
        build.append(built)
        reopen.append(opened)
    print(f"{len(images):,} images, {cores} cores, median of {arguments.repeats}")
    print(f"bare Pillow loop   {median(bare):6.2f} s   {' '.join(f'{s:.2f}' for s in bare)}")
    print(f"decode to cache    {median(build):6.2f} s   {' '.join(f'{s:.2f}' for s in build)}")
    print(f"ratio              {median(b / a for a, b in zip(bare, build, strict=True)):6.2f}")
    print(f"open the cache     {median(reopen):6.4f} s")


if __name__ == "__main__":
    main()
