"""A finished run that predicts from new examples: arrays, frames, tables and image files; its data may be gone."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rcad.data.arrays import read_arrays
from rcad.data.dataset import Progress, no_progress
from rcad.data.decoding import ColourError, decode, is_image_name
from rcad.data.files import read_bytes
from rcad.data.table_encoder import TableFeatures
from rcad.data.table_files import Table, frame_table, list_names, read_table
from rcad.errors import InputError, expanded, fitting, html_table, need, shaped, shown, without_advice
from rcad.evaluate.corruptions.generated import LUMA
from rcad.evaluate.regression import check_coverage
from rcad.hub import PREFIX, Address, Repository
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Gaussian
from rcad.loss.model_calls import logits_of
from rcad.runs.files import replacing

if TYPE_CHECKING:
    from rcad.runs.record import RunRecord

log = logging.getLogger("rcad")
BATCH = 256
ALL_BROKEN = "expected images that can be read in"
Array = npt.NDArray[Any]
_TARGET = {"mean": float, "scale": float, "unit": (str, None)}
_PREPROCESSING = {"classes": [str], "columns": [str], "shape": ([int], None), "target": (_TARGET, None)}
"""What a run keeps beside its weights."""


class Part(NamedTuple):
    """Some of the examples: names of each, pixels (B, C, H, W) or features (B, D), and what is wrong with others."""

    names: list[tuple[str, ...]]
    x: Tensor
    bad: tuple[str, ...] = ()


class Examples(NamedTuple):
    """All of them: how many, what their names are, and the parts, read as they are taken."""

    total: int
    headers: tuple[str, ...]
    parts: Iterator[Part]


@dataclass(frozen=True)
class ImageInputs:
    """How images were given to the model: their shape (C, H, W), and the side they were brought to, if any."""

    shape: tuple[int, ...]
    size: int | None

    def __str__(self) -> str:
        channels, height, width = self.shape
        return f"{'grey' if channels == 1 else 'colour'} images of {width}x{height}" + (", resized" * bool(self.size))

    def read(self, x: Any, *, skip_bad: bool = False) -> Examples:
        if isinstance(x, str | Path):
            path = expanded(x)
            if path.suffix.lower() == ".npy":
                return self._array(read_arrays(path)[""], str(path))
            return self._files(path, skip_bad)
        images = x if isinstance(x, list | tuple) else [x]
        if images and all(hasattr(image, "getexif") for image in images):  # Pillow's
            return self._resized(images)
        return self._array(x, "the array")

    def _resized(self, images: Sequence[Any]) -> Examples:
        """Pillow's images, brought to the run's size as those of files are."""
        pixels = np.stack([self._fitted(image, f"image {k}") for k, image in enumerate(images, 1)])
        return Examples(len(pixels), ("row",), _parts(_numbered(len(pixels)), torch.from_numpy(pixels)))

    def _array(self, x: Any, origin: str) -> Examples:
        pixels = _tensor(x)
        if pixels.ndim == 3 and self.shape[0] == 1:
            pixels = pixels[:, None]
        if pixels.dtype != torch.uint8 and len(pixels):
            pixels = pixels.float()
            low, high = pixels.min().item(), pixels.max().item()
            if not (low >= 0 and high <= 1):
                raise InputError(
                    f"expected uint8 pixels or numbers in [0, 1] in {origin}, but got values from {low:.4g} to "
                    f"{high:.4g}; divide pixels by the largest there can be, and do not normalise them"
                )
        shape = tuple(pixels.shape[1:])
        if self.size and len(pixels) and shape != self.shape and len(shape) == 3 and shape[0] == self.shape[0]:
            bytes_ = pixels if pixels.dtype == torch.uint8 else (255 * pixels).round().byte()
            rows = bytes_.cpu().permute(0, 2, 3, 1).numpy()
            rows = rows[..., 0] if self.shape[0] == 1 else rows
            return self._resized([need("PIL.Image", "pillow").fromarray(row) for row in rows])
        if shape != self.shape or not len(pixels):
            wanted = ", ".join(map(str, self.shape))
            raise InputError(
                f"expected images of shape (N, {wanted}) in {origin}, but got {tuple(pixels.shape)}; bring them to it"
            )
        return Examples(len(pixels), ("row",), _parts(_numbered(len(pixels)), pixels))

    def _files(self, path: Path, skip_bad: bool) -> Examples:
        root, paths = (path, path.rglob("*")) if path.is_dir() else (path.parent, [path])
        files = [file.relative_to(root) for file in paths if file.is_file() and is_image_name(file.name)]
        names = sorted(str(file) for file in files if not any(part.startswith(".") for part in file.parts))
        if not names:
            got = "nothing; check the path"
            if path.exists():
                got = "none there" if path.is_dir() else "a file of another kind; the run was trained on images"
            raise InputError(f"expected an image or a folder with images at {path}, but found {got}")
        return Examples(len(names), ("file",), self._decoded(root, names, skip_bad))

    def _decoded(self, root: Path, names: Sequence[str], skip_bad: bool) -> Iterator[Part]:
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(names), BATCH):
                batch = names[start : start + BATCH]
                images = dict(zip(batch, pool.map(self._image, [root / name for name in batch]), strict=True))
                errors = [error for error in images.values() if isinstance(error, InputError)]
                if errors and not skip_bad:
                    raise errors[0]
                good = {name: image for name, image in images.items() if not isinstance(image, InputError)}
                pixels = np.stack(list(good.values())) if good else np.empty((0, *self.shape), np.uint8)
                yield Part([(name,) for name in good], torch.from_numpy(pixels), tuple(map(str, errors)))

    def _image(self, path: Path) -> npt.NDArray[np.uint8] | InputError:
        """The pixels of a file, or what is wrong with it."""
        try:
            return self._fitted(read_bytes(path), str(path))
        except InputError as error:
            return error

    def _fitted(self, image: Any, origin: str) -> npt.NDArray[np.uint8]:
        """The pixels (C, H, W) of a file's bytes or of Pillow's image, in the run's colours and size."""
        try:
            pixels = decode(image, origin, self.size, grey=self.shape[0] == 1)
        except ColourError:
            pixels = np.rint(np.tensordot(LUMA, decode(image, origin, self.size), 1)).astype(np.uint8)[None]
        if pixels.shape == self.shape:
            return pixels
        (_, height, width), got = self.shape, f"{pixels.shape[2]}x{pixels.shape[1]}"
        raise InputError(
            f"expected images of {width}x{height} as in training, but got {got} in {origin}; bring it to that size, or "
            f"train with --size {min(height, width)}, which resizes new images too"
        )


@dataclass(frozen=True)
class TableInputs(TableFeatures):
    """How the rows of a table were given to the model: its columns by name, and the scales of the training rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.scales.mean) + len(self.scales.indicators),)

    def __str__(self) -> str:
        return f"{len(self.encoder.codes)} columns: {list_names([code.name for code in self.encoder.codes])}"

    def read(self, x: Any, *, skip_bad: bool = False) -> Examples:
        table = self._table(x)
        # Columns that name the rows predict nothing, but tell them apart.
        headers = [name for name, _ in self.encoder.left_out if name in table.names and name != "row"]
        names = _numbered(len(table))
        for header in headers:
            texts = table.text(header).texts()
            names = [(*before, text or "") for before, text in zip(names, texts, strict=True)]
        features = torch.from_numpy(self.scales.transform(self.encoder.transform(table)))
        self._warn_of_levels(table)
        return Examples(len(table), ("row", *headers), _parts(names, features))

    def _table(self, x: Any) -> Table:
        if isinstance(x, str | Path):
            return read_table(expanded(x), least=1)
        if hasattr(x, "columns") and hasattr(x, "iloc"):
            table = frame_table(x)
        else:
            rows, names = _tensor(x).double().cpu().numpy(), [code.name for code in self.encoder.codes]
            if rows.ndim != 2 or rows.shape[1] != len(names):
                raise InputError(f"expected rows with {self}; but got shape {rows.shape}")
            table = Table(
                Path("the array"), dict(zip(names, rows.T, strict=True)), len(rows), lambda row: f"row {row + 1}"
            )
        if not len(table):
            raise InputError("expected at least one row, but got none")
        return table

    def _warn_of_levels(self, table: Table) -> None:
        unknown = []
        for code in (code for code in self.encoder.codes if code.levels is not None and code.name in table.names):
            text = table.text(code.name)
            new = [level for level in text.levels if level not in (code.levels or ())]
            if new:
                unknown.append(f"{code.name!r} ({shown(new[0])}{', ...' if len(new) > 1 else ''})")
        if unknown:
            log.warning("categories that training did not have count as unknown: %s", ", ".join(unknown))


def _tensor(x: Any) -> Tensor:
    try:
        return x.detach() if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(x))
    except (TypeError, ValueError):
        raise InputError(f"expected an array of numbers, a frame or a path, but got {shown(x)}") from None


def _numbered(count: int) -> list[tuple[str, ...]]:
    return [(str(row),) for row in range(1, count + 1)]


def _parts(names: Sequence[tuple[str, ...]], x: Tensor) -> Iterator[Part]:
    for start in range(0, len(x), BATCH):
        yield Part(list(names[start : start + BATCH]), x[start : start + BATCH])


@dataclass(frozen=True, eq=False, repr=False)
class Predictor:
    """What `rcad.load` gives.

    `x` is everywhere: a folder with images, an image file, one of Pillow's images or a list of them, or uint8 pixels or
    numbers in [0, 1] of shape (N, C, H, W), resized if the run's were; for a table a CSV, TSV, Parquet or NumPy file, a
    pandas frame, or an array of the columns in the order of training. `skip_bad` leaves out files that cannot be
    decoded, with a warning that names them; answers are then those of the other files, sorted by name.

    Attributes:
        model: in eval mode, without gradients; takes what `preprocessing` makes of examples.
        classes: their names in the order of the probabilities; empty for a regression target.
        target: mean and scale of a regression target in training; None for classes.
        unit: of a regression target, where the run knows it: "days since 1970-01-01" for dates.
    """

    record: RunRecord
    model: nn.Module
    classes: tuple[str, ...]
    preprocessing: ImageInputs | TableInputs
    target: tuple[float, float] | None
    device: torch.device
    unit: str = ""

    def predict(self, x: Any, return_std: bool = False, *, skip_bad: bool = False) -> Any:
        """The names of the most probable classes (N,); or means (N,), with `return_std` and deviations, a pair."""
        if self.classes:
            return np.asarray(self.classes)[self._all(x, skip_bad).argmax(1)]
        mean, deviation = self._all(x, skip_bad).T
        return (mean, deviation) if return_std else mean

    def predict_proba(self, x: Any, *, skip_bad: bool = False) -> Array:
        """The probabilities of the classes, (N, K)."""
        if not self.classes:
            raise InputError(
                f"expected a classifier, but run {self.record.id} predicts a number; use predict(x, return_std=True)"
            )
        return self._all(x, skip_bad)

    def predict_interval(self, x: Any, coverage: float = 0.9, *, skip_bad: bool = False) -> Array:
        """The central interval that holds the target with probability `coverage`, if the model is right: (N, 2)."""
        if self.classes:
            raise InputError(
                f"expected a regression target, but run {self.record.id} predicts classes; use predict_proba(x)"
            )
        return intervals(self._all(x, skip_bad), coverage)

    def export(self, path: str | Path, to: str | None = None) -> float:
        """Write a file that other programs run, and check it: see `rcad.predict.export.export`."""
        from rcad.predict.export import export

        return export(self, expanded(path), to)

    def answers(self, examples: Examples, progress: Progress = no_progress) -> Iterator[tuple[Part, Array]]:
        """Part by part the probabilities (B, K), or mean and deviation (B, 2) in the target's own unit."""
        done = 0
        progress(done, examples.total)
        for part in examples.parts:
            with torch.no_grad():
                output = logits_of(self.model(as_unit_float(part.x.to(self.device)))).double()
            yield part, answer(output, self.target).cpu().numpy()
            done += len(part.names) + len(part.bad)
            progress(done, examples.total)

    def _all(self, x: Any, skip_bad: bool) -> Array:
        examples, answers, bad = self.preprocessing.read(x, skip_bad=skip_bad), [], list[str]()
        for part, values in self.answers(examples):
            answers.append(values)
            bad += part.bad
        if len(bad) == examples.total:
            raise InputError(f"{ALL_BROKEN} {x}, but all are broken, e.g.: {without_advice(bad[0])}")
        if bad:
            names = ", ".join(map(without_advice, bad[:3])) + ", ..." * (len(bad) > 3)
            log.warning("%d of %d images left out: %s", len(bad), examples.total, names)
        return np.concatenate(answers)

    def _about(self) -> dict[str, str]:
        from rcad.runs.words import leading, metric, title

        metrics = self.record.metrics
        predicts = "a number, with its deviation" + (f", in {self.unit}" if self.unit else "")
        if self.classes:
            names = f"{', '.join(self.classes[:8])}{', ...' if len(self.classes) > 8 else ''}"
            predicts = f"{len(self.classes)} classes: {names}"
        return {
            "run": self.record.id,
            "trained": title(self.record.config),
            "model": self.record.resolved.get("model", type(self.model).__name__),
            "takes": str(self.preprocessing),
            "predicts": predicts,
            "test": self.record.message
            or ", ".join(f"{name} {metric(name, metrics[name])}" for name in leading(metrics, 3)),
        }

    def __repr__(self) -> str:
        return "\n".join(f"{name:9}{text}" for name, text in self._about().items())

    def _repr_html_(self) -> str:
        return html_table(self._about())


def answer(output: Tensor, target: tuple[float, float] | None) -> Tensor:
    """The probabilities (B, K) of logits; or of a Gaussian head the mean and deviation (B, 2) in the target's unit."""
    if target is None:
        return output.softmax(1)
    center, scale = target
    deviation = (output[:, 1] / 2).clamp(min=Gaussian.floor / 2).exp()
    return torch.stack([center + scale * output[:, 0], scale * deviation], 1)


def intervals(moments: Array, coverage: float) -> Array:
    """Of means and deviations (N, 2) the central intervals (N, 2)."""
    check_coverage(coverage)
    half = NormalDist().inv_cdf(0.5 + coverage / 2) * moments[:, 1]
    return np.stack([moments[:, 0] - half, moments[:, 0] + half], axis=1)


def fetch_run(address: str) -> Path:
    """The folder of a run that the Hub keeps, in the cache: safetensors and JSON, verified; nothing is executed."""
    from rcad.data.cache import cache_root
    from rcad.data.elsewhere import linked
    from rcad.runs.record import RUN
    from rcad.runs.store import CONFIG, RECORD, WEIGHTS

    cache = cache_root()
    repository = Repository(Address.parse(address), "model", cache / "hub")
    names = (RECORD, CONFIG, WEIGHTS)
    for name in names:
        if name not in repository.names:
            raise InputError(f"expected {name} in {repository.address}, but it has none; was it sent by rcad push?")
    files = repository.fetch(names)
    run = RUN.read(files[RECORD], f"{RECORD} of {repository.address}").id
    return linked(cache, str(repository), {f"{run}/{name}": path for name, path in files.items()}) / run


def write_csv(
    predictor: Predictor,
    data: str | Path,
    out: Path,
    *,
    coverage: float = 0.9,
    skip_bad: bool = False,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Write a row for each example: its file or number, the prediction, and how sure it is; whole or not at all.

    For classes the probability of the predicted one and those of all (`p_NAME`); for regression the deviation and the
    interval that holds it with probability `coverage`. Returns a summary: how many, what was skipped and predicted.
    """
    if out.suffix.lower() != ".csv":
        raise InputError(f"expected --out to be a file that ends in .csv, but got {out}; rename it")
    out, data = expanded(out), expanded(data)
    if out.resolve() == data.resolve():
        raise InputError(f"expected --out to be another file than --data, but both are {out}; it would be replaced")
    before = read_bytes(out) if out.is_file() else b""
    if before and b",prediction," not in before.partition(b"\n")[0]:
        raise InputError(
            f"expected --out to be a new file or earlier predictions, but {out} is neither; name a new one"
        )
    check_coverage(coverage)
    classes, counts, means = predictor.classes, Counter[str](), list[float]()
    examples, bad = predictor.preprocessing.read(data, skip_bad=skip_bad), list[str]()
    own = ("probability", *(f"p_{name}" for name in classes)) if classes else ("deviation", "low", "high")
    with replacing(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*examples.headers, "prediction", *own])
        for part, values in predictor.answers(examples, progress):
            bad += part.bad
            if classes:
                labels = [classes[k] for k in values.argmax(1)]
                columns = np.column_stack([values.max(1, initial=0), values])
                counts.update(labels)
            else:
                labels = [f"{mean:.8g}" for mean in values[:, 0]]
                columns = np.column_stack([values[:, 1], intervals(values, coverage)])
                means += values[:, 0].tolist()
            for names, label, numbers in zip(part.names, labels, columns, strict=True):
                writer.writerow([*names, label, *(f"{number:.8g}" for number in numbers)])
        if len(bad) == examples.total:
            raise InputError(f"{ALL_BROKEN} {data}, but all are broken, e.g.: {without_advice(bad[0])}")
    if before not in (b"", out.read_bytes()):
        log.warning("replaced other predictions: %s", out)
    summary: dict[str, Any] = {"examples": examples.total - len(bad), "skipped": bad}
    if classes:
        return {**summary, "classes": {name: counts[name] for name in classes}}
    return {**summary, "mean": float(np.mean(means)), "least": min(means), "most": max(means), "coverage": coverage}


def load(run: str | Path, *, runs: str | Path = "runs", device: str = "auto") -> Predictor:
    """A finished run, ready to predict; its training data need not be there.

    Args:
        run: the folder of a run ("runs/3f2a…", its name may be cut short), or an id or the start of one in `runs`, or
            "last" for the run that was done last; or one that `rcad push` has sent to the Hub,
            "hf:owner/name" or "hf:owner/name@revision".
        runs: the folder of runs.
        device: "auto", "cpu" or "cuda".

    >>> classifier = rcad.load("runs/3f2a")  # doctest: +SKIP
    >>> classifier.predict_proba("new_images/")  # doctest: +SKIP
    """
    from rcad.evaluate.saved_run.loading import finished, load_weights, restore, retrain_advice
    from rcad.runs.store import Store
    from rcad.train.machine import pick_device
    from rcad.train.task import as_built, model_for

    path = fetch_run(str(run)) if str(run).startswith(PREFIX) else Path(run)
    is_folder = len(path.parts) > 1 or path.is_dir()
    store = Store.open(path.parent if is_folder else runs, create=False)
    record = finished(store, path.name)
    tensors, state = load_weights(store, record.id)
    inputs: ImageInputs | TableInputs
    with fitting(f"the weights of run {record.id}", retrain_advice(store, record.id)):
        state = shaped(f"the weights of run {record.id}", state, _PREPROCESSING)
        if "features" in state:
            inputs, mean, std = TableInputs.of_run(state), None, None
        elif state["shape"] is not None:
            inputs = ImageInputs(tuple(state["shape"]), record.config.data.size)
            # Placeholders: those of training come with the weights.
            mean, std = [0.0] * inputs.shape[0], [1.0] * inputs.shape[0]
        else:
            raise InputError(
                f"expected the weights of run {record.id} to say the size of its images, but it was trained by an "
                f"earlier version; {retrain_advice(store, record.id)}"
            )
    model, where = model_for(as_built(record), inputs.shape, len(state["classes"]), mean, std), pick_device(device)
    model = restore(model, tensors, store, record.id, where)
    target = state["target"] and (state["target"]["mean"], state["target"]["scale"])
    unit = (state["target"] or {}).get("unit") or ""
    return Predictor(record, model, tuple(state["classes"]), inputs, target, where, unit)
