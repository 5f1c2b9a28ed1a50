"""The captured step in one's own loop. Without a GPU, its books are tested with graphs that are functions."""

import copy
import functools
import inspect
from collections.abc import Callable, Hashable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rcad
from equal import same_parameters
from one_line import refusals
from rcad import RCAD, Criterion, methods
from rcad.models import build
from rcad.train import own_loop
from rcad.train.cuda_graph import WARM_UP
from rcad.train.machine import deterministic
from rcad.train.own_loop import CapturedStep
from small_nets import images, norm_net, smooth_net

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **o: torch.optim.SGD(p, lr=0.125, momentum=0.9, weight_decay=5e-4, nesterov=True, **o),
    "adam": lambda p, **o: torch.optim.Adam(p, lr=2**-9, **o),
    "adamw": lambda p, **o: torch.optim.AdamW(p, lr=2**-9, amsgrad=True, **o),
}
"""Learning rates that float32 holds exactly, as a step on a GPU reads them."""


class Plain:
    """The loop as its owner would write it."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, criterion: Criterion, **means: Any) -> None:
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.clip, self.scaler = means.get("clip"), means.get("scaler")
        self.average, self.decay = means.get("average"), means.get("decay", 0.999)
        self.autocast = means.get("autocast")

    def __call__(self, x: Tensor, y: Tensor) -> rcad.Losses:
        self.optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            losses = self.criterion.backward(self.model, x, y, scaler=self.scaler)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.average is not None:
            with torch.no_grad():
                for kept, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
                    kept.lerp_(now, 1 - self.decay)
                for kept, now in zip(self.average.buffers(), self.model.buffers(), strict=True):
                    kept.copy_(now)
        return losses


def pair(net: nn.Module, optimizer: str = "sgd", device: str = "cpu", **means: Any) -> tuple[Plain, CapturedStep]:
    """The same training twice: plain, and by `capture`. Of its own: criterion, scaled, averaged, made."""
    own: dict[str, Any] = {"criterion": lambda: RCAD(0.5, 0.1), "scaled": False, "averaged": False, "made": {}}
    own |= {name: means.pop(name) for name in own if name in means}
    both: list[Any] = []
    for kind in (Plain, rcad.capture):
        model = copy.deepcopy(net).to(device)
        if own["scaled"]:
            means["scaler"] = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=3)
        if own["averaged"]:
            means |= {"average": copy.deepcopy(model), "decay": 0.75}
        both.append(kind(model, OPTIMIZERS[optimizer](model.parameters(), **own["made"]), own["criterion"](), **means))
    return both[0], both[1]


def same(one: rcad.Losses, other: rcad.Losses) -> None:
    """To the last bit. A step whose scale was too large for fp16 has no number, in both."""
    torch.testing.assert_close(tensors(one), tensors(other), rtol=0.0, atol=0.0, equal_nan=True)


def tensors(losses: Any) -> dict[str, Tensor]:
    return {"total": losses.total, "output": losses.output, **losses.parts}


class Functions(dict[Hashable, Any]):
    """Stands for graphs: what was to be captured is called at each replay."""

    failing = False

    def capture(self, kind: Hashable, take: Callable[[], None], device: torch.device, generators: Any) -> str | None:
        if self.failing:
            return "operation not permitted when stream is capturing"
        inside = inspect.getclosurevars(take).nonlocals
        step, held, place = inside["self"], inside["held"], []

        def replay() -> None:
            with step._form.worn():  # what a graph holds is the optimizer in this form
                take()
            found, held.losses = held.losses, held.losses if not place else place[0]
            for name, tensor in tensors(held.losses).items():
                tensor.copy_(tensors(found)[name])  # its results are always in the same place
            place[:] = [held.losses]

        self[kind] = SimpleNamespace(replay=replay)
        return None


@pytest.fixture
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU passes for a device whose steps can be captured."""
    monkeypatch.setattr(own_loop, "DEVICES", ("cpu",))
    monkeypatch.setattr(own_loop, "Graphs", Functions)


def losses_of(step: CapturedStep, count: int = WARM_UP + 2, size: int = 7) -> list[rcad.Losses]:
    return [step(*images(size, seed=seed)) for seed in range(count)]


@pytest.fixture(params=["eager", "functions", pytest.param("cuda", marks=pytest.mark.gpu)])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """How steps are taken: as in a loop on the CPU, by graphs that are functions, or by graphs."""
    if request.param == "functions":
        request.getfixturevalue("_graphs")
    on_gpu = request.param == "cuda"
    with deterministic(on_gpu, torch.device("cuda" if on_gpu else "cpu")):
        yield request.param


@pytest.mark.parametrize(
    ("optimizer", "means"),
    [
        ("sgd", {}),
        ("adam", {"clip": 0.5}),
        ("adamw", {"averaged": True}),
        ("adam", {"scaled": True}),
        ("sgd", {"scaled": True, "clip": 0.5, "averaged": True, "autocast": torch.float16}),
        ("sgd", {"criterion": lambda: RCAD(0.5, 0.1, every=2)}),
        ("sgd", {"criterion": lambda: methods.rcad_released(jitter=0.0).criterion()}),
        ("sgd", {"criterion": lambda: methods.erm().criterion()}),
    ],
)
def test_it_is_the_plain_loop_bit_for_bit(mode, optimizer, means):
    """Some batches are smaller, the rate falls, the model is evaluated, and checkpoints are loaded."""
    device = "cuda" if mode == "cuda" else "cpu"
    if mode != "cuda":
        means = {**means, "autocast": None}
    plain, step = pair(norm_net(dropout=0.1), optimizer, device=device, made={"fused": mode != "eager"}, **means)
    if mode == "functions":
        step.optimizer = OPTIMIZERS[optimizer](step.model.parameters())  # as most people make it
        step.__post_init__()
    loops = (plain, step)
    start = [copy.deepcopy(loop.model.state_dict()) for loop in loops]
    captured, taken = [], []
    for number in range(28):
        x, y = images(3 if number % 4 == 3 else 7, seed=number)
        for loop, state in zip(loops, start, strict=True):
            loop.optimizer.param_groups[0]["lr"] *= 0.5 if number == 6 else 1.0
            if number == 14:
                loop.model.load_state_dict(state)
            if number == 16:
                loop.optimizer.load_state_dict(copy.deepcopy(loop.optimizer.state_dict()))
        torch.manual_seed(number)
        expected = plain(x.to(device), y.to(device))
        torch.manual_seed(number)
        taken.append((step(x.pin_memory() if mode == "cuda" and number % 2 else x.to(device), y), expected))
        captured.append(step.captured)
        if number % 8 == 0:
            for loop in loops:
                loop.model.eval()
                loop.model(x.to(device))
                loop.model.train()
    for found, expected in taken:  # losses outlive the steps after theirs
        same(found, expected)
    assert step.reason is None
    assert sum(captured) > 8 if mode != "eager" else not any(captured)
    if mode == "functions" and "criterion" not in means:
        # Two steps of a kind come first, again after the optimizer's state; the smaller batch is a kind of its own.
        assert [number for number, was in enumerate(captured) if not was] == [0, 1, 3, 7, 16, 17, 19, 23]
    same_parameters(step.model, plain.model)
    settings = step.optimizer.param_groups[0]
    assert settings["lr"] == plain.optimizer.param_groups[0]["lr"]
    assert isinstance(settings["lr"], float)
    assert mode != "functions" or settings["fused"] is None
    assert all(p.grad is None for p in step.model.parameters())
    if plain.average is not None:
        same_parameters(step.average, plain.average)
    if plain.scaler is not None:
        assert step.scaler.state_dict() == plain.scaler.state_dict()


CHANGES: dict[str, Callable[[CapturedStep], object]] = {
    "one layer in eval": lambda step: step.model[1].eval(),  # type: ignore[index]
    "weight decay": lambda step: step.optimizer.param_groups[0].update(weight_decay=0.1),
    "optimizer state": lambda step: step.optimizer.load_state_dict(copy.deepcopy(step.optimizer.state_dict())),
    "weights elsewhere": lambda step: step.model.load_state_dict(copy.deepcopy(step.model.state_dict()), assign=True),
    "frozen": lambda step: step.model[0].requires_grad_(False),  # type: ignore[index]
    "criterion": lambda step: setattr(step.criterion, "loss", RCAD(0.5, 0.2).loss),
    "clip": lambda step: setattr(step, "clip", 0.1),
    "a layer": lambda step: step.model.append(nn.Linear(5, 5)),  # type: ignore[operator]
}


@pytest.mark.usefixtures("_graphs")
@pytest.mark.filterwarnings("ignore")  # that a model in eval mode is trained
@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_noticed(change):
    _, step = pair(norm_net())
    losses_of(step)
    assert step.captured
    CHANGES[change](step)
    noticed = [bool(losses_of(step, 1) and step.captured) for _ in range(WARM_UP + 2)]
    assert noticed[:WARM_UP] == [False] * WARM_UP
    assert noticed[-1]


class Replacing(torch.optim.SGD):
    """Makes its memory anew at every step, as a graph could not."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.param_groups[0]["capturable"] = True

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.param_groups[0]["params"]:
            self.state[p]["mean"] = 0.9 * self.state[p].get("mean", 0.0) + p.grad
            p.sub_(self.param_groups[0]["lr"] * self.state[p]["mean"])


def hooked(parameters: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_post_hook(lambda *args: None)
    return optimizer


fused = functools.partial(torch.optim.SGD, lr=0.125, fused=True)


@pytest.mark.usefixtures("_graphs")
@pytest.mark.parametrize(
    ("optimizer", "why", "words"),
    [
        (torch.optim.Rprop, "", "Rprop is not torch's SGD, Adam or AdamW, and was not made with capturable=True"),
        (hooked, "", "SGD has hooks, which a graph would not call"),
        (Replacing, "", "each step replaces tensors of the model or the optimizer by others"),
        (fused, "refused", "it cannot be captured in a CUDA graph (operation not permitted when stream is capturing)"),
        (fused, "moved", "tensors of the model or the optimizer are replaced by others between the steps"),
        (fused, "rated", f"there are more than {own_loop.MOST} kinds of steps; settings changed again"),
        (fused, "learnt", "the batch is part of a larger graph, which learns from it"),
    ],
)
def test_what_cannot_be_captured_is_taken_eagerly_with_one_line(optimizer, why, words, monkeypatch, caplog):
    monkeypatch.setattr(Functions, "failing", why == "refused")
    loops: list[Any] = []
    for net, kind in ((norm_net(), rcad.capture), (norm_net(), Plain)):
        scaler = torch.amp.GradScaler("cpu", growth_interval=3) if why == "refused" else None
        loops.append(kind(net, optimizer(net.parameters()), RCAD(0.5, 0.1), scaler=scaler))
    for seed in range(own_loop.MOST + 4):
        for parameter in (p for loop in loops if why == "moved" for p in loop.model.parameters()):
            parameter.data = parameter.data.clone()
        for loop in loops if why == "rated" else ():
            loop.optimizer.param_groups[0]["momentum"] = 0.9 - 0.01 * seed  # as a one-cycle schedule does
        x, y = images(seed=seed)
        x.requires_grad_(why == "learnt")
        same(*(loop(x, y) for loop in loops))
        assert (x.grad is not None) == (why == "learnt")
        assert not loops[0].captured
    assert [message.split("since ")[1] for message in caplog.messages] == [words]
    assert loops[0].reason == words


def test_only_models_of_known_layers_get_a_twin():
    for name in ("resnet18", "small_cnn"):
        assert own_loop._plain(build(name, num_outputs=5, in_shape=(3, 8, 8), width=8))
    mine, watched = type("Mine", (nn.Linear,), {"__module__": "mine"}), smooth_net()
    watched[1].register_forward_hook(lambda *args: None)
    for net in (nn.LSTM(4, 4), nn.Sequential(mine(4, 4)), smooth_net().bfloat16(), smooth_net().eval(), watched):
        assert not own_loop._plain(net)


@pytest.mark.usefixtures("_graphs")
def test_inputs_by_name_weights_and_rates_in_tensors():
    class Named(nn.Sequential):
        def forward(self, pixels, shift, scale):  # type: ignore[override]
            return {"logits": super().forward(pixels + shift)}

    nets = [Named(smooth_net()), Named(smooth_net())]
    rates = [torch.tensor(0.125), torch.tensor(0.125)]
    optimizers = [torch.optim.SGD(n.parameters(), lr=r, fused=True) for n, r in zip(nets, rates, strict=True)]
    criteria = [RCAD(0.5, 0.1, input_key="pixels") for _ in nets]
    step = rcad.capture(nets[0], optimizers[0], criteria[0])
    for seed in range(6):
        x, y = images(seed=seed)
        batch, weight = {"pixels": x, "shift": x.flip(0), "scale": True}, torch.rand(len(y))
        losses = step(batch, y, weight=weight)
        optimizers[1].zero_grad()
        same(losses, criteria[1].backward(nets[1], batch, y, weight=weight))
        optimizers[1].step()
        for rate in rates:
            rate.mul_(0.5)
    assert step.captured
    same_parameters(nets[0], nets[1])


@pytest.mark.parametrize("mode", ["eager", "functions"], indirect=True)
def test_autocast_where_the_step_is_called_counts_and_keeps_no_casts(mode):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("needs bf16 on the CPU")
    plain, step = pair(smooth_net(), made={"fused": mode != "eager"})
    plain.autocast = torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = losses_of(step, 4)
    for seed, losses in enumerate(found):
        same(losses, plain(*images(seed=seed)))
    losses_of(step)
    assert len(step._held) == 2 * (mode == "functions")


@pytest.mark.usefixtures("_graphs")
def test_the_means_of_the_engine_in_bf16():
    """Torch's layers are passed through a bf16 twin, which follows the weights of a checkpoint."""
    plain, step = pair(norm_net(), "adamw", autocast=torch.bfloat16, made={"fused": True})
    start = copy.deepcopy(norm_net(seed=1).state_dict())
    for seed in range(5):
        one, other = step(*images(seed=seed)), plain(*images(seed=seed))
        torch.testing.assert_close(one.total, other.total, rtol=1e-2, atol=1e-2)
    assert step._fast is not None
    same_parameters(step.model, plain.model, rtol=0.05, atol=0.02)
    step.model.load_state_dict(start)
    plain.model.load_state_dict(start)
    same(step(*images(seed=7)), plain(*images(seed=7)))
    assert step.captured


NET = smooth_net()
GIVEN = {"model": NET, "optimizer": torch.optim.SGD(NET.parameters()), "criterion": RCAD(0.5, 0.1)}
test_wrong_arguments_are_named = refusals(
    ({"criterion": nn.CrossEntropyLoss()}, "expected a criterion such as rcad.RCAD(alpha=..., lam=...), but got"),
    ({"model": lambda x: x}, "expected the model to be an nn.Module, but got function"),
    ({"optimizer": None}, "expected an optimizer that steps once per gradient, but got NoneType"),
    ({"optimizer": torch.optim.LBFGS(NET.parameters())}, "but got LBFGS"),
    ({"clip": 0.0}, "expected clip to be a finite number > 0"),
    ({"autocast": torch.float32}, "expected autocast to be torch.bfloat16 or torch.float16"),
    ({"average": norm_net()}, "expected average to be a copy of the model"),
    ({"decay": 1.0}, "expected decay to be a number in [0, 1)"),
    of=lambda arguments: rcad.capture(**GIVEN | arguments),
)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("ours", "optimizer", "compiled"),
    [(True, "sgd", False), (True, "adamw", False), (False, "sgd", False), (False, "sgd", True)],
)
def test_bf16_stays_within_rounding(ours, optimizer, compiled):
    """The engine's means, a twin in bf16 and kernels of our own, are as near to fp32 as autocast is."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = build("resnet18", num_outputs=5, in_shape=(3, 8, 8), width=16) if ours else norm_net()
    net = net.to(memory_format=torch.channels_last)
    options: Any = {"device": "cuda", "clip": 1.0, "averaged": True, "made": {"fused": True}}
    exact, _ = pair(net, optimizer, **options)
    plain, step = pair(net, optimizer, compiled=compiled, autocast=torch.bfloat16, **options)
    losses: list[list[float]] = [[], [], []]
    for number in range(50):
        x, y = (value.cuda() for value in images(16 if number % 10 < 9 else 5, seed=number % 10))
        for place, loop in enumerate((exact, plain, step)):
            losses[place].append(loop(x, y).total.item())
    true, autocast, captured = (torch.tensor(values) for values in losses)
    near, far = ((some - true).abs() for some in (captured, autocast))
    print(f"\nfrom fp32, captured and autocast: {near[:10].mean():.3g} {far[:10].mean():.3g} over ten steps,", end=" ")
    print(f"{near.mean():.3g} {far.mean():.3g} over fifty; first losses {true[:4]} {autocast[:4]} {captured[:4]}")
    assert step.captured
    assert step._fast is not None
    torch.testing.assert_close(captured[:1], true[:1], rtol=2e-2, atol=2e-2)
    assert near[:10].mean() < 2 * far[:10].mean() + 0.02
    assert near.mean() < 2 * far.mean() + 0.02


@pytest.mark.gpu
def test_a_model_that_reads_from_the_device_steps_eagerly(caplog):
    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = smooth_net()

        def forward(self, x):
            output: Tensor = self.net(x)
            return output + 0.0 * output.sum().item()

    plain, step = pair(Reading(), device="cuda", scaled=True, made={"fused": True})
    for seed in range(6):
        x, y = (value.cuda() for value in images(seed=seed))
        torch.testing.assert_close(step(x, y).total, plain(x, y).total)
    assert len(caplog.messages) == 1
    assert "cannot be captured" in caplog.messages[0]
    assert torch.rand(2, device="cuda").ne(0).all()  # the generator that layers draw from is free again


@pytest.mark.gpu
def test_repeated_steps_never_wait_for_the_gpu():
    _, step = pair(norm_net(dropout=0.1), device="cuda")
    x, y = (value.cuda() for value in images())
    for _ in range(4):
        step(x, y)
    assert step.captured
    torch.cuda.set_sync_debug_mode("error")  # from here on a synchronisation raises
    try:
        step.optimizer.param_groups[0]["lr"] = 0.01
        step(x, y)
        step(x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")
