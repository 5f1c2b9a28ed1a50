"""`rcad data`: lists, imports, checks; and the command for methods."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.conftest import Cli, Refused
from made import files, images, png, table
from rcad.cli import doctor
from rcad.data import decoding, official
from rcad.data.registry import OFFICIAL, READERS


def test_list(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one["name"]: one for one in cli("data", "list", "--json").json()}
    assert found["digits"]["where"] == "sklearn"
    assert found["cifar100"]["where"] is None
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
    assert plain["shape"] == [3, 8, 8]
    assert plain["classes"]["class1"] == {"train": 4, "test": None}
    assert list(Path("cache").rglob("manifest.json"))


def test_a_name_of_one_s_own(done: Cli) -> None:
    images()
    files(my_dot_csv=table())
    done("data", "import", "images/", "--name", "flowers", "--data-dir", "d")
    done("data", "import", "my.csv", "--name", "prices", "--target", "price", "--data-dir", "d")
    assert Path("d/prices.csv").read_text() == table()
    words = ("--method", "erm", "--epochs", "1", "--data-dir", "d", "--quiet")
    done("train", "--data", "flowers", *words)
    done("train", "--data", "prices.csv", "--target", "price", *words)


def printed_command(out: str) -> list[str]:
    """The words of the command at the end, as a shell would read them, without its name."""
    start = "train on it: "
    (line,) = [line for line in out.splitlines() if line.startswith(start)]
    name, *words = shlex.split(line.removeprefix(start))
    assert name == "rcad"
    return words


def test_the_printed_command_runs_as_it_is(done: Cli, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    images("my photos; echo")
    Path("my photos; echo/class0/0.png").write_bytes(png(12))
    prices = table().replace("price", '"the price, €"')
    files(my_dot_csv=prices, classes_dot_csv=table().replace("colour", "kind of $HOME"))
    quick = ("--epochs", "1", "--quiet")
    for words, kept in (
        (("my photos; echo", "--size", "6"), {"name": "my photos; echo", "size": 6}),
        (("my photos; echo", "--size", "6", "--name", "photos", "--data-dir", "d d"), {"name": "photos", "size": 6}),
        (("my.csv", "--target", "the price, €"), {"name": "my.csv", "target": "the price, €"}),
        (("classes.csv", "--target", "kind of $HOME", "--task", "classification"), {"task": "classification"}),
        (("photos", "--size", "7", "--data-dir", "d d", "--cache-dir", "c c"), {"name": "photos", "size": 7}),
    ):
        result = done("data", "import", *words)
        command = printed_command(result.out)
        done(*command, *quick)
        (plan,) = cli(*command, "--dry-run", "--json").json()
        assert kept.items() <= plan["config"]["data"].items()
    assert command[-4:] == ["--data-dir", "d d", "--cache-dir", "c c"]
    monkeypatch.setenv("RCAD_DATA", "d d")  # the shell that it is pasted to knows the folder
    assert printed_command(cli("data", "import", "photos", "--size", "6").out)[1:] == [
        *("--data", "photos", "--method", "rcad", "--size", "6")
    ]


def test_own_sets_are_listed(done: Cli, cli: Cli) -> None:
    images()
    files(my_dot_csv=table())
    cli("data", "import", "images/", "--name", "flowers", "--data-dir", "d")
    cli("data", "import", "my.csv", "--name", "prices", "--target", "price", "--data-dir", "d")
    files(d__cifar10__data_batch_1_dot_bin=b"x", d__uci__junk__readme="", d__notes="", d___dot_hidden_dot_csv="a\n")
    files(
        **{"d__cifar-100-binary_dot_tar_dot_gz": b"x", "d__broken_dot_parquet": b"x", "d__cifar-10-python_dot_tar": b""}
    )
    files(d__test_32x32_dot_mat=b"x")  # half of SVHN
    known = OFFICIAL["cifar100"]
    (Path("d") / known.folder).mkdir()
    (Path("d") / known.folder / known.marker).write_bytes(b"x")
    listed = cli("data", "list", "--data-dir", "d", "--json").json()
    assert [one["name"] for one in listed] == [*READERS, "flowers", "prices.csv"]
    found = {one["name"]: one for one in listed}
    assert found["flowers"] == {"name": "flowers", "kind": "images", "where": "d/flowers", "note": "your own"}
    assert (found["prices.csv"]["kind"], found["prices.csv"]["where"]) == ("tabular", "d/prices.csv")
    text = cli("data", "list", "--data-dir", "d").out
    assert "d/flowers" in text
    assert "prices.csv" not in cli("data", "list").out
    # A known set is none of one's own, wherever its files lie.
    Path("d/cifar10").rename("d/mine")
    found = {one["name"]: one for one in cli("data", "list", "--data-dir", "d", "--json").json()}
    assert found["mine"]["kind"] == "images"
    assert "mine" not in {one["name"] for one in cli("data", "list", "--data-dir", "d/mine", "--json").json()}
    done("data", "list", "--data-dir", "nowhere")


def test_verify(cli: Cli) -> None:
    images()
    cli("data", "import", "images/")
    assert "1 item checked, 0 broken" in cli("data", "verify").out
    array = next(Path("cache").rglob("train_x.npy"))
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(bytes(content))
    broken = cli("data", "verify", "--json")
    assert broken.code == 2
    assert "train_x.npy" in broken.err
    assert "train_x.npy" in broken.json()[0]["problem"]


def test_fetch(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fetch_file(remote: object, folder: Path, **options: object) -> Path:
        calls.append(remote)
        return folder / remote.filename  # type: ignore[attr-defined]

    monkeypatch.setattr(official, "fetch_file", fetch_file)
    result = cli("data", "fetch", "svhn", "--extra", "--data-dir", "d")
    assert calls == [*OFFICIAL["svhn"].files, *OFFICIAL["svhn"].optional]
    assert "d/svhn/extra_32x32.mat  checksum ok" in result.out


def test_a_worker_that_died_is_one_line(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def dying(_: object, **options: Any) -> subprocess.Popen[bytes]:
        return start([sys.executable, "-c", "raise SystemExit(3)"], **options)

    monkeypatch.setattr(subprocess, "Popen", dying)
    monkeypatch.setattr(decoding, "WORTH_PROCESSES", 1)
    images("images")
    says = "expected the images of images to be decoded, but the decoding process ended with"
    refused("train", "--data", "images", "--method", "erm", says=says)


def test_clear_empties_the_cache_of_what_rcad_made(done: Cli, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    images("images")
    shutil.make_archive("set", "zip", ".", "images")
    for data in ("images", "set.zip"):
        done("data", "import", data)
    Path("cache/unpacked/.0123456789abcdef0123456789abcdef.partial-x1").mkdir()
    Path("cache/unpacked/mine").mkdir()
    Path("cache/notes.txt").write_text("mine")
    monkeypatch.setattr(doctor, "machine", list)
    assert "rcad data clear" in cli("doctor").out
    before = sorted(Path("cache").rglob("*"))
    listed = cli("data", "clear")
    assert "add --yes to remove" in listed.out
    assert sorted(Path("cache").rglob("*")) == before
    assert cli("data", "clear", "--yes").out.splitlines()[-1].startswith("removed ")
    left = {str(path) for path in Path("cache").rglob("*")}
    folders = {f"cache/{name}" for name in ("images", "unpacked")}
    assert left == {*folders, "cache/unpacked/mine", "cache/notes.txt"}
    assert cli("data", "clear", "--cache-dir", "none", "--yes").out == "removed 0 items, 0 B in none\n"
    done("data", "import", "set.zip")


def test_npz(cli: Cli) -> None:
    np.savez("own.npz", x=np.zeros((6, 4), np.float32), y=np.array([0, 1, 0, 1, 0, 1]))
    assert cli("data", "import", "own.npz", "--json").json()["shape"] == [4]
