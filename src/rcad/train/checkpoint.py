"""A run in progress as one file: tensors in safetensors, the rest as JSON in its header. No pickle anywhere."""

from __future__ import annotations

import json
import math
import os
import stat
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rcad.errors import InputError, command, shaped
from rcad.runs.files import (
    KEY,
    NO_SUM,
    READABLE,
    SUM,
    DamagedError,
    OtherVersionError,
    check_tensors,
    make_folder,
    replacing,
    seal_tensors,
)
from rcad.runs.plain import config_id
from rcad.runs.store import BEFORE
from rcad.train.loop import Trainer
from rcad.train.task import same_data

VERSION = "1"
MOST_THREADS = 4096  # more than any machine has: what asks for a billion threads takes the process down
_UNUSABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What torch and Python say of values that are not a trainer's."""


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any], *, keep_as: str | None = None) -> None:
    """Writes the file whole or not at all, with its checksum; equal content gives equal bytes.

    The file that was there gets the name `keep_as`; without one it goes.
    """
    # Cloned on the CPU: safetensors refuses tensors that share memory, and views of larger ones.
    plain = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    # One key: several come in an arbitrary order.
    header = {KEY: json.dumps({SUM: NO_SUM, "version": VERSION, "meta": meta})}
    make_folder(path.parent)
    with replacing(path) as temporary:
        temporary.touch()
        mode = stat.S_IMODE(temporary.stat().st_mode)
        try:
            save_file(plain, str(temporary), metadata=header)
        except SafetensorError as error:  # how it tells of a full disk
            raise OSError(str(error)) from None
        os.chmod(temporary, mode)  # safetensors would let nobody else read it, whatever the umask says
        seal_tensors(temporary)
        if keep_as is not None and path.is_file():
            os.replace(path, path.with_name(keep_as))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; a damaged file is a DamagedError, one that may not be read an InputError."""
    try:
        check_tensors(path)
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, _meta(header, path)
    except OtherVersionError:
        raise
    except PermissionError:
        owner = f"its owner can allow it: {command('chmod', 'a+r', str(path))}"
        raise InputError(f"expected {path} to be {READABLE}, but got: Permission denied; {owner}") from None
    except (SafetensorError, OSError, *_UNUSABLE) as error:
        raise _damaged(path, getattr(error, "strerror", None) or error) from None


def _damaged(path: Path, error: Exception | str) -> DamagedError:
    reason = " ".join(str(error).split())
    return DamagedError(path, f"expected {path} to be whole, but got: {reason}", "remove it to start over")


def _meta(header: dict[str, str], path: Path) -> dict[str, Any]:
    """What was saved beside the tensors."""
    content = json.loads(header[KEY])
    if content["version"] != VERSION:
        got = content["version"]
        raise OtherVersionError(f"expected a checkpoint of version {VERSION} in {path}, but got {got!r}")
    if not isinstance(content["meta"], dict):
        raise TypeError("no table beside its tensors")
    return dict(content["meta"])


_META = {
    **dict.fromkeys(("epoch", "step", "best_epoch", "threads"), int),
    **dict.fromkeys(("run", "data"), str),
    "rows": [{str: (Real, None)}],  # of a validation that went wrong a number may be infinite
    "seconds": float,
    "best_score": ([Real], None),
}
"""What a checkpoint says beside its tensors, at least."""


def save_trainer(trainer: Trainer, path: Path) -> None:
    """Everything that decides what the trainer does next; the checkpoint before this one is kept beside it.

    Of several processes all call it, and the first one writes. Any number of them can go on from it.
    """
    sums = trainer.ranks.summed(trainer.sums)
    if trainer.ranks.leads:
        tensors, meta = _state(trainer)
        save_tensors(path, {**tensors, "sums": sums}, meta, keep_as=BEFORE)


def share_trainer(trainer: Trainer) -> None:
    """Makes every process go on where the first one stands."""
    ranks = trainer.ranks
    if ranks.size == 1:
        return

    def state() -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        tensors, meta = _state(trainer)
        return ({name: value.detach().cpu() for name, value in tensors.items()}, meta) if trainer.begun else None

    first = ranks.of_first(state)
    if first is not None and not ranks.leads:
        _put(trainer, *first)
        trainer.sums.zero_()  # those of all are the first one's
        trainer.seed_dropout()


def restore_trainer(trainer: Trainer, path: Path) -> None:
    """Makes a fresh trainer of the same config go on where the saved one stood; it stays as it is on a DamagedError."""
    tensors, meta = load_tensors(path)
    try:
        meta = shaped("the checkpoint", meta, _META)
        shaped("the checkpoint", meta, {"rows": [{"epoch": float}]})
    except InputError as error:
        raise _damaged(path, error) from None
    if meta["run"] != config_id(trainer.config):
        raise _damaged(path, f"the checkpoint of run {meta['run']}")
    if not same_data(meta["data"], trainer.problem.fingerprint):
        raise _damaged(path, "a checkpoint that was made from other data")
    fresh, nothing_done = _state(trainer)
    fresh = {name: value.detach().clone() for name, value in fresh.items()}
    try:
        _put(trainer, tensors, meta)
    except _UNUSABLE as error:
        _put(trainer, fresh, nothing_done)
        raise _damaged(path, error) from None


def _state(trainer: Trainer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {f"model.{name}": value for name, value in trainer.model.state_dict().items()}
    tensors |= {f"optim.{name}": value for name, value in _optimizer_tensors(trainer.optimizer).items()}
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
        "run": config_id(trainer.config),
        "data": trainer.problem.fingerprint,
        "threads": torch.get_num_threads(),
        "epoch": trainer.epoch,
        "step": trainer.step,
        "rows": trainer.rows,
        "seconds": trainer.seconds,
        "best_epoch": trainer.best_epoch,
        "best_score": list(trainer.best_score) if trainer.best_epoch else None,
    }
    return tensors, meta


def _put(trainer: Trainer, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    trainer.model.load_state_dict(_under("model.", tensors))
    _restore_optimizer(trainer.optimizer, _under("optim.", tensors))
    trainer.best_weights = {n: v.to(trainer.problem.device) for n, v in _under("best.", tensors).items()}
    if trainer.average is not None:
        trainer.average.load_state_dict(_under("average.", tensors))
    trainer.x, trainer.y = trainer.stepper.update.x, trainer.stepper.update.y = trainer.problem.train
    if "grown.x" in tensors:
        trainer.enlarge(tensors["grown.x"].to(trainer.x.device), tensors["grown.y"].to(trainer.y.device))
    trainer.sums.copy_(tensors["sums"])
    trainer.generator.set_state(tensors["rng.noise"])
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors and trainer.problem.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["rng.cuda"], trainer.problem.device)
    trainer.epoch, trainer.step = int(meta["epoch"]), int(meta["step"])
    trainer.rows, trainer.seconds = [dict(row) for row in meta["rows"]], float(meta["seconds"])
    first, second = (-math.inf, -math.inf) if meta["best_score"] is None else meta["best_score"]
    trainer.best_epoch, trainer.best_score = int(meta["best_epoch"]), (float(first), float(second))
    if trainer.problem.device.type == "cpu":
        # Sums come out otherwise on another number of threads: the run would be neither's.
        if not 1 <= (threads := int(meta["threads"])) <= MOST_THREADS:
            raise ValueError(f"{threads} threads")
        torch.set_num_threads(threads)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's memory as tensors named "<parameter index>.<key>"; the rate follows from the schedule."""
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, memory in state.items()
        for key, value in memory.items()
        if value is not None
    }


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Gives the optimizer the memory that `_optimizer_tensors` took; a ValueError where it is of others."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        shape = torch.Size() if key == "step" else parameters[int(index)].shape
        if value.shape != shape or (key == "step" and not 0 <= value.item() < 2**53):
            raise ValueError(f"a memory of the optimizer, {name}, that fits no parameter")
        state.setdefault(int(index), {})[key] = value
    keys = {"step", "exp_avg", "exp_avg_sq"} if isinstance(optimizer, torch.optim.AdamW) else {"momentum_buffer"}
    if any(memory.keys() != keys for memory in state.values()):
        raise ValueError("a memory of the optimizer that is not whole")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
