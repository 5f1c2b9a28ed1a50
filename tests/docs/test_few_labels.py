"""The sentences on few labels, in docs/few-labels.md, docs/evidence/index.md and README.md, are true of the records."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from rcad.paper.claims import ENTROPY, RANDOM, gain_of
from rcad.paper.record import LAST, Place
from rcad.paper.report.few_labels import CHANCE, GUESSING, signed
from rcad.paper.report.tables import MEASURES, mean_of, measure_table
from rcad.report.document import Table
from rcad.runs.pack import read_pack
from rcad.runs.recipes import RECIPES
from rcad.runs.record import RunRecord
from rcad.study.statistics import Paired
from rcad_docs import few_labels, made
from rcad_docs.few_labels import N500, N2000, VIEWS, gain, studies

ROOT = Path(__file__).parents[2]
N1000, N5000, N10000, TABLES = "n=1,000", "n=5,000", "n=10,000", "CIFAR-100-2k"
BARE = "ERM, no augmentation"
README_ROW = ("32.4", "+8.3 ± 0.5", "2.90", "\N{MINUS SIGN}0.86 ± 0.04")
USUAL = RECIPES["paper"].optim.weight_decay
DECAY = "optim.weight_decay"


def words(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_the_report_opens_with_the_short_table_and_calls_every_study_by_a_name_of_its_own() -> None:
    document = few_labels.report(ROOT).document
    opening = document.sections[0].parts[0]
    assert isinstance(opening, Table)
    assert [cell.text for cell in opening.cells[-1]] == ["two views, weight decay tuned", *README_ROW]
    names = [section.short or section.title for section in document.sections]
    assert len(names) == len({*names})
    assert {"T4", "T4, tuned", "T4, tuned, 16 candidates", "T4, tuned, small CNN"} <= {*names}


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in made.written(ROOT)])
def test_kept_tables_are_those_of_the_records(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert made.renew(text, ROOT) == text, "run make pages"


def place(kind: str, row: str, column: str) -> Place:
    return studies(ROOT)[kind].places[row, column]


def over(kind: str, row: str, column: str, metric: str, base: str = "ERM", of: str = "") -> Paired:
    """By how much better than a base, on the same seeds; `of` is the base's study where it is another."""
    return gain(place(kind, row, column), place(of or kind, base, column), metric)


def mean(kind: str, row: str, column: str, metric: str = "nll") -> float:
    return mean_of(place(kind, row, column).values(LAST + metric)).mean


def interval(gain: Paired, digits: int) -> str:
    return f"{signed(gain.mean, digits).lstrip('+')} ± {(gain.high - gain.low) / 2:.{digits}f}"


def best(kind: str, column: str, metric: str) -> str:
    """The best row that does more than guess."""
    study = studies(ROOT)[kind]
    rows = [row for row in study.rows if (there := study.place(row, column)) and there.runs]
    rows = [row for row in rows if mean(kind, row, column, "accuracy") > CHANCE]
    return (max if MEASURES[metric].higher else min)(rows, key=lambda row: mean(kind, row, column, metric))


def test_the_order_of_what_to_do() -> None:
    page = words("docs/few-labels.md")
    decay, views = over("tuned", "ERM", N2000, "accuracy", of="paper"), over("tuned", VIEWS, N2000, "accuracy")
    rivals = [row for row in studies(ROOT)["paper"].rows if row != "ERM"]
    assert decay.mean > max(over("paper", row, N2000, "accuracy").mean for row in rivals)
    assert f"it gave ERM {decay.mean:.1f} points of accuracy, more than any regulariser" in page
    crop = [over("gains", "ERM", n, "accuracy", BARE).mean for n in (N500, N1000, N2000)]
    assert f"plain training (ERM) loses {crop[2]:.1f} points of accuracy on 2,000 images" in page
    assert f"{crop[2]:.1f} points on 2,000 images, {crop[1]:.1f} on 1,000 and {crop[0]:.1f} on 500. On 500 and" in page
    assert all(over("gains", "ERM", n, "nll", BARE).high < 0 for n in (N500, N1000))
    back = [mean("tuned", "ERM", N500), mean("gains", BARE, N500)]
    assert f"on 500 ({back[0]:.2f}, above; without crop and flip {back[1]:.2f})" in page
    few = over("cnn", VIEWS, N2000, "accuracy")
    assert f"one as it is: {views.mean:.1f} points more with ResNet-18, {few.mean:.1f} with a small CNN." in page
    assert best("tuned", N500, "accuracy") == best("tuned", N500, "nll") == "MixUp"
    assert best("cnn", N2000, "accuracy") == best("cnn", N2000, "nll") == "MixUp"
    assert over("tuned", "MixUp", N2000, "accuracy").high < 0
    assert "best on 500 images and, with the small CNN, on 2,000. Tuned with ResNet-18 on 2,000 it was worse" in page
    assert not any(over("paper", "RCAD", n, "accuracy").low > 0 for n in (N500, N1000, N2000))


def test_what_is_said_of_tuned_methods() -> None:
    page = words("docs/few-labels.md")
    assert over("tuned", "RCAD", N500, "accuracy").high < 0
    small, less = over("cnn", "RCAD", N2000, "accuracy"), over("cnn", "RCAD", N500, "accuracy")
    assert small.low > 0 > less.high
    chosen = (place("cnn", row, N2000).by_seed("accuracy") for row in ("RCAD", "ERM"))
    selected, _ = gain_of(*chosen, True, fewest=10)
    lower = f"{-less.mean:.1f} ± {(less.high - less.low) / 2:.1f}"
    higher = f"{interval(small, 1)} higher on 2,000 (at the validation-selected epoch {interval(selected, 1)})"
    assert f"its accuracy is {lower} points lower on 500 images and {higher}" in page
    measures = measure_table(studies(ROOT)["cnn"])
    assert measures is not None
    (row,) = (row for row in measures.cells if [cell.text for cell in row[:3]] == [N2000, "RCAD against ERM", "last"])
    assert [cell.note for cell in row[3:5]] == ["undecided, p 0.0889", "undecided, p 0.0546"]
    assert "neither gain on 2,000 images is significant (p 0.089 and 0.055;" in page
    for row in ("LS", "MixUp"):
        assert over("cnn", row, N2000, "accuracy").mean > small.mean
        assert over("cnn", row, N2000, "nll", "RCAD").low > 0
    assert over("cnn", ENTROPY, N2000, "nll", "RCAD").low > 0 < over("cnn", "RCAD", N2000, "nll").low
    assert {len(place("cnn", row, N2000).runs) for row in ("MixUp", RANDOM)} == {5}
    lost = over("tuned 16", "RCAD", N2000, "accuracy")
    assert lost.high < 0 > over("tuned 16", "RCAD", N2000, "nll").high
    assert f"RCAD still loses {-lost.mean:.1f} points, the two controls lose none." in page
    assert all(over("tuned 16", control, N2000, "accuracy").mean > 0 for control in (RANDOM, ENTROPY))
    first = [-over("tuned", row, N2000, "accuracy").mean for row in ("RCAD", RANDOM)]
    assert f"with them RCAD lost {first[0]:.1f} points on 2,000 images, a random direction {first[1]:.1f}." in page
    erm, own = choice("ERM", "tuned 16"), choice("RCAD", "tuned 16")
    assert f"best for ERM ({erm['values'][DECAY]:.2g}), a choice made after those results: RCAD" in page
    assert erm["values"] == choice("ERM")["values"]
    assert own["metrics"]["nll"] > erm["metrics"]["nll"]
    numbers = [f"{trial['metrics']['nll']:.3f}" for trial in (own, erm)]
    assert f"lower validation NLL (best: {numbers[0]}) than ERM ({numbers[1]}), a" in page
    direction = over("tuned 16", RANDOM, N2000, "accuracy", "RCAD")
    assert direction.low > 0
    assert f"was chosen is {interval(direction, 1)} points more accurate than RCAD with ResNet-18" in page
    weights = [choice(row, "tuned 16")["values"][f"{row}.lam"] for row in (RANDOM, "RCAD")]
    assert f"its weight is {weights[0]:.3f}, so that it is nearly ERM, where RCAD's is {weights[1]:.2f}." in page
    assert over("cnn", "RCAD", N500, "nll").low > 0 >= over("tuned", "RCAD", N500, "nll").low
    for kind, control in (("cnn", RANDOM), ("cnn", ENTROPY), ("tuned", RANDOM), ("tuned", ENTROPY)):
        assert over(kind, control, N500, "nll", "RCAD").low > 0
    worse = [mean("cnn", row, n) for row in ("ERM", "RCAD") for n in (N500, N2000)]
    assert min(*worse, mean("tuned", "ERM", N500)) > GUESSING
    assert f"and there RCAD too ({worse[2]:.2f} on 500 images, {worse[3]:.2f} on 2,000)" in page
    assert mean("cnn", "FGSM", N500, "accuracy") < CHANCE
    tried = {(kind, n): search("ERM", kind, n) for kind in ("tuned", "cnn") for n in (N500, N2000)}
    largest = {max(trial["values"].get(DECAY, USUAL) for trial in found["trials"]) for found in tried.values()}
    edge = {key for key, found in tried.items() if found["trials"][found["chosen"]]["values"].get(DECAY) in largest}
    assert (edge, {f"{decay:.4f}" for decay in largest}) == ({*tried} - {("tuned", N2000)}, {"0.0033"})
    assert "The largest weight decay tried is 0.0033, and in three of the four columns ERM chose it" in page
    by_decay = {trial["values"].get(DECAY, USUAL): trial for trial in tried["cnn", N500]["trials"]}
    last = [(decay, by_decay[decay]["metrics"]["nll"]) for decay in sorted(by_decay)[-2:]]
    said = ", ".join(f"{nll:.1f} at {decay:.4f}" for decay, nll in last)
    assert f"still falls there (500 images, small CNN: {said})" in page
    runs = [run.record for run in read_pack(ROOT / "results/images/cifar100-500-decay-small_cnn.jsonl.gz").values()]
    beyond: dict[float, list[RunRecord]] = {}
    for record in runs:
        if record.config.method[-1][0] == "erm":
            beyond.setdefault(record.config.optim.weight_decay, []).append(record)
    assert {len(some) for some in beyond.values()} == {2}
    others = {name: [r for r in runs if r.config.method[-1][0] == name] for name in ("rcad", "rcad_random")}
    assert {(len(some), some[0].config.optim.weight_decay) for some in others.values()} == {(2, 0.03)}
    both = {f"{fmean(r.epochs[-1]['val_nll'] for r in some):.2f}" for some in others.values()}
    assert f"with the alpha and lam chosen above, have {' '.join(both)} both" in page
    nats = [
        f"{fmean(r.epochs[-1]['val_nll'] for r in some):.1f} at {decay:.2g}" for decay, some in sorted(beyond.items())
    ]
    assert f"on the CPU in fp32: {', '.join(nats[:3])} and {nats[3]}, while" in page
    right = [fmean(r.metrics["last_accuracy"] for r in beyond[decay]) for decay in (min(beyond), max(beyond))]
    assert f"test images falls from {right[0]:.1f}% to {right[1]:.1f}%." in page
    for (kind, n), found in ((key, search(VIEWS, *key)) for key in edge):
        falling = sorted(found["trials"], key=lambda trial: trial["values"].get(DECAY, USUAL))
        assert falling[-1]["metrics"]["nll"] < falling[-2]["metrics"]["nll"], (kind, n)
    for kind, candidates in (("tuned", 8), ("tuned 16", 16), ("cnn", 8)):
        choices = studies(ROOT)[kind].details["search"]["choices"]
        assert {len(choice["trials"]) for choice in choices} == {candidates}
        assert {len(trial["runs"]) for choice in choices for trial in choice["trials"]} == {2}


def test_what_is_said_of_the_papers_settings() -> None:
    nats = [over("paper", "RCAD", n, "nll") for n in (N500, N1000, N2000)]
    assert all(gain.low > 0 for gain in nats)
    assert nats[0].mean > nats[1].mean > nats[2].mean
    assert all(over("paper", "RCAD", n, "nll", RANDOM).low > 0 for n in (N500, N1000))
    assert over("paper", "RCAD", N2000, "nll", RANDOM).high < 0
    smoothed = [over("gains", "RCAD + LS", n, m, "LS", "paper") for m in MEASURES for n in (N500, N1000, N2000)]
    most = [max(abs(gain.mean) for gain in gains) for gains in (smoothed[:3], smoothed[3:])]
    page = words("docs/few-labels.md")
    assert f"accuracy changes by at most {most[0]:.1f} points, NLL by at most {most[1]:.2f}." in page
    small, large = (f"LS on Adv, {step} step" for step in ("small", "large"))
    level, nll = over("gains", "RCAD", TABLES, "accuracy", small), over("gains", small, TABLES, "nll", "RCAD")
    same = f"small step (a difference of {interval(level, 1)} points) and has the better NLL (by {interval(nll, 2)})"
    assert same in page
    more = over("gains", "RCAD", TABLES, "accuracy", large)
    assert more.low > 0 < nll.low
    assert f"RCAD is {interval(more, 1)} points more accurate" in page
    assert {best("paper", n, "nll") for n in (N500, N1000)} == {"LS"}
    assert {best("paper", n, "accuracy") for n in (N500, N1000, N2000)} == {"ME-ADA"}
    more = [over("paper", row, n, "accuracy") for row in ("LS", "RCAD", RANDOM) for n in (N5000, N10000)]
    assert all(gain.low < 0 < gain.high for gain in more)
    assert all(gain.low < 0 < gain.high for gain in (over("paper", "RCAD", n, "nll") for n in (N5000, N10000)))
    costs = [-over("paper", "LS", n, "nll").mean for n in (N2000, N10000)]
    assert f"on 2,000 it costs {costs[0]:.2f}, on 10,000 images {costs[1]:.2f}." in page
    narrowest = min((gain.high - gain.low) / 2 for gain in more)
    assert f"with three seeds the intervals are ±{narrowest:.1f} points and wider." in page


def search(row: str, kind: str = "tuned", column: str = N2000) -> dict[str, Any]:
    choices = studies(ROOT)[kind].details["search"]["choices"]
    (found,) = (choice for choice in choices if (choice["row"], choice["column"]) == (row, column))
    return dict(found)


def choice(row: str, kind: str = "tuned") -> dict[str, Any]:
    """The candidate that was taken on 2,000 images."""
    found = search(row, kind)
    return dict(found["trials"][found["chosen"]])


def test_the_recipe_is_what_validation_chose() -> None:
    named = {"LS": "label smoothing", "MixUp": "mixup"}
    rows = {row: named.get(row, row) for row in ("ERM", ENTROPY, "LS", "MixUp", RANDOM, "RCAD")}
    page, tried = words("docs/few-labels.md"), {row: choice(row) for row in (VIEWS, *rows)}
    nll, accuracy = ({row: trial["metrics"][metric] for row, trial in tried.items()} for metric in ("nll", "accuracy"))
    more = [choice(row, "tuned 16")["metrics"]["nll"] for row in (RANDOM, "RCAD")]
    assert min(more) > nll[VIEWS]
    assert min(nll, key=nll.__getitem__) == max(accuracy, key=accuracy.__getitem__) == VIEWS
    recipe = RECIPES["few-labels"]
    assert recipe.method == "two_views"
    assert recipe.optim.weight_decay == float(f"{tried[VIEWS]['values']['optim.weight_decay']:.2g}")
    assert (recipe.model, recipe.train.batch_size) == (RECIPES["paper-2k"].model, RECIPES["paper-2k"].train.batch_size)
    assert f"with weight decay {recipe.optim.weight_decay}." in page
    assert (
        f"lowest validation NLL ({nll[VIEWS]:.3f}) of the seven methods tuned on 2,000 images: "
        f"{', '.join(f'{name} {nll[row]:.3f}' for row, name in rows.items())} (with 16 candidates "
        f"{more[0]:.3f} and {more[1]:.3f}, still above it). "
        "Its validation accuracy, at the epoch with the best, was the highest too "
        f"({accuracy[VIEWS]:.1f}%; ERM {accuracy['ERM']:.1f}%)"
    ) in page
    for name, base, of in (
        ("ERM with the paper's weight decay", "ERM", "paper"),
        ("tuned ERM", "ERM", "tuned"),
        ("tuned label smoothing", "LS", "tuned"),
    ):
        cells = [few_labels.change_text(place("tuned", VIEWS, N2000), place(of, base, N2000), m) for m in MEASURES]
        assert all(cell.startswith("**") for cell in cells)
        assert f"| against {name} | {' | '.join(cell.strip('*') for cell in cells)} |" in page
    assert over("tuned", VIEWS, N2000, "accuracy", of="paper").low > 6


def test_weight_decay_without_a_validation_split() -> None:
    """By ten fresh seeds."""
    accuracies: dict[float, dict[int, float]] = {}
    for run in read_pack(ROOT / "results/images/cifar100-2k-few-labels.jsonl.gz").values():
        config, metrics = run.record.config, run.record.metrics
        if config.method[-1][0] == "erm":
            accuracies.setdefault(config.optim.weight_decay, {})[config.seed] = metrics["test_accuracy"]
    points = []
    for weight_decay in (0.0015, 0.002236):
        paired, _ = gain_of(accuracies[weight_decay], accuracies[USUAL], True, fewest=10)
        points.append(f"{paired.mean:.1f} ± {(paired.high - paired.low) / 2:.1f}")
    means = {decay: sum(values.values()) / len(values) for decay, values in accuracies.items()}
    base, views = mean("paper", "ERM", N2000, "accuracy"), mean("tuned", VIEWS, N2000, "accuracy")
    paper = f"{means[USUAL]:.1f}% with the paper's weight decay ({base:.1f}% with 200 held out)"
    more = f"{means[0.002236]:.1f}% with 0.0022 and {means[0.0015]:.1f}% with 0.0015"
    assert f"ERM on all 2,000 has {paper}, {more}: as much as the {views:.1f}% of two views" in words(
        "docs/few-labels.md"
    )
    whole = mean_of([*accuracies[USUAL].values()])
    assert f"ERM has {base:.1f}% at the last epoch with 10% held out" in words("docs/evidence/index.md")
    assert f"and {whole.mean:.1f} ± {whole.half:.1f}% trained on all of them" in words("docs/evidence/index.md")
    assert f"({whole.mean:.1f}% with no labels held out)" in words("README.md")
    sentence = f"0.0015 gave ERM {points[0]} points over {USUAL} on 2,000 images, and 0.0022 gave {points[1]}."
    assert sentence in words("docs/few-labels.md")


def test_the_gain_on_2000_images_is_within_the_noise_of_training() -> None:
    """The same runs in three packs, by the paper's choice of the epoch."""
    packs, gains = ("images/cifar100-2k-paper", "cifar100-2k-bf16", "cifar100-2k-later"), []
    configs = {place("paper", row, N2000).runs[0].id: row for row in ("ERM", "RCAD")}
    for pack in packs:
        runs = read_pack(ROOT / f"results/{pack}.jsonl.gz")
        first = {runs[id_].record.config.method: row for id_, row in configs.items()}
        by_seed: dict[str, dict[int, float]] = {"ERM": {}, "RCAD": {}}
        for run in runs.values():
            config = run.record.config
            if config.method in first and config.model.norm is None and config.optim.weight_decay == USUAL:
                by_seed[first[config.method]][config.seed] = run.record.metrics["test_accuracy"]
        assert {*by_seed["ERM"]} == {*by_seed["RCAD"]} == {*range(10)}
        gains.append([by_seed["RCAD"][seed] - by_seed["ERM"][seed] for seed in range(10)])
    said = [f"{signed(mean.mean, 1)} ± {mean.half:.1f}" for mean in map(mean_of, gains)]
    together = mean_of([sum(three) / 3 for three in zip(*gains, strict=True)])
    sentence = f"gave {said[0]}, {said[1]} and {said[2]} points"
    page = words("docs/evidence/index.md")
    assert sentence in page
    assert f"the mean of the three is {signed(together.mean, 1)} ± {together.half:.1f}." in page


def test_what_an_attack_leaves() -> None:
    left: dict[str, list[Any]] = {}
    for run in read_pack(ROOT / "results/images/cifar100-2k-paper.jsonl.gz").values():
        attacked = [e["numbers"] for e in run.evaluations.values() if e["suite"] == "attacks"]
        left.setdefault(run.record.config.method[-1][0], []).extend(attacked)

    def kept(row: str, counted: str) -> str:
        return f"{fmean(numbers[f'{counted}_fgsm_0.05'] for numbers in left[row]):.1f}%"

    page, under = words("docs/evidence/index.md"), "accuracy_under"
    assert f"leaves RCAD {kept('rcad', under)} and ERM {kept('erm', under)}, both below chance" in page
    right = f"RCAD has {kept('rcad', 'attacked_accuracy')}, and ERM {kept('erm', 'attacked_accuracy')}."
    assert f"Where images count that were right before it too, {right}" in page
    rivals = kept("adversarial_training", under), kept("ada", under), kept("me_ada", under)
    assert f"FGSM training keeps {rivals[0]}, ADA and ME-ADA {rivals[1]}." in page
    assert rivals[1] == rivals[2]


def test_what_is_said_beside_the_verdicts() -> None:
    page = words("docs/evidence/index.md")
    decay = over("tuned", "ERM", N2000, "accuracy", of="paper")
    assert f"With tuned weight decay ERM gains {decay.mean:.1f} points on 2,000 images" in page
    printed = place("paper", "RCAD", N2000).published.mean - place("paper", "ERM", N2000).published.mean
    assert decay.low > printed
    for n in (N500, N1000, N2000, N5000, N10000):
        last = over("paper", "RCAD", n, "accuracy")
        assert last.low <= 0 <= last.high
    assert signed(-0.04, 1) == "0.0"
    assert signed(-0.06, 1) == "\N{MINUS SIGN}0.1"
