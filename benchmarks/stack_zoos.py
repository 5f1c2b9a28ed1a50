"""The ways of `stacks.py` in frameworks that bring the models too: Hugging Face and timm."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import torch
from stack_ways import METHODS, STEPS, WARM, Marks, Way, mark, sgd
from torch import nn


def huggingface_ways() -> Iterator[Way]:
    os.environ["HF_HUB_OFFLINE"] = "1"  # heard only before the import
    import transformers

    from rcad.integrations.huggingface import RCADTrainer

    transformers.logging.set_verbosity_error()
    draw = torch.Generator().manual_seed(0)
    count, head = 32 * (WARM + STEPS), {"num_labels": 4}
    label = partial(torch.randint, 4, generator=draw)
    ids, full = torch.randint(1, 2000, (count, 64), generator=draw), torch.ones(64).long()
    texts = [{"input_ids": row, "attention_mask": full, "labels": label(())} for row in ids]
    tokens = [row | {"labels": label((64,))} for row in texts]
    images = [{"pixel_values": torch.rand(3, 32, 32, generator=draw), "labels": label(())} for _ in range(count)]
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    bert = transformers.BertConfig(vocab_size=2000, max_position_embeddings=64, **sizes, **head)
    sizes = {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 384}
    vit = transformers.ViTConfig(image_size=32, patch_size=4, **sizes, **head)

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def __init__(self, marks: Marks) -> None:
            self.on_step_end = partial(mark, marks)

    def run(network: Any, config: Any, data: Any, method: str | None, marks: Marks) -> None:
        torch.manual_seed(0)
        quiet = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
        with tempfile.TemporaryDirectory() as folder:
            args = transformers.TrainingArguments(
                folder, per_device_train_batch_size=32, max_steps=WARM + STEPS, use_cpu=True, log_level="error", **quiet
            )
            kind = transformers.Trainer if method is None else partial(RCADTrainer, method=method)
            trainer = kind(network(config), args, train_dataset=data, callbacks=[Watch(marks)])
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()

    text, name = transformers.BertForSequenceClassification, "BERT, 2 layers of 128, 32 texts of 64 tokens"
    token, picture = transformers.BertForTokenClassification, transformers.ViTForImageClassification
    yield Way("huggingface", "RCADTrainer", name, "2 + 2", partial(run, text, bert, texts))
    yield Way("huggingface", "RCADTrainer", "the same, one label per token", "2 + 3", partial(run, token, bert, tokens))
    name = "ViT, 4 layers of 96, 32 images of 64 patches"
    yield Way("huggingface", "RCADTrainer", name, "2 + 2", partial(run, picture, vit, images))


def timm_ways() -> Iterator[Way]:
    timm = import_timm()
    from timm.task import ClassificationTask

    from rcad.integrations.timm import RCADTask, rcad_for

    def run(how: str, network: str, shape: tuple[int, ...], method: str | None, marks: Marks) -> None:
        torch.manual_seed(0)
        model, loss = timm.create_model(network, num_classes=10), nn.CrossEntropyLoss()
        task = ClassificationTask(model, loss, verbose=False)
        if how == "RCADTask" and method is not None:
            task = RCADTask(model, loss, method, verbose=False)
        criterion = rcad_for(model, 0.5, 0.02, every=2 if method == METHODS["every=2"] else 1)
        optimizer = sgd(model.train())
        for _ in range(WARM + STEPS):
            x, y = torch.randn(shape), torch.randint(10, shape[:1])
            if how == "RCADTask" or method is None:
                task(x, y)["loss"].backward()
            else:
                criterion.backward(model, x, y)
            optimizer.step()
            optimizer.zero_grad()
            mark(marks)

    shapes = {"resnet18": (16, 3, 64, 64), "vit_tiny_patch16_224": (4, 3, 224, 224)}
    for network, shape in shapes.items():
        name, task = f"{network}, {shape[0]} images of {shape[2]}x{shape[3]}", partial(run, "RCADTask", network, shape)
        yield Way("timm", "`RCADTask`", name, "2 + 3", task)
        fused = partial(run, "rcad_for", network, shape)
        yield Way("timm", "`rcad_for`, `criterion.backward`", name, "2 + 2", fused, ("rcad", "every=2"))


def import_timm() -> Any:
    """timm; where it lies apart beside a torchvision for CUDA, that one's operators are declared and it is hidden."""
    folder = Path(sys.prefix) / "timm"
    if PathFinder.find_spec("timm") is None and folder.is_dir():
        for operator in ("nms", "qnms"):
            words = f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(*words)
        sys.path.append(str(folder))
        try:
            importlib.import_module("timm.task")
        finally:
            sys.path.remove(str(folder))
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]
    return importlib.import_module("timm")
