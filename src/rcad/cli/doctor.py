"""`rcad doctor`: what this machine has, what is wrong with it, and what to do. What may crash has its own process."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

import typer

from rcad import __version__
from rcad.cli import options
from rcad.cli.screen import say, say_json, table
from rcad.errors import InputError, MissingExtraError, cores, install
from rcad.runs.store import Store
from rcad.runs.words import plural, size


def doctor(
    data_dir: Path | None = options.DATA_DIR,
    cache_dir: Path | None = options.CACHE_DIR,
    runs: Path = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """Check the installation, the machine and the data, and say what to do.

    Checks Python, torch, the GPU, optional packages and their known problems, data, cache and runs. Every line is ok,
    warn or bad. Exit code 1 if a line is bad.

    rcad doctor
    rcad doctor --json
    rcad doctor --data-dir data
    """
    checks = [*machine(), _data(data_dir), _cache(cache_dir), _runs(runs)]
    if as_json:
        say_json([check._asdict() for check in checks])
    else:
        cells = [[c.level, c.name, c.text + (f"; {c.remedy}" if c.remedy else "")] for c in checks]
        table(["", "what", "found"], cells)
        bad, warned = (sum(check.level == level for check in checks) for level in ("bad", "warn"))
        say("\nall is well" if not bad + warned else f"\n{bad} bad, {warned} to look at; the rest is fine")
        if any(check.text == NOT_INSTALLED for check in checks):
            say(f"an extra that you want: {install('NAME')}")
    raise typer.Exit(int(any(check.level == "bad" for check in checks)))


Level = Literal["ok", "warn", "bad"]
EXTRAS = {
    "cli": ("typer", "rich", "safetensors"),
    "data": ("pillow", "pyarrow", "scipy"),
    "sklearn": ("scikit-learn", "pandas"),
    "report": ("matplotlib", "jinja2"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow-skinny",),
    "timm": ("timm",),
    "lightning": ("lightning",),
    "hf": ("transformers", "accelerate"),
    "skorch": ("skorch",),
    "hub": ("huggingface-hub",),
    "tune": ("optuna",),
    "ray": ("ray",),
    "attacks": ("pyautoattack",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
NEEDED = ("cli", "data")
NOT_INSTALLED = "not installed"
NEED_TORCHVISION = ("timm", "lightning", "torchmetrics")
BF16 = """
import torch
a = torch.ones(64, 64, dtype=torch.bfloat16)
x, w = torch.ones(2, 8, 16, 16, dtype=torch.bfloat16), torch.ones(8, 8, 3, 3, dtype=torch.bfloat16)
(a @ a).sum() + torch.nn.functional.conv2d(x, w).sum()
"""
SAFE_ISA = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
_PATIENCE_S = 120


class Check(NamedTuple):
    """One line of the report; `remedy` says what to do if the level is not "ok"."""

    name: str
    level: Level
    text: str
    remedy: str = ""


def machine() -> list[Check]:
    """Python, rcad, torch, GPU, packages, and the two traps."""
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    with ThreadPoolExecutor() as pool:
        vision = pool.submit(_tried, "import torchvision") if version("torchvision") else None
        bf16 = pool.submit(_tried, BF16)
        checks = [Check("python", "ok", python), Check("rcad", "ok", __version__), *_torch(), *map(extra, EXTRAS)]
    return [*checks, torchvision_trap(*(vision.result() if vision else (None, ""))), bf16_trap(*bf16.result())]


def version(package: str) -> str | None:
    """The version of an installed package, which is not imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def extra(name: str) -> Check:
    """The packages of one of rcad's extras."""
    versions = {package: version(package) for package in EXTRAS[name]}
    text = ", ".join(f"{package} {number or 'is missing'}" for package, number in versions.items())
    if all(versions.values()):
        return Check(f"extra {name}", "ok", text)
    if name not in NEEDED and not any(versions.values()):
        return Check(f"extra {name}", "ok", NOT_INSTALLED)
    return Check(f"extra {name}", "warn", text, install(name))


def torchvision_trap(code: int | None, last_line: str) -> Check:
    """A torchvision that was built for another torch fails to import, and takes others down with it.

    `code` and `last_line` are those of a process that imports it; `code` is None where it is not installed.
    """
    if code is None:
        return Check("torchvision", "ok", "not installed, and not needed")
    number = version("torchvision")
    if code == 0:
        return Check("torchvision", "ok", f"{number} imports")
    victims = [name for name in NEED_TORCHVISION if version(name)]
    harm = f" and takes {', '.join(victims)} down with it" if victims else ""
    remedy = "install the build for your torch, or: pip uninstall torchvision"
    text = f"{number} does not import beside torch {version('torch')}{harm} ({last_line})"
    return Check("torchvision", "bad" if victims else "warn", text, remedy)


def bf16_trap(code: int | None, last_line: str) -> Check:
    """Some virtual machines advertise instructions that they do not have, and bf16 on the CPU dies with SIGILL."""
    if code == 0:
        return Check("CPU bf16", "ok", "works")
    if code is not None and code < 0:
        setting = "=".join(*SAFE_ISA.items())
        cured = _tried(BF16, SAFE_ISA)[0] == 0
        remedy = f"set {setting} before Python starts" if cured else "train in fp32"
        text = f"dies with {signal.Signals(-code).name}; fp32 and GPUs are not affected"
        return Check("CPU bf16", "warn", text, remedy)
    return Check("CPU bf16", "warn", f"fails: {last_line}", "train in fp32")


def _torch() -> Iterable[Check]:
    try:
        import torch
    except Exception as error:  # a broken build raises anything, OSError included
        reason = " ".join(str(error).split())[:160]
        yield Check("torch", "bad", f"does not import: {reason}", "install it as the README says")
        return
    threads = f"{plural(torch.get_num_threads(), 'thread')} on {plural(cores(), 'core')}"
    yield Check("torch", "ok", f"{torch.__version__}, {threads}")
    if not torch.cuda.is_available():
        cuda = torch.version.cuda
        text = f"built for CUDA {cuda}, but no GPU is seen" if cuda else "CPU build of torch"
        yield Check("GPU", "ok", f"none ({text}); small jobs need none")
        return
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        yield Check("GPU", "ok", f"{gpu.name}, {size(gpu.total_memory)}, CUDA {torch.version.cuda}")


def _tried(code: str, variables: Mapping[str, str] = {}) -> tuple[int, str]:
    """What came of a program: (exit code, last line of stderr); the code is negative where a signal ended it."""
    how: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": _PATIENCE_S}
    try:
        ended = subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, **how)
    except subprocess.TimeoutExpired:
        return 1, f"no answer in {_PATIENCE_S} s"
    lines = ended.stderr.strip().splitlines()
    return ended.returncode, lines[-1].strip()[:160] if lines else ""


def _data(data_dir: Path | None) -> Check:
    from rcad.data.registry import available, data_root

    root = data_root(data_dir)
    if root is not None and not root.is_dir():
        return Check("data", "bad", f"{root} is no folder", "correct --data-dir or RCAD_DATA")
    try:
        sets = available(data_dir)
    except (InputError, MissingExtraError) as error:
        return Check("data", "bad", str(error))
    present, missing = ([data.name for data in sets if (data.where is None) == absent] for absent in (False, True))
    text = f"{', '.join(present) or 'none'} found" + (f" in {root} or inside scikit-learn" if root else "")
    if root is None:
        return Check("data", "warn", f"{text}; no data folder is set", "pass --data-dir or set RCAD_DATA for more")
    return Check("data", "ok", text + (f"; not there: {', '.join(missing)}" if missing else ""))


def _cache(cache_dir: Path | None) -> Check:
    from rcad.data.cache import cache_root, contents, entries, open_entry

    root = cache_root(cache_dir)
    held = entries(cache_dir)
    used = sum(contents(cache_dir).values())
    text = f"{root}: {plural(len(held), 'data set')}, {size(used)}" + (" (rcad data clear empties it)" if used else "")
    broken = sum(open_entry(entry, sums=False) is None for entry in held)
    if broken:
        return Check("cache", "warn", f"{text}, {broken} not whole", "nothing to do: they are rebuilt when next used")
    if root.is_dir() and not os.access(root, os.W_OK):
        return Check("cache", "bad", f"{text}, not writable", "pass --cache-dir or set RCAD_CACHE")
    return Check("cache", "ok", text)


def _runs(folder: Path) -> Check:
    if not folder.exists():
        return Check("runs", "ok", f"{folder}: none yet")
    if not folder.is_dir():
        return Check("runs", "bad", f"{folder} is no folder", "pass another --runs")
    broken: list[InputError] = []
    records = Store(folder).records(on_error=broken.append)
    counts = Counter(record.status for record in records)
    text = f"{folder}: " + (", ".join(f"{count} {status}" for status, count in counts.items()) or "none yet")
    if broken:
        text += f"; {plural(len(broken), 'record')} broken: {broken[0]}"
        return Check("runs", "bad", text, "rcad runs verify --repair")
    return Check("runs", "ok", text)
