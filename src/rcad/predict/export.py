"""A run as one file that other programs run: its network with the scaling before it and the probabilities behind it."""

from __future__ import annotations

import copy
import io
import json
import logging
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rcad.data.files import read_bytes, reason
from rcad.errors import InputError, need, one_of
from rcad.loss.model_calls import logits_of
from rcad.predict.predictor import Array, ImageInputs, Predictor, TableInputs, answer
from rcad.runs.files import replacing

FORMATS = {"torch": ".pt2", "onnx": ".onnx"}
TOLERANCE = 1e-3  # how far outputs may be apart: in probability, or in deviations of the target
EXTRA = "onnx"
DESCRIPTION = "rcad.json"  # its name inside the file
RUN = re.compile(rb'{"run": "(\w+)"')  # the description's beginning
log = logging.getLogger("rcad")


class Whole(nn.Module):
    """From pixels in [0, 1], or columns with NaN for missing, to what `Predictor.answers` gives, in float32."""

    median: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.model, self.target = copy.deepcopy(predictor.model).cpu(), predictor.target
        inputs = predictor.preprocessing
        self.indicators: list[int] | None = None
        if isinstance(inputs, TableInputs):
            self.indicators = list(inputs.scales.indicators)
            for name in ("median", "mean", "scale"):
                self.register_buffer(name, torch.tensor(getattr(inputs.scales, name), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if self.indicators is not None:
            rows, gaps = x.double(), x.isnan()
            scaled = (torch.where(gaps, self.median, rows) - self.mean) / self.scale
            x = torch.cat([scaled, gaps[:, self.indicators].double()], 1).float()
        return answer(logits_of(self.model(x)).double(), self.target).float()


def export(predictor: Predictor, path: Path, to: str | None = None) -> float:
    """Write a program of torch.export (.pt2) or ONNX (.onnx) that takes batches of any size, and check it.

    Its input `x` is float32: pixels in [0, 1] of shape (N, C, H, W), or the columns of a table (N, D) as the file's
    description names them, with NaN for missing. Its output: probabilities (N, K), or mean and deviation (N, 2) in the
    target's own unit. The description (classes, columns, run) lies in the file as JSON under "rcad.json".

    Args:
        to: "torch" or "onnx"; by default by the suffix of `path`.

    Returns:
        The largest difference between what the file gives and what `predictor` gives, over random examples: in
        probability, or in deviations of the target. A file that is further off than 1e-3 is not written.
    """
    if to is not None:
        one_of("the format", to, FORMATS)
    suffixes = {FORMATS[to]: to} if to else {suffix: name for name, suffix in FORMATS.items()}
    if path.suffix not in suffixes:
        raise InputError(f"expected a file that ends in {' or '.join(suffixes)}, but got {path}; rename it")
    there = read_bytes(path) if path.is_file() else b""
    if there and DESCRIPTION.encode() not in there:
        raise InputError(f"expected --out to be a new file or an earlier export, but {path} is neither; name a new one")
    to = suffixes[path.suffix]
    x, expected = _example(predictor)
    whole, described = Whole(predictor).eval(), json.dumps(description(predictor))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content, output = (_torch if to == "torch" else _onnx)(whole, x, described)
    except (ImportError, InputError):
        raise
    except Exception as error:  # exporters raise nearly everything
        name = type(predictor.model).__name__
        raise InputError(f"expected a model that {to} can export, but {name} is not: {reason(error)}") from None
    apart = np.abs(output.astype(np.float64) - expected).max() / (predictor.target[1] if predictor.target else 1.0)
    if not apart <= TOLERANCE:
        raise InputError(
            f"expected outputs within {TOLERANCE:g} of the run's, but those of {to} are {apart:.2g} off; "
            "nothing is written"
        )
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    if (before := RUN.search(there)) is not None and (run := before[1].decode()) != predictor.record.id:
        log.warning("replaced the export of run %s: %s", run, path)
    return float(apart)


def description(predictor: Predictor) -> dict[str, Any]:
    """What a user of the file must know, as plain JSON: the shape of an example, and what its numbers are."""
    inputs, output = predictor.preprocessing, list(predictor.classes) or ["mean", "deviation"]
    columns = list(inputs.encoder.features) if isinstance(inputs, TableInputs) else []
    shape = [len(columns)] if columns else list(inputs.shape)
    return {"run": predictor.record.id, "shape": shape, "columns": columns, "output": output}


def _example(predictor: Predictor) -> tuple[Tensor, Array]:
    """Random examples, and what the run itself makes of them."""
    inputs, generator = predictor.preprocessing, np.random.default_rng(0)
    if isinstance(inputs, ImageInputs):
        x = ready = generator.random((5, *inputs.shape), np.float32)
    else:
        scales = inputs.scales
        x = generator.normal(scales.mean, scales.scale, (5, len(scales.mean))).astype(np.float32)
        x[0] = np.nan
        ready = scales.transform(x)
    with torch.no_grad():
        output = logits_of(predictor.model(torch.from_numpy(ready).to(predictor.device)))
    return torch.from_numpy(x), answer(output.double(), predictor.target).cpu().numpy()


def _program(whole: Whole, x: Tensor) -> Any:
    # A first batch of 3: other sizes are tried on the finished file.
    return torch.export.export(whole, (x[:3],), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})


def _torch(whole: Whole, x: Tensor, described: str) -> tuple[bytes, Array]:
    buffer = io.BytesIO()
    torch.export.save(_program(whole, x), buffer, extra_files={DESCRIPTION: described})
    run = torch.export.load(io.BytesIO(buffer.getvalue())).module()
    return buffer.getvalue(), np.concatenate([run(x[:1]).detach().numpy(), run(x[1:]).detach().numpy()])


def _onnx(whole: Whole, x: Tensor, described: str) -> tuple[bytes, Array]:
    for package in ("onnx", "onnxscript"):
        need(package, package, EXTRA)
    runtime = need("onnxruntime", "onnxruntime", EXTRA)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of each package it does without
    program: Any = torch.onnx.export(_program(whole, x), input_names=["x"], output_names=["y"], verbose=False)
    program.model.metadata_props[DESCRIPTION] = described
    content = program.model_proto.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, np.concatenate([session.run(None, {"x": rows.numpy()})[0] for rows in (x[:1], x[1:])])
