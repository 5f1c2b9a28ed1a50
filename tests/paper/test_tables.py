"""The suites as values: controls everywhere, one protocol for all rows, the paper's settings at full scale."""

from __future__ import annotations

import pytest

from rcad.paper.benchmarks import CIFAR100, CIFAR100_2K, SCALES, SIX, SVHN, protocol
from rcad.paper.suite import Suite
from rcad.paper.tables import SUITES
from rcad.paper.targets import TARGETS
from rcad.runs.pack import packs_in, united
from rcad.runs.plain import config_id
from rcad.runs.recipes import RECIPES
from rcad.train.scheduler import canonical_config
from rcad.train.task import Method

each = pytest.mark.parametrize("name", SUITES)


def built(rows: object) -> Method:
    from rcad.loss.method_rows import method_rows, rows_to_plain

    return Method.from_dict({"methods": rows_to_plain(method_rows(rows))})


def test_fifteen_targets() -> None:
    assert list(TARGETS) == [*(f"T{k}" for k in range(1, 9)), *(f"F{k}" for k in range(1, 8))]
    assert {name for name, one in TARGETS.items() if one.is_suite} == set(SUITES)


@each
def test_the_full_scale_has_as_many_runs_as_the_list_says(name: str) -> None:
    runs = SUITES[name].runs("full", range(TARGETS[name].seeds), "one view")
    assert len({config_id(one) for one in {one.config for one in runs}}) == TARGETS[name].runs
    wanted = {column.benchmark.data for column in SUITES[name].columns}
    assert wanted == {one for one in TARGETS[name].data if not one.endswith(" weights")}


@each
def test_every_column_has_both_controls_and_every_claim_two_sides_that_are_run(name: str) -> None:
    found = SUITES[name]
    assert len(found.controls) == 2
    planned = {(one.row, one.column) for one in found.runs("smoke", [0], "one view")}
    for column in found.columns:
        assert {(control, column.name) for control in found.controls} <= planned
    assert found.claims
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


def test_published_numbers_set_the_claims() -> None:
    claims = {(one.where, one.statement): one.published for one in SUITES["T1"].claims}
    assert len(claims) == 30
    assert claims["CIFAR-100-2k", "RCAD is more accurate than ERM"] == pytest.approx(1.9)
    assert claims["SVHN", "RCAD is more accurate than ME-ADA"] == pytest.approx(0.2)
    assert claims["CIFAR-10", "RCAD is more accurate than a random direction"] == pytest.approx(0.5)
    attacked = {(one.where, one.statement) for one in SUITES["T6"].claims}
    # Where the paper prints a rival as the better one, that is the claim.
    assert ("CIFAR-100, attacked", "ME-ADA withstands the attack better than RCAD") in attacked
    assert ("CIFAR-100-2k, attacked", "RCAD withstands the attack better than ME-ADA") in attacked


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


def test_smoothed_rows_say_the_papers_direction() -> None:
    for name, row in (("T2", "RCAD + LS"), ("F2", "LS + RCAD")):
        (one,) = (one for one in SUITES[name].runs("full", [0], "one view", ["CIFAR-100-2k"]) if one.row == row)
        assert dict(dict(one.config.method)["rcad"])["direction"] == "plain"
        assert any("unsmoothed" in note for note in SUITES[name].notes)


def test_the_committed_runs_are_those_of_t1() -> None:
    """Records that exist must be found by the suites, or hours on a GPU would be spent again."""
    from pathlib import Path

    kept = united(packs_in(Path(__file__).parents[2] / "results" / "images"))
    runs = SUITES["T1"].runs("full", range(3), "one view", ["CIFAR-100-2k"])
    mine = {config_id(one.config) for one in runs if one.row in ("ERM", "RCAD")}
    assert mine <= set(kept)


def test_small_is_less_of_everything() -> None:
    recipe = protocol("paper", "small")
    assert (recipe.train.epochs, recipe.optim.milestones) == (30, (15, 22, 27))
    assert CIFAR100.source("small") == "cifar100[:10000]"
    assert CIFAR100_2K.source("small") == CIFAR100_2K.source("full") == "cifar100[:2000]"
    assert (CIFAR100.source("full"), SVHN.source("full")) == ("cifar100", "svhn")
    assert CIFAR100.source("smoke") == "digits[:150]"
    assert len({one.smoke for one in SIX}) == 6


def test_one_step_size_a_column() -> None:
    found: Suite = SUITES["F4"]
    by = {(one.row, one.column): one.config for one in found.runs("full", [0], "one view")}
    alphas = [dict(by["RCAD", column.name].method[-1][1]).get("alpha", 0.5) for column in found.columns]
    assert alphas == list(found.curves[0].x) == [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30]
    assert {claim.where for claim in found.claims} == {f"alpha {alpha:g}" for alpha in (0.05, 0.1, 0.25, 1, 2, 5)}
    assert len({config_id(by["ERM", column.name]) for column in found.columns}) == 1


def test_f3_has_what_its_caption_names() -> None:
    found = SUITES["F3"]
    rows = {column.name: set(column.rows or ()) for column in found.columns}
    assert {"ME-ADA + LS", "RCAD + LS", "LS on Adv, small step", "LS on Adv, large step"} <= rows["CIFAR-10"]
    assert {"LS", "FGSM", "ME-ADA", "RCAD", "RCAD + LS", "ERM, no augmentation"} <= rows["n=500"]
    runs = {(one.row, one.column): one.config for one in found.runs("full", [0], "one view")}
    assert [name for name, _ in runs["ERM", "n=500"].method] == ["data_augmentation", "erm"]
    assert [name for name, _ in runs["ERM, no augmentation", "n=500"].method] == ["erm"]
    (curve,) = (one for one in found.curves if one.name.startswith("DA"))
    assert (curve.row, curve.over) == ("ERM", "ERM, no augmentation")
    assert ("RCAD + LS is more accurate than ME-ADA + LS", "CIFAR-10") in {
        (claim.statement, claim.where) for claim in found.claims
    }


def test_the_paper_prints_28_5_for_erm_and_nothing_for_augmentation() -> None:
    found = SUITES["F1"]
    assert found.printed("DA", "CIFAR-100-2k") is None
    assert found.printed("LS", "CIFAR-100-2k").mean == 29.2
    (claim,) = (one for one in found.claims if one.loser[0] == "DA")
    assert claim.published is None


def test_f3_counts_shared_runs_once() -> None:
    claims = [(claim.winner[0], claim.loser[0], claim.where) for claim in SUITES["F3"].claims]
    assert ("RCAD", "ERM", "CIFAR-100-2k") in claims
    assert ("RCAD", "ERM", "n=2,000") not in claims
    assert ("RCAD", "ERM", "n=500") in claims
    assert ("RCAD", "LS", "n=2,000") in claims
