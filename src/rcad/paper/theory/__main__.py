"""`python -m rcad.paper.theory`: the linear theory of the paper, computed, judged and drawn."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rcad.errors import InputError
from rcad.paper.claims import by_verdict
from rcad.paper.run import write_study
from rcad.paper.theory.simulation import Settings
from rcad.paper.theory.study import run
from rcad.runs.files import ready_folder

EXAMPLE = """example:
  python -m rcad.paper.theory --draws 200 --out results/theory
  computes the paper's figure, the sweeps and the checks, and writes linear.json, linear.md and, with matplotlib,
  linear.png there."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rcad.paper.theory",
        description="Check the paper's linear theory: its figure over many draws, its lemmas, its theorem, the alphas "
        "that help.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--draws", type=int, default=1000, help="training sets per setting (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random number (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("results/theory"), help="folder (default: results/theory)")
    parser.add_argument("--no-figure", action="store_true", help="write no picture")
    options = parser.parse_args(arguments)
    started = time.perf_counter()

    def say(what: str, done: int, total: int) -> None:
        print(f"[{time.perf_counter() - started:5.1f} s] {what}", file=sys.stderr, flush=True)

    try:
        ready_folder(options.out)
        study = run(Settings(draws=options.draws, seed=options.seed), None, say)
        path = options.out / "linear.json"
        _, note = write_study(study, path, "python -m rcad.paper.theory", picture=not options.no_figure)
    except InputError as error:
        parser.exit(2, f"error: {error}\n")
    if note:
        print(note, file=sys.stderr)
    print(by_verdict([claim.verdict for claim in study.claims]))
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
