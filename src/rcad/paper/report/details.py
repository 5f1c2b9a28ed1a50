"""Parts that only one study has: choices and their curves, medians, sweeps, the window of alpha. From records alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from rcad.paper.record import JSON, Place, Series, Study
from rcad.paper.report.tables import WORDS, caption, gain_over
from rcad.paper.targets import TARGETS
from rcad.report.document import Part, Table
from rcad.report.numbers import capital, fixed, named_values, p_value
from rcad.study.statistics import averages, holm

ENTROPY = "entropy"
"""The panel of F1 that is not made of cells."""
Details = dict[str, Sequence[Part]]
"""What stands below each heading."""


def details(study: Study) -> Details:
    """The parts of a study that its table of results does not show."""
    make = DETAILS.get(study.target)
    return make(study) if make is not None and study.details else {**_curves(study), **_tuned(study)}


def _curves(study: Study) -> Details:
    """Gains and entropies; curves of a cell's own number would repeat the table."""
    tables: Details = {}
    for panel, curves in study.panels.items():
        over = curves[0].over
        if over is None and panel != ENTROPY:
            continue
        title = f"Gain over {over}, {panel}" if over else f"{capital(panel)} by alpha"
        rows = [
            [x if isinstance(x, str) else f"{x:,g}", *(_point(series, k) for series in curves)]
            for k, x in enumerate(curves[0].x)
            if any(series.y[k] for series in curves)
        ]
        tables[title] = [Table(["", *(series.name for series in curves)], rows)]
    return tables


def _point(series: Series, k: int, places: int = 2) -> str:
    """The mean of a curve's results, and what the paper prints there."""
    sign, printed = series.over is not None, series.published[k] if k < len(series.published) else None
    text = fixed(averages(series.y[k])["mean"], places, sign=sign)
    return text if printed is None else f"{text} (paper {fixed(printed, places, sign=sign)})"


def _values(numbers: Mapping[str, float]) -> str:
    return named_values({name: f"{value:g}" for name, value in numbers.items()})


def _matrix(
    rows: Iterable[str],
    columns: Sequence[str],
    cell: Callable[[str, str], str],
    text: str = "",
    names: Mapping[str, str] | None = None,
) -> Table:
    """A line for each method, whose cells a function of row and column gives; `names` has other names for the rows."""
    body = [[(names or {}).get(row, row), *(cell(row, column) for column in columns)] for row in rows]
    return Table(["method", *columns], body, text)


def _by_place(study: Study, cell: Callable[[Place], str]) -> Table:
    """Rows by columns of the study; "" where a method was not run."""
    places = study.places
    return _matrix(study.rows, study.columns_run, lambda *side: cell(places[side]) if side in places else "")


def _uci(study: Study) -> Details:
    choices, arms, labels = study.details["tuning"], study.settings["arms"], TARGETS[study.target].rows

    def spread(place: Place) -> str:
        numbers = averages([run.metrics["nll"] for run in place.runs])
        return f"{fixed(numbers['median'], 2)} (sd {fixed(numbers['sd'], 2)})"

    def choice(method: str, column: str) -> str:
        tuning = choices[column][method]
        (index, times), *_ = Counter(tuning["chosen"]).most_common(1)
        lost = f"; {tuning['tuning_diverged']} trial runs diverged" if tuning["tuning_diverged"] else ""
        return f"{_values(arms[method]['candidates'][index])} ({times}x){lost}"

    chosen = _matrix(arms, study.columns, choice, "The most frequent choice over splits.", labels)
    tried, names = study.details["uncapped"], ("capped", "uncapped")
    medians = {name: [averages(values)["median"] for values in tried[name]["validation_nll"]] for name in names}
    uncapped = Table(
        ["lambda", "capped: median NLL", "not finite", "uncapped: median NLL", "not finite "],
        [
            [f"{lam:g}", *(cell for n in names for cell in (fixed(medians[n][k], 2), str(tried[n]["diverged"][k])))]
            for k, lam in enumerate(tried["lambdas"])
        ],
        caption("uncapped", **tried),
    )
    return {
        "Median and standard deviation over splits": [_by_place(study, spread)],
        **{f"Against {base}": [_against(study, base)] for base in ("ERM", "random direction")},
        "What was chosen": [chosen],
        "The entropy without its cap": [uncapped],
    }


def _against(study: Study, base: str) -> Table:
    """Every method against a reference on every data set, two-sided, Holm over the whole table."""
    rows = [row for row in study.rows if row != base]
    gains = {side: gain_over(study, side[1], base, side[0], higher=True) for side in product(study.columns, rows)}
    adjusted = dict(zip(gains, holm([1.0 if gain is None else gain.p_two for gain in gains.values()]), strict=True))

    def cell(row: str, column: str) -> str:
        gain = gains[column, row]
        if gain is None:
            return "a run diverged"
        p = map(p_value, (gain.p_less, gain.p_two, adjusted[column, row]))
        return f"{fixed(gain.mean, 3, sign=True)}; {' / '.join(p)}"

    return _matrix(rows, study.columns, cell, caption("against", base=base))


def _moons(study: Study) -> Details:
    tuning, arms, labels = study.details["tuning"], study.settings["arms"], TARGETS[study.target].rows
    ratio = study.details["weight_ratio"]

    def nll(place: Place) -> str:
        numbers = averages([run.metrics["nll"] for run in place.runs])
        return f"{fixed(numbers['mean'], 3)} ({fixed(numbers['median'], 3)})"

    def steps(method: str) -> Table:
        alphas = [f"{candidate['alpha']:g}" for candidate in arms[method]["candidates"]]
        scores = {column: by_method[method] for column, by_method in tuning.items() if method in by_method}
        rows = [[column, *(fixed(value, 1) for value in tried["validation"])] for column, tried in scores.items()]
        return Table([f"{labels[method]}, alpha", *alphas], rows)

    def choice(method: str, column: str) -> str:
        tried = tuning[column].get(method)
        return _values(arms[method]["candidates"][tried["chosen"]]) if tried else ""

    sizes = [
        [f"{row['n']:,}", str(row["draws"]), str(row["epochs"]), *(_point(series, k, 1) for series in study.series)]
        for k, row in enumerate(study.details["sweep"])
    ]
    names = [name for name in ratio if name != "epochs"]
    means = {name: np.mean(ratio[name], axis=0).tolist() for name in names}
    weights = [[str(epoch), *(fixed(means[name][k], 2) for name in names)] for k, epoch in enumerate(ratio["epochs"])]
    header = ["n", "draws", "epochs", *(series.name for series in study.series)]
    by_size = Table(header, sizes, caption("moons_by_size", n=study.settings["n"]))
    by_epoch = Table(["epoch", *(labels[name] for name in names)], weights, caption("moons_weights"))
    return {
        "Test NLL: mean (median)": [_by_place(study, nll)],
        "Validation accuracy by FGSM's step": [steps("fgsm_linf"), steps("fgsm_l2")],
        "What was chosen": [_matrix(arms, list(tuning), choice, names=labels)],
        "Accuracy by the number of examples": [by_size],
        "Weights on true and noise dimensions": [by_epoch],
    }


def _filled(columns: str, rows: Iterable[JSON], text: str = "") -> Table:
    """A table of a record's rows; columns: "name: {field:.2f} | ...", where a name in " %" has its cells' sign."""
    forms = {name: form for name, _, form in (column.rpartition(": ") for column in columns.split(" | "))}
    body = [
        [form.format_map(row).removesuffix("%" if name.endswith(" %") else "") for name, form in forms.items()]
        for row in rows
    ]
    return Table(list(forms), body, text)


def _ends(values: Sequence[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}" if values else "none"


def _band(band: JSON, k: int) -> str:
    mean, low, high = (f"{100 * band[name][k]:.1f}" for name in ("mean", "q05", "q95"))
    return f"{mean} ({low} to {high})"


PROJECTION = "Projection and reading of x~"


def _theory(study: Study) -> Details:
    record = study.details
    alphas = next(sweep for sweep in record["sweeps"] if sweep["over"] == "alpha")
    better = dict(zip((f"rcad alpha={value:g}" for value in alphas["values"]), alphas["better"], strict=True))
    figure = [
        {
            "name": name.replace("erm", "ERM").replace("rcad", "RCAD"),
            **{part: bands[part]["mean"][-1] for part in ("w1", "w2", "train")},
            "test": _band(bands["test"], -1),
            "better": f"{better[name]:.1%}" if name in better else "",
        }
        for name, bands in record["figure"]["by_iteration"].items()
    ]
    windows = [
        {**window, "helpful": _ends(window["helpful"], "g"), "attracting": _ends(window["attracting"] or (), ".3g")}
        for window in record["windows"]
    ]
    rows = {**record, "figure": figure, "windows": windows}
    tables: Details = {
        table["heading"]: [_filled(table["columns"], rows[table["rows"]], table["caption"])]
        for table in WORDS["theory"]
    }
    gaps = "; ".join(
        f"alpha={gap['alpha']:g}: accuracy differs by {100 * gap['mean_accuracy_gap']:.2f} points on average, "
        f"{100 * gap['max_accuracy_gap']:.2f} at most"
        for gap in record["gaps"]
    )
    apart = f"On the sphere the two readings differ by the length of a step: {gaps}."
    tables[PROJECTION] = [*tables[PROJECTION], apart]
    return tables | {title: parts for sweep in record["sweeps"] for title, parts in _sweep(sweep).items()}


def _sweep(sweep: JSON) -> Details:
    over, base = sweep["over"], sweep["base"]["alphas"][0]
    rows = [
        [
            f"{value:g}",
            *(_band(sweep[name], k) for name in ("erm_accuracy", "rcad_accuracy")),
            " → ".join(f"{sweep[name]['mean'][k]:.2f}" for name in ("erm_noise", "rcad_noise")),
            f"{sweep['better'][k]:.1%}",
        ]
        for k, value in enumerate(sweep["values"])
    ]
    header = [over, "ERM test % (5% to 95%)", "RCAD test %", "‖w2‖", "better than ERM"]
    return {f"Sweep over {over}{'' if over == 'alpha' else f', alpha={base:g}'}": [Table(header, rows)]}


def alpha_settings(study: Study) -> dict[str, JSON]:
    """The settings in which alpha was measured and tried on held-out examples, by name."""
    moons = {f"moons, d = {setting['d']}": setting for setting in study.details["moons"]}
    return {**moons, "digits": study.details["digits"]}


def _alpha(study: Study) -> Details:
    results, settings, tried = study.details, study.settings, alpha_settings(study)
    numbers = WORDS["alpha"]["suggested"]
    linear = _filled(
        f"beta: {{beta:g}} | window: {{window}} | {numbers}",
        [{**_suggestion(problem), "window": _ends(problem["helpful"], ".3g")} for problem in results["linear"]],
        caption("alpha_linear", **settings),
    )
    moons_and_digits = _filled(
        f"setting: {{name}} | {numbers}",
        [{**_suggestion(setting), "name": name} for name, setting in tried.items()],
        caption("alpha_tried", **settings),
    )

    def curves(name: str, by_name: Mapping[str, JSON]) -> list[Table]:
        """A line for each setting, a column for each alpha."""
        rows = [[key, *(f"{np.mean(draws):.1f}" for draws in setting["grid"])] for key, setting in by_name.items()]
        return [Table([name, *(f"{alpha:.3g}" for alpha in next(iter(by_name.values()))["alphas"])], rows)]

    problems = {f"linear, beta {problem['beta']:g}": problem for problem in results["linear"]}
    return {
        "In short": _alpha_summary({**problems, **tried}, results.get("dropped")),
        **({"Rules that ask a model": _alpha_flips(results, {**problems, **tried})} if "flips" in results else {}),
        **({"Images": _alpha_images(results["images"])} if "images" in results else {}),
        "Linear theory": [linear],
        "Moons and digits": [moons_and_digits],
        "Held-out accuracy over alpha, moons": curves("d", {str(s["d"]): s for s in results["moons"]}),
        "Held-out accuracy over alpha, digits": curves("", {"digits": results["digits"]}),
        **({"UCI": _alpha_uci(results["uci"])} if results["uci"] is not None else {}),
    }


def _suggestion(setting: JSON) -> dict[str, Any]:
    """A setting with its suggested alpha, the accuracy there, and how many times the best alpha it is."""
    suggested = setting["suggested"]
    return {**setting, **suggested, "ratio": suggested["alpha"] / setting["best_alpha"]}


def _alpha_summary(settings: Mapping[str, JSON], dropped: JSON | None) -> list[str]:
    """How often the suggestion is within a factor of two of the best, what it costs, and a rule that is gone."""
    named = {label: _suggestion(setting) for label, setting in settings.items()}
    flat = [label for label, setting in named.items() if setting["best"] - setting["erm"] < 0.5]
    near = [label for label, setting in named.items() if 0.5 <= setting["ratio"] <= 2]
    above = sum(setting["accuracy"] > setting["erm"] for setting in named.values())
    cost = [setting["best"] - setting["accuracy"] for setting in named.values()]
    count, ends = len(settings), {"above": above, "median": np.median(cost), "worst": max(cost)}
    lines = [
        caption("alpha_flat", flat=len(flat), settings=count, names="; ".join(flat) or "none"),
        caption("alpha_near", near=len(near), settings=count, names="; ".join(near) or "none", **ends),
    ]
    if dropped is not None:
        close = sum(0.5 <= ratio <= 2 for ratio in dropped["ratios"].values())
        alphas = ", ".join(f"{alpha:g} ({name})" for name, alpha in dropped["images"].items())
        count = len(dropped["ratios"])
        lines.append(caption("alpha_dropped", rule=dropped["rule"], close=close, settings=count, alphas=alphas))
    return lines


def _alpha_flips(results: JSON, settings: Mapping[str, JSON]) -> list[Part]:
    """Where the prediction of a model trained by ERM changes, as a rule for alpha, beside the suggestion."""
    named = {name: {"suggested": setting["suggested"], **results["flips"][name]} for name, setting in settings.items()}
    rows, lines = [], []
    for name, found in named.items():
        best = settings[name]["best_alpha"]
        cells = (f"{one['alpha']:.3g} ({one['alpha'] / best:.1f}x), {one['accuracy']:.1f}" for one in found.values())
        rows.append([name, f"{best:.3g}, {settings[name]['best']:.1f}", *cells])
    for rule, words in WORDS["alpha"]["rules"].items():
        ratios = [found[rule]["alpha"] / settings[name]["best_alpha"] for name, found in named.items()]
        cost = [settings[name]["best"] - found[rule]["accuracy"] for name, found in named.items()]
        above = sum(found[rule]["accuracy"] > settings[name]["erm"] for name, found in named.items())
        ends = {"near": sum(0.5 <= ratio <= 2 for ratio in ratios), "low": min(ratios), "high": max(ratios)}
        ends |= {"above": above, "median": np.median(cost), "worst": max(cost), "settings": len(named)}
        lines.append(caption("alpha_rule", rule=capital(words), **ends))
    if "image_flips" in results:
        image = results["images"][-1]
        found = {"suggested": image["suggested"], **{k: np.median(v) for k, v in results["image_flips"].items()}}
        best = image["best"]["NLL"]
        cells = (f"{WORDS['alpha']['rules'][rule]} {alpha:.2g} ({alpha / best:.1f}x)" for rule, alpha in found.items())
        lines.append(caption("alpha_image_rules", setting=image["setting"], best=best, rules=", ".join(cells)))
    header = ["setting", "best alpha", *WORDS["alpha"]["rules"].values()]
    return [Table(header, rows, caption("alpha_flips")), *lines]


def _alpha_images(settings: Sequence[JSON]) -> list[Part]:
    """CIFAR-100: the suggestion over what held-out images chose, and what F4's curve has at the nearest step size."""
    rows, lines = [], []
    for setting in settings:
        name, suggested, alphas = setting["setting"], setting["suggested"], setting.get("alphas")
        for place, (by, best) in enumerate(setting["best"].items()):
            rows.append([name, by, f"{best:.2g}", f"{suggested:.2g}", f"{suggested / best:.1f}x"])
            if alphas is not None:
                near = int(np.argmin(np.abs(np.log(alphas) - math.log(suggested))))
                values, digits = setting[by.lower()], 3 if by == "NLL" else 1
                lines.append(
                    f"{name}, held-out {by}: {setting['erm'][place]:.{digits}f} for ERM, "
                    f"{values[alphas.index(best)]:.{digits}f} at the best alpha, {best:g}, and "
                    f"{values[near]:.{digits}f} at {alphas[near]:g}, the nearest to the suggestion."
                )
    header = ["CIFAR-100", "chosen by held-out", "chosen alpha", "suggested", "suggested over chosen"]
    return [Table(header, rows, caption("alpha_images")), *lines]


def _alpha_uci(rows: Sequence[JSON]) -> list[Part]:
    """The rule for regression targets beside the tuned alphas."""
    grid = {alpha for row in rows for alpha in row["tuned"]}
    spread = sum(set(row["tuned"]) == grid for row in rows)
    body = []
    for row in rows:
        tuned, rule = np.log(row["tuned"]), np.log(row["rule"])
        middle, value, ratio = (math.exp(numbers.mean()) for numbers in (tuned, rule, rule - tuned))
        times: Counter[float] = Counter(row["tuned"])
        splits = ", ".join(f"{alpha:g}: {count}" for alpha, count in sorted(times.items()))
        near = np.mean(np.abs(rule - tuned) <= math.log(2))
        body.append({**row, "splits": splits, "middle": middle, "value": value, "ratio": ratio, "near": near})
    return [caption("alpha_uci", spread=spread, sets=len(rows)), _filled(WORDS["alpha"]["tuned"], body)]


def _tuned(study: Study) -> Details:
    """The search of a tuned image table: what every method tried, what was chosen, and the curve of the choice."""
    search = study.details.get("search")
    if not search:
        return {}
    chosen, curves = [], []
    for choice in search["choices"]:
        name, best, trials = [choice["column"], choice["row"]], choice["chosen"], choice["trials"]
        held_out = [[fixed((trial["metrics"] or {}).get(key), 3) for key in ("nll", "accuracy")] for trial in trials]
        lines = [[*name, _values(trial["values"]), *held] for trial, held in zip(trials, held_out, strict=True)]
        curves += [[*line, "chosen" if k == best else ""] for k, line in enumerate(lines)]
        lost = [*name, "every candidate diverged", "-", "-"]
        chosen.append([*(lost if best is None else lines[best]), str(len(trials))])
    header = ["data", "method", "values", "held-out NLL, last epoch", "held-out accuracy, best epoch, %"]
    return {
        "What was chosen": [search["design"], Table([*header, "candidates"], chosen)],
        "Every candidate": [Table([*header, ""], curves, folded=f"Every candidate ({len(curves):,})")],
    }


DETAILS: Mapping[str, Callable[[Study], Details]] = {"T7": _uci, "T8": _moons, "F5": _theory, "alpha": _alpha}
