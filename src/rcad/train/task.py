"""From a config and its data to tensors on the device: what the loop trains on, in which units, and its numbers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from rcad.data.dataset import Dataset, Split, Splits, index_hash, parse_spec, resolve
from rcad.data.registry import load
from rcad.data.scaling import Standardizer, TargetScaler
from rcad.errors import InputError, is_number
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from rcad.loss.method_rows import AUTO as AUTO
from rcad.loss.method_rows import CHANGED, MethodRow, rows_to_plain
from rcad.loss.methods import Method, compose, gaussian
from rcad.loss.model_calls import evaluating, logits_of
from rcad.loss.predictions import BINS, Labelled, label_scores, top_label_error, value_scores
from rcad.loss.suggest_alpha import REAL_STEP, SAMPLE, among_reals, suggest_alpha
from rcad.loss.terms import weight_for
from rcad.models import build
from rcad.runs.config import DataConfig, RunConfig
from rcad.runs.record import RunRecord
from rcad.train.place import Place
from rcad.train.progress import SILENT, Progress
from rcad.train.step import ALONE, Ranks, Streamed, in_parts

if TYPE_CHECKING:
    from rcad.data.streams import Stream


def derived(seed: int, *purpose: str | int) -> int:
    """A seed for a purpose, e.g. derived(0, "batches", 3); the same on every machine."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


MEASURABLE = ("rcad", "rcad_random", "rcad_released")
SMALL_IMAGE = 16  # up to this many pixels a side, model "auto" is the small CNN
FEW_IMAGES, FEW_SIDE = 5_000, 32
"""It is too for so few training images of this size; for more and larger ones it is ResNet-18."""
BUILT = {"SmallCNN": "small_cnn", "MLP": "mlp", "ResNet": "resnet18"}
"""What a record says of the networks that "auto" chooses among."""
SAME_ALPHA = 1e-3  # a measured alpha is written with four digits, or four decimals
LARGEST_UNCAPPED = 0.9  # from this lambda on a Gaussian's entropy without a cap outgrows the loss that holds it


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything the loop needs to know about the data.

    Examples are (x, y) on the device; x is uint8 pixels or float features, y labels or scaled targets. Images that
    stay on disk are a `Streamed`, which has what of a tensor training and evaluation use.
    """

    train: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    splits: Splits  # which examples they are, with hashes
    classes: int  # 0 for regression
    target_scale: float | None  # the deviation by which regression targets were divided; None for classification
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    preprocessing: Mapping[str, Any]  # what must be done to new data before the model sees it, as plain JSON
    fingerprint: str  # see `content_hash`
    device: torch.device
    source: str = ""  # which edition of the data it is, where somebody else keeps them

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of a method that does not set its own."""
        return Categorical() if self.classes else Gaussian()


def read(
    config: DataConfig,
    data_dir: Path | None,
    cache_dir: Path | None,
    progress: Progress = SILENT,
    *,
    stream: bool | None = None,
) -> Dataset:
    """The data set that a config names; `stream` as `load` takes it."""
    name, _ = parse_spec(config.name)
    own = ("target", "size", "drop", "skip_bad", "labels", "file_column", "label_column")
    options = {name: value for name in own if (value := getattr(config, name))}
    if config.task != AUTO:
        options["task"] = config.task
    on_progress = partial(progress.detail, "reading the data")
    dataset = load(name, data_dir=data_dir, cache_dir=cache_dir, progress=on_progress, stream=stream, **options)
    for sentence in dataset.omissions:
        progress.note(sentence)
    return dataset


class Reader:
    """Reads data sets and keeps the last one, which the seeds of a grid share."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._last: tuple[DataConfig, Dataset] | None = None

    def __call__(self, config: DataConfig, progress: Progress = SILENT) -> Dataset:
        # Which of the examples are taken is decided later.
        key = replace(config, name=parse_spec(config.name)[0], seed=None, split=None)
        if self._last is None or self._last[0] != key:
            self._last, place = None, self._place  # two sets need not fit into memory
            self._last = key, read(config, place.data_dir, place.cache_dir, progress, stream=place.stream or None)
        return self._last[1]


def prepare(config: RunConfig, dataset: Dataset, device: torch.device) -> Problem:
    """Splits, scales and moves the data; statistics come from the training examples alone."""
    _, count = parse_spec(config.data.name)
    splits = resolve(
        dataset,
        n=count,
        balanced=config.data.balanced,
        validation=config.data.validation,
        seed=config.seed if config.data.seed is None else config.data.seed,
        split=config.data.split,
        test_fraction=config.data.test_fraction,
    )
    parts = splits.take(dataset)
    if not len(parts[0]) or (config.data.test_fraction and not len(parts[2])):
        raise InputError(f"expected training and test examples in {config.data.name}, but got none")
    fingerprint = content_hash(parts)
    preprocessing: dict[str, Any] = {"classes": list(dataset.classes), "columns": list(dataset.columns)}
    preprocessing["shape"] = list(dataset.train.x.shape[1:])  # of an example as it is read
    mean = std = scale = None
    if dataset.is_image:
        mean, std = channel_statistics(parts[0].x)
    else:
        table = Standardizer.fit(parts[0].x)
        parts = tuple(Split(table.transform(p.x) if len(p) else p.x, p.y) for p in parts)  # type: ignore[assignment]
        preprocessing["features"] = table.to_dict()
        if dataset.encoder is not None:
            preprocessing["encoder"] = dataset.encoder.to_dict()
    if dataset.task == "regression":
        target = TargetScaler.fit(parts[0].y)
        parts = tuple(Split(p.x, target.transform(p.y)) for p in parts)  # type: ignore[assignment]
        preprocessing["target"], scale = target.to_dict(), target.scale
        if dataset.unit:
            preprocessing["target"]["unit"] = dataset.unit
    train, val, test = (_tensors(part, device) for part in parts)
    classes = len(dataset.classes) if dataset.task == "classification" else 0
    return Problem(
        train, val, test, splits, classes, scale, mean, std, preprocessing, fingerprint, device, dataset.source
    )


FILES = "files:"  # begins a fingerprint that was computed from the files: of images that stay on disk


def same_data(before: str, now: str) -> bool:
    """Whether two fingerprints may be of the same examples; those that were taken in different ways say nothing."""
    return not before or before == now or before.startswith(FILES) != now.startswith(FILES)


def content_hash(parts: tuple[Split, ...]) -> str:
    """A sha256 of the examples and targets as they were read; of images that stay on disk, of their files."""
    digest = hashlib.sha256()
    if not isinstance(parts[0].x, np.ndarray):
        for part in parts:
            digest.update(f"{part.x.identity}{part.x.shape}{index_hash(part.x.rows)}".encode())
            digest.update(np.ascontiguousarray(part.y).data)
        return f"{FILES}{digest.hexdigest()}"
    for part in parts:
        for values in (part.x, part.y):
            digest.update(f"{values.dtype.str}{values.shape}".encode())
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def channel_statistics(x: np.ndarray[Any, Any] | Stream) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of uint8 images (N, C, H, W), in [0, 1], from exact sums."""
    if not isinstance(x, np.ndarray):
        total, squares = x.moments()
    else:
        images, values = torch.from_numpy(x), np.arange(256)
        counts = np.stack([torch.bincount(c.reshape(-1), minlength=256).numpy() for c in images.unbind(1)])
        total, squares = counts @ values, counts @ values**2
    count = math.prod(x.shape) / x.shape[1]
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 1.0))
    return tuple((mean / 255).tolist()), tuple((deviation / 255).tolist())


def with_numbers(rows: tuple[MethodRow, ...]) -> Method:
    """The method with a number in the place of each that is yet to be measured; raises if there is none such."""
    plain = [{key: 1.0 if value == AUTO else value for key, value in row.items()} for row in rows_to_plain(rows)]
    return Method.from_dict({"methods": plain})


def measured_alpha(problem: Problem) -> float:
    """What alpha="auto" is on these data."""
    x, y = problem.train
    if isinstance(x, Streamed):
        sample = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:SAMPLE].sort().values
        x, y = x[sample], y[sample.to(y.device)]
    if not problem.classes:
        return round(among_reals(as_unit_float(x[:SAMPLE]), y[:SAMPLE]) or REAL_STEP, 4)
    return round(suggest_alpha(x, y, generator=torch.Generator(problem.device).manual_seed(0)), 4)


def method_of(config: RunConfig, problem: Problem) -> Method:
    """The config's method for the data: alpha="auto" measured on it, with a likelihood for its kind of target."""
    labels, measure = bool(problem.classes), partial(measured_alpha, problem)
    rows = [resolve_auto(row, labels, measure) for row in rows_to_plain(config.method)]
    asked = Method.from_dict({"methods": rows})  # errors call it as it was typed
    method = match_targets(asked, problem.classes)
    if method.growth is not None and isinstance(problem.train[0], Streamed):
        raise InputError(
            f"expected a method that leaves the training set as it is, for its images are streamed from disk, but got "
            f"{asked.name!r}; choose another method, or take fewer images"
        )
    if problem.train[0].ndim != 4:
        if method.augment:
            raise InputError(
                f"expected images for the method {asked.name!r}, but got a table; leave the augmentation out"
            )
        check_table(method)
    return method


def as_asked(config: RunConfig, problem: Problem) -> RunConfig:
    """The config with "auto" for an alpha that was measured on these examples, as `rcad compare` writes it, and for lam
    beside it where that is the default: runs over several splits are then one method."""
    rows = []
    for name, values in config.method:
        own = dict(values)
        alpha: Any = own.get("alpha") if name in MEASURABLE else None
        if is_number(alpha) and math.isclose(alpha, measured_alpha(problem), rel_tol=SAME_ALPHA, abs_tol=1e-4):
            default = own.get("lam") == weight_for(AUTO, real=not problem.classes) and (name, "lam") in CHANGED
            own |= {"alpha": AUTO, "lam": AUTO} if default else {"alpha": AUTO}
        rows.append((name, tuple(sorted(own.items()))))
    return replace(config, method=tuple(rows))


def resolve_auto(row: dict[str, Any], labels: bool, measure: Callable[[], float]) -> dict[str, Any]:
    """A method's row with numbers for "auto": `measure` gives alpha, lam depends on whether targets are labels."""
    row = dict(row)
    if row.get("lam") == AUTO:
        row["lam"] = weight_for(AUTO, real=not labels)
    if row.get("alpha") == AUTO:
        if row["name"] not in MEASURABLE:
            raise InputError(f"expected alpha=auto for one of {', '.join(MEASURABLE)}, but got {row['name']!r}")
        row["alpha"] = measure()
    return row


def match_targets(method: Method, classes: int) -> Method:
    """The method for so many classes; for 0, regression, with a Gaussian where it has no likelihood of its own."""
    if not classes and method.likelihood is None:
        return compose(gaussian(), method)
    check_cap(method)
    if isinstance(method.likelihood, Bernoulli):
        raise InputError(
            f"expected a method for one target per example, but got {method.name!r}, which is for several labels each; "
            "choose another, or use rcad.Bernoulli in a loop of your own"
        )
    regression = isinstance(method.likelihood, Gaussian)
    if bool(classes) == regression:
        got, expected = ("class labels", "regression targets")[:: 1 if regression else -1]
        raise InputError(f"expected {expected} for the method {method.name!r}, but got {got}; choose another method")
    return method


def check_table(method: Method) -> None:
    """Settings that only make sense for pixels in [0, 1] are refused on standardised columns."""
    if method.growth is not None and method.growth.levels is not None:
        raise InputError("expected levels=none to grow a table, but got 8-bit pixels; say so, e.g. me_ada(levels=none)")
    if any(getattr(term.where, "bounds", None) is not None for term in method.terms):
        example = "adversarial_training(bounds=none)"
        raise InputError(f"expected no bounds on a standardised table, but got pixels'; say so, e.g. {example}")


def check_cap(method: Method) -> None:
    """Stop before a run that must diverge: the likelihood's entropy has no maximum, and too much is paid for it."""
    uncapped = isinstance(method.likelihood, Gaussian) and method.likelihood.cap is None
    paid = sum(term.weight for term in method.terms if term.measure == "negative_entropy")
    if uncapped and paid >= LARGEST_UNCAPPED:
        raise InputError(
            f"expected a cap on the Gaussian's entropy, or lam < {LARGEST_UNCAPPED:g}, but got cap=None and "
            f"lam={paid:g}: the variance would grow without end; use gaussian(cap=0.0) for standardised targets"
        )


def model_of(config: RunConfig, problem: Problem) -> nn.Module:
    """The config's model, with weights that depend on the seed alone."""
    shape = tuple(problem.train[0].shape[1:])
    few = len(shape) == 3 and max(shape[1:]) <= FEW_SIDE and len(problem.train[1]) <= FEW_IMAGES
    if few and config.model.name == AUTO:
        config = replace(config, model=replace(config.model, name="small_cnn"))
    return model_for(config, shape, problem.classes, problem.mean, problem.std)


def as_built(record: RunRecord) -> RunConfig:
    """A finished run's config with the network that "auto" stood for, and no weights to begin with."""
    model = replace(record.config.model, weights=None)
    built = BUILT.get(record.resolved.get("model", "").split(",")[0])
    if model.name == AUTO and built is not None:
        model = replace(model, name=built)
    return replace(record.config, model=model)


def model_for(
    config: RunConfig,
    shape: tuple[int, ...],
    classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """The config's model for examples of this shape, without the data; classes=0 is regression."""
    name = config.model.name
    if name == AUTO:
        name = "mlp" if len(shape) == 1 else "small_cnn" if max(shape[1:]) <= SMALL_IMAGE else "resnet18"
    options = {**vars(config.model), "name": name, "mean": mean, "std": std}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived(config.seed, "weights"))
        return build(num_outputs=classes or 2, in_shape=shape, **options)


def _tensors(part: Split, device: torch.device) -> tuple[Tensor, Tensor]:
    y = torch.from_numpy(np.ascontiguousarray(part.y)).to(device)
    if not isinstance(part.x, np.ndarray):
        return cast(Tensor, Streamed(part.x, device)), y
    return torch.from_numpy(np.ascontiguousarray(part.x)).to(device), y


TOP = 5
AT_ONCE = 1024  # examples of a batch in an evaluation


def measure(model: nn.Module, problem: Problem, x: Tensor, y: Tensor, **options: Any) -> dict[str, float]:
    """The metrics of `launch_metrics` as numbers: waits for the device."""
    return fetch(launch_metrics(model, problem, x, y, **options))


@torch.no_grad()
def launch_metrics(
    model: nn.Module,
    problem: Problem,
    x: Tensor,
    y: Tensor,
    *,
    calibration: bool = False,
    on_batch: Callable[[int, int], None] = lambda done, total: None,
    ranks: Ranks = ALONE,
) -> dict[str, Tensor]:
    """Metrics of a model on examples, in eval mode, launched but not waited for; the model's mode is restored.

    Classification: accuracy (percent), nll, brier. Regression, in the target's own unit: nll, rmse.

    Args:
        calibration: adds a classifier's ece, as a fraction, and among more than five classes top5, in percent.
        on_batch: takes after each batch how many examples of how many are done.
        ranks: the processes that share the examples; each has the numbers of all of them.
    """
    ranks.share_buffers(model)
    outputs: list[Tensor] = []
    rows = ranks.rows(len(x), AT_ONCE)
    with evaluating(model):
        for part in in_parts(x, AT_ONCE, rows):
            outputs.append(logits_of(model(as_unit_float(part.to(problem.device)))).float())
            on_batch(min(len(outputs) * AT_ONCE, rows.stop - rows.start), rows.stop - rows.start)
    output, y = ranks.gather(torch.cat(outputs), len(x), AT_ONCE), y.to(problem.device)
    metrics = scores(output, y, problem.target_scale)
    if calibration and problem.target_scale is None:
        labelled = Labelled.of(output, y)
        metrics["ece"] = top_label_error(labelled, BINS, "width").float()
        if output.shape[1] > TOP:
            metrics["top5"] = 100 * labelled.within_top(TOP).mean().float()
    return metrics


def fetch(values: dict[str, Tensor]) -> dict[str, float]:
    """Numbers from a device, in one copy."""
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))


def scores(output: Tensor, y: Tensor, target_scale: float | None) -> dict[str, Tensor]:
    """The metrics of predictions; `target_scale` is the unit in which a regression was trained, None for classes."""
    if target_scale is not None:
        means = {name: rows.mean() for name, rows in value_scores(output, y).items()}
        # The density of y in its own unit is that of the scaled target divided by the scale.
        return {"nll": means["nll"] + math.log(target_scale), "rmse": means["square"].sqrt() * target_scale}
    means = {name: rows.mean() for name, rows in label_scores(output, y).items()}
    return {"accuracy": 100 * means["hit"], "nll": means["nll"], "brier": means["brier"]}
