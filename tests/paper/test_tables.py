"""The suites as values: controls everywhere, one protocol for all rows, the paper's settings and printed numbers."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from paper_records import order
from rcad.loss.method_rows import as_recorded, method_rows, rows_to_plain
from rcad.loss.methods import method_defaults
from rcad.paper.benchmarks import SCALES
from rcad.paper.record import Study
from rcad.paper.run import judge_twice, plan_of
from rcad.paper.suite import Plan
from rcad.paper.tables import SUITES
from rcad.paper.targets import TARGETS
from rcad.paper.tuned import CANDIDATES, DECAY, Search, tuned_suite
from rcad.runs.plain import config_id
from rcad.runs.recipes import RECIPES
from rcad.train.scheduler import canonical_config
from rcad.train.task import Method

each = pytest.mark.parametrize("name", SUITES)
RESULTS = Path(__file__).parents[2] / "results"


def built(rows: object) -> Method:
    return Method.from_dict({"methods": rows_to_plain(method_rows(rows))})


@each
def test_the_full_scale_has_as_many_runs_as_the_list_says(name: str) -> None:
    assert {name for name, one in TARGETS.items() if one.is_suite} == set(SUITES)
    runs = SUITES[name].runs("full", [0], "one view")
    assert len({config_id(one.config) for one in runs}) * TARGETS[name].seeds == TARGETS[name].runs
    wanted = {column.benchmark.data for column in SUITES[name].columns}
    assert wanted == {one for one in TARGETS[name].data if not one.endswith(" weights")}


@each
def test_every_column_has_both_controls_and_every_claim_two_sides_that_are_run(name: str) -> None:
    found = SUITES[name]
    assert len(found.controls) == 2
    planned = {(one.row, one.column) for one in found.runs("smoke", [0], "one view")}
    assert {(control, column.name) for control in found.controls for column in found.columns} <= planned
    for claim in found.claims:
        assert {claim.winner, claim.loser} <= planned
        assert claim.winner != claim.loser
        assert claim.published is None or claim.published > 0
    assert any(claim.loser[0] in found.controls for claim in found.claims)


@each
@pytest.mark.parametrize("scale", SCALES)
def test_configs_are_canonical_and_differ_between_cells_with_other_methods(name: str, scale: str) -> None:
    for views in ("one view", "two views"):
        runs = SUITES[name].runs(scale, [0], views)  # type: ignore[arg-type]
        ids = {one: config_id(one) for one in {run.config for run in runs}}
        assert all(canonical_config(one) == one for one in ids)
        by_column: dict[str, list[str]] = {}
        for one in runs:
            by_column.setdefault(one.column, []).append(ids[one.config])
        assert all(len(set(some)) == len(some) for some in by_column.values())


@each
def test_two_views_are_given_to_every_row(name: str) -> None:
    for one in SUITES[name].runs("full", [0], "two views"):
        assert [term.view for term in (built(one.config.method).clean or ())] == ["batch", "raw"], one.row
    for one in SUITES[name].runs("full", [0], "one view"):
        assert all(term.view == "batch" for term in built(one.config.method).terms)


def test_the_full_scale_is_the_paper_s_protocol() -> None:
    (rcad,) = (one for one in SUITES["T1"].runs("full", [7], "one view", ["CIFAR-100-2k"]) if one.row == "RCAD")
    rows = [("rcad", {"alpha": 1.0, "lam": 0.1})]
    assert rcad.config == canonical_config(RECIPES["paper-2k"].config("cifar100[:2000]", rows, 7))
    by_row = {one.row: one.config for one in SUITES["T1"].runs("full", [0], "one view", ["SVHN"])}
    assert by_row["ERM"] == RECIPES["paper-svhn"].config("svhn", [("erm", {})])
    assert by_row["RCAD"].method == (("data_augmentation", ()), ("rcad", ()))
    (wide,) = {one.config.model for one in SUITES["T3"].runs("full", [0], "one view")}
    assert (wide.name, wide.dropout) == ("wrn28_10", 0.3)
    sizes = {one.column: one.config.train.batch_size for one in SUITES["T4"].runs("full", [0], "one view")}
    assert list(sizes.values()) == [128, 128, 32, 128, 64, 128]


def test_finetuning_has_cutmix_s_protocol_and_the_pretrained_row_needs_weights(tmp_path: Path) -> None:
    (tmp_path / "imagenet").mkdir()
    there = plan_of(order("T5", scale="full", data_dir=tmp_path))
    assert (there.columns, there.missing) == (("top-1", "top-5"), ())
    full = {run.row: run.config for run in there.runs}
    erm = full["ERM"]
    assert (erm.data.name, erm.data.size, erm.data.validation) == ("imagenet", 224, 0.0)
    assert (erm.model.name, erm.model.weights) == ("timm:resnet50", "pretrained")
    assert (erm.optim.lr, erm.optim.weight_decay, erm.optim.milestones) == (0.1, 1e-4, (75, 150, 225))
    assert (erm.train.epochs, erm.train.batch_size, erm.train.selection) == (300, 256, "last")
    rcad = method_defaults()["rcad"] | dict(dict(as_recorded(full["RCAD"].method))["rcad"])
    assert (rcad["alpha"], rcad["lam"]) == (0.5, 0.02)
    assert full["pretrained"].train.epochs == 0
    without, given = (
        {run.row: run.config for run in SUITES["T5"].runs("smoke", [0], "one view", weights=weights)}
        for weights in (None, "mine.safetensors")
    )
    assert "pretrained" not in without
    assert {config.model.weights for config in given.values()} == {"mine.safetensors"}
    assert given["pretrained"].train.epochs == 0


@pytest.mark.parametrize("path", sorted(RESULTS.glob("[TF][1-6]/*.json")), ids=lambda path: path.stem)
def test_a_committed_record_is_what_its_suite_plans_and_judges(path: Path) -> None:
    """Its runs must be found again, or hours on a GPU would be spent again; its numbers give its claims."""
    study = Study.read(path)
    seeds, precision = study.settings["seeds"], study.settings["precision"]
    model, count = re.fullmatch(r"[TF]\d+(?:-tuned)?(?:-([a-z]\w*))?(?:-(\d+))?", path.stem).groups()  # type: ignore[union-attr]
    how = {"model": model, "candidates": int(count) if count else None}
    wanted = order(study.target, scale="full", views=study.protocol, seeds=seeds, precision=precision, **how)
    suite = tuned_suite(wanted) if study.tuned else SUITES[study.target]
    planned = Plan(wanted, suite, (), tuple(study.columns_run))
    if study.tuned:
        choices = study.details["search"]["choices"]
        erm = {choice["column"]: choice["trials"][: CANDIDATES["full"]] for choice in choices if choice["row"] == "ERM"}
        first = {name: min(trials, key=lambda trial: trial["metrics"]["nll"]) for name, trials in erm.items()}
        search = Search(planned, {name: trial["values"][DECAY] for name, trial in first.items()} if count else {})
        planned = search.table(choices)
        for choice in choices:
            trials = search.trials(choice["row"], choice["column"])
            assert [[config_id(run.config) for run in runs] for _, runs in trials] == [
                trial["runs"] for trial in choice["trials"]
            ]
    else:
        runs = suite.runs("full", seeds, study.protocol, study.columns_run, precision=precision)
        planned = replace(planned, runs=runs)
    ids = {cell: {config_id(run.config) for run in runs} for cell, runs in planned.cells().items()}
    assert study.run_ids
    for cell, place in study.places.items():
        assert {run.id for run in place.runs} <= ids.get(cell, set())
        assert place.published == suite.printed(*cell)
    assert (study.title, tuple(study.rows)) == (suite.title, suite.rows)
    assert {column.name: column.metric for column in suite.columns} == study.metrics
    curves = [(curve.name, curve.panel, curve.over, list(curve.x)) for curve in suite.curves]
    assert [(series.name, series.panel, series.over, series.x) for series in study.series] == curves
    for made, kept in zip(judge_twice(study, planned), study.claims, strict=True):
        for name in ("where", "statement", "verdict", "note", "ours", "rule", "published", "published_p"):
            assert getattr(made, name) == getattr(kept, name)
        assert (made.last and made.last.verdict) == (kept.last and kept.last.verdict)
        assert made.p_holm == (None if kept.p_holm is None else pytest.approx(kept.p_holm, rel=1e-3))


PAPER = Path(os.environ.get("RCAD_PAPER") or Path(__file__).parents[3] / "shared" / "PAPER.md")
SETS = ["CIFAR-100-2k", "CIFAR-100-10k", "Tiny ImageNet", "CIFAR-10", "CIFAR-100", "SVHN"]
SIZES = [f"n={n}" for n in ("500", "1,000", "2,000", "5,000", "10,000", "50,000")]
MOONS = ["d=625, sigma=0.1", "d=625, sigma=0.75", "d=1000, sigma=0.1"]
NAMES = {
    "T1": (SETS, ["ERM", "FGSM", "ADA", "ME-ADA", "RCAD"]),
    "T2": (SETS, ["ME-ADA + LS", "RCAD + LS"]),
    "T3": (["CIFAR-100-2k", "CIFAR-100-10k", "CIFAR-100"], ["ERM", "ME-ADA", "RCAD"]),
    "T4": (SIZES, ["ERM", "LS", "FGSM", "ME-ADA", "RCAD"]),
    "T5": (["top-1", "top-5"], ["pretrained", "ERM", "RCAD"]),
    "T8": ([f"{cell}, noise on all" for cell in MOONS], ["ERM", "FGSM linf", "ME-ADA", "RCAD"]),
    "T7": (["boston", "concrete", "energy", "wine", "yacht"], ["ERM", "ME-ADA", "RCAD"]),
}


@pytest.fixture(scope="module")
def digest() -> str:
    if not PAPER.is_file():
        pytest.skip("the digest of the paper is not here; set RCAD_PAPER to its path")
    text = PAPER.read_text(encoding="utf-8")
    return text[text.index("**T1 ") : text.index("**Figures**")]


def numbers(digest: str, name: str) -> list[tuple[float, float | None]]:
    """The decimal numbers below a table's title, each with its interval."""
    (text,) = re.findall(rf"\*\*{name} [^*]*\*\*(.*?)(?=\n\*\*T|$)", digest, flags=re.DOTALL)
    found = re.findall(r"(\d+\.\d+)(?:±(\d+\.\d+))?", text)
    return [(float(mean), float(half) if half else None) for mean, half in found]


@pytest.mark.parametrize("name", NAMES)
def test_means_and_intervals(name: str, digest: str) -> None:
    table, (columns, rows) = TARGETS[name].printed, NAMES[name]
    assert list(table) == columns
    assert all(list(cells) == rows for cells in table.values())
    cells = [cell for column in table.values() for cell in column.values()]
    found = [pair for pair in numbers(digest, name) if name != "T8" or pair[0] not in (0.1, 0.75)]  # its sigmas
    assert [(cell.mean, cell.half) for cell in cells] == found
    assert {cell.n for cell in cells} == {{"T5": 7, "T7": None, "T8": None}.get(name, 10)}
