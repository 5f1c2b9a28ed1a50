"""Own data as people have it, through the options that train, tune, compare and suggest-alpha share."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

import rcad
from cli.conftest import Cli, Refused
from made import saved
from rcad.runs.store import Store
from rcad.study.card import card

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def table(cli: Cli) -> str:
    rows = [f'u{i},{i % 7},"$1,{100 + i}.50",2020-01-{i % 28 + 1:02},{"red" if i % 2 else "blue"}' for i in range(40)]
    Path("my.csv").write_text(
        "name,a,price,day,colour\n" + "\n".join(rows) + "\nlast,3,$1,2020-02-01,\n".replace("$1,", "$9,")
    )
    return "my.csv"


@pytest.fixture
def kaggle(cli: Cli) -> str:
    Path("set/pictures").mkdir(parents=True)
    lines = ["id,kind"]
    for i in range(24):
        Image.fromarray(np.full((6, 6), 10 * (i % 2) + i, np.uint8)).save(f"set/pictures/{i}.png")
        lines.append(f"{i},{'even' if i % 2 else 'odd'}")
    Path("set/pictures/7.png").write_bytes(b"broken")
    Path("set/what.csv").write_text("\n".join(lines))
    return "--images set/pictures --labels set/what.csv --file-column id --label-column kind"


SHORT = {
    "train": "--method rcad --epochs 1",
    "tune": "--method rcad --epochs 1 --budget 1",
    "compare": "--methods rcad --no-controls --epochs 1 --budget 1 --seeds 2",
    "suggest-alpha": "--no-check",
}


@pytest.mark.parametrize("command", SHORT)
def test_a_messy_table_goes_through_every_command(done: Cli, refused: Refused, table: str, command: str) -> None:
    words = f"--data {table} --target colour {SHORT[command]}".split()
    says = "line 42, column 'colour' of my.csv, but it is missing; remove such rows, or pass --skip-bad"
    refused(command, *words, says=says)
    result = done(command, *words, "--skip-bad", "--drop", "a, day")
    said = result.out + result.err
    assert "left out: 'name', a different text in every row" in said
    assert "1 row without a target skipped" in said
    if command == "train":
        (record,) = Path("runs").glob("*/record.json")
        data = saved(record)["config"]["data"]
        assert (data["drop"], data["skip_bad"]) == (["a", "day"], True)


@pytest.mark.parametrize("command", SHORT)
def test_kaggle_s_layout_goes_through_every_command(done: Cli, refused: Refused, kaggle: str, command: str) -> None:
    words = f"{kaggle} {SHORT[command]}".split()
    refused(command, *words, says="set/pictures/7.png to be an image")
    result = done(command, *words, "--skip-bad")
    assert "1 of 24 images skipped, e.g.: expected set/pictures/7.png to be an image" in result.out + result.err
    assert "pass --skip-bad" not in result.out + result.err  # it was
    if command == "suggest-alpha":
        assert "inputs of shape (1, 6, 6)" in result.out


def test_the_recipe_for_few_labels_needs_no_method_and_takes_own_images(done: Cli, cli: Cli, kaggle: str) -> None:
    words = f"train {kaggle} --skip-bad --recipe few-labels --epochs 1 --set model.width=4".split()
    done(*words, "--seeds", "2")
    records = [saved(path) for path in Path("runs").glob("*/record.json")]
    assert {record["config"]["method"][-1]["name"] for record in records} == {"two_views"}
    assert {record["splits"].get("validation", {}).get("size", 0) for record in records} == {0}
    assert "data_augmentation + erm;" in cli(*words, "--method", "erm", "--dry-run").out
    assert "expected --method, but it is missing" in cli("train", *kaggle.split(), "--recipe", "paper").err


def test_the_printed_command_has_the_options(done: Cli, cli: Cli, table: str, kaggle: str) -> None:
    result = done("data", "import", table, "--target", "price", "--drop", "name,a", "--skip-bad")
    line = result.out[result.out.index("rcad train") :].strip()
    assert "--drop name,a --skip-bad" in line
    config = cli(*shlex.split(line)[1:], "--dry-run", "--json").json()[0]["config"]
    assert config["data"]["drop"] == ["name", "a"]
    done("data", "import", "set/pictures", *kaggle.split()[2:], "--skip-bad")


def test_without_the_options_ids_are_what_they_were(cli: Cli) -> None:
    def run_id(*words: str) -> str:
        return str(cli("train", "--data", "my.csv", "--method", "erm", *words, "--dry-run", "--json").json()[0]["id"])

    plain = run_id()
    assert plain == run_id("--set", "data.drop=", "--set", "data.skip_bad=false") == run_id("--stream")
    assert len({plain, run_id("--drop", "a"), run_id("--skip-bad"), run_id("--labels", "b.csv")}) == 4


def test_images_are_streamed_where_that_is_asked_for(cli: Cli, refused: Refused) -> None:
    for i in range(48):
        path = Path("pictures", "val" if i % 4 == 3 else "train", "ab"[i // 4 % 2])
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 5 * i, np.uint8)).save(path / f"{i}.png")
    Path("pictures/train/a/0.png").write_bytes(b"no image")
    words = ("train", "--data", "pictures", "--method", "erm", "--epochs", "1")
    refused(*words, "--stream", says="expected pictures/train/a/0.png to be an image")
    found = [cli(*words, "--skip-bad", "--runs", name, *more) for name, more in (("a", ()), ("b", ("--stream",)))]
    assert [one.code for one in found] == [0, 0]
    assert all("1 of 48 images skipped, e.g.: expected pictures/train/a/0.png" in one.out for one in found)
    mine, other = (load_file(next(Path(name).glob("*/model.safetensors"))) for name in "ab")
    assert mine.keys() == other.keys()
    assert all(value.tobytes() == other[key].tobytes() for key, value in mine.items())
    assert "files:" in next(Path("b").glob("*/record.json")).read_text()


@pytest.mark.parametrize("every_label", [False, True])
def test_a_final_model_needs_no_test_split(cli: Cli, refused: Refused, table: str, every_label: bool) -> None:
    own = f"--data {table} --target colour --skip-bad --set data.test_fraction=0".split()
    words = [*own, *(["--set", "data.validation=0", "--set", "train.selection=last"] if every_label else ())]
    done = cli("train", *words, "--method", "rcad", "--epochs", "2")
    assert done.code == 0, done.err
    sizes = "40 training" if every_label else "36 training, 4 validation"
    assert f"{sizes} examples, no test split\n" in done.out
    assert done.out.count("no test split") == 2  # and where it ends
    (record,) = Store.open("runs").records()
    assert (record.splits["test"].size, record.message) == (0, "no test split")
    assert {name.split("_")[0] for name in record.metrics} == {"epochs", "selected", *(() if every_label else ("val",))}
    assert "test_" not in cli("runs", "list").out
    assert "done: no test split" in cli("runs", "show", "last").out
    assert "no test split  run " in cli("train", *words, "--method", "rcad", "--epochs", "2").out
    assert "41 predictions" in cli("predict", "last", "--data", table).out
    assert cli("export", "last", "--out", "model.pt2").code == 0
    assert "test     no test split" in repr(rcad.load("last"))
    assert "there is no test split" in card(record, Store.open("runs"), "me/mine")
    refused("evaluate", "last", says=f"but {record.id} has no test split (data.test_fraction=0); train another one")
    for command in ("tune", "compare"):
        refused(command, *own, *SHORT[command].split(), says="expected a test split, but got data.test_fraction=0")
