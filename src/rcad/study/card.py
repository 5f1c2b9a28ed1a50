"""A finished run for the Hugging Face Hub: its weights, its record, and a model card that is made from the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rcad.data.dataset import parse_spec
from rcad.errors import InputError, expanded, fitting
from rcad.evaluate.saved_run.loading import finished, load_weights, weights_of
from rcad.hub import PREFIX, Address, send
from rcad.loss.method_rows import label
from rcad.report.document import Command, Document, Part, Section, Table
from rcad.report.markdown import markdown
from rcad.report.numbers import named_values
from rcad.runs.plain import to_toml
from rcad.runs.record import RunRecord
from rcad.runs.store import CONFIG, RECORD, WEIGHTS, Store
from rcad.runs.words import is_percent, leading, metric, number, plural, title
from rcad.study.compare import FILE, Comparison
from rcad.study.compare_page import difference_tables
from rcad.study.statistics import describe, share_interval
from rcad.study.study import overlap_of

CARD = "README.md"


def push(
    run: str, repo: str, *, runs: Path | str = "runs", comparison: Path | str | None = None, private: bool = False
) -> str:
    """Send a finished run to the Hub; `rcad.load("hf:owner/name")` brings it back. Returns the commit's name.

    What is sent: README.md (the card), model.safetensors, record.json and config.toml. Nothing is pickled.

    Args:
        repo: "owner/name"; it is made where there is none.
        comparison: the folder of an `rcad compare` on the same data, for the card.
    """
    store = Store.open(runs, create=False)
    record = finished(store, run)
    text = card(record, store, repo, comparison)
    files: dict[str, bytes | Path] = {CARD: text.encode(), CONFIG: to_toml(record.config).encode()}
    files |= {RECORD: store.folder(record.id) / RECORD, WEIGHTS: weights_of(store, record.id)}
    return send(repo, files, f"rcad run {record.id}", private=private)


def card(record: RunRecord, store: Store, repo: str, comparison: Path | str | None = None) -> str:
    """The model card: what it is, how good it is and how sure that is, against what, and how it was trained."""
    Address.parse(f"{PREFIX}{repo}")
    _, facts = load_weights(store, record.id)
    sections = [_use(repo), _numbers(record, store)]
    if comparison is not None:
        sections.append(_compared(record, comparison))
    sections.append(_training(record))
    name = repo.rpartition("/")[2]
    lead = f"{record.resolved.get('model', record.config.model.name)}, trained with {label(record.config.method)} on "
    document = Document(name, f"{lead}{record.config.data.name} by rcad.", sections, {})
    return f"{_metadata(record, repo, facts)}\n{markdown(document)}"


def _metadata(record: RunRecord, repo: str, facts: Mapping[str, Any]) -> str:
    """What the Hub reads, as YAML; JSON is YAML too."""
    data = parse_spec(record.config.data.name)[0]
    shape, classes = facts.get("shape") or (), facts.get("classes")
    task = "image-classification" if len(shape) == 3 else f"tabular-{'classification' if classes else 'regression'}"
    metrics = [
        {"type": name.removeprefix("test_"), "name": name.replace("_", " "), "value": record.metrics[name]}
        for name in _test_metrics(record)
    ]
    address = Address.parse(data) if data.startswith(PREFIX) else None
    source = {"name": data, "type": address.repo if address else data}
    results = [{"task": {"type": task}, "dataset": source, "metrics": metrics}] if metrics else []
    lines: dict[str, Any] = {
        "library_name": "rcad",
        "pipeline_tag": task,
        "tags": list(dict.fromkeys(["rcad", *(name for name, _ in record.config.method), "pytorch"])),
        **({"datasets": [address.repo]} if address else {}),
        "model-index": [{"name": repo.rpartition("/")[2], "results": results}],
    }
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in lines.items()), "---", ""])


def _test_metrics(record: RunRecord) -> list[str]:
    tests = [name for name in record.metrics if name.startswith("test_") and record.metrics[name] is not None]
    return leading(tests, 6)


def _use(repo: str) -> Section:
    code = (
        f'import rcad\n\nmodel = rcad.load("{PREFIX}{repo}")\nmodel.predict(x)  # a folder of images, a table, arrays'
    )
    parts: list[Part] = [Command(code), Command(f"rcad predict {PREFIX}{repo} --data new.csv --out predictions.csv")]
    return Section("Use", (), parts)


def _numbers(record: RunRecord, store: Store) -> Section:
    """Every test metric of this run, and over the seeds that lie beside it."""
    if not record.config.data.test_fraction:
        return Section("Test metrics", ("None: every example was taken for training, and there is no test split.",), [])
    config = replace(record.config, seed=0)
    done = [run for run in store.records(on_error=lambda error: None) if run.status == "done"]
    seeds = [run for run in done if replace(run.config, seed=0) == config]
    size, rows, ratio = record.splits["test"].size if "test" in record.splits else 0, [], overlap_of(seeds)
    for name in _test_metrics(record):
        values = [value for run in seeds if (value := run.metrics.get(name)) is not None]
        value = record.metrics[name]
        assert value is not None
        alone, over = metric(name, value), "-"
        if name == "test_accuracy" and size:
            low, high = share_interval(value / 100, size)
            alone += f" [{100 * low:.1f}, {100 * high:.1f}]"
        summary = describe(values, test_ratio=ratio)
        if summary.low is not None and summary.high is not None:
            three = (summary.mean, summary.low, summary.high)
            texts = [f"{min(max(v, 0.0), 100.0):.1f}" if is_percent(name) else number(v) for v in three]
            over = "{} [{}, {}]".format(*texts)
        rows.append([name.removeprefix("test_"), alone, over])
    about = f"Of {plural(size, 'test example')}, which nothing was chosen by."
    if any(row[1].endswith("]") for row in rows):
        about += " In brackets of one run: Wilson's 95% interval of its accuracy over test examples."
    if len(seeds) > 1:
        widened = ", widened because test splits overlap" if ratio else ""
        about += f" Over seeds: the mean of {plural(len(seeds), 'seed')} with its 95% interval{widened}."
    else:
        about += " One seed: how much another one would differ is not known."
    return Section("Test metrics", (about,), [Table(["metric", "this run", "over seeds"], rows)])


def _compared(record: RunRecord, path: Path | str) -> Section:
    place = expanded(path)
    comparison = Comparison.read(place / FILE if place.is_dir() else place).record
    with fitting(str(place), "finish it with rcad compare"):
        data, seeds, command = (comparison[name] for name in ("data", "seeds", "command"))
        sentences, tables = comparison["sentences"], difference_tables(comparison)
    if parse_spec(data)[0] != parse_spec(record.config.data.name)[0]:
        raise InputError(f"expected a comparison on {record.config.data.name}, but {place} is on {data}; name another")
    about = (
        f"Every method with the same search on {plural(len(seeds), 'split')} of the data, paired by split, with 95% "
        f"intervals; made by `{command}`. These are results of the method, not of this one run."
    )
    return Section("Against ERM and the controls", (*sentences, about), tables)


def _training(record: RunRecord) -> Section:
    config, optim = record.config, record.config.optim
    facts = {
        "run": f"{title(config)} ({record.id})",
        "data": record.resolved.get("data", config.data.name),
        "examples": ", ".join(f"{split.size:,} {name}" for name, split in record.splits.items()),
        "sha256 of the data": record.data_sha256,
        "method": record.resolved.get("method", label(config.method)),
        "optimizer": f"{optim.name}, learning rate {optim.lr:g}, weight decay {optim.weight_decay:g}",
        "epochs": f"{record.last_epoch}, batches of {config.train.batch_size}, {config.train.precision}",
        "selected": f"epoch {number(int(record.metrics.get('selected_epoch') or 0))} ({config.train.selection})",
        "device": record.device,
        "versions": named_values(record.versions),
    }
    rows = [[name, text] for name, text in facts.items() if text]
    about = "All of it, and the numbers of every epoch, is in `record.json`; the same config trains it again."
    return Section("Training", (about,), [Table(["", ""], rows)])
