"""Runs on files of one's own, made once, their data gone."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

import rcad
from made import files, images
from rcad.runs.configure import configure
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.run import run
from trained import run_id

ROWS, ERM = 60, [("erm", ())]


def flats():
    """A table with an id, a column with gaps, a category with gaps, a date and a regression target."""
    draw = np.random.default_rng(0)
    lines = ["id,area,floor,city,sold,price"]
    for i, area in enumerate(draw.uniform(20, 150, ROWS)):
        floor, city = "" if i % 9 == 0 else i % 5, ("Bonn", "Jena", "")[i % 3]
        lines.append(f"{1000 + i},{area:.1f},{floor},{city},2020-01-{1 + i % 28:02d},{2000 * area + 900 * (i % 3):.0f}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def own_runs(tmp_path_factory):
    """The folders of the runs by name: "flats" (regression), "floors" (classes of a table), "images" (resized)."""
    folder = tmp_path_factory.mktemp("own")
    found = {}
    with contextlib.chdir(folder):
        files(flats_dot_csv=flats())
        images(each=6)
        place = Place(Store.open(folder / "runs"), cache_dir=folder / "cache", device="cpu")
        for name, config in {
            "flats": configure({"name": "flats.csv", "target": "price"}, ERM, epochs=3),
            "floors": configure({"name": "flats.csv", "target": "floor", "skip_bad": True}, ERM, epochs=3),
            "images": configure({"name": "images", "size": 6}, ERM, epochs=1, settings=["model.width=4"]),
        }.items():
            record = run(config, place)
            assert record.status == "done"
            found[name] = place.store.folder(record.id)
        Path("flats.csv").unlink()
    return found


@pytest.fixture(scope="session")
def digits(trained_runs):
    return rcad.load(trained_runs / run_id("erm"), device="cpu")


@pytest.fixture(scope="session")
def prices(own_runs):
    return rcad.load(own_runs["flats"], device="cpu")
