"""Records older than the suites' common form: UCI (T7), moons (T8, F7), the linear theory (F5), folders of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError
from rcad.paper import moons_claims, uci_claims
from rcad.paper.claims import CONTROLS, FOR_A_CONTROL, scale_of
from rcad.paper.published import UCI_NLL
from rcad.paper.report.parsing import claims_of
from rcad.paper.report.study import TITLES, Place, Published, Record, Run, Series, Study
from rcad.study.judge import CLAIM_RULE as RULE


def uci(record: Record, path: Path) -> Study:
    """T7: twenty standard splits that share their rows."""
    datasets = record["results"]["datasets"]
    places = {}
    for column, table in datasets.items():
        for method, found in table["methods"].items():
            row = uci_claims.LABELS.get(method, method)
            printed = UCI_NLL.get(column, {}).get(method)
            runs = [
                Run("", split, {"nll": nll, "rmse": rmse}, diverged=nll is None)
                for split, (nll, rmse) in enumerate(zip(found["nll"], found["rmse"], strict=True))
            ]
            places[row, column] = Place(row, column, None if printed is None else Published(*printed), runs)
    return Study(
        **_common(record, path, "T7", uci_claims.LABELS),
        about=f"A perceptron with one hidden layer and a Gaussian head on {len(datasets)} data sets, "
        f"{record['settings']['splits']} standard splits; every method tuned with the same budget. NLL in the "
        "target's own unit; intervals are widened for splits that overlap (Nadeau and Bengio).",
        metric="nll",
        higher_is_better=False,
        unit="nats",
        columns=list(datasets),
        places=places,
        overlap={name: table["rows"]["test"] / table["rows"]["train"] for name, table in datasets.items()},
        notes=[uci_claims.SEEN_BEFORE, FOR_A_CONTROL],
    )


def moons(record: Record, path: Path) -> Study:
    """T8, with the study over the number of examples."""
    results, places = record["results"], {}
    for column, cell in results["cells"].items():
        printed = moons_claims.printed(cell) or {}
        for method, found in cell["methods"].items():
            row = moons_claims.LABELS.get(method, method)
            runs = [
                Run("", draw, {"accuracy": accuracy, "nll": nll}, diverged=accuracy is None)
                for draw, (accuracy, nll) in enumerate(zip(found["accuracy"], found["nll"], strict=True))
            ]
            shown = Published(printed[method]) if method in printed else None
            places[row, column] = Place(row, column, shown, runs)
    above = [
        f"{column}: {moons_claims.LABELS[method]} {value:g} of at most {cell['bayes']:.1f}"
        for column, cell in results["cells"].items()
        for method, value in (moons_claims.printed(cell) or {}).items()
        if value > cell["bayes"]
    ]
    impossible = [f"Printed accuracies above the best possible: {'; '.join(above)}."] if above else []
    return Study(
        **_common(record, path, "T8", moons_claims.LABELS),
        about=f"A small perceptron, n = {record['settings']['n']:,} (the paper says 20,000), "
        f"{record['settings']['seeds']} fresh draws; every method tuned with the same budget on a draw of its own.",
        columns=list(results["cells"]),
        places=places,
        ceiling={column: cell["bayes"] for column, cell in results["cells"].items()},
        notes=[moons_claims.SEEN_BEFORE, f"{FOR_A_CONTROL} {moons_claims.OTHER_NOISE}", *impossible],
        series=[
            Series(
                moons_claims.LABELS.get(method, method),
                [row["n"] for row in results["sweep"]],
                [row["accuracy"][method] for row in results["sweep"]],
            )
            for method in results["sweep"][0]["accuracy"]
        ],
        along="training examples",
    )


def boundaries(record: Record, path: Path) -> Study:
    """F7: how much of the half circles themselves each boundary gives to the right class."""
    panels = record["results"]["panels"]
    places = {}
    for panel in panels:
        row, column = moons_claims.LABELS.get(panel["method"], panel["method"]), f"epoch {panel['epoch']}"
        pairs = zip(panel["arc_accuracy"], panel["validation_accuracy"], strict=True)
        runs = [
            Run("", draw, {"share of the curves": arc, "accuracy": noisy}) for draw, (arc, noisy) in enumerate(pairs)
        ]
        places[row, column] = Place(row, column, None, runs)
    return Study(
        **_common(record, path, "F7", moons_claims.LABELS),
        about="The probability of a class in the plane of the two true features, all others at 0; the first draw is "
        "shown. The share of the noise-free half circles on the right side says whether a boundary follows the moons.",
        metric="share of the curves",
        columns=list(dict.fromkeys(column for _, column in places)),
        places=places,
    )


def linear(record: Record, path: Path) -> Study:
    """F5: bands over draws; its claims were judged by rules of their own."""
    settings = record["figure"]["settings"]
    rules = list(dict.fromkeys(str(one["rule"]) for one in record["claims"] if one.get("rule")))
    return Study(
        **{**_common({**record, "scale": scale_of(record), "target": "F5"}, path, "F5", {}), "rule": "; ".join(rules)},
        about=f"The paper's linear problem, {settings['draws']:,} draws, exact test accuracies. Lines are medians, "
        "bands hold 90% of the draws.",
        metric="test accuracy",
        unit="",
    )


def runs_study(name: str, path: Path, records: Sequence[Record]) -> Study:
    """A folder or a pack of runs that no suite mentions: methods by model, seeds together."""
    places: dict[tuple[str, str], Place] = {}
    grouped: dict[tuple[str, str], list[Run]] = {}
    for record in records:
        config, metrics = record["config"], record["metrics"]
        model = config["model"]
        column = " ".join(
            str(part) for part in (model["name"], model.get("norm") and f"({model['norm']} norm)") if part
        )
        found = {
            key.removeprefix("test_"): value for key, value in metrics.items() if key.startswith(("test_", "last_"))
        }
        run = Run(
            str(record["id"]),
            int(config["seed"]),
            found,
            record.get("timings", {}).get("train_seconds"),
            record["status"] == "diverged",
        )
        grouped.setdefault((_method(config["method"]), column), []).append(run)
    for (row, column), runs in sorted(grouped.items()):
        places[row, column] = Place(row, column, None, sorted(runs, key=lambda run: run.seed))
    metric = next(
        (m for m in ("accuracy", "nll", "rmse") if any(m in run.metrics for run in next(iter(grouped.values())))), "nll"
    )
    first = records[0]
    return Study(
        target=name,
        title=f"runs: {name}",
        path=path,
        about=f"{len(records)} single runs on {first['config']['data']['name']}; no claim is judged by them.",
        metric=metric,
        higher_is_better=metric == "accuracy",
        unit="%" if metric == "accuracy" else "",
        rows=list(dict.fromkeys(row for row, _ in places)),
        columns=list(dict.fromkeys(column for _, column in places)),
        places=places,
        versions=first.get("versions", {}),
        seconds=sum(float(record.get("timings", {}).get("train_seconds") or 0) for record in records),
    )


def _method(rows: Sequence[Record]) -> str:
    shown = []
    for one in rows:
        numbers = {**{k: v for k, v in one.items() if k not in ("name", "params")}, **one.get("params", {})}
        inner = ", ".join(f"{key}={value}" for key, value in numbers.items())
        shown.append(f"{one['name']}({inner})" if inner else str(one["name"]))
    return " + ".join(shown)


def _common(record: Record, path: Path, target: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "target": target,
        "title": TITLES[target],
        "path": path,
        "scale": str(record["scale"]),
        "rows": list(labels.values()),
        "controls": [label for label in CONTROLS if label in labels.values()],
        # These records test every claim unless a run diverged, and do not say so.
        "claims": [one if one.gain or one.ours else replace(one, note="a run diverged") for one in claims_of(record)],
        "rule": RULE,
        "versions": record.get("versions", {}),
        "seconds": record.get("seconds"),
        "record": record,
    }


OLD: dict[str, Callable[[Record, Path], Study]] = {"T7": uci, "T8": moons, "F7": boundaries, "F5": linear}


def from_old(kind: str, record: Record, path: Path) -> Study:
    """The study of an older record; one line says what is wrong with it."""
    try:
        return OLD[kind](record, path)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"expected {path} to be the record of {kind}, but got {what}; run it again") from None
