"""`rcad data`: lists, imports, checks; and the command for methods."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import Cli
from cli.made import files, images, table
from rcad.data import decoding, download
from rcad.data.known import KNOWN


def test_list(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one["name"]: one for one in json.loads(cli("data", "list", "--json").out)}
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
    plain = json.loads(cli("data", "import", "images/", "--json").out)
    assert plain["shape"] == [3, 8, 8]
    assert plain["classes"]["class1"] == {"train": 4, "test": None}
    assert list(Path("cache").rglob("manifest.json"))


def test_import_of_a_table(cli: Cli) -> None:
    files(my_dot_csv=table())
    out = cli("data", "import", "my.csv", "--target", "price").out
    assert "regression" in out
    assert "length" in out
    assert "--target price" in out
    assert json.loads(cli("data", "import", "my.csv", "--target", "colour", "--json").out)["classes"].keys() == {
        "r",
        "s",
    }


def test_a_name_of_one_s_own(cli: Cli) -> None:
    images()
    files(my_dot_csv=table())
    assert cli("data", "import", "images/", "--name", "flowers", "--data-dir", "d").code == 0
    assert cli("data", "import", "my.csv", "--name", "prices", "--target", "price", "--data-dir", "d").code == 0
    assert Path("d/prices.csv").read_text() == table()
    words = ("--method", "erm", "--epochs", "1", "--data-dir", "d", "--quiet")
    assert cli("train", "--data", "flowers", *words).code == 0
    assert cli("train", "--data", "prices.csv", "--target", "price", *words).code == 0


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
    assert "train_x.npy" in json.loads(broken.out)[0]["problem"]


def test_fetch(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fetch_file(remote: object, folder: Path, **options: object) -> Path:
        calls.append(remote)
        return folder / remote.filename  # type: ignore[attr-defined]

    monkeypatch.setattr(download, "fetch_file", fetch_file)
    result = cli("data", "fetch", "svhn", "--extra", "--data-dir", "d")
    assert calls == [*KNOWN["svhn"].files, *KNOWN["svhn"].optional]
    assert "d/svhn/extra_32x32.mat  checksum ok" in result.out


def test_a_worker_that_died_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying() -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], text=True, **pipes)

    monkeypatch.setattr(decoding, "_start_worker", dying)
    monkeypatch.setattr(decoding, "_WORTH_WORKERS", 1)
    images("images/train")
    images("images/test")  # a second split makes a second job, and so work for processes
    result = cli("train", "--data", "images", "--method", "erm")
    assert result.code == 2
    assert result.err == "rcad: expected a decoding process to finish, but it ended with code 3; is memory short?\n"
    assert not Path("runs").exists()


def test_methods(cli: Cli) -> None:
    listed = cli("methods", "list").out
    assert "rcad_random" in listed
    found = {one["name"]: one for one in json.loads(cli("methods", "list", "--json").out)}
    assert found["rcad"]["parameters"]["alpha"] == "0.5"
    card = cli("methods", "show", "rcad").out
    assert card.startswith("# rcad\n")
    assert card == cli("methods", "show", "rcad", "--raw").out


def test_npz(cli: Cli) -> None:
    np.savez("own.npz", x=np.zeros((6, 4), np.float32), y=np.array([0, 1, 0, 1, 0, 1]))
    assert json.loads(cli("data", "import", "own.npz", "--json").out)["shape"] == [4]
