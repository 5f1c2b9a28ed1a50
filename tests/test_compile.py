"""torch.compile around the objective, and a compiled model inside the criterion."""

from __future__ import annotations

import shutil

import pytest
import torch

from rcad import RCAD, GradientStep, Objective, Term
from support import assert_same_state, images, norm_net

TERMS = (Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5)))
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
BACKENDS = ["eager", pytest.param("inductor", marks=[needs_compiler, pytest.mark.slow])]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_objective_equals_the_plain_one(backend: str) -> None:
    x, y = images()
    plain, compiled = norm_net(), norm_net()
    objective = torch.compile(Objective(compiled, terms=TERMS), backend=backend)
    for _ in range(2):  # the second call meets the compiled code
        for net in (plain, compiled):
            net.zero_grad()
        expected = Objective(plain, terms=TERMS)(x, y)
        expected.total.backward()
        losses = objective(x, y)
        losses.total.backward()
        torch.testing.assert_close(losses.total, expected.total, rtol=1e-5, atol=1e-6)
        assert_same_state(plain, compiled)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fused", [False, True])
def test_a_compiled_model_in_one_s_own_loop(backend: str, fused: bool) -> None:
    x, y = images()
    plain, compiled = norm_net(), norm_net()
    fast = torch.compile(compiled, backend=backend)
    RCAD(0.5, 0.1)(plain, x, y).backward()
    if fused:
        RCAD(0.5, 0.1).backward(fast, x, y)
    else:
        RCAD(0.5, 0.1)(fast, x, y).backward()
    assert_same_state(plain, compiled)


def test_many_steps_compile_once() -> None:
    net, (x, y) = norm_net(), images()
    counter = torch._dynamo.testing.CompileCounter()
    objective = torch.compile(Objective(net, terms=TERMS), backend=counter)
    objective(x, y).total.backward()
    first = counter.frame_count
    for _ in range(5):
        objective(x, y).total.backward()
    assert counter.frame_count == first
