"""A comparison on the user's own data as a page and as Markdown, from its record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcad.report import html
from rcad.report.document import Cell, Document, Figure, Section, Table
from rcad.study.figures import figures, forest

Record = Mapping[str, Any]
WORDS = {"accuracy": "accuracy, %", "nll": "NLL", "brier": "Brier score", "rmse": "RMSE"}
PLAIN = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "rmse": "RMSE"}
BETTER = {"accuracy": "higher", "nll": "lower", "brier": "lower", "rmse": "lower"}
DIGITS = {"accuracy": 2, "nll": 3, "brier": 4, "rmse": 2}
MARKS = {"better": "good", "worse": "bad", "undecided": "open"}


def page(record: Record) -> str:
    """The page."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return html.page(
        Document(
            f"Does it help on {record['data']}?",
            lead(record),
            [
                Section("In short", what_was_done(record), [results_table(record)], "\n".join(record["sentences"])),
                Section("Seeds", (), list(figures(record, WORDS, BETTER))),
                Section("Differences", (), _differences(record)),
                *_chosen_section(record),
                Section("How it was judged", judged(record)),
            ],
            {"Made by": f"{record['command']}, in {record['seconds']:.0f} s", "Versions": versions},
        )
    )


def markdown(record: Record) -> str:
    """The same in Markdown, without pictures."""
    blocks = [f"# Does it help on {record['data']}?", lead(record)]
    blocks += ["\n".join(f"- **{line}**" for line in record["sentences"])]
    blocks += [*what_was_done(record), _markdown_table(results_table(record)), "## Differences"]
    blocks += [_markdown_table(table) for table in difference_tables(record)]
    blocks += ["## What was chosen", _markdown_table(chosen_table(record))] if record["budget"] > 1 else []
    blocks += ["## How it was judged", *judged(record), f"Made by `{record['command']}`."]
    return "\n\n".join(blocks) + "\n"


def lead(record: Record) -> str:
    """What was compared, in a sentence."""
    count, sizes = len(record["seeds"]), record["sizes"]
    return (
        f"{len(record['methods'])} methods on {count} {'split' if count == 1 else 'splits'} of {record['data']}: "
        f"{sizes['train']:,} rows to train on, {sizes['validation']:,} held out to choose by, "
        f"{sizes['test']:,} to test."
    )


def what_was_done(record: Record) -> list[str]:
    """The protocol in words."""
    tried = (
        f"On every split each method tried {record['budget']} configurations, the one it begins with among them; the "
        "best on the held-out rows was tested, once. ERM has no number of its own and tried weight decays."
        if record["budget"] > 1
        else "Nothing was tuned: each method ran with the numbers it begins with (--budget 8 tunes every method alike)."
    )
    epochs = f"Every run has {record['epochs']} epochs and the weights of its best epoch on the held-out rows."
    words = [f"{tried} {epochs}"]
    if record["budget"] > 1:
        words.append(f"On each split a method's numbers are {record['held_out']['told']}.")
    controls = [name for name, cell in record["methods"].items() if cell["role"] == "control"]
    if controls:
        words.append(
            f"Controls: {' and '.join(controls)}. They are RCAD with a random direction, and RCAD without a step; "
            "where they do as well as RCAD, the adversarial direction is not the reason."
        )
    return words


def results_table(record: Record) -> Table:
    """Every method's test results and cost."""
    base = record["methods"][record["base"]]
    base_cost = base["seconds"] / base["runs"]
    rows = []
    for name, cell in record["methods"].items():
        scores = [_spread(record["results"][name][metric], metric) for metric in record["metrics"]]
        cost = cell["seconds"] / cell["runs"]
        mark = "aside" if cell["role"] == "control" else ""
        shown = Cell(name, note="control" if cell["role"] == "control" else "", mark=mark)
        rows.append([shown, *scores, f"{cost:.2f}", f"{cost / base_cost:.1f}" if base_cost else "-"])
    header = ["method", *(WORDS[metric] for metric in record["metrics"]), "seconds a run", "cost, ERM = 1"]
    caption = (
        f"Test results: mean ± standard deviation over {len(record['seeds'])} seeds. Cost is the training "
        "time of a run as measured here."
    )
    return Table(header, rows, caption)


def difference_tables(record: Record) -> list[Table]:
    """Against ERM, then RCAD against its controls."""
    base = [one for one in record["differences"] if one["against"] == record["base"]]
    rest = [one for one in record["differences"] if one["against"] != record["base"]]
    tables = [_difference_table(base, "Against ERM, positive is better.")] if base else []
    note = "RCAD against its controls, positive is better: is the adversarial direction what helps?"
    return [*tables, *([_difference_table(rest, note)] if rest else [])]


def _difference_table(rows: Sequence[Record], caption: str) -> Table:
    several = len({one["against"] for one in rows}) > 1
    body: list[list[str | Cell]] = []
    for one in rows:
        k = DIGITS[one["metric"]]
        gain = "-" if one["mean"] is None else f"{one['mean']:+.{k}f}"
        if one["low"] is not None:
            gain += f" [{one['low']:.{k}f}, {one['high']:.{k}f}]"
        body.append(
            [
                one["method"],
                *([one["against"]] if several else []),
                PLAIN[one["metric"]],
                gain,
                _plain(one["effect"], 2),
                "-" if one["superiority"] is None else f"{100 * one['superiority']:.0f}%",
                _p(one["p_holm"]),
                _needed(one),
                Cell(one["outcome"], note=one["note"], mark=MARKS[one["outcome"]]),
            ]
        )
    header = ["method", *(["against"] if several else []), "by", "better by [95%]", "effect d", "seeds won"]
    return Table([*header, "p (Holm)", "seeds needed", "verdict"], body, caption)


def _differences(record: Record) -> list[Table | Figure]:
    drawn = [forest(record, metric, WORDS[metric]) for metric in record["metrics"]]
    return [*difference_tables(record), *(one for one in drawn if one is not None)]


def _chosen_section(record: Record) -> list[Section]:
    if record["budget"] <= 1:
        return []
    text = "Each split chose for itself by its held-out rows: the median over the splits, and from where to where."
    return [Section("What was chosen", [text], [chosen_table(record)])]


def chosen_table(record: Record) -> Table:
    """What each method chose, and from what."""
    rows = [
        [name, ", ".join(f"{key} {value}" for key, value in cell["chosen"].items()), ", ".join(cell["space"])]
        for name, cell in record["methods"].items()
    ]
    unit = "standardised units" if "accuracy" not in record["metrics"] else "half distances between classes"
    return Table(["method", "chosen", "tried"], rows, f"auto counts in {unit}.")


def judged(record: Record) -> list[str]:
    """The rule, and what its words mean."""
    ratio = record["test_ratio"]
    overlapping = (
        "Splits of one data set overlap, so their results are not independent: variances carry Nadeau and Bengio's "
        f"correction, 1/k + n_test/n_train, with n_test/n_train = {ratio:.3g}, where the rows to choose by count as "
        "training rows."
        if ratio
        else "The data bring a test set of their own, which every seed shares: the tests speak about other seeds and "
        "held-out rows, not about other test data."
    )
    needed = (
        "Seeds needed: how many would show a true difference of the size found here with a chance of 80%, one-sided at "
        "5%, before any correction for many comparisons. The size is itself estimated, and after the fact such numbers "
        "lean to the small side. A dash: none would do, because more splits of the same rows add no new rows."
    )
    effect = (
        "Effect d: the mean difference in standard deviations of the differences. Seeds won: the share of seeds on "
        "which the method was better, ties half."
    )
    return [f"{record['rule']}.", overlapping, effect, needed]


def _spread(found: Mapping[str, Any], metric: str) -> str | Cell:
    summary, k = found["summary"], DIGITS[metric]
    note = f"{found['diverged']} diverged" if found["diverged"] else ""
    if summary is None:
        return Cell("-", note=note)
    text = f"{summary['mean']:.{k}f}"
    text += "" if summary["sd"] is None else f" ± {summary['sd']:.{k}f}"
    return Cell(text, note=note) if note else text


def _needed(one: Record) -> str:
    return "-" if one["seeds_needed"] is None else f"{one['seeds_needed']:,}"


def _plain(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:+.{digits}f}"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _markdown_table(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def text(cell: Cell) -> str:
        return f"{cell.text} ({cell.note})" if cell.note else cell.text

    rows = [line([text(cell) for cell in row]) for row in table.cells]
    ruler = "|" + "|".join("--:" if numeric else "---" for numeric in table.numeric) + "|"
    head = [line(list(table.header)), ruler, *rows]
    return "\n".join(head) + (f"\n\n{table.caption}" if table.caption else "")
