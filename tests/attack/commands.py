"""Commands that a user gets wrong: real ones with words that no command expects."""

from __future__ import annotations

from random import Random

from attack.mutants import NUMBERS, TEXTS
from rcad.runs.config import KEYS

OPTIONS = (
    *("--data", "--method", "--target", "--task", "--size", "--drop", "--labels", "--recipe", "--model", "--set"),
    *("--config", "--batch-size", "--lr", "--seed", "--seeds", "--runs", "--device", "--at-once", "--minutes"),
    *("--suite", "--out", "--limit", "--attack-eps", "--ood-data", "--corrupted", "--coverage", "--results", "--only"),
    *("--methods", "--budget", "--metric", "--search", "--json", "--quiet", "--nonsense", "-x", "--older-than"),
)
STARTS = """
train --data my.csv --target colour --method erm --epochs 1 --runs from
train --data digits[:100] --method rcad --epochs 1 --runs from
evaluate all --suite calibration --out evaluation
predict RUN --data my.csv
data import my.csv --target colour
data import images
runs list
runs show RUN
runs prune
runs verify
runs unpack study.jsonl.gz --out unpacked
suggest-alpha --data my.csv --target colour
methods show rcad
paper status
paper run T8 --dry-run
export RUN --out x.pt2
""".strip().splitlines()
METHODS = (
    *("rcad(", "rcad(alpha=-1)", "rcad(alpha=1e999)", "rcad + rcad", "erm()", "mixup + cutmix", "rcad(**{})", "[rcad]"),
)


def bad_command(draw: Random, run: str) -> tuple[str, ...]:
    """A command with one to three words that are wrong, missing or too many."""
    words = [run if word == "RUN" else word for word in draw.choice(STARTS).split()]
    for _ in range(draw.choice((1, 1, 2, 3))):
        change = draw.randrange(5)
        at = draw.randrange(1, len(words) + 1)
        if change == 0 and at < len(words):
            words[at] = _word(draw)
        elif change == 1 and at < len(words):
            del words[at]
        elif change == 2:
            words += [draw.choice(OPTIONS), _word(draw)]
        elif change == 3:
            words += ["--set", f"{draw.choice(KEYS)}={_word(draw)}"]
        else:
            words.insert(at, draw.choice((*OPTIONS, _word(draw))))
    # What is given twice counts the last time: no bad word may start hours of work.
    small = ("--epochs", "1", "--set", "train.epochs=1", "--set", "data.name=my.csv") if words[0] == "train" else ()
    small = ("--dry-run",) if words[:2] == ["paper", "run"] else small
    return tuple(word.replace("\0", "") for word in (*words, *small))


def _word(draw: Random) -> str:
    kinds = (TEXTS, tuple(map(str, NUMBERS)), METHODS, ("9" * 5000, ",", "=", "..", "/", "-", "--", "[:10]", "a=b=c"))
    return str(draw.choice(draw.choice(kinds)))
