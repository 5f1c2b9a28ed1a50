"""The pieces that make pages of the site, each alone."""

import json
import re
from collections import Counter
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rcad import METHODS
from rcad.paper.moons import at_printed_size
from rcad.paper.report import costs
from rcad.paper.report.tables import place_mean
from rcad.study.judge import VERDICTS
from rcad_docs import api, cards, commands, evidence, figures, links, made, sources, summary
from rcad_docs.evidence import report

ROOT = Path(__file__).parents[2]
SAME = {"RCAD is more accurate than ERM", "RCAD is more accurate than DA", "DA + RCAD is more accurate than DA"}
TWO_THOUSAND = {"CIFAR-100-2k", "n=2,000", "alpha 1"}
"""One comparison, as several tables call it."""


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("docs/quickstart.md", "../methods/rcad.md", "methods/rcad.md"),
        ("docs/quickstart.md", "../methods/rcad.md#cost", "methods/rcad.md#cost"),
        ("docs/evidence/index.md", "../report.md", "../report.md"),
        ("docs/evidence/index.md", "../../results", "../results/README.md"),
        ("docs/index.md", "../methods", "methods/index.md"),
        ("docs/index.md", "../examples/own_loop.py", "examples/own_loop.md"),
        ("docs/corruptions.md", "../results/corruptions/throughput.json", "results/corruptions/throughput.json"),
        ("methods/rcad.md", "rcad_text.md", "rcad_text.md"),
        ("CONTRIBUTING.md", "docs/gpu.md", "gpu.md"),
        ("docs/gpu.md", "https://arxiv.org/abs/2206.01367", "https://arxiv.org/abs/2206.01367"),
        ("docs/gpu.md", "#here", "#here"),
    ],
)
def test_a_link_of_the_repository_becomes_one_of_the_site(source: str, link: str, expected: str) -> None:
    assert links.rewrite(f"see [it]({link}).", source, ROOT) == f"see [it]({expected})."


def test_code_keeps_its_links_and_linked_files_come_along() -> None:
    text = "[a](../methods/rcad.md)\n\n```text\n[a](../methods/rcad.md)\n```\n"
    assert links.rewrite(text, "docs/gpu.md", ROOT).count("(../methods") == 1
    pages = {"docs/a.md": "![p](../results/uci/uci.png) [c](../methods/rcad.md) [n](nowhere.png)"}
    assert links.media(ROOT, pages) == ["results/uci/uci.png"]


def test_a_folder_in_the_navigation_is_its_pages_with_the_index_first() -> None:
    nav = [{"Home": "index.md"}, {"Part": [{"Some": "some/"}, "more/"]}]
    pages = ["index.md", "some/b.md", "some/a.md", "some/index.md", "more/c.md"]
    more = {"MORE/C.MD": "more/c.md"}
    assert links.expand(nav, pages, str.upper) == [
        {"Home": "index.md"},
        {"Part": [{"Some": ["some/index.md", {"SOME/B.MD": "some/b.md"}, {"SOME/A.MD": "some/a.md"}]}, more]},
    ]


def test_a_made_part_takes_the_place_of_its_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(made.MAKERS, "geometry", lambda root, folder, argument: f"MADE {folder} {argument}")
    text = "a\n\n<!-- made: geometry -->\n*stand-in*\n<!-- end -->\n\nb\n\n<!-- made: geometry (x y) -->\n\nc\n"
    assert made.fill(text, "some/page.md", ROOT) == (
        "a\n\nMADE ../evidence/figures \n\nb\n\nMADE ../evidence/figures x y\n\nc\n"
    )
    with pytest.raises(KeyError):
        made.fill("<!-- made: nothing known -->", "page.md", ROOT)


def test_every_method_is_in_one_group_every_option_has_its_default_and_every_example_a_page() -> None:
    named = [name for names in cards.GROUPS.values() for name in names]
    assert sorted(named) == sorted(METHODS)
    assert cards.pages(ROOT)["methods/rcad.md"] == (ROOT / "methods" / "rcad.md").read_text(encoding="utf-8")
    assert "| [rcad](rcad.md) | `alpha='auto'`, `lam='auto'` | 2.00 |" in cards.pages(ROOT)["methods/index.md"]
    (text,) = commands.pages().values()
    assert "| `--budget N` | `20` | Number of configurations to try. |" in text
    assert "| `--data NAME|FILE|DIR` |  | A name (rcad data list), a file, a folder, hf:OWNER/NAME or" in text
    assert "From the environment: `RCAD_DATA`." in text
    assert "rcad train --data digits --method rcad --epochs 3\n" in text
    found = sources.pages(ROOT)
    for path in (ROOT / "examples").glob("*.py"):
        assert path.read_text(encoding="utf-8") in found[f"examples/{path.stem}.md"]
        assert f"({path.stem}.md)" in found["examples/index.md"]


def test_public_names_of_an_adapter_and_whole_drawings(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import os\ndef one(): ...\nclass Two: ...\ndef _three(): ...\n")
    assert api._public(module) == ["one", "Two"]
    module.write_text(module.read_text() + '__all__ = ["Two"]\n')
    assert api._public(module) == ["Two"]
    for text in (figures.geometry(), figures.window(ROOT)):
        drawings = ElementTree.fromstring(text).findall("div/svg")
        assert len(drawings) == 2
        assert all(one.get("viewBox") and one.get("aria-label") for one in drawings)


def test_the_short_tables_hold_the_records_numbers() -> None:
    rows = json.loads((ROOT / "results/benchmarks/step_time_cpu.json").read_text())["rows"]
    (ratio,) = [row["ratio_to_erm"] for row in rows if row["method"] == "rcad" and row["batch"] == 128]
    assert f"| {ratio:.2f} |" in next(line for line in summary.cost(ROOT).splitlines() if "fused" in line)
    helped = [line.strip("| ").split(" | ") for line in summary.does_it_help(ROOT).splitlines() if line[2:5] != "---"]
    (study,) = [study for study in report(ROOT).records.studies if study.target == "T8"]
    verdicts = {(claim.where, claim.statement): claim.verdict for claim in study.claims}
    moons = {cells[0].removeprefix("moons, "): cells[1:] for cells in helped if cells[0].startswith("moons")}
    assert moons.keys() == {where for where, _ in verdicts}  # both noises
    words = {"reproduced": "better", "opposite": "worse", "not reproduced": "not better", "undecided": "undecided"}
    for (where, cells), k in product(moons.items(), (0, 1)):
        verdict = verdicts[where, f"RCAD is more accurate than {('ERM', 'a random direction')[k]}"]
        assert f">{words[verdict]}</span>" in cells[k]
    assert any("n=20,000, 300 epochs" in where and cells[2].startswith("99.8") for where, cells in moons.items())
    (images,) = [cells for cells in helped if cells[0].startswith("CIFAR-100")]
    t4 = (ROOT / "results/T4/T4.md").read_text(encoding="utf-8")
    for method, cell in zip(("ERM", "RCAD", "random direction (control)"), images[3:], strict=True):
        row = next(line for line in t4.splitlines() if line.startswith(f"| n=2,000 | {method} |"))
        assert row.split(" | ")[3] == cell.replace(summary.NARROW, " ")
    (wine,) = [cells for cells in helped if cells[0].startswith("wine")]
    assert "not worse" in wine[1]  # the paper says that ERM is better there, and that was not reproduced


def test_speeds_are_the_records() -> None:
    record = json.loads((ROOT / "results/corruptions/throughput.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/corruptions.md").read_text(encoding="utf-8")
    for name, speeds in record["images_per_second"].items():
        assert f"| {name} | {min(speeds):,} | {max(speeds):,} |" in page
    measured = [path.stem for path, _ in report(ROOT).records.by_kind[costs.GROWTH]]
    shown = made.fill("<!-- made: scaling -->", "speed.md", ROOT)
    assert all(f"evidence/figures/{name}.svg" in shown for name in measured)
    assert shown.startswith("## How it grows") or not measured


def test_the_count_tells_the_papers_claims_from_ours() -> None:
    studies = [study for study in report(ROOT).records.studies if study.as_published]
    judged = [(study, claim) for study in studies for claim in study.tested]
    paper, ours = (Counter(c.verdict for s, c in judged if s.added(c) == added) for added in (False, True))
    rows = {line.split(" | ")[0][2:]: line.split(" | ")[1:] for line in summary.verdicts(ROOT).splitlines()}
    for name, count in (("**all claims of the paper**", paper), ("our checks, most against a random direction", ours)):
        assert [int(cell.strip(" |")) for cell in rows[name]] == [count.total(), *(count[v] for v in VERDICTS)]
    subjects = {
        name.split(" (")[0]: [int(cell.strip(" |")) for cell in cells[:2]]
        for name, cells in rows.items()
        if cells[0].isdigit()
    }
    counted = [subjects[name] for name in ("images", "moons", "linear theory", "UCI regression", "cost")]
    claims, good = map(sum, zip(*counted, strict=True))
    assert (claims, good) == (paper.total(), paper["reproduced"])
    shares = [f"{subjects[name][1]} of {subjects[name][0]}" for name in subjects]
    images = [
        (s, c)
        for s, c in judged
        if s.target in summary.SUBJECTS["images (T1, T2, T4, T6, F1 to F4)"] and not s.added(c)
    ]
    names = [c.statement.replace("DA + RCAD", "RCAD").replace("than DA", "than ERM") for _, c in images]
    keys = [
        (name, "n=2,000" if c.where in TWO_THOUSAND else c.where) for name, (_, c) in zip(names, images, strict=True)
    ]
    found = {key for key, (_, c) in zip(keys, images, strict=True) if c.verdict == "reproduced"}
    evidence = " ".join((ROOT / "docs/evidence/index.md").read_text(encoding="utf-8").split())
    assert f"the {len(images)} on images are {len({*keys})} different ones, and of these {len(found)} are" in evidence
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"Of {claims} claims of the paper judged so far, {good} reproduced: {shares[0]} on images, {shares[1]} on "
        f"moons, {shares[2]} in the linear theory, {shares[3]} on UCI, {shares[4]} on cost."
    ) in readme
    (t4,) = (study for study in studies if study.target == "T4")
    erm = [t4.places["ERM", column] for column in ("n=2,000", "n=10,000")]
    ours, theirs = [place_mean(t4, place).mean for place in erm], [place.published.mean for place in erm]
    assert (
        f"our ERM is less accurate than the paper's: {ours[0]:.1f}% against {theirs[0]}% on 2,000 images (27.2% with "
        f"no labels held out), {ours[1]:.1f}% against {theirs[1]}% on 10,000"
    ) in readme
    (moons,) = (study for study in studies if study.target == "T8")
    ((where, accuracies),) = at_printed_size(moons).items()
    assert where.endswith("n=20,000, 300 epochs")
    erm, rcad = (sum(values) / len(values) for values in (accuracies["ERM"], accuracies["RCAD"]))
    assert "1,000 examples and 100 epochs, where the paper has 20,000 and 300; one of them is judged" in evidence
    assert f"where ERM has {erm:.1f}% and RCAD {rcad:.1f}%" in evidence
    same = {s.target: c.verdict for s, c in judged if c.statement in SAME and c.where in TWO_THOUSAND}
    significant = {target for target, verdict in same.items() if verdict == "reproduced"}
    assert (significant, same.keys() - significant) == ({"T1", "F1", "F2"}, {"T4", "F3", "F4"})
    assert "is significant in T1, F1 and F2, and not in T4, F3 and F4" in evidence


def test_the_numbers_on_images_are_the_records() -> None:
    (study,) = [study for study in report(ROOT).records.studies if study.target == "cifar100-2k-bf16"]
    words = " ".join((ROOT / "methods/rcad.md").read_text(encoding="utf-8").split())
    for name, row in (("ERM", "data_augmentation + erm"), ("RCAD", "data_augmentation + rcad(alpha=1.0, lam=0.1)")):
        accuracy, nll = (place_mean(study, study.places[row, "resnet18"], metric) for metric in ("accuracy", "nll"))
        first = f"{name} {accuracy.mean:.1f} ± {accuracy.half:.1f}% and "
        assert first in words
        assert words.split(first)[1].removeprefix("NLL ").startswith(f"{nll.mean:.2f} ± {nll.half:.2f}")
    (t4,) = [one for one in report(ROOT).records.studies if one.target == "T4" and one.as_published]
    for n, epoch in product(("2,000", "500"), ("validation-selected", "last")):
        metric = "last_accuracy" if epoch == "last" else "accuracy"
        means = [place_mean(t4, t4.places[row, f"n={n}"], metric) for row in ("ERM", "RCAD")]
        cells = " | ".join(f"{mean.mean:.1f} ± {mean.half:.1f}" for mean in means)
        assert f"| {n} images | {epoch} | {cells} |" in words


def test_the_numbers_on_alpha_and_lam_are_the_records() -> None:
    page = " ".join((ROOT / "docs/concepts.md").read_text(encoding="utf-8").split())
    theory = (ROOT / "results/theory/linear.md").read_text(encoding="utf-8")
    swept = dict(re.findall(r"^\| ([\d.]+) \| 68\.2 \(.*?\) \| ([\d.]+) \(", theory, re.MULTILINE))
    said = {"0.6": "RCAD {}% at alpha 0.6", "1.5": "but {}% at 1.5", "2": "{}% at 2", "4": "{}% at 4"}
    assert all(words.format(swept[alpha]) in page for alpha, words in said.items())
    uci = json.loads((ROOT / "results/uci/uci.json").read_text(encoding="utf-8"))
    lists = uci["settings"]["arms"]["rcad"]["candidates"]
    chosen = Counter(lists[k]["lam"] for one in uci["details"]["tuning"].values() for k in one["rcad"]["chosen"])
    assert f"chose 0.5 on {chosen[0.5]} splits and 0.1 on {chosen[0.1]}" in page


@pytest.mark.usefixtures("undrawn")
def test_chapters_say_what_had_been_seen_and_what_published_means() -> None:
    chapters = evidence.pages(ROOT).pages
    evidence.drawing.cache_clear()
    for target in ("T7", "T8"):
        page = chapters[f"evidence/{target}.md"]
        assert "after a first full run, whose test numbers had been seen" in page
        assert "'published' is the gain over ERM" in page
        rows = [line for line in page.splitlines() if "than a random direction" in line]
        assert rows
        assert all("our check" in row for row in rows)


def test_the_table_of_damages_has_every_kind_of_damage_and_of_file() -> None:
    head, _, *rows = summary.damages(ROOT).splitlines()
    for kind in ("half", "empty", "zeros", "zero tail", "garbage tail", "one bit", "missing", "a folder in its place"):
        assert f"| {kind} |" in head
    files = ["checkpoint", "record", "config", "log", "weights", "evaluation", "cache", "packed study"]
    assert [row.split(" | ")[0] for row in rows] == [f"| {file}" for file in files]
    assert all(row.count("healed") + row.count("named") == 8 for row in rows)
