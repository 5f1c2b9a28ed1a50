"""A finished run brought back: its weights and its data, split as they were; and data that no run was made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rcad.data.dataset import Dataset, parse_spec
from rcad.data.decoding import SizesDifferError, decode, is_image_name
from rcad.data.files import read_bytes
from rcad.data.registry import find, load, recognise
from rcad.data.table_encoder import TableFeatures
from rcad.data.table_files import Table
from rcad.data.tables import read_splits
from rcad.errors import InputError
from rcad.evaluate.attack_search import draw_rows, watched
from rcad.evaluate.corruptions.generated import grey
from rcad.evaluate.saved_run.settings import LIMITS, NOISE, Settings
from rcad.loss.growth import as_unit_float
from rcad.loss.model_calls import Forward
from rcad.runs.config import DataConfig
from rcad.runs.files import DamagedError
from rcad.runs.pack import is_pack
from rcad.runs.record import NO_TEST, RunRecord
from rcad.runs.store import WEIGHTS, Store
from rcad.train.checkpoint import load_tensors
from rcad.train.machine import pick_device
from rcad.train.step import in_parts
from rcad.train.task import SMALL_IMAGE, Problem, as_built, model_of, prepare, read, same_data

OnStep = Callable[[str, int, int], None]
"""Called with a step of a suite in words, and how much of it is done of how much."""
BATCH = 512


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A trained model, in eval mode and without gradients, with the problem it was trained on."""

    record: RunRecord
    problem: Problem
    model: nn.Module
    loader: RunLoader

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.problem.test[0].shape[1:])

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def bounds(self) -> tuple[float, float] | None:
        return (0.0, 1.0) if self.is_image else None

    def limit(self, suite: str, settings: Settings) -> int:
        on_gpu, few, many = LIMITS[suite]
        small = not self.is_image or max(self.shape[1:]) <= SMALL_IMAGE
        usual = on_gpu if self.problem.device.type != "cpu" else few if small else many
        total = len(self.problem.test[1])
        return min((usual if settings.limit is None else settings.limit) or total, total)

    def examples(self, suite: str, settings: Settings) -> tuple[Tensor, Tensor]:
        """The test examples of a suite: the same ones for every run with this test split."""
        x, y = self.problem.test
        rows = draw_rows(len(y), self.limit(suite, settings), settings.seed).to(y.device)
        return x[rows], y[rows]

    def outputs(self, x: Tensor) -> Tensor:
        """What the model says about inputs as the problem holds them, in float32."""
        device = self.problem.device
        with watched(self.model, device):
            forward = Forward(self.model)
            return torch.cat([forward(as_unit_float(part.to(device))).float() for part in in_parts(x, BATCH)])


@dataclass
class RunLoader:
    """Brings runs back; data that several of them share are read once."""

    store: Store
    data_dir: Path | None = None
    cache_dir: Path | None = None
    device: str = "auto"
    _datasets: dict[Any, Dataset] = field(default_factory=dict)

    def load(self, run: str) -> SavedRun:
        """The run of this id or prefix; it must be done, with its weights, on the data it was made from."""
        record = finished(self.store, run)
        if not record.config.data.test_fraction:
            raise InputError(
                f"expected a run with test examples, but {record.id} has {NO_TEST} (data.test_fraction=0); train "
                "another one without that setting to evaluate"
            )
        bare = as_built(record)
        try:
            dataset = self.dataset(record.config.data)
        except SizesDifferError:  # they did not when it was trained
            raise InputError(self._changed(record)) from None
        except InputError as error:
            raise InputError(f"{error} (or point --data-dir to where the run's data lie)") from None
        problem = prepare(bare, dataset, pick_device(self.device))
        if not same_data(record.data_sha256, problem.fingerprint):
            raise InputError(self._changed(record))
        tensors, _ = load_weights(self.store, record.id)
        model = restore(model_of(bare, problem), tensors, self.store, record.id, problem.device)
        return SavedRun(record, problem, model, self)

    def _changed(self, record: RunRecord) -> str:
        return (
            f"expected the data that run {record.id} was made from, but {record.config.data.name} has changed since; "
            f"point --data-dir to the old data, or {retrain_advice(self.store, record.id)}"
        )

    def dataset(self, config: DataConfig) -> Dataset:
        # The count in name[:count] is applied later: subsets of one set share its data.
        key = replace(config, name=parse_spec(config.name)[0])
        if key not in self._datasets:
            self._datasets[key] = read(config, self.data_dir, self.cache_dir)
        return self._datasets[key]

    def other(self, name: str, size: int | None = None) -> Dataset:
        """A data set that no run names; `size` is for images whose sizes differ."""
        key = (name, size)
        if key not in self._datasets:
            read_with = partial(load, name, data_dir=self.data_dir, cache_dir=self.cache_dir)
            try:
                self._datasets[key] = read_with()
            except SizesDifferError:
                self._datasets[key] = read_with(size=size)
        return self._datasets[key]


def weights_of(store: Store, run: str) -> Path:
    return store.folder(run) / WEIGHTS


def load_weights(store: Store, run: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a finished run, and how examples are prepared for them (`Problem.preprocessing`)."""
    path = weights_of(store, run)
    try:
        tensors, meta = load_tensors(path)
    except DamagedError as error:
        raise DamagedError(path, error.words, store.remedy(run)) from None
    other, data = meta.pop("run", run), str(meta.pop("data", ""))
    if other != run or not same_data(data, store.get(run).data_sha256):
        whose = "of other data" if other == run else f"of run {other}"
        words = f"expected the weights of run {run} in {path}, but got those {whose}"
        raise DamagedError(path, words, store.remedy(run))
    return tensors, meta


def restore(model: nn.Module, tensors: dict[str, Tensor], store: Store, run: str, device: torch.device) -> nn.Module:
    """The model with a run's weights, on the device, in eval mode and without gradients."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError:
        raise InputError(
            f"expected the weights of {type(model).__name__} in {weights_of(store, run)}, "
            f"but they are of another model; {store.remedy(run)}"
        ) from None
    return model.to(device).eval().requires_grad_(False)


def retrain_advice(store: Store, run: str) -> str:
    """What to do about a run that is done, and so is not made again by the command that made it."""
    return f"remove the run (rcad runs prune {run} --yes{store.option}) and train it again"


def finished(store: Store, run: str) -> RunRecord:
    """The record of a run that can be evaluated."""
    record = store.get(run)
    if record.status == "diverged":
        raise InputError(
            f"expected a finished run, but {record.id} diverged and has no weights; train another with a smaller "
            f"learning rate (its --lr was {record.config.optim.lr:g})"
        )
    if record.status != "done":
        raise InputError(f"expected a finished run, but {record.id} is {record.status}; train it to its end first")
    if is_pack(pack := store.where(record.id)):
        raise InputError(
            f"expected the weights of run {record.id}, but {pack} holds records alone; train it in another folder"
        )
    if not weights_of(store, record.id).is_file():
        raise InputError(
            f"expected the weights of run {record.id} in {weights_of(store, record.id)}, but they are missing; "
            f"{store.remedy(record.id)}"
        )
    return record


def foreign_inputs(saved: SavedRun, name: str, count: int, seed: int) -> Tensor:
    """Up to `count` foreign inputs as the model takes them: from a data set, its test part if it has one, or noise."""
    if name == NOISE:
        sample = torch.rand if saved.is_image else torch.randn
        return sample((count, *saved.shape), generator=torch.Generator().manual_seed(seed)).to(saved.problem.device)
    if name == parse_spec(saved.record.config.data.name)[0]:
        raise InputError(f"expected another data set than the run's own, but got {name!r}; name one, or noise")
    table, dataset, device = _table_file(saved, name), None, saved.problem.device
    if table is None:
        try:
            if saved.is_image and (files := _flat_images(saved, name)):
                rows, side = draw_rows(len(files), count, seed).tolist(), max(saved.shape[1:])
                pixels = np.stack([decode(read_bytes(files[row]), str(files[row]), side) for row in rows])
                return as_images(torch.from_numpy(pixels).to(device), saved.shape)
            dataset = saved.loader.other(name, max(saved.shape[1:]) if saved.is_image else None)
        except SizesDifferError:  # images, of no use for a table in any size
            if saved.is_image:
                raise
        except InputError as error:  # without the advice of an option that `rcad evaluate` does not have
            raise InputError(str(error).replace(", or pass --skip-bad", "")) from None
    if (table is None and (dataset is None or dataset.is_image)) != saved.is_image:
        own, other = ("images", "a table") if saved.is_image else ("a table", "images")
        raise InputError(f"expected {own} as the run was trained on, but {name} holds {other}; name another set")
    if dataset is not None:
        part = dataset.train if dataset.test is None else dataset.test
        x = part.x[draw_rows(len(part), count, seed).numpy()]
        if saved.is_image:
            return as_images(torch.from_numpy(x.copy()).to(device), saved.shape)
        names = dataset.columns or [f"x{j}" for j in range(x.shape[1])]
        table = Table(Path(name), dict(zip(names, x.T, strict=True)), len(x), lambda row: f"row {row}")
    assert table is not None
    features = TableFeatures.of_run(saved.problem.preprocessing).transform(table)
    return torch.from_numpy(features[draw_rows(len(table), count, seed).numpy()]).to(device)


def _flat_images(saved: SavedRun, name: str) -> list[Path]:
    """The images of a folder that holds no data set, at any depth: foreign data need no labels."""
    path = find(name, saved.loader.data_dir)
    if path is None or not path.is_dir() or recognise(path) is not None:
        return []
    return sorted(file for file in path.rglob("*") if is_image_name(file.name) and file.is_file())


def _table_file(saved: SavedRun, name: str) -> Table | None:
    """The table of a file or folder, its test part if it has one; None where it is something else."""
    path = find(name, saved.loader.data_dir)
    recognised = None if path is None else recognise(path)
    if recognised is None or recognised.layout != "tabular":
        return None
    splits = read_splits(recognised.path)
    return splits.get("test", splits["train"])


def as_images(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """uint8 images brought to (C, H, W): grey becomes equal channels or their luminance, the size is interpolated."""
    pixels = x.float() / 255
    if pixels.shape[1] != shape[0]:
        pixels = grey(pixels).expand(-1, shape[0], -1, -1)
    if pixels.shape[2:] != shape[1:]:
        pixels = F.interpolate(pixels, size=shape[1:], mode="bilinear", antialias=True)
    return pixels.clamp(0, 1)
