"""The figures that the next floor is about, each beside its goal, and the trials that might reach them. Needs a GPU.

    python benchmarks/floor.py --data-dir DATA --minutes 5 --out results/benchmarks/floor_h200.json
    python benchmarks/floor.py --parts start_up --data-dir DATA --start-up results/benchmarks/start_up_h200.json
    python benchmarks/floor.py --trial search --limits 10,3,1 --out results/benchmarks/trials/search_limits.json
    python benchmarks/floor.py --trial teams --replicas 8x2,4x3 --out results/benchmarks/trials/teams_128.json

Parts: `steps`, milliseconds per seed-step of joined runs (one minute); `rcad_2k` and `erm_2k`, ten seeds of
CIFAR-100-2k joined by five, from the command to the last record; `whole`, one seed of CIFAR-100; `start_up`, four teams
of five at batches of 128, from the command to the first step of the last. Where fewer than 200 epochs are run
(`--epochs`), the seconds for 200 are what those took and the others at the pace of the later half: the row says so.
Trials: `search`, fewer convolution algorithms tried at start-up; `teams`, other numbers of joined runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # heard only before CUDA starts

import torch
from common import head, in_a_line, listed, wait, write
from step_jobs import Job, Layout, problem_of

from rcad.train import cuda_graph
from rcad.train.machine import deterministic
from rcad.train.place import Engine

EPOCHS = 200
RCAD = "rcad(alpha=1.0, lam=0.1)"
HALF = ("--set", "train.precision=bf16", "--set", "train.channels_last=true")
TEN = ("--data", "cifar100[:2000]", "--recipe", "paper-2k", "--seeds", "10", "--join", "5", *HALF)
COMMANDS = {
    "rcad_2k": (*TEN, "--method", RCAD),
    "erm_2k": (*TEN, "--method", "erm"),
    "whole": ("--data", "cifar100", "--recipe", "paper", "--method", RCAD, *HALF),
}
STEPS = {"rcad 128": ("4x5", 3.0), "erm 128": ("4x5", None), "rcad 32": ("4x8", 0.95), "erm 32": ("4x8", 0.5)}
GOALS = {"rcad_2k": 150.0, "erm_2k": 90.0, "whole": 250.0, "start_up": 25.0}
PARTS = ("steps", "start_up", "whole", "erm_2k", "rcad_2k")
TEAMS, JOINED, BATCH = 4, 5, 128
Rows = Iterator[dict[str, Any]]
_TIMES = re.compile(
    r"times: (?P<stage>[\w-]+) (?P<seconds>[\d.]+) s, (?P<after>[\d.]+) s after the start, of (?P<of>.+)"
)


def steps(options: argparse.Namespace) -> Rows:
    """Milliseconds per seed-step of joined runs; each batch size in a process of its own."""
    for batch in sorted({int(name.split()[1]) for name in STEPS}, reverse=True):
        layout = "1" if options.device == "cpu" else STEPS[f"rcad {batch}"][0]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "steps.json")
            command = [*_smaller(options), "--batches", str(batch), "--methods", "erm,rcad", "--replicas", layout]
            command += ["--modes", "eager" if options.device == "cpu" else "graph", "--all", "--out", str(out)]
            script = Path(__file__).with_name("step_time.py")
            subprocess.run([sys.executable, str(script), *command], check=True)
            found = json.loads(out.read_text())["rows"]
        for row in found:
            yield {"part": "steps", "goal": STEPS[f"{row['method']} {batch}"][1], **row}


def _smaller(options: argparse.Namespace) -> list[str]:
    if options.device != "cpu":
        return ["--device", options.device]
    small = {"--model": "small_cnn", "--size": "8", "--classes": "3", "--steps": "4", "--rounds": "1"}
    return ["--device", "cpu", *(word for pair in small.items() for word in pair)]


def command_of(part: str, options: argparse.Namespace) -> list[str]:
    """The words of `rcad train`; on a CPU, where only the script itself is tried, digits stand for images."""
    if options.device == "cpu":
        method = "erm" if part == "erm_2k" else "rcad"
        return ["--data", "digits[:100]", "--method", method, "--seeds", "2", "--device", "cpu"]
    return [*COMMANDS[part], *([] if options.data_dir is None else ["--data-dir", str(options.data_dir)])]


def _shown(words: Sequence[str], options: argparse.Namespace) -> str:
    """The command without a path of this machine."""
    return " ".join("DATA" if word == str(options.data_dir) else word for word in words)


def whole_run(part: str, options: argparse.Namespace) -> Rows:
    """Seconds from the command to its end, with as many epochs as there is time for."""
    epochs = options.epochs_whole if part == "whole" else options.epochs
    words = [*command_of(part, options), "--epochs", str(epochs)]
    with tempfile.TemporaryDirectory() as folder:
        seconds, _ = _train([*words, "--runs", folder])
        records = [json.loads(path.read_text()) for path in Path(folder).glob("*/record.json")]
    paces = [row["seconds"] for record in records for row in record["epochs"][len(record["epochs"]) // 2 :]]
    pace = statistics.median(paces)
    row = {"part": part, "goal": GOALS[part], "command": _shown(words, options), "epochs": epochs}
    row |= {"command_seconds": round(seconds, 2), "seconds_an_epoch": round(pace, 4), "records": len(records)}
    row |= {"seconds_for_200_epochs": round(seconds + (EPOCHS - epochs) * pace, 1), "extrapolated": epochs < EPOCHS}
    yield row | {"engine": records[0]["resolved"].get("engine")}


def start_up(options: argparse.Namespace) -> Rows:
    """When the first step of the last of four teams was done, counted from the command; every stage by the clock."""
    method = ["--method", RCAD, "--seeds", str(TEAMS * JOINED), "--join", str(JOINED), "--epochs", "2"]
    data = ["--data", "cifar100[:2000]", "--recipe", "paper", "--batch-size", str(BATCH), *HALF]
    data += [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]
    words = [*command_of("rcad_2k", options), "--epochs", "1"] if options.device == "cpu" else [*data, *method]
    with tempfile.TemporaryDirectory() as folder:
        seconds, lines = _train([*words, "--runs", folder])
    stages = [
        {"stage": found["stage"], "seconds": float(found["seconds"]), "ended": round(at, 2), "of": found["of"]}
        for at, line in lines
        if (found := _TIMES.search(line))
    ]
    firsts = [s["ended"] for s in stages if s["stage"] == "search" and f"batches ({BATCH},)" in s["of"]]
    row = {"part": "start_up", "goal": GOALS["start_up"], "command": _shown(words, options), "command_seconds": seconds}
    row |= {"teams": len(firsts), "first_step_of_last_team": max(firsts, default=None)}
    row |= {"first_data": min((s["ended"] for s in stages if s["stage"] == "data"), default=None), "stages": stages}
    yield row


def _train(words: Sequence[str]) -> tuple[float, list[tuple[float, str]]]:
    """Runs `rcad train`; its seconds, and its lines with the seconds after which they came."""
    start, lines = time.perf_counter(), []
    command = [sys.executable, "-u", "-m", "rcad.cli", "train", *words]
    environment = {**os.environ, "RCAD_TIMES": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append((time.perf_counter() - start, line.rstrip()))
            print(f"  {lines[-1][0]:7.1f} s  {lines[-1][1]}", flush=True)
    if child.returncode:
        raise RuntimeError(f"rcad train ended with {child.returncode}: {lines[-1][1] if lines else ''}")
    return round(time.perf_counter() - start, 2), lines


def _problem(options: argparse.Namespace, batch: int) -> Any:
    cpu = options.device == "cpu"
    like = argparse.Namespace(model="resnet18", size=8 if cpu else 32, channels=3, classes=3 if cpu else 100)
    return problem_of(like, 2 if cpu else batch, torch.device(options.device), 64 * (options.rounds + 2))


def _job(method: str, settings: Any, problem: Any, device: torch.device, layout: Layout) -> Job:
    mode: Engine = "graph" if device.type == "cuda" else "eager"
    return Job(method, settings, problem, mode, layout, seconds=0.4 if device.type == "cuda" else 0.01, limit=64)


def teams(options: argparse.Namespace) -> Rows:
    """Other numbers of joined runs."""
    device = torch.device(options.device)
    settings, problem = _problem(options, options.batch)
    for layout in options.replicas:
        for method in ("rcad", "erm"):
            start = time.perf_counter()
            job = _job(method, settings, problem, device, layout)
            row = {
                "trial": "teams",
                "method": method,
                "batch": options.batch,
                "layout": f"{layout.teams}x{layout.joined}",
            }
            row |= {"building_seconds": round(time.perf_counter() - start, 2), "engine": job.trainers[0].stepper.name}
            gc.collect()
            ms = statistics.median(job.seconds() for _ in range(options.rounds)) / layout.replicas * 1e3
            yield row | {"ms_per_seed_step": round(ms, 4), "held_memory_gib": round(job.held / 2**30, 3)}


def search(options: argparse.Namespace) -> Rows:
    """Start-up and step with so many convolution algorithms tried (0: all), each in a process of its own."""
    for limit in options.limits:
        command = [sys.executable, __file__, "--device", options.device, "--search-limit", str(limit)]
        command += ["--batch", str(options.batch), "--rounds", str(options.rounds)]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        row = {"trial": "search", "limit": limit, "process_seconds": round(time.perf_counter() - start, 2)}
        if done.returncode:
            row["error"] = (done.stderr.strip().splitlines() or ["no words"])[-1][:300]
        else:
            row |= json.loads(done.stdout.strip().splitlines()[-1])
        yield row


def search_with(options: argparse.Namespace) -> dict[str, Any]:
    """One team of five with this limit: seconds of the first step, with the search, and of a step afterwards."""
    device, took = torch.device(options.device), []

    @contextmanager
    def limited() -> Iterator[None]:
        before = torch.backends.cudnn.benchmark_limit
        if before is not None:
            torch.backends.cudnn.benchmark_limit = options.search_limit
        wait(device)
        start = time.perf_counter()
        try:
            yield
        finally:
            wait(device)
            took.append(time.perf_counter() - start)
            if before is not None:
                torch.backends.cudnn.benchmark_limit = before

    usual, cuda_graph._all_convolutions = cuda_graph._all_convolutions, limited
    layout = Layout(1, JOINED)
    try:
        with deterministic(False, device):
            settings, problem = _problem(options, options.batch)
            job = _job("rcad", settings, problem, device, layout)
            ms = statistics.median(job.seconds() for _ in range(options.rounds)) / layout.replicas * 1e3
    finally:
        cuda_graph._all_convolutions = usual
    first = round(took[0], 2) if took else None
    return {"batch": options.batch, "first_step_seconds": first, "ms_per_seed_step": round(ms, 4)}


MAKERS: dict[str, Callable[[argparse.Namespace], Rows]] = {"steps": steps, "start_up": start_up}
MAKERS |= {name: lambda options, name=name: whole_run(name, options) for name in COMMANDS}  # type: ignore[misc]
TRIALS = {"search": search, "teams": teams}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", type=listed(str), default=list(PARTS), help=f"out of {','.join(PARTS)}")
    parser.add_argument("--trial", choices=list(TRIALS), help="a trial instead of the parts")
    parser.add_argument("--data-dir", type=Path, help="the folder that holds cifar100")
    parser.add_argument("--epochs", type=int, default=20, help="of CIFAR-100-2k; 200 is the whole run")
    parser.add_argument("--epochs-whole", type=int, default=4, help="of CIFAR-100; 200 is the whole run")
    parser.add_argument("--batch", type=int, default=BATCH, help="of trials")
    parser.add_argument("--replicas", type=listed(Layout.parse), default=[Layout(TEAMS, JOINED)], help="of trials")
    parser.add_argument("--limits", type=listed(int), default=[10, 3, 1], help="of the trial `search`; 0 tries all")
    parser.add_argument("--search-limit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no part after so many")
    parser.add_argument("--start-up", type=Path, help="write the start-up's row here as a record of its own")
    parser.add_argument("--out", type=Path, help="write the record here, as it grows")
    options = parser.parse_args(arguments)
    if options.search_limit is not None:
        found = search_with(options)
        print(json.dumps(found))
        return found
    device, start = torch.device(options.device), time.perf_counter()
    record: dict[str, Any] = {**head("rcad floor", device), "rows": []}
    makers = {options.trial: TRIALS[options.trial]} if options.trial else {name: MAKERS[name] for name in options.parts}

    def keep(row: dict[str, Any]) -> None:
        print({key: value for key, value in row.items() if key != "stages"}, flush=True)
        record["rows"].append(row)
        record["seconds"] = round(time.perf_counter() - start, 1)
        write(options.out, record)
        if row.get("stages"):
            write(options.start_up, {**head("rcad start-up", device), **row})

    for name, make in makers.items():
        if time.perf_counter() - start > 60 * options.minutes:
            keep({"part": name, "error": "no time was left"})
            continue
        print(f"{name}:", flush=True)
        try:
            with deterministic(False, device):
                for row in make(options):
                    keep(row)
        except Exception as error:  # data that are not there, no memory: the others go on
            keep({"part": name, "error": in_a_line(error)})
    return record


if __name__ == "__main__":
    main()
