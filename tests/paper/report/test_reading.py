"""Which records are found, what is made of them, and what is said of damaged ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paper_records import benchmark, put, put_run, run_record, suite, verdicts
from rcad.errors import InputError
from rcad.paper.report.reading import read
from rcad.paper.targets import TARGETS
from rcad.runs.pack import PackedRun, write_pack
from rcad.runs.record import RunRecord
from rcad.runs.store import Store


def test_two_records_of_a_target_have_different_titles(tmp_path: Path) -> None:
    put(tmp_path, suite(claims=verdicts()))
    put(tmp_path, suite(scale="smoke", claims=verdicts()), "trial/T4.json")
    one, two = read(tmp_path).studies
    assert two.title == f"{one.title} (smoke, one view, trial/T4.json)"
    assert {claim.verdict for claim in two.claims} == {"a trial"}
    assert "a trial" not in {claim.verdict for claim in one.claims}
    assert (one.warning, two.warning[:11]) == ("", "SMOKE SCALE")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 1}, "expected a study of schema 2"),
        ({"cells": [{}]}, "expected a study to hold what its kind has, but got KeyError"),
    ],
)
def test_a_damaged_record_is_named_and_the_others_are_read(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    put(tmp_path, {**suite(), **change})
    put(tmp_path, suite("T1"))
    found = read(tmp_path)
    assert [study.target for study in found.studies] == ["T1"]
    assert found.missing == [name for name in TARGETS if name != "T1"]
    (line,) = found.damaged
    assert words in line
    assert "T4.json" in line


def test_text_that_is_no_record_is_named_and_files_of_another_kind_are_not_shown(tmp_path: Path) -> None:
    for name, text in {"a": "{", "b": '{"target": "T8", "scale": "full"}', "c": '{"a": NaN}'}.items():
        (tmp_path / f"{name}.json").write_text(text)
    put(tmp_path, {"id": "a"}, "digits/a/record.json")
    put(tmp_path, {**run_record(0, 1.0), "config": {}}, "others/b/record.json")
    put(tmp_path, {"what": "images a second"}, "other/speed.json")
    put(tmp_path, benchmark(), "benchmarks/gpu.json")
    found = read(tmp_path)
    files = ("a.json", "b.json", "c.json", "digits/a/record.json", "others/b/record.json")
    assert [file in line for file, line in zip(files, found.damaged, strict=True)] == [True] * 5
    assert [path.name for path in found.unused] == ["speed.json"]
    assert [path.name for path, _ in found.by_kind["rcad step times"]] == ["gpu.json"]
    with pytest.raises(InputError, match="expected a folder of records"):
        read(tmp_path / "none")


def test_loose_runs_are_a_study_and_those_of_a_suite_are_not(tmp_path: Path) -> None:
    record = suite()
    used = put_run(tmp_path, "T4", run_record(5, 50.0))
    record["cells"][0]["runs"][0]["id"] = used
    put(tmp_path, record)
    beside = put_run(tmp_path, "T4", run_record(6, 50.0))
    one, nought = (put_run(tmp_path, "digits", run_record(seed, 50.0 + seed)) for seed in (1, 0))
    found = read(tmp_path)
    assert [study.target for study in found.studies] == ["T4", "digits"]
    (place,) = found.studies[1].places.values()
    assert (place.row, place.column) == ("data_augmentation + rcad(alpha=1.0, lam=0.02)", "resnet18 (group norm)")
    metrics = {run.id: run.metrics for run in place.runs}
    assert [*metrics.items()] == [(nought, {"accuracy": 50.0, "nll": 1.0}), (one, {"accuracy": 51.0, "nll": 1.0})]
    assert set(found.run_files) == {used, beside, one, nought}


def test_the_runs_of_an_unfinished_suite_are_no_study_and_those_of_two_folders_are_two(tmp_path: Path) -> None:
    """Its own record may be missing yet, or damaged; deeper folders and the folder itself get names without a slash."""
    for folder, accuracy in (("T4/runs", 40.0), ("deep/er", 50.0), (".", 60.0)):
        put_run(tmp_path, folder, run_record(0, accuracy))
    found = {study.target: list(study.places.values()) for study in read(tmp_path).studies}
    accuracies = {name: place.values("accuracy") for name, (place,) in found.items()}
    assert accuracies == {"deep-er": [50.0], tmp_path.name: [60.0]}


def test_packed_runs_are_the_study_that_their_folder_was(tmp_path: Path) -> None:
    for seed in range(3):
        put_run(tmp_path / "folders", "cifar", run_record(seed, 20.0 + seed / 3))
    store = Store(tmp_path / "folders" / "cifar")
    packs = tmp_path / "packs"
    write_pack(packs / "cifar.jsonl.gz", map(store.packed, store.ids()))
    (one,), (other,) = (read(folder).studies for folder in (tmp_path / "folders", packs))
    assert replace(one, path=packs) == replace(other, path=packs)
    assert [run.device for run in read(packs).runs_of(other)] == ["a made-up GPU"] * 3
    assert set(read(packs).run_files.values()) == {packs / "cifar.jsonl.gz"}


def test_runs_whose_settings_differ_are_not_seeds_of_one_number(tmp_path: Path) -> None:
    first = RunRecord.from_dict(run_record(0, 20.0))
    for weight_decay in (0.0005, 0.002):
        config = replace(first.config, optim=replace(first.config.optim, weight_decay=weight_decay))
        put_run(tmp_path, "decays", replace(first, config=config, id="").to_dict())
    (study,) = read(tmp_path).studies
    assert study.columns == [f"resnet18 (group norm), optim.weight_decay {decay}" for decay in ("0.0005", "0.002")]
    assert [len(place.runs) for place in study.places.values()] == [1, 1]


def test_a_pack_that_a_suite_looks_into_is_no_study_of_its_own(tmp_path: Path) -> None:
    """Nor is the search of one that is not over."""
    made, record = RunRecord.from_dict(run_record(0, 20.0)), suite()
    write_pack(tmp_path / "images/search.jsonl.gz", [PackedRun(RunRecord.from_dict(run_record(1000, 20.0)))])
    record["cells"][0]["runs"][0]["id"] = made.id
    put(tmp_path, record)
    for name, day in (("images/shared", "2023-12-01"), ("earlier", "2023-11-30")):
        write_pack(tmp_path / f"{name}.jsonl.gz", [PackedRun(replace(made, started=f"{day}T12:00:00+00:00"))])
    found = read(tmp_path)
    assert [study.target for study in found.studies] == ["T4", "earlier"]
    assert found.run_files[made.id] == tmp_path / "images" / "shared.jsonl.gz"
    starts = [run.started[:10] for study in found.studies for run in found.runs_of(study)]
    assert starts == ["2023-12-01", "2023-11-30"]
    (tmp_path / "earlier.jsonl.gz").write_bytes(b"damaged")
    (line,) = read(tmp_path).damaged
    assert "earlier.jsonl.gz to be a pack of runs" in line
