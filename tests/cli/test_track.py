"""--track is the same thing for every command that trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.conftest import Cli
from made import files, table
from rcad.train.trackers import TRACKERS, Subject, Tracked

pytestmark = pytest.mark.usefixtures("undrawn")

ENDS: list[tuple[str, str, dict[str, float], set[str]]] = []
STEPS: list[tuple[str, int]] = []


class Told:
    def __init__(self, subject: Subject) -> None:
        self._kind = subject.kind

    @staticmethod
    def address() -> str:
        return ""

    def log(self, step: int, row: dict[str, float]) -> None:
        STEPS.append((self._kind, step))

    def finish(self, status: str, numbers: dict[str, float], every: Sequence[Path]) -> None:
        ENDS.append((self._kind, status, numbers, {file.name for file in every if file.is_file()}))


@pytest.fixture(autouse=True)
def _told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "tensorboard"):
        monkeypatch.setitem(TRACKERS, name, Told)
        monkeypatch.setattr("rcad.train.trackers.need", lambda *names: type("wandb", (), {"init": None}))
    monkeypatch.setattr(Tracked, "failed", set())
    ENDS.clear()
    STEPS.clear()


def ends(kind: str) -> list[tuple[str, dict[str, float], set[str]]]:
    return [one[1:] for one in ENDS if one[0] == kind]


def test_train(done: Cli) -> None:
    words = ("train", "--data", "digits[:100]", "--method", "erm", "--epochs", "2", "--seeds", "2", "-q")
    done(*words, "--track", "wandb")
    assert [status for status, *_ in ends("run")] == ["done", "done"]
    assert STEPS == [("run", 1), ("run", 2)] * 2
    done(*words, "--tensorboard")  # the earlier way to say --track tensorboard
    assert len(ENDS) == 4


def test_tune(done: Cli) -> None:
    files(my_dot_csv=table())
    words = "tune --data my.csv --target colour --method rcad --budget 2 --epochs 1 -q --track wandb"
    for _ in range(2):  # nothing is told twice
        done(*words.split())
        ((status, numbers, sent),) = ends("tune")
        assert (status, numbers["trials"], "nll" in numbers) == ("done", 2, True)
        assert {"rcad.json", "rcad.html"} <= sent
        assert STEPS[-2:] == [("tune", 1), ("tune", 2)]
        assert len(ends("run")) == 2
        assert not [name for _, found, _ in ends("run") for name in found if name.startswith("test_n")]


def test_compare(done: Cli) -> None:
    files(my_dot_csv=table())
    words = "compare --data my.csv --target colour --seeds 2 --budget 1 --epochs 1 --methods rcad -q --track wandb"
    done(*words.split())
    ((_, numbers, sent),) = ends("compare")
    assert {"question/mean", "erm/nll", "rcad/accuracy"} <= set(numbers)
    assert {"compare.json", "compare.md", "index.html"} < sent
    assert [name for name in sent if name.endswith(".png")]


@pytest.mark.parametrize("target", ["T8", "T4 --only n=500 --seeds 1"])
def test_paper(done: Cli, target: str) -> None:
    done(*f"paper run {target} --scale smoke --track wandb --out out".split())
    ((_, _, sent),) = ends("paper")
    assert {name.rpartition(".")[2] for name in sent} >= {"json", "md"}
    assert bool(ends("run")) == target.startswith("T4")
