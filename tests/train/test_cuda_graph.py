"""Captured steps. What does not need a GPU is the arithmetic of where an epoch stands; it runs everywhere."""

import copy
import logging
import os
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from rcad import RCAD
from rcad.models import build
from rcad.train import cuda_graph as captured
from rcad.train.checkpoint import restore_trainer, save_trainer
from rcad.train.cuda_graph import Captured, Twin
from rcad.train.machine import deterministic, keep_kernels, side_stream, timed
from rcad.train.step import Plan
from tiny_runs import KINDS, ROUNDED, ROUNDED_LOSS, config, distance, trainer

CUDA = torch.device("cuda")
ALL = {**KINDS, "resnet": config("rcad", channels_last=True, model="resnet18")}


@pytest.mark.parametrize("settings", list(ALL.values())[:-1], ids=list(ALL)[:-1])
def test_the_step_in_tensors_is_the_step(settings, monkeypatch):
    monkeypatch.setattr(captured, "WARM_UP", 10**9)  # never captures, so it needs no GPU
    plain, tensors = trainer(settings), trainer(settings, engine="graph")
    assert isinstance(tensors.stepper, Captured)
    assert plain.fit() == tensors.fit() == "done"
    assert distance(tensors, plain) < 1e-5  # the optimizer's fused kernel rounds in another order
    for one, other in zip(plain.rows, tensors.rows, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert one["lr"] == other["lr"]


@pytest.mark.parametrize(
    ("method", "twice"), [("rcad", False), ("adversarial_two_views", False), ("rcad + confidence_penalty", True)]
)
def test_a_pass_back_twice_is_not_compiled(method, twice, caplog):
    stepper = trainer(config(method), engine="compile").stepper
    assert stepper.name == ("graph" if twice else "graph, compiled")
    assert (stepper._compiled is stepper._twin.model) == twice
    assert len([r for r in caplog.records if "is not compiled" in r.message]) == twice


def test_steps_are_kept_apart_by_size_and_by_the_terms_that_rest():
    resting, steady = (trainer(config(method, accumulate=2), engine="graph").stepper for method in ("every3", "rcad"))
    kinds = [resting._kind(Plan(0, 0, (16, size), number)) for size, number in ((16, 0), (16, 1), (16, 6), (4, 6))]
    assert kinds[:2] == [((16, 16), (True, False)), ((16, 16), (False, False))]
    assert kinds[2] == kinds[0] != kinds[3]
    assert steady._kind(Plan(0, 0, (16,), 5)) == steady._kind(Plan(0, 0, (16,), 6))


def test_tied_frozen_and_unused_weights():
    torch.manual_seed(0)
    one, frozen, two = (nn.Linear(4, 4) for _ in range(3))
    two.weight, one.unused = one.weight, nn.Linear(4, 4)
    plain = nn.Sequential(one, nn.Tanh(), frozen.requires_grad_(False), nn.Tanh(), two)
    ours = copy.deepcopy(plain)
    twin = Twin(ours, torch.float64)
    assert twin.model[0].weight is twin.model[4].weight
    x = torch.randn(5, 4)
    twin.forget()
    for _ in range(2):
        plain(x).square().sum().backward()
        twin.model(x.double()).square().sum().backward()
        twin.gather()
    twin.deliver()
    grads = [[parameter.grad for parameter in model.parameters()] for model in (ours, plain)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("wanted", [True, False])
def test_algorithms(wanted, device, monkeypatch):
    def now():
        return torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark

    before, switched = now(), []
    switch = torch.use_deterministic_algorithms
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda on: (switched.append(on), switch(on)))
    with deterministic(wanted, torch.device(device)):
        assert now() == (wanted, not wanted and device == "cuda")
    assert now() == before
    assert switched == [True, False] * wanted  # torch loads its compiler for it, a second at the start of every run


def test_start_up_is_timed_where_asked_for_and_kernels_are_kept_unless_said_otherwise(monkeypatch, caplog, tmp_path):
    for asked in ("", "1"):
        monkeypatch.setattr(os, "environ", {"RCAD_TIMES": asked, "TRITON_CACHE_DIR": "mine"})
        with timed("capture", "rcad, 5 joined", torch.device("cpu")):
            assert not caplog.messages
    assert [message.startswith("times: capture 0.00 s, ") for message in caplog.messages] == [True]
    keep_kernels(tmp_path)
    assert os.environ["TRITON_CACHE_DIR"] == "mine"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "kernels" / "inductor")


@pytest.mark.gpu
@pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
def test_capture_changes_nothing(settings, monkeypatch):
    """The same step with and without capture, bit for bit; that it is the eager one is tested above, everywhere."""
    with deterministic(True, CUDA), side_stream(CUDA):
        plain, graph = trainer(settings, CUDA, "graph"), trainer(settings, CUDA, "graph")
        monkeypatch.setattr(plain.stepper, "_capture", lambda *args: None)
        assert plain.fit() == graph.fit() == "done"
    assert graph.stepper.name == "graph"
    assert len(graph.stepper._graphs) >= 1 + (settings.method[0][0] != "me_ada")  # the smaller last batch has its own
    assert distance(graph, plain) == 0.0
    assert [row["loss"] for row in plain.rows] == [row["loss"] for row in graph.rows]


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["graph", "compile"])
def test_bf16_over_fifty_steps(engine):
    """bf16 rounds, and convolutions sum in any order: a repeated eager run says how far apart equals may be."""
    torch._dynamo.reset()
    settings = config("rcad", model="resnet18", precision="bf16", channels_last=True, epochs=10)
    with deterministic(False, CUDA), side_stream(CUDA):
        runs = [trainer(settings, CUDA, name) for name in ("eager", "eager", engine)]
        assert {run.fit() for run in runs} == {"done"}
    spread, apart = distance(runs[1], runs[0]), distance(runs[2], runs[0])
    print(f"\n{engine}: {apart:.2e} from eager; eager from itself {spread:.2e}")
    assert runs[2].stepper.name.startswith("graph")
    assert max(spread, apart) < ROUNDED
    assert runs[2].rows[-1]["loss"] == pytest.approx(runs[0].rows[-1]["loss"], rel=ROUNDED_LOSS)


@pytest.mark.gpu
@pytest.mark.parametrize("pauses", [1, 7, 20])
def test_a_paused_graph_goes_on(pauses, tmp_path):
    settings = config("data_augmentation + rcad", epochs=5)
    with deterministic(True, CUDA), side_stream(CUDA):
        straight, paused = trainer(settings, CUDA, "graph"), trainer(settings, CUDA, "graph")
        assert straight.fit() == "done"
        count = 0

        def pause():
            nonlocal count
            count += 1
            return count == pauses

        assert paused.fit(pause) == "interrupted"
        save_trainer(paused, tmp_path / "c.safetensors")
        resumed = trainer(settings, CUDA, "graph")
        restore_trainer(resumed, tmp_path / "c.safetensors")
        assert resumed.fit() == "done"
    assert distance(resumed, straight) < 1e-5


@pytest.mark.gpu
def test_what_cannot_be_captured_is_eager(monkeypatch, caplog):
    """A model that reads a number from the device cannot be part of a graph."""
    settings = config("data_augmentation + rcad_random")
    with deterministic(True, CUDA), side_stream(CUDA), caplog.at_level(logging.WARNING, "rcad"):
        plain, stubborn = trainer(settings, CUDA), trainer(settings, CUDA, "graph")
        forward = stubborn.model.forward

        def reading(x):
            output: Tensor = forward(x)
            return output + 0.0 * output.sum().item()

        monkeypatch.setattr(stubborn.model, "forward", reading)
        assert plain.fit() == stubborn.fit() == "done"
    assert stubborn.stepper.name == "eager"
    assert len([r for r in caplog.records if "cannot be captured" in r.message]) == 2  # one for each kind of step
    assert distance(stubborn, plain) < 2e-4
    assert torch.rand(2, device=CUDA).ne(0).all()  # the generator that layers draw from is free again as well


@pytest.mark.gpu
def test_the_fused_step_takes_hardly_more_memory_than_erm():
    peaks = []
    for method in ("erm", "rcad"):
        settings = config(method, model="resnet18", precision="bf16", channels_last=True, epochs=1, batch_size=64)
        settings = replace(settings, model=replace(settings.model, width=64))
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        trainer(settings, CUDA).fit()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    print(f"\npeak memory of fused RCAD over ERM: {peaks[1] / peaks[0]:.3f}")
    assert peaks[1] < 1.15 * peaks[0]


@pytest.mark.gpu
def test_the_bf16_twin_is_autocast():
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)).cuda()
    y = torch.tensor([0, 1, 2, 3, 0, 1]).cuda()
    torch.manual_seed(0)
    plain = build("resnet18", num_outputs=4, in_shape=(3, 8, 8), width=4).cuda()
    ours = copy.deepcopy(plain)
    twin = Twin(ours, torch.bfloat16)
    twin.forget()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        RCAD(0.5, 0.3).backward(plain, x, y)
        RCAD(0.5, 0.3).backward(twin.model, x, y, after_pass=twin.gather)
    twin.deliver()
    flat = [torch.cat([p.grad.flatten() for p in model.parameters()]) for model in (plain, ours)]
    assert torch.cosine_similarity(flat[0], flat[1], dim=0) > 0.999
    torch.testing.assert_close(flat[0].norm(), flat[1].norm(), rtol=1e-2, atol=0)
