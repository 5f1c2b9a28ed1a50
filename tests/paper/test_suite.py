"""A suite's runs: cells share them, and missing data are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paper_records import order
from rcad.errors import InputError
from rcad.paper import benchmarks
from rcad.paper.run import plan_of
from rcad.paper.suite import Plan


def plan(name: str, **options: Any) -> Plan:
    return plan_of(order(name, **{"seeds": (0,), **options}))


def test_cells_share_runs() -> None:
    planned = plan("F4", seeds=(0, 1), only=("alpha 0.5", "alpha 1"))
    assert len(planned.runs) == 16
    assert len(planned.configs()) == 12  # ERM and the entropy at x do not know alpha


def test_missing_data_are_named_and_the_rest_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RCAD_DATA", raising=False)
    (tmp_path / "cifar100").mkdir()
    (tmp_path / "cifar100" / "train.bin").write_bytes(b"")
    found = plan("T1", scale="small", data_dir=tmp_path)
    assert found.columns == ("CIFAR-100-2k", "CIFAR-100-10k", "CIFAR-100")
    assert [line.split(":")[0] for line in found.missing] == ["Tiny ImageNet", "CIFAR-10", "SVHN"]
    assert all(line.endswith("so it was not run.") for line in found.missing)
    assert {one.column for one in found.runs} == set(found.columns)
    with pytest.raises(InputError, match=r"expected data for T1, but there are none: cifar100, tiny-imagenet"):
        plan("T1", scale="small", data_dir=tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"the data folder has no imagenet/ with train/ and val/"):
        plan("T5", scale="full", data_dir=tmp_path)
    with pytest.raises(InputError, match="expected --only to be"):
        plan("T1", only=("MNIST",))


def test_a_part_of_tiny_imagenet_is_not_taken_for_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny-imagenet").mkdir()
    (tmp_path / "tiny-imagenet" / "train.parquet").write_bytes(b"")

    class Part:
        train = range(4000)

    monkeypatch.setattr("rcad.data.registry.load", lambda *names, **options: Part)
    why = benchmarks.missing(benchmarks.TINY, "full", tmp_path, None)
    assert why == "Tiny ImageNet: only 4,000 of 100,000 images were found, so it was not run."
    assert benchmarks.missing(benchmarks.TINY, "small", tmp_path, None) is None
    Part.train = range(100_000)
    assert benchmarks.missing(benchmarks.TINY, "full", tmp_path, None) is None


def test_runs_in_bf16_are_other_runs() -> None:
    plain, found = (plan("T4", only=("n=500",), precision=precision) for precision in ("fp32", "bf16"))
    assert not set(plain.configs()) & set(found.configs())
    for one, other in zip(plain.runs, found.runs, strict=True):
        assert other[:2] == one[:2]
        assert (other.config.train.precision, other.config.train.channels_last) == ("bf16", True)
        assert replace(other.config, train=one.config.train) == one.config
