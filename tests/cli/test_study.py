"""`rcad compare` and `rcad tune`: from own data to a report that claims no more than the test does."""

import re
import shlex
from pathlib import Path

import pytest

import rcad
from cli.conftest import Cli, Refused
from forked import interrupted
from made import files, saved, table
from rcad.runs.files import unsealed, write_sealed
from rcad.runs.store import Store
from rcad.study import backends

pytestmark = pytest.mark.usefixtures("undrawn")

OUT = Path("rcad-compare")
MADE_FROM = "expected all that erm in rcad-compare/compare.json was made from, but "
COMPARE = ("compare", "--data", "my.csv", "--target", "price", "--epochs", 3, "--budget", 2, "--seeds", 3)


@pytest.fixture(autouse=True)
def _data() -> None:
    files(my_dot_csv=table())


def test_a_table_with_categories_and_the_same_command_again(
    done: Cli, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = done(*COMPARE)
    record = saved(OUT / "compare.json")
    assert list(record["methods"]) == ["erm", "rcad", "rcad_random", "confidence_penalty"]
    assert record["metrics"] == ["nll", "rmse"]
    assert all(cell["runs"] == 6 for cell in record["methods"].values())
    assert record["test_ratio"] == pytest.approx(12 / 48)
    assert record["sentences"][0] in result.out
    assert "<h1>Does it help on my.csv?</h1>" in (OUT / "index.html").read_text()
    assert record["sentences"][0] in (OUT / "compare.md").read_text()
    assert not Path("runs").exists()  # tables are trained side by side, in memory
    monkeypatch.setattr("rcad.study.backends.train_configs", lambda *args, **options: pytest.fail("trained"))
    assert done(*COMPARE).err.count("there already") == 4
    assert saved(OUT / "compare.json") == record
    for words, says in (
        (("--seeds", 2), "expected seeds [0, 1, 2] as in rcad-compare/compare.json"),
        (("--budget", 3), "expected budget 2"),
        (("--epochs", 2), "expected epochs 3"),
        (("--metric", "rmse"), "expected metric nll"),
        (("--methods", "erm,adversarial_training", "--no-controls"), "rcad is not among them"),
        (("--target", "colour"), "expected target price as in rcad-compare/compare.json, but got colour"),
        (("--drop", "colour"), "expected no drop as in rcad-compare/compare.json, but got ['colour']; pass another"),
        (("--target", "colour", "--metric", "rmse"), "expected --metric to be one of"),  # options come first
        (("--model", "mlp"), "expected no --model as in rcad-compare/compare.json, but got mlp; pass another --out"),
        (("--lr", 0.1), "expected no optim.lr as in rcad-compare/compare.json, but got 0.1; pass another --out"),
        (
            ("--set", "model.hidden=[8, 8]"),
            "expected no model.hidden as in rcad-compare/compare.json, but got [8, 8]; ",
        ),
        (("--set", "data.validation=0", "--set", "train.selection=last"), "but got data.validation=0; leave it out"),
    ):
        refused(*COMPARE, *words, says=says)
    files(my_dot_csv=table().replace("1", "2", 1))
    refused(*COMPARE, says=f"{MADE_FROM}the data my.csv changed since; pass another --out to keep both")
    files(site__index_dot_html="mine")
    refused(*COMPARE, "--out", "site", says="site/index.html is something else")


def test_splits_are_added_in_place(done: Cli, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*COMPARE[:-2], "--epochs", 1, "--methods", "rcad", "--no-controls")
    assert "raised" not in done(*words, "--seeds", "1,2").out
    first = saved(OUT / "compare.json")
    line = first["next"]["command"]
    assert line.endswith("--seeds 10 --budget 2 --no-controls --out rcad-compare")
    plan = done(*words, "--seeds", 4, "--dry-run", "--json").json()
    assert [(one["runs"], one["left"]) for one in plan["methods"]] == [(8, 4), (8, 4)]
    configs = []
    trained = backends.train_configs
    monkeypatch.setattr(backends, "train_configs", lambda c, *a, **o: configs.extend(c) or trained(c, *a, **o))

    def stop(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    # Where it is stopped on the way, what was looked at is remembered.
    with monkeypatch.context() as patched:
        patched.setattr("rcad.study.compare.judged", stop)
        with pytest.raises(KeyboardInterrupt):
            rcad.compare("my.csv", "rcad", target="price", epochs=1, budget=2, seeds=4, controls=False, out=OUT)
    assert {config.seed for config in configs} == {0, 3}
    configs.clear()
    told = "raised after a look at the results, from 2 to 4: such a test finds"
    for _ in range(2):
        result = done(*words, "--seeds", 4)
        assert told in result.out
        assert told in (OUT / "compare.md").read_text()
        assert "erm: 8 runs, there already" in result.err
    record = saved(OUT / "compare.json")
    assert (configs, record["looked"], record["seeds"]) == ([], [2], [0, 1, 2, 3])
    whole = done(*words, "--seeds", 4, "--out", "whole", "--json").json()
    assert "looked" not in whole
    assert (record["differences"], record["results"]) == (whole["differences"], whole["results"])
    cells = ((one["methods"]["rcad"][key] for key in ("key", "runs", "passes", "seeds")) for one in (record, whole))
    assert len({str(list(one)) for one in cells}) == 1
    for seeds in ("3", "0,1,2,4"):
        refused(*words, "--seeds", seeds, says="expected seeds [0, 1, 2, 3] as in rcad-compare/compare.json")
    files(my_dot_csv=table().replace("1", "2", 1))
    refused(*words, "--seeds", 5, says=f"{MADE_FROM}the data my.csv changed since; pass")


def test_a_dry_run_says_what_would_be_trained(done: Cli, refused: Refused) -> None:
    words = ("compare", "--data", "digits[:60]", "--methods", "rcad", "--no-controls", "--seeds", "3,5", "--epochs", 1)
    plan = done(*words, "--dry-run", "--json").json()
    assert {(method["name"], method["runs"], method["left"]) for method in plan["methods"]} == {
        ("erm", 2, 2),
        ("rcad", 2, 2),
    }
    assert plan["methods"][1]["seconds"] == pytest.approx(2 * plan["methods"][0]["seconds"])
    assert not OUT.exists()
    done(*words, "--seeds", "3,", "--runs", "kept", "--out", "one")
    shown = done(*words, "--runs", "kept", "--dry-run").out
    assert "2 splits (seeds 3, 5)\nquestion: is rcad better than ERM by nll?\none run: SmallCNN, " in shown
    assert re.search("\n1 candidate on each split, 2 runs left, about .* one after the other, without eval", shown)
    table = done(*COMPARE, "--dry-run").out
    assert "optim.weight_decay, alpha, lam" in table
    assert "they train side by side" in table
    done(*COMPARE)
    assert done(*COMPARE, "--dry-run").out.endswith("\n2 candidates on each split, 0 runs left\n")
    refused(*COMPARE, "--lr", 0.1, "--dry-run", says="expected no optim.lr")
    refused(
        *words, "--set", "train.precision=bf16", "--device", "cpu", "--out", "o", "--dry-run", says="expected a GPU"
    )


def test_the_question_is_fixed_before_the_runs(done: Cli, refused: Refused) -> None:
    """It may be about any method, which takes part by being named; in one folder it stays what it was."""
    words = (*COMPARE, "--methods", "rcad", "--no-controls")
    asked = (*words, "--question", "adversarial_training")
    record = done(*asked, "--json").json()
    assert list(record["methods"]) == ["erm", "rcad", "adversarial_training"]
    assert [record["question"][key] for key in ("method", "against")] == ["adversarial_training", "erm"]
    assert record["sentences"][0].startswith("NLL: adversarial_training ")
    assert "is adversarial_training better than ERM by NLL?" in (OUT / "compare.md").read_text()
    rivals = {(gap["method"], gap["metric"]) for gap in record["differences"] if gap["against"] == "rcad"}
    assert rivals == {("adversarial_training", "nll"), ("adversarial_training", "rmse")}
    again = done(*shlex.split(record["command"])[1:], "--dry-run").out
    assert "\nquestion: is adversarial_training better than ERM by nll?\n" in again
    assert again.endswith(" 0 runs left\n")
    says = "expected --question adversarial_training as in rcad-compare/compare.json, but got rcad; pass another --out"
    refused(*words, "--methods", "rcad,adversarial_training", says=says)
    refused(*words, "--question", "erm", "--out", "o", says="expected --question to be one of rcad, but got 'erm'")
    # Without RCAD the first of the methods is asked about.
    plan = done(*COMPARE, "--methods", "me_ada,adversarial_training", "--out", "o", "--dry-run", "--json").json()
    assert plan["question"] == {"method": "me_ada", "against": "erm", "metric": "nll"}


def test_the_options_of_training_are_those_of_train(cli: Cli) -> None:
    words = ("--no-controls", "--epochs", 1, "--budget", 1, "--lr", 0.002, "--batch-size", 16)
    record = cli(*COMPARE, *words, "--json").json()
    assert "--set train.batch_size=16 --set optim.lr=0.002" in record["command"]
    assert "nothing.safetensors" in cli(*COMPARE, "--out", "other", "--weights", "nothing.safetensors").err


def test_what_has_changed_beside_the_settings_is_named(done: Cli, refused: Refused) -> None:
    done("train", *COMPARE[1:7], "--method", "erm", "--seeds", 2)
    first, second = (next(Path("runs", run).glob("*.safetensors")) for run in Store.open("runs").ids())
    Path("start.safetensors").write_bytes(first.read_bytes())
    words = (*COMPARE, "--no-controls", "--budget", 1, "--weights", "start.safetensors")
    done(*words)
    Path("start.safetensors").write_bytes(second.read_bytes())
    refused(*words, says=f"{MADE_FROM}the weights start.safetensors changed since; pass")
    files(my_dot_csv=table().replace("1", "2", 1))
    refused(*words, says=f"{MADE_FROM}the data my.csv and the weights start.safetensors changed since; pass")
    record = unsealed(saved(OUT / "compare.json"))
    for cell in record["methods"].values():
        del cell["made_from"]  # as before they were told apart
    write_sealed(OUT / "compare.json", record)
    refused(*words, says=f"{MADE_FROM}its data, weights, code or version of rcad changed since; pass")


def test_few_rows_to_choose_by_are_told(cli: Cli) -> None:
    words = (*COMPARE, "--target", "colour", "--no-controls", "--epochs", 1)
    result = cli(*words, "--json")  # 5 of 60 rows are held out; each split chooses for itself
    (line,) = result.err.splitlines()
    assert line.startswith("rcad: on each split hyperparameters are chosen by 5 validation examples, so few that small")
    record = result.json()
    assert list(record["methods"]) == ["erm", "label_smoothing", "rcad"]
    assert record["metrics"] == ["nll", "accuracy", "brier"]
    assert "--no-controls" in record["command"]
    assert all(record["held_out"]["told"] in (OUT / name).read_text() for name in ("index.html", "compare.md"))
    assert cli(*words, "--budget", 1, "--out", "one", "--json").err == ""


def test_the_first_line_answers_the_question_and_says_what_to_do(done: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = done(*COMPARE, "--metric", "rmse")
    lines = result.out.splitlines()
    assert "elapsed" in result.err
    assert lines[0].startswith("RMSE: rcad ")
    assert lines[lines.index("") + 1].startswith("Next. ")
    (command,) = (line for line in lines if line.startswith("  rcad "))
    assert command.startswith("  rcad compare ")  # three epochs were too few
    assert max(len(line) for line in lines if line != command) <= 80
    # The question's own row keeps what the first line does not say.
    row = lines.index("The question, judged alone.")
    assert lines[row - 3].startswith("method ")
    assert {"effect d", "seeds needed"} <= set(re.split("  +", lines[row - 3]))
    assert lines[row - 1].startswith("rcad ")
    assert row < next(k for k, line in enumerate(lines) if line.startswith("Against ERM."))
    done(*shlex.split(command)[1:], "--quiet")


def test_short_training_is_said_with_the_epochs_to_take(done: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    files(my_dot_csv=table(76))
    words = ("--data", "my.csv", "--target", "colour", "--set", "train.epochs=30", "--lr", 0.002)
    told = "still falling in the last epoch, after fewer than 500 steps: train longer, --epochs 500."
    record = done("compare", *words, "--budget", 2, "--seeds", 3, "--no-controls", "--json").json()
    assert record["sentences"][1].startswith("ERM is undertrained, so the verdict is about short training. ")
    assert told in record["sentences"][1]
    quiet = done("compare", *words, "--budget", 2, "--seeds", 3, "--no-controls", "--quiet").out
    assert quiet.splitlines() == record["sentences"][:2]
    line = record["next"]["command"]
    assert record["next"]["why"] == "Train longer, ERM is undertrained"
    assert line.endswith("--set optim.lr=0.002 --metric nll --seeds 3 --budget 2 --no-controls --epochs 500 --out "
                         "rcad-compare-epochs-500")  # fmt: skip
    longer = done(*shlex.split(line)[1:], "--json").json()
    assert "undertrained" not in str(longer["sentences"])
    assert longer["next"]["why"].endswith(" (no networks are kept for tables)")
    assert longer["next"]["command"].startswith("rcad train ")
    tuned = done("tune", *words, "--method", "erm", "--budget", 1).out
    assert told in tuned
    assert "Next. Tune for longer, or train it as it is:" in tuned
    assert told in done("train", *words, "--method", "erm", "--seeds", 2).out
    assert told not in done("train", *words, "--method", "erm", "--epochs", 500, "--set", "train.epochs=500").out


def test_images_go_through_the_store(done: Cli) -> None:
    words = ("--methods", "rcad", "--no-controls", "--seeds", 3, "--epochs", 1)
    result = done("compare", "--data", "digits[:60]", *words)
    models = [line for line in result.err.splitlines() if " parameters; " in line]
    assert [words in line for line, words in zip(models, ("; erm;", "; rcad(alpha="), strict=True)] == [True, True]
    runs, record = Store.open(OUT / "runs").records(), saved(OUT / "compare.json")
    assert (len(runs), record["budget"]) == (6, 1)
    shown = {v for r in record["results"].values() for v in r["accuracy"]["values"].values()}
    assert shown == {run.metrics["test_accuracy"] for run in runs}
    # What a run took is in its record, also where it had been trained before.
    took = sum(run.timings["train_seconds"] or 0.0 for run in runs)
    assert sum(cell["seconds"] for cell in record["methods"].values()) == pytest.approx(took)
    assert "test_accuracy" not in result.out  # no run's test number is shown on the way
    assert {name: cell["passes"] for name, cell in record["methods"].items()} == {"erm": 3.0, "rcad": 6.0}
    assert "s of time" not in result.err + (OUT / "compare.md").read_text()
    # The command to run next takes the runs that are there.
    command = record["next"]["command"]
    assert command.endswith("--runs rcad-compare/runs --out rcad-compare-budget-8")
    assert done(*shlex.split(command.replace("--budget 8", "--budget 2"))[1:]).err.count("done already") == 6


def test_a_recipe_that_holds_nothing_out_is_compared_all_the_same(done: Cli, refused: Refused) -> None:
    digits = ("--data", "digits[:60]", "--recipe", "few-labels", "--epochs", 1, "--model", "small_cnn")
    told = "10% of the training examples are held out here, to choose by; rcad train --recipe few-labels holds out none"
    for words in (("compare", "--methods", "rcad", "--seeds", 3), ("tune", "--method", "rcad", "--budget", 1)):
        shown = " ".join(done(*words, *digits, "--dry-run").out.split())
        assert ("54 train, 6 validation" in shown, told in shown) == (True, True)
        more = ("--set", "data.validation=0.2")
        shown = " ".join(done(*words, *digits, *more, "--dry-run").out.split())
        assert ("48 train, 12 validation" in shown, "held out here" in shown) == (True, False)
        for zero in (("--set", "data.validation=0"), ("--set", "data.validation=0.0")):
            says = "expected examples held out for validation, by which compare and tune choose, but got data."
            refused(*words, *digits, *zero, says=says)
    result = done("tune", "--method", "rcad", "--budget", 1, *digits)
    assert told in result.err
    assert "--recipe few-labels" in result.out


def test_a_search_shows_the_weight_decay_of_each_run(done: Cli) -> None:
    words = ("--methods", "rcad", "--no-controls", "--seeds", 1, "--epochs", 1, "--budget", 2)
    lines = done("compare", "--data", "digits[:60]", *words).err.splitlines()
    assert sum(line.startswith("digits: 1x8x8 images") for line in lines) == 1  # of two methods
    trials = saved(OUT / "compare.json")["methods"]["erm"]["seeds"]["0"]["trials"]
    decays = [f"{trial['values']['optim.weight_decay']:g}" for trial in trials]
    told = [line.split("  ")[0] for line in lines if line.startswith("done: erm")]
    assert told == [f"done: erm on digits[:60], seed 0, weight decay {decay}" for decay in decays]


def test_the_exit_code_is_1_where_a_tested_run_diverged(cli: Cli) -> None:
    result = cli(*COMPARE, "--no-controls", "--lr", 1e20, "--budget", 1)
    assert "diverged" in result.out
    assert result.code == 1
    assert "Untuned: each method was trained once on each split with its defaults; --budget 8 tunes" in result.out
    assert "Next. Every run of erm diverged; lower --lr:\n" in result.out
    (line,) = (line for line in result.out.splitlines() if line.strip().startswith("rcad compare"))
    assert ("--lr 1e+19 --out rcad-compare-lr-1e+19" in line, "optim.lr" in line) == (True, False)


def test_ctrl_c_keeps_what_is_done(cli: Cli) -> None:
    words = (*COMPARE, "--epochs", 150, "--methods", "rcad,me_ada")
    found = interrupted(*words, when=(OUT / "compare.json").exists)
    assert found.code == 130, found.err
    assert "run the same command to continue" in found.err
    kept = saved(OUT / "compare.json")["methods"]
    assert 1 <= len(kept) < 5
    assert "expected no optim.lr as in rcad-compare/compare.json" in cli(*words, "--lr", 0.1).err
    assert cli(*words).err.count("there already") == len(kept)


TUNE = ("tune", "--data", "my.csv", "--target", "colour", "--method", "rcad", "--epochs", 2)
TUNED = "rcad-tune/rcad.json"


def test_a_search_from_end_to_end(done: Cli) -> None:
    result = done(*TUNE, "--budget", 4, "--seeds", 2)
    found = saved(TUNED)
    assert [one["number"] for one in found["trials"]] == [1, 2, 3, 4]
    assert all(len(one["runs"]) == 2 for one in found["trials"])
    scores = [one["metrics"]["nll"] for one in found["trials"]]
    assert found["best"] == scores.index(min(scores)) + 1
    line = "rcad tune --data my.csv --method rcad --target colour --epochs 2 --search random --metric nll --seeds 2"
    assert f"<code>{line} --budget 4 --out rcad-tune</code>" in Path("rcad-tune/rcad.html").read_text()
    assert {one.suffix or one.name for one in Path("rcad-tune").iterdir()} == {".json", ".html", ".png", ".svg", "runs"}
    assert found["command"] in result.out
    assert "test_" not in result.out
    assert "12 test examples" in result.err  # how many there are, not what they could tell
    assert "only " not in result.err
    assert {name for one in found["trials"] for name in one["metrics"]} == {"accuracy", "nll", "brier"}
    assert not any(name in Path("rcad-tune/rcad.json").read_text() for name in ("test_accuracy", "test_nll"))


def test_few_examples_to_choose_by_are_told(cli: Cli) -> None:
    """What the sentence says, tests/study/test_study.py checks."""
    words = (*TUNE, "--epochs", 1, "--budget", 2)
    result = cli(*words, "--seeds", 2, "--metric", "accuracy", "--json")  # 5 of 60 rows are held out
    (line,) = result.err.splitlines()
    assert line.startswith("rcad: the best is chosen by 5 validation examples on each of 2 seeds: an accuracy over")
    assert result.json()["held_out"]["told"] in Path("rcad-tune/rcad.html").read_text()
    assert cli(*words, "--budget", 1, "--out", "one", "--quiet").err == ""  # a single trial chooses nothing


SPACE = ("--space", "optim.lr=log(0.001, 0.1), train.batch_size=int(8, 32)")
# --set method.lam=0.3 is where the search over lam begins, and must not come back in the line.
GIVEN = ("--set", "method.lam=0.3", "--set", "method.norm=linf", "--space", "lam=choice(0.1, 0.2)", "--search", "grid")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--seeds", 2, "--set", "train.batch_size=16"), "--seeds 0,1"),
        (("--target", "price", "--method", "erm", "--epochs", 1, *SPACE), "--set optim.lr="),
        (GIVEN, "linf"),
    ],
    ids=["several seeds", "fields", "a parameter that was set"],
)
def test_the_line_it_prints_trains_the_best(words: tuple[object, ...], part: str, cli: Cli) -> None:
    found = cli(*TUNE, "--budget", 2, *words, "--json").json()
    assert part in found["command"]
    runs = found["trials"][found["best"] - 1]["runs"]
    again = cli(*shlex.split(found["command"])[1:], "--json")
    assert [one["id"] for one in again.json()] == runs
    assert len(Store.open("runs").ids()) == len(runs)  # trials are kept apart from what the user trains


def test_ctrl_c_keeps_the_trials_that_are_done(cli: Cli) -> None:
    words = (*TUNE, "--epochs", 10, "--budget", 200)
    found = interrupted(*words, when=lambda: len(list(Path("rcad-tune/runs").glob("*/record.json"))) >= 3)
    assert found.code == 130, found.err
    assert "of 200 trials; run the same command to continue" in found.err
    trials = len(saved(TUNED)["trials"])
    assert 1 <= trials < 200
    assert "not finished" in Path("rcad-tune/rcad.html").read_text()
    assert cli(*words, "--budget", trials + 1).err.count("done already") == trials
    assert len(saved(TUNED)["trials"]) == trials + 1


def test_grid_and_optuna(done: Cli) -> None:
    done(*TUNE, "--search", "grid", "--budget", 5, "--out", "g", "--quiet")
    assert len(saved("g/rcad.json")["trials"]) == 4
    pytest.importorskip("optuna")
    done(*TUNE, "--search", "optuna", "--budget", 3, "--out", "o", "--quiet")
    first = saved("o/rcad.json")
    done(*TUNE, "--search", "optuna", "--budget", 3, "--out", "o", "--quiet")
    assert saved("o/rcad.json") == first


def test_every_trial_diverged(cli: Cli) -> None:
    result = cli(*TUNE, "--budget", 2, "--set", "optim.lr=1e30", "--quiet")
    assert result.code == 1
    assert "Every trial diverged" in result.out
    assert saved(TUNED)["best"] is None


def test_another_search_is_not_overwritten(done: Cli, refused: Refused) -> None:
    done(*TUNE, "--budget", 1, "--quiet")
    refused(*TUNE, "--budget", 1, "--seeds", 2, says="expected seeds [0] as in rcad-tune/rcad.json, but got [0, 1]; ")
    refused(*TUNE, "--budget", 1, "--lr", 0.5, says="expected optim.lr 0.001 as in rcad-tune/rcad.json, but got 0.5; ")
    refused(*TUNE, "--metric", "brier", says="expected metric nll as in rcad-tune/rcad.json, but got brier; ")
    refused(*TUNE, "--metric", "rmse", says="expected --metric to be one of nll, accuracy, brier, but got 'rmse'")


def test_a_dry_run_shows_the_trials(done: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*TUNE, "--budget", 3, "--seeds", "4,", "--dry-run")
    plan = done(*words, "--json").json()
    assert (plan["metric"], plan["sizes"], plan["left"]) == ("nll", {"train": 43, "validation": 5}, 3)
    assert plan["seconds"] > 0
    assert not Path("rcad-tune").exists()
    record = done(*words[:-1], "--json").json()
    assert [trial["values"] for trial in record["trials"]] == plan["trials"]
    assert record["made_by"].endswith("--metric nll --seeds 4, --budget 3 --out rcad-tune")
    monkeypatch.setenv("COLUMNS", "80")
    shown = done(*words, "--budget", 5).out
    assert "examples\njudged by the validation split's nll; the test split is not read\none run: MLP, " in shown
    assert shown.splitlines()[-2].startswith("5 trials on 1 seed, 2 runs left, about ")
    assert max(map(len, shown.splitlines())) <= 80
    monkeypatch.setattr("rcad.study.tune.check_packages", lambda *more: None)
    shown = done(*words, "--search", "optuna", "--out", "o").out
    assert re.search("\n +1 +0.01 .*\n +2 +\\.\\.\\. .*\n\n3 trials on 1 seed, 3 runs left", shown)
