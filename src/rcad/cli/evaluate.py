"""`rcad evaluate`: finished runs beyond their accuracy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rcad.cli.options import DEVICES, RUNS, CacheFolder, DataFolder, Device, Json, Quiet, RunsFolder, about

if TYPE_CHECKING:
    from rcad.errors import InputError
    from rcad.evaluate.saved_run.loading import RunLoader
    from rcad.evaluate.saved_run.run import Outcome
    from rcad.evaluate.saved_run.settings import Settings
    from rcad.runs.store import Store

HELP = about(
    "Calibration, attacks, corruptions and foreign data: what finished runs are worth beyond accuracy.",
    "rcad evaluate 3f2a",
    "rcad evaluate all --suite calibration,ood --out report",
    "rcad evaluate 3f2a --suite attacks --attack-eps 0.02,0.05 --limit 50",
    "rcad evaluate 3f2a --suite ood --ood-data noise,images --quiet",
    "rcad evaluate all --suite calibration --json",
    more="""Ends in tables and OUT/evaluation.html. Several runs are grouped by method over their seeds and compared
    with the ERM runs among them. Every suite's numbers are kept beside the run and computed once; Ctrl-C keeps what
    is finished. A run that cannot be evaluated is named and left out, and the exit code is then 2.""",
)
Text = str | None
Progress = Callable[[str, str, str, int, int], None]
LEFT_OUT = 2


def evaluate(
    runs_: Annotated[list[str], typer.Argument(metavar="RUN", help="Ids or their beginnings, or all.")],
    suite: Annotated[
        str,
        typer.Option("--suite", metavar="NAME,..", help="all, or some of calibration, attacks, corruptions, ood."),
    ] = "all",
    ood_data: Annotated[
        str,
        typer.Option("--ood-data", metavar="NAME,..", help="Foreign data: names, paths, or noise."),
    ] = "noise",
    corrupted: Annotated[
        Path | None,
        typer.Option("--corrupted", metavar="DIR", help="A published corrupted test set; else generated."),
    ] = None,
    attack_eps: Annotated[
        Text,
        typer.Option("--attack-eps", metavar="X,..", help="Radii of attacks. Default: 2/255, 4/255, 8/255, 0.05."),
    ] = None,
    standard: Annotated[
        bool, typer.Option("--standard", help="Also the standard suite of four attacks (slow; pyautoattack).")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", help="Test examples a suite takes, 0 for all; else by suite and device."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the report.")] = Path("rcad-evaluation"),
    again: Annotated[bool, typer.Option("--again", help="Compute again what is there already.")] = False,
    data_dir: DataFolder = None,
    cache_dir: CacheFolder = None,
    runs: RunsFolder = RUNS,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    from rcad.errors import one_of
    from rcad.evaluate.saved_run.settings import parse_suites
    from rcad.runs.store import Store

    one_of("--device", device, DEVICES)
    suites = parse_suites(suite)
    settings = _settings(ood_data, corrupted, attack_eps, standard, limit)
    store = Store.open(runs.expanduser(), create=False)
    left = Left()
    chosen = _chosen(store, runs_, left)

    from rcad.evaluate.saved_run.loading import RunLoader
    from rcad.study import evaluation_files as files
    from rcad.study.evaluations import summary

    out = out.expanduser()
    files.check(out)
    start = time.perf_counter()
    loader = RunLoader(store, data_dir, cache_dir, device)
    outcomes = _measured(loader, chosen, suites, settings, left, again=again, hidden=quiet or as_json)
    found = summary(outcomes, suites, settings, time.perf_counter() - start, left.out)
    _tell(found, files.write(out, found), quiet=quiet, as_json=as_json)
    if left.out:
        raise typer.Exit(LEFT_OUT)


class Left:
    """The runs that had to be left out, each named in a line when it is, and why."""

    def __init__(self) -> None:
        self.out: dict[str, str] = {}

    def __call__(self, run: str, error: InputError) -> None:
        from rcad.cli.screen import warn

        self.out[run] = str(error)
        warn(f"left out {run}: {error}")


def _settings(ood_data: str, corrupted: Path | None, eps: Text, standard: bool, limit: int | None) -> Settings:
    from rcad.evaluate.saved_run.settings import Settings

    return Settings(
        limit=limit,
        standard=standard,
        corrupted=None if corrupted is None else str(corrupted.expanduser()),
        ood_data=tuple(part.strip() for part in ood_data.split(",")),
        attack_eps=Settings.attack_eps if eps is None else tuple(_number(part) for part in eps.split(",")),
    )


def _number(text: str) -> float:
    from rcad.errors import InputError

    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"expected --attack-eps to be numbers like 0.05 or 8/255, but got {text!r}") from None


def _chosen(store: Store, wanted: Sequence[str], left: Left) -> list[str]:
    """The ids of the runs, each checked: nothing is measured before all that are named are known to be there."""
    from rcad.errors import InputError
    from rcad.evaluate.saved_run.loading import finished
    from rcad.runs.store import RECORD

    if "all" in wanted:
        held = []
        for run in [one for one in store.ids() if (store.folder(one) / RECORD).exists()]:
            try:
                record = store.get(run)
            except InputError as error:
                left(run, error)
            else:
                held += [record] if record.status == "done" else []
        if not held and not left.out:
            raise InputError(f"expected a finished run in {store.path}, but got none; train something")
        return [one.id for one in sorted(held, key=lambda one: (one.started, one.id))]
    return list(dict.fromkeys(finished(store, one).id for one in wanted))


def _measured(
    loader: RunLoader,
    chosen: Sequence[str],
    suites: Sequence[str],
    settings: Settings,
    left: Left,
    *,
    again: bool,
    hidden: bool,
) -> list[Outcome]:
    """What the suites found; a run that cannot be evaluated is left out, unless it is the only one."""
    from rcad.errors import InputError
    from rcad.evaluate.saved_run.run import evaluate_all
    from rcad.train.terminal import shown

    on_error = None if len(chosen) == 1 and not left.out else left
    try:
        with shown(quiet=hidden) as progress:

            def told(run: str, suite: str, what: str, done: int, total: int) -> None:
                progress.detail(f"run {chosen.index(run) + 1} of {len(chosen)}, {suite}: {what}", done, total)

            outcomes = evaluate_all(loader, chosen, suites, settings, told, again=again, on_error=on_error)
    except KeyboardInterrupt:
        kept = "every finished suite is kept beside its run; run the same command again to go on"
        raise KeyboardInterrupt(f"interrupted; {kept}") from None
    if not outcomes:
        raise InputError("expected a run that can be evaluated, but got none; the lines above say what to do")
    return outcomes


def _tell(found: Mapping[str, Any], page: Path, *, quiet: bool, as_json: bool) -> None:
    """The tables of the page, and where it is."""
    from rcad.cli.screen import say, say_json

    if as_json:
        say_json({**found, "page": str(page)})
        return
    if not quiet:
        from rcad.cli.evaluated import show

        show(found)
        say()
    say(str(page))
