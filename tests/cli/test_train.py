"""`rcad train`: what it prints, keeps and returns; and --track, the same for every command that trains."""

import os
import re
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from cli.conftest import Cli, Refused, contents
from forked import interrupted
from made import files, table
from rcad.models.build import build
from rcad.runs import locks
from rcad.runs.plain import from_toml
from rcad.runs.store import Store
from rcad.train.trackers import TRACKERS, Tracked

pytestmark = pytest.mark.usefixtures("undrawn")

SMALL = ("train", "--data", "digits[:100]", "--epochs", "2")
CSV = ("train", "--data", "my.csv", "--target", "colour")


def test_files_that_changed_are_not_done_already(done: Cli, cli: Cli) -> None:
    """The run's name comes from the command: other rows under the same name must not get the old numbers."""
    files(my_dot_csv=table())
    words = (*CSV, "--method", "erm", "--epochs", "2", "--seeds", "2")
    done(*words)
    before, ids = contents(), [record.id for record in Store.open("runs").records()]
    few = "\n".join(["length,width,colour,price", *(f"1.5,{i},{colour},2.5" for i, colour in enumerate("aabcde"))])
    for text, says in (
        (table(70), "my.csv has changed since; use another folder of runs, or remove the runs: rcad runs prune "),
        (table().replace("colour", "color"), "or cannot be read: expected target to be a column"),
        (few, "my.csv has changed since or cannot be read: expected every class to keep"),
    ):
        files(my_dot_csv=text)
        changed, dry = cli(*words), cli(*words, "--dry-run")
        assert (changed.code, dry.code, dry.err) == (2, 2, changed.err)
        assert changed.err.startswith("rcad: expected the data that 2 runs were made from")
        assert says in changed.err
        assert changed.err.endswith(f"rcad runs prune {' '.join(ids)} --yes\n")
    Path("my.csv").unlink()  # a result stays good when its data are no longer there
    assert done(*words).out.count("done already") == 2
    assert {**contents(), "my.csv": before["my.csv"]} == before


def test_seeds_end_in_a_table_with_mean_and_spread(cli: Cli) -> None:
    lines = cli(*SMALL, "--method", "erm", "--seeds", "3,5").out.splitlines()
    _, head, _, first, second, _, mean, _, *end = lines[lines.index("") :]
    assert head.split() == ["seed", "test_accuracy", "test_nll", "test_ece", "time", "run"]
    assert [line.split()[0] for line in (first, second, mean)] == ["3", "5", "mean"]
    assert mean.count("±") == 3
    assert end[2].endswith("still falling in the last epoch, after fewer than 500 steps: train longer, --epochs 340.")
    run = first.split()[-1]
    assert end[-1] == f"  rcad predict runs/{run} --data NEW"
    one = cli(*SMALL, "--method", "erm", "--seed", "3").out
    assert one.endswith(f"\nin runs/{run}\n\n{end[2]}\n\nNext. Predict new examples:\n{end[-1]}\n")
    several = "2 of 2 runs done, mean ± standard deviation  test_accuracy "
    for seeds, start in (("1", "done: erm on digits[:100], seed 0"), ("3,5", several)):  # --quiet prints one line
        quiet = cli(*SMALL, "--method", "erm", "--seeds", seeds, "--quiet")
        assert (quiet.out.count("\n"), quiet.out.startswith(start), quiet.err) == (1, True, "")


@pytest.mark.parametrize(
    ("words", "plan"),
    [("--seeds 3 --devices 9", "; 3 runs split among 3 processes"), ("--devices 2", "; every batch split among 2 pro")],
)
def test_dry_run_says_what_becomes_of_several_devices(done: Cli, words: str, plan: str) -> None:
    shown = done(*SMALL, "--method", "erm", "--device", "cpu", *words.split(), "--dry-run").out
    assert plan in shown.splitlines()[1]


def test_a_dry_run_measures_alpha_on_the_split_of_its_seed(done: Cli) -> None:
    plans = [done(*SMALL, "--method", "rcad", "--seed", seed, "--dry-run").out.splitlines()[1] for seed in ("0", "5")]
    first, other = (plan.partition("rcad(alpha=")[2].partition(",")[0] for plan in plans)
    assert float(first) != float(other)
    done(*SMALL, "--method", "rcad", "--quiet")
    shown = done(*SMALL, "--method", "rcad", "--seeds", "3", "--dry-run").out
    assert shown.splitlines()[1] == "# done already"
    assert (shown.count("done already"), shown.count("rcad(alpha=")) == (1, 1)


def test_smoothed_rcad_says_its_direction_and_old_files_keep_theirs(cli: Cli) -> None:
    """A file without it was written when the smoothed loss was the default: read as then, and said so."""

    def dry(*words: str) -> tuple[str, str]:
        """The config and the note; how long it would take is left out."""
        result = cli(*words, "--dry-run")
        return re.sub(r"# .* parameters; .*\n", "", result.out), result.err

    method = "label_smoothing + rcad(alpha=0.5, lam=0.02)"
    new = dry(*SMALL, "--method", method)
    assert (dict(from_toml(new[0]).method)["rcad"], new[1]) == ((("direction", "plain"),), "")
    files(new_dot_toml=new[0], old_dot_toml=new[0].replace('direction = "plain"\n', ""))
    old, note = dry("train", "--config", "old.toml")
    assert dict(from_toml(old).method)["rcad"] == ()
    assert note.startswith("note: old.toml says nothing of rcad.direction, which is read as 'training'")
    assert dry("train", "--config", "new.toml")[0] == new[0]
    assert dry("train", "--config", "old.toml", "--set", "method.direction=plain")[0] == new[0]
    assert dry("train", "--config", "old.toml", "--method", method) == new


def test_options_and_settings_win_over_the_file(cli: Cli) -> None:
    files(part_dot_toml='recipe = "small"\n[train]\nepochs = 9\nbatch_size = 16\n[optim]\nlr = 0.5\n')
    words = ("train", "--config", "part.toml", "--data", "digits", "--method", "erm", "--model", "mlp", "--dry-run")
    config = from_toml(cli(*words, "--epochs", "3", "--set", "optim.lr=0.2", "--size", "8").out)
    assert (config.train.epochs, config.train.batch_size, config.optim.lr) == (3, 16, 0.2)
    assert (config.optim.name, config.model.name, config.data.size) == ("adamw", "mlp", 8)
    config = from_toml(cli(*words, "--recipe", "paper", "--batch-size", "8", "--task", "classification").out)
    assert (config.train.batch_size, config.method[0][0]) == (8, "data_augmentation")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_run_that_goes_on(number: int, code: int) -> None:
    files(my_dot_csv=table())
    words = (*CSV, "--method", "erm", "--epochs", "100000")
    found = interrupted(*words, when=lambda: any(Path("runs").glob("*/log.jsonl")), by=number)
    assert found.code == code, found.err
    assert found.err.startswith("rcad: ")
    assert found.err.count("\n") == 1
    (record,) = Store.open("runs").records()
    assert record.status == "interrupted"


def test_seeds_of_another_process_are_left_to_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE_S", 0.05)
    words, store = (*SMALL, "--method", "erm"), Store.open("runs")
    held = (from_toml(cli(*words, "--seed", seed, "--dry-run").out) for seed in (0, 2))
    with store.lock(next(held)), store.lock(next(held)):
        result = cli(*words, "--seeds", "4", "--json")
        assert [run["seed"] for run in result.json()] == [1, 3]
        assert result.code == 2
        assert result.err.startswith(f"rcad: left seeds 0, 2 to process {os.getpid()} on ")
        assert result.err.endswith("; the same command shows them when they are done\n")
        shown = cli(*words, "--seeds", "4")
        assert (shown.code, shown.out.count("left to process"), shown.out.count("done already")) == (2, 4, 2)
    assert cli(*words, "--seeds", "4", "--quiet").code == 0


@pytest.mark.parametrize("name", ["record.json", "model.safetensors"])
def test_a_damaged_run_is_named_and_repaired_by_the_same_command(name: str, done: Cli, refused: Refused) -> None:
    """That every damage of every file heals, tests/attack says."""
    words = (*SMALL, "--method", "erm", "--quiet")
    done(*words)
    (before,) = Store.open("runs").records()
    path = Path("runs", before.id, name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(*words, says=f"; to make it again: rcad runs verify {before.id} --repair, or add --repair to this ")
    done(*words, "--repair")
    assert path.with_name(f"{name}.aside").read_bytes() == content
    done("runs", "verify")
    (record,) = Store.open("runs").records()
    assert record.metrics == before.metrics
    assert not Path("runs/.again").exists()


def test_a_repair_leaves_a_record_alone_whose_data_have_changed(done: Cli, cli: Cli) -> None:
    files(my_dot_csv=table())
    done(*CSV, "--method", "erm", "--epochs", "1", "--quiet")
    (path,) = Path("runs").glob("*/model.safetensors")
    path.write_bytes(b"junk")
    record = path.with_name("record.json").read_bytes()
    files(my_dot_csv=table(70))
    result = cli("runs", "verify", "--repair")
    assert (result.code, "my.csv has changed since" in result.err) == (2, True)
    assert path.with_name("record.json").read_bytes() == record


def test_a_file_of_weights_that_changed_is_not_done_already(done: Cli, refused: Refused) -> None:
    words = ("--data", "digits[:60]", "--epochs", 1, "--model", "small_cnn", "--weights", "begun.pt", "--quiet")
    train = ("train", *words, "--method", "erm")
    compare = ("compare", *words, "--methods", "label_smoothing", "--seeds", 2)
    for first in (True, False):
        torch.save(build("small_cnn", num_outputs=10, in_shape=(1, 8, 8)).state_dict(), "begun.pt")
        if first:
            done(*train)
            done(*compare)
            assert "done already" in done(*train).out
    refused(*train, says="was begun with, but begun.pt has changed since; use another folder of runs")
    refused(*compare, says="pass another --out")


def test_a_run_that_diverged_stays_so(cli: Cli) -> None:
    words = (*SMALL, "--method", "erm", "--set", "optim.name=sgd", "--lr", "1e30", "--quiet")
    assert "no longer finite in epoch 1; lower --lr (now 1e+30)" in cli(*words).out
    next(Path("runs").glob("*/log.jsonl")).unlink()
    again = cli(*words)
    assert (again.code, again.err) == (1, "")
    assert again.out.startswith("diverged already")


def test_several_runs_under_torchrun_are_refused(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    says = "expected one run under torchrun, but got 3; without it, --devices gives each GPU its own"
    refused("train", "--data", "digits[:60]", "--method", "erm", "--seeds", "3", says=says)


CLOUD = "--data my.csv --target colour --epochs 1 -q --track wandb"
RUNS, TUNE, COMPARE = ("run", [1, 2] * 2), ("tune", [1, 2]), ("compare", [])


@pytest.mark.parametrize(
    ("words", "kind", "steps", "sent"),
    [
        (f"train {CLOUD} --epochs 2 --seeds 2 --method erm", *RUNS, {"test_nll", "record.json"}),
        ("train --data digits[:60] --epochs 2 --seeds 2 --method erm -q --tensorboard", *RUNS, {"test_nll"}),
        (f"tune {CLOUD} --method rcad --budget 2", *TUNE, {"trials", "nll", "rcad.json", "rcad.html"}),
        (f"compare {CLOUD} --seeds 2 --budget 1 --methods rcad", *COMPARE, {"question/mean", "erm/nll", "index.html"}),
        ("paper run T8 --scale smoke --track wandb", "paper", [], {"moons.json", "moons.md"}),
        ("paper run T4 --only n=500 --seeds 1 --scale smoke --track wandb", "paper", [], {"T4.json", "T4.md"}),
    ],
)
def test_every_command_that_trains_is_tracked(
    done: Cli, monkeypatch: pytest.MonkeyPatch, words: str, kind: str, steps: list[int], sent: set[str]
) -> None:
    """What of it, and that nothing is told twice, tests/train/test_trackers.py says."""
    told: dict[str, Mock] = {}
    tracker = Mock(side_effect=lambda subject: told.setdefault(subject.kind, Mock()))
    tracker.address.return_value = ""
    for name in ("wandb", "tensorboard"):
        monkeypatch.setitem(TRACKERS, name, tracker)
    monkeypatch.setattr("rcad.train.trackers.need", lambda *names: type("wandb", (), {"init": None}))
    monkeypatch.setattr(Tracked, "failed", set())
    files(my_dot_csv=table())
    done(*words.split())
    assert [call.args[0] for call in told[kind].log.call_args_list] == steps
    ends = told[kind].finish.call_args_list
    assert [call.args[0] for call in ends] == ["done"] * (2 if kind == "run" else 1)
    _, numbers, every = ends[-1].args
    assert sent <= {*numbers, *(file.name for file in every if file.is_file())}
    if kind == "tune":  # whoever tunes must not see these
        assert not re.search("test_n", str(told["run"].finish.call_args_list))
