"""`rcad export`: a finished run as one file for other programs."""

from __future__ import annotations

from pathlib import Path

from rcad.cli import options
from rcad.cli.options import Text, argument, option
from rcad.cli.screen import say, say_json


def export(
    run: str = argument("RUN", "A run's id, its first characters, its folder, or last."),
    out: Path = option("--out FILE", "The .pt2 or .onnx file to write.", ...),
    to: Text = option("--to torch|onnx", "The format. Default: from the ending of --out."),
    runs: Path = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """Write a finished run as a file that torch or ONNX Runtime can run without rcad.

    The file includes the scaling of the inputs and takes batches of any size. It returns probabilities, or mean and
    standard deviation in the target's own unit. It is checked against the run before it is written. --to onnx needs the
    extra onnx.

    rcad export 3f2a --to torch --out model.pt2
    rcad export 3f2a --out model.pt2 --json
    """
    from rcad.predict.export import description, export
    from rcad.predict.predictor import load

    predictor = load(run, runs=runs, device="cpu")
    difference = export(predictor, out, to)
    if as_json:
        say_json({**description(predictor), "out": str(out), "largest_difference": difference})
        return
    unit = "deviations of the target" if predictor.target else "in probability"
    say(f"the file's outputs are those of run {predictor.record.id}, up to {difference:.2g} {unit}\n{out}")
