from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcad.data.table_encoder import TableEncoder
from rcad.data.table_files import read_table
from rcad.data.tables import encode, load
from rcad.errors import InputError

PEOPLE = """age,colour,city,price
30,red,Ulm,1.5
,blue,"Bonn, Rhein",2.5
41,NA,Ulm,3.25
22,red,Ulm,9
"""


def write(folder: Path, content: str | bytes, name: str = "t.csv") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_numbers_levels_and_gaps(tmp_path: Path) -> None:
    data = load(write(tmp_path, PEOPLE), target="price")
    assert data.columns == (
        *("age", "colour=blue", "colour=red", "colour=?"),
        *("city=Bonn, Rhein", "city=Ulm", "city=?"),
    )
    assert data.train.x.dtype == np.float32
    np.testing.assert_array_equal(
        data.train.x,
        [[30, 0, 1, 0, 0, 1, 0], [np.nan, 1, 0, 0, 1, 0, 0], [41, 0, 0, 1, 0, 1, 0], [22, 0, 1, 0, 0, 1, 0]],
    )
    assert data.task == "regression"
    assert data.train.y.dtype == np.float32
    assert data.train.y.tolist() == [1.5, 2.5, 3.25, 9.0]
    assert data.note.startswith(
        "t.csv: 4 rows, 3 columns, target 'price'; regression, since the target has 4 numeric values (task= to change)"
    )
    assert not data.is_image
    assert data.test is None


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_the_delimiter_is_found(tmp_path: Path, delimiter: str) -> None:
    decimal = "1,5" if delimiter != "," else "1.5"  # decimal commas must not win
    text = "\n".join(delimiter.join(row) for row in (["a", "b", "y"], [decimal, "2", "0"], [decimal, "3", "1"]))
    data = load(write(tmp_path, text), target="y", categorical=["a"])
    assert len({name.split("=")[0] for name in data.columns}) == 2
    assert data.train.y.tolist() == [0, 1]


def test_a_delimiter_of_the_header_alone_is_none(tmp_path: Path) -> None:
    data = load(write(tmp_path, "size, in cm, raw;y\n1;0\n2;1\n"), target="y")
    assert data.columns == ("size, in cm, raw",)


def test_bom_crlf_blank_lines_and_spaces(tmp_path: Path) -> None:
    data = load(write(tmp_path, b"\xef\xbb\xbfa, y\r\n1, no\r\n\r\n2, yes\r\n"), target="y")
    assert data.columns == ("a",)
    assert data.classes == ("no", "yes")


def test_without_a_header_columns_are_numbered(tmp_path: Path) -> None:
    path = write(tmp_path, "1,2,0\n3,4,1\n")
    for target in (2, -1, "2", "x2"):
        data = load(path, target=target, header=False)
        assert data.columns == ("x0", "x1")
        assert data.train.y.tolist() == [0, 1]


def test_below_the_data_folder(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    assert len(load("t.csv", data_dir=tmp_path, target="price").train) == 4


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["b", "a", "b", "a"], "classification", ("a", "b")),
        (["10", "9", "10", "9.0"], "classification", ("9", "10")),
        (["1", "0", "x", "1"], "classification", ("0", "1", "x")),
        (["1", "2", "3", "4"], "regression", ()),
        (["0.5", "1.5", "0.5", "1.5"], "regression", ()),
    ],
)
def test_the_task_is_inferred(tmp_path: Path, values: list[str], task: str, classes: tuple[str, ...]) -> None:
    data = load(write(tmp_path, "a,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values))), target="y")
    assert data.task == task
    assert data.classes == classes
    assert f"; {task}, since" in data.note
    if classes:
        named = [classes[k] for k in data.train.y]
        assert named == [value.removesuffix(".0") for value in values]


def test_the_task_can_be_told(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y\n1,0\n2,1\n3,1\n")
    assert load(path, target="y", task="regression").train.y.dtype == np.float32
    path = write(tmp_path, "a,y\n1,0.5\n2,1\n3,1\n")
    data = load(path, target="y", task="classification")
    assert data.classes == ("0.5", "1")
    assert data.train.y.tolist() == [0, 1, 1]
    assert data.note.endswith("classification as told")


def test_columns_dropped_and_declared(tmp_path: Path) -> None:
    path = write(tmp_path, "id,grade,y\nu1,1,0\nu2,2,1\nu3,1,1\n")
    data = load(path, target="y", drop=("id",), categorical=("grade",))
    assert data.columns == ("grade=1", "grade=2", "grade=?")


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "n": pa.array([1, None, 3], pa.int32()),
            "f": pa.array([0.5, float("nan"), 1.5]),
            "s": pa.array(["u", None, "v"]).dictionary_encode(),
            "b": pa.array([True, False, True]),
            "y": pa.array(["no", "yes", "no"]),
        }
    )
    (tmp_path / "k=v").mkdir()
    pq.write_table(table, tmp_path / "k=v" / "t.parquet")
    data = load(str(tmp_path / "k=v" / "t.parquet"), target="y")
    assert data.columns == ("n", "f", "s=u", "s=v", "s=?", "b=False", "b=True", "b=?")
    np.testing.assert_array_equal(data.train.x[1], np.asarray([np.nan, np.nan, 0, 0, 1, 1, 0, 0], dtype=np.float32))
    assert data.train.y.tolist() == [0, 1, 0]
    pq.write_table(pa.table({"d": pa.array([0, 1], pa.date32()), "y": [0, 1]}), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"numbers or text in column 'd' of .*d.parquet, but got date32"):
        load(str(tmp_path / "d.parquet"), target="y")


def test_numpy(tmp_path: Path) -> None:
    array = np.asarray([[1, 2, 0], [3, np.nan, 1], [5, 6, 1.0]])
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", table=array)
    for name in ("a.npy", "a.npz"):
        data = load(str(tmp_path / name), target=-1)
        np.testing.assert_array_equal(data.train.x, array[:, :2].astype(np.float32))
        assert data.classes == ("0", "1")


def test_the_encoder_encodes_new_files_alike(tmp_path: Path) -> None:
    data, encoder = encode(read_table(Path(write(tmp_path, PEOPLE))), target="price")
    encoder = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert encoder.features == data.columns
    new = read_table(Path(write(tmp_path, "city,age,colour\nRom,5,red\nUlm,,?\n", "new.csv")))
    np.testing.assert_array_equal(
        encoder.transform(new), np.asarray([[5, 0, 1, 0, 0, 0, 1], [np.nan, 0, 0, 1, 0, 1, 0]])
    )
    short = read_table(Path(write(tmp_path, "city,age\nRom,5\nUlm,6\n", "short.csv")))
    with pytest.raises(InputError, match=r"a column 'colour' in .*short.csv, but it is missing"):
        encoder.transform(short)


MANY = "id,y\n" + "".join(f"u{i},{i % 2}\n" for i in range(101))
TYPO = "n,y\n" + "".join(f"{i},{i % 2}\n" for i in range(150)) + "abc,1\n"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "the file is empty"),
        (" \n\n", {}, "the file is empty"),
        ("a,y\n", {}, "at least 2 rows in .*t.csv, but got 0"),
        ("a,y\n1,2\n", {}, "at least 2 rows in .*t.csv, but got 1"),
        ("a,y\n1,2\n1\n", {}, "2 columns in line 3 of .*t.csv, but got 1"),
        ('a,y\n"1\n2",2\n1,2,3\n', {}, "2 columns in line 4 of .*t.csv, but got 3"),
        ('a,y\n1,2\n"1\n2",2,3\n', {}, "2 columns in line 3 of .*t.csv, but got 3"),
        ("a,a,y\n1,2,3\n1,2,4\n", {}, "names of .*t.csv to differ, but got 'a' twice"),
        (",y\n1,2\n1,3\n", {}, "a name for every column of .*t.csv, but column 1 has none"),
        ("1,2\n3,4\n5,6\n", {"target": 1}, "column names in line 1 of .*but got numbers; .*header=False"),
        (b"a,y\n1,\xe9\n", {}, "UTF-8 text in .*t.csv, but got byte 0xe9 in line 2"),
        ("a,prices\n1,2\n1,3\n", {"target": "price"}, "but got 'price'; did you mean 'prices'?"),
        ("a,b\n1,2\n1,3\n", {"target": "price"}, "but got 'price'; choose out of a, b"),
        ("a,y\n1,2\n1,3\n", {"target": None}, "column to predict, but got none; choose a target out of a, y"),
        ("a,y\n1,2\n1,3\n", {"target": 2}, "a column from 0 to 1 of .*, but got 2"),
        ("y\n1\n2\n", {}, "a feature column beside 'y' in .*t.csv, but got none"),
        ("a,y\n1,2\n1,3\n", {"drop": ["a"]}, "a feature column beside 'y'"),
        ("ab,y\n1,2\n1,3\n", {"drop": ["abc"]}, "drop to be a column of .*; did you mean 'ab'?"),
        ("a,y\n1,2\n1,3\n", {"numeric": ["a"], "categorical": ["a"]}, "'a' to be numeric or categorical"),
        ("a,y\n1,0\nx,1\n", {"numeric": ["a"]}, "a number in line 3, column 'a' of .*t.csv, but got 'x'"),
        ("a,y\n1_0,0\n2,1\n", {"numeric": ["a"]}, "but got '1_0'"),
        ("a,y\n1,0\ninf,1\n", {}, "a finite number in line 3, column 'a' of .*, but got inf"),
        ("a,y\n1,0\n1e39,1\n", {}, "a finite number in line 3, column 'a' of .*, but got 1e39"),
        (MANY, {}, "at most 100 levels in line 2, column 'id' of .*, but got 'u0' and 101 levels"),
        (TYPO, {}, "line 152, column 'n' of .*, but got 'abc'"),
        ("a,y\n1,0\n2,\n3,1\n", {}, "a class in line 3, column 'y' of .*, but it is missing"),
        ("a,y\n1,0.5\n2,nan\n3,1.25\n", {}, "a number in line 3, column 'y' of .*, but it is missing"),
        ("a,y\n1,no\n2,no\n", {}, "at least 2 classes in column 'y' of .*, but got only 'no'"),
        ("a,y\n1,4\n2,4\n", {}, "at least 2 classes in column 'y' of .*, but got only '4'"),
        ("a,y\n1,4.5\n2,4.5\n", {}, "targets that differ in column 'y' of .*, but all are 4.5"),
        ("a,y\n1,u\n2,v\n3,w\n", {}, "classes that repeat in column 'y' of .*, but got 3 values in 3 rows"),
        ("a,y\n1,0.5\n2,inf\n", {}, "a finite number in line 3, column 'y' of .*, but got inf"),
        ("a,y\n1,0.5\n2," + "9" * 400 + "\n", {}, "line 3, column 'y' of .*, but got 9999"),
        ("a,y\n1,1\n2,12345678901234567890\n3,5\n4,1\n", {}, "at most 2.53 in size in line 3, column 'y'"),
        ("a,y\n1,2\n1,x\n", {"task": "regression"}, "a number in line 3, column 'y' of .*, but got 'x'"),
        ("a,y\n1,2\n1,3\n", {"task": "ranking"}, "task to be one of auto, classification, regression"),
        ("a,y\n1,2\n1,3\n", {"delimiter": ",,"}, "delimiter to be one character, but got ',,'"),
        ("a,y\n1," + "x" * 200_000 + "\n2,3\n", {}, "line 2 of .*t.csv to be a row, but got: field larger"),
    ],
)
def test_bad_tables(tmp_path: Path, content: str | bytes, options: dict[str, Any], message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        load(path, **{"target": "y", **options})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.parquet", b"PAR1 not", "t.parquet to be a Parquet file"),
        ("t.npy", b"\x93NUMPY", "t.npy to be a NumPy file"),
        ("t.npz", b"PK\x03\x04", "t.npz to be a NumPy file"),
        ("t.xlsx", b"PK", "a file that ends in .csv"),
    ],
)
def test_broken_binaries(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(write(tmp_path, content, name), target=0)
    assert "\n" not in str(caught.value)


def test_arrays_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no file at"):
        load(str(tmp_path / "none.csv"), target=0)
    np.save(tmp_path / "o.npy", np.asarray([[{}, 1]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="without pickled objects"):
        load(str(tmp_path / "o.npy"), target=0)
    np.save(tmp_path / "d.npy", np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match=r"a 2-D array of numbers in .*, but got shape \(2, 2, 2\)"):
        load(str(tmp_path / "d.npy"), target=0)
    np.savez(tmp_path / "two.npz", x=np.zeros((2, 2)), z=np.zeros(2))
    with pytest.raises(InputError, match=r"one 2-D array in .*, but got 2: x, z"):
        load(str(tmp_path / "two.npz"), target=0)


def test_time_stamps_keep_their_differences(tmp_path: Path) -> None:
    rows = [(1_700_000_000_000 + 60 * i, 1_600_000_000_000 + i) for i in range(40)]
    path = write(tmp_path, "stamp,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
    data = load(path, target="y")
    assert np.diff(data.train.x[:, 0]).tolist() == [60.0] * 39
    assert np.diff(data.train.y).tolist() == [1.0] * 39


def test_identifiers_that_float64_merges_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "id,y\n" + "".join(f"{2**62 + i},{i / 7}\n" for i in range(40)))
    with pytest.raises(InputError, match=r"^expected column 'id' of .* is it an identifier\? remove the column$"):
        load(path, target="y")


@pytest.mark.parametrize("number", ["1,5", "1,234.50", "-1.234,5"])
def test_numbers_with_commas_are_no_levels(tmp_path: Path, number: str) -> None:
    with pytest.raises(InputError, match=rf"without commas in line 3, column 'a' of .*, but got '{number}'; write 1.5"):
        load(write(tmp_path, f"a;y\n7;0\n{number};1\n;1\n"), target="y")
    with pytest.raises(InputError, match="without commas in line 2, column 'y'"):
        load(write(tmp_path, f"a;y\n1;{number}\n2;{number}\n3;8\n"), target="y")
    assert load(write(tmp_path, f"a;y\n7;0\n{number};1\nMon, Tue;1\n"), target="y").columns[-1] == "a=?"
    assert load(write(tmp_path, f"a;y\n1;{number}\n2;{number}\n3;8\n"), target="y", task="classification").classes


def test_a_slip_among_numbers_makes_no_levels(tmp_path: Path) -> None:
    rows = [f"{i},{i / 2},{'uv'[i % 2]}" for i in range(40)]
    typed = "a,b,y\n" + "\n".join(rows).replace("\n7,", "\no7,")
    said = (
        r"expected a number in line 9, column 'a' of .*, but got 'o7' among 39 different numbers; correct it, or leave"
    )
    with pytest.raises(InputError, match=said):
        load(write(tmp_path, typed), target="y")
    with pytest.raises(InputError, match=said):
        load(write(tmp_path, typed), target="a")
    assert len(load(write(tmp_path, typed), target="y", categorical=["a"]).columns) == 42
    # A few numbers beside a word are levels, as in 0, 1, 2, 3+.
    few = "a,b,y\n" + "\n".join(f"{i % 19 or '19+'},{i},{'uv'[i % 2]}" for i in range(60))
    assert "a=19+" in load(write(tmp_path, few), target="y").columns


def test_other_targets_are_advised_where_they_would_do(tmp_path: Path) -> None:
    for values, advice in (("uvw", "another target$"), ("123", "another target or task='regression'$")):
        text = "a,y\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values))
        with pytest.raises(InputError, match=advice):
            load(write(tmp_path, text), target="y", task="classification")


def test_the_note_tells_of_gaps(tmp_path: Path) -> None:
    assert load(write(tmp_path, PEOPLE), target="price").note.endswith(
        "; values are missing in 1 column, filled by medians of training and marked"
    )
    assert load(write(tmp_path, "a,y\n1,0\n2,1\n"), target="y").note.startswith("t.csv: 2 rows, 1 column, target")
    assert "missing" not in load(write(tmp_path, "a,y\n1,0\n2,1\n"), target="y").note
