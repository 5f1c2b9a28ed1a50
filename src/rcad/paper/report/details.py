"""What only one study has: choices and their curves, medians, sweeps, the window of alpha. From records alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rcad.paper import moons, uci
from rcad.paper.record import JSON, Place, Series, Study
from rcad.paper.report.numbers import gain_over
from rcad.report.document import Part, Table
from rcad.report.numbers import capital, fixed, p_value
from rcad.study.statistics import Paired, averages, holm

ENTROPY = "entropy"
"""The panel of F1 that is not made of cells."""
Detail = tuple[str, Sequence[Part]]
"""A heading and what stands below it."""


def details(study: Study) -> list[Detail]:
    """The parts of a study that its table of results does not show."""
    make = DETAILS.get(study.target)
    return make(study) if make is not None and study.details else [*_curves(study), *_tuned(study)]


def _curves(study: Study) -> list[Detail]:
    """Gains and entropies; curves of a cell's own number would repeat the table."""
    told = [one for one in study.series if one.over is not None or one.panel == ENTROPY]
    found: list[Detail] = []
    for panel in dict.fromkeys(one.panel for one in told):
        shown = [one for one in told if one.panel == panel]
        rows = [
            [x if isinstance(x, str) else f"{x:,g}", *(_point(one, k) for one in shown)]
            for k, x in enumerate(shown[0].x)
            if any(one.y[k] for one in shown)
        ]
        title = f"Gain over {shown[0].over}, {panel}" if shown[0].over else f"{capital(panel)} by alpha"
        found.append((title, [Table(["", *(one.name for one in shown)], rows)]))
    return found


def _point(series: Series, k: int) -> str:
    printed = series.published[k] if k < len(series.published) else None
    text = fixed(averages(series.y[k])["mean"], 2, sign=series.over is not None) if series.y[k] else "-"
    return text if printed is None else f"{text} (paper {fixed(printed, 2, sign=series.over is not None)})"


def _values(numbers: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in numbers.items())


def _by_place(study: Study, cell: Callable[[Place], str]) -> Table:
    """Rows by columns of the study; "" where a method was not run."""
    rows = [
        [row, *("" if (place := study.place(row, column)) is None else cell(place) for column in study.columns_run)]
        for row in study.rows
    ]
    return Table(["method", *study.columns_run], rows)


def _uci(study: Study) -> list[Detail]:
    def spread(place: Place) -> str:
        found = averages([run.metrics["nll"] for run in place.runs])
        return f"{fixed(found['median'], 2)} (sd {fixed(found['sd'], 2)})"

    found: list[Detail] = [("Median and standard deviation over splits", [_by_place(study, spread)])]
    found += [(f"Against {base}", [_against(study, base)]) for base in ("ERM", "random direction")]
    chosen, arms = study.details["tuning"], study.settings["arms"]

    def choice(method: str, column: str) -> str:
        one = chosen[column][method]
        (index, times), *_ = Counter(one["chosen"]).most_common(1)
        lost = f"; {one['tuning_diverged']} trial runs diverged" if one["tuning_diverged"] else ""
        return f"{_values(arms[method]['candidates'][index])} ({times}x){lost}"

    rows = [[uci.LABELS[name], *(choice(name, column) for column in study.columns)] for name in arms]
    table = Table(["method", *study.columns], rows, "The most frequent choice over splits.")
    return [
        *found,
        ("What was chosen", [table]),
        ("The entropy without its cap", [_uncapped(study.details["uncapped"])]),
    ]


def _against(study: Study, base: str) -> Table:
    """Every method against a reference on every data set, two-sided, Holm over the whole table."""
    rows = [row for row in study.rows if row != base]
    found: dict[tuple[str, str], Paired | None] = {
        (row, column): gain_over(study, row, base, column, higher=True) for column in study.columns for row in rows
    }
    adjusted = holm([1.0 if one is None else one.p_two for one in found.values()])
    by = dict(zip(found, adjusted, strict=True))

    def cell(key: tuple[str, str]) -> str:
        one = found[key]
        if one is None:
            return "a run diverged"
        return f"{fixed(one.mean, 3, sign=True)}; " + " / ".join(map(p_value, (one.p_less, one.p_two, by[key])))

    return Table(
        ["method", *study.columns],
        [[row, *(cell((row, column)) for column in study.columns)] for row in rows],
        f"Mean difference (negative: lower than {base}); one-sided p that it is lower / two-sided p / two-sided p "
        "after Holm over this table. Paired over splits, variance factor 1/k + n_test/n_train (Nadeau and Bengio).",
    )


def _uncapped(found: JSON) -> Table:
    rows = []
    for k, lam in enumerate(found["lambdas"]):
        cells = [f"{lam:g}"]
        for name in ("capped", "uncapped"):
            short = averages(found[name]["validation_nll"][k])
            cells += [fixed(short["median"], 2), str(found[name]["diverged"][k])]
        rows.append(cells)
    return Table(
        ["lambda", "capped: median NLL", "not finite", "uncapped: median NLL", "not finite "],
        rows,
        f"RCAD (alpha {found['alpha']:g}) on inner validation rows of {found['dataset']}. Without a cap the reward for "
        "variance has no end, so the likelihood is lost long before a number overflows. A study that asks for "
        "cap=None with lambda >= 0.9 is stopped; this table asks for it on purpose.",
    )


def _moons(study: Study) -> list[Detail]:
    tuning, arms, ratio = study.details["tuning"], study.settings["arms"], study.details["weight_ratio"]

    def nll(place: Place) -> str:
        short = averages([run.metrics["nll"] for run in place.runs])
        return f"{fixed(short['mean'], 3)} ({fixed(short['median'], 3)})"

    def steps(method: str) -> Table:
        alphas = [f"{one['alpha']:g}" for one in arms[method]["candidates"]]
        scores = {column: found[method]["validation"] for column, found in tuning.items() if method in found}
        rows = [[column, *(fixed(value, 1) for value in values)] for column, values in scores.items()]
        return Table([f"{moons.LABELS[method]}, alpha", *alphas], rows)

    def choice(method: str, found: JSON) -> str:
        return _values(arms[method]["candidates"][found[method]["chosen"]]) if method in found else ""

    chosen = [[moons.LABELS[method], *(choice(method, found) for found in tuning.values())] for method in arms]
    sizes = [
        [f"{row['n']:,}", str(row["draws"]), str(row["epochs"]), *(_mean(one.y[k]) for one in study.series)]
        for k, row in enumerate(study.details["sweep"])
    ]
    names = [name for name in ratio if name != "epochs"]
    means = {name: np.mean(ratio[name], axis=0).tolist() for name in names}
    weights = [[str(epoch), *(fixed(means[name][k], 2) for name in names)] for k, epoch in enumerate(ratio["epochs"])]
    by_size = Table(
        ["n", "draws", "epochs", *(one.name for one in study.series)],
        sizes,
        f"The first distribution; RCAD and the random direction as chosen at n = {study.settings['n']}, "
        "ERM at its last epoch. Fewer draws for large n; the last row has as many examples and epochs as the paper.",
    )
    by_epoch = Table(
        ["epoch", *(moons.LABELS[name] for name in names)],
        weights,
        "Root mean square of the first layer's weights on the two true dimensions, divided by that on the "
        "noise dimensions; mean over draws of the first distribution.",
    )
    return [
        ("Test NLL: mean (median)", [_by_place(study, nll)]),
        ("Validation accuracy by FGSM's step", [steps("fgsm_linf"), steps("fgsm_l2")]),
        ("What was chosen", [Table(["method", *tuning], chosen)]),
        ("Accuracy by the number of examples", [by_size]),
        ("Weights on true and noise dimensions", [by_epoch]),
    ]


def _mean(values: Sequence[float | None]) -> str:
    return fixed(averages(values)["mean"], 1)


def _filled(columns: Mapping[str, str], rows: Iterable[JSON], caption: str = "") -> Table:
    """Each row of a record as the columns' formats show it; a header that ends in " %" has the sign for them."""
    body = [
        [form.format_map(row).removesuffix("%" if name.endswith(" %") else "") for name, form in columns.items()]
        for row in rows
    ]
    return Table(list(columns), body, caption)


def _ends(values: Sequence[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}" if values else "none"


def _band(band: JSON, k: int) -> str:
    mean, low, high = (f"{100 * band[name][k]:.1f}" for name in ("mean", "q05", "q95"))
    return f"{mean} ({low} to {high})"


FIGURE = {"": "{name}", "|w1|": "{w1:.3f}", "‖w2‖": "{w2:.3f}", "train %": "{train:.1%}"}
FIGURE |= {"test % (5% to 95%)": "{test}", "better than ERM": "{better}"}
TOGETHER = {"n": "{n:g}", "d": "{d:g}", "alpha": "{alpha:g}", "ERM %": "{erm:.1%}", "RCAD %": "{rcad:.1%}"}
TOGETHER |= {"RCAD >= 99%": "{right:.1%}", "ERM <= 70%": "{capped:.1%}", "alpha=0.01 poorer": "{poorer:.1%}"}
TOGETHER |= {"all three": "{together:.1%}"}
VARIANTS = {"projection": "{projection}", "x~": "{reading}", "iterations": "{steps}", "alpha": "{alpha:g}"}
VARIANTS |= {"‖w‖": "{norm:.3f}", "test %": "{accuracy:.1%}", "better than ERM": "{better:.1%}"}
LEARNING_RATES = {"lr": "{lr:g}", "iterations": "{steps}", "alpha=0.01 %": "{small:.1%}"}
LEARNING_RATES |= {"better than ERM": "{small_better:.1%}", "alpha=0.7 %": "{large:.1%}"}
LEARNING_RATES |= {"better than ERM ": "{large_better:.1%}"}
WINDOWS = {"beta": "{beta:g}", "helpful alpha": "{helpful}", "best alpha": "{best_alpha:g}", "ERM %": "{erm:.1%}"}
WINDOWS |= {"best RCAD %": "{best:.1%}", "attracting alpha": "{attracting}"}


def _theory(study: Study) -> list[Detail]:
    record = study.details
    alphas = next(sweep for sweep in record["sweeps"] if sweep["over"] == "alpha")
    better = dict(zip((f"rcad alpha={value:g}" for value in alphas["values"]), alphas["better"], strict=True))
    figure = [
        {
            "name": name.replace("erm", "ERM").replace("rcad", "RCAD"),
            **{part: found[part]["mean"][-1] for part in ("w1", "w2", "train")},
            "test": _band(found["test"], -1),
            "better": f"{better[name]:.1%}" if name in better else "",
        }
        for name, found in record["figure"]["by_iteration"].items()
    ]
    gaps = "; ".join(
        f"alpha={one['alpha']:g}: accuracy differs by {100 * one['mean_accuracy_gap']:.2f} points on average, "
        f"{100 * one['max_accuracy_gap']:.2f} at most"
        for one in record["gaps"]
    )
    windows = [
        {**one, "helpful": _ends(one["helpful"], "g"), "attracting": _ends(one["attracting"] or (), ".3g")}
        for one in record["windows"]
    ]
    together = _filled(
        TOGETHER,
        record["together"],
        "Three things of the figure that need no eye: RCAD reaches 99%, ERM stays at or below 70%, "
        "alpha=0.01 is poorer than ERM. d=7 is what the figure's axes (x2 to x8) would mean.",
    )
    variants = _filled(
        VARIANTS,
        record["variants"],
        "The ball is the paper's definition, the sphere its simplification. With x~ held constant on the "
        "ball, w shrinks until it is as short as a step; its direction, and so its accuracy, survives only "
        "for a while.",
    )
    rates = _filled(
        LEARNING_RATES,
        record["step_sizes"],
        "The paper gives none. alpha=0.7 beats ERM at every rate, if slowly at small ones; whether "
        "alpha=0.01 is poorer than ERM depends on the rate and on when one stops.",
    )
    window = _filled(
        WINDOWS,
        windows,
        "helpful: grid points at which RCAD beats ERM in at least 95% of draws. attracting: alphas for "
        "which w* attracts exact ascent at n = infinity, from the closed form.",
    )
    apart = f"On the sphere the two readings differ by the length of a step: {gaps}."
    return [
        ("The figure in numbers (means over draws)", [_filled(FIGURE, figure)]),
        ("The figure's claims together", [together]),
        ("Projection and reading of x~", [variants, apart]),
        ("RCAD's learning rate", [rates]),
        ("The window of alpha", [window]),
        *((_sweep_title(sweep), [_sweep(sweep)]) for sweep in record["sweeps"]),
    ]


def _sweep_title(sweep: JSON) -> str:
    fixed_alpha = "" if sweep["over"] == "alpha" else f", alpha={sweep['base']['alphas'][0]:g}"
    return f"Sweep over {sweep['over']}{fixed_alpha}"


def _sweep(sweep: JSON) -> Table:
    rows = [
        [
            f"{value:g}",
            *(_band(sweep[name], k) for name in ("erm_accuracy", "rcad_accuracy")),
            " → ".join(f"{sweep[name]['mean'][k]:.2f}" for name in ("erm_noise", "rcad_noise")),
            f"{sweep['better'][k]:.1%}",
        ]
        for k, value in enumerate(sweep["values"])
    ]
    return Table([sweep["over"], "ERM test % (5% to 95%)", "RCAD test %", "‖w2‖", "better than ERM"], rows)


def alpha_settings(study: Study) -> dict[str, JSON]:
    """The settings in which alpha was measured and tried on held-out examples, by name."""
    found = {f"moons, d = {one['d']}": one for one in study.details["moons"]}
    return {**found, "digits": study.details["digits"]}


def _alpha(study: Study) -> list[Detail]:
    results, settings = study.details, study.settings
    tried = alpha_settings(study)
    every = {**{f"linear, beta {one['beta']:g}": one for one in results["linear"]}, **tried}
    header = ["best alpha", "suggested", "ERM", "best", "with suggested"]
    linear = Table(
        ["beta", "window", *header],
        [[f"{one['beta']:g}", _ends(one["helpful"], ".3g"), *_alpha_cells(one)] for one in results["linear"]],
        f"The paper's problem (20 examples, 8 features of noise with deviation 1), "
        f"{settings['linear_draws']} draws; exact accuracies, each draw with its own suggestion. The "
        "window holds the alphas with which RCAD beats ERM in 95% of the draws.",
    )
    others = Table(
        ["setting", *header],
        [[name, *_alpha_cells(one)] for name, one in tried.items()],
        f"Moons: n = {settings['n']:,}, noise 0.1 on every dimension, {settings['moons_draws']} draws that "
        "no other table uses, 2,000 held-out examples each. Digits: a perceptron, "
        f"{settings['sets']} training sets of {settings['labels']} images that share none, "
        f"{settings['held']} other images to judge by. lam {settings['lam']:g}; held-out accuracy in "
        "percent, means over draws.",
    )
    dropped = [_alpha_dropped(results["dropped"])] if "dropped" in results else []
    found: list[Detail] = [
        ("In short", [*_alpha_summary(every), *dropped]),
        *([("Images", _alpha_images(results["images"]))] if "images" in results else []),
        ("Linear theory", [linear]),
        ("Moons and digits", [others]),
    ]
    for name, some in (("moons", results["moons"]), ("digits", [{"d": "digits", **results["digits"]}])):
        rows = [[str(one["d"]), *(f"{np.mean(point):.1f}" for point in one["grid"])] for one in some]
        curve = Table(["d" if name == "moons" else "", *(f"{alpha:.3g}" for alpha in some[0]["alphas"])], rows)
        found.append((f"Held-out accuracy over alpha, {name}", [curve]))
    return [*found, *([("UCI", _alpha_uci(results["uci"]))] if results["uci"] is not None else [])]


def _alpha_cells(one: JSON) -> list[str]:
    return [
        f"{one['best_alpha']:.3g}",
        f"{one['suggested']['alpha']:.3g} ({_ratio(one):.1f}x)",
        *(f"{value:.1f}" for value in (one["erm"], one["best"], one["suggested"]["accuracy"])),
    ]


def _ratio(one: JSON) -> float:
    return float(one["suggested"]["alpha"] / one["best_alpha"])


def _alpha_summary(settings: Mapping[str, JSON]) -> list[str]:
    """How often the suggestion is within a factor of two of the best, and what it costs."""
    flat = [label for label, one in settings.items() if one["best"] - one["erm"] < 0.5]
    near = [label for label, one in settings.items() if 0.5 <= _ratio(one) <= 2]
    above = [label for label, one in settings.items() if one["suggested"]["accuracy"] > one["erm"]]
    cost = [one["best"] - one["suggested"]["accuracy"] for one in settings.values()]
    return [
        f"In {len(flat)} of {len(settings)} settings ({'; '.join(flat) or 'none'}) the best alpha gains less than "
        "half a point over ERM: being near it means little there.",
        f"Suggested: within a factor of two of the best alpha in {len(near)} of {len(settings)} settings "
        f"({'; '.join(near) or 'none'}); more accurate than ERM in {len(above)}; "
        f"{np.median(cost):.1f} points below the best alpha at the median, {max(cost):.1f} at worst.",
    ]


def _alpha_dropped(dropped: JSON) -> str:
    """A rule that was tried beside and is gone."""
    near = sum(0.5 <= ratio <= 2 for ratio in dropped["ratios"].values())
    found = ", ".join(f"{alpha:g} ({name})" for name, alpha in dropped["images"].items())
    return (
        f"Dropped: {dropped['rule']}. It was within a factor of two of the best alpha in {near} of "
        f"{len(dropped['ratios'])} of these settings, on which it had been made; on CIFAR-100 it gives {found}, no "
        "step at all: there the median distance to another class is no longer than that to the own."
    )


def _alpha_images(rows: Sequence[JSON]) -> list[Part]:
    """CIFAR-100: the suggestion over what held-out images chose, and what F4's curve has at the nearest step size."""
    body, lines = [], []
    for one in rows:
        for by, best in one["best"].items():
            found = one["suggested"]
            body.append([one["setting"], by, f"{best:.2g}", f"{found:.2g}", f"{found / best:.1f}x"])
        if "alphas" not in one:
            continue
        near = int(np.argmin(np.abs(np.log(one["alphas"]) - math.log(one["suggested"]))))
        for place, (by, best) in enumerate(one["best"].items()):
            values, digits = one[by.lower()], 3 if by == "NLL" else 1
            lines.append(
                f"{one['setting']}, held-out {by}: {one['erm'][place]:.{digits}f} for ERM, "
                f"{values[one['alphas'].index(best)]:.{digits}f} at the best alpha, {best:g}, and "
                f"{values[near]:.{digits}f} at {one['alphas'][near]:g}, the nearest to the suggestion."
            )
    table = Table(
        ["CIFAR-100", "chosen by held-out", "chosen alpha", "suggested", "suggested over chosen"],
        body,
        "Held-out images chose, by NLL at the last epoch and accuracy at the chosen one; nothing is trained here.",
    )
    return [table, *lines]


def _alpha_uci(rows: Sequence[JSON]) -> list[Part]:
    """The rule for regression targets beside the tuned alphas."""
    every = {alpha for one in rows for alpha in one["tuned"]}
    spread = [set(one["tuned"]) == every for one in rows]
    columns = {"data": "{dataset}", "tuned alpha: splits": "{splits}", "tuned, geometric mean": "{middle:.2f}"}
    columns |= {"rule": "{value:.2f}", "rule over tuned": "{ratio:.1f}x", "within a factor of two": "{near:.0%}"}
    body = []
    for one in rows:
        tuned, rule = np.log(one["tuned"]), np.log(one["rule"])
        middle, value, ratio = (math.exp(numbers.mean()) for numbers in (tuned, rule, rule - tuned))
        times: Counter[float] = Counter(one["tuned"])
        splits = ", ".join(f"{alpha:g}: {count}" for alpha, count in sorted(times.items()))
        near = np.mean(np.abs(rule - tuned) <= math.log(2))
        body.append({**one, "splits": splits, "middle": middle, "value": value, "ratio": ratio, "near": near})
    return [
        "Real targets have no classes, so the suggestion does not apply, and `rcad suggest-alpha` refuses them. A rule "
        "that could stand in for it is half the median distance to the nearest row whose target is a standard "
        "deviation away or more. It is held here against the alphas that T7 chose on validation rows; nothing is "
        f"trained. T7's grid is coarse, and in {sum(spread)} of {len(rows)} data sets every alpha of it was chosen on "
        "some split: where that is so, the validation likelihood hardly depends on alpha, and no rule can be said to "
        "find the tuned one.",
        _filled(columns, body),
    ]


def _tuned(study: Study) -> list[Detail]:
    """The search of a tuned image table: what every method tried, what was chosen, and the curve of the choice."""
    search = study.details.get("search")
    if not search:
        return []
    chosen, curves = [], []
    for one in search["choices"]:
        trials = one["trials"]
        lines = [[one["column"], one["row"], _values(trial["values"]), *_held_out(trial)] for trial in trials]
        curves += [[*line, "chosen" if k == one["chosen"] else ""] for k, line in enumerate(lines)]
        lost = [one["column"], one["row"], "every candidate diverged", "-", "-"]
        chosen.append([*(lost if one["chosen"] is None else lines[one["chosen"]]), str(len(trials))])
    header = ["data", "method", "values", "held-out NLL", "held-out accuracy, %"]
    return [
        ("What was chosen", [search["design"], Table([*header, "candidates"], chosen)]),
        ("Every candidate", [Table([*header, ""], curves, folded=f"Every candidate ({len(curves):,})")]),
    ]


def _held_out(trial: JSON) -> list[str]:
    return [fixed((trial["metrics"] or {}).get(name), 3) for name in ("nll", "accuracy")]


DETAILS: Mapping[str, Callable[[Study], list[Detail]]] = {"T7": _uci, "T8": _moons, "F5": _theory, "alpha": _alpha}
