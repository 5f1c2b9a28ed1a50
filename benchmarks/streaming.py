"""Images read from disk as they are needed, against the same images in memory and against torch's DataLoader.

    python benchmarks/streaming.py --out results/benchmarks/streaming_cpu.json --part loader
    python benchmarks/streaming.py --out results/benchmarks/streaming_h200.json --part step
    python benchmarks/streaming.py --part step --model resnet18 --size 64 --batch 16 --precision fp32   (a CPU)
    python benchmarks/streaming.py --part memory --shards DATA/tiny-imagenet \
        --out results/benchmarks/streaming_memory_cpu.json

The script makes its own images: JPEG files of 500 x 375 pixels, as large as ImageNet's, linked to as many names as are
needed. "loader": images a second out of `Stream.batches` and out of a DataLoader that decodes with the same function,
on as many workers as there are cores, in turns. "step": a training step with images streamed, in memory, and in memory
with the engine that a GPU takes by itself, and how many images a second the cores can decode, which bounds the first.
"memory": the largest memory of a run on class folders of the images in Parquet shards, and of one on 20 times as many
names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch
from common import head, write
from PIL import Image

from rcad.data.decoding import decode
from rcad.data.streams import Stream
from rcad.errors import cores
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.train.loop import Trainer
from rcad.train.machine import deterministic, pick_device, side_stream
from rcad.train.place import Place
from rcad.train.step import Streamed
from rcad.train.task import Reader, method_of, model_of, prepare

CLASSES, DISTINCT = 20, 256


def make_images(root: Path, count: int) -> None:
    """Class folders train/ and val/ of so many JPEG files; those beyond the distinct ones are links."""
    draw = np.random.default_rng(0)
    made = []
    (root / "distinct").mkdir(parents=True)
    for number in range(min(DISTINCT, count)):
        coarse = Image.fromarray(draw.integers(0, 255, (47, 63, 3), np.uint8)).resize(
            (500, 375), Image.Resampling.BICUBIC
        )
        noisy = np.asarray(coarse, np.int16) + draw.integers(-12, 13, (375, 500, 3), np.int16)
        made.append(root / "distinct" / f"{number}.jpg")
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(made[-1], quality=90)
    for split, images in (("train", count), ("val", CLASSES)):
        for number in range(images):
            path = root / "images" / split / f"class{number % CLASSES:02d}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(made[number % len(made)], path)


class Decoded(torch.utils.data.Dataset[torch.Tensor]):
    """What a DataLoader would read: the same files, the same decoding."""

    def __init__(self, paths: list[Path], size: int) -> None:
        self._paths, self._size = paths, size

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        path = self._paths[index]
        return torch.from_numpy(np.ascontiguousarray(decode(path.read_bytes(), str(path), self._size)))


def rate(batches: Iterator[Any], skip: int = 2) -> float:
    """Images a second, without the first batches: starting workers is not what is asked for."""
    for _ in range(skip):
        next(batches)
    start, images = time.perf_counter(), 0
    for batch in batches:
        images += len(batch)
    return images / (time.perf_counter() - start)


def loader(stream: Stream, folder: Path, size: int, batch: int, rounds: int) -> dict[str, Any]:
    paths = sorted((folder / "train").rglob("*.jpg"))
    ours, theirs, owns = [], [], []
    for number in range(rounds):  # in turns: a busy moment hits both
        order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(number))
        wanted = [part.numpy() for part in torch.split(order, batch)]
        own = time.process_time()
        ours.append(rate(stream.batches(wanted)))
        owns.append(1000 * (time.process_time() - own) / len(paths))
        sampler = [part.tolist() for part in torch.split(order, batch)]
        workers = {"num_workers": cores(), "prefetch_factor": 2}
        theirs.append(rate(iter(torch.utils.data.DataLoader(Decoded(paths, size), batch_sampler=sampler, **workers))))
        print(f"round {number + 1}: {ours[-1]:,.0f} images/s streamed, {theirs[-1]:,.0f} by a DataLoader", flush=True)
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {
        "images_per_second": round(median(ours), 1),
        "dataloader_images_per_second": round(median(theirs), 1),
        "ratio": round(median(ratios), 3),
        "ratios": [round(one, 3) for one in ratios],
        "ms_of_the_training_process_per_image": round(median(owns), 3),
    }


def step_ms(config: RunConfig, place: Place, steps: int) -> tuple[float, str, float]:
    """Milliseconds of a step inside an epoch, how it was taken, and how many of them the step waited for its images."""
    device, engine = place.resolve()
    waits: list[float] = []
    indexed = Streamed.__getitem__

    def timed(self: Streamed, index: torch.Tensor) -> torch.Tensor:
        start = time.perf_counter()
        images = indexed(self, index)
        waits.append(time.perf_counter() - start)
        return images

    problem = prepare(config, Reader(place)(config.data), device)
    with side_stream(device), deterministic(False, device):
        trainer = Trainer(config, problem, method_of(config, problem), model_of(config, problem), engine=engine)
        marks: list[float] = []

        def pause() -> bool:
            if len(marks) in (0, WARM, WARM + steps) and device.type == "cuda":
                torch.cuda.synchronize(device)
            marks.append(time.perf_counter())
            return len(marks) > WARM + steps

        with mock.patch.object(Streamed, "__getitem__", timed):
            trainer.fit(pause)
        waited = 1000 * sum(waits[WARM : WARM + steps]) / steps
        return 1000 * (marks[WARM + steps] - marks[WARM]) / steps, trainer.stepper.name, waited


def bound_by(row: dict[str, Any]) -> str:
    """What a streamed step waits for."""
    if row["streamed_to_memory"] <= 1.1:
        return "the step itself"
    if row["decoding_ms"] > row["ms"]["memory"]:
        return "decoding on these cores"
    return "handing the images over: decoding and the step are both faster"


WARM = 6
ONE_RUN = """
import json, resource, sys
from pathlib import Path
from rcad.data.decoders import shared_decoders
from rcad.runs.configure import configure
from rcad.train.place import Place
from rcad.train.run import run
root, where = Path(sys.argv[1]), Path(sys.argv[2])
settings = ["model.name=small_cnn", "model.width=8", "train.batch_size=128", "data.validation=0"]
settings.append("train.selection=last")
record = run(configure(str(root), [("erm", ())], epochs=1, settings=settings), Place.of(where, cache_dir=where,
    device="cpu", stream=True))
others = []
for one in shared_decoders(processes=True).started:
    others.append(int(Path(f"/proc/{one.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1e3)
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(json.dumps({"images": record.splits["train"].size,
    "training_process_mb": round(own, 1), "decoding_processes_mb": [round(mb, 1) for mb in others],
    "all_mb": round(own + sum(others), 1)}))
"""


def memory(shards: Path, root: Path, repeats: int) -> list[dict[str, Any]]:
    """Peaks of a run of one epoch on the images as they are, and on so many names of each."""
    import pyarrow.parquet as pq

    rows = []
    for times in (1, repeats):
        for split, name in (("train", "train"), ("val", "valid")):
            for file in sorted(shards.glob(f"{name}*.parquet")):
                table = pq.read_table(file).to_pydict()
                for number, (image, label) in enumerate(zip(table["image"], table["label"], strict=True)):
                    folder = root / str(times) / split / f"class{label:04d}"
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / f"{file.stem}-{number}.jpg").write_bytes(image["bytes"])
                    for copy in range(1, times if split == "train" else 1):
                        os.link(folder / f"{file.stem}-{number}.jpg", folder / f"{file.stem}-{number}-{copy}.jpg")
        command = [sys.executable, "-c", ONE_RUN, str(root / str(times)), str(root / f"runs{times}")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("loader", "step", "both", "memory"), default="both")
    parser.add_argument("--shards", type=Path, help="of --part memory: a folder of Parquet shards")
    parser.add_argument("--repeats", type=int, default=20, help="of --part memory")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--methods", default="erm,rcad")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = pick_device(arguments.device)
    size, batch = arguments.size, arguments.batch
    count = batch * (WARM + arguments.steps + 4)
    record = head("rcad streaming", device) | {"cores": cores()}
    if arguments.part == "memory":
        with tempfile.TemporaryDirectory() as folder:
            record["memory"] = memory(arguments.shards, Path(folder), arguments.repeats)
        return _write(arguments.out, record)
    record["images"] = {"files": count, "pixels": [500, 375], "size": size, "batch": batch}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        print(f"making {count:,} images", flush=True)
        make_images(root, count)
        settings = [f"data.size={size}", f"train.batch_size={batch}", f"train.precision={arguments.precision}"]
        settings += ["data.validation=0", "train.selection=last", f"model.name={arguments.model}"]
        settings += ["train.channels_last=true"] if device.type == "cuda" else []

        def config(method: str) -> RunConfig:
            # No alpha can be measured: every class has the same images.
            parameters = (("alpha", 0.5),) if method == "rcad" else ()
            return configure(str(root / "images"), [(method, parameters)], epochs=1, settings=settings)

        def place(**more: Any) -> Place:
            return Place.of(root / "runs", cache_dir=root / "cache", device=arguments.device, **more)

        stream = Reader(place(stream=True))(config("erm").data).train.x
        if arguments.part != "step":
            record["loader"] = loader(stream, root / "images", size, batch, arguments.rounds)
        if arguments.part != "loader":
            alone = rate(stream.batches(np.arange(first, first + batch) for first in range(0, count, batch)))
            record["decoding_images_per_second"] = round(alone, 1)
            record["steps"] = []
            for method in arguments.methods.split(","):
                ways = {"streamed": place(stream=True, engine="eager"), "memory": place(engine="eager")}
                ways |= {"memory, auto": place()} if device.type == "cuda" else {}
                found: dict[str, list[float]] = {way: [] for way in ways}
                waits: list[float] = []
                for _ in range(arguments.rounds):
                    for way, where in ways.items():
                        ms, engine, waited = step_ms(config(method), where, arguments.steps)
                        found[way].append(ms)
                        waits += [waited] if way == "streamed" else []
                        print(f"{method}, {way} ({engine}): {ms:.1f} ms a step", flush=True)
                row = {"method": method, "ms": {way: round(median(values), 2) for way, values in found.items()}}
                ratios = [s / m for s, m in zip(found["streamed"], found["memory"], strict=True)]
                row["streamed_to_memory"] = round(median(ratios), 3)
                row["decoding_ms"] = round(1000 * batch / alone, 2)
                row["waited_for_images_ms"] = round(median(waits), 2)
                row["bound_by"] = bound_by(row)
                record["steps"].append(row)
    return _write(arguments.out, record)


def _write(path: Path | None, record: dict[str, Any]) -> None:
    print(json.dumps(record, indent=1))
    write(path, record)


if __name__ == "__main__":
    main()
