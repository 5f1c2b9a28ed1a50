"""What a study leaves behind: a record, a page, a text. The same command may replace them, and no other one."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from rcad.errors import InputError, expanded, need
from rcad.report import drawing, html
from rcad.report.document import Document, Table
from rcad.report.drawing import save
from rcad.report.markdown import markdown
from rcad.report.terminal import text
from rcad.runs.files import dumps, finite_or_none, loads, make_folder, read_text, unsealed, write_sealed, write_text
from rcad.train.place import Place
from rcad.train.trackers import parse_trackers, track_study


@dataclass(frozen=True, repr=False)
class Kept(ABC):
    """What a study found: an object that shows itself in a notebook, in a terminal and in files.

    Attributes:
        record: everything, as plain data.
        files: the page, the text, the record, where they were written.
    """

    record: Mapping[str, Any]
    files: tuple[Path, ...] = ()

    @property
    @abstractmethod
    def document(self) -> Document:
        """All that it says."""

    @property
    def verdict(self) -> str:
        """The answer, in a sentence or a few."""
        return self.document.sections[0].verdict

    @property
    def table(self) -> Table:
        """The first table."""
        return self.document.tables[0]

    @property
    def figures(self) -> list[Any]:
        """Every figure, as matplotlib has them."""
        return [figure.drawing for figure in self.document.figures]

    def _repr_html_(self) -> str:
        return html.fragment(self.document)

    def _repr_markdown_(self) -> str:
        return markdown(self.document)

    def __repr__(self) -> str:
        return text(self.document)

    def written(self, *files: Path) -> Self:
        """Write the record (.json), the text (.md) and the page (.html): the last named first, the page last."""
        shown = self.document
        make_folder(files[0].parent)
        for path in reversed(files):
            if path.suffix == ".json":
                write_sealed(path, self.record)
            else:
                write_text(path, html.page(shown) if path.suffix == ".html" else markdown(shown))
        return replace(self, files=files)


def tell_trackers(
    found: Kept,
    place: Place,
    command: str,
    config: Mapping[str, Any],
    numbers: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]] = (),
    status: str = "done",
) -> None:
    """The study with its pictures, for the trackers of the place; see `track_study`."""
    if place.track:
        with tempfile.TemporaryDirectory() as scratch:
            has = any(file.suffix == ".png" for file in found.files)
            named = [replace(one, name=f"figure-{k}") for k, one in enumerate(found.document.figures, 1)]
            drawn = [] if has else save(named, Path(scratch))
            title, out = found.document.title, found.files[0].parent if found.files else place.store.path
            files = [*found.files, *drawn]
            track_study(place.track, command, title, out, config, numbers, files, rows=rows, status=status)


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as its file will give it back."""
    found: dict[str, Any] = loads(dumps(finite_or_none(record)), "a record")
    return found


def earlier(files: Sequence[Path], what: str, **marks: str) -> dict[str, Any] | None:
    """The record that an earlier call left in the last of these files; None where there is none of them.

    Args:
        what: they are of, e.g. "comparison".
        marks: what the record says of itself; where it does not, whatever lies there is refused.
    """
    found = loads(read_text(files[-1]), str(files[-1])) if files[-1].is_file() else None
    if isinstance(found, dict) and all(found.get(key) == value for key, value in marks.items()):
        try:
            whole: dict[str, Any] = unsealed(found)
        except InputError as error:
            words = str(error).partition("; ")[0]
            raise InputError(f"in {files[-1]}: {words}; move it away to make the {what} again") from None
        return whole
    for path in files:
        if path.exists():
            raise InputError(f"expected a folder for the {what}, but {path} is something else; pass another --out")
    return None


def check_packages(*more: tuple[str, str, str]) -> None:
    """That a report can be written here, before anything is computed; `more` are further modules that are needed."""
    drawing.matplotlib()
    for module in (("jinja2", "jinja2", "report"), *more):
        need(*module)


@contextmanager
def workplace(
    out: Path | str | None, runs: Path | str | None, *, track: str | Sequence[str] | None = None, **where: Any
) -> Iterator[tuple[Path | None, Place]]:
    """The folder of the report, and where runs are made: in `runs`, else inside the report, else for a while."""
    trackers = parse_trackers(track)
    kept = None if out is None else expanded(out)
    if kept is not None and kept.exists() and not kept.is_dir():
        raise InputError(f"expected a folder for --out, but {kept} is a file; name another")
    with ExitStack() as stack:
        if runs is None:
            runs = (kept or Path(stack.enter_context(tempfile.TemporaryDirectory()))) / "runs"
        yield kept, Place.of(Path(runs), track=trackers, **where)
