"""`rcad doctor`: what this machine has, what is wrong with it, and what to do."""

from __future__ import annotations

import typer

from rcad.cli.options import RUNS, CacheFolder, DataFolder, Json, RunsFolder, about

HELP = about(
    "Check the installation, the machine and the data, and say what to do.",
    "rcad doctor",
    "rcad doctor --json",
    "rcad doctor --data-dir data",
    more="""Checks Python, torch, the GPU, optional packages and their known problems, data, cache and runs. Every
    line is ok, warn or bad. Exit code 1 if a line is bad.""",
)


def doctor(
    data_dir: DataFolder = None, cache_dir: CacheFolder = None, runs: RunsFolder = RUNS, as_json: Json = False
) -> None:
    from rcad.cli.probes import machine, places
    from rcad.cli.screen import say, say_json, table

    checks = [*machine(), *places(data_dir, cache_dir, runs)]
    if as_json:
        say_json([check._asdict() for check in checks])
    else:
        cells = [[c.level, c.name, c.text + (f"; {c.remedy}" if c.remedy else "")] for c in checks]
        table(["", "what", "found"], cells)
        bad, warned = (sum(check.level == level for check in checks) for level in ("bad", "warn"))
        say("\nall is well" if not bad + warned else f"\n{bad} bad, {warned} to look at; the rest is fine")
    raise typer.Exit(int(any(check.level == "bad" for check in checks)))
