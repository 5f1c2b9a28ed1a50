"""The sentences on few labels, in docs/few-labels.md, docs/evidence/index.md and README.md, are true of the records."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import finetuning
import pytest

from rcad.paper.claims import ENTROPY, RANDOM, gain_of
from rcad.paper.record import LAST, Place
from rcad.paper.report.few_labels import GUESSING, signed
from rcad.paper.report.tables import MEASURES, mean_of, measure_table
from rcad.runs.pack import read_pack
from rcad.runs.recipes import RECIPES
from rcad.study.statistics import Paired, paired
from rcad_docs import few_labels, made
from rcad_docs.few_labels import N500, N2000, VIEWS, gain, studies

ROOT = Path(__file__).parents[2]
N1000, N5000, N10000 = "n=1,000", "n=5,000", "n=10,000"
BARE = "ERM, no augmentation"
USUAL = RECIPES["paper"].optim.weight_decay
DECAY = "optim.weight_decay"
COLUMNS = (*few_labels.TUNED,)


def words(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in made.written(ROOT)])
def test_kept_tables_are_those_of_the_records(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert made.renew(text, ROOT) == text, "run make pages"


def place(kind: str, row: str, column: str) -> Place:
    return studies(ROOT)[kind].places[row, column]


def in_column(column: str, row: str) -> Place | None:
    """Of the tables of tuned methods."""
    return few_labels.first_place(studies(ROOT), row, *few_labels.TUNED[column])


def over(kind: str, row: str, column: str, metric: str, base: str = "ERM", of: str = "") -> Paired:
    """By how much better than a base, on the same seeds; `of` is the base's study where it is another."""
    return gain(place(kind, row, column), place(of or kind, base, column), metric)


def mean(kind: str, row: str, column: str, metric: str = "nll") -> float:
    return mean_of(place(kind, row, column).values(LAST + metric)).mean


def test_the_order_of_what_to_do() -> None:
    page = words("docs/few-labels.md")
    decay, views = over("tuned", "ERM", N2000, "accuracy", of="paper"), over("tuned", VIEWS, N2000, "accuracy")
    rivals = [row for row in studies(ROOT)["paper"].rows if row not in ("ERM", "ME-ADA")]
    grown = over("paper", "ME-ADA", N2000, "accuracy")
    assert decay.low > max(over("paper", row, N2000, "accuracy").mean for row in rivals)
    assert grown.low < decay.mean < grown.high
    assert f"it gave ERM {decay.mean:.1f} points of accuracy. Of the paper's methods" in page
    assert f"only ME-ADA gained as much ({grown.mean:.1f}), by training on four times as many images." in page
    crop = [over("gains", "ERM", n, "accuracy", BARE).mean for n in (N500, N1000, N2000)]
    assert f"{crop[2]:.1f} points on 2,000 images, {crop[1]:.1f} on 1,000 and {crop[0]:.1f} on 500. On 500 and" in page
    assert all(over("gains", "ERM", n, "nll", BARE).high < 0 for n in (N500, N1000))
    few = over("cnn", VIEWS, N2000, "accuracy")
    assert over("cnn", VIEWS, N2000, "nll").high < 0
    assert f"{views.mean:.1f} points more with ResNet-18, {few.mean:.1f} with a small CNN, whose NLL was worse." in page
    smoothed = [gain(in_column(n, "LS"), in_column(n, "RCAD"), metric) for n in COLUMNS for metric in MEASURES]
    assert all(gain.mean > 0 for gain in smoothed)
    mixed = [gain(in_column(n, "MixUp"), in_column(n, "ERM"), "accuracy") for n in COLUMNS]
    assert (sum(gain.low > 0 for gain in mixed), sum(gain.high < 0 for gain in mixed)) == (3, 2)
    assert "most accurate in three of the five columns below, and less accurate than ERM in the other two." in page
    assert not any(over("paper", "RCAD", n, "accuracy").low > 0 for n in (N500, N1000, N2000))


def test_what_is_said_of_tuned_methods() -> None:
    page, lost = words("docs/few-labels.md"), {}
    for kind, n in (("tuned", N500), ("tuned 16", N2000)):
        lost[n] = over(kind, "RCAD", n, "accuracy")
        assert lost[n].high < 0 >= over(kind, "RCAD", n, "nll").low
    said = [f"{-gain.mean:.1f} ± {gain.half:.1f}" for gain in lost.values()]
    assert f"On 2,000 images it is {said[1]} points less accurate, on 500 {said[0]}" in page
    p = [holm("tuned 16", N2000)[0], holm("tuned", N500)[0]]
    assert f"none of this is significant (p {p[0]:.2f} and {p[1]:.2f} for accuracy)" in page
    few, more = (over(kind, "RCAD", N500, "accuracy") for kind in ("cnn", "cnn 16"))
    assert few.high < 0
    assert f"With 8 candidates it was {-few.mean:.1f} ± {few.half:.1f} points less accurate." in page
    assert max(holm("cnn 16", N500)) < 0.05
    assert f"With 16 it gains {more.mean:.1f} ± {more.half:.1f} points, significant after Holm" in page
    for metric in MEASURES:
        assert all(over("cnn 16", row, N500, metric, "RCAD").mean > 0 for row in (RANDOM, ENTROPY, "LS"))
        assert all(over("cnn", row, N2000, metric, "RCAD").low > 0 for row in ("LS", "MixUp"))
    p = holm("cnn", N2000)
    assert f"after Holm's correction (p {p[0]:.3f} for accuracy, {p[1]:.3f} for NLL)" in page
    over_guessing = [in_column(n, "ERM") for n in COLUMNS], [in_column(n, "RCAD") for n in COLUMNS]
    worse = [[mean_of(place.values(f"{LAST}nll")).mean > GUESSING for place in row] for row in over_guessing]
    assert worse == [[True, False, True, False, True]] * 2


def holm(kind: str, column: str) -> list[float]:
    """p of RCAD against ERM at the last epoch, for accuracy and NLL, as the study's page has it."""
    measures = measure_table(studies(ROOT)[kind])
    assert measures is not None
    (row,) = (row for row in measures.cells if [cell.text for cell in row[:3]] == [column, "RCAD against ERM", "last"])
    return [float(cell.note.rpartition("p ")[2].lstrip("<")) for cell in row[3:5]]


def test_what_the_search_leaves_open() -> None:
    page, largest = words("docs/few-labels.md"), []
    for kind, n in (("tuned", N500), ("tuned 16", N2000), ("cnn", N500), ("cnn 16", N500), ("cnn", N2000)):
        found = search("ERM", kind, n)
        tried = {trial["values"].get(DECAY, USUAL) for trial in found["trials"]}
        largest.append(found["trials"][found["chosen"]]["values"][DECAY] == max(tried))
    assert largest == [True, False, True, True, True]
    own, erm = (choice(row, "tuned 16")["metrics"]["nll"] for row in ("RCAD", "ERM"))
    assert own > erm
    assert f"None of RCAD's 16 had a lower validation NLL (best: {own:.3f}) than ERM ({erm:.3f})" in page
    for kind, candidates in (("tuned", 8), ("tuned 16", 16), ("cnn", 8), ("cnn 16", 16)):
        choices = studies(ROOT)[kind].details["search"]["choices"]
        assert {len(choice["trials"]) for choice in choices} == {candidates}
        assert {len(trial["runs"]) for choice in choices for trial in choice["trials"]} == {2}


def test_what_is_said_of_the_papers_settings() -> None:
    page, nats = words("docs/few-labels.md"), [over("paper", "RCAD", n, "nll") for n in (N500, N1000, N2000)]
    assert all(gain.low > 0 for gain in nats)
    assert nats[0].mean > nats[1].mean > nats[2].mean
    assert all(over("paper", "RCAD", n, "nll", RANDOM).low > 0 for n in (N500, N1000))
    assert over("paper", "RCAD", N2000, "nll", RANDOM).high < 0
    (p,) = holm("paper", N2000)[1:]
    assert f"On 2,000 images it is not significant after Holm's correction (p {p:.2f})" in page
    smoothed = [over("gains", "RCAD + LS", n, m, "LS", "paper") for m in MEASURES for n in (N500, N1000, N2000)]
    most = [max(abs(gain.mean) for gain in gains) for gains in (smoothed[:3], smoothed[3:])]
    assert f"accuracy changes by at most {most[0]:.1f} points, NLL by at most {most[1]:.2f}." in page
    level = [over("paper", row, n, "accuracy") for row in ("LS", "RCAD", RANDOM) for n in (N5000, N10000)]
    level += [over("paper", "RCAD", n, "nll") for n in (N5000, N10000)]
    assert all(gain.low < 0 < gain.high for gain in level)
    grown = over("paper", "ME-ADA", N10000, "accuracy")
    assert f"ME-ADA on 10,000 images, {-grown.mean:.1f} ± {grown.half:.1f} points lower." in page


def test_what_pretrained_weights_are_worth() -> None:
    record = json.loads((ROOT / "results/finetuning/finetuning.json").read_text(encoding="utf-8"))
    assert (ROOT / "results/finetuning/finetuning.md").read_text(encoding="utf-8") == finetuning.page(record)
    page, studies = words("docs/few-labels.md"), record["studies"]
    for labels, study in studies.items():
        erm, scratch = study["finetuned"]["erm"], study["scratch"]["erm"]
        shown = [f"{fmean(cell['accuracy']):.1f}%" for cell in (scratch, erm)]
        shown += [finetuning.change(erm, scratch, metric) for metric in finetuning.METRICS]
        assert f"| {labels} | {' | '.join(shown)} |" in page

    def gained(labels: str, method: str, metric: str) -> str:
        cells = studies[labels]["finetuned"]
        return str(finetuning.change(cells[method], cells["erm"], metric))

    raised = " and ".join(gained(labels, "rcad", "accuracy") for labels in ("100", "300"))
    assert f"did not raise accuracy ({raised} points)" in page
    nll = [gained("300", method, "nll")[1:] for method in ("rcad", "rcad_random", "confidence_penalty")]
    assert nll[0] == nll[1]
    assert f"better than ERM's by {nll[0]}, as is that of a random direction; the entropy at x gains {nll[2]}." in page
    worth = paired(*(studies["300"][name]["erm"]["accuracy"] for name in ("finetuned", "scratch"))).mean
    assert f"They were worth {worth:.0f} points of accuracy with 300 labels" in page


def search(row: str, kind: str = "tuned", column: str = N2000) -> dict[str, Any]:
    choices = studies(ROOT)[kind].details["search"]["choices"]
    (found,) = (choice for choice in choices if (choice["row"], choice["column"]) == (row, column))
    return dict(found)


def choice(row: str, kind: str = "tuned", column: str = N2000) -> dict[str, Any]:
    """The candidate that was taken."""
    found = search(row, kind, column)
    return dict(found["trials"][found["chosen"]])


def test_the_recipe_is_what_validation_chose() -> None:
    page, tried = words("docs/few-labels.md"), {row: choice(row) for row in studies(ROOT)["tuned"].rows}
    nll, accuracy = ({row: trial["metrics"][metric] for row, trial in tried.items()} for metric in ("nll", "accuracy"))
    more = [choice(row, "tuned 16")["metrics"]["nll"] for row in (RANDOM, "RCAD")]
    assert min(nll, key=nll.__getitem__) == max(accuracy, key=accuracy.__getitem__) == VIEWS
    assert nll[VIEWS] < more[0] < min(more[1], nll["ERM"])
    recipe = RECIPES["few-labels"]
    assert recipe.method == "two_views"
    assert recipe.optim.weight_decay == float(f"{tried[VIEWS]['values'][DECAY]:.2g}")
    assert (recipe.model, recipe.train.batch_size) == (RECIPES["paper-2k"].model, RECIPES["paper-2k"].train.batch_size)
    assert f"with weight decay {recipe.optim.weight_decay}." in page
    assert f"lowest validation NLL ({nll[VIEWS]:.3f}) of the nine methods tuned on 2,000 images; ERM was second" in page
    for name, base, of in (
        ("ERM with the paper's weight decay", "ERM", "paper"),
        ("tuned ERM", "ERM", "tuned"),
        ("tuned label smoothing", "LS", "tuned"),
    ):
        cells = [few_labels.change_text(place("tuned", VIEWS, N2000), place(of, base, N2000), m) for m in MEASURES]
        assert all(cell.startswith("**") for cell in cells)
        assert f"| against {name} | {' | '.join(cell.strip('*') for cell in cells)} |" in page


def test_weight_decay_without_a_validation_split() -> None:
    """By ten fresh seeds."""
    accuracies: dict[float, dict[int, float]] = {}
    for run in read_pack(ROOT / "results/images/cifar100-2k-few-labels.jsonl.gz").values():
        config, metrics = run.record.config, run.record.metrics
        if config.method[-1][0] == "erm":
            accuracies.setdefault(config.optim.weight_decay, {})[config.seed] = metrics["test_accuracy"]
    points = [gain_of(accuracies[decay], accuracies[USUAL], True, fewest=10)[0] for decay in (0.0015, 0.002236)]
    first, second = (f"{gain.mean:.1f} ± {gain.half:.1f}" for gain in points)
    page = words("docs/few-labels.md")
    assert f"0.0015 gave ERM {first} points over {USUAL} on 2,000 images, and 0.0022 gave {second}." in page
    means = [fmean(accuracies[decay].values()) for decay in (USUAL, 0.0015, 0.002236)]
    base, held_out = (mean(kind, "ERM", N2000, "accuracy") for kind in ("paper", "tuned"))
    assert f"| accuracy, all labels | {' | '.join(f'{mean:.1f}%' for mean in means)} |" in page
    assert f"| accuracy, 200 held out | {base:.1f}% | - | {held_out:.1f}% |" in page
    assert f"about {means[0] - base:.0f} points (ERM: {means[0]:.1f}% against {base:.1f}%)" in page
    assert f"({means[0]:.1f}% with no labels held out)" in words("README.md")


def test_what_is_said_beside_the_verdicts() -> None:
    decay = over("tuned", "ERM", N2000, "accuracy", of="paper")
    said = f"With tuned weight decay ERM gains {decay.mean:.1f} points on 2,000 images"
    assert said in words("docs/evidence/index.md")
    assert decay.low > place("paper", "RCAD", N2000).published.mean - place("paper", "ERM", N2000).published.mean
    for n in (N500, N1000, N2000, N5000, N10000):
        last = over("paper", "RCAD", n, "accuracy")
        assert last.low <= 0 <= last.high
    assert (signed(-0.04, 1), signed(-0.06, 1)) == ("0.0", "\N{MINUS SIGN}0.1")
