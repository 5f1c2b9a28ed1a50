"""Tables of one's own: what is a number, a level, a target; what is left out; what is refused. Arrays; scales."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from one_line import fails_in_one_line, refusals
from rcad.data import arrays
from rcad.data.scaling import Standardizer, TargetScaler, compact
from rcad.data.table_encoder import TableEncoder
from rcad.data.table_files import read_table
from rcad.data.tables import load
from rcad.errors import InputError

PEOPLE = """age,colour,city,price
30,red,Ulm,1.5
,blue,"Bonn, Rhein",2.5
41,NA,Ulm,3.25
22,red,Ulm,9
"""


def read(content, target="y", **options):
    """The data set of a text file; its target is y."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
        return load(f"{folder}/t.csv", target=target, **options)


def new(content):
    """Another file, as predictions read it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "new.csv").write_text(content)
        return read_table(Path(folder, "new.csv"))


def lines(*rows):
    return "".join(f"{row}\n" for row in rows)


def test_numbers_levels_and_gaps():
    data = read(PEOPLE, "price")
    assert data.columns == ("age", "colour=blue", "colour=red", "colour=?", "city=Bonn, Rhein", "city=Ulm", "city=?")
    assert data.train.x.dtype == np.float32
    rows = [[30, 0, 1, 0, 0, 1, 0], [np.nan, 1, 0, 0, 1, 0, 0], [41, 0, 0, 1, 0, 1, 0], [22, 0, 1, 0, 0, 1, 0]]
    np.testing.assert_array_equal(data.train.x, rows)
    assert (data.task, data.train.y.dtype, data.is_image, data.test) == ("regression", np.float32, False, None)
    assert data.train.y.tolist() == [1.5, 2.5, 3.25, 9.0]
    assert data.note == (
        "t.csv: 4 rows; 3 of 4 columns are inputs, 'price' is the target; regression, since the target has 4 numeric "
        "values (--task to change); values are missing in 1 column, filled by medians of training and marked"
    )


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_the_delimiter_is_found(delimiter):
    decimal = "1,5" if delimiter != "," else "1.5"  # decimal commas must not win
    rows = (["a", "b", "y"], [decimal, "2", "0"], [decimal, "3", "1"])
    data = read(lines(*(delimiter.join(row) for row in rows)))
    assert (data.columns, data.train.y.tolist()) == (("a", "b"), [0, 1])


def test_names_bom_crlf_blank_lines_and_spaces():
    assert read("size, in cm, raw;y\n1;0\n2;1\n").columns == ("size, in cm, raw",)  # of the header alone
    data = read(b"\xef\xbb\xbfa, y\r\n1, no \r\n\r\n2, yes\r\n")
    assert (data.columns, data.classes) == (("a",), ("no", "yes"))


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
def test_the_task_is_inferred(values, task, classes):
    data = read(lines("a,y", *(f"{i},{v}" for i, v in enumerate(values))))
    assert (data.task, data.classes) == (task, classes)
    assert f"; {task}, since" in data.note
    if classes:
        assert [classes[k] for k in data.train.y] == [value.removesuffix(".0") for value in values]


def test_the_task_can_be_told():
    assert read("a,y\n1,0\n2,1\n3,1\n", task="regression").train.y.dtype == np.float32
    data = read("a,y\n1,0.5\n2,1\n3,1\n", task="classification")
    assert (data.classes, data.train.y.tolist()) == (("0.5", "1"), [0, 1, 1])
    assert data.note.endswith("classification as told; classes with only one row, too few to learn and to test: '0.5'")


def test_columns_are_dropped_and_targets_may_be_counted():
    for target in (2, -1, "2", "y"):
        data = read("id,grade,y\nu1,1,0\nu2,2,1\nu3,1,1\n", target, drop=("id",))
        assert (data.columns, data.train.y.tolist()) == (("grade",), [0, 1, 1])


def test_parquet(tmp_path):
    columns = {
        "n": pa.array([1, None, 3], pa.int32()),
        "f": pa.array([0.5, float("nan"), 1.5]),
        "s": pa.array(["u", None, "v"]).dictionary_encode(),
        "b": pa.array([True, False, True]),
        "d": pa.array([5, 3, None], pa.date32()),
        "t": pa.array([0, 129600, None], pa.timestamp("s")),
        "y": pa.array(["no", "yes", "no"]),
    }
    (tmp_path / "k=v").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "k=v" / "t.parquet")
    data = load(str(tmp_path / "k=v" / "t.parquet"), target="y")
    assert data.columns == ("n", "f", "s=u", "s=v", "s=?", "b=False", "b=True", "b=?", "d", "t")
    np.testing.assert_array_equal(data.train.x[1], np.float32([np.nan, np.nan, 0, 0, 1, 1, 0, 0, 3, 1.5]))
    assert data.train.y.tolist() == [0, 1, 0]
    pq.write_table(pa.table({"d": pa.array([[0], [1]]), "y": [0, 1]}), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"numbers or text in column 'd' of .*d.parquet, but got list"):
        load(str(tmp_path / "d.parquet"), target="y")


def test_numpy(tmp_path):
    array = np.asarray([[1, 2, 0], [3, np.nan, 1], [5, 6, 1.0]])
    np.save(tmp_path / "a.npy", array)
    data = load(str(tmp_path / "a.npy"), target=-1)
    np.testing.assert_array_equal(data.train.x, array[:, :2].astype(np.float32))
    assert data.classes == ("0", "1")
    np.save(tmp_path / "d.npy", np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match=r"a 2-D array of numbers in .*, but got shape \(2, 2, 2\)"):
        load(str(tmp_path / "d.npy"), target=0)


IDS = "id,y\n" + "".join(f"u{i},{i % 2}\n" for i in range(101))
SLIP = lines("a,b,y", *(f"{i},{i / 2},{'uv'[i % 2]}" for i in range(40))).replace("\n7,", "\no7,")
CODES = lines("code,y", *(f"{2**62 + i},{i / 7}" for i in range(40)))
DATES = lines("a|y", *(f"2021-0{1 + i // 28}-{1 + i % 28:02}|{i / 8}" for i in range(99))).replace("2021-02-03", "soon")
UNITS = lines("a|y", *(f"{'$' if k % 9 else 'x'}{k}|{k / 8}" for k in range(1, 200) for _ in "ab"))
MIXED = lines("a|y", "$1,870.60|1", "1 870,60|2", *(f"{i},50|{i}" for i in range(20)))


test_bad_tables = refusals(
    (",\n , \n", {}, "the file is empty"),
    ("a,y\n1,2\n", {}, "at least 2 rows in .. t.csv, but got 1"),
    ("a,y\n1,2\n1\n", {}, "2 columns in line 3 of .. t.csv, but got 1"),
    ("a,a,y\n1,2,3\n1,2,4\n", {}, "names of .. t.csv to differ, but got 'a' twice"),
    ("1,2\n3,4\n5,6\n", {"target": 1}, "column names in line 1 of .. but got values; add a line of names"),
    (b"a,y\n1,\xe9\n", {}, "UTF-8 text in .. t.csv, but got byte 0xe9 in line 2"),
    ('"a\n1",b\n1,2\n1,3\n', {"target": "price"}, "but got 'price'; choose out of a 1, b"),
    ("a,y\n1,2\n1,3\n", {"target": None}, "column to predict, but got none; choose a target out of a, y"),
    ("id,y\n1,2\n1,3\n", {"drop": ["Id"]}, "drop to be a column of .. , but got 'Id'; did you mean 'id'?"),
    ("a,y\n1,0\ninf,1\n", {}, "a finite number in line 3, column 'a' of .. , but got inf"),
    (IDS, {}, "beside 'y' in .. t.csv, but got none; left out: 'id', a different text in every row"),
    ("a,y\n1,0.5\n2,nan\n3,\n", {}, "a target in line 3, column 'y' of .. , but it is missing, as in 1 more of 3"),
    ("a,y\n1,no\n2,no\n", {}, "at least 2 classes in column 'y' of .. , but got only 'no'"),
    ("a,y\n1,4.5\n2,4.5\n", {}, "targets that differ in column 'y' of .. , but all are 4.5"),
    ("a,y\n1,u\n2,v\n3,w\n", {}, "classes that repeat in column 'y' of .. , but got 3 values in 3 rows; give another"),
    (CODES, {}, "expected column 'code' of .. is it an identifier? drop the column"),
    ("a;y\n7;0\n1,234;1\n;1\n", {}, "without commas in line 3, column 'a' of .. , but got '1,234'; write 1.5"),
    (MIXED, {}, "numbers in column 'a' of .. t.csv, but got '$1,870.60' in line 2 and '1 870,60' in line 3; write all"),
    ("a|y\n1/2/2020|1\n2020-01-31|2\n", {}, "one way of writing dates in column .. '1/2/2020' in line 2 and '2020-"),
    (SLIP, {}, "a number in line 9, column 'a' of .. , but got 'o7' among 39 different numbers; correct it, or leave"),
    (DATES, {}, "a date in line 32, column 'a' of .. , but got 'soon' among 98 different dates; correct it"),
    (UNITS, {}, "at most 100 levels in line 18, column 'a' of .. , but got 'x9' and 199 levels"),
    ("a,y\n1,1\n2,12345678901234567890\n3,5\n4,1\n", {}, "at most 2^53 in size in line 3, column 'y'"),
    ("a,y\n1,2\n1,x\n", {"task": "regression"}, "a number in line 3, column 'y' of .. , but got 'x'"),
    ("a,y\n1,2\n1,3\n", {"task": "ranking"}, "task to be one of auto, classification, regression"),
    of=lambda content, options: read(content, **options),
)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1,5", "7", "-12,25"], [1.5, 7, -12.25]),
        (["1,234.50", "7", "1,234,567"], [1234.5, 7, 1234567]),
        (["-1.234,5", "0,25", "7"], [-1234.5, 0.25, 7]),
        (["$1,870.60", "$ 12", "-$3.5"], [1870.6, 12, -3.5]),
        (["260.983 EUR", "12.000 EUR", "1.100.000 EUR"], [260983, 12000, 1100000]),
        (["1 870,60 €", "12 €", "0,5 €"], [1870.6, 12, 0.5]),
        (["1\u202f870,60", "12\u00a0000,5", "3"], [1870.6, 12000.5, 3]),
        (["CHF 1'200.60", "CHF 5", "7"], [1200.6, 5, 7]),
        (["12%", "5.5%", "100%"], [12, 5.5, 100]),
        (["2020-02-29", "1970-01-02", "1969-12-31"], [18321, 1, -1]),
        (["2020-02-29 12:00", "1970-01-01T06:00:00Z", "1970-01-02T00:00:00+06:00"], [18321.5, 0.25, 0.75]),
        (["29.02.2020", "02.01.1970", "3.1.1970"], [18321, 1, 2]),
        (["2/29/2020", "1/2/1970", "1/3/1970"], [18321, 1, 2]),
    ],
)
def test_numbers_and_dates_as_people_write_them(texts, expected):
    data = read(lines("a|y", *(f"{text}|{i}.5" for i, text in enumerate([*texts, ""]))))
    assert data.columns == ("a",)
    assert data.train.x[:3, 0] == pytest.approx(expected)
    assert np.isnan(data.train.x[3, 0])
    # A new file is read in the way of the first, even if it could be read otherwise.
    encoder = TableEncoder.from_dict(json.loads(json.dumps(data.encoder.to_dict())))
    assert encoder.transform(new(f"a|y\n{texts[0]}|1\n{texts[0]}|2\n"))[:, 0] == pytest.approx([expected[0]] * 2)
    with fails_in_one_line(", written as in training (like ", "), but got 'soon'"):
        encoder.transform(new("a|y\nsoon|1\nsoon|2\n"))
    # As a target they are regression, unless told otherwise.
    target = read(lines("y|a", *(f"{text}|{i}" for i, text in enumerate(texts)))).train.y
    assert target == pytest.approx(np.asarray(expected, np.float32))


@pytest.mark.parametrize(
    ("texts", "reading"),
    [
        (["05/11/2012", "03/04/2020", "07/08/2013"], "month first, as 11 May 2012"),  # in no order: as pandas does
        (["10/01/2011", "11/01/2011", "02/02/2011"], "day first, as 10 January 2011"),  # so the rows are in order
        (["01/10/2011", "01/11/2011", "02/02/2011"], "month first, as 10 January 2011"),
    ],
)
def test_how_dates_are_read_that_could_be_read_two_ways_is_said(texts, reading):
    data = read(lines("a|b|y", *(f"{text}|{i}|{i % 2}" for i, text in enumerate(texts))))
    assert data.omissions[0] == f"'a': {texts[0]} is read {reading}; if that is wrong, write dates as 2012-11-05"
    later = new(f"a|b\n{texts[-1]}|1\n25/12/2012|1\n")
    if "day first" in reading:  # as in training, whatever these rows are
        assert np.isfinite(data.encoder.transform(later)[:, 0]).all()
    else:
        with fails_in_one_line("line 3, column 'a' of ", "(like 12/31/2021, month first), but got '25/12/2012'"):
            data.encoder.transform(later)


def test_a_target_of_dates_has_a_unit():
    data = read("y|a\n05/11/2012|1\n03/04/2020|2\n07/08/2013|5\n")
    assert (data.task, data.unit) == ("regression", "days since 1970-01-01")
    assert data.omissions[-1] == "'y', the target, holds dates: its numbers are days since 1970-01-01"
    assert read("y|a\n5.5|1\n3.25|2\n7|5\n").unit == ""


@pytest.mark.parametrize("texts", [["$5", "5 €"], ["1.5", "1,5 or so"], ["2020-13-01", "2020-01-01"], ["12 34 a", "5"]])
def test_what_is_no_number_stays_text(texts):
    data = read(lines("a|y", *(f"{text}|{i}" for i, text in enumerate(texts * 2))))
    assert data.columns == tuple(f"a={text}" for text in (*sorted(texts), "?"))


def test_few_numbers_beside_a_word_and_classes_with_commas_are_levels():
    few = lines("a,b,y", *(f"{i % 19 or '19+'},{i},{'uv'[i % 2]}" for i in range(60)))
    assert "a=19+" in read(few).columns
    assert read("a;y\n1;1,5\n2;1,5\n3;8\n", task="classification").classes == ("1,5", "8")


def test_columns_that_name_the_rows_are_named_and_left_out():
    table = lines("name,user_id,step,id,y", *(f"u{i},{i * 7},{i},{i % 3},{i / 2}" for i in range(12)))
    data = read(table)
    assert data.columns == ("step", "id")  # a count is none by another name, nor is an id that repeats
    assert "; left out: 'name', a different text in every row" in data.note
    assert "; left out: 'user_id', a different whole number in every row" in data.note
    assert "12 rows; 2 of 5 columns are inputs" in data.note
    assert read(table, drop=["name", "user_id", "id"]).columns == ("step",)
    numbered = read(lines("orderNumber,a,y", *(f"{(i * 7) % 12 + 1},{i % 3},{i / 2}" for i in range(12))))
    assert numbered.columns == ("orderNumber", "a")
    assert numbered.omissions[0].startswith("'orderNumber' is an input, with a different whole number in every row; ")


def test_an_index_that_pandas_wrote_is_left_out():
    data = read(lines(",Unnamed: 0,a,y", *(f"{i},{i // 2},{i % 3},{i / 2}" for i in range(4))))
    assert data.columns == ("a",)
    words = ("'Unnamed: 0.1', a different whole number in every row", "'Unnamed: 0', whole numbers without a name")
    assert data.omissions == tuple(f"left out: {column}" for column in words)


def test_rows_without_a_target_are_skipped_on_request_and_counted():
    data = read("c,a,y\nu,1,0.5\nv,2,\nu,3,na\nw,4,1.5\n,5,2.5\n", skip_bad=True)
    assert data.train.y.tolist() == [0.5, 1.5, 2.5]
    assert data.columns == ("c=u", "c=w", "c=?", "a")
    assert data.train.x.tolist() == [[1, 0, 0, 1], [0, 1, 0, 4], [0, 0, 1, 5]]
    assert "; 2 rows without a target skipped" in data.note


RNG = np.random.default_rng(0)
NCHW = RNG.integers(0, 256, (6, 3, 5, 4), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def save(tmp_path, **content):
    np.savez(tmp_path / "d.npz", **content)
    return str(tmp_path / "d.npz")


FORMS = (NCHW, NCHW.transpose(0, 2, 3, 1), NCHW.astype(np.int64), (NCHW + 0.4) / 255.4, (NCHW / 255).astype(np.float32))


@pytest.mark.parametrize("x", FORMS)
def test_images_become_uint8_nchw(tmp_path, x):
    dataset = arrays.load(save(tmp_path, x=x, y=LABELS))
    assert (dataset.train.x.dtype, dataset.classes, dataset.test) == (np.uint8, ("0", "1", "2"), None)
    np.testing.assert_array_equal(dataset.train.x, NCHW)
    np.testing.assert_array_equal(dataset.train.y, LABELS)
    parts = {"x_train": x[:4], "y_train": LABELS[:4, None], "x_test": x[4:], "y_test": LABELS[4:].astype(np.uint8)}
    dataset = arrays.load(save(tmp_path, **parts))
    np.testing.assert_array_equal(dataset.test.x, NCHW[4:])
    np.testing.assert_array_equal(dataset.train.y, LABELS[:4])
    assert dataset.test.y.dtype == np.int64


def test_features_text_classes_and_regression(tmp_path):
    x = RNG.normal(size=(6, 2))
    dataset = arrays.load(save(tmp_path, x=x, y=np.array(list("bacbac"))))
    assert (dataset.classes, dataset.train.y.tolist()) == (("a", "b", "c"), [1, 0, 2, 1, 0, 2])
    assert dataset.train.x.dtype == np.float32
    dataset = arrays.load(save(tmp_path, x=x, y=x[:, 0]))
    assert (dataset.task, dataset.classes, dataset.train.y.dtype) == ("regression", (), np.float32)
    stamps = 1_700_000_000_000 + np.arange(6)
    dataset = arrays.load(save(tmp_path, x=stamps[:, None], y=stamps / 2))
    assert (np.diff(dataset.train.x[:, 0]).tolist(), np.diff(dataset.train.y).tolist()) == ([1.0] * 5, [0.5] * 5)


def test_zeros_and_ones_are_no_pixels_and_grey_images_have_one_channel(tmp_path):
    x = np.eye(5, dtype=np.int64)[None].repeat(6, axis=0)
    with pytest.raises(InputError, match=r"up to 255 in .*, but the largest is 1"):
        arrays.load(save(tmp_path, x=x, y=LABELS))
    for pixels, largest in ((x.astype(np.float32), 255), (x * 2, 2), (x * 0, 0)):
        read = arrays.load(save(tmp_path, x=pixels, y=LABELS)).train.x
        assert (read.shape, read.max()) == ((6, 1, 5, 5), largest)


GAP = np.nan
STAMPS = 1_700_000_000_000 + np.arange(50.0) * 1000  # a minute of milliseconds


def test_fills_marks_and_scales():
    train = np.asarray([[1.0, 5.0, 0.0], [2.0, 5.0, 1.0], [GAP, 5.0, 1.0], [9.0, 5.0, 0.0]], dtype=np.float32)
    scaler = Standardizer.fit(train)
    assert scaler.median == (2.0, 5.0, 0.5)
    assert scaler.indicators == (0,)
    out = scaler.transform(train)
    assert out.dtype == np.float32
    seen = np.asarray([1.0, 2.0, 9.0])
    assert out[:, 0] == pytest.approx((np.asarray([1, 2, 2, 9]) - seen.mean()) / seen.std(), rel=1e-6)
    assert out[:, 1].tolist() == [0, 0, 0, 0], "a constant column is zero"
    assert out[:, 2].tolist() == [0, 1, 1, 0], "levels stay levels"
    assert out[:, 3].tolist() == [0, 0, 1, 0], "the indicator"
    scaled = Standardizer.fit(train, keep_binary=False).transform(train)
    assert scaled[:, 2].tolist() == [-1, 1, 1, -1]
    empty = np.asarray([[GAP, 1.0], [GAP, 3.0]])
    assert Standardizer.fit(empty).transform(empty).tolist() == [[0, -1, 1], [0, 1, 1]]


def test_other_rows_change_nothing():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(2, 50, 3))
    test[0] = 1e6
    test[1] = GAP
    scaler = Standardizer.fit(train)
    out = scaler.transform(train)
    scaler.transform(test)
    assert np.array_equal(scaler.transform(train), out)
    assert out.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-6)
    assert out.std(axis=0) == pytest.approx(np.ones(3), abs=1e-6)
    assert scaler.transform(test)[1] == pytest.approx(
        (np.median(train, axis=0) - train.mean(axis=0)) / train.std(axis=0)
    ), "a gap that training never had is filled, without an indicator"


test_rows_and_targets_that_cannot_be_scaled = refusals(
    (Standardizer.fit, np.asarray([[np.inf], [1.0]]), "finite numbers or NaN"),
    (Standardizer.fit, np.empty((0, 3)), "rows of shape (N, D), but got shape (0, 3)"),
    (Standardizer.fit(np.ones((2, 1))).transform, np.ones((2, 2)), "expected 1 columns, but got 2"),
    (TargetScaler.fit, np.full(4, 3.0), "targets that differ, but all are 3"),
    (TargetScaler.fit, np.asarray([1.0, GAP]), "finite targets"),
)


def test_only_a_column_that_float32_would_blur_is_kept_wide():
    ordinary = np.random.default_rng(0).normal(1000.0, 1.0, size=(50, 2))
    assert compact(ordinary).dtype == np.float32
    mixed = np.column_stack([ordinary, STAMPS])
    assert compact(mixed).dtype == np.float64
    assert np.array_equal(compact(mixed), mixed)
    assert compact(STAMPS).dtype == np.float64, "targets have one dimension"
    # Half a thousandth of the deviation is where it turns: 2^24 + 1 has no float32.
    assert compact(np.asarray([2.0**24 + 1, 0.0])).dtype == np.float32
    assert compact(np.asarray([2.0**24 + 1, 2.0**24 + 3])).dtype == np.float64
    assert np.isfinite(compact(np.asarray([1e39, 2e39]))).all(), "beyond float32"
