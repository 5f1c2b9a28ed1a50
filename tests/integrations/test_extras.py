"""An adapter whose library is missing says in one line what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from rcad import InputError
from rcad.errors import MissingExtraError
from timm_folder import load


def imported_without(package: str, adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(f"rcad.integrations.{adapter}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    importlib.import_module(f"rcad.integrations.{adapter}")


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("accelerate", "accelerate", "hf"),
        ("huggingface", "transformers", "hf"),
        ("lightning", "lightning", "lightning"),
        ("sklearn", "sklearn", "sklearn"),
        ("sklearn", "safetensors", "sklearn"),
        ("skorch", "skorch", "skorch"),
        ("timm", "timm", "timm"),
    ],
)
def test_a_missing_package_names_its_extra(
    adapter: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingExtraError) as caught:
        imported_without(package, adapter, monkeypatch)
    assert str(caught.value).startswith(f"expected {package}")
    assert str(caught.value).endswith(f"in the folder of rcad, pip install -c constraints.txt -e '.[{extra}]'")
    assert caught.value.__suppress_context__, "one traceback, not two"


def test_a_timm_without_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load()
    with pytest.raises(InputError, match=r"expected timm 1\.0\.27 or newer, for its timm.task, but got 1\.") as caught:
        imported_without("timm.task", "timm", monkeypatch)
    assert caught.value.__suppress_context__
