"""The studies behind the suggested alpha and the defaults: what their records say, and what the pages say of them."""

import json
from pathlib import Path
from typing import Any

import default_loops as loops
import default_values_page as pages
import measured_alpha as study
import numpy as np
import pytest
import torch

from rcad.loss.terms import WEIGHT
from rcad.paper.record import Study

pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]
TRIAL = ("--scale", "smoke", "--out")


def test_the_table_on_images_is_the_record_s_and_the_pages() -> None:
    made = Study.read(ROOT / "results/alpha/alpha.json")
    curve, *searches = made.details["images"]
    f4 = Study.read(ROOT / "results/F4/F4.json")
    assert curve["alphas"] == list(f4.series[0].x)
    nll, accuracy = (dict(zip(curve["alphas"], curve[name], strict=True)) for name in ("nll", "accuracy"))
    assert curve["best"] == {"NLL": min(nll, key=nll.__getitem__), "accuracy": max(accuracy, key=accuracy.__getitem__)}
    rows = [(one, by, best) for one in (curve, *searches) for by, best in one["best"].items()]
    page = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    for one, by_what, best in rows:
        found = one["suggested"]
        cells = [one["setting"], by_what, f"{best:.2g}", f"{found:.2g}", f"{found / best:.1f}x"]
        assert f"| {' | '.join(cells)} |" in page
    assert max(one["suggested"] / best for one, _, best in rows) == pytest.approx(10, rel=0.1)
    assert "it can be ten times too large" in page
    assert {*made.details["dropped"]["images"].values()} == {0.0}
    near = sum(0.5 <= ratio <= 2 for ratio in made.details["dropped"]["ratios"].values())
    assert near == len(made.details["dropped"]["ratios"]) == 10


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study's trial, with what it needs of T7's record, made up."""
    folder = tmp_path_factory.mktemp("alpha")
    arms = {"rcad": {"candidates": [{"alpha": 0.1}, {"alpha": 1.0}]}}
    tuning = {"synthetic": {"rcad": {"chosen": [0, 1, 1]}}}
    Study("T7", "made up", settings={"arms": arms}, details={"tuning": tuning}).write(folder / "uci.json")
    assert study.main([*TRIAL, str(folder), "--uci", str(folder / "uci.json")]) == 0
    return folder


def test_the_page_is_made_from_the_record_which_is_not_computed_again(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "numbers mean nothing" in (out / "alpha.md").read_text()
    details = Study.read(out / "alpha.json").details
    assert details["digits"]["suggested"]["alpha"] == pytest.approx(details["digits"]["alphas"][1], rel=0.05)
    for grid in (*details["moons"], details["digits"]):
        means = np.asarray(grid["grid"]).mean(1)
        assert (grid["best_alpha"], grid["best"]) == (grid["alphas"][means.argmax()], pytest.approx(means.max()))
    monkeypatch.setattr(study, "run", lambda *arguments: pytest.fail("computed again"))
    words = [*TRIAL, str(out), "--uci", str(out / "uci.json")]
    assert study.main(words) == 0
    made = json.loads((out / "alpha.json").read_text())
    (out / "alpha.json").write_text(json.dumps({**made, "scale": "full"}))
    assert study.main(words) == 2
    assert capsys.readouterr().err.count("expected") == 1


RECORD: dict[str, Any] = json.loads((ROOT / "results/defaults/defaults.json").read_text(encoding="utf-8"))


def test_the_page_is_made_from_the_record() -> None:
    assert (ROOT / "results/defaults/defaults.md").read_text(encoding="utf-8") == pages.page(RECORD)
    # lam is the one that held-out examples chose.
    assert float(RECORD["chosen"]) == WEIGHT
    assert min(RECORD["ranks"], key=RECORD["ranks"].get) == RECORD["chosen"]


LOOPS: dict[str, dict[str, Any]] = RECORD["loops"]
WORSE = ["digits; CNN, BatchNorm; Adam", "digits; CNN, GroupNorm; Adam"]


def test_where_the_default_and_another_reward_are_worse_than_erm() -> None:
    """By the rule of `rcad compare`: what the page says in words."""

    def worse(found: dict[tuple[str, str], Any]) -> set[tuple[str, str]]:
        return {side for side, one in found.items() if one.outcome == "worse"}

    in_nll, beside = {(name, "nll") for name in WORSE}, {("CIFAR-100; CNN, BatchNorm; SGD", "accuracy")}
    assert worse(pages.judged(LOOPS["test"], "RCAD", "ERM")) == in_nll
    assert worse(pages.judged(LOOPS["test"], "uniform", "ERM")) == in_nll | beside
    moons = {"nll": ("0.1, 2, 1000", "0.1, 10, 1000"), "accuracy": ("0.1, 625, 100", "0.1, 1000, 100")}
    assert worse(pages.judged(RECORD["moons"])) == {(name, metric) for metric in moons for name in moons[metric]}
    for name in moons["nll"]:
        assert np.mean(RECORD["moons"][name]["0"]["accuracy"]) > 99.6
    for name in WORSE:
        assert pages.overconfidence(LOOPS["test"][name]["ERM"]) < -3


def test_the_pages_say_by_how_much_the_loop_is_worse() -> None:
    texts = [" ".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8").split()) for name in ("concepts", "faq")]
    for name in WORSE:
        cells = LOOPS["test"][name]
        assert all(pages.shown(cells["RCAD"], cells["ERM"])[1:] in text for text in texts)
        assert pages.shown(cells["uniform"], cells["ERM"])[1:] in texts[0]
    assert pages.shown(LOOPS["test"][WORSE[0]]["uniform"], LOOPS["test"][WORSE[0]]["ERM"])[1:] in texts[1]
    cells = LOOPS["held"][WORSE[0]]
    assert pages.shown(cells["1, 0.1"], cells["ERM"])[1:] in texts[0]
    assert all(pages.shown(cells["1, 0.02"], cells["ERM"])[1:] in text for text in texts)


@pytest.mark.parametrize("kind", loops.NETWORKS)
def test_networks_side_by_side_are_those_apart(kind: str) -> None:
    torch.manual_seed(0)
    both = loops.Networks(kind, 8, seeds=2).double()
    x = torch.rand(2, 6, 1, 8, 8, dtype=torch.float64)
    together = both(x.flatten(0, 1)).unflatten(0, (2, 6))
    for k in range(2):
        one = loops.Networks(kind, 8).double()
        own = {name: value.chunk(2)[k] if value.ndim else value for name, value in both.state_dict().items()}
        one.load_state_dict(own)
        torch.testing.assert_close(together[k], one(x[k]))


def test_the_loop_of_the_study_trains() -> None:
    splits = [loops.digits(test=False, seed=seed) for seed in range(2)]
    found = loops.train(splits, kind="CNN", optimizer="Adam", seed=0, make=loops.at(1.0, 0.1), epochs=10, batch=25)
    assert all(len(values) == 2 for values in found.values())
    assert min(found["accuracy"]) > 30
    shared = set(map(bytes, splits[0].x.numpy())) & set(map(bytes, loops.digits(test=True, seed=0).judge_x.numpy()))
    assert not shared  # test images are in no training set that a choice has seen
