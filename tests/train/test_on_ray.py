"""Runs on a Ray cluster of two local nodes: what is lost comes again, and every record is the sequential one.

Skipped without ray; `make test-ray` installs it and runs them.
"""

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from rcad.errors import InputError, MissingExtraError
from rcad.runs.configure import configure
from rcad.runs.plain import config_id
from rcad.runs.store import WEIGHTS, Store
from rcad.train.cluster.on_ray import OnRay, _Crew, _files
from rcad.train.place import Executor, Place
from rcad.train.scheduler import Work, schedule
from rcad.train.stop import Stop
from tiny_runs import Listener, Watcher, arrays_in, essence

ERM = configure("digits[:60]", [("erm", ())], epochs=1, settings=["model.width=4"])


def test_an_executor_is_named(place, monkeypatch):
    assert Executor.parse("ray") == Executor()
    assert Executor.parse("ray://head:6379", gpus_per_run=0.1) == Executor("head:6379", 0.1)
    for wrong in ("dask", "ray://", "slurm://x"):
        with pytest.raises(InputError, match="expected the executor ray or ray://HOST:PORT"):
            Executor.parse(wrong)
    for option, value in (("cpus_per_run", 0), ("store_mode", "mailed")):
        with pytest.raises(InputError, match=option):
            Executor(**{option: value})  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="ray"):
        schedule([ERM], replace(place, executor=Executor()))


def test_files_come_back_with_the_task(place, tmp_path):
    there = replace(place, store=Store.open(tmp_path / "there"))
    schedule([ERM], there)
    files, work = _files(there.store, ERM), Work([ERM], place, Stop(), Listener([ERM]))
    ray = Mock(**{"get.return_value": (None, [files])})
    _Crew(ray, Executor(), work, on_gpu=False, tasks={"task": [ERM]})._ended("task")
    assert work.listener.records == [there.store.get(config_id(ERM))]
    assert (place.store.folder(config_id(ERM)) / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_a_task_holds_as_many_runs_as_share_its_gpu(store):
    configs, place = [replace(ERM, seed=seed) for seed in range(20)], Place(store, joined=5)
    work = Work(configs, place, Stop(), Listener(configs))
    resources = {"CPU": 16.0, "GPU": 2.0}, {"CPU": 2.0}
    cluster, without = (Mock(**{"cluster_resources.return_value": each}) for each in resources)

    def sizes(backend, on_gpu=True):
        return [len(share) for share in backend._shares(cluster, work, on_gpu)]

    assert sizes(OnRay(Executor())) == [10, 10]  # two teams of five on each GPU
    assert sizes(OnRay(Executor(), 5)) == [5, 5, 5, 5]
    assert sizes(OnRay(Executor(gpus_per_run=0.1))) == [5, 5, 5, 5]  # half of a GPU each
    assert sizes(OnRay(Executor()), on_gpu=False) == [1] * 20
    assert OnRay(Executor())._on_gpu(cluster, place)
    assert not OnRay(Executor(gpus_per_run=0.0))._on_gpu(cluster, place)
    assert not OnRay(Executor())._on_gpu(without, place)
    with pytest.raises(InputError, match="expected GPUs in the Ray cluster"):
        OnRay(Executor(gpus_per_run=0.5))._on_gpu(without, place)


@pytest.fixture(scope="module")
def ray() -> Any:
    return pytest.importorskip("ray", reason="the extra ray is not installed; see: make test-ray")


@pytest.fixture
def cluster(ray: Any) -> Iterator[Any]:
    """Two nodes beside a head that runs nothing."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


DRIVER = """
import pickle, sys
from pathlib import Path
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.scheduler import schedule
runs, configs, executor = pickle.loads(Path(sys.argv[1]).read_bytes())
schedule(configs, Place(Store.open(runs), device="cpu", checkpoint_seconds=0.0, executor=executor))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shared", "return"])
def test_no_record_is_lost_doubled_or_different(tmp_path, ray, cluster, mode):
    settings, path = ["model.width=4", "train.batch_size=20"], arrays_in(tmp_path)
    configs = [configure(path, [("rcad", ())], epochs=12, seed=seed, settings=settings) for seed in range(12)]
    sequential = Store.open(tmp_path / "sequential")
    assert schedule(configs, Place(sequential, device="cpu")).complete

    def lose_a_node():
        here = ray.get_runtime_context().get_node_id()  # whose end would be the driver's
        victim = next(node for node in cluster.worker_nodes if node.node_id != here)
        cluster.remove_node(victim, allow_graceful=False)

    def done():
        return sum(record.is_final for record in store.records())

    executor = Executor(cluster.address, store_mode=mode)
    store = Store.open(tmp_path / "runs")
    # A driver of its own is killed once it has something to show.
    (tmp_path / "job").write_bytes(pickle.dumps((store.path, configs, executor)))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "job")])
    while driver.poll() is None and done() < 2:
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    already = done()
    assert already >= 2
    # The same command again: one node of two is killed in the middle.
    watcher = Watcher(lambda heard: sum(note.startswith("done") for note in heard.notes) == already + 2, lose_a_node)
    place = Place(store, device="cpu", checkpoint_seconds=0.0, executor=executor)
    assert schedule(configs, place, watcher).complete
    assert watcher.acted
    assert store.ids() == sorted(map(config_id, configs))
    for run in store.ids():
        assert essence(store.get(run)) == essence(sequential.get(run))
        assert (store.folder(run) / WEIGHTS).read_bytes() == (sequential.folder(run) / WEIGHTS).read_bytes()
        assert len(store.log(run).read_text().splitlines()) == 12
