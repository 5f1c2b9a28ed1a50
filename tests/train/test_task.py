"""Data and method meet: which examples a run gets, and that a run which must diverge is refused, stacked or not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rcad import compose, methods
from rcad.data.registry import load
from rcad.data.table_encoder import TableEncoder
from rcad.errors import InputError
from rcad.loss.method_rows import method_rows
from rcad.loss.methods import Method
from rcad.paper.uci import synthetic
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.stacked.train import Examples, StackedProblem, train_configs, train_stacked
from rcad.train.task import method_of, prepare

CAP = r"expected a cap on the Gaussian's entropy, or lam < 0.9, but got cap=None and lam=.*gaussian\(cap=0.0\)"
OPTIM = OptimConfig(lr=0.01)


def config(*rows: object) -> RunConfig:
    return RunConfig(
        data=DataConfig(name="synthetic", validation=0.0),
        model=ModelConfig(name="mlp", hidden=(4,)),
        method=method_rows(rows),
        optim=OPTIM,
        train=TrainConfig(epochs=1, batch_size=16, selection="last"),
    )


UNCAPPED = ("gaussian", (("cap", None),))


@pytest.mark.parametrize(
    "row",
    [
        ("rcad", (("alpha", 0.3), ("lam", 0.9))),
        ("rcad_random", (("alpha", 0.3), ("lam", 2.0))),
        ("confidence_penalty", (("lam", 0.95),)),
    ],
)
def test_uncapped_and_too_much(row: object) -> None:
    chosen = config(UNCAPPED, row)
    problem = prepare(chosen, synthetic(), torch.device("cpu"))
    with pytest.raises(InputError, match=CAP):
        method_of(chosen, problem)
    with pytest.raises(InputError, match=CAP):
        train_configs([chosen], [problem])
    assert method_of(config(row), problem).likelihood is not None  # the engine's own Gaussian is capped
    assert method_of(config(("gaussian", (("cap", 0.0),)), row), problem).name


def test_the_stacked_trainer_wants_to_be_told() -> None:
    def train(*chosen: Method, may_diverge: bool = False) -> None:
        x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
        optim = replace(OPTIM, lr=0.001)
        sizes: Any = {"epochs": 1, "batch_size": 6, "hidden": (4,), "seeds": range(len(chosen))}
        train_stacked(
            StackedProblem(Examples(x, x.sum(1)), 0), list(chosen), optim=optim, may_diverge=may_diverge, **sizes
        )

    uncapped = methods.gaussian(cap=None)
    wild, tame = (compose(uncapped, methods.rcad(alpha=0.3, lam=lam)) for lam in (1.2, 0.89))
    with pytest.raises(InputError, match=CAP):
        train(tame, wild)
    train(tame, wild, may_diverge=True)
    train(tame)
    with pytest.raises(InputError, match=r"cap=None and lam=0.9:"):  # two terms are paid for together
        train(compose(uncapped, methods.rcad(alpha=0.3, lam=0.5), methods.confidence_penalty(lam=0.4)))


def test_the_examples_go_by_the_run_s_seed_unless_data_have_their_own() -> None:
    pytest.importorskip("sklearn")
    dataset = load("digits")
    plain = replace(config(("erm", ())), data=DataConfig(name="digits[:60]", validation=0.2))

    def found(seed: int, of_data: int | None) -> str:
        chosen = replace(plain, seed=seed, data=replace(plain.data, seed=of_data))
        return prepare(chosen, dataset, torch.device("cpu")).fingerprint

    assert found(0, None) != found(1, None)
    assert found(0, 7) == found(1, 7) == found(7, None)
    assert found(0, 0) == found(0, None) != found(0, 7)


def test_a_run_on_a_table_keeps_how_it_was_encoded(tmp_path: Path) -> None:
    rows = "\n".join(f"{'red' if i % 3 else 'blue'},{i},{i / 7}" for i in range(20))
    (tmp_path / "t.csv").write_text(f"colour,a,y\n{rows}")
    dataset = load(tmp_path / "t.csv", target="y")
    kept = prepare(config(("erm", ())), dataset, torch.device("cpu")).preprocessing["encoder"]
    assert TableEncoder.from_dict(json.loads(json.dumps(kept))) == dataset.encoder
