"""Small files for the tests: images, tables, archives; and what a file of JSON holds."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def png(side: int = 8, seed: int = 0, keep: int | None = None) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer := io.BytesIO(), "PNG")
    return buffer.getvalue()[:keep]


def files(**contents: bytes | str) -> None:
    """Files below the current folder; in a keyword "__" is a slash and "_dot_" a dot."""
    for key, content in contents.items():
        path = Path(key.replace("__", "/").replace("_dot_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def saved(path: str | Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def images(folder: str = "images", classes: int = 2, each: int = 8) -> None:
    for c in range(classes):
        (Path(folder) / f"class{c}").mkdir(parents=True, exist_ok=True)
        for i in range(each):
            (Path(folder) / f"class{c}" / f"{i}.png").write_bytes(png(seed=100 * c + i))


def table(rows: int = 60) -> str:
    generator = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{'rs'[int(a > 0)]},{2 * a - b:.3f}" for a, b in generator.normal(size=(rows, 2))]
    return "\n".join(["length,width,colour,price", *lines]) + "\n"


def tar(path: str | Path, members: dict[str, bytes], keep: int | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            (info := tarfile.TarInfo(name)).size = len(data)
            archive.addfile(info, io.BytesIO(data))
    path = Path(path)
    path.write_bytes(path.read_bytes()[:keep])
    return path
