"""What importing costs, and which way the imports point."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import rcad

SOURCE = Path(rcad.__file__).parent
# Each layer may import from those before it, and from its own.
LAYERS = [
    {"errors", "changed_defaults"},
    {"validate", "values", "tensors", "draws"},
    {"likelihoods", "geometry", "passes"},
    {"perturbations"},
    {"terms", "views"},
    {"checks"},
    {"objective"},
    {"fused"},
    {"criterion", "augmentations", "growth"},
    {"alpha"},
    {"composition"},
    {"methods"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
    names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    return {name.split(".")[1] for name in names if name.startswith("rcad.")}


def test_every_core_module_has_a_layer() -> None:
    assert {p.stem for p in SOURCE.glob("*.py")} - {"__init__"} == set(LEVEL)


def test_imports_point_one_way() -> None:
    for path in SOURCE.glob("*.py"):
        if path.stem != "__init__":
            assert all(LEVEL[name] <= LEVEL[path.stem] for name in imports(path)), path.name


def test_data_and_models_know_no_methods() -> None:
    allowed = {"errors", "validate", "values", "tensors"}
    for folder in ("data", "models"):
        for path in (SOURCE / folder).rglob("*.py"):
            assert imports(path) <= allowed | {folder}, path.name


def test_evaluation_stands_below_training() -> None:
    """The engine averages the same per-example scores as an evaluation; the other way round would be a cycle."""
    allowed = set(LEVEL) | {"data", "models", "evaluate"}
    for path in (SOURCE / "evaluate").rglob("*.py"):
        assert imports(path) <= allowed, path.name


def test_pages_know_nothing_of_what_they_show() -> None:
    for path in (SOURCE / "report").glob("*.py"):
        assert imports(path) <= {"errors", "alpha", "report"}, path.name


def test_the_report_on_the_paper_stands_on_records_alone() -> None:
    for path in (SOURCE / "report" / "paper").rglob("*.py"):
        assert imports(path) <= {"errors", "experiments", "report"}, path.name


def test_experiments_and_pages_know_no_command_line() -> None:
    for folder in ("experiments", "report", "train", "evaluate"):
        for path in (SOURCE / folder).rglob("*.py"):
            assert "cli" not in imports(path), path.name


def test_nothing_but_the_command_line_stands_on_the_demo() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.parent.name not in ("demo", "cli"):
            assert "demo" not in imports(path), path.name


def test_nothing_stands_on_the_integrations() -> None:
    for path in SOURCE.rglob("*.py"):
        if (SOURCE / "integrations") not in path.parents:
            assert "integrations" not in imports(path), path.name


def test_the_integrations_are_loaded_only_when_they_are_asked_for() -> None:
    loaded = run(
        "import sys, rcad, rcad.train.loop, rcad.experiments.run, rcad.cli.main; "
        "[getattr(rcad, n) for n in rcad.__all__]; print(*sys.modules)"
    ).split()
    assert not [name for name in loaded if name.startswith("rcad.integrations")]
    # Naming the package loads none of the frameworks either.
    loaded = run("import sys, rcad.integrations; print(*sys.modules)").split()
    assert not {"torch", "sklearn", "lightning", "transformers", "accelerate", "skorch", "timm"} & set(loaded)


def test_a_page_needs_no_torch() -> None:
    loaded = run("import sys, rcad.report.page, rcad.report.svg; print(*sys.modules)").split()
    assert not {"torch", "matplotlib", "jinja2"} & set(loaded)


def test_the_package_needs_torch_and_numpy_only() -> None:
    loaded = run(
        "import sys, rcad; [getattr(rcad, n) for n in rcad.__all__]; "
        "heavy = ('torchvision', 'pandas', 'scipy', 'sklearn', 'typer', 'rich', 'pyarrow'); "
        "print(*(m for m in heavy if m in sys.modules))"
    )
    assert loaded.strip() == ""


def test_torch_is_loaded_only_when_a_name_is_used() -> None:
    assert run("import sys, rcad; print('torch' in sys.modules)").strip() == "False"


def test_importing_adds_little_to_torch() -> None:
    code = "import torch, time; t = time.perf_counter(); import rcad; [getattr(rcad, n) for n in rcad.__all__]; "
    # The best of three counts: another process may be in the way.
    assert any(float(run(code + "print(time.perf_counter() - t)")) < 0.2 for _ in range(3))


def test_the_names_for_type_checkers_are_those_at_run_time() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If))
    declared = {a.asname: n.module for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert declared.pop("methods") == "rcad"
    assert declared == {name: f"rcad.{home}" for name, home in rcad._HOME.items()}
    assert all(getattr(rcad, name) is not None for name in rcad.__all__)
    assert set(rcad.__all__) <= set(dir(rcad))
