"""The files of a study: record, page and text. Only the command that made them may replace them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from rcad.errors import InputError, expanded, fitting, need
from rcad.report import drawing, html
from rcad.report.document import Document, Table
from rcad.report.markdown import markdown
from rcad.report.terminal import text
from rcad.runs.files import dumps, finite_or_none, loads, make_folder, read_text, unsealed, write_sealed, write_text
from rcad.train.place import Place
from rcad.train.trackers import parse_trackers, track_study


@dataclass(frozen=True, repr=False)
class StudyResult:
    """The result of a study: an object that shows itself in a notebook, in a terminal and in files.

    Attributes:
        NAMES: of its files: page, text, record.
        PAGE, KIND: the function that makes the document of a record, and the `Kind` that reads one.
        record: everything, as plain data.
        files: the page, the text, the record, where they were written.
    """

    NAMES: ClassVar[tuple[str, ...]] = ()
    PAGE: ClassVar[Any]
    KIND: ClassVar[Any]
    record: Mapping[str, Any]
    files: tuple[Path, ...] = ()

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """The study in a file (.json); raises InputError where it holds none, or one that was changed."""
        return cls.KIND.read(Path(path))  # type: ignore[no-any-return]

    @property
    def document(self) -> Document:
        """The page; raises InputError where the record of a file holds something else."""
        return self._document()

    def _reading(self) -> AbstractContextManager[None]:
        """Turns what a record raises that holds something else into an InputError."""
        return fitting(f"a record of kind {self.KIND.name!r}", "make it again")

    def _document(self, **how: Any) -> Document:
        with self._reading():
            return self.PAGE(self.record, **how)  # type: ignore[no-any-return]

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

    def save(self, folder: Path | str) -> Self:
        """Write its files; the page comes last: where it is, all are whole."""
        return self.written(*(Path(folder) / name for name in self.NAMES))

    def written(self, *files: Path) -> Self:
        """Write the record (.json), the text (.md) and the page (.html): the last named first."""
        document = self.document
        make_folder(files[0].parent)
        for path in reversed(files):
            if path.suffix == ".json":
                write_sealed(path, self.record)
            else:
                write_text(path, html.page(document) if path.suffix == ".html" else markdown(document))
        return replace(self, files=files)


def tell_trackers(
    result: StudyResult,
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
            files, document = list(result.files), result.document
            out = files[0].parent if files else place.store.path
            if all(file.suffix != ".png" for file in files):
                figures = [replace(figure, name=f"figure-{k}") for k, figure in enumerate(document.figures, 1)]
                files += drawing.save(figures, Path(scratch))
            track_study(place.track, command, document.title, out, config, numbers, files, rows=rows, status=status)


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as its file will give it back."""
    return loads(dumps(finite_or_none(record)), "a record")  # type: ignore[no-any-return]


def earlier(files: Sequence[Path], study: str, **marks: str) -> dict[str, Any] | None:
    """The record that an earlier call left in the last of these files; None where there is none of them.

    A record without these `marks`, or anything else that lies there, is refused; `study` is its name in messages.
    """
    record = loads(read_text(files[-1]), str(files[-1])) if files[-1].is_file() else None
    if isinstance(record, dict) and all(record.get(key) == value for key, value in marks.items()):
        try:
            return unsealed(record)  # type: ignore[no-any-return]
        except InputError as error:
            words = str(error).partition("; ")[0]
            raise InputError(f"in {files[-1]}: {words}; move it away to make the {study} again") from None
    for path in files:
        if path.exists():
            raise InputError(f"expected a folder for the {study}, but {path} is something else; pass another --out")
    return None


def refuse_changed(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses settings that are not those of the study in the file, and names the first that differs."""
    for key in {**before, **now}:
        if (old := before.get(key)) != (new := now.get(key)):
            name = "metric" if key == "by" else key.removeprefix("base.")
            words = f"no {name}" if old is None else f"{name} {old}"
            raise InputError(
                f"expected {words} as in {path}, but got {'none' if new is None else new}; pass another --out to keep "
                "both"
            )


def check_packages(*more: tuple[str, str, str]) -> None:
    """That a report can be written here, before anything is computed; `more` are further modules that are needed."""
    drawing.matplotlib()
    for module in (("jinja2", "jinja2", "report"), *more):
        need(*module)


def report_folder(out: Path | str) -> Path:
    """The folder of a report, which may be missing yet but is no file."""
    folder = expanded(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"expected a folder for --out, but {folder} is a file; name another")
    return folder


@contextmanager
def workplace(
    out: Path | str | None, runs: Path | str | None, *, track: str | Sequence[str] | None = None, **where: Any
) -> Iterator[tuple[Path | None, Place]]:
    """The folder of the report, and where runs are made: in `runs`, else inside the report, else for a while."""
    trackers, devices = parse_trackers(track), where.pop("devices", ())
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise InputError(f'expected devices to be names such as ("cuda:0", "cuda:1"), but got {devices!r}')
    folder = None if out is None else report_folder(out)
    with ExitStack() as stack:
        if runs is None:
            runs = (folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))) / "runs"
        yield folder, Place.of(Path(runs), track=trackers, devices=tuple(devices), **where)
