"""The tables and figures that can be made, and how: compute (or find) the record, then write page and picture."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rcad.errors import InputError, MissingExtraError
from rcad.paper import record as records
from rcad.runs.files import ready_folder, replacing, write_text

Say = Callable[[str, int, int], None]
Scale = Literal["smoke", "small", "full"]
IMAGES = ("cifar100", "tiny-imagenet", "cifar10", "svhn")


@dataclass(frozen=True)
class Target:
    """One table or figure.

    Args:
        name: as in the paper's digest, T7.
        about: one line.
        folder, stem: its files are OUT/folder/stem.json and .md, some with a .png.
        data: the data sets it needs at full scale.
        minutes: about how long the full scale takes on one core, of a study that is computed as a whole.
        runs: how many runs the full scale has, of a suite whose runs go to a GPU; 0 for a study.
    """

    name: str
    about: str
    folder: str
    stem: str
    data: tuple[str, ...] = ()
    minutes: float = 0
    runs: int = 0

    @property
    def is_suite(self) -> bool:
        return self.runs > 0

    @property
    def cost(self) -> str:
        """Of the full scale, for a reader."""
        return f"{self.runs} runs, GPU" if self.is_suite else f"{self.minutes:g} min, CPU"


def _suite(name: str, about: str, runs: int, data: tuple[str, ...]) -> Target:
    return Target(name, about, name, name, data, runs=runs)


TARGETS = {
    one.name: one
    for one in (
        _suite("T1", "adversarial rivals on six image sets, ResNet-18", 420, IMAGES),
        _suite("T2", "ME-ADA and RCAD on top of label smoothing", 300, IMAGES),
        _suite("T3", "a wide network: ERM, ME-ADA, RCAD", 150, ("cifar100",)),
        _suite("T4", "low data: 500 to 50,000 images of CIFAR-100", 420, ("cifar100",)),
        _suite("T5", "ImageNet, finetuned: published numbers, and a trial", 40, ("imagenet",)),
        _suite("T6", "accuracy under a small FGSM attack", 210, ("cifar100", "cifar10")),
        Target("T7", "test likelihood on five UCI regressions, 20 splits", "uci", "uci", ("uci",), 4),
        Target("T8", "accuracy on two moons among noise dimensions", "moons", "moons", (), 22),
        _suite("F1", "images up the loss, and bars of RCAD and its rivals", 70, ("cifar100",)),
        _suite("F2", "RCAD on top of five regularisers: 30 pairs of bars", 720, IMAGES),
        _suite("F3", "gains over ERM, by data set and by data size", 990, IMAGES),
        _suite("F4", "accuracy against alpha; its other panels are T3, T7", 160, ("cifar100",)),
        Target("F5", "linear theory: weights, accuracy, the window of alpha", "theory", "linear", (), 2),
        _suite("F6", "accuracy on corrupted test images", 100, ("cifar10", "cifar100")),
        Target("F7", "decision boundaries of ERM and RCAD on the moons", "moons", "boundaries", (), 1),
    )
}
DRAWS = {"smoke": 20, "small": 100, "full": 1000}
"""Of the linear theory."""


@dataclass(frozen=True)
class Outcome:
    """What was made: the files, whether the numbers were there already, and a line on what was found."""

    files: list[Path]
    reused: bool
    line: str
    note: str = ""


def make(name: str, scale: Scale, out: Path, data_dir: Path | None, say: Say, *, again: bool = False) -> Outcome:
    """Make one of the studies; its record is used again where its settings are the same, unless `again`."""
    target = TARGETS[name]
    folder = out / target.folder
    if name == "F5":
        return _theory(scale, folder, target.stem, say, again=again)
    settings, compute = _study(name, scale, data_dir, say)
    path = folder / f"{target.stem}.json"
    records.refuse_to_replace_larger(path, scale)
    record = None if again else records.finished(path, settings, scale)
    reused = record is not None
    if record is None:
        ready_folder(folder)
        started = time.perf_counter()
        results = compute()
        record = records.build(name, scale, settings, results, time.perf_counter() - started)
    page, line, added, draw = _page(name, record)
    record |= added
    records.write(path, record)
    write_text(path.with_suffix(".md"), page)
    files, note = [path, path.with_suffix(".md")], ""
    try:
        with replacing(path.with_suffix(".png")) as temporary, temporary.open("wb") as file:
            draw(record, file)
        files.append(path.with_suffix(".png"))
    except MissingExtraError as error:
        note = f"no picture: {error}"
    return Outcome(files, reused, line, note)


def _study(
    name: str, scale: Scale, data_dir: Path | None, say: Say
) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    from rcad.paper import boundaries, moons, uci

    if name == "T7":
        table = uci.SCALES[scale]
        return table.to_dict(), lambda: uci.run(table, data_dir, say)
    if name == "T8":
        cells = moons.SCALES[scale]
        return cells.to_dict(), lambda: moons.run(cells, say)
    pictures = boundaries.SCALES[scale]
    return pictures.to_dict(), lambda: boundaries.run(pictures, say)


def _page(name: str, record: dict[str, Any]) -> tuple[str, str, dict[str, Any], Callable[..., None]]:
    """The page, a line on it, what it adds to the record, and what draws its picture."""
    from rcad.paper import figures, moons_claims, moons_report, uci_claims, uci_report
    from rcad.paper.pages import tally

    trial = record["scale"] == "smoke"
    if name == "T7":
        datasets = record["results"]["datasets"]
        judged, tests = uci_claims.claims(datasets, trial=trial), uci_claims.tests(datasets)
        added = {"claims": [one.to_dict() for one in judged], "tests": tests}
        page = uci_report.markdown(record, judged, tests)
        return page, str(tally(name, judged)), records.plain(added), figures.uci
    if name == "T8":
        judged = moons_claims.claims(record["results"]["cells"], trial=trial)
        added = {"claims": records.plain([one.to_dict() for one in judged])}
        return moons_report.markdown(record, judged), str(tally(name, judged)), added, figures.moons
    judged = moons_claims.boundary_claims(record["results"]["panels"], trial=trial)
    added = {"claims": records.plain([one.to_dict() for one in judged])}
    return moons_report.boundaries_markdown(record, judged), str(tally(name, judged)), added, figures.boundaries


def _theory(scale: Scale, folder: Path, stem: str, say: Say, *, again: bool) -> Outcome:
    """F5 is the linear theory's own report."""
    from rcad.paper.claims import Tally, claims_in
    from rcad.paper.theory.__main__ import compute
    from rcad.paper.theory.report import to_markdown, write_json
    from rcad.paper.theory.study import Settings
    from rcad.runs.files import loads, read_text

    settings = Settings(draws=DRAWS[scale])
    path = folder / f"{stem}.json"
    files = [path.with_suffix(suffix) for suffix in (".json", ".md", ".png")]
    if not again and path.is_file():
        found = loads(read_text(path), str(path))
        kept = found.get("figure", {}).get("settings", {})
        if kept == records.plain(settings.to_dict()):
            return Outcome([file for file in files if file.is_file()], True, str(Tally.of("F5", claims_in(found))))
        if kept.get("draws", 0) > settings.draws:
            raise InputError(
                f"expected a folder for the trial, but {path} has {kept['draws']} draws; pass another --out"
            )
    ready_folder(folder)
    say("linear theory", 0, 1)
    results = compute(settings)
    line = str(Tally.of("F5", [one.to_dict() for one in results.claims]))
    write_json(results, path)
    write_text(files[1], to_markdown(results))
    try:
        from rcad.paper.theory.figure import draw

        draw(results, files[2])
    except ImportError:
        return Outcome(files[:2], False, line, str(MissingExtraError("matplotlib", "report")))
    return Outcome(files, False, line)
