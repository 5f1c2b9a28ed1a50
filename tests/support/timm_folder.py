"""timm for the tests: installed like any package, or lying apart in the environment with a torchvision that needs help.

torchvision's wheel is built for CUDA: beside a torch without it, it fails at two operators that it expects to find
declared. `make` therefore puts it and timm into `<environment>/timm`, which only these tests and the runner of the
example look into.
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
"""What a script must run first where timm lies apart."""


def apart() -> bool:
    """Whether timm is there, but only in the folder."""
    return PathFinder.find_spec("timm") is None and (FOLDER / "timm").is_dir()


def prelude() -> str:
    """What a script that uses timm must run first here; skips the test where there is no timm at all."""
    if apart():
        return PRELUDE
    pytest.importorskip("timm", exc_type=Exception)
    return ""


def load() -> ModuleType:
    """timm, imported; torchvision is hidden again, so that other libraries do not find it in this process."""
    if "timm" not in sys.modules and apart():
        exec(PRELUDE, {})
        try:
            importlib.import_module("timm.task")
        finally:
            sys.path.remove(str(FOLDER))
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]
    return pytest.importorskip("timm", exc_type=Exception)  # type: ignore[no-any-return]
