"""timm for the tests: installed like any package, or lying apart in the environment with a torchvision that needs help.

torchvision's wheel is for CUDA: beside a torch without it, it fails at two operators that are not declared. `make` puts
it and timm into `<environment>/timm`, which only tests look into.
"""

import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(sys.prefix) / "timm"
PRELUDE = f"""
import sys, torch
for operator in ("nms", "qnms"):
    torch.library.define(f"torchvision::{{operator}}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
sys.path.append({str(FOLDER)!r})
"""


def prelude() -> str:
    """What a script that uses timm must run first here; skips the test where there is no timm at all."""
    if PathFinder.find_spec("timm") is None and (FOLDER / "timm").is_dir():
        return PRELUDE
    pytest.importorskip("timm", exc_type=Exception)
    return ""


def load() -> ModuleType:
    """timm, imported; torchvision is hidden again, so that other libraries do not find it in this process."""
    if "timm" not in sys.modules and (first := prelude()):
        exec(first, {})
        try:
            importlib.import_module("timm.task")
        finally:
            sys.path.remove(str(FOLDER))
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]
    return pytest.importorskip("timm", exc_type=Exception)  # type: ignore[no-any-return]
