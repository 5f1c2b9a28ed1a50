"""What a comparison says: verdicts from the results of its methods, then the page, from its record alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

from rcad.errors import is_number
from rcad.report.document import Cell, Command, Document, Part, Section, Table
from rcad.report.numbers import by_size, capital, listed, named_values, p_value, with_interval, with_spread
from rcad.runs.record import advised
from rcad.runs.words import duration, plural, too_short
from rcad.study.judge import QUESTION_RULE, compare_groups, judge_questions
from rcad.study.pictures import dots, forests, in_words
from rcad.study.statistics import LEVEL, describe
from rcad.study.study import HIGHER_IS_BETTER, UNITS, WORDS

Record = Mapping[str, Any]
Cells = dict[str, dict[str, Any]]
"""By the method's name its results, as `compete` gives them."""
CPU_TIME = "CPU time"
"""The `cost` of a record whose seconds are shown; those of a clock are not, they depend on the machine's other work."""
COST = "cost, ERM = 1"
UNTUNED = "Untuned: each method was trained once on each split with its defaults; `--budget 8` tunes every method."
UNTRAINED = "ERM is undertrained"
SOLVED = {"accuracy": 0.5, "nll": 0.05, "brier": 0.01}
"""A smaller gain does not matter where ERM gets nearly every label right: nobody can gain more than what is left."""
MARKS = {"better": "good", "worse": "bad", "undecided": "open"}


def judged(
    cells: Cells,
    metrics: Sequence[str],
    test_ratio: float,
    subject: str | None = None,
    *,
    looked: Sequence[int] = (),
) -> dict[str, Any]:
    """The part of a record that follows from the results alone; the question is about the first of the metrics.

    `subject` is its method, None for RCAD; `looked` has the numbers of splits at which the results were shown before.
    """
    differences = compared(cells, metrics, test_ratio, subject)
    record = {
        "metric": metrics[0],
        "metrics": list(metrics),
        "seeds": [int(seed) for seed in next(iter(cells.values()))["seeds"]],
        "seconds": sum(cell["seconds"] for cell in cells.values()),
        "base": _named(cells, "base")[0],
        "rule": QUESTION_RULE,
        "methods": {
            name: {**cell, "chosen": {key: typical(values) for key, values in chosen(cell).items()}}
            for name, cell in cells.items()
        },
        "results": summaries(cells, metrics, test_ratio),
        "question": differences[0],
        "differences": differences,
    }
    return {**record, "sentences": sentences({**record, "looked": looked})}


def with_rcad(methods: Iterable[str]) -> list[str]:
    """Those of which RCAD is a part."""
    return [name for name in methods if "rcad" in [part.strip().partition("(")[0] for part in name.split(" + ")]]


def compared(
    cells: Cells, metrics: Sequence[str], test_ratio: float, subject: str | None = None
) -> list[dict[str, Any]]:
    """The question, judged alone; then every method against ERM, the question's and the user's own against RCAD, and
    RCAD against its controls, by every metric."""
    (base,), controls, methods = (_named(cells, role) for role in ("base", "control", "asked"))
    rcads = with_rcad(methods)
    first = subject or (rcads or methods)[0]
    pairs = [(first, base), *((name, base) for name in cells if name not in (base, first))]
    own = [name for name in methods if ":" in name or (name == first and name not in rcads)]
    pairs += [(name, rcad) for name in own for rcad in rcads if rcad != name]
    pairs += [(rcad, control) for rcad in rcads for control in controls]
    questions = [(*pair, metric) for metric in metrics for pair in pairs]
    differences = []
    for *pair, metric in questions:
        ours, theirs = (results(cells[name], metric) for name in pair)
        better = HIGHER_IS_BETTER[metric]
        differences.append(compare_groups(ours, theirs, higher_is_better=better, test_ratio=test_ratio))
    judged = [*judge_questions(differences[:1]), *judge_questions(differences[1:])]
    return [
        {"method": ours, "against": theirs, "metric": metric, **difference.to_dict()}
        for (ours, theirs, metric), difference in zip(questions, judged, strict=True)
    ]


def _named(cells: Cells, role: str) -> list[str]:
    return [name for name, cell in cells.items() if cell["role"] == role]


def results(cell: Mapping[str, Any], metric: str) -> dict[int, float | None]:
    return {int(seed): (run["test"] or {}).get(metric) for seed, run in cell["seeds"].items()}


def summaries(cells: Cells, metrics: Iterable[str], test_ratio: float) -> dict[str, dict[str, Any]]:
    """Mean, deviation and interval of every method and metric; the values by seed; how many runs diverged."""
    by_method: dict[str, dict[str, Any]] = {}
    for name, metric in product(cells, metrics):
        values = results(cells[name], metric)
        finite = [value for value in values.values() if value is not None]
        summary = asdict(describe(finite, test_ratio=test_ratio)) if finite else None
        numbers = {"values": values, "summary": summary, "diverged": len(values) - len(finite)}
        by_method.setdefault(name, {})[metric] = numbers
    return by_method


def chosen(cell: Mapping[str, Any]) -> dict[str, list[Any]]:
    """By key, what each split chose."""
    rows = [run["chosen"] for run in cell["seeds"].values()]
    return {key: [row[key] for row in rows] for key in rows[0]}


def typical(values: Sequence[Any]) -> str:
    """Chosen numbers over the splits: the median and the ends."""
    if not all(map(is_number, values)):
        return ", ".join(dict.fromkeys(map(str, values)))
    low, high = min(values), max(values)
    return f"{low:.3g}" if low == high else f"{statistics.median(values):.3g} ({low:.3g} to {high:.3g})"


def document(record: Record) -> Document:
    """The page: the answer, the seeds, the other comparisons, what was chosen, how it was judged."""
    command = Command(record["next"]["command"], f"Next. {record['next']['why']}:")
    short: list[Part] = [command, results_table(record), *what_was_done(record)]
    took = f", in {duration(record['seconds'])} of {CPU_TIME}" if record["cost"] == CPU_TIME else ""
    sizes = record["sizes"]
    lead = (
        f"{len(record['methods'])} methods on {plural(len(record['seeds']), 'split')} of {record['data']}: "
        f"{sizes['train']:,} examples for training, {sizes['validation']:,} for validation, {sizes['test']:,} for "
        f"testing. Asked before the runs: is {record['question']['method']} better than ERM by "
        f"{WORDS[record['metric']]}?"
    )
    return Document(
        f"Does it help on {record['data']}?",
        lead,
        [
            Section("In short", (), short, "\n".join([*record["sentences"], *([UNTUNED] * (record["budget"] == 1))])),
            Section("Seeds", (), [dots(record, metric) for metric in record["metrics"]]),
            Section("Differences", (), [*difference_tables(record), *forests(record)]),
            *_chosen_section(record),
            Section("How it was judged", how_judged(record)),
        ],
        {"Made by": f"`{record['command']}`{took}", "Versions": named_values(record["versions"])},
    )


def sentences(record: Record) -> list[str]:
    """The answer to the question, whether it matters, whether the direction is why, then a sentence for each metric."""
    question, *gaps = record["differences"]
    lines = [_answer(question, len(record["seeds"])), *_raised(record), *_short(record), *_solved(record)]
    lines += _direction(record)
    for metric in record["metrics"]:
        against_base = [gap for gap in gaps if gap["metric"] == metric and gap["against"] == record["base"]]
        if against_base:
            lines.append(_against_base(against_base, "other " * (metric == record["metric"])))
    rivals = [gap for gap in _against(record, "asked") if gap["metric"] == record["metric"]]
    # The interval is not corrected for the number of comparisons, so it may exclude 0 where p decides nothing.
    return lines + [_sentence(gap, gap["against"], f"{_evidence(gap)} after correction") for gap in rivals]


def _against(record: Record, role: str) -> list[Record]:
    """The differences to methods of a role, but for the first question."""
    return [gap for gap in record["differences"][1:] if record["methods"][gap["against"]]["role"] == role]


def _answer(question: Record, splits: int) -> str:
    """The question's answer in one line: who, by what, how much, how sure."""
    evidence = f"{_size(question)}, {_p(question['p_two'])}, {plural(splits, 'split')}"
    reach = "more splits would not show a difference this small, more data might"
    if (needed := question["seeds_needed"]) is not None:
        reach = f"about {needed} splits would show a difference of this size"
    return _sentence(question, "ERM", evidence, f"; {reach}")


def _sentence(gap: Record, rival: str, evidence: str, reach: str = "") -> str:
    """Who is better than whom; `reach` says what it would take to see a difference where none is shown."""
    method = f"{capital(WORDS[gap['metric']])}: {gap['method']}"
    if gap["p_two"] is None:
        return f"{method} against {rival} is not tested: {gap['note']}."
    if gap["outcome"] == "undecided":
        return f"{method} is not shown to differ from {rival} ({evidence}){reach}."
    return f"{method} is {gap['outcome']} than {rival} ({evidence})."


def more_epochs(cell: Record) -> int | None:
    """How many epochs to train where the method was trained too shortly on most splits; earlier records do not say."""
    return advised([run.get("more_epochs") for run in cell["seeds"].values()])


def _raised(record: Record) -> list[str]:
    """Where the user saw the results and then added splits, that they did."""
    if not (looked := record.get("looked")):
        return []
    words = f"The number of splits was raised after a look at the results, from {listed([*map(str, looked)])} to "
    level = f"such a test finds a difference where there is none more often than in {LEVEL:.0%} of the cases"
    return [f"{words}{len(record['seeds'])}: {level}."]


def _short(record: Record) -> list[str]:
    epochs = more_epochs(record["methods"][record["base"]])
    return [] if epochs is None else [f"{UNTRAINED}, so the verdict is about short training. {too_short(epochs)}"]


def _solved(record: Record) -> list[str]:
    """Where ERM leaves next to nothing to gain by the metric of the question, that it does."""
    found, metric = record["results"][record["base"]], record["metric"]
    if "accuracy" not in found or found["accuracy"]["summary"] is None:
        return []
    means = {name: found[name]["summary"]["mean"] for name in ("accuracy", metric)}
    errors = 100 - means["accuracy"]
    left = errors if metric == "accuracy" else means[metric]
    gain = f"no method can gain more than {left:.2g}{UNITS[metric]}, too little to matter, whatever the verdict"
    solved = errors <= SOLVED["accuracy"] and left <= SOLVED[metric]
    return [f"ERM already solves this task, with {means['accuracy']:.4g}% accuracy: {gain}."] if solved else []


def _direction(record: Record) -> list[str]:
    """Whether the adversarial direction is the reason, where RCAD is better than ERM."""
    question = record["differences"][0]
    same = question["method"], question["metric"]
    rivals = [gap for gap in _against(record, "control") if (gap["method"], gap["metric"]) == same]
    if question["outcome"] != "better" or not rivals:
        return []
    if level := [gap["against"] for gap in rivals if gap["outcome"] != "better"]:
        controls = f"its control{'s' if len(level) > 1 else ''} {listed(level)}"
        words = f"is not shown to be better than {controls}: the adversarial direction may not be what helps."
    else:
        words = "is better than its controls too: the adversarial direction is what helps."
    return [f"{question['method']} {words}"]


def _against_base(gaps: Sequence[Record], other: str) -> str:
    """The methods that are better or worse than ERM by one metric."""
    parts = []
    for outcome in ("better", "worse"):
        methods = [f"{gap['method']} ({_evidence(gap)})" for gap in gaps if gap["outcome"] == outcome]
        if methods:
            parts.append(f"{listed(methods)} {'are' if len(methods) > 1 else 'is'} {outcome} than ERM")
    tested = any(gap["p_two"] is not None for gap in gaps)
    text = "; ".join(parts) or f"none of the {other}methods is {'shown to differ from ERM' if tested else 'tested'}"
    return f"{capital(WORDS[gaps[0]['metric']])}: {text}."


def _evidence(gap: Record) -> str:
    """E.g. "gain +1.20 [0.40, 2.00] points, p = 0.012"."""
    return f"{_size(gap)}, {_p(gap['p_holm'])}"


def _p(value: float | None) -> str:
    return f"p = {_digits(value)}".replace("p = <", "p < ")


def _digits(value: float | None) -> str:
    """A p-value with so many digits that it is seen on which side of the level it lies."""
    return p_value(value, 3 if value is None or round(value, 3) != LEVEL else 5)


def _size(gap: Record) -> str:
    return f"gain {with_interval(gap['mean'], gap['low'], gap['high'])}{UNITS[gap['metric']]}"


def what_was_done(record: Record) -> list[str]:
    epochs = f"Every run has {plural(record['epochs'], 'epoch')}; its weights are those of the best validation epoch."
    words = [epochs]
    if record["budget"] > 1:
        tried = (
            f"On every split each method tried {record['budget']} configurations, its default among them: the same "
            "weight decays for every method, and its own hyperparameters. The configuration with the best validation "
            f"{WORDS[record['metric']]} was tested once."
        )
        words = [f"{tried} {epochs}", f"On each split hyperparameters are {record['held_out']['told']}."]
    controls = [name for name, cell in record["methods"].items() if cell["role"] == "control"]
    if controls:
        words.append(
            f"Controls: {listed(controls)}. They are RCAD with a random direction, and RCAD without a step; "
            "if they do as well as RCAD, the adversarial direction is not what helps."
        )
    return words


def results_table(record: Record) -> Table:
    base = record["methods"][record["base"]].get("passes")  # earlier records did not count them
    rows = []
    for name, cell in record["methods"].items():
        method = Cell(name, note="control", mark="aside") if cell["role"] == "control" else name
        scores = {}
        for metric in record["metrics"]:
            result = record["results"][name][metric]
            summary = result["summary"] or {"mean": None, "sd": None}
            note = f"{result['diverged']} diverged" if result["diverged"] else ""
            scores[in_words(metric)] = Cell(with_spread(summary["mean"], summary["sd"]), note)
        own = cell.get("passes")
        cost = {COST: f"{own / base:.1f}" if own else "-"} if base else {}
        rows.append({"method": method, **scores, **cost})
    caption = f"Test results: mean ± standard deviation over {plural(len(record['seeds']), 'split')}."
    if base:
        caption += " Cost: passes through the network in training, counted; a forward is 1, a backward 2."
    return Table.of(rows, caption, spare=[COST])


def difference_tables(record: Record) -> list[Table]:
    """The question; other methods and metrics against ERM; its method and one's own against RCAD; RCAD's controls."""
    captions = {
        "base": "Against ERM. A gain is positive where the method is better, whichever way the metric points. Verdicts "
        "are corrected for the number of comparisons (Holm), intervals are not.",
        "asked": "Against RCAD.",
        "control": "RCAD against its controls: is the adversarial direction what helps?",
    }
    question = _difference_table(record, record["differences"][:1], "The question, judged alone.", "p")
    # A narrow terminal keeps what the sentence above does not say.
    question = replace(question, spare=["seeds won", "p", "by", "gain [95%]"])
    others = [(_against(record, role), caption) for role, caption in captions.items()]
    return [question, *(_difference_table(record, gaps, caption) for gaps, caption in others if gaps)]


def _difference_table(record: Record, gaps: Sequence[Record], caption: str, p: str = "p (Holm)") -> Table:
    several = len({gap["against"] for gap in gaps}) > 1
    notes = {gap["note"] for gap in gaps}
    shared = notes.pop() if len(notes) == 1 else ""  # said once, or every row would be wide
    caption += f" {capital(shared)}." if shared else ""
    rows: list[dict[str, str | Cell]] = [
        {
            "method": gap["method"],
            **({"against": gap["against"]} if several else {}),
            "by": WORDS[gap["metric"]],
            "gain [95%]": with_interval(gap["mean"], gap["low"], gap["high"]),
            "verdict": Cell(_verdict(gap), note="" if shared else gap["note"], mark=MARKS[gap["outcome"]]),
            p: _digits(gap["p_holm"]),
            "effect d": by_size(gap["effect"], sign=True),
            "seeds won": _seeds_won(record, gap),
            "seeds needed": "-" if gap["seeds_needed"] is None else f"{gap['seeds_needed']:,}",
        }
        for gap in gaps
    ]
    return Table.of(rows, caption, spare=["effect d", "seeds won", "seeds needed", p])


def _verdict(gap: Record) -> str:
    return "not tested" if gap["p_two"] is None else str(gap["outcome"])


def _seeds_won(record: Record, gap: Record) -> str | Cell:
    """On how many of the seeds that both have the method was better; ties stand beside it."""
    ours, theirs = (record["results"][gap[side]][gap["metric"]]["values"] for side in ("method", "against"))
    pairs = [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]
    if gap["superiority"] is None or not pairs:
        return "-"
    ties, higher = sum(a == b for a, b in pairs), sum(a > b for a, b in pairs)
    won = higher if HIGHER_IS_BETTER[gap["metric"]] else len(pairs) - ties - higher
    return Cell(f"{won} of {len(pairs)}", plural(ties, "tie") if ties else "")


def _chosen_section(record: Record) -> list[Section]:
    if record["budget"] <= 1:
        return []
    text = "Each split chose by its own validation examples: the median over the splits, and the range."
    rows = [[name, named_values(cell["chosen"]), ", ".join(cell["space"])] for name, cell in record["methods"].items()]
    unit = "one standardised unit" if "accuracy" not in record["metrics"] else "half the distance between classes"
    return [Section("What was chosen", [text], [Table(["method", "chosen", "tried"], rows, f"auto: times {unit}.")])]


def how_judged(record: Record) -> list[str]:
    ratio = record["test_ratio"]
    overlapping = (
        "Splits of one data set overlap, so their results are not independent: variances carry Nadeau and Bengio's "
        f"correction, 1/k + n_test/n_train, with n_test/n_train = {ratio:.3g}, where every row outside the test "
        "split counts as a training row, used or not."
        if ratio
        else "The data set has its own test set, which all seeds share: the verdicts are about other seeds and "
        "validation splits, not about other test data."
    )
    effect = "Effect d: the mean gain divided by the standard deviation of the gains."
    needed = (
        "Seeds needed: how many give a power of 80% to detect a difference of the size found here, by the rule of the "
        "verdict: two-sided, at 5% for the first question, at 5% divided by their number for the others. The size is "
        "an estimate, and usually more are needed. A dash: no number is enough, because more splits of the "
        "same rows add no new rows."
    )
    return [f"{record['rule']}.", overlapping, effect, needed]
