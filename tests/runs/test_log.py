from __future__ import annotations

from pathlib import Path

import pytest

from rcad.errors import InputError
from rcad.runs.log import LogWriter, read_log


def test_events_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for start in (0, 2):
        with LogWriter(path) as log:
            log.append({"epoch": start, "loss": 0.5, "text": "a\nb"})
            log.append({"epoch": start + 1, "loss": float("nan")})
    assert [event["epoch"] for event in read_log(path)] == [0, 1, 2, 3]
    assert read_log(path)[0] == {"epoch": 0, "loss": 0.5, "text": "a\nb"}
    assert read_log(path)[1]["loss"] is None


def test_a_line_is_there_before_the_log_is_closed(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log.jsonl")
    log.append({"epoch": 0})
    assert read_log(log.path) == [{"epoch": 0}]
    log.close()
    log.close()
    with pytest.raises(InputError, match="to be open, but it was closed"):
        log.append({})


@pytest.mark.parametrize("torn", ["{", '{"epoch": 1', '{"epoch": 1}', "\ufffd"])
def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"epoch": 0}\n' + torn)
    assert read_log(path) == [{"epoch": 0}]
    with LogWriter(path) as log:
        log.append({"epoch": 2})
    assert read_log(path) == [{"epoch": 0}, {"epoch": 2}]


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_log(tmp_path / "log.jsonl") == []


@pytest.mark.parametrize(
    ("line", "message"), [("{", "line 2 to be valid JSON"), ("3", "line 2, but got 3"), ('{"a": NaN}', "constant NaN")]
)
def test_a_bad_line_within_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{{}}\n{line}\n{{}}\n")
    with pytest.raises(InputError, match=message):
        read_log(path)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected .*log\.jsonl to be writable, but got: No such file"):
        LogWriter(tmp_path / "no" / "log.jsonl")
