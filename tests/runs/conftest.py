import subprocess
import sys
from contextlib import contextmanager

from rcad.runs.recipes import RECIPES
from rcad.runs.record import RunRecord

STARTED, FINISHED = "2024-01-31T12:00:00+00:00", "2024-01-31T12:30:00+00:00"
CONFIG = RECIPES["paper"].config("cifar100[:2000]", [("rcad", {"alpha": 0.5, "lam": 0.02})], seed=3)


def make_record(seed=0, **options):
    values = {
        "config": RECIPES["small"].config("digits", [("rcad", {"alpha": 0.5})], seed=seed),
        "status": "done",
        "started": STARTED,
        "finished": FINISHED,
        "splits": {"train": {"size": 100, "sha256": "a" * 64}},
        "epochs": [{"epoch": 0, "loss": 1.5}, {"epoch": 1, "loss": 1.25}],
        "metrics": {"accuracy": 0.875, "nll": 0.25},
        "timings": {"train_s": 2.5},
        "peak_memory_bytes": 1024,
        "device": "cpu",
        "versions": {"python": "3.11.7"},
    }
    return RunRecord(**{**values, **options})


TAKE = """
import os, sys, time
from pathlib import Path
from rcad.runs.locks import RunLock
lock = RunLock(Path(sys.argv[1]), "r")
"""
HOLD = TAKE + "print('held', flush=True); time.sleep(60)"


@contextmanager
def started(program, path):
    """The program and its first line; it is killed at the end."""
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
