"""One contract for every adapter: whatever the framework does around it, it trains what a plain loop trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from equal import moved, plain_loop, same_parameters, sgd
from small_nets import CLASSES, images, norm_net
from timm_folder import load

RCAD = "rcad(alpha=0.5, lam=0.1)"
METHODS = (
    RCAD,
    "rcad(alpha=0.5, lam=0.1, every=2)",
    "label_smoothing(eps=0.1) + confidence_penalty(lam=0.1)",
    "mixup + rcad(alpha=0.5, lam=0.1)",
    "data_augmentation + rcad_released(alpha=0.5, lam=0.1)",
    "rcad_random(alpha=0.5, lam=0.1)",
)
DRAWN = METHODS[3:]
CLIP = 0.2
pytestmark = [
    # Lightning's own advice about tiny data sets and its use of torch's internals.
    pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]


def loader() -> DataLoader[Any]:
    """Three batches of 8 images."""
    return DataLoader(TensorDataset(*images(24)), batch_size=8)


def compiled(net: nn.Module, wanted: bool) -> Any:
    torch._dynamo.reset()
    return torch.compile(net, backend="eager") if wanted else net


class Settings(NamedTuple):
    """What a framework is told besides the method."""

    generator: torch.Generator | None = None
    accumulate: int = 1
    clip: float | None = None
    scaled: bool = False
    compiled: bool = False


def by_hand(settings: Settings, optimizer: Any, backward: Callable[..., None], clip: Callable[..., Any]) -> None:
    """Two epochs in a loop of one's own."""
    for number, (x, y) in enumerate([*loader()] * 2, 1):
        last = number % settings.accumulate == 0
        backward(x, y, last)
        if last:
            if settings.clip is not None:
                clip(settings.clip)
            optimizer.step()
            optimizer.zero_grad()


def lightning(how: str) -> Callable[..., nn.Module]:
    def train(method: str, settings: Settings, folder: Path) -> nn.Module:
        pytest.importorskip("lightning")
        from lightning.pytorch.plugins import MixedPrecision

        import lit

        own = {"accumulate": settings.accumulate, "clip": settings.clip} if how == "manual" else {}
        module, callbacks = lit.ways(how, method, classes=CLASSES, generator=settings.generator, **own)
        plugin = lit.scaled(MixedPrecision)
        options: dict[str, Any] = {"plugins": [plugin]} if settings.scaled else {}
        if how != "manual":
            options |= {"accumulate_grad_batches": settings.accumulate, "gradient_clip_val": settings.clip}
        lit.fit(compiled(module, settings.compiled), *callbacks, **options)
        assert plugin.scaler.get_scale() == 1024, "a step was skipped"
        if settings.compiled:
            assert "training_step" in vars(module), "the compiled step must be put back"
        return module.net  # type: ignore[no-any-return]

    return train


def fabric(fused: bool) -> Callable[..., nn.Module]:
    def train(method: str, settings: Settings, folder: Path) -> nn.Module:
        lightning = pytest.importorskip("lightning")
        from lightning.fabric.plugins import MixedPrecision

        import lit
        from rcad.integrations.lightning import FabricCriterion

        plugin, net = lit.scaled(MixedPrecision), norm_net()
        fabric = lightning.Fabric(accelerator="cpu", devices=1, plugins=[plugin] if settings.scaled else [])
        model, optimizer = fabric.setup(compiled(net, settings.compiled), sgd(net))
        criterion = FabricCriterion(fabric, method, classes=CLASSES, generator=settings.generator)

        def backward(x: Tensor, y: Tensor, last: bool) -> None:
            with fabric.no_backward_sync(model, enabled=not last):
                if fused:
                    criterion.backward(model, x, y, accumulate=settings.accumulate)
                else:
                    fabric.backward(criterion(model, x, y) / settings.accumulate)

        by_hand(settings, optimizer, backward, lambda clip: fabric.clip_gradients(model, optimizer, max_norm=clip))
        assert plugin.scaler.get_scale() == 1024, "a step was skipped"
        return net

    return train


def accelerate(method: str, settings: Settings, folder: Path) -> nn.Module:
    """The loop of Accelerate's own documentation, with one call in the place of its backward."""
    pytest.importorskip("accelerate")
    from accelerate import Accelerator

    from rcad.integrations.accelerate import AccelerateCriterion

    accelerator, net = Accelerator(cpu=True, gradient_accumulation_steps=settings.accumulate), norm_net()
    if settings.scaled:
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    criterion = AccelerateCriterion(accelerator, method, classes=CLASSES, generator=settings.generator)
    model, optimizer, batches = accelerator.prepare(compiled(net, settings.compiled), sgd(net), loader())
    for x, y in (batch for _ in range(2) for batch in batches):
        with accelerator.accumulate(model):
            criterion.backward(model, x, y)
            if accelerator.sync_gradients and settings.clip is not None:
                accelerator.clip_grad_norm_(model.parameters(), settings.clip)
            optimizer.step()
            optimizer.zero_grad()
    assert criterion.steps == 6 // settings.accumulate
    assert not settings.scaled or accelerator.scaler.get_scale() == 256.0
    return net


def skorch(method: str, settings: Settings, folder: Path) -> nn.Module:
    pytest.importorskip("skorch")
    from skorch.callbacks import GradientNormClipping

    from rcad.integrations.skorch import RCADNetClassifier

    (x, y), net = images(24), norm_net()
    more = {"callbacks": [GradientNormClipping(settings.clip)]} if settings.clip is not None else {}
    options = {"max_epochs": 2, "batch_size": 8, "lr": 0.1, "optimizer__momentum": 0.9, "train_split": None}
    model = RCADNetClassifier(
        net, method=method, accumulate=settings.accumulate, compile=settings.compiled, verbose=0, **options, **more
    )
    if settings.compiled:
        model.set_params(compile__backend="eager")
    model.fit(x.numpy(), y.numpy())
    assert model.rcad_steps_ == 6 // settings.accumulate
    return net


def timm(method: str, settings: Settings, folder: Path) -> nn.Module:
    """The heart of timm's script."""
    load()
    pytest.importorskip("timm.task")
    from rcad.integrations.timm import RCADTask

    net, options = norm_net(), {"mean": (0.0,) * 3, "std": (1.0,) * 3, "verbose": False}
    task = RCADTask(net, method=method, classes=CLASSES, generator=settings.generator, **options)
    optimizer = sgd(task.get_trainable_module())
    if settings.compiled:
        torch._dynamo.reset()
        task.compile(backend="eager")

    def backward(x: Tensor, y: Tensor, last: bool) -> None:
        (task(x, y)["loss"] / settings.accumulate).backward()

    by_hand(settings, optimizer, backward, lambda clip: nn.utils.clip_grad_norm_(task.get_clip_parameters(), clip))
    return net


class Pictures(nn.Module):
    """The small net as a transformers Trainer takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = norm_net()
        self.config = type("Config", (), {"num_labels": CLASSES, "to_json_string": lambda self: ""})()

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.net(pixel_values)}


def huggingface(method: str, settings: Settings, folder: Path) -> nn.Module:
    pytest.importorskip("transformers")
    from rcad.integrations.huggingface import RCADTrainer
    from tiny_transformers import arguments

    (x, y), model = images(24), Pictures()
    changed = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": settings.accumulate}
    changed |= {"max_grad_norm": settings.clip or 0.0}
    if settings.compiled:
        torch._dynamo.reset()
        changed |= {"torch_compile": True, "torch_compile_backend": "eager"}
    rows = [{"pixel_values": image, "labels": label} for image, label in zip(x, y, strict=True)]
    optimizer = sgd(model)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    trainer = RCADTrainer(
        model,
        arguments(folder, **changed),
        train_dataset=rows,
        optimizers=(optimizer, schedule),
        method=method,
        generator=settings.generator,
    )
    if settings.scaled:
        trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    trainer.train()
    assert not settings.scaled or trainer.accelerator.scaler.get_scale() == 256.0
    return model.net


class Adapter(NamedTuple):
    """A way to train in a framework.

    Attributes:
        train: gives the trained net.
        fused: it takes the fewest passes; else it leaves the backward to the framework.
        per_step: `every=` counts steps of the optimizer; else batches.
        lacks: what cannot be told to it here.
    """

    train: Callable[[str, Settings, Path], nn.Module]
    fused: bool = True
    per_step: bool = False
    lacks: tuple[str, ...] = ()


ADAPTERS = {
    "lightning mixin": Adapter(lightning("mixin"), fused=False),
    "lightning manual": Adapter(lightning("manual"), lacks=("compiled",)),
    "lightning callback": Adapter(lightning("callback"), fused=False),
    "lightning captured": Adapter(lightning("captured"), lacks=("accumulate", "compiled")),
    "fabric": Adapter(fabric(False), fused=False),
    "fabric fused": Adapter(fabric(True)),
    "accelerate": Adapter(accelerate, per_step=True),
    "skorch": Adapter(skorch, per_step=True, lacks=("generator", "scaled")),
    "timm": Adapter(timm, fused=False, lacks=("scaled",)),
    "huggingface": Adapter(huggingface, per_step=True),
}


def having(*names: str) -> Any:
    """Every adapter that can be told this."""
    return pytest.mark.parametrize("name", [k for k, adapter in ADAPTERS.items() if not {*names} & {*adapter.lacks}])


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def check(name: str, method: str, folder: Path, tolerance: float = 0.0, **settings: Any) -> None:
    """The adapter's net and the loop's are equal, and have moved."""
    adapter = ADAPTERS[name]
    trained = adapter.train(method, Settings(**settings), folder)
    loop = {key: value for key, value in settings.items() if key in ("accumulate", "clip")}
    if "generator" in settings:
        loop["generator"] = seeded()
    expected = plain_loop(norm_net(), method, [*loader()] * 2, fused=adapter.fused, per_step=adapter.per_step, **loop)
    same_parameters(trained, expected, rtol=tolerance, atol=tolerance / 100)
    assert moved(expected, norm_net()) > 0.003


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ADAPTERS)
def test_it_equals_a_plain_loop_bit_for_bit(name: str, method: str, tmp_path: Path) -> None:
    if method in DRAWN and "generator" in ADAPTERS[name].lacks:
        pytest.skip("draws from torch's global generator")
    check(name, method, tmp_path, **({"generator": seeded()} if method in DRAWN else {}))


@pytest.mark.parametrize("name", ADAPTERS)
def test_gradients_are_clipped(name: str, tmp_path: Path) -> None:
    check(name, RCAD, tmp_path, clip=CLIP)


@having("accumulate")
def test_accumulated_batches_are_one_step(name: str, tmp_path: Path) -> None:
    """transformers divides by the number of items and not of batches, which rounds otherwise."""
    tolerance = 1e-4 if name == "huggingface" else 0.0
    check(name, "rcad(alpha=0.5, lam=0.1, every=2)", tmp_path, tolerance, accumulate=3, clip=CLIP)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_clipping_binds(accumulate: int) -> None:
    pair = (plain_loop(norm_net(), RCAD, [*loader()] * 2, accumulate=accumulate, clip=clip) for clip in (None, CLIP))
    assert moved(*pair) > 1e-3


@having("scaled")
def test_a_loss_scaler_scales_every_backward_and_is_undone(name: str, tmp_path: Path) -> None:
    """Times a power of two and divided by it again: bit for bit."""
    check(name, RCAD, tmp_path, scaled=True)


@having("compiled")
def test_a_compiled_model(name: str, tmp_path: Path) -> None:
    check(name, RCAD, tmp_path, compiled=True)
