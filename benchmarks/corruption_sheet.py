"""The contact sheet of docs/corruptions.md: one picture under every corruption and severity.

    python benchmarks/corruption_sheet.py [--picture flower.jpg] [--side 64] [--save docs/images/corruptions.png]

The picture is one of scikit-learn's two samples (CC BY 2.0, credited in the page that shows the sheet).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_image

from rcad.evaluate.corruptions import CORRUPTIONS, SEVERITIES, corrupt_numbered

MARGIN, LABELS, GAP = 22, 110, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", default="flower.jpg", choices=["flower.jpg", "china.jpg"])
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--save", type=Path, default=Path("docs/images/corruptions.png"))
    options = parser.parse_args()
    side = options.side
    photo = Image.fromarray(load_sample_image(options.picture))
    left = (photo.width - photo.height) // 2
    square = photo.crop((left, 0, left + photo.height, photo.height)).resize((side, side), Image.Resampling.LANCZOS)
    clean = torch.from_numpy(np.array(square)).permute(2, 0, 1).unsqueeze(0)
    step = side + GAP
    size = (LABELS + step * (1 + len(SEVERITIES)), MARGIN + step * len(CORRUPTIONS))
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    for column in range(1 + len(SEVERITIES)):
        pen.text((LABELS + column * step + 4, 5), "clean" if column == 0 else f"severity {column}", fill="black")
    for row, name in enumerate(CORRUPTIONS):
        top = MARGIN + row * step
        pen.text((6, top + side // 2 - 6), name, fill="black")
        images = [clean] + [corrupt_numbered(clean, name, severity, seed=0, first=0) for severity in SEVERITIES]
        for column, image in enumerate(images):
            tile = Image.fromarray(image[0].permute(1, 2, 0).numpy())
            sheet.paste(tile, (LABELS + column * step, top))
    options.save.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(options.save, optimize=True)


if __name__ == "__main__":
    main()
