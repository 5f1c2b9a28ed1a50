"""BatchNorm, addition and ReLU in our kernels against torch's layers in float64.

The kernels need a GPU; with TRITON_INTERPRET=1 and triton installed they run on a CPU as well, slowly.
"""

import copy
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from rcad.kernels import bn_relu as module
from rcad.kernels.bn_relu import _Grid, activated, forked, normalised, own_kernels, use_in
from rcad.models import joined
from rcad.models.build import build
from rcad.models.joined import Joined

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def in_kernels(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test inside which they are used, on whatever device can."""
    test = pytest.mark.usefixtures("kernels")(test)
    return test if INTERPRETED else pytest.mark.gpu(test)


SHAPES = [(4, 8, 3, 3), (5, 70, 2, 2), (2, 130, 9, 9), (3, 64, 1, 1), (40, 64, 6, 6)]
KINDS = [(True, True), (False, True), (False, False)]


def in_rows(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def in_order(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """They are wanted; float64 layers, with which they are compared, are torch's all the same."""
    if not GPU:
        monkeypatch.setattr(module, "_in_rows", in_rows)
    with own_kernels():
        yield


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are chosen as on a GPU, though triton may be missing; they are not run."""
    monkeypatch.setitem(sys.modules, "rcad.kernels.bn_relu_triton", module)
    monkeypatch.setattr(module, "_in_rows", in_rows)


Values = Sequence[Tensor | None]


def check_close(found: Values, expected: Values, rtol: float = 1e-4, atol: float = 1e-4) -> None:
    torch.testing.assert_close([*found], [*expected], rtol=rtol, atol=atol, check_dtype=False)


@pytest.fixture
def meetings(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each backward whether two gradients met in it."""
    from rcad.kernels import bn_relu_triton as norm_kernels

    sums, seen = norm_kernels.sums, list[bool]()

    class Watched:
        def __getitem__(self, programs: tuple[int, int]) -> Callable[..., None]:
            return lambda *args, **kinds: (seen.append(kinds["MEET"]), sums[programs](*args, **kinds))[1]

    monkeypatch.setattr(norm_kernels, "sums", Watched())
    return seen


def layer(channels: int, dtype: torch.dtype = torch.float32) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.2)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in (norm.weight, norm.bias, norm.running_mean):
            value.copy_(torch.randn(channels, generator=draw))
    return norm.to(DEVICE, dtype)


def drawn(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32, mean: float = 3.0) -> Tensor:
    """The same in every dtype; with a mean that is larger than the spread."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + mean
    return in_order(values.half().to(DEVICE, dtype))


def passed(
    norm: nn.BatchNorm2d, shape: tuple[int, ...], *, adds: bool, active: bool, dtype: torch.dtype = torch.float32
) -> list[Tensor | None]:
    """Output, gradients of x, of what is added and of the parameters; then the layer's buffers."""
    x, residual = drawn(shape, 2, dtype).requires_grad_(), drawn(shape, 3, dtype).requires_grad_()
    y = activated(norm, x, residual if adds else None) if active else normalised(norm, x)
    y.backward(drawn(shape, 4, dtype, mean=0.0))
    return [y.detach(), x.grad, residual.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()]


# Several blocks in a share, several steps over the shares, and more blocks than programs, in a small tensor.
DIVIDED = {"BLOCK_M": 16, "BLOCK_C": 16, "BLOCK_S": 2, "PROGRAMS": (15, 15)}


@in_kernels
@pytest.mark.parametrize(("adds", "active"), KINDS)
@pytest.mark.parametrize(
    ("shape", "dtype", "blocks"),
    [
        *((shape, torch.float32, {}) for shape in SHAPES),
        ((6, 40, 6, 6), torch.float32, DIVIDED),
        (SHAPES[0], torch.float16, {}),  # what comes out alone is rounded
    ],
)
def test_they_are_batch_norm(shape, dtype, blocks, adds, active, monkeypatch):
    for name, value in blocks.items():
        monkeypatch.setattr(module, name, value)
    assert not blocks or _Grid.of(torch.empty(shape, device="meta")) == (216, 40, 5, 3)
    ours, exact = layer(shape[1]), layer(shape[1], torch.float64)
    assert module._suits(ours, drawn(shape, 0, dtype), None)
    found = passed(ours, shape, adds=adds, active=active, dtype=dtype)
    expected = passed(exact, shape, adds=adds, active=active, dtype=torch.float64)
    assert {one.dtype for one in found[:3] if one is not None} == {dtype}
    check_close(found[:3], expected[:3], rtol=1e-4 if dtype == torch.float32 else 1e-3)
    check_close(found[3:], expected[3:])


@in_kernels
@pytest.mark.parametrize("first", [0.0, 1.0])
def test_a_large_mean_does_not_swallow_the_spread(first):
    """Nor does a first value that lies apart from the others."""
    x = drawn((8, 8, 9, 9), 2) / 10 + 1000
    x[0, :, 0, 0] += first
    x[:, 3] = 1000
    ours, exact = layer(8), layer(8, torch.float64)
    ours.momentum = exact.momentum = 1.0
    y = normalised(ours, x)
    torch.testing.assert_close(y.double(), exact(x.double()), rtol=1e-2, atol=5e-2)
    if not GPU:  # whose divisions are not exact
        assert (y[:, 3] == ours.bias[3]).all()
    torch.testing.assert_close(ours.running_mean.double(), exact.running_mean, rtol=3e-6, atol=0.0)
    torch.testing.assert_close(ours.running_var.double(), exact.running_var, rtol=1e-3, atol=1e-6)


@in_kernels
@pytest.mark.parametrize("counted", [True, False])
def test_averages_that_keep_nothing_are_the_batchs_own(counted):
    """With a momentum of one nothing is left of the old average. Batches may be counted elsewhere, for all layers."""
    ours, exact = layer(8), layer(8, torch.float64)
    ours.momentum = exact.momentum = 1.0
    if not counted:
        ours._buffers["num_batches_tracked"] = exact._buffers["num_batches_tracked"] = None
    x = (drawn(SHAPES[0], 2) - 3) * 1e-4
    normalised(ours, x)
    exact(x.double())
    check_close([*ours.buffers()], [*exact.buffers()], atol=1e-10)


@in_kernels
def test_averages_that_rest_are_left_alone():
    norm, moving = layer(8), layer(8)
    before = [*copy.deepcopy(norm).buffers()]
    norm.track_running_stats = False
    found, moved = (passed(one, SHAPES[0], adds=True, active=True) for one in (norm, moving))
    check_close([*norm.buffers()], before, rtol=0, atol=0)
    check_close(found[:5], moved[:5], rtol=0, atol=0)
    assert moving.num_batches_tracked == 1


@in_kernels
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("lost", [torch.nan, torch.inf])
def test_what_is_not_a_number_shows(lost, adds):
    """A ReLU that took it for zero would hide that a run diverges; and it stays in its channel."""
    norm, x, residual = layer(40), drawn((4, 40, 3, 3), 2), drawn((4, 40, 3, 3), 3)
    x[1, 33, 0, 0] = lost
    x.requires_grad_()
    y = activated(norm, x, residual if adds else None)
    y.sum().backward()
    hit = torch.arange(40, device=DEVICE) == 33
    for found in (y, x.grad):
        assert torch.equal(found.isnan().any(3).any(2).any(0), hit)
    for found in (norm.weight.grad, norm.running_mean):
        assert torch.equal(~found.isfinite(), hit)
    assert norm.bias.grad[33] == 4 * 3 * 3  # torch's ReLU as well lets gradients pass where there is no number


@in_kernels
def test_what_is_added_is_not_a_number():
    norm, x, residual = layer(8), drawn(SHAPES[0], 2), drawn(SHAPES[0], 3)
    residual[1, 3, 0, 0] = torch.nan
    residual.requires_grad_()
    y = activated(norm, x, residual)
    assert torch.equal(y.isnan(), residual.isnan())
    y.backward(torch.full_like(y, 7))
    assert torch.equal(residual.grad, torch.where(y <= 0, 0.0, 7.0))


@in_kernels
def test_a_gradient_in_another_order_and_a_second_backward():
    norm, x, dy = layer(8), drawn(SHAPES[0], 2).requires_grad_(), drawn(SHAPES[0], 4)
    y = activated(norm, x)
    (first,) = torch.autograd.grad(y, x, dy, retain_graph=True)
    (again,) = torch.autograd.grad(y, x, dy.contiguous(), retain_graph=True)
    assert torch.equal(first, again)


@in_kernels
@pytest.mark.parametrize("adds", [True, False])
def test_saved_tensors_may_come_back_in_another_order(adds):
    """As `torch.autograd.graph.save_on_cpu` with pinned memory brings them back."""

    def grads():
        return passed(layer(8), SHAPES[0], adds=adds, active=True)[1:5]

    plain = grads()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.contiguous(), lambda x: x):
        check_close(grads(), plain, rtol=0, atol=0)


@in_kernels
@pytest.mark.parametrize("adds", [True, False])
def test_of_the_output_a_bit_is_kept_at_most(adds):
    """Where nothing was added, what the ReLU let through is found again from x."""
    kept: list[Tensor] = []
    norm, x = layer(40), drawn((4, 40, 3, 3), 2).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x), x)[1], lambda x: x):
        y = activated(norm, x, x if adds else None)
    assert y.data_ptr() not in [value.data_ptr() for value in kept]
    words = [value for value in kept if value.dtype == torch.int32]
    assert [tuple(value.shape) for value in words] == [(4 * 3 * 3, 2)] * adds
    for value in words:
        bits = (value[:, :, None] >> torch.arange(32, device=DEVICE)) & 1
        through = (y > 0).permute(0, 2, 3, 1).reshape(-1, 40)
        assert torch.equal(bits.flatten(1)[:, :40] == 1, through)


@in_kernels
@pytest.mark.parametrize(("adds", "active"), KINDS)
@pytest.mark.parametrize("uses", ["both", "first", "second"])
def test_gradients_meet_in_the_kernels(adds, active, uses, meetings):
    shape = (6, 40, 6, 6)

    def grads(norm, dtype):
        x, residual = drawn(shape, 2, dtype).requires_grad_(), drawn(shape, 3, dtype).requires_grad_()
        one, other = forked(activated(norm, x, residual if adds else None) if active else normalised(norm, x))
        loss = one.new_zeros(())
        if uses != "second":
            loss = loss + (one * drawn(shape, 4, dtype, mean=0.0)).sum()
        if uses != "first":
            loss = loss + other.square().sum()
        loss.backward()
        return [x.grad, residual.grad, norm.weight.grad, norm.bias.grad]

    found = grads(layer(40), torch.float32)
    assert meetings == [uses == "both"]
    check_close(found, grads(layer(40, torch.float64), torch.float64), atol=2e-3)


@in_kernels
@pytest.mark.parametrize("how", ["asked for", "kept", "told before", "told after"])
def test_a_forked_output_that_somebody_sees_has_its_whole_gradient(how):
    def gradient(dtype):
        told: list[Tensor] = []
        y = activated(layer(8, dtype), drawn(SHAPES[0], 2, dtype).requires_grad_())
        if how == "told before":
            y.register_hook(told.append)
        one, other = forked(y)
        loss = one.sum() + other.square().sum()
        if how == "asked for":
            return torch.autograd.grad(loss, y)[0]
        if how == "told after":
            y.register_hook(told.append)
        elif how == "kept":
            y.retain_grad()
        held = None if how == "told before" else y
        del y
        loss.backward()
        return held.grad if how == "kept" else told[0]

    torch.testing.assert_close(gradient(torch.float32).double(), gradient(torch.float64), rtol=1e-4, atol=1e-4)


@in_kernels
def test_two_forks_of_one_output_and_two_backwards(meetings):
    """One of the forks meets in the kernels; the gradients of the other are added as usual."""
    x, norm = drawn(SHAPES[0], 2).requires_grad_(), layer(8)

    def fourfold():
        y = activated(norm, x)
        ways = (*forked(y), *forked(y))
        return torch.stack([k * way.sum() for k, way in enumerate(ways, start=1)]).sum()

    (expected,) = torch.autograd.grad(relu(norm(x)).sum() * 10, x)
    loss = fourfold()
    for _ in range(2):
        (found,) = torch.autograd.grad(loss, x, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert meetings == [True, True]


@in_kernels
def test_a_gradient_that_has_met_is_not_met_again():
    x, norm = drawn(SHAPES[0], 2).requires_grad_(), layer(8)
    (expected,) = torch.autograd.grad(relu(norm(x)).square().sum(), x)
    one, other = forked(activated(norm, x))
    torch.autograd.grad(one.square().sum() + other.sum(), x, retain_graph=True)
    (found,) = torch.autograd.grad(one.square().sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@in_kernels
def test_what_a_broken_backward_left_is_not_added():
    x = drawn(SHAPES[0], 2).requires_grad_()
    y = activated(layer(8), x)
    one, other = forked(y)
    maker = y.grad_fn
    del y
    loss = one.square().sum() + other.sum()
    (expected,) = torch.autograd.grad(loss, x, retain_graph=True)
    maker.second = drawn(SHAPES[0], 4)  # type: ignore[attr-defined]
    (found,) = torch.autograd.grad(one.square().sum(), x, retain_graph=True)
    (again,) = torch.autograd.grad(loss, x)
    assert torch.equal(again, expected)
    (alone,) = torch.autograd.grad(activated(layer(8), x).square().sum(), x)
    assert torch.equal(found, alone)


class Lost(torch.autograd.Function):
    """Lets no gradient through, not even a zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> None:
        return None


@in_kernels
def test_no_gradient_is_none():
    x = drawn(SHAPES[0], 2).requires_grad_()
    (Lost.apply(activated(layer(8), x, x)) + 1).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is None


@in_kernels
def test_a_fork_is_the_same_memory_and_comes_once():
    y = activated(layer(8), drawn(SHAPES[0], 2).requires_grad_())
    one, other = forked(y)
    assert one is not other
    assert one.data_ptr() == other.data_ptr() == y.data_ptr()
    assert forked(y) == (y, y)
    changed = activated(layer(8), drawn(SHAPES[0], 2).requires_grad_())
    changed.mul_(2)  # our kernels made what it was before
    assert forked(changed) == (changed, changed)


@in_kernels
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_no_gradients_are_added_between_blocks(name, meetings):
    """Every block's input is forked; the backward of what made it takes both gradients."""
    network = build(name, num_outputs=3, in_shape=(3, 8, 8), width=4).to(DEVICE).to(memory_format=torch.channels_last)
    y = network(drawn((2, 3, 8, 8), 2))
    seen, entered = [y.grad_fn], Counter[Any]()
    for node in seen:
        for edge in node.next_functions:
            if edge[0] is not None:
                entered[edge] += 1
                if edge[0] not in seen:
                    seen.append(edge[0])
    assert set(entered.values()) == {1}
    y.sum().backward()
    assert sum(meetings) == sum(
        len(stage) for stage in (network.layer1, network.layer2, network.layer3, network.layer4)
    )


@in_kernels
def test_statistics_are_kept_in_float32_whatever_the_default():
    x, norm = drawn(SHAPES[0], 2).requires_grad_(), layer(8)
    (expected,) = torch.autograd.grad(activated(norm, x).square().sum(), x)
    torch.set_default_dtype(torch.float16)
    try:
        (found,) = torch.autograd.grad(activated(norm, x).square().sum(), x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


@in_kernels
def test_parameters_and_inputs_may_be_constants():
    norm, x, residual = layer(8).requires_grad_(False), drawn(SHAPES[0], 2), drawn(SHAPES[0], 3).requires_grad_()
    activated(norm, x, residual).sum().backward()
    assert not activated(norm, x).requires_grad
    with torch.no_grad():
        assert not activated(norm, x, residual).requires_grad
    assert residual.grad is not None
    assert x.grad is None
    assert norm.weight.grad is None


@in_kernels
def test_gradients_of_gradients_are_refused():
    x = drawn(SHAPES[0], 2).requires_grad_()
    one, other = forked(activated(layer(8), x))
    for loss in (activated(layer(8), x).square().sum(), one.sum() + other.square().sum()):
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            gradient.sum().backward()


@in_kernels
def test_joined_networks_are_normalised_each_by_itself(monkeypatch):
    """Their layers have the channels of all, and a count of batches for each."""
    monkeypatch.setattr(joined, "NARROWEST", 1)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    apply, seen = module.BatchNormFunction.apply, []
    monkeypatch.setattr(
        module.BatchNormFunction, "apply", lambda *args: (seen.append(args[0].shape[1]), apply(*args))[1]
    )
    singles = []
    for seed in range(2):
        torch.manual_seed(seed)
        single: Any = build("small_cnn", num_outputs=3, in_shape=(3, 8, 8), norm="batch", width=4).to(DEVICE)
        singles.append(single.to(memory_format=torch.channels_last))
    views = copy.deepcopy(singles)
    network = Joined(views)
    x = torch.rand(10, 3, 8, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    y = network(x)
    y.square().sum().backward()
    assert seen == [8, 16, 16]
    grads = dict(network.network.named_parameters())
    for i, (single, view) in enumerate(zip(singles, views, strict=True)):
        mine = single.double()(x[i::2].double())
        mine.square().sum().backward()
        torch.testing.assert_close(y[i::2].double(), mine, rtol=1e-3, atol=1e-3)
        for name, buffer in single.named_buffers():
            torch.testing.assert_close(view.get_buffer(name).double(), buffer.double(), rtol=1e-3, atol=1e-3)
        assert view.get_buffer("bn1.num_batches_tracked") == 1
        for name, parameter in single.named_parameters():
            if name.startswith("bn"):
                part = grads[name].grad.chunk(2)[i]
                torch.testing.assert_close(part.double(), parameter.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("adds", "active"), KINDS)
def test_bf16_is_as_close_as_torchs(adds, active):
    """Each against float64; ours rounds once, torch after each part."""
    shape, half = (32, 64, 16, 16), torch.bfloat16
    exact = passed(layer(64, torch.float64), shape, adds=adds, active=active, dtype=torch.float64)
    theirs = passed(layer(64), shape, adds=adds, active=active, dtype=half)
    with own_kernels():
        ours = passed(layer(64), shape, adds=adds, active=active, dtype=half)
    for one, other, true in zip(ours[:5], theirs[:5], exact[:5], strict=True):
        if true is not None:
            assert (one - true).norm() <= 1.1 * (other - true).norm() + 1e-4 * true.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "wrn16_8", "small_cnn"])
def test_networks_with_and_without(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    options: dict[str, Any] = {"norm": "batch", "width": 16}
    if name.startswith("wrn"):
        options["dropout"] = 0.0
    torch.manual_seed(0)
    plain = build(name, num_outputs=10, in_shape=(3, 32, 32), **options).cuda().double()
    plain = plain.to(memory_format=torch.channels_last)
    ours = copy.deepcopy(plain).float()
    x = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0)).cuda()
    with own_kernels():
        output = ours(x.contiguous(memory_format=torch.channels_last))
    expected = plain(x.double())
    assert (output - expected).norm() < 1e-3 * expected.norm()
    output.square().mean().backward()
    expected.square().mean().backward()
    flat = [torch.cat([p.grad.double().flatten() for p in net.parameters()]) for net in (ours, plain)]  # type: ignore[union-attr]
    assert torch.cosine_similarity(flat[0], flat[1], dim=0) > 0.999
    check_close([*ours.buffers()], [*plain.buffers()], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("adds", "active"), KINDS)
def test_elsewhere_they_are_torchs_layers(adds, active):
    norm = layer(8)
    other = copy.deepcopy(norm)
    found = passed(norm, SHAPES[0], adds=adds, active=active)
    x, residual = drawn(SHAPES[0], 2), drawn(SHAPES[0], 3)
    y = other(x) + residual if adds else other(x)
    assert torch.equal(found[0], relu(y) if active else y)  # type: ignore[arg-type]


def changed(**own: nn.Parameter | None) -> nn.BatchNorm2d:
    (norm := layer(8))._parameters.update(own)
    return norm


BATCHES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor | None]]] = {
    "another order": lambda x: (x.contiguous(), None),
    "another order of what is added": lambda x: (x, x.contiguous()),
    "another dtype of what is added": lambda x: (x, x.double()),
    "an addition that would widen": lambda x: (x, x[:1]),  # there is nothing there to read
    "one value a channel": lambda x: (x[:1, :, :1, :1], None),  # torch's layer has words for it
    "nothing": lambda x: (x[:0], None),
    "double precision": lambda x: (x.double(), None),
}
OTHER_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "no BatchNorm": lambda: nn.GroupNorm(2, 8),
    "its descendant": lambda: nn.SyncBatchNorm(8),
    "no parameters": lambda: nn.BatchNorm2d(8, affine=False),
    "no averages": lambda: nn.BatchNorm2d(8, track_running_stats=False),
    "averages over all": lambda: nn.BatchNorm2d(8, momentum=None),
    "other channels": lambda: layer(4),
    "evaluation": lambda: layer(8).eval(),
    "float64": lambda: layer(8, torch.float64),
    "float16": lambda: layer(8, torch.float16),
    "with gaps": lambda: changed(weight=nn.Parameter(torch.ones(16, device=DEVICE)[::2])),
    "no biases": lambda: changed(bias=None),  # newer torch can make it so
    "elsewhere": lambda: nn.BatchNorm2d(8, device="meta"),
}


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("name", ["suited", *BATCHES, *OTHER_LAYERS])
def test_what_they_suit(name, monkeypatch):
    rows, norm = drawn((4, 8, 3, 3), 0), OTHER_LAYERS.get(name, lambda: layer(8))()
    x, residual = BATCHES.get(name, lambda x: (x, x))(rows)
    with suppress(KeyError), own_kernels():
        raise KeyError
    assert not module._suits(layer(8), rows, None), "they must be asked for"
    with own_kernels():
        assert module._suits(norm.to("meta" if name == "elsewhere" else DEVICE), x, residual) == (name == "suited")
        assert all(module._suits(layer(8), rows.to(dtype), rows.to(dtype)) for dtype in (torch.float16, torch.bfloat16))
        monkeypatch.setitem(sys.modules, "rcad.kernels.bn_relu_triton", None)  # what an import that fails leaves
        assert not module._suits(layer(8), rows, None)


@pytest.mark.parametrize("hook", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
@pytest.mark.usefixtures("chosen")
def test_hooks_are_heard(hook):
    norm, x, seen = layer(8), drawn((4, 8, 3, 3), 0).requires_grad_(), []
    getattr(norm, f"register_{hook}_hook")(lambda *args: seen.append(args))
    with own_kernels():
        activated(norm, x).sum().backward()
    assert len(seen) == 1


@pytest.mark.usefixtures("chosen")
def test_compiled_passes_have_the_compilers_kernels(monkeypatch):
    monkeypatch.setattr(module, "BatchNormFunction", None)
    norm, x = layer(8), drawn((4, 8, 3, 3), 0)
    expected = relu(copy.deepcopy(norm)(x) + x)
    compiled = torch.compile(lambda x: activated(norm, x, x), backend="eager", fullgraph=True)
    with own_kernels():
        torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("shape", [*SHAPES, (32, 2560, 4, 4), (512, 64, 32, 32), (1, 1, 1, 2)])
def test_every_program_has_something_to_do(shape):
    grid = _Grid.of(torch.empty(shape, device="meta"))
    assert grid.rows * grid.channels == torch.Size(shape).numel()
    assert grid.columns * module.BLOCK_C >= grid.channels > (grid.columns - 1) * module.BLOCK_C
    assert 1 <= grid.shares <= -(-grid.rows // module.BLOCK_M)
    assert grid.shares <= max(1, module.PROGRAMS[1] // grid.columns)
    assert module.BLOCK_C <= 32  # bits in a word


@pytest.mark.usefixtures("chosen")
def test_a_model_written_elsewhere_can_use_them(monkeypatch):
    net, seen = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.BatchNorm2d(8)), []
    plain = copy.deepcopy(net)
    use_in(net)
    monkeypatch.setattr(module, "_applied", lambda norm, x, *rest, **kinds: (seen.append(norm), x)[1])
    x = torch.rand(4, 8, 3, 3).contiguous(memory_format=torch.channels_last)
    assert torch.equal(net(x), plain(x))
    assert seen == []
    with own_kernels():
        net(x)
    assert seen == [net[0], net[2]]


@in_kernels
def test_a_model_written_elsewhere_gives_the_same_with_them():
    net = nn.Sequential(nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.BatchNorm2d(64)).to(DEVICE)
    exact = copy.deepcopy(net).double()
    use_in(net)
    x = torch.rand(40, 64, 6, 6, device=DEVICE).contiguous(memory_format=torch.channels_last)
    found, expected = net(x), exact(x.double())
    check_close([found], [expected])
    for y in (found, expected):
        (y**3).sum().backward()
    check_close([p.grad for p in net.parameters()], [p.grad for p in exact.parameters()], rtol=1e-3, atol=1e-2)
    check_close([*net.buffers()], [*exact.buffers()], atol=1e-5)
