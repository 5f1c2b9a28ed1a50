"""What importing costs, which way the imports point, and that all types are right."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rcad
from contracts.house import ROOT

SOURCE = Path(rcad.__file__).parent
# A room may import from those before it; of two rooms on one level neither may import the other.
ARROW = "errors; hub, loss, report; kernels; models; data; runs; train; stacked; evaluate; predict, study; paper"
ARROW += "; demo, integrations; cli"
LEVEL = {room: level for level, rooms in enumerate(ARROW.split("; ")) for room in rooms.split(", ")}
# Beyond the arrow: pages know nothing of what they show, and rooms below know no pages; the command does without
# adapters; data and networks know neither methods nor losses.
NOT_FOR = {
    **{room: {"report"} for room in LEVEL if room not in ("errors", "report")},
    "report": {"loss", "kernels", "models", "data", "runs", "train", "stacked", "integrations"},
    "integrations": {"cli", "report"},
    "loss": {"kernels", "models", "data", "report"},
}


def loaded(code: str) -> set[str]:
    """The modules that a program of its own has loaded in the end; `before` are those of which it does not tell."""
    program = f"import sys; before = set(); {code}; print(*(set(sys.modules) - before))"
    return {*subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()}


def imports(path: Path) -> set[str]:
    """The dotted names of ours that a file imports, inside functions too; `from rcad.a import b` gives both."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"expected absolute imports only, but got a relative one in {path}"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_module(node.value):
            found.add(node.value)  # a module named for import_module or `python -m`
    return {name for name in found if name.startswith("rcad.")}


def is_module(text: str) -> bool:
    """Whether a text is the dotted name of a module of ours, perhaps with `:function` after it."""
    parts = text.partition(":")[0].split(".")
    place = SOURCE.joinpath(*parts[1:])
    good = len(parts) > 2 and parts[0] == "rcad" and all(part.isidentifier() for part in parts)
    return good and (place.with_suffix(".py").is_file() or place.is_dir())


def room(name: str) -> str:
    return name.split(".")[1].partition(":")[0]


def test_every_room_has_its_place() -> None:
    files = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "methods"}
    assert files == {"demo", "errors", "hub"}
    assert files | {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(LEVEL)


def test_imports_point_one_way() -> None:
    """And so no two rooms import each other, even by others."""
    wrong = []
    for path in SOURCE.rglob("*.py"):
        here, *_ = path.relative_to(SOURCE).with_suffix("").parts
        if here not in ("__init__", "methods"):  # the public names, from wherever they are
            there = {room(name): name for name in imports(path) if room(name) in LEVEL and room(name) != here}
            barred = {one for one in there if LEVEL[one] >= LEVEL[here] or here in NOT_FOR.get(one, ())}
            wrong += [(str(path), there[one]) for one in barred]
    assert wrong == []


def test_the_package_needs_torch_and_numpy_only() -> None:
    """All its names, training and the command: no other library, and no adapter, until it is asked for."""
    found = loaded("import rcad.train.loop, rcad.train.run, rcad.cli.main; [getattr(rcad, n) for n in rcad.__all__]")
    heavy = {"torchvision", "pandas", "scipy", "sklearn", "typer", "rich", "pyarrow"}
    heavy |= {"wandb", "mlflow", "tensorboard", "huggingface_hub", "datasets"}
    assert [name for name in found if name.startswith("rcad.integrations") or name in heavy] == []


def test_training_passes_few_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the rooms that come after a run, no reader of files that the data are not in."""
    monkeypatch.chdir(tmp_path)
    words = ["train", "--data", "digits[:60]", "--method", "rcad", "--seeds", "3", "--epochs", "1", "--quiet"]
    ours = [name for name in loaded(f"from rcad.cli.main import run; assert run({words}) == 0") if name[:5] == "rcad."]
    assert {*map(room, ours)} <= {"cli", "data", "errors", "kernels", "loss", "models", "report", "runs", "train"}
    assert len(ours) <= 60, sorted(ours)


def test_importing_adds_little_to_torch() -> None:
    """Only the loss, and no library beside those that torch has loaded; the folder of adapters and a page load none."""
    heavy = {"torch", "matplotlib", "jinja2", "sklearn", "lightning", "transformers", "accelerate", "skorch", "timm"}
    assert not heavy & loaded("import rcad.integrations, rcad.report.document, rcad.report.drawing")
    names = "for n, home in rcad._HOME.items() if not home.startswith(('predict', 'study', 'train'))"
    found = loaded(f"import torch; before = set(sys.modules); import rcad; [getattr(rcad, n) {names}]")
    assert {room(name) for name in found if name.startswith("rcad.")} <= {"errors", "loss", "methods"}
    assert {name.split(".")[0] for name in found} <= {"rcad", "numpy", *sys.stdlib_module_names}


def test_the_names_for_type_checkers_are_those_at_run_time() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If))
    declared = {a.asname: n.module for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert declared == {"methods": "rcad.loss", **{name: f"rcad.{home}" for name, home in rcad._HOME.items()}}


@pytest.mark.slow  # `make check` has asked before; a test, so that it runs beside the others on a core of its own
def test_every_type_is_right() -> None:
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
