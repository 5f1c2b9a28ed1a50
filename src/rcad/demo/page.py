"""The demo's page and the rows of its table, from its record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcad.demo import pictures
from rcad.demo.settings import CONTROLS, LABELS
from rcad.demo.verdicts import DIGITS, RULE, WORDS, Comparison, Contest, linear_outcome
from rcad.report import html
from rcad.report.document import Document, Section, Table
from rcad.study.statistics import summary

Record = Mapping[str, Any]
HEADER = ("data", "method", "accuracy or RMSE", "NLL", "RCAD better by", "RCAD")
LINEAR = {"erm": "ERM", "rcad": "RCAD, alpha {alpha:g}", "rcad_small": "RCAD, alpha {alpha_small:g}"}


def contests(record: Record) -> list[Contest]:
    """Every table of methods, in the order of the acts."""
    few = record["results"]["few_labels"]
    return [record["results"]["moons"], *few["digits"]["contests"], *few["diabetes"]["contests"]]


def rows(record: Record, comparisons: Sequence[Comparison]) -> list[list[str]]:
    """The table of the terminal: a line for each method of each act, judged by the act's primary metric."""
    return [*_linear_rows(record["results"]["linear"]), *_contest_rows(contests(record), comparisons)]


def _linear_rows(results: Record) -> list[list[str]]:
    found = []
    for name, label in LINEAR.items():
        numbers = results["classifiers"][name]
        better, outcome = linear_outcome(results, name)
        gain = "" if name == "erm" else f"{better} of {results['draws']} draws"
        cells = [spread(numbers["accuracy"], "accuracy"), "", gain, "" if name == "erm" else outcome]
        found.append(["linear theory", label.format(**results), *cells])
    return found


def _contest_rows(chosen: Sequence[Contest], comparisons: Sequence[Comparison]) -> list[list[str]]:
    found = []
    for contest in chosen:
        for name, numbers in contest["methods"].items():
            first = "accuracy" if "accuracy" in numbers else "rmse"
            pairs = [
                one
                for one in comparisons
                if (one.contest, one.rival, one.metric) == (contest["title"], name, contest["primary"])
            ]
            gain, outcome = (pairs[0].numbers, pairs[0].outcome) if pairs else ("", "")
            shown = [spread(numbers[metric], metric) for metric in (first, "nll")]
            found.append([contest["title"], LABELS[name], *shown, gain, outcome])
    return found


def spread(values: Sequence[float | None], metric: str) -> str:
    """Mean ± standard deviation; how many diverged, where some did."""
    found, k = summary(values), DIGITS[metric]
    if found["diverged"]:
        return f"{found['diverged']} of {found['runs']} diverged"
    unit = "%" if metric == "accuracy" else ""
    return f"{found['mean']:.{k}f} ± {found['sd']:.{k}f}{unit}"


def page(record: Record, comparisons: Sequence[Comparison]) -> str:
    """One HTML file."""
    trial = "" if record["scale"] == "full" else " This was a trial of seconds: its numbers mean nothing."
    return html.page(
        Document(
            "Does RCAD help?",
            "RCAD pays a model for being unsure where a large step up its own loss leads. Three experiments on this "
            f"machine: where it should help, whether its direction is the reason, and where it does not.{trial}",
            [
                _summary(record, comparisons),
                _linear(record),
                _moons(record, comparisons),
                _few_labels(record, comparisons),
                _method(),
            ],
            _facts(record),
        )
    )


def _summary(record: Record, comparisons: Sequence[Comparison]) -> Section:
    """Who won against whom, at a glance."""
    columns = ["erm", *CONTROLS, "fgsm", "label_smoothing"]
    linear = record["results"]["linear"]
    body = [["linear theory", "accuracy", linear_outcome(linear)[1], *[""] * (len(columns) - 1)]]
    for contest in contests(record):
        for metric in contest["methods"]["rcad"]:
            found = {
                one.rival: one.outcome for one in comparisons if (one.contest, one.metric) == (contest["title"], metric)
            }
            body.append([contest["title"], WORDS[metric], *(found.get(name, "") for name in columns)])
    tallies = []
    for index, name in enumerate(columns[:3]):
        outcomes = [row[2 + index] for row in body if row[2 + index]]
        wins, loses, undecided = (outcomes.count(word) for word in ("wins", "loses", "undecided"))
        of = f"{undecided} of {len(outcomes)} comparisons undecided"
        tallies.append(f"Against {LABELS[name]} RCAD wins {wins}, loses {loses} and leaves {of}.")
    header = ["data", "by", *(LABELS[name] for name in columns)]
    text = "The random direction and the entropy at x are controls: RCAD without its direction, and without its step."
    return Section("In short", [" ".join(tallies), text], [Table(header, body, "RCAD against each other method.")])


def _linear(record: Record) -> Section:
    results = record["results"]["linear"]
    body = []
    for name, label in LINEAR.items():
        numbers = results["classifiers"][name]
        better, outcome = linear_outcome(results, name)
        means = [_mean(numbers["accuracy"], 1), _mean(numbers["w1"], 2), _mean(numbers["w2"], 2)]
        judged = ["", ""] if name == "erm" else [str(better), outcome]
        body.append([label.format(**results), *means, *judged])
    header = ("classifier", "test accuracy, %", "|w₁|", "‖w₂‖", f"draws of {results['draws']} better than ERM", "RCAD")
    return Section(
        "Act 1: the linear theory",
        [
            "One feature tells two classes apart, eight are noise, and twenty examples are too few to see which is "
            "which. ERM puts much of its weight on the noise. RCAD goes on from ERM's weights and ascends the paper's "
            "stand-in for the entropy at the moved examples. Test accuracies are exact."
        ],
        [Table(header, body, "Means over draws."), *pictures.linear(results)],
        record["verdicts"]["linear"],
    )


def _moons(record: Record, comparisons: Sequence[Comparison]) -> Section:
    results, chosen = record["results"]["moons"], record["settings"]["moons"]
    return Section(
        "Act 2: moons among noise",
        [
            f"Two half moons in the first two of {chosen['d']} dimensions, noise of {chosen['sigma']:g} on all of "
            f"them, {chosen['n']:,} examples to train on, {chosen['draws']} draws. The best possible classifier has "
            f"{results['bayes']:.1f}%. RCAD has alpha {chosen['alpha']:g} and lam {chosen['lam']:g}, FGSM a sign step "
            f"of {chosen['fgsm']:g}, as the table T8 chose them on a draw of its own; the draws are T8's too, so this "
            "repeats a known result and is no new evidence. Unlike there ERM does not choose when to stop, and the "
            "controls take RCAD's numbers. The two controls are RCAD with a "
            "random direction of the same length, and RCAD without a step: if they did as well, the adversarial "
            "direction would not be the reason.",
        ],
        [
            *pictures.moons(results),
            _contest_table(results, comparisons),
            *pictures.differences(results, comparisons),
        ],
        record["verdicts"]["moons"],
    )


def _few_labels(record: Record, comparisons: Sequence[Comparison]) -> Section:
    results, settings = record["results"]["few_labels"], record["settings"]
    digits, diabetes = results["digits"], results["diabetes"]
    low, high = min(digits["alphas"]), max(digits["alphas"])
    parts: list[Any] = []
    for contest in (*digits["contests"], *diabetes["contests"]):
        parts += [_contest_table(contest, comparisons), *pictures.differences(contest, comparisons)]
    return Section(
        "Act 3: real data, few labels",
        [
            f"Digits: {settings['digits']['sets']} training sets of {digits['train']} images that share none, and one "
            f"test set of the {digits['test']:,} others; a small CNN without BatchNorm, and a perceptron. alpha is "
            f"half the median distance to the nearest image of another class, measured on each training set: "
            f"{low:.2f} to {high:.2f}; lam is {settings['digits']['lam']:g}.",
            f"Diabetes: regression on {diabetes['train']} rows, tested on {diabetes['test']}, "
            f"{settings['diabetes']['splits']} random splits, which overlap: intervals and p-values are corrected for "
            "that. Real targets have no classes whose distance could be measured, so alpha and lam are "
            f"{settings['diabetes']['alpha']:g} and {settings['diabetes']['lam']:g}, fixed beforehand.",
            "A demo run tunes nothing. The CNN trains for as many epochs as a short demo allows: ERM still gains a "
            "point with twice as many. lam follows advice from prototypes that had digits among their data, and the "
            "controls take RCAD's numbers instead of their own best. Read the digits as an illustration, not as a "
            "test.",
        ],
        parts,
        record["verdicts"]["few_labels"],
    )


def _contest_table(contest: Contest, comparisons: Sequence[Comparison]) -> Table:
    metrics = list(contest["methods"]["rcad"])
    header = ["method"]
    for metric in metrics:
        header += [_named(metric), "RCAD better by [95%]", "verdict (p)"]
    body = []
    for name, numbers in contest["methods"].items():
        cells = [LABELS[name]]
        for metric in metrics:
            pairs = [
                one for one in comparisons if (one.contest, one.rival, one.metric) == (contest["title"], name, metric)
            ]
            one = pairs[0] if pairs else None
            cells += [spread(numbers[metric], metric).removesuffix("%")]
            cells += ["", ""] if one is None else [_bare(one), f"{one.outcome} ({_p(one.p)})"]
        body.append(cells)
    return Table(
        header, body, f"{pictures.capital(contest['title'])}: mean ± standard deviation over {_runs(contest)}."
    )


def _runs(contest: Contest) -> str:
    count = len(next(iter(contest["methods"]["rcad"].values())))
    return f"{count} {'splits' if contest['test_ratio'] else 'draws'}"


def _method() -> Section:
    more = (
        "All numbers are in demo.json beside this page. Comparisons in which every method is tuned with the same "
        "budget are under results/ in the repository: rcad paper run T7, T8, F5 and F7 make them again."
    )
    return Section("How it was judged", [f"{RULE}. The rule is part of the program, and no result changes it.", more])


def _facts(record: Record) -> dict[str, str]:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    command = "rcad demo" if record["scale"] == "full" else "rcad demo --fast"
    return {"Made by": f"{command}, in {record['seconds']:.0f} s", "Versions": versions, "Numbers": "demo.json"}


def _named(metric: str) -> str:
    return f"{WORDS[metric]}, %" if metric == "accuracy" else WORDS[metric]


def _bare(one: Comparison) -> str:
    if one.gain is None:
        return "-"
    k = DIGITS[one.metric]
    return f"{one.gain.mean:+.{k}f} [{one.gain.low:.{k}f}, {one.gain.high:.{k}f}]"


def _p(value: float) -> str:
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def _mean(values: Sequence[float], digits: int) -> str:
    return f"{sum(values) / len(values):.{digits}f}"
