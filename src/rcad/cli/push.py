"""`rcad push`: a finished run to the Hugging Face Hub, with a model card."""

from __future__ import annotations

from pathlib import Path

from rcad.cli import options
from rcad.cli.options import argument, option
from rcad.cli.screen import say, say_json


def push(
    run: str = argument("RUN", "A run's id, its first characters, or last."),
    repo: str = argument("OWNER/NAME", "The repository; made where there is none."),
    comparison: Path | None = option("--comparison DIR", "The --out of an rcad compare on the same data."),
    private: bool = option("--private", "Make the repository a private one.", False),
    dry_run: bool = option("--dry-run", "Print the card; send nothing.", False),
    runs: Path = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """Send a finished run to the Hugging Face Hub, with a model card made from its record.

    It sends the weights (safetensors), record.json, config.toml and the card: test metrics with intervals, over the
    seeds that lie beside the run too, and with --comparison the paired differences to ERM and both controls. Look at
    the card first with --dry-run: the config names the data as you did, a local path too. rcad.load and rcad predict
    take hf:OWNER/NAME. Log in once with: hf auth login.

    rcad push 3f2a me/digits --dry-run
    rcad push 3f2a me/digits --private
    rcad push 3f2a me/digits --comparison rcad-compare
    """
    from rcad.study import card

    if dry_run:
        from rcad.evaluate.saved_run.loading import finished
        from rcad.runs.store import Store

        store = Store.open(runs, create=False)
        text = card.card(finished(store, run), store, repo, comparison)
        if as_json:
            say_json({"repo": repo, "card": text})
        else:
            say(text)
        return
    commit = card.push(run, repo, runs=runs, comparison=comparison, private=private)
    if as_json:
        say_json({"repo": repo, "commit": commit, "address": f"hf:{repo}@{commit}"})
    else:
        say(f'sent to hf:{repo}@{commit}\nuse it: rcad.load("hf:{repo}"), or rcad predict hf:{repo} --data new.csv')
