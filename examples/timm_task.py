"""RCAD in timm: its training task with Mixup, label smoothing and averaged weights, on 200 of scikit-learn's digits.
timm normalises images before the model sees them; alpha stays a distance in pixels of [0, 1] all the same."""

try:
    from rcad.integrations.timm import RCADTask
except (ImportError, ValueError) as missing:  # timm is not there, or its torchvision does not fit this torch
    raise SystemExit(missing) from None

import numpy
import timm
import torch
from sklearn.datasets import load_digits
from timm.data import Mixup, resolve_data_config
from timm.loss import SoftTargetCrossEntropy
from timm.task import ClassificationTask
from timm.utils import NativeScaler
from torch.nn import functional as F

METHOD, LABELS, EPOCHS, BATCH = "rcad(alpha=2.0, lam=0.1)", 200, 12, 50


def digits(config):
    """Images as timm's loader gives them: three channels, normalised by the model's own mean and std."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(images).float()[order].view(-1, 1, 8, 8).expand(-1, 3, -1, -1) / 16
    mean, std = (torch.tensor(config[name]).view(3, 1, 1) for name in ("mean", "std"))
    return (F.interpolate(x, 32) - mean) / std, torch.tensor(labels)[order]


def train(make_task, x, y):
    """timm's training loop without its trimmings."""
    torch.manual_seed(0)
    numpy.random.seed(0)  # noqa: NPY002 - timm's Mixup draws from the global generator
    mixup = Mixup(mixup_alpha=0.2, label_smoothing=0.1, num_classes=10)
    task = make_task(timm.create_model("test_resnet", num_classes=10))
    task.setup_ema(decay=0.8)
    optimizer = torch.optim.AdamW(task.get_trainable_module().parameters(), 2e-3)
    scaler = NativeScaler("cpu")
    for _ in range(EPOCHS):
        task.train()
        for index in torch.randperm(LABELS).split(BATCH):
            input, target = mixup(x[index], y[index])
            result = task(input, target)
            scaler(result["loss"], optimizer, clip_grad=5.0, parameters=task.get_clip_parameters())
            optimizer.zero_grad()
            task.update_ema()
    return task.get_eval_model(ema=True).eval(), result


@torch.inference_mode()
def test(model, x, y):
    logits = torch.cat([model(part) for part in x.split(200)])
    return 100 * (logits.argmax(1) == y).float().mean().item(), F.cross_entropy(logits, y).item()


def main():
    torch.set_num_threads(1)
    x, y = digits(resolve_data_config(model=timm.create_model("test_resnet")))
    print(f"inputs from {x.min():.1f} to {x.max():.1f}, as timm's loader gives them")
    tasks = {
        "ClassificationTask": lambda model: ClassificationTask(model, SoftTargetCrossEntropy(), verbose=False),
        "RCADTask": lambda model: RCADTask(model, SoftTargetCrossEntropy(), METHOD, verbose=False),
    }
    for name, make_task in tasks.items():
        model, result = train(make_task, x, y)
        accuracy, nll = test(model, x[LABELS:], y[LABELS:])
        parts = {key: round(value.item(), 3) for key, value in result.items() if key.startswith("rcad/")}
        print(f"{name:18} {accuracy:.1f}% of {len(x) - LABELS} test images, NLL {nll:.3f}", parts or "")


if __name__ == "__main__":
    main()
