"""A run in progress as one file: tensors in safetensors, the rest as JSON in its header. No pickle anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rcad.errors import InputError
from rcad.runs.files import make_folder, replacing
from rcad.train.loop import Trainer
from rcad.train.optim import optimizer_tensors, restore_optimizer

CHECKPOINT, WEIGHTS = "last.safetensors", "model.safetensors"
VERSION = "1"
_KEY = "checkpoint"


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Writes the file whole or not at all; equal content gives equal bytes."""
    # Cloned on the CPU: safetensors refuses tensors that share memory, and views of larger ones.
    plain = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    header = {_KEY: json.dumps({"version": VERSION, "meta": meta})}  # one key: several come in an arbitrary order
    make_folder(path.parent)
    with replacing(path) as temporary:
        try:
            save_file(plain, str(temporary), metadata=header)
        except SafetensorError as error:  # how it tells of a full disk
            raise OSError(str(error)) from None


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; a damaged file is an InputError that names it."""
    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, _meta(header, path)
    except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise InputError(f"expected a whole checkpoint in {path}, but got: {error}; remove it to start over") from None


def _meta(header: dict[str, str], path: Path) -> dict[str, Any]:
    """What was saved beside the tensors; files of early runs have it and the version as two keys."""
    found: dict[str, Any] = {**json.loads(header[_KEY])} if _KEY in header else {**header}
    if found.get("version") != VERSION:
        raise InputError(f"expected a checkpoint of version {VERSION} in {path}, but got {found.get('version')!r}")
    meta: dict[str, Any] = found["meta"] if _KEY in header else json.loads(found["meta"])
    return meta


def save_trainer(trainer: Trainer, path: Path) -> None:
    """Everything that decides what the trainer does next."""
    tensors = {f"model.{name}": value for name, value in trainer.model.state_dict().items()}
    tensors |= {f"optim.{name}": value for name, value in optimizer_tensors(trainer.optimizer).items()}
    tensors |= {f"best.{name}": value for name, value in trainer.best_weights.items()}
    if trainer.average is not None:
        tensors |= {f"average.{name}": value for name, value in trainer.average.state_dict().items()}
    original = len(trainer.problem.train[1])
    if len(trainer.y) > original:
        tensors |= {"grown.x": trainer.x[original:], "grown.y": trainer.y[original:]}
    tensors |= {"sums": trainer.sums, "rng.noise": trainer.generator.get_state(), "rng.cpu": torch.get_rng_state()}
    if trainer.problem.device.type == "cuda":
        tensors["rng.cuda"] = torch.cuda.get_rng_state(trainer.problem.device)
    meta = {
        "epoch": trainer.epoch,
        "step": trainer.step,
        "rows": trainer.rows,
        "seconds": trainer.seconds,
        "best_epoch": trainer.best_epoch,
        "best_score": list(trainer.best_score) if trainer.best_epoch else None,
    }
    save_tensors(path, tensors, meta)


def restore_trainer(trainer: Trainer, path: Path) -> None:
    """Makes a fresh trainer of the same config go on where the saved one stood."""
    tensors, meta = load_tensors(path)
    trainer.model.load_state_dict(_under("model.", tensors))
    restore_optimizer(trainer.optimizer, _under("optim.", tensors))
    trainer.best_weights = {n: v.to(trainer.problem.device) for n, v in _under("best.", tensors).items()}
    if trainer.average is not None:
        trainer.average.load_state_dict(_under("average.", tensors))
    if "grown.x" in tensors:
        trainer.enlarge(tensors["grown.x"].to(trainer.x.device), tensors["grown.y"].to(trainer.y.device))
    trainer.sums.copy_(tensors["sums"])
    trainer.generator.set_state(tensors["rng.noise"])
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors and trainer.problem.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["rng.cuda"], trainer.problem.device)
    trainer.epoch, trainer.step = meta["epoch"], meta["step"]
    trainer.rows, trainer.seconds = meta["rows"], meta["seconds"]
    trainer.best_epoch = meta["best_epoch"]
    if meta["best_score"] is not None:
        first, second = meta["best_score"]
        trainer.best_score = (first, second)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
