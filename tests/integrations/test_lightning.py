"""Lightning's Trainer and Fabric with rcad, beyond what `test_adapters` says of every adapter."""

from functools import partial

import pytest
import torch
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau
from torch.utils.data import DataLoader

L = pytest.importorskip("lightning")

from lightning.pytorch.callbacks import EarlyStopping  # noqa: E402

from equal import moved, plain_loop, same_parameters  # noqa: E402
from lit import QUIET, RCAD_TEXT, Automatic, Manual, Plain, fit, loader, plain, ways  # noqa: E402
from one_line import refusals  # noqa: E402
from rcad import RCAD  # noqa: E402
from rcad.integrations.lightning import FabricCriterion, RCADCallback, RCADMixin  # noqa: E402
from small_nets import images, norm_net, smooth_net  # noqa: E402
from workers import in_bf16, in_two  # noqa: E402

# Lightning's own advice about tiny data sets and its use of torch's internals.
ADVICE = "ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning"
pytestmark = pytest.mark.filterwarnings(ADVICE, "ignore:.*LeafSpec.*")
WAYS = pytest.mark.parametrize("how", ["mixin", "manual", "callback", "captured"])
FUSED = ("manual", "captured")


@WAYS
def test_tensors_made_in_inference_mode_do_not_stop_training(how):
    with torch.inference_mode():  # as a data set does that keeps what validation saw
        kept = [(x * 1.0, y * 1) for x, y in loader()]
    module, callbacks = ways(how)
    L.Trainer(max_epochs=2, callbacks=callbacks, **QUIET).fit(module, DataLoader(kept, batch_size=None))
    same_parameters(module.net, plain(fused=how in FUSED))
    assert not any(value.is_inference() for value in module.state_dict().values())


class Recorder(L.Callback):
    def __init__(self):
        self.seen, self.outputs = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen.append(dict(trainer.callback_metrics))
        self.outputs.append(outputs)


@WAYS
def test_the_parts_of_the_loss_are_logged(how):
    (module, callbacks), recorder = ways(how), Recorder()
    fit(module, *callbacks, recorder, epochs=1)
    x, y = next(iter(loader()))
    losses = RCAD(0.5, 0.1).losses(Plain().net, x, y)
    first = recorder.seen[0]
    assert first["rcad/loss"] == losses.total
    assert first["rcad/nll"] == losses.parts["nll"]
    assert first["rcad/entropy"] == -losses.parts["rcad"]
    if how == "callback":
        assert torch.equal(recorder.outputs[0]["output"], losses.output)
        assert torch.equal(recorder.outputs[0]["target"], y)
    (module, callbacks), recorder = ways(how, log=None), Recorder()
    fit(module, *callbacks, recorder, epochs=1)
    assert not any(key.startswith("rcad") for key in recorder.seen[-1])


def test_train_loss_reaches_callbacks():
    """The mean over the epoch, as modules log it in the training_step that is replaced."""
    stop, recorder = EarlyStopping("train_loss", patience=1, min_delta=100.0, check_on_train_epoch_end=True), Recorder()
    trainer = fit(Plain(), RCADCallback(RCAD_TEXT), recorder, stop, epochs=5)
    assert trainer.current_epoch == 2, "a gain of 100 never comes: it stops after the second epoch"
    means = torch.stack([row["rcad/loss"] for row in recorder.seen]).view(2, 3).mean(1)
    torch.testing.assert_close(trainer.callback_metrics["train_loss"], means[1])


def test_the_callback_leaves_the_module_as_it_was():
    module, callback = Plain(), RCADCallback(RCAD_TEXT)
    for _ in range(2):
        fit(module, callback)
        assert "training_step" not in vars(module)
    for other in (module, Manual()):  # outside of fit nothing is replaced, so nothing is refused
        L.Trainer(callbacks=[callback], **QUIET).validate(other, loader(), verbose=False)
        assert "training_step" not in vars(other)
    with pytest.raises(ZeroDivisionError):
        fit(module, callback, L.pytorch.callbacks.LambdaCallback(on_train_batch_end=lambda *call: 1 / 0))
    assert "training_step" not in vars(module)


class TwoInputs(Plain):
    def forward(self, x, table):
        return self.net(x + table.mean())


@pytest.mark.parametrize(
    ("kind", "options", "batch"),
    [
        (Plain, {"keys": ("image", "label")}, lambda x, y: {"label": y, "image": x, "file": "a.png"}),
        (Plain, {"keys": (0, 2)}, lambda x, y: (x, 0, y)),
        (TwoInputs, {"input_key": "x"}, lambda x, y: ({"x": x, "table": torch.zeros(4)}, y)),
    ],
)
def test_batches_of_more_name_their_parts_and_several_inputs_are_a_mapping(kind, options, batch):
    data = list(map(batch, *images(24)))
    fit(module := kind(), RCADCallback(RCAD_TEXT, **options), data=data, limit_val_batches=0)
    same_parameters(module.net, plain())


def test_the_other_name_of_lightning():
    pl = pytest.importorskip("pytorch_lightning")
    functions = {name: getattr(Automatic, name) for name in ("forward", "configure_optimizers", "training_step")}
    for bases, callbacks in (((), [RCADCallback(RCAD_TEXT)]), ((RCADMixin,), [])):
        module = type("Other", (*bases, pl.LightningModule), functions)()
        module.net = norm_net()
        if not callbacks:
            module.use_method(RCAD_TEXT)
        pl.Trainer(max_epochs=2, callbacks=callbacks, **QUIET).fit(module, loader())
        same_parameters(module.net, plain())


@pytest.mark.filterwarnings("error")
def test_a_step_without_a_trainer_and_of_a_part_of_the_module():
    """As people test their modules: nothing is logged, nothing is complained about."""
    batch, part = next(iter(loader())), norm_net(seed=1)
    loss = Automatic().training_step(batch, 0)
    assert torch.equal(loss, RCAD(0.5, 0.1)(Plain().net, *batch))
    assert torch.equal(Automatic().regularised_loss(*batch, model=part), RCAD(0.5, 0.1)(norm_net(seed=1), *batch))


class Scheduled(Plain):
    def __init__(self, schedule, **config):
        super().__init__()
        self.schedule, self.config = schedule, config

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self.schedule(optimizer), **self.config}}


@pytest.mark.parametrize(("interval", "drops"), [("step", 6), ("epoch", 2)])
def test_a_captured_step_is_counted_and_moves_schedules_on(interval, drops):
    for captured in (False, True):
        module = Scheduled(partial(ExponentialLR, gamma=0.5), interval=interval)
        trainer = fit(module, RCADCallback(RCAD_TEXT, captured=captured))
        assert trainer.global_step == 6
        assert trainer.optimizers[0].param_groups[0]["lr"] == 0.1 * 0.5**drops
        assert module.automatic_optimization
        assert "training_step" not in vars(module)


def split(batch, keys=None):
    return RCADCallback(RCAD_TEXT, keys=keys)._split(batch)


def captured(module, **options):
    return fit(module, RCADCallback(RCAD_TEXT, captured=True), **options)


X, Y = images()
BY_VALUE = {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}
test_says_what_was_expected = refusals(
    (lambda: split({"image": X, "label": Y}), "expected keys=(input, target) for batches that are mappings of image,"),
    (lambda: split({"image": X}, ("image", "y")), "expected a batch with 'image' and 'y', but got image"),
    (lambda: split((X, Y, Y)), "but got a tuple of 3; .. such as (0, 2) for the first and the third"),
    (lambda: fit(Manual(), RCADCallback(RCAD_TEXT)), "but Manual steps its optimizer itself; use RCADMixin"),
    (lambda: fit(type("Forgetful", (Automatic,), {"use_method": lambda *given: None})()), "expected self.use_method("),
    (lambda: RCADCallback("rcad", log=True), 'expected log to be a name such as "rcad", or None, but got True'),
    (lambda: Automatic(input_key="x").regularised_loss({"x": X, "t": X}, Y), "the keywords x, t, .. but it takes (x)"),
    (lambda: Automatic().regularised_loss((X, X), Y), "but got tuple; pass several inputs as a"),
    (lambda: captured(Plain(), accumulate_grad_batches=2), "accumulate_grad_batches=1 with captured=True, but got 2"),
    (lambda: captured(Plain(), **BY_VALUE), 'expected gradient_clip_algorithm="norm" with captured=True'),
    (lambda: captured(Scheduled(ReduceLROnPlateau, monitor="val_nll")), "one that waits for a metric"),
    (lambda: FabricCriterion(L.Fabric(), RCAD_TEXT)(norm_net(), X, Y), "that fabric.setup(...) returned, but"),
)


DDP = """
import sys
import lightning as L, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from lit import RCAD_TEXT, Automatic, Manual, Plain, fit
from loss.test_ddp import exchange
from rcad.integrations.lightning import FabricCriterion, RCADCallback
from small_nets import images, smooth_net

folder, rank, results = sys.argv[1], int(sys.argv[2]), {}
x, y = images(8)
half = slice(4 * rank, 4 * rank + 4)
settings = {"devices": 2, "strategy": "ddp", "use_distributed_sampler": False, "limit_val_batches": 0}
for how, kind in (("mixin", Automatic), ("manual", Manual), ("callback", Plain)):
    callbacks = [RCADCallback(RCAD_TEXT)] if how == "callback" else []
    fit(module := kind(net=smooth_net()), *callbacks, data=list(zip(x[half], y[half])), epochs=1, **settings)
    results[how] = module.net

fabric = L.Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
for how in ("call", "backward", "accumulated"):
    net = smooth_net()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    criterion = FabricCriterion(fabric, RCAD_TEXT)
    wrapper, sent = model._forward_module, []
    assert isinstance(wrapper, DistributedDataParallel)
    wrapper.register_comm_hook(sent, exchange)
    if how == "call":
        fabric.backward(criterion(model, x[half], y[half]))
    elif how == "backward":
        criterion.backward(model, x[half], y[half])
    else:
        mine = torch.arange(half.start, half.stop).split(2)
        with fabric.no_backward_sync(model):
            criterion.backward(model, x[mine[0]], y[mine[0]], accumulate=2)
        assert not sent, "nothing is exchanged before the last batch"
        criterion.backward(model, x[mine[1]], y[mine[1]], accumulate=2)
    assert len(sent) == 1, "gradients are exchanged once"
    optimizer.step()
    results[how] = net
torch.save({how: net.state_dict() for how, net in results.items()}, f"{folder}/{rank}.pt")
dist.barrier()
"""

BF16 = """
import lightning as L, torch
from lit import RCAD_TEXT
from rcad import RCAD
from rcad.integrations.lightning import FabricCriterion
from small_nets import images, norm_net

x, y = images(8)
for fused in (False, True):
    fabric, net = L.Fabric(accelerator="cpu", devices=1, precision="bf16-mixed"), norm_net()
    seen, inside = [], []
    net.register_forward_pre_hook(lambda m, inputs: seen.append(inputs[0].detach()))
    net[-1].register_forward_hook(lambda m, i, output: inside.append(output.dtype))
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    criterion = FabricCriterion(fabric, RCAD_TEXT)
    losses = criterion.backward(model, x, y) if fused else criterion.losses(model, x, y)
    if not fused:
        fabric.backward(losses.total)
    assert [value.dtype for value in seen] == [torch.float32] * 2
    assert set(inside) == {torch.bfloat16}
    assert torch.equal(seen[0], x)
    torch.testing.assert_close((seen[1] - x).flatten(1).norm(dim=1), torch.full((8,), 0.5))
    expected = RCAD(0.5, 0.1).losses(norm_net(), x, y)
    torch.testing.assert_close(losses.total.float(), expected.total, rtol=2e-2, atol=2e-2)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())
"""


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    """Each process sees half of the batch; sums over halves round otherwise than sums over the whole."""
    in_two(DDP, tmp_path)
    alone, together = plain_loop(smooth_net(), RCAD_TEXT, [images(8)]), smooth_net()
    assert moved(alone, together) > 1e-3
    for rank in (0, 1):
        results = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert results.keys() == {"mixin", "manual", "callback", "call", "backward", "accumulated"}
        for state in results.values():
            together.load_state_dict(state)
            same_parameters(alone, together, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_bf16_mixed_attacks_in_fp32():
    """In Fabric, whose wrapper would round x; in the Trainer it is Lightning's own autocast."""
    in_bf16(BF16)
