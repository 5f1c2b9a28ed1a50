"""`rcad data`, and own data as people have it, through the options that commands share."""

import shlex
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

import rcad
from cli.conftest import Cli, Refused
from made import files, images, png, saved, table
from rcad.data import official
from rcad.data.registry import OFFICIAL, READERS
from rcad.runs.store import Store
from rcad.study.card import card

pytestmark = pytest.mark.usefixtures("undrawn")


def test_list(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one["name"]: one for one in cli("data", "list", "--json").json()}
    assert (found["digits"]["where"], found["cifar100"]["where"]) == ("sklearn", None)
    assert "RCAD_DATA" in cli("data", "list").out
    files(d__cifar10__data_batch_1_dot_bin=b"x")
    monkeypatch.setenv("RCAD_DATA", "d")
    assert "d/cifar10" in cli("data", "list").out


def test_import_of_images_says_what_was_found(cli: Cli) -> None:
    images(classes=3, each=4)
    result = cli("data", "import", "images/")
    for part in ("3 x 8 x 8", "classification", "3 classes", "class2", "rcad train --data images/ --method rcad"):
        assert part in result.out
    plain = cli("data", "import", "images/", "--json").json()
    assert (plain["shape"], plain["classes"]["class1"]) == ([3, 8, 8], {"train": 4, "test": None})


def printed_command(out: str) -> list[str]:
    """The words of the command at the end, as a shell would read them, without its name."""
    name, *words = shlex.split(out.rpartition("\ntrain on it: ")[2])
    assert name == "rcad"
    return words


def test_the_printed_command_runs_as_it_is(done: Cli, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    images("my photos; echo")
    Path("my photos; echo/class0/0.png").write_bytes(png(12))
    files(my_dot_csv=table().replace("price", '"the price, €"'))
    files(classes_dot_csv=table().replace("colour", "kind of $HOME"))
    for words, kept in (
        (("my photos; echo", "--size", "6"), {"name": "my photos; echo", "size": 6}),
        (("my photos; echo", "--size", "6", "--name", "photos", "--data-dir", "d d"), {"name": "photos", "size": 6}),
        (("classes.csv", "--target", "kind of $HOME", "--task", "classification"), {"task": "classification"}),
        (("my.csv", "--target", "the price, €", "--drop", "width,length", "--skip-bad"), {"drop": ["width", "length"]}),
        (("photos", "--size", "7", "--data-dir", "d d", "--cache-dir", "c c"), {"name": "photos", "size": 7}),
    ):
        command = printed_command(done("data", "import", *words).out)
        done(*command, "--epochs", "1", "--quiet")
        (plan,) = cli(*command, "--dry-run", "--json").json()
        assert kept.items() <= plan["config"]["data"].items()
    assert command[-4:] == ["--data-dir", "d d", "--cache-dir", "c c"]
    monkeypatch.setenv("RCAD_DATA", "d d")  # the shell that it is pasted to knows the folder
    shorter = printed_command(cli("data", "import", "photos", "--size", "6").out)
    assert shorter == ["train", "--data", "photos", "--method", "rcad", "--size", "6"]


def test_own_sets_are_listed(done: Cli) -> None:
    def listed(folder: str) -> dict[str, Any]:
        return {one["name"]: one for one in done("data", "list", "--data-dir", folder, "--json").json()}

    images()
    files(my_dot_csv=table())
    done("data", "import", "images/", "--name", "flowers", "--data-dir", "d")
    done("data", "import", "my.csv", "--name", "prices", "--target", "price", "--data-dir", "d")
    assert Path("d/prices.csv").read_text() == table()
    files(d__cifar10__data_batch_1_dot_bin=b"x", d__uci__junk__readme="", d__notes="", d___dot_hidden_dot_csv="a\n")
    files(d__broken_dot_parquet=b"x", d__test_32x32_dot_mat=b"x")  # half of SVHN
    found = listed("d")
    assert list(found) == [*READERS, "flowers", "prices.csv"]
    assert found["flowers"] == {"name": "flowers", "kind": "images", "where": "d/flowers", "note": "your own"}
    assert (found["prices.csv"]["kind"], found["prices.csv"]["where"]) == ("tabular", "d/prices.csv")
    # A known set is none of one's own, wherever its files lie.
    Path("d/cifar10").rename("d/mine")
    assert listed("d")["mine"]["kind"] == "images"
    assert "mine" not in listed("d/mine")


def test_fetch(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = Mock(side_effect=lambda remote, folder, **options: folder / remote.filename)
    monkeypatch.setattr(official, "fetch_file", fetch)
    for words, remotes in ((["--extra"], OFFICIAL["svhn"].optional), ([], ())):
        fetch.reset_mock()
        result = cli("data", "fetch", "svhn", *words, "--data-dir", "d")
        assert [call.args[0] for call in fetch.call_args_list] == [*OFFICIAL["svhn"].files, *remotes]
        assert ("d/svhn/extra_32x32.mat  checksum ok" in result.out) == bool(words)


def test_clear_empties_the_cache_of_what_rcad_made(done: Cli) -> None:
    images("images")
    shutil.make_archive("set", "zip", ".", "images")
    for data in ("images", "set.zip"):
        done("data", "import", data)
    Path("cache/unpacked/.0123456789abcdef0123456789abcdef.partial-x1").mkdir()
    Path("cache/unpacked/mine").mkdir()
    Path("cache/notes.txt").write_text("mine")
    before = sorted(Path("cache").rglob("*"))
    assert "add --yes to remove" in done("data", "clear").out
    assert sorted(Path("cache").rglob("*")) == before
    assert done("data", "clear", "--yes").out.splitlines()[-1].startswith("removed ")
    left = {str(path) for path in Path("cache").rglob("*")}
    assert left == {f"cache/{name}" for name in ("images", "unpacked", "unpacked/mine", "notes.txt")}
    assert done("data", "clear", "--cache-dir", "none", "--yes").out == "removed 0 items, 0 B in none\n"


@pytest.fixture
def messy() -> str:
    rows = [f'u{i},{i % 7},"$1,{100 + i}.50",2020-01-{i % 28 + 1:02},{"red" if i % 2 else "blue"}' for i in range(40)]
    files(my_dot_csv="\n".join(["name,a,price,day,colour", *rows, "last,3,$9,2020-02-01,", ""]))
    return "my.csv"


@pytest.fixture
def kaggle() -> str:
    files(set__what_dot_csv="\n".join(["id,kind", *(f"{i},{'even' if i % 2 else 'odd'}" for i in range(24))]))
    Path("set/pictures").mkdir()
    for i in range(24):
        Image.fromarray(np.full((6, 6), 10 * (i % 2) + i, np.uint8)).save(f"set/pictures/{i}.png")
    files(set__pictures__7_dot_png=b"broken")
    return "--images set/pictures --labels set/what.csv --file-column id --label-column kind"


SHORT = {
    "train": "--method rcad --epochs 1",
    "tune": "--method rcad --epochs 1 --budget 1",
    "compare": "--methods rcad --no-controls --epochs 1 --budget 1 --seeds 2",
    "suggest-alpha": "--no-check",
}


@pytest.mark.parametrize("command", SHORT)
def test_a_messy_table_goes_through_every_command(done: Cli, refused: Refused, messy: str, command: str) -> None:
    words = f"--data {messy} --target colour {SHORT[command]}".split()
    says = "line 42, column 'colour' of my.csv, but it is missing; remove such rows, or pass --skip-bad"
    refused(command, *words, says=says)
    result = done(command, *words, "--skip-bad", "--drop", "a, day")
    said = result.out + result.err
    assert "left out: 'name', a different text in every row" in said
    assert "1 row without a target skipped" in said
    if command == "train":
        data = saved(next(Path("runs").glob("*/record.json")))["config"]["data"]
        assert (data["drop"], data["skip_bad"]) == (["a", "day"], True)


@pytest.mark.parametrize("command", SHORT)
def test_kaggle_s_layout_goes_through_every_command(done: Cli, refused: Refused, kaggle: str, command: str) -> None:
    words = f"{kaggle} {SHORT[command]}".split()
    refused(command, *words, says="set/pictures/7.png to be an image")
    result = done(command, *words, "--skip-bad")
    assert "1 of 24 images skipped, e.g.: expected set/pictures/7.png to be an image" in result.out + result.err
    assert "pass --skip-bad" not in result.out + result.err  # it was


def test_the_recipe_for_few_labels_needs_no_method_and_takes_own_images(done: Cli, kaggle: str) -> None:
    words = f"train {kaggle} --skip-bad --recipe few-labels --epochs 1 --set model.width=4".split()
    done(*words)
    (record,) = (saved(path) for path in Path("runs").glob("*/record.json"))
    assert record["config"]["method"][-1]["name"] == "two_views"
    assert record["splits"].get("validation", {}).get("size", 0) == 0
    assert "data_augmentation + erm;" in done(*words, "--method", "erm", "--dry-run").out


def test_an_id_holds_what_a_run_is_trained_on(cli: Cli) -> None:
    def run_id(*words: str) -> str:
        return str(cli("train", "--data", "my.csv", "--method", "erm", *words, "--dry-run", "--json").json()[0]["id"])

    plain = run_id()
    assert plain == run_id("--set", "data.drop=", "--set", "data.skip_bad=false") == run_id("--stream")
    assert len({plain, run_id("--drop", "a"), run_id("--skip-bad"), run_id("--labels", "b.csv")}) == 4


def test_images_are_streamed_where_that_is_asked_for(done: Cli, refused: Refused) -> None:
    """That the weights are the same, tests/train/test_run.py says."""
    for part in ("train", "val"):
        images(f"pictures/{part}", each=12)
    files(pictures__train__class0__0_dot_png=b"no image")
    words = ("train", "--data", "pictures", "--method", "erm", "--epochs", "1", "--stream")
    refused(*words, says="expected pictures/train/class0/0.png to be an image")
    said = done(*words, "--skip-bad").out
    assert "1 of 48 images skipped, e.g.: expected pictures/train/class0/0.png" in said
    assert "files:" in next(Path("runs").glob("*/record.json")).read_text()


@pytest.mark.parametrize("every_label", [False, True])
def test_a_final_model_needs_no_test_split(done: Cli, refused: Refused, messy: str, every_label: bool) -> None:
    own = f"--data {messy} --target colour --skip-bad --set data.test_fraction=0".split()
    words = [*own, *(["--set", "data.validation=0", "--set", "train.selection=last"] if every_label else ())]
    trained = done("train", *words, "--method", "rcad", "--epochs", "2")
    sizes = "40 training" if every_label else "36 training, 4 validation"
    assert f"{sizes} examples, no test split\n" in trained.out
    assert trained.out.count("no test split") == 2  # and where it ends
    (record,) = Store.open("runs").records()
    assert (record.splits["test"].size, record.message) == (0, "no test split")
    assert {name.split("_")[0] for name in record.metrics} == {"epochs", "selected", *(() if every_label else ("val",))}
    assert "test_" not in done("runs", "list").out
    assert "done: no test split" in done("runs", "show", "last").out
    assert "41 predictions" in done("predict", "last", "--data", messy).out
    done("export", "last", "--out", "model.pt2")
    assert "test     no test split" in repr(rcad.load("last"))
    assert "there is no test split" in card(record, Store.open("runs"), "me/mine")
    refused("evaluate", "last", says=f"but {record.id} has no test split (data.test_fraction=0); train another one")
    for command in ("tune", "compare"):
        refused(command, *own, *SHORT[command].split(), says="expected a test split, but got data.test_fraction=0")
