"""One contract for every adapter: whatever the framework does around it, it trains what a plain loop trains.

An adapter whose library is missing says in one line what to install.
"""

import importlib
import sys
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from equal import moved, plain_loop, same_parameters, sgd
from rcad import Criterion, InputError, methods
from rcad.errors import MissingExtraError
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
# Lightning's own advice about tiny data sets and its use of torch's internals.
pytestmark = pytest.mark.filterwarnings("ignore:.*many workers.*", "ignore:.*LeafSpec.*")


def loader():
    return DataLoader(TensorDataset(*images(24)), batch_size=8)


def compiled(net, wanted):
    torch._dynamo.reset()
    return torch.compile(net, backend="eager") if wanted else net


class Settings(NamedTuple):
    """What a framework is told besides the method; resumed, the second epoch is that of a fresh run."""

    seed: int | None = None
    accumulate: int = 1
    clip: float | None = None
    scaled: bool = False
    compiled: bool = False
    resumed: bool = False

    def generator(self):
        return None if self.seed is None else torch.Generator().manual_seed(self.seed)


Run = namedtuple("Run", "net criterion optimizer backward clip save load")


def by_hand(settings, begin, folder):
    run = begin()
    for epoch in range(2):
        if epoch and settings.resumed:
            run.save(folder / "half")
            run = begin()
            run.load(folder / "half")
        for number, (x, y) in enumerate(loader(), 1):
            last = number % settings.accumulate == 0
            run.backward(x, y, last)
            if last:
                if settings.clip is not None:
                    run.clip(max_norm=settings.clip)
                run.optimizer.step()
                run.optimizer.zero_grad()
    return run.net, run.criterion


def lightning(how):
    def train(method, settings, folder):
        pytest.importorskip("lightning")
        from lightning.pytorch.plugins import MixedPrecision

        import lit

        own = {"accumulate": settings.accumulate, "clip": settings.clip} if how == "manual" else {}
        plugin = lit.scaled(MixedPrecision)
        options = {"plugins": [plugin]} if settings.scaled else {}
        if how != "manual":
            options |= {"accumulate_grad_batches": settings.accumulate, "gradient_clip_val": settings.clip}
        for epochs in (1, 2) if settings.resumed else (2,):
            module, callbacks = lit.ways(how, method, classes=CLASSES, generator=settings.generator(), **own)
            trainer = lit.fit(compiled(module, settings.compiled), *callbacks, epochs=epochs, **options)
            trainer.save_checkpoint(folder / "half.ckpt")
            options["ckpt_path"] = folder / "half.ckpt"
        assert plugin.scaler.get_scale() == 1024, "a step was skipped"
        if settings.compiled:
            assert "training_step" in vars(module), "the compiled step must be put back"
        return module.net, (callbacks[0].step if callbacks else module._rcad).resolved.criterion

    return train


def fabric(fused):
    def train(method, settings, folder):
        lightning = pytest.importorskip("lightning")
        from lightning.fabric.plugins import MixedPrecision

        import lit
        from rcad.integrations.lightning import FabricCriterion

        plugin = lit.scaled(MixedPrecision)
        fabric = lightning.Fabric(accelerator="cpu", devices=1, plugins=[plugin] if settings.scaled else [])

        def begin():
            net = norm_net()
            model, optimizer = fabric.setup(compiled(net, settings.compiled), sgd(net))
            criterion = FabricCriterion(fabric, method, classes=CLASSES, generator=settings.generator())
            state = {"model": model, "optimizer": optimizer, "criterion": criterion}

            def backward(x, y, last):
                with fabric.no_backward_sync(model, enabled=not last):
                    if fused:
                        criterion.backward(model, x, y, accumulate=settings.accumulate)
                    else:
                        fabric.backward(criterion(model, x, y) / settings.accumulate)

            clip = partial(fabric.clip_gradients, model, optimizer)
            save, load = partial(fabric.save, state=state), partial(fabric.load, state=state)
            return Run(net, criterion.step.resolved.criterion, optimizer, backward, clip, save, load)

        trained = by_hand(settings, begin, folder)
        assert plugin.scaler.get_scale() == 1024, "a step was skipped"
        return trained

    return train


def accelerate(method, settings, folder):
    pytest.importorskip("accelerate")
    from accelerate import Accelerator

    from rcad.integrations.accelerate import AccelerateCriterion

    made = []

    def begin():
        accelerator, net = Accelerator(cpu=True, gradient_accumulation_steps=settings.accumulate), norm_net()
        if settings.scaled:
            accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        criterion = AccelerateCriterion(accelerator, method, classes=CLASSES, generator=settings.generator())
        accelerator.register_for_checkpointing(criterion)
        model, optimizer = accelerator.prepare(compiled(net, settings.compiled), sgd(net))
        made.append((accelerator, criterion))

        def backward(x, y, last):
            with accelerator.accumulate(model):
                criterion.backward(model, x, y)

        clip = partial(accelerator.clip_grad_norm_, [*model.parameters()])
        save, load = accelerator.save_state, accelerator.load_state
        return Run(net, criterion.step.resolved.criterion, optimizer, backward, clip, save, load)

    trained = by_hand(settings, begin, folder)
    accelerator, criterion = made[-1]
    assert criterion.steps == 6 // settings.accumulate
    assert not settings.scaled or accelerator.scaler.get_scale() == 256.0
    return trained


def skorch(method, settings, folder):
    pytest.importorskip("skorch")
    from skorch.callbacks import GradientNormClipping

    from rcad.integrations.skorch import RCADNetClassifier

    x, y = (values.numpy() for values in images(24))
    options = {"batch_size": 8, "lr": 0.1, "optimizer__momentum": 0.9, "train_split": None, "verbose": 0}
    options |= {"callbacks": [GradientNormClipping(settings.clip)]} if settings.clip is not None else {}
    options |= {"compile": True, "compile__backend": "eager"} if settings.compiled else {}
    files = {name: folder / name for name in ("f_params", "f_optimizer", "f_criterion")}
    for again in (False, True) if settings.resumed else (False,):
        net, epochs = norm_net(), 1 if settings.resumed else 2
        model = RCADNetClassifier(net, method=method, accumulate=settings.accumulate, max_epochs=epochs, **options)
        model.initialize()
        if again:
            model.load_params(**files)
        model.partial_fit(x, y)
        model.save_params(**files)
    assert model.rcad_steps_ == 6 // settings.accumulate
    return net, model.rcad_.criterion


def timm(method, settings, folder):
    """The heart of timm's script."""
    load()
    pytest.importorskip("timm.task")
    from rcad.integrations.timm import RCADTask

    def begin():
        net, options = norm_net(), {"mean": (0.0,) * 3, "std": (1.0,) * 3, "verbose": False}
        task = RCADTask(net, method=method, classes=CLASSES, generator=settings.generator(), **options)
        optimizer = sgd(task.get_trainable_module())
        if settings.compiled:
            torch._dynamo.reset()
            task.compile(backend="eager")

        def resume(path):
            state, moments = torch.load(path)
            task.load_checkpoint_state(state["state_dict"], state["task_state"])
            optimizer.load_state_dict(moments)

        return Run(
            *(net, task.step.resolved.criterion, optimizer),
            backward=lambda x, y, last: (task(x, y)["loss"] / settings.accumulate).backward(),
            clip=partial(nn.utils.clip_grad_norm_, [*task.get_clip_parameters()]),
            save=lambda path: torch.save((task.get_checkpoint_state(), optimizer.state_dict()), path),
            load=resume,
        )

    return by_hand(settings, begin, folder)


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = norm_net()
        self.config = type("Config", (), {"num_labels": CLASSES, "to_json_string": lambda self: ""})()

    def forward(self, pixel_values, labels=None):
        return {"logits": self.net(pixel_values)}


def huggingface(method, settings, folder):
    pytest.importorskip("transformers")
    from rcad.integrations.huggingface import RCADTrainer
    from tiny_transformers import arguments

    changed = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": settings.accumulate}
    changed |= {"max_grad_norm": settings.clip or 0.0, "save_strategy": "epoch"}
    if settings.compiled:
        torch._dynamo.reset()
        changed |= {"torch_compile": True, "torch_compile_backend": "eager"}
    rows = [{"pixel_values": image, "labels": label} for image, label in zip(*images(24), strict=True)]
    for epochs in (1, 2) if settings.resumed else (2,):
        model = Pictures()
        optimizer = sgd(model)
        trainer = RCADTrainer(
            model,
            arguments(folder, num_train_epochs=epochs, **changed),
            train_dataset=rows,
            optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
            method=method,
            generator=settings.generator(),
        )
        if settings.scaled:
            trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-3") if settings.resumed and epochs == 2 else None)
    assert not settings.scaled or trainer.accelerator.scaler.get_scale() == 256.0
    return model.net, trainer.resolved.criterion


class Adapter(NamedTuple):
    train: Callable[[str, Settings, Path], tuple[nn.Module, Criterion]]
    fused: bool = True  # it takes the fewest passes; else it leaves the backward to the framework
    per_step: bool = False  # `every=` counts steps of the optimizer; else batches
    lacks: tuple[str, ...] = ()  # what cannot be told to it here


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
    "huggingface": Adapter(huggingface, per_step=True, lacks=("own state",)),
}


def having(*names):
    return pytest.mark.parametrize("name", [k for k, adapter in ADAPTERS.items() if not {*names} & {*adapter.lacks}])


def check(name, method, folder, tolerance=0.0, **settings):
    adapter, told = ADAPTERS[name], Settings(**settings)
    trained, _ = adapter.train(method, told, folder)
    loop = {"accumulate": told.accumulate, "clip": told.clip, "generator": told.generator()}
    expected = plain_loop(norm_net(), method, [*loader()] * 2, fused=adapter.fused, per_step=adapter.per_step, **loop)
    same_parameters(trained, expected, rtol=tolerance, atol=tolerance / 100)
    assert moved(expected, norm_net()) > 0.003


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ADAPTERS)
def test_it_equals_a_plain_loop_bit_for_bit(name, method, tmp_path):
    if method in DRAWN and "generator" in ADAPTERS[name].lacks:
        pytest.skip("draws from torch's global generator")
    check(name, method, tmp_path, seed=3 if method in DRAWN else None)


@pytest.mark.parametrize("name", ADAPTERS)
def test_accumulated_batches_are_one_step_whose_gradients_are_clipped(name, tmp_path):
    """transformers divides by the number of items and not of batches, which rounds otherwise."""
    told = {"accumulate": 1 if "accumulate" in ADAPTERS[name].lacks else 3, "clip": 0.2}
    check(name, "rcad(alpha=0.5, lam=0.1, every=2)", tmp_path, 1e-4 if name == "huggingface" else 0.0, **told)


@having("scaled")
def test_a_loss_scaler_scales_every_backward_and_is_undone(name, tmp_path):
    """Times a power of two and divided by it again: bit for bit."""
    check(name, RCAD, tmp_path, scaled=True)


@having("compiled")
def test_a_compiled_model(name, tmp_path):
    check(name, RCAD, tmp_path, compiled=True)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_resumed_run_goes_on_where_it_stopped(name, tmp_path):
    """With the random numbers of one without a break too, where a generator can be given and is saved."""
    drawn = not {"generator", "own state"} & {*ADAPTERS[name].lacks}
    method = "mixup + rcad(alpha=0.5, lam=0.1, every=2)" if drawn else "rcad(alpha=0.5, lam=0.1, every=2)"
    check(name, method, tmp_path, resumed=True, seed=3 if drawn else None)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_measured_alpha_is_not_measured_again_after_a_break(name, tmp_path):
    plain_loop(norm_net(), first := methods.rcad().criterion(), loader())
    for resumed in (False, True):
        _, criterion = ADAPTERS[name].train("rcad", Settings(resumed=resumed), tmp_path)
        assert criterion.settled == resumed
    assert criterion.state_dict()["alpha"] == first.state_dict()["alpha"]


def imported_without(package, adapter, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(f"rcad.integrations.{adapter}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    importlib.import_module(f"rcad.integrations.{adapter}")


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("accelerate", "accelerate", "hf"),
        ("huggingface", "transformers", "hf"),
        ("lightning", "lightning", "lightning"),
        ("sklearn", "sklearn", "sklearn"),
        ("sklearn", "safetensors", "sklearn"),
        ("skorch", "skorch", "skorch"),
        ("timm", "timm", "timm"),
    ],
)
def test_a_missing_package_names_its_extra(adapter, package, extra, monkeypatch):
    with pytest.raises(MissingExtraError) as caught:
        imported_without(package, adapter, monkeypatch)
    assert str(caught.value).startswith(f"expected {package}")
    assert str(caught.value).endswith(f"in the folder of rcad, pip install -c constraints.txt -e '.[{extra}]'")
    assert caught.value.__suppress_context__, "one traceback, not two"


def test_a_timm_without_tasks_is_refused(monkeypatch):
    load()
    with pytest.raises(InputError, match=r"expected timm 1\.0\.27 or newer, for its timm.task, but got 1\.") as caught:
        imported_without("timm.task", "timm", monkeypatch)
    assert caught.value.__suppress_context__
