"""Try the lowest versions that pyproject.toml declares: `make lowest EXTRAS="hf skorch timm lightning"`.

A fresh environment gets torch as constraints.txt pins it, numpy and the packages of those extras at their lowest
declared versions, and what else these ask for at its newest. The tests of each extra run, and a table says what came
out. Extras whose lowest versions exclude each other need two calls: transformers wants a newer safetensors than `cli`.
The tests of report, tune and attacks need cli, data and sklearn beside them. `--with transformers==5.10.0` tries
another version in place of the declared one.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ADAPTERS = "tests/integrations/test_adapters.py"
TESTS = {
    "attacks": ["tests/evaluate/test_robustness.py"],
    "cli": ["tests/cli/test_train.py", "tests/cli/test_runs.py"],
    "data": ["tests/data"],
    "hf": ["tests/integrations/test_huggingface*.py", "tests/integrations/test_accelerate*.py", ADAPTERS],
    "lightning": ["tests/integrations/test_lightning*.py", ADAPTERS],
    "onnx": ["tests/predict"],
    "mlflow": ["tests/train/test_trackers.py"],
    "tensorboard": ["tests/train/test_trackers.py"],
    "hub": ["tests/data/test_elsewhere.py", "tests/study/test_card.py"],
    "wandb": ["tests/train/test_trackers.py"],
    "ray": ["tests/train/test_on_ray.py"],
    "report": ["tests/report"],
    "sklearn": ["tests/integrations/test_sklearn*.py"],
    "skorch": ["tests/integrations/test_skorch*.py", ADAPTERS],
    "timm": ["tests/integrations/test_timm*.py", ADAPTERS],
    "tune": ["tests/study/test_space.py", "tests/cli/test_study.py"],
}
"""The test files of each extra."""

TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "pillow")


def pins() -> dict[str, str]:
    """What constraints.txt pins: version by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def lowest(extra: str, project: dict[str, Any]) -> dict[str, str]:
    """Lowest declared version by package of an extra, those of extras it includes among them."""
    versions: dict[str, str] = {}
    for requirement in project["optional-dependencies"][extra]:
        if included := re.fullmatch(r"rcad\[(.+)\]", requirement):
            for other in included[1].split(","):
                versions |= lowest(other, project)
        else:
            name, version = requirement.split(">=")
            versions[name] = version
    return versions


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=ROOT, text=True, **options)


def install(extras: list[str], replaced: dict[str, str], folder: Path) -> dict[str, dict[str, str]]:
    """Make an environment with the lowest versions of all those extras; returns them by extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = dict(requirement.split(">=") for requirement in project["dependencies"])
    by_extra = {
        extra: {name: replaced.get(name, version) for name, version in lowest(extra, project).items()}
        for extra in extras
    }
    pinned = pins()
    versions = {name: pinned[name] for name in ("torch", *TOOLS)} | {"numpy": core["numpy"]}
    for packages in (*by_extra.values(), replaced):
        versions |= packages
    timm = versions.pop("timm", None)
    run(sys.executable, "-m", "venv", folder, check=True)
    pip = (folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, *(f"{name}=={version}" for name, version in versions.items()), check=True)
    if timm:
        # It asks for torchvision, and that for a torch built for CUDA: both lie apart, as in the Makefile.
        run(*pip, f"torch=={pinned['torch']}", "huggingface_hub", "pyyaml", "safetensors", check=True)
        apart = ("--upgrade", "--no-deps", "--target", folder / "timm")
        run(*pip, *apart, f"timm=={timm}", f"torchvision=={pinned['torchvision']}", check=True)
    return by_extra


def test(extra: str, packages: dict[str, str], folder: Path) -> tuple[bool, str]:
    """Whether the tests of an extra pass, and its row of the table."""
    files = [path for pattern in TESTS[extra] for path in sorted(ROOT.glob(pattern))]
    path = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = (folder / "bin/python", "-m", "pytest", "-q", "-n", "0", "--no-header", *files)
    tested = run(*command, env=os.environ | path, stdout=subprocess.PIPE)
    print(tested.stdout[-6000:], flush=True)
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    outcome = (tested.stdout.splitlines() or ["no test ran"])[-1].strip("= ")
    return tested.returncode == 0, f"| `{extra}` | {versions} | {outcome} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="+", choices=TESTS, metavar="EXTRA", help=", ".join(TESTS))
    parser.add_argument("--with", dest="replaced", action="append", default=[], metavar="NAME==VERSION")
    parser.add_argument("--folder", type=Path, help="where the environment goes (else a temporary folder)")
    options = parser.parse_args()
    extras = options.extras
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        by_extra = install(extras, dict(text.split("==") for text in options.replaced), folder)
        results = [test(extra, by_extra[extra], folder) for extra in extras]
    print(f"Python {sys.version.split()[0]}, torch {pins()['torch']}\n\n| extra | versions | outcome |\n|---|---|---|")
    print(*(row for _, row in results), sep="\n")
    return 0 if all(passed for passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
