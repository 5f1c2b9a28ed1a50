"""Our attacks beside those of other packages: the same models, radii, steps and restarts; and what PGD costs.

    python benchmarks/attacks.py [--data digits | "cifar100[:2000]"] [--data-dir DIR] [--out results/attacks]

Trains a small convnet twice, plainly and on attacked examples, then runs ours and theirs on the test images. Prints
a table, and writes comparison.json and comparison.md (with another name for other data). Packages that are not
installed are left out and named. torchattacks and ART declare torchvision, but these parts run without it: install
them with `pip install --no-deps torchattacks adversarial-robustness-toolbox six tqdm`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import logging
import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rcad.data.dataset import Dataset, parse_spec, resolve
from rcad.data.registry import load
from rcad.evaluate.attacks import APGD, FGSM, PGD, Attack
from rcad.models import build
from rcad.runs.files import write_text
from rcad.runs.record import commit, versions

PACKAGES = {"pyautoattack": "pyautoattack", "torchattacks": "torchattacks", "art": "adversarial-robustness-toolbox"}
RADII = {
    "digits": {"linf": (0.05, 0.1), "l2": (0.3, 0.6)},
    "cifar100": {"linf": (1 / 255, 2 / 255), "l2": (0.1, 0.2)},
}
TRAINING_EPS = {"digits": 0.1, "cifar100": 4 / 255}
# (steps, restarts)
PGD_BUDGETS, APGD_BUDGETS = ((20, 1), (20, 3)), ((20, 1), (50, 1))
TOLERANCE = 0.5
SEEDS = 5
BATCH = 256

Run = Callable[[Tensor, Tensor], Tensor]
Made = Callable[[int], Run]


def trained(x: Tensor, y: Tensor, classes: int, epochs: int, attack: Attack | None) -> nn.Module:
    torch.manual_seed(0)
    net = build("small_cnn", num_outputs=classes, in_shape=tuple(x.shape[1:]), width=16)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            batch = x[rows] if attack is None else attack.perturb(net, x[rows], y[rows])
            optimizer.zero_grad()
            cross_entropy(net(batch), y[rows]).backward()
            optimizer.step()
    return net.eval()


def survivors(net: nn.Module, made: Made, x: Tensor, y: Tensor, restarts: int = 1) -> tuple[list[float], float]:
    """Percent that an attack leaves, by seed, and the seconds of one; `restarts` are those it does not make itself."""
    start = time.perf_counter()
    found = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (ART draws from it)
        run = made(seed)
        with torch.no_grad():
            right = net(x).argmax(1) == y
        for _ in range(restarts):
            for part in torch.split(right.nonzero().squeeze(1), BATCH):
                moved = run(x[part], y[part])
                with torch.no_grad():
                    right[part] = net(moved).argmax(1) == y[part]
        found.append(100 * right.double().mean().item())
    return found, (time.perf_counter() - start) / SEEDS


def theirs_pgd(name: str, net: nn.Module, eps: float, norm: str, steps: int, restarts: int, classes: int) -> Run:
    size = 2.5 * eps / steps
    if name == "torchattacks":
        import torchattacks

        kind = torchattacks.PGD if norm == "linf" else torchattacks.PGDL2
        return kind(net, eps=eps, alpha=size, steps=steps, random_start=True)  # type: ignore[no-any-return]
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    def run(x: Tensor, y: Tensor) -> Tensor:
        model = PyTorchClassifier(net, nn.CrossEntropyLoss(), tuple(x.shape[1:]), classes, clip_values=(0.0, 1.0))
        attack = ProjectedGradientDescentPyTorch(
            model,
            norm=np.inf if norm == "linf" else 2,
            eps=eps,
            eps_step=size,
            max_iter=steps,
            num_random_init=restarts,
            batch_size=BATCH,
            verbose=False,
        )
        return torch.from_numpy(attack.generate(x.numpy(), y.numpy()))

    return run


def theirs_apgd(net: nn.Module, eps: float, norm: str, steps: int, restarts: int, loss: str, seed: int) -> Run:
    from pyautoattack.autopgd_base import APGDAttack

    attack = APGDAttack(
        net,
        n_iter=steps,
        norm={"linf": "Linf", "l2": "L2"}[norm],
        n_restarts=restarts,
        eps=eps,
        seed=seed,
        loss=loss,
        device="cpu",
        logger=logging.getLogger("quiet"),
    )
    return attack.perturb  # type: ignore[no-any-return]


def ours(attack: Attack, net: nn.Module) -> Made:
    def made(seed: int) -> Run:
        generator = torch.Generator().manual_seed(seed)
        return lambda x, y: attack.perturb(net, x, y, generator)

    return made


def compared(net: nn.Module, name: str, x: Tensor, y: Tensor, radii: dict[str, Any], here: list[str]) -> list[Any]:
    rows = []
    classes = int(net(x[:1]).shape[1])
    for norm in ("linf", "l2"):
        for eps in radii[norm]:
            for steps, restarts in PGD_BUDGETS:
                found = {"ours": survivors(net, ours(PGD(eps, norm, steps=steps, restarts=restarts), net), x, y)}
                for package in ("torchattacks", "art"):
                    if package in here:
                        run = theirs_pgd(package, net, eps, norm, steps, restarts, classes)
                        again = restarts if package == "torchattacks" else 1
                        found[package] = survivors(net, lambda seed, run=run: run, x, y, again)
                rows.append(row(name, "PGD", norm, eps, steps, restarts, found))
            for loss in ("ce", "dlr"):
                for steps, restarts in APGD_BUDGETS:
                    attack = APGD(eps, norm, steps=steps, restarts=restarts, loss=loss)
                    found = {"ours": survivors(net, ours(attack, net), x, y)}
                    if "pyautoattack" in here:
                        made = partial(theirs_apgd, net, eps, norm, steps, restarts, loss)
                        found["pyautoattack"] = survivors(net, made, x, y)
                    rows.append(row(name, f"APGD-{loss.upper()}", norm, eps, steps, restarts, found))
    return rows


def row(model: str, attack: str, norm: str, eps: float, steps: int, restarts: int, found: dict[str, Any]) -> Any:
    accuracy = {name: round(statistics.mean(values), 3) for name, (values, _) in found.items()}
    others = {name: value for name, value in accuracy.items() if name != "ours"}
    rival = min(others, key=lambda name: others[name], default=None)
    line = {
        "model": model,
        "attack": attack,
        "norm": norm,
        "eps": round(eps, 5),
        "steps": steps,
        "restarts": restarts,
        "accuracy": accuracy,
        "by_seed": {name: [round(value, 3) for value in values] for name, (values, _) in found.items()},
        "seconds": {name: round(seconds, 2) for name, (_, seconds) in found.items()},
        "above_best_other": None if rival is None else round(accuracy["ours"] - others[rival], 3),
        "standard_error": None if rival is None else round(standard_error(found["ours"][0], found[rival][0]), 3),
    }
    print(json.dumps(line), flush=True)
    return line


def standard_error(one: list[float], other: list[float]) -> float:
    """Of the difference of two means over seeds."""
    return math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))


def overhead(net: nn.Module, x: Tensor, y: Tensor, steps: int = 20, rounds: int = 9) -> dict[str, float]:
    """PGD beside the bare forwards and backwards it needs, turn by turn."""

    def bare() -> None:
        for _ in range(steps):
            probe = x.detach().requires_grad_(True)
            torch.autograd.grad(cross_entropy(net(probe), y, reduction="sum"), probe)

    attacks = {norm: PGD(eps, norm, steps=steps) for norm, eps in (("linf", 0.03), ("l2", 0.5))}
    jobs: dict[str, Callable[[], Any]] = {"bare": bare}
    jobs |= {norm: lambda attack=attack: attack.perturb(net, x, y) for norm, attack in attacks.items()}
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    ratios = {
        norm: statistics.median(a / b for a, b in zip(times[norm][1:], times["bare"][1:], strict=True))
        for norm in attacks
    }
    return {"bare_ms": round(1e3 * statistics.median(times["bare"][1:]), 2)} | {
        k: round(v, 3) for k, v in ratios.items()
    }


def page(record: dict[str, Any]) -> str:
    names = ["ours", *[name for name in PACKAGES if name in record["packages"]]]
    lines = [
        f"# Attacks beside other packages: {record['data']}",
        "",
        f"Made by `{record['command']}` on {record['date']}; {record['examples']} test images. "
        + ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        + ".",
        "",
        f"Percent of test images still classified right, at equal radius, steps and restarts; mean of {SEEDS} seeds. "
        f"Largest lead of another package: {record['largest_lead']:.2f} points (allowed {TOLERANCE}). "
        f"Mean of ours minus the best other: {record['mean_difference']:+.2f}.",
        "",
        "| model | attack | norm | eps | steps x restarts | "
        + " | ".join(names)
        + " | ours - best other (± standard error over seeds) |",
        "|" + "---|" * (6 + len(names)),
    ]
    for line in record["rows"]:
        numbers = [f"{line['accuracy'][name]:.2f}" if name in line["accuracy"] else "-" for name in names]
        difference = "-"
        if line["above_best_other"] is not None:
            difference = f"{line['above_best_other']:+.2f} ± {line['standard_error']:.2f}"
        cells = [
            line["model"],
            line["attack"],
            line["norm"],
            f"{line['eps']:g}",
            f"{line['steps']} x {line['restarts']}",
        ]
        lines.append("| " + " | ".join([*cells, *numbers, difference]) + " |")
    clean = ", ".join(f"{name} {value:.2f}" for name, value in record["clean"].items())
    over = record["overhead"]
    lines += [
        "",
        f"Clean accuracy: {clean}. PGD-20 takes {over['linf']:.2f} (linf) and {over['l2']:.2f} (l2) times its bare 20 "
        f"forwards and backwards (batch {BATCH}, {over['bare_ms']:.0f} ms, one thread).",
        "",
        "Ours keep the best point visited, PGD of the others returns the last one. torchattacks and ART ran without "
        "torchvision, which both declare.",
    ]
    if record.get("note"):
        lines += ["", record["note"]]
    return "\n".join(lines) + "\n"


def parts(data: Dataset, size: int | None, test: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    train, _, held_out = resolve(data, n=size, validation=0.0, test_fraction=1 / 3).take(data)
    held_out = held_out.take(np.random.default_rng(0).permutation(len(held_out))[:test])
    arrays = (train.x, train.y, held_out.x, held_out.y)
    x, y, test_x, test_y = (torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)
    return x.float() / 255, y, test_x.float() / 255, test_y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--test", type=int, default=600, help="how many test images")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("results/attacks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    here = [name for name in PACKAGES if importlib.util.find_spec(name)]
    logging.getLogger("art").setLevel(logging.ERROR)
    base, size = parse_spec(options.data)
    data = load(base, data_dir=options.data_dir)
    train_x, train_y, test_x, test_y = parts(data, size, options.test)
    nets = {
        "plain": trained(train_x, train_y, len(data.classes), options.epochs, None),
        "trained on PGD": trained(
            train_x, train_y, len(data.classes), options.epochs, PGD(TRAINING_EPS[base], steps=5, random_start=True)
        ),
    }
    rows: list[Any] = []
    clean = {}
    for name, net in nets.items():
        with torch.no_grad():
            clean[name] = round(100 * (net(test_x).argmax(1) == test_y).double().mean().item(), 3)
        fgsm = survivors(net, ours(FGSM(0.05), net), test_x, test_y)[0][0]
        print(f"{name}: clean {clean[name]:.2f}, FGSM 0.05 {fgsm:.2f}", flush=True)
        rows += compared(net, name, test_x, test_y, RADII[base], here)
    leads = [line["above_best_other"] for line in rows if line["above_best_other"] is not None]
    extra = "" if options.data == "digits" else f' --data "{options.data}" --data-dir DIR'
    record = {
        "data": options.data,
        "command": f"python benchmarks/attacks.py{extra}",
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "versions": versions(("rcad", "torch", "numpy", *(PACKAGES[name] for name in here))),
        "packages": here,
        "examples": len(test_y),
        "clean": clean,
        "largest_lead": max(leads, default=math.nan),
        "mean_difference": round(statistics.mean(leads), 3) if leads else math.nan,
        "overhead": overhead(nets["plain"], test_x[:BATCH], test_y[:BATCH]),
        "rows": rows,
    }
    stem = "comparison" if base == "digits" else f"comparison-{base}"
    write(options.out / f"{stem}.json", record)
    write_text(options.out / f"{stem}.md", page(record))
    print(page(record))


if __name__ == "__main__":
    main()
