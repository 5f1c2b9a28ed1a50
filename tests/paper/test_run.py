"""A suite from runs to files: the record's contract, the page, what is missing, what diverged."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paper_records import make, order, silent
from rcad.errors import InputError
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.paper import run as running
from rcad.paper.benchmarks import TINY, missing
from rcad.paper.record import Study
from rcad.paper.report.chapters import page
from rcad.paper.run import collect, plan_of, settings, standing
from rcad.paper.suite import Order
from rcad.paper.tables import SUITES
from rcad.report import markdown
from rcad.runs.files import unsealed
from rcad.runs.pack import write_pack
from rcad.runs.plain import config_id
from rcad.runs.store import Store

pytest.importorskip("sklearn")
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def t4(out: Path) -> tuple[Order, dict[str, Any]]:
    wanted = order("T4", out, only=("n=500",))
    outcome = make(wanted)
    assert not outcome.reused
    assert outcome.files[:2] == [out / "T4" / "T4.json", out / "T4" / "T4.md"]
    return wanted, json.loads(wanted.record.read_text())


def test_the_record_keeps_the_contract(t4: tuple[Order, dict[str, Any]]) -> None:
    wanted, record = t4
    committed = Path(__file__).parents[2] / "results/T4/T4.json"
    assert set(record) == {*json.loads(committed.read_text(encoding="utf-8")), "sha256"}
    assert (record["target"], record["scale"], record["protocol"]) == ("T4", "smoke", "one view")
    assert record["rows"][-2:] == record["controls"] == ["random direction", "entropy at x"]
    cells = {(cell["row"], cell["column"]): cell for cell in record["cells"]}
    # Columns that were not run keep their published numbers; controls have none.
    assert len(cells) == 30 + 2
    published = {"mean": 77.7, "half": 0.06, "n": 10}
    assert cells["RCAD", "n=50,000"] == {"row": "RCAD", "column": "n=50,000", "published": published, "runs": []}
    store = Store(wanted.store)
    for row in record["rows"]:
        runs = cells[row, "n=500"]["runs"]
        assert [run["seed"] for run in runs] == [0, 1, 2]
        for run in runs:
            kept = store.get(run["id"])
            for name in ("accuracy", "nll", "ece", "last_nll"):
                there = name if name.startswith("last_") else f"test_{name}"
                assert run["metrics"][name] == pytest.approx(kept.metrics[there])
    here = [one for one in record["claims"] if one["where"] == "n=500"]
    assert {(one["verdict"], one["last"]["verdict"], one["note"]) for one in here} == {("a trial", "a trial", "")}
    assert {(one["verdict"], one["note"]) for one in record["claims"] if one not in here} == {("not run", "not run")}
    assert record["not_run"] == ["Not asked for: n=1,000; n=2,000; n=5,000; n=10,000; n=50,000."]
    assert Study.read(wanted.record).to_dict() == unsealed(record)


def test_runs_packed_in_several_places_give_the_same_record_without_folders_or_weights(
    t4: tuple[Order, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, record = t4
    store, elsewhere = Store(wanted.store), replace(wanted, out=tmp_path)
    packed = [store.packed(run) for run in store.ids()]
    write_pack(tmp_path / "images" / "old.jsonl.gz", packed[:14])
    write_pack(tmp_path / "images" / "new.jsonl.gz", packed[14:18])
    first = make(elsewhere)
    assert not first.reused
    assert {path.name for path in elsewhere.store.iterdir()} == set(store.ids()[18:])  # only what was left is made
    made, kept = (
        {run.id: (run.metrics, run.splits) for run in where.records()}
        for where in (Store(elsewhere.store, elsewhere.packs), store)
    )
    assert made == kept
    assert json.loads(elsewhere.record.read_text())["claims"] == record["claims"]
    write_pack(tmp_path / "images" / "last.jsonl.gz", packed[18:])
    shutil.rmtree(elsewhere.store)
    monkeypatch.setattr("rcad.train.run.run", lambda *words, **options: pytest.fail("run again"))
    monkeypatch.setattr("rcad.evaluate.saved_run.loading.read", lambda *words: pytest.fail("data read"))
    assert {cell[2:] for cell in standing(elsewhere)[0]} == {(3, 3)}
    again = make(elsewhere)
    assert again.reused
    assert json.loads(elsewhere.record.read_text()) == record
    assert elsewhere.record.with_suffix(".md").read_text() == wanted.record.with_suffix(".md").read_text()


def test_methods_train_those_rows_and_show_the_others_as_far_as_they_are_there(tmp_path: Path) -> None:
    some = order("T4", tmp_path, only=("n=500",), rows=("ERM", "RCAD"), seeds=range(2))
    assert {row for row, *_ in standing(some)[0]} == {"ERM", "RCAD"}
    text = make(some).files[1].read_text(encoding="utf-8")
    assert len(Store(some.store).ids()) == 4
    study = Study.read(some.record)
    assert "n=500: LS, 0 of 2 runs" in text
    assert '--rows "ERM" --rows "RCAD"' in text
    make(replace(some, rows=("LS",)))
    places = Study.read(some.record).places
    assert {row for (row, _), place in places.items() if place.runs} == {"ERM", "LS", "RCAD"}
    assert places["ERM", "n=500"] == study.places["ERM", "n=500"]


def test_an_order_says_its_columns_its_files_and_where_it_stands(t4: tuple[Order, dict[str, Any]], out: Path) -> None:
    planned = plan_of(order("T6", out, only=("CIFAR-100",)))  # by its data set
    assert planned.columns == ("CIFAR-100, clean", "CIFAR-100, attacked")
    assert set(planned.skipped) == {column.name for column in SUITES["T6"].columns} - set(planned.columns)
    assert order("T4", out, views="two views").record == out / "T4" / "T4-two-views.json"
    assert order("T4", out, runs=out / "shared").store == out / "shared"
    cells, missing = standing(replace(t4[0], seeds=range(4)))
    assert ({one[2:] for one in cells}, missing) == ({(3, 4)}, ())
    assert {one[2:] for one in standing(replace(t4[0], views="two views"))[0]} == {(0, 3)}


def test_missing_data_are_named_and_the_rest_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RCAD_DATA", raising=False)
    (tmp_path / "cifar100").mkdir()
    (tmp_path / "cifar100" / "train.bin").write_bytes(b"")
    planned = plan_of(order("T1", scale="small", data_dir=tmp_path))
    assert planned.columns == ("CIFAR-100-2k", "CIFAR-100-10k", "CIFAR-100")
    assert [line.split(":")[0] for line in planned.missing] == ["Tiny ImageNet", "CIFAR-10", "SVHN"]
    assert all(line.endswith("so it was not run.") for line in planned.missing)
    assert {run.column for run in planned.runs} == set(planned.columns)
    with pytest.raises(InputError, match=r"expected data for T1, but there are none: cifar100, tiny-imagenet"):
        plan_of(order("T1", scale="small", data_dir=tmp_path / "nowhere"))


def test_a_part_of_tiny_imagenet_is_not_taken_for_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny-imagenet").mkdir()
    (tmp_path / "tiny-imagenet" / "train.parquet").write_bytes(b"")
    for scale, found, told in (("full", 4000, True), ("small", 4000, False), ("full", 100_000, False)):
        data = SimpleNamespace(train=range(found))
        monkeypatch.setattr("rcad.data.registry.load", lambda *names, data=data, **options: data)
        why = "Tiny ImageNet: only 4,000 of 100,000 images were found, so it was not run." if told else None
        assert missing(TINY, scale, tmp_path, None) == why


def test_bf16_needs_a_gpu_only_to_train(
    t4: tuple[Order, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, _ = t4
    half = replace(wanted, precision="bf16", out=tmp_path, runs=wanted.store)
    with pytest.raises(InputError, match=r"^expected a GPU for --precision bf16, but got the CPU; use fp32$"):
        make(half)
    # With every run there, a page can be made anywhere, and says how they were trained.
    planned = plan_of(wanted)
    monkeypatch.setattr(running, "plan_of", lambda order: replace(planned, order=order))
    make(half)
    record = json.loads(half.record.read_text())
    assert record["settings"]["precision"] == "bf16"
    assert record["notes"][-1].startswith("Trained with products in bf16")
    assert '--seeds 3 --precision bf16 --only "n=500"`' in half.record.with_suffix(".md").read_text()
    half.record.write_text(json.dumps({"scale": "full"}))
    with pytest.raises(InputError, match="holds the full scale; pass another --out"):
        make(half)


def test_attacks_and_corruptions_are_evaluated_once_a_run(out: Path) -> None:
    few = {"seeds": range(1), "rows": ("ERM",)}
    attacked = Study.read(make(order("T6", out, only=("CIFAR-10, clean", "CIFAR-10, attacked"), **few)).files[0])
    (clean,), (hit,) = (attacked.places["ERM", f"CIFAR-10, {kind}"].runs for kind in ("clean", "attacked"))
    assert clean.id == hit.id
    assert 0 <= hit.metrics["accuracy_under_fgsm_0.05"] <= 100
    assert "accuracy_under_fgsm_0.05" not in clean.metrics
    corrupted = Study.read(make(order("F6", out, only=("CIFAR-10, mean", "CIFAR-10, fog"), **few)).files[0])
    (erm,) = (one for one in corrupted.series if (one.name, one.panel) == ("ERM", "CIFAR-10"))
    (run,) = corrupted.places["ERM", "CIFAR-10, fog"].runs
    assert dict(zip(erm.x, erm.y, strict=True))["fog"] == [run.metrics["corrupted_accuracy_fog"]]
    assert erm.y[0] == []
    # Beyond a trial: the paper's attack, and all images.
    full = settings("attacks", "full")
    assert (full.limit, full.attack_eps, settings("corruptions", "small").limit) == (0, (0.05,), 0)
    assert (len(settings("corruptions", "full").severities), settings("corruptions", "smoke").limit) == (5, 40)


def test_f1_shows_images_and_entropy(out: Path) -> None:
    wanted = order("F1", out, seeds=range(2), rows=("DA",))
    outcome = make(wanted)
    study = Study.read(wanted.record)
    images = study.details["images"]
    assert np.shape(images["pixels"]) == (len(images["labels"]), len(images["alphas"]), 1, 8, 8) == (4, 6, 1, 8, 8)
    assert images["pixels"][0][0] != images["pixels"][0][-1]
    adversarial, random = study.series
    assert [len(point) for point in adversarial.y] == [2] * 6
    assert adversarial.y[0] == random.y[0]
    assert adversarial.y[3] != random.y[3]
    assert outcome.files[2].name == "F1.png"
    assert "](F1.png)" in wanted.record.with_suffix(".md").read_text()


def test_gains_are_differences_by_seed(out: Path) -> None:
    shared = {"runs": out / "T4" / "runs", "rows": ("ERM", "RCAD")}
    wanted = order("F3", out, seeds=range(2), only=("CIFAR-10", "n=500"), **shared)
    study = Study.read(make(wanted).files[0])
    by = {(one.name, one.panel): one for one in study.series}
    for column, panel, place, printed in (
        ("CIFAR-10", "by data set", 3, 0.5),
        ("n=500", "by number of images", 0, 2.9),
    ):
        mine, erm = (study.places[row, column].values("accuracy") for row in ("RCAD", "ERM"))
        assert by["RCAD", panel].y[place] == pytest.approx(np.subtract(mine, erm), abs=1e-4)
        assert by["RCAD", panel].published[place] == pytest.approx(printed)


def test_a_diverged_run_and_lost_weights(t4: tuple[Order, dict[str, Any]], tmp_path: Path) -> None:
    """As records were before they knew their top-5 accuracy: without weights nothing more is evaluated."""
    wanted, _ = t4
    planned = plan_of(wanted)
    store, kept = Store.open(tmp_path / "runs"), Store(wanted.store)
    for one in planned.runs:
        record = kept.get(config_id(one.config))
        record = replace(record, metrics={k: v for k, v in record.metrics.items() if "top5" not in k})
        if (one.row, one.config.seed) == ("RCAD", 1):
            record = replace(record, status="diverged", metrics={})
        store.write(record)
    found = collect(planned, RunLoader(store, device="cpu"), silent)
    claims = [one for one in found.claims if one.where == "n=500" and "RCAD" in one.statement]
    assert {(one.verdict, one.note) for one in claims} == {("a trial", "a run diverged")}
    place = found.places["RCAD", "n=500"]
    for name in ("accuracy", "ece"):
        assert [run.metrics[name] is None for run in place.runs] == [False, True, False]
    assert any(note.startswith("20 runs not evaluated: expected the weights of run ID") for note in found.notes)
    assert "1 of 3 diverged" in markdown.markdown(page(found, "", "T4", picture=False))
