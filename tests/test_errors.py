"""Messages: one line, bounded, without a terminal's codes; commands that can be pasted; the form of what files hold."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from one_line import refusals
from rcad.errors import LONGEST, InputError, check_parameters, command, fitting, one_line, one_of, shaped

NAME = "/data/" + "x" * 400 + "/last.csv"
MANY = [f"a_long_name_{k}" for k in range(20)]


@given(st.text(max_size=900), st.integers(30, 400))
@settings(deadline=None)
def test_a_message_is_one_short_line_whatever_is_in_it(text: str, most: int) -> None:
    line = one_line(text, most)
    assert len(line) <= most
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in line)


def test_long_names_lose_their_middle_and_commands_stay_whole_or_are_left_out() -> None:
    line = str(InputError(f"expected {NAME} to be a table, but it is none; run: rcad data import my.csv"))
    assert line.startswith("expected /data/xxxx")
    assert "xxx/last.csv to be a table, but it is none; run: rcad data import my.csv" in line
    assert len(f"rcad: {line}") <= LONGEST
    assert one_line("expected a  file,\nbut got\tnone; try again") == "expected a file, but got none; try again"
    line = one_line(f"expected a record, but got none; run: rcad train --data {NAME}")
    assert line.startswith("expected a record, but got none; a shorter path")
    assert "rcad train" not in line


@given(st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), max_size=4))
@settings(deadline=None)
def test_a_command_can_be_pasted_whatever_its_words_are(words: list[str]) -> None:
    line = command("printf", "%s\\0", "", *words)
    assert "\n" not in line
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode().split("\0")[1:-1] == words


test_a_near_miss_is_named_a_file_has_its_form_and_a_network_fits_into_memory = refusals(
    (one_of, "it", "a_lng_name_7", MANY, "expected it to be a known one, but got 'a_lng_name_7'; did you mean"),
    (one_of, "it", "b", ["a", "bb"], "expected it to be one of a, bb, but got 'b'; did you mean 'bb'?"),
    (shaped, "x", True, int, "x to be of type int, but got True"),
    (shaped, "x", 10**400, float, "x to be a finite number"),
    (shaped, "x", [1, "a"], [int], "x[1] to be of type int, but got 'a'"),
    (shaped, "x", {"a": None}, {"a": int}, "x.a to be of type int, but got None"),
    (shaped, "x", {"a": [None]}, {str: [str]}, "x.a[0] to be of type str"),
    (shaped, "x", 3, {"a": int}, "x to be of type dict, but got 3"),
    (check_parameters, "a network", 10**12, "1.6e+04 GB"),
    (check_parameters, "a network", 10**400, "10^400 parameters"),
)


def test_the_right_form_and_a_network_that_fits_pass() -> None:
    plain = {"a": [1, None], "more": "kept"}
    assert shaped("x", plain, {"a": [(float, None)], "b": (int, None)}) == {**plain, "b": None}
    check_parameters("a network", 10**6)


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("no " * 200), RecursionError(), OverflowError("big")])
def test_what_wrong_parts_of_a_file_end_in_is_one_line(error: Exception) -> None:
    says = f"^expected a.json to hold .*{type(error).__name__}.*; run it again$"
    with pytest.raises(InputError, match=says), fitting("a.json", "run it again"):
        raise error
    with pytest.raises(OSError, match="full"), fitting("a.json", "run it again"):
        raise OSError("full")  # a full disk is not the file's fault
