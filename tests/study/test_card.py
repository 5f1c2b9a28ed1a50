"""A run goes to the Hub and comes back as it was; its card says what the record says."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rcad
from hub_server import Hub, point_to, serving
from made import png
from rcad.cli.main import run as rcad_command
from rcad.errors import InputError
from rcad.evaluate.saved_run.loading import finished
from rcad.runs.store import Store
from rcad.study.card import card, push
from rcad.study.compare import COMPARISON, Comparison
from rcad.study.statistics import describe, share_interval
from study.test_compare import cells, compared
from trained import run_id

pytestmark = pytest.mark.usefixtures("undrawn")

pytest.importorskip("huggingface_hub", reason="needs the extra hub")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("RCAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_TOKEN", "hf_nobody")
    with serving() as found:
        point_to(monkeypatch, found.url)
        yield found


def made(runs: Path, method: str = "rcad", comparison: Path | None = None, data: str = "digits[:200]") -> str:
    store = Store.open(runs, create=False)
    return card(finished(store, run_id(method, data=data)), store, "me/digits", comparison)


def test_a_run_goes_to_the_hub_and_comes_back(hub: Hub, trained_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_id("rcad")
    commit = push(run[:8], "me/digits", runs=trained_runs)
    sent = hub.repositories["models/me/digits"][-1]
    assert set(sent) == {"README.md", "config.toml", "model.safetensors", "record.json"}
    x = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)
    here = rcad.load(trained_runs / run, device="cpu")
    for name in ("hf:me/digits", f"hf:me/digits@{commit}"):
        there = rcad.load(name, device="cpu")
        assert there.record == here.record
        np.testing.assert_array_equal(there.predict_proba(x), here.predict_proba(x))
    point_to(monkeypatch, "http://127.0.0.1:9")  # offline
    np.testing.assert_array_equal(rcad.load("hf:me/digits", device="cpu").predict_proba(x), here.predict_proba(x))


def test_what_is_not_a_run_of_ours_is_refused(hub: Hub, trained_runs: Path, tmp_path: Path) -> None:
    hub.put("models/me/other", {"pytorch_model.bin": b"pickle", "record.json": b"{}"})
    with pytest.raises(InputError, match=r"expected config.toml in hf:me/other, .*was it sent by rcad push\?"):
        rcad.load("hf:me/other")
    push(run_id("erm"), "me/digits", runs=trained_runs)
    rcad.load("hf:me/digits", device="cpu")
    (file,) = (tmp_path / "hf").glob("*/snapshots/*/model.safetensors")
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.resolve().write_bytes(bytes(changed))
    with pytest.raises(InputError, match="holds something else; delete that file"):
        rcad.load("hf:me/digits", device="cpu")


def test_the_card_has_the_numbers_of_the_record(trained_runs: Path) -> None:
    text, store = made(trained_runs), Store.open(trained_runs, create=False)
    records = [store.get(run_id("rcad", seed)) for seed in (0, 1)]
    accuracy = records[0].metrics["test_accuracy"]
    assert accuracy is not None
    low, high = share_interval(accuracy / 100, records[0].splits["test"].size)
    over = describe([record.metrics["test_accuracy"] or 0.0 for record in records], test_ratio=0.2 / 0.8)
    for words in (
        f"| accuracy | {accuracy:.1f}% [{100 * low:.1f}, {100 * high:.1f}] |",
        f"| {over.mean:.1f} [{max(over.low or 0.0, 0):.1f}, {min(over.high or 0.0, 100):.1f}] |",
        "the mean of 2 seeds with its 95% interval, widened because test splits overlap.",
        records[0].data_sha256,
        f"rcad on digits[:200], seed 0 ({records[0].id})",
    ):
        assert words in text


def test_the_hub_can_read_the_cards_head(trained_runs: Path) -> None:
    yaml = pytest.importorskip("yaml")
    cards = pytest.importorskip("huggingface_hub.repocard")
    for method, data, task in (
        ("rcad", "digits[:200]", "image-classification"),
        ("erm", "breast_cancer", "tabular-classification"),
        ("erm", "diabetes", "tabular-regression"),
    ):
        text = made(trained_runs, method, data=data)
        head = yaml.safe_load(text.split("---\n")[1])
        assert (head["library_name"], head["pipeline_tag"]) == ("rcad", task)
        results = cards.ModelCard(text).data.eval_results
        assert {one.task_type for one in results} == {task}
        assert [one for one in results if one.metric_type == "nll"]


def test_the_card_has_the_comparison(trained_runs: Path, tmp_path: Path) -> None:
    record = compared(cells({"rcad": 1.0, "rcad_random": 0.0, "confidence_penalty": 0.0}))
    Comparison(COMPARISON.stamp({**record, "data": "digits[:200]"})).save(tmp_path)
    text = made(trained_runs, comparison=tmp_path)
    assert "## Against ERM and the controls" in text
    assert record["sentences"][0][:40] in text
    assert all(f"| rcad | {control} |" in text for control in ("rcad_random", "confidence_penalty"))
    with pytest.raises(InputError, match=r"expected a comparison on diabetes, but .* is on digits"):
        made(trained_runs, "erm", tmp_path, "diabetes")
    begun = {key: record[key] for key in ("methods", "seeds")}  # as a comparison that was stopped leaves it
    (tmp_path / "compare.json").write_text(json.dumps(COMPARISON.stamp(begun)))
    with pytest.raises(InputError, match="but got KeyError: 'data'; finish it with rcad comp"):
        made(trained_runs, comparison=tmp_path)


def test_the_command(hub: Hub, trained_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["push", run_id("rcad"), "me/digits", "--runs", str(trained_runs)]
    assert rcad_command([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("---\nlibrary_name")
    assert "models/me/digits" not in hub.repositories
    assert rcad_command([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["address"] == f"hf:me/digits@{told['commit']}"
    (tmp_path / "new.png").write_bytes(png(8))
    predict = ["predict", "hf:me/digits", "--data", str(tmp_path / "new.png"), "--out", str(tmp_path / "out.csv")]
    assert rcad_command(predict) == 0, capsys.readouterr()
    assert (tmp_path / "out.csv").read_text().count("\n") == 2
    capsys.readouterr()
    assert rcad_command(["push", run_id("rcad"), "digits", "--runs", str(trained_runs)]) == 2
    assert "expected a repository like owner/name" in capsys.readouterr().err


def test_without_a_server_there_is_one_line(trained_runs: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_to(monkeypatch, "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    with pytest.raises(InputError, match=r"expected to send to me/digits, but got: .*; log in: hf auth login"):
        push(run_id("erm"), "me/digits", runs=trained_runs)
