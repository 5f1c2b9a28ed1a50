"""What users write and read: methods, seeds, numbers, tables."""

from __future__ import annotations

import pytest

from rcad.cli.options import Source, parse_seeds
from rcad.cli.screen import fields, table
from rcad.loss.method_rows import parse_method
from rcad.runs.words import duration, leading, mean_and_spread, metric, plural, size, sparkline


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("rcad", {"rcad": {}}),
        ("mixup+rcad", {"mixup": {}, "rcad": {}}),
        (" mixup + cutout + rcad() ", {"mixup": {}, "cutout": {}, "rcad": {}}),
        ("rcad(lam=0.1, alpha=1)", {"rcad": {"alpha": 1, "lam": 0.1}}),
        ("rcad(norm=linf, bounds=(0, 1))", {"rcad": {"bounds": (0, 1), "norm": "linf"}}),
        ("rcad(norm='linf', bounds=[0.0, 1.0])", {"rcad": {"bounds": (0.0, 1.0), "norm": "linf"}}),
        ("rcad(bounds=none, every=2)", {"rcad": {"bounds": None, "every": 2}}),
        ("rcad(alpha=-1e-3)", {"rcad": {"alpha": -0.001}}),
        ("mixup + a.b:c(lam=0.3, what='x:y')", {"mixup": {}, "a.b:c": {"lam": 0.3, "what": "x:y"}}),
    ],
)
def test_methods(text: str, rows: dict[str, dict[str, object]]) -> None:
    assert parse_method(text) == tuple((name, tuple(values.items())) for name, values in rows.items())


@pytest.mark.parametrize(
    ("seed", "seeds", "expected"),
    [(None, None, [0]), (4, None, [4]), (None, "3", [0, 1, 2]), (None, "3,5,7", [3, 5, 7]), (None, "5,", [5])],
)
def test_seeds(seed: int | None, seeds: str | None, expected: list[int]) -> None:
    assert parse_seeds(seed, seeds) == expected


def test_a_folder_is_the_same_data_however_it_is_written() -> None:
    for written in ("images", "images/", "./images//", ".//./images"):
        assert Source(data=written, images=None).name == "images"
        assert Source(data=None, images=f"{written}[:8]").name == "images[:8]"
    for own in ("./digits", "digits/"):  # one's own needs what sets it apart from the known data set
        assert Source(data=own, images=None).name == own


def test_numbers() -> None:
    assert [metric("val_accuracy", 97.24), metric("test_nll", 0.104321), metric("nll", None)] == [
        "97.2%",
        "0.1043",
        "-",
    ]
    assert [duration(s) for s in (8.42, 59.97, 125, 11520, None)] == ["8.4 s", "1m 00s", "2m 05s", "3h 12m", "-"]
    assert [size(n) for n in (12, 1500, 2_340_000_000)] == ["12 B", "1.5 kB", "2.3 GB"]
    assert [plural(1, "run"), plural(2, "class")] == ["1 run", "2 classes"]
    # A spread is given from two seeds on.
    assert [mean_and_spread("accuracy", values) for values in ([90.0], [90.0, 92.0])] == ["90.0%", "91.0 ± 1.4%"]
    assert [mean_and_spread("nll", values) for values in ([0.1, 0.2, 0.3], [0.1, None])] == ["0.20 ± 0.10", "-"]
    names = ["epochs", "last_nll", "val_accuracy", "test_brier", "test_nll", "selected_epoch", "test_accuracy"]
    assert leading(names, 5) == ["test_accuracy", "test_nll", "test_brier", "val_accuracy", "last_nll"]


def test_sparkline() -> None:
    assert [sparkline(values) for values in ([0, 7, 3.5], [1, None, 1], [None])] == ["▁█▅", "▁ ▁", ""]
    many = sparkline(list(range(200)), width=10)
    assert (len(many), many[-1]) == (10, "█")


def test_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    table(["seed", "accuracy", "run"], [["0", "97.0%", "ab"], ["10", "9.5%", "cd"]], last=["mean", "53.2%", ""])
    assert capsys.readouterr().out.splitlines() == [
        "seed  accuracy  run",
        "───────────────────",
        "   0     97.0%  ab",
        "  10      9.5%  cd",
        "───────────────────",
        "mean     53.2%",
    ]
    # Names from files cannot break them.
    table(["class", "train"], [["a\nb", "1"], ["\x1b[31mé", "2"]])
    fields([("features", "a\tb")])
    found = capsys.readouterr().out.splitlines()
    assert found[2:] == ["a\\nb           1", "\\x1b[31mé      2", "features  a\\tb"]
    # Narrow ones wrap the last column, or drop it.
    monkeypatch.setenv("COLUMNS", "40")
    table(["method", "about"], [["rcad", "pays the model for being unsure, a step up the loss"]])
    wrapped = capsys.readouterr().out.splitlines()
    assert wrapped[2:] == ["rcad    pays the model for being unsure,", "        a step up the loss"]
    table(["a", "b"], [["x" * 30, "y" * 30]])
    assert capsys.readouterr().out.splitlines()[::2] == ["a", "x" * 30]
