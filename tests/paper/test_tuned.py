"""The tuned protocol: equal budgets, seeds of their own for the choice, fresh ones for the table, all of it kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from paper_records import make, order
from rcad.errors import InputError
from rcad.paper import tuned
from rcad.paper.benchmarks import CIFAR100_2K
from rcad.paper.record import Study
from rcad.paper.run import plan_of
from rcad.paper.suite import Order, Plan
from rcad.paper.tables import SUITES
from rcad.runs.store import Store

pytest.importorskip("sklearn")
pytestmark = pytest.mark.usefixtures("undrawn")


def t4(out: Path = Path(), **options: object) -> Order:
    return order("T4", out, **{"views": "tuned", "only": ("n=500",), **options})


def test_all_methods_try_the_same_weight_decays_and_points_reach_far() -> None:
    decays = {
        label: [values.get(tuned.DECAY) for values in tuned.candidates(label, 8)]
        for label in ("ERM", "two views", "LS", "RCAD", "random direction", "RCAD + LS", "ME-ADA")
    }
    assert len({tuple(some) for some in decays.values()}) == 1
    first, *rest = decays["ERM"]
    assert first is None  # the paper's own setting
    assert len(set(rest)) == 7
    assert all(2e-4 <= decay <= 5e-3 for decay in rest)

    found = [values for values in tuned.candidates("RCAD", 64) if values]
    alphas, lams = ([values[f"RCAD.{name}"] for values in found] for name in ("alpha", "lam"))
    assert 0.5 <= min(alphas) < 1 < 40 < max(alphas) <= 60
    assert 0.02 <= min(lams) < 0.04 < 6 < max(lams) <= 10
    # Smoothing and lambda are chosen on held-out data, as the text says.
    for label, names in (("LS", {"LS.eps"}), ("RCAD", {"RCAD.lam"}), ("RCAD + LS", {"RCAD.lam", "LS.eps"})):
        usual, *others = tuned.candidates(label, 8)
        assert usual == {}  # the paper's own choice is among them
        assert all(len({values[name] for values in others}) == 7 for name in names)
    assert {"LS", "RCAD + LS"} <= set(tuned.tuned_suite(order("T2")).rows)


def test_a_candidate_changes_what_it_names_and_nothing_else() -> None:
    plain = CIFAR100_2K.config("full", "RCAD", 7)
    (usual,) = (one.config for one in SUITES["T1"].runs("full", [7], "one view", ["CIFAR-100-2k"]) if one.row == "RCAD")
    assert plain == usual
    values = {tuned.DECAY: 0.002, "RCAD.alpha": 20.0, "RCAD.lam": 2.0}
    changed = CIFAR100_2K.config("full", "RCAD", 7, values=values)
    assert changed.optim.weight_decay == 0.002
    assert dict(dict(changed.method)["rcad"]) | {"alpha": 20.0, "lam": 2.0} == dict(dict(changed.method)["rcad"])
    small = CIFAR100_2K.config("full", "ERM", 7, model="small_cnn")
    assert (small.model.name, small.optim.lr, small.train) == ("small_cnn", tuned.UNNORMALISED_LR, plain.train)


def test_a_trial_from_search_to_page_a_few_rows_at_a_time(tmp_path: Path) -> None:
    alone = Study.read(make(t4(tmp_path, rows=("ERM",))).files[0])
    wanted = t4(tmp_path, rows=("two views", "RCAD"))
    outcome = make(wanted)
    made = Study.read(outcome.files[0])
    assert (outcome.files[0].name, made.protocol) == ("T4-tuned.json", "tuned")
    assert set(tuned.BESIDE) <= set(made.rows)
    assert made.places["ERM", "n=500"] == alone.places["ERM", "n=500"]
    choices, store = made.details["search"]["choices"], Store(wanted.store)
    assert {row for (row, _), place in made.places.items() if place.runs} == {"ERM", "two views", "RCAD"}
    trials = {choice["row"]: len(choice["trials"]) for choice in choices}
    assert trials == dict.fromkeys(("ERM", "two views", "RCAD"), tuned.CANDIDATES["smoke"])
    for choice in choices:
        trial = choice["trials"][choice["chosen"]]
        assert trial["metrics"]["nll"] == min(other["metrics"]["nll"] for other in choice["trials"])
        (tuning,) = (store.get(run) for run in trial["runs"])
        assert (tuning.config.seed, tuning.config.data.validation) == (1000, tuned.HELD_OUT)
        for run in made.places[choice["row"], "n=500"].runs:
            config = store.get(run.id).config
            assert config.seed in (0, 1, 2)
            assert config.optim.weight_decay == tuning.config.optim.weight_decay
            assert config.method == tuning.config.method
    assert "## What was chosen" in outcome.files[1].read_text()
    assert make(wanted).reused
    assert Study.read(outcome.files[0]).to_dict() == made.to_dict()
    finished = make(t4(tmp_path, finished=True))
    assert not finished.reused
    assert "--finished" in finished.files[1].read_text()
    assert Study.read(finished.files[0]).places == made.places
    with pytest.raises(InputError, match="expected finished runs of T4, but there are none"):
        make(t4(tmp_path / "elsewhere", finished=True))


def test_more_candidates_go_beyond_a_weight_decay_at_the_edge(tmp_path: Path) -> None:
    """At the scale smoke the paper's setting, 0.01, is the largest there is, and ERM chooses it."""
    rows = "ERM", "RCAD"
    with pytest.raises(InputError, match="add --rows 'ERM'"):
        make(t4(tmp_path, rows=("RCAD",), candidates=4))
    outcome = make(t4(tmp_path, rows=rows, candidates=4))
    assert outcome.files[0].name == "T4-tuned-4.json"
    made = Study.read(outcome.files[0])
    erm, rcad = (choice["trials"] for choice in made.details["search"]["choices"])
    assert len(erm) == len(rcad) == 4
    assert [trial["values"][tuned.DECAY] for trial in erm[2:]] == [0.02378, 0.1345]
    assert all(trial["values"].keys() == rcad[1]["values"].keys() for trial in rcad[2:])
    assert "the largest of these (n=500), larger ones are tried, up to 32 times it." in made.details["search"]["design"]
    assert "--candidates 4" in outcome.files[1].read_text()


def test_more_candidates_keep_a_weight_decay_inside_the_range() -> None:
    order = t4(scale="full", candidates=16)
    search = tuned.Search(Plan(order, tuned.tuned_suite(order), (), ("n=500",)), {"n=500": 0.002236})
    added = [values for values, _ in search.trials("RCAD", "n=500")[8:]]
    assert [values[tuned.DECAY] for values in added] == [0.002236] * 8
    assert len({values["RCAD.alpha"] for values in added}) == 8
    near = [values[tuned.DECAY] / 0.002236 for values, _ in search.trials("ERM", "n=500")[8:]]
    assert all(0.5 <= ratio <= 2 and ratio != 1 for ratio in near)
    assert "larger ones" not in search.design()
    at_edge = replace(search, decays={"n=500": 0.003344})
    for row in ("ERM", "RCAD"):
        beyond = [values[tuned.DECAY] / 0.003344 for values, _ in at_edge.trials(row, "n=500")[8:]]
        assert 1 < min(beyond) < 2 < 16 < max(beyond) <= 32


def test_every_row_has_its_trials_and_a_whole_set_chooses_between_two_weight_decays() -> None:
    planned = plan_of(t4())
    assert {run.row for run in planned.runs} == {*planned.suite.rows} == {*SUITES["T4"].rows, *tuned.BESIDE}
    assert {len(runs) for runs in planned.cells().values()} == {tuned.CANDIDATES["smoke"]}
    suite = tuned.tuned_suite(t4())
    search = tuned.Search(Plan(t4(scale="full"), suite, (), ("n=500", "n=50,000")))
    tried = search.trials("RCAD", "n=50,000")
    assert [values for values, _ in tried] == [{}, {tuned.DECAY: 1e-3}]
    assert [run.config.optim.weight_decay for _, (run,) in tried][1] == 1e-3
    assert [len(runs) for _, runs in search.trials("RCAD", "n=500")] == [2] * tuned.CANDIDATES["full"]
    with pytest.raises(InputError, match="--protocol tuned"):
        tuned.Search.of(order("T3", views="tuned"))
    assert t4(model="small_cnn").record.name == "T4-tuned-small_cnn.json"
