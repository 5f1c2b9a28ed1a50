"""A comparison as a document: its question answered first, from its record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcad.errors import InputError, one_of, shaped, shown, whole
from rcad.report.document import Cell, Command, Document, Part, Section, Table
from rcad.report.numbers import by_size, capital, listed, p_value, with_interval, with_spread
from rcad.runs.words import plural
from rcad.study.pictures import ROLES, dots, forests, in_words
from rcad.study.study import HIGHER_IS_BETTER, UNITS, WORDS

Record = Mapping[str, Any]
CPU_TIME = "CPU time"
"""What a record's seconds are where they are worth telling: those of a clock depend on what else the machine does."""
MARKS = {"better": "good", "worse": "bad", "undecided": "open"}
_NUMBER = (float, None)
_SUMMARY = {"mean": float, "sd": _NUMBER, "low": _NUMBER, "high": _NUMBER}
_METHOD = {"role": str, "space": [str], "seconds": float, "runs": int, "passes": _NUMBER}
_FORM = {
    **dict.fromkeys(("data", "command", "cost", "rule", "base", "metric"), str),
    **{name: [str] for name in ("metrics", "sentences")},
    **dict.fromkeys(("budget", "epochs"), int),
    **dict.fromkeys(("seconds", "test_ratio"), float),
    "seeds": [int],
    "sizes": dict.fromkeys(("train", "validation", "test"), int),
    "held_out": {"told": str},
    "next": {"why": str, "command": str},
    "versions": {str: str},
    "methods": {str: {**_METHOD, "chosen": {str: str}}},
    "results": {str: {str: {"values": {str: _NUMBER}, "diverged": int, "summary": (_SUMMARY, None)}}},
    "differences": [
        {
            **dict.fromkeys(("method", "against", "metric", "outcome", "note"), str),
            **dict.fromkeys(("mean", "low", "high", "p_two", "p_holm", "effect", "superiority"), _NUMBER),
            "seeds_needed": (int, None),
        }
    ],
}
"""What is shown of a record."""


def formed(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a finished comparison, whose parts are of the types, and know of each other, as the page needs."""
    found: dict[str, Any] = shaped("the comparison", record, _FORM)
    methods, metrics, pairs = found["methods"], {found["metric"], *found["metrics"]}, found["differences"]
    one_of("the base of the comparison", found["base"], methods)
    for name in metrics:
        one_of("a metric of the comparison", name, WORDS)
    for name, cell in methods.items():
        one_of(f"the role of {name}", cell["role"], ROLES)
        whole(f"the runs of {name}", cell["runs"], minimum=1)
        shaped(f"the results of {name}", found["results"].get(name), dict.fromkeys(metrics, dict))
        for result in found["results"][name].values():
            _check_interval(f"a result of {name}", result["summary"] or dict.fromkeys(_SUMMARY))
    if not pairs:
        raise InputError("expected the differences that a comparison found, but got none; make it again")
    for one in pairs:
        one_of("what a method is compared with", one["against"], methods)
        one_of("a metric of the comparison", one["metric"], WORDS)
        one_of("the outcome of a comparison", one["outcome"], MARKS)
        _check_interval(f"the difference of {one['method']}", one)
    return found


def _check_interval(what: str, one: Record) -> None:
    """A mean lies in its interval; where there are too few runs for one, both ends are missing."""
    low, mean, high = three = [one[key] for key in ("low", "mean", "high")]
    if (low, high) != (None, None) and (None in three or not low <= mean <= high):
        raise InputError(f"expected {what} inside its interval, but got {shown(three)}; make the comparison again")


def document(record: Record) -> Document:
    """The page: the answer, the seeds, the other comparisons, what was chosen, how it was judged."""
    command = Command(record["next"]["command"], f"Next. {record['next']['why']}:")
    short: list[Part] = [command, results_table(record), *what_was_done(record)]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    took = f", in {record['seconds']:.0f} s of {CPU_TIME}" if record["cost"] == CPU_TIME else ""
    return Document(
        f"Does it help on {record['data']}?",
        lead(record),
        [
            Section("In short", (), short, "\n".join(record["sentences"])),
            Section("Seeds", (), [dots(record, metric) for metric in record["metrics"]]),
            Section("Differences", (), [*difference_tables(record), *forests(record)]),
            *_chosen_section(record),
            Section("How it was judged", judged(record)),
        ],
        {"Made by": f"`{record['command']}`{took}", "Versions": versions},
    )


def lead(record: Record) -> str:
    """What was compared, in a sentence."""
    sizes = record["sizes"]
    return (
        f"{len(record['methods'])} methods on {plural(len(record['seeds']), 'split')} of {record['data']}: "
        f"{sizes['train']:,} examples for training, {sizes['validation']:,} for validation, {sizes['test']:,} for "
        f"testing. The metric that decides, chosen before the runs: {WORDS[record['metric']]}."
    )


def sentences(record: Record) -> list[str]:
    """The answer to the question, whether the direction is why, and then a sentence for each metric."""
    question, rest = record["differences"][0], record["differences"][1:]
    base, metric = record["base"], record["metric"]
    found = [_answer(question, len(record["seeds"])), *_direction(record)]
    for name in record["metrics"]:
        own = [one for one in rest if one["metric"] == name and one["against"] == base]
        if own:
            beside = "of the other methods" if name == metric else "of the methods"
            found.append(_against_base(own, name, beside))
    roles = {name: cell["role"] for name, cell in record["methods"].items()}
    rivals = [one for one in rest if roles[one["against"]] == "asked" and one["metric"] == metric]
    return found + [_against_rcad(one) for one in rivals]


def _answer(one: Record, splits: int) -> str:
    """The question's answer in one line: who, by what, how much, how sure."""
    what = f"{capital(WORDS[one['metric']])}: {one['method']}"
    if one["p_two"] is None:
        return f"{what} against ERM is not tested: {one['note']}."
    told = f"{_size(one)}, p = {p_value(one['p_two'], 3)}, {plural(splits, 'split')}".replace("p = <", "p < ")
    if one["outcome"] != "undecided":
        return f"{what} is {one['outcome']} than ERM ({told})."
    needed = one["seeds_needed"]
    if needed is None:
        reach = "more splits would not show a difference this small, more data might"
    else:
        reach = f"about {needed} splits would show a difference of this size"
    return f"{what} is not shown to differ from ERM ({told}); {reach}."


def _direction(record: Record) -> list[str]:
    """Whether the adversarial direction is the reason, where RCAD is better than ERM."""
    question = record["differences"][0]
    rivals = [
        one
        for one in record["differences"][1:]
        if one["method"] == question["method"]
        and one["metric"] == question["metric"]
        and record["methods"][one["against"]]["role"] == "control"
    ]
    if question["outcome"] != "better" or not rivals:
        return []
    level = [one["against"] for one in rivals if one["outcome"] != "better"]
    if level:
        controls = f"its control{'s' if len(level) > 1 else ''} {listed(level)}"
        return [
            f"{question['method']} is not shown to be better than {controls}: the adversarial direction may not be "
            "what helps."
        ]
    return [f"{question['method']} is better than its controls too: the adversarial direction is what helps."]


def _against_base(own: Sequence[Record], metric: str, beside: str) -> str:
    by_outcome = {word: [_told(one) for one in own if one["outcome"] == word] for word in ("better", "worse")}
    parts = [
        f"{listed(some)} {'are' if len(some) > 1 else 'is'} {word} than ERM"
        for word, some in by_outcome.items()
        if some
    ]
    text = "; ".join(parts) or f"none {beside} is shown to differ from ERM"
    return f"{capital(WORDS[metric])}: {text}."


def _against_rcad(one: Record) -> str:
    """A method of one's own beside RCAD."""
    what = f"{capital(WORDS[one['metric']])}: {one['method']}"
    if one["p_two"] is None:
        return f"{what} against {one['against']} is not tested: {one['note']}."
    verdict = "is not shown to differ from" if one["outcome"] == "undecided" else f"is {one['outcome']} than"
    told = f"{_size(one)}, p = {p_value(one['p_holm'], 3)}".replace("p = <", "p < ")
    return f"{what} {verdict} {one['against']} ({told})."


def _size(one: Record) -> str:
    """By how much the metric itself is higher or lower: a sign alone would not say which is better."""
    up = HIGHER_IS_BETTER[one["metric"]] == ((one["mean"] or 0.0) >= 0)
    turned = [one[key] for key in ("mean", "low", "high")]
    if (one["mean"] or 0.0) < 0:
        turned = [None if value is None else -value for value in (turned[0], turned[2], turned[1])]
    size = with_interval(*turned).removeprefix("+")
    return f"{'higher' if up else 'lower'} by {size}{UNITS[one['metric']]}"


def _told(one: Record) -> str:
    """A comparison in brackets: "rcad (higher by 1.20 [0.40, 2.00] points, p = 0.012)"."""
    return f"{one['method']} ({_size(one)}, p = {p_value(one['p_holm'], 3)})".replace("p = <", "p < ")


def what_was_done(record: Record) -> list[str]:
    """The protocol in words."""
    tried = (
        f"On every split each method tried {record['budget']} configurations, its default among them: the same weight "
        "decays for every method, and its own hyperparameters. The configuration with the best validation "
        f"{WORDS[record['metric']]} was tested once."
        if record["budget"] > 1
        else "Nothing was tuned: each method ran with its default hyperparameters, and all with the recipe's weight "
        "decay, which may favour one of them (`--budget 8` tunes it for every method)."
    )
    epochs = f"Every run has {plural(record['epochs'], 'epoch')}; its weights are those of the best validation epoch."
    words = [f"{tried} {epochs}"]
    if record["budget"] > 1:
        words.append(f"On each split hyperparameters are {record['held_out']['told']}.")
    controls = [name for name, cell in record["methods"].items() if cell["role"] == "control"]
    if controls:
        words.append(
            f"Controls: {listed(controls)}. They are RCAD with a random direction, and RCAD without a step; "
            "if they do as well as RCAD, the adversarial direction is not what helps."
        )
    return words


def results_table(record: Record) -> Table:
    """Every method's test results and cost."""
    base = record["methods"][record["base"]].get("passes")  # earlier records did not count them
    rows = []
    for name, cell in record["methods"].items():
        scores = [_spread(record["results"][name][metric]) for metric in record["metrics"]]
        control = cell["role"] == "control"
        shown = Cell(name, note="control" if control else "", mark="aside" if control else "")
        own = cell.get("passes")
        rows.append([shown, *scores, *([f"{own / base:.1f}" if own else "-"] if base else [])])
    cost = ["cost, ERM = 1"] if base else []
    header = ["method", *(in_words(metric) for metric in record["metrics"]), *cost]
    caption = f"Test results: mean ± standard deviation over {plural(len(record['seeds']), 'split')}."
    if base:
        caption += " Cost: passes through the network in training, counted; a forward is 1, a backward 2."
    return Table(header, rows, caption, spare=cost)


def difference_tables(record: Record) -> list[Table]:
    """The question; the other methods and metrics against ERM; methods of one's own against RCAD; RCAD's controls."""
    question, rest = record["differences"][:1], record["differences"][1:]
    alone = "Verdicts are corrected for the number of comparisons (Holm), intervals are not."
    roles = {name: cell["role"] for name, cell in record["methods"].items()}
    parts = [
        ("base", f"Against ERM, positive is better. {alone}"),
        ("asked", "Your method against RCAD, positive is better."),
        ("control", "RCAD against its controls, positive is better: is the adversarial direction what helps?"),
    ]
    found = [_difference_table(question, "The question, judged alone; positive is better.")]
    for role, caption in parts:
        if rows := [one for one in rest if roles[one["against"]] == role]:
            found.append(_difference_table(rows, caption))
    return found


def _difference_table(rows: Sequence[Record], caption: str) -> Table:
    several = len({one["against"] for one in rows}) > 1
    body: list[list[str | Cell]] = [
        [
            one["method"],
            *([one["against"]] if several else []),
            WORDS[one["metric"]],
            with_interval(one["mean"], one["low"], one["high"]),
            Cell(one["outcome"], note=one["note"], mark=MARKS[one["outcome"]]),
            p_value(one["p_holm"], 3),
            by_size(one["effect"], sign=True),
            "-" if one["superiority"] is None else f"{100 * one['superiority']:.0f}%",
            "-" if one["seeds_needed"] is None else f"{one['seeds_needed']:,}",
        ]
        for one in rows
    ]
    header = ["method", *(["against"] if several else []), "by", "better by [95%]", "verdict"]
    extra = ["p (Holm)", "effect d", "seeds won", "seeds needed"]
    return Table([*header, *extra], body, caption, spare=[*extra[1:], extra[0]])


def _chosen_section(record: Record) -> list[Section]:
    if record["budget"] <= 1:
        return []
    text = "Each split chose by its own validation examples: the median over the splits, and the range."
    rows = [
        [name, ", ".join(f"{key} {value}" for key, value in cell["chosen"].items()), ", ".join(cell["space"])]
        for name, cell in record["methods"].items()
    ]
    unit = "standardised units" if "accuracy" not in record["metrics"] else "half distances between classes"
    return [Section("What was chosen", [text], [Table(["method", "chosen", "tried"], rows, f"auto counts in {unit}.")])]


def judged(record: Record) -> list[str]:
    """The rule, and what its words mean."""
    ratio = record["test_ratio"]
    overlapping = (
        "Splits of one data set overlap, so their results are not independent: variances carry Nadeau and Bengio's "
        f"correction, 1/k + n_test/n_train, with n_test/n_train = {ratio:.3g}, where validation rows count as "
        "training rows."
        if ratio
        else "The data set has its own test set, which all seeds share: the verdicts are about other seeds and "
        "validation splits, not about other test data."
    )
    effect = (
        "Effect d: the mean difference divided by the standard deviation of the differences. Seeds won: the share of "
        "seeds on which the method was better; ties count half."
    )
    needed = (
        "Seeds needed: how many give a power of 80% to detect a difference of the size found here, by the rule of the "
        "verdict: two-sided, at 5% for the first question, at 5% divided by their number for the others. The size is "
        "an estimate, and such numbers tend to be too small. A dash: no number is enough, because more splits of the "
        "same rows add no new rows."
    )
    return [f"{record['rule']}.", overlapping, effect, needed]


def _spread(found: Mapping[str, Any]) -> str | Cell:
    summary = found["summary"]
    note = f"{found['diverged']} diverged" if found["diverged"] else ""
    text = "-" if summary is None else with_spread(summary["mean"], summary["sd"])
    return Cell(text, note=note) if note else text
