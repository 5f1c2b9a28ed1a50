"""New examples as a model takes them: from arrays, frames, tables and image files, in parts, each with its name."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rcad.data.arrays import read_arrays
from rcad.data.decoding import ColourError, decode, is_image_name
from rcad.data.files import read_bytes
from rcad.data.scaling import Standardizer
from rcad.data.table_encoder import ColumnCode, TableEncoder, TableFeatures, as_text
from rcad.data.table_files import Table, Text, frame_table, read_table
from rcad.data.tables import list_names
from rcad.errors import InputError, expanded, shaped, shown
from rcad.evaluate.corruptions.generated import LUMA

log = logging.getLogger("rcad")
BATCH = 256


class Part(NamedTuple):
    """Some of the examples.

    Args:
        names: of each example, as many texts as the inputs have headers.
        x: uint8 or float pixels (B, C, H, W), or standardised features (B, D).
        bad: what is wrong with the images that were left out.
    """

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
    """How images were given to the model.

    Args:
        shape: (C, H, W).
        size: the side that images were brought to; None where they had one size.
    """

    shape: tuple[int, ...]
    size: int | None

    def __str__(self) -> str:
        channels, height, width = self.shape
        return f"{'grey' if channels == 1 else 'colour'} images of {width}x{height}" + (", resized" * bool(self.size))

    def read(self, x: Any, *, skip_bad: bool = False) -> Examples:
        if isinstance(x, str | Path):
            path = expanded(x)
            if path.suffix.lower() == ".npy":
                return self.read(read_arrays(path)[""])
            return self._files(path, skip_bad)
        pixels = _tensor(x)
        if pixels.ndim == 3 and self.shape[0] == 1:
            pixels = pixels[:, None]
        if tuple(pixels.shape[1:]) != self.shape or not len(pixels):
            shape = ", ".join(map(str, self.shape))
            raise InputError(f"expected images of shape (N, {shape}), but got {tuple(pixels.shape)}")
        if pixels.dtype != torch.uint8:
            pixels = pixels.float()
            low, high = pixels.min().item(), pixels.max().item()
            if not (low >= 0 and high <= 1):
                raise InputError(
                    f"expected uint8 pixels or numbers in [0, 1], but got values from {low:.4g} to {high:.4g}; "
                    "do not normalise them"
                )
        return Examples(len(pixels), ("row",), _parts(_numbered(len(pixels)), pixels))

    def _files(self, path: Path, skip_bad: bool) -> Examples:
        root, paths = (path, path.rglob("*")) if path.is_dir() else (path.parent, [path])
        files = [file.relative_to(root) for file in paths if file.is_file() and is_image_name(file.name)]
        names = sorted(str(file) for file in files if not any(part.startswith(".") for part in file.parts))
        if not names:
            raise InputError(f"expected an image or a folder with images, but found none at {path}; check the path")
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
            data = read_bytes(path)
            pixels = decode(data, str(path), self.size, grey=self.shape[0] == 1)
        except ColourError:
            pixels = np.rint(np.tensordot(LUMA, decode(data, str(path), self.size), 1)).astype(np.uint8)[None]
        except InputError as error:
            return error
        if pixels.shape == self.shape:
            return pixels
        (_, height, width), got = self.shape, f"{pixels.shape[2]}x{pixels.shape[1]}"
        return InputError(
            f"expected images of {width}x{height} as in training, but got {got} in {path}; bring it to that size, or "
            f"train with --size {min(height, width)}, which resizes new images too"
        )


@dataclass(frozen=True)
class TableInputs(TableFeatures):
    """How the rows of a table were given to the model: its columns by name, and the scales of the training rows."""

    @classmethod
    def of_run(cls, preprocessing: Mapping[str, Any]) -> TableInputs:
        """From what a run keeps; a table that was no file has numbers alone."""
        encoder = preprocessing.get("encoder")
        if encoder is None:
            size = len(Standardizer.from_dict(preprocessing["features"]).mean)
            names = shaped("columns", preprocessing["columns"], [str]) or [f"x{j}" for j in range(size)]
            encoder = TableEncoder(tuple(map(ColumnCode, names))).to_dict()
        return cls.from_dict({"encoder": encoder, "scales": preprocessing["features"]})

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
            texts = as_text(table, table.names.index(header)).texts()
            names = [(*before, text or "") for before, text in zip(names, texts, strict=True)]
        features = torch.from_numpy(self.scales.transform(self.encoder.transform(table)))
        return Examples(len(table), ("row", *headers), self._rows(table, names, features))

    def _table(self, x: Any) -> Table:
        if isinstance(x, str | Path):
            return read_table(expanded(x), least=1)
        if hasattr(x, "columns") and hasattr(x, "iloc"):
            table = frame_table(x)
        else:
            rows, names = _tensor(x).double().cpu().numpy(), tuple(code.name for code in self.encoder.codes)
            if rows.ndim != 2 or rows.shape[1] != len(names):
                raise InputError(f"expected rows with {self}; but got shape {rows.shape}")
            table = Table(Path("the array"), names, tuple(rows.T), len(rows), lambda row: f"row {row + 1}")
        if not len(table):
            raise InputError("expected at least one row, but got none")
        return table

    def _rows(self, table: Table, names: Sequence[tuple[str, ...]], features: Tensor) -> Iterator[Part]:
        unknown = []
        for code in (code for code in self.encoder.codes if code.levels is not None and code.name in table.names):
            text: Text = as_text(table, table.names.index(code.name))
            new = [level for level in text.levels if level not in (code.levels or ())]
            if new:
                unknown.append(f"{code.name!r} ({shown(new[0])}{', ...' if len(new) > 1 else ''})")
        if unknown:
            log.warning("categories that training did not have count as unknown: %s", ", ".join(unknown))
        yield from _parts(names, features)


def _tensor(x: Any) -> Tensor:
    try:
        return x.detach() if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(x))
    except (TypeError, ValueError) as error:
        raise InputError(f"expected an array of numbers, a frame or a path, but got {shown(x)} ({error})") from None


def _numbered(count: int) -> list[tuple[str, ...]]:
    return [(str(row),) for row in range(1, count + 1)]


def _parts(names: Sequence[tuple[str, ...]], x: Tensor) -> Iterator[Part]:
    for start in range(0, len(x), BATCH):
        yield Part(list(names[start : start + BATCH]), x[start : start + BATCH])
