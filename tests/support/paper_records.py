"""Records as the suites write them, small and made up, with whatever can go wrong in them."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rcad.paper.claims import IMAGE_RULE as RULE
from rcad.paper.record import Study
from rcad.paper.run import Outcome, make_suite
from rcad.paper.suite import Order
from rcad.runs.config import ModelConfig
from rcad.runs.recipes import RECIPES
from rcad.runs.record import RunRecord
from rcad.study.statistics import paired
from rcad.train.progress import SILENT

EVIL = "<script>alert('a')</script> & $x_1$ 100% | 猫"
ROWS = ("ERM", "FGSM", "RCAD", "random direction")
LEVELS = {"ERM": 60.0, "FGSM": 58.0, "RCAD": 63.0, "random direction": 60.5}
WOBBLE = (0.0, 0.5, -0.4, 0.3, -0.2)


def value(row: str, column: str, seed: int) -> float:
    """Accuracy in percent: a level for the row, a shift for the column, a wobble for the seed."""
    level = LEVELS.get(row, 55.0 + len(row) % 7)
    return level + len(column) + WOBBLE[seed % 5] * (1.0 if row == "ERM" else 1.3) + 0.05 * (seed % 2)


def run(row: str, column: str, seed: int, *, diverged: bool) -> dict[str, Any]:
    score = value(row, column, seed)
    numbers = {"accuracy": score, "nll": 2 - score / 100, "brier": 0.4, "ece": None}
    status, metrics = ("diverged", dict.fromkeys(numbers)) if diverged else ("done", numbers)
    identity = {"id": f"{sum(map(ord, row + column)) * 8 + seed:016x}", "seed": seed}
    return {**identity, "status": status, "metrics": metrics, "seconds": 20.0 if row == "RCAD" else 10.0}


def claim(where: str, statement: str, verdict: str, gain: Sequence[float] | None = None, **more: Any) -> dict[str, Any]:
    test = None if gain is None else paired(gain, [0.0] * len(gain)).to_dict()
    p = None if test is None else test["p_greater"]
    base = {"gain": test, "published": 1.5, "p_holm": p, "p_reverse_holm": p and 1.0, "note": ""}
    return {"where": where, "statement": statement, "verdict": verdict, **base, **more}


def suite(
    target: str = "T4",
    *,
    rows: Sequence[str] = ROWS,
    columns: Sequence[str] = ("n=500", "n=1,000", "n=50,000"),
    seeds: int = 4,
    published: bool = True,
    absent: Sequence[tuple[str, str]] = (),
    diverged: Sequence[tuple[str, str, int]] = (),
    **more: Any,
) -> dict[str, Any]:
    """A suite's record; every cell but the `absent` ones has runs."""
    cells = []
    for column, row in itertools.product(columns, rows):
        if (row, column) not in absent:
            printed = {"mean": value(row, column, 0) + 1, "half": 0.12, "n": 10}
            runs = [run(row, column, k, diverged=(row, column, k) in diverged) for k in range(seeds)]
            shown = printed if published and row in ("ERM", "RCAD") else None
            cells.append({"row": row, "column": column, "published": shown, "runs": runs})
    words = {"title": f"made up, {target}", "about": "A record for tests.", "rule": RULE, "notes": ["A note."]}
    made = {"protocol": "one view", "seconds": 12.5, "versions": {"rcad": "0.1.0", "torch": "2.13.0+cpu"}}
    controls = [row for row in rows if row == "random direction"]
    study = Study(target, rows=rows, columns=columns, controls=controls, **words, **made)
    return {**study.to_dict(), "cells": cells, **more}


def verdicts() -> list[dict[str, Any]]:
    more = "RCAD is more accurate than"
    return [
        claim("n=500", f"{more} ERM", "reproduced", (2.0, 2.4, 1.9, 2.2)),
        claim("n=500", f"{more} FGSM", "not reproduced", (0.1, -0.2, 0.0, 0.2)),
        claim("n=1,000", f"{more} ERM", "opposite", (-2.0, -2.4, -1.9, -2.2)),
        claim("n=1,000", f"{more} FGSM", "undecided", (3.0, -2.0, 1.0, 4.0)),
        claim("n=50,000", f"{EVIL} is more accurate", "undecided", note="a run diverged"),
    ]


def series(name: str, panel: str, x: Sequence[float | str], **more: Any) -> dict[str, Any]:
    y = [[50.0 + len(name) + k + shift for shift in (0.0, 0.4, -0.3)] for k, _ in enumerate(x)]
    return {"name": name, "panel": panel, "x": list(x), "y": y, "published": [None] * len(x), **more}


def images() -> dict[str, Any]:
    pixels = [[[[[(40 * a + 20 * i + j) % 256 for j in range(4)] for i in range(4)]] * 3 for a in range(3)]] * 2
    entropy = {"alphas": [0.0, 0.5, 5.0], "entropy": [[0.1, 0.5, 2.0]] * 2}
    return {"run": "x", "labels": ["cat", EVIL], **entropy, "pixels": pixels}


def benchmark() -> dict[str, Any]:
    same = {"model": "resnet18", "batch": 32, "replicas": 1, "ratio_to_floor": 3.0, "peak_memory_gib": None}
    ratios = {"erm": 1.0, "rcad": 1.9, "me_ada": 3.5}
    rows = [
        {**same, "method": method, "mode": mode, "ms_per_seed_step": ratio, "ratio_to_erm": ratio}
        for mode, (method, ratio) in itertools.product(("eager", "graph"), ratios.items())
    ]
    return {"kind": "rcad step times", "device": "a made-up GPU", "torch": "2.13", "date": "2026-11-15", "rows": rows}


def run_record(seed: int, accuracy: float, name: str = "digits") -> dict[str, Any]:
    """A finished run of RCAD on a network with GroupNorm."""
    recipe = replace(RECIPES["paper"], model=ModelConfig(name="resnet18", norm="group"))
    times = {"started": "2026-11-15T05:00:00+00:00", "finished": "2026-11-15T05:00:05+00:00"}
    metrics = {"test_accuracy": accuracy, "test_nll": 1.0, "val_accuracy": 99.0}
    made = {"timings": {"train_seconds": 5.0}, "device": "a made-up GPU", "versions": {"torch": "2.13"}}
    config = recipe.config(name, [("rcad", {"alpha": 1.0})], seed)
    return RunRecord(config=config, status="done", metrics=metrics, **times, **made).to_dict()


def put_run(folder: Path, store: str, record: Mapping[str, Any]) -> str:
    put(folder, record, f"{store}/{record['id']}/record.json")
    return str(record["id"])


def put(folder: Path, record: Mapping[str, Any], path: str | None = None) -> Path:
    """Write a record where a suite would."""
    file = folder / (path or f"{record['target']}/{record['target']}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record))
    return file


def silent(*words: object) -> None: ...


def order(name: str, out: Path = Path(), **options: Any) -> Order:
    """A suite on the CPU: a trial with three seeds unless the options say otherwise."""
    usual = {"scale": "smoke", "views": "one view", "seeds": range(3), "device": "cpu", "workers": 1}
    return Order(**{**usual, "name": name, "out": out, **options})


def make(ordered: Order) -> Outcome:
    """The suite's files, all of its runs done."""
    outcome = make_suite(ordered, SILENT, silent)
    assert isinstance(outcome, Outcome)
    return outcome
