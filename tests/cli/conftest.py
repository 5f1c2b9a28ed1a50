"""The command in this process, or in a copy of it, in a folder of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.house import Result, called, workplace

Cli = Callable[..., Result]
Refused = Callable[..., None]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path) -> Iterator[None]:
    with workplace(tmp_path):
        yield


@pytest.fixture
def cli() -> Cli:
    """Calls `rcad` with these words."""
    return called


@pytest.fixture
def done() -> Cli:
    """Calls `rcad` with words that are right: exit code 0."""

    def call(*arguments: object) -> Result:
        result = called(*arguments)
        assert result.code == 0, result.err
        return result

    return call


@pytest.fixture
def refused() -> Refused:
    """Calls `rcad` with words that are wrong: exit code 2, one line that says what is, and nothing written."""

    def call(*arguments: object, says: str) -> None:
        before = contents()
        result = called(*arguments)
        assert (result.code, result.err.count("\n")) == (2, 1), result
        # `data verify` lists what it found, and the demo says in a second that it begins.
        assert not result.out or arguments[0] == "demo" or arguments[:2] == ("data", "verify"), result.out
        assert len(result.err) <= 301
        assert result.err.rstrip("\n").isprintable()
        assert result.err.startswith("rcad: "), result.err
        assert says in result.err, result.err
        assert contents() == before

    return call


def contents() -> dict[str, bytes]:
    """Every file outside the cache, which may keep what it has read."""
    every = [path for path in sorted(Path().rglob("*")) if path.parts[0] != "cache"]
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in every}
