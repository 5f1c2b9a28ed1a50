"""Ctrl-C, SIGTERM and a closed terminal: 130 or 143, and one line, whenever they come and however often."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from made import images

SRC = Path(__file__).parents[2] / "src"
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143}
# The script, with a pause at some moment of its start: what is under way there is what a signal meets.
SCRIPT = """\
import sys
sys.path.insert(0, {src!r})
import builtins, time
def pause():
    print("here", flush=True)
    for _ in range(600):  # a signal just before a sleep would be heard only after it
        time.sleep(0.1)
{moment}
from rcad.cli.main import main
main()
"""
MOMENTS = {
    "its own imports": "import rcad.cli; pause()",
    "the command's imports": """\
real = builtins.__import__
def importing(name, *rest):
    if name == "rcad.runs.store" and "typer" in sys.modules:
        builtins.__import__ = real
        pause()
    return real(name, *rest)
builtins.__import__ = importing
""",
    "a package's import that catches all": """\
class Finder:
    def find_spec(self, name, *rest):
        if name == "rcad.cli.runs":
            sys.meta_path.remove(self)
            try:
                pause()
            except BaseException:
                raise ValueError("half-made") from None
sys.meta_path.insert(0, Finder())
""",
    "its work": "import rcad.runs.store as store; store.Store.records = lambda *_, **__: pause()",
    "its end": "import rcad.cli, atexit; atexit.register(pause)",
    "the page of a search": "import rcad.study.outputs as files; files.html.page = lambda *_, **__: pause()",
}
TUNE = "tune --data diabetes --method rcad --budget 1 --epochs 1"


def started(moment: str, tmp_path: Path, words: str = "runs list") -> subprocess.Popen[str]:
    """The command, where it pauses."""
    script = tmp_path / "rcad"
    script.write_text(SCRIPT.format(src=str(SRC), moment=MOMENTS[moment]))
    (tmp_path / "runs").mkdir(exist_ok=True)
    command = [sys.executable, str(script), *words.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    while process.stdout.readline() not in ("here\n", ""):
        pass
    return process


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("moment", [*MOMENTS][:-1])
def test_a_signal_ends_the_command_whenever_it_comes(moment: str, twice: bool, tmp_path: Path) -> None:
    for number in [*SIGNALS][:: 1 if moment == "its work" else 2]:
        process = started(moment, tmp_path)
        process.send_signal(number)
        if twice:
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (SIGNALS[number], "rcad: interrupted\n")


@pytest.mark.parametrize("moment", ["its own imports", "the page of a search"])
def test_a_command_that_can_go_on_says_so_however_it_ends(moment: str, tmp_path: Path) -> None:
    for package in ("matplotlib", "jinja2", "sklearn"):
        pytest.importorskip(package)
    process = started(moment, tmp_path, TUNE)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 130
    assert err[-1] == "rcad: interrupted; what is finished is kept; run the same command to continue"


def test_a_closed_terminal_is_ignored_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = started("its work", tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert process.poll() is None
    process.terminate()
    assert process.communicate(timeout=60)[1] == "rcad: interrupted\n"


def test_importing_the_command_changes_no_handler() -> None:
    code = "import signal, rcad.cli.main; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"


def test_a_command_with_worker_processes_ends_without_a_word_of_theirs(tmp_path: Path) -> None:
    script = tmp_path / "rcad"
    lines = [f"import sys; sys.path.insert(0, {str(SRC)!r})", "from rcad.cli.main import main"]
    script.write_text("\n".join([*lines, "if __name__ == '__main__':", "    main()", ""]))
    with contextlib.chdir(tmp_path):
        images(each=6)
    words = ["train", "--data", "images", "--method", "erm", "--epochs", "1", "--seeds", "2", "--devices", "2"]
    command = [sys.executable, str(script), *words, "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
