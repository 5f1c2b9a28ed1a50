"""Experiment trackers: Weights & Biases, MLflow and TensorBoard are told of runs and studies.

One observer looks at what the store holds, the log of a run under way and the record of one that ended; so it does not
matter who made the run, in which process or when. A tracker that fails costs one line and never a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from rcad.errors import InputError, MissingExtraError, need, one_of, shaped
from rcad.runs.config import RunConfig
from rcad.runs.files import dumps, loads, make_folder, read_log, read_text, write_text
from rcad.runs.plain import to_plain
from rcad.runs.record import RunRecord
from rcad.runs.store import CONFIG, RECORD, Store
from rcad.runs.words import title

log = logging.getLogger("rcad")

PROJECT = "rcad"  # where a tracker's own variables (WANDB_PROJECT, MLFLOW_EXPERIMENT_NAME) name nothing else
SENT = "tracked.json"
LOOK_S = 2.0  # seconds between two looks at the log of a run
_NOT_IN_NAMES = re.compile(r"[^\w\-./ ]")
"""What MLflow refuses in the name of a number, such as the brackets of "rcad(alpha=1)"."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """A run or a study, as trackers know it."""

    id: str  # the tracked run continues under it
    name: str
    kind: str  # "run", or the command that made a study
    config: Mapping[str, Any]
    folder: Path  # keeps what was sent, and TensorBoard's files


class WandB:
    """Weights & Biases; WANDB_MODE=offline keeps everything on this machine until `wandb sync`."""

    def __init__(self, subject: Subject) -> None:
        self._wandb = need("wandb", "wandb", "wandb")
        self._subject = subject
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=subject.id,
            name=subject.name,
            job_type=subject.kind,
            config=dict(subject.config),
            resume="allow",
            reinit="create_new",  # several runs of one process are under way at once
            settings=self._wandb.Settings(
                console="off", silent=True, disable_git=True, save_code=False, init_timeout=30
            ),
        )

    @staticmethod
    def address() -> str:
        return " ".join(os.environ.get(f"WANDB_{name}", "") for name in ("BASE_URL", "ENTITY", "PROJECT", "MODE"))

    def log(self, step: int, row: Row) -> None:
        self._run.log(dict(row), step=step)

    def finish(self, status: str, numbers: Row, files: Sequence[Path]) -> None:
        self._run.summary.update({**numbers, "status": status})
        pictures = {file.stem: self._wandb.Image(str(file)) for file in files if file.suffix == ".png"}
        if pictures:
            self._run.log(pictures)
        if files:
            artefact = self._wandb.Artifact(f"{self._subject.kind}-{self._subject.id}", type="record")
            for file in files:
                artefact.add_file(str(file))
            self._run.log_artifact(artefact)
        self._run.finish()


class MLflow:
    """MLflow; MLFLOW_TRACKING_URI names the server or the file."""

    def __init__(self, subject: Subject) -> None:
        client = _mlflow().MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        existing = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if existing is None else existing.experiment_id
        runs = client.search_runs([experiment], f"tags.`rcad.id` = '{subject.id}'", max_results=1)
        if runs:
            self._id = runs[0].info.run_id
            client.update_run(self._id, status="RUNNING")
        else:
            tags = {"rcad.id": subject.id, "rcad.kind": subject.kind}
            self._id = client.create_run(experiment, tags=tags, run_name=subject.name).info.run_id
            for key, value in flat(subject.config).items():
                client.log_param(self._id, key, str(value)[:500])
        self._client = client

    @staticmethod
    def address() -> str:
        return f"{_mlflow().get_tracking_uri()} {os.environ.get('MLFLOW_EXPERIMENT_NAME', '')}"

    def log(self, step: int, row: Row) -> None:
        metric, now = need("mlflow.entities", "mlflow-skinny", "mlflow").Metric, int(time.time() * 1000)
        self._client.log_batch(self._id, [metric(name, value, now, step) for name, value in row.items()])

    def finish(self, status: str, numbers: Row, files: Sequence[Path]) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self._id, _NOT_IN_NAMES.sub("_", name), value)
        for file in files:
            self._client.log_artifact(self._id, str(file))
        ends = {"done": "FINISHED", "diverged": "FAILED"}
        self._client.set_terminated(self._id, ends.get(status, "KILLED"))


def _mlflow() -> Any:
    # A server that is away must not hold up a run for the minutes that MLflow waits by default; and whoever names a
    # folder means it, though new ones are advised to take a database.
    for key, value in (("HTTP_REQUEST_MAX_RETRIES", "2"), ("HTTP_REQUEST_TIMEOUT", "20"), ("ALLOW_FILE_STORE", "true")):
        os.environ.setdefault(f"MLFLOW_{key}", value)
    mlflow = need("mlflow", "mlflow-skinny", "mlflow")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return mlflow


class TensorBoard:
    """Event files in the folder `tensorboard` of the run; a run that goes on adds a file."""

    def __init__(self, subject: Subject) -> None:
        make = need("torch.utils.tensorboard", "tensorboard", "tensorboard").SummaryWriter
        self._writer = make(str(subject.folder / "tensorboard"))
        self._writer.add_text("config", f"```\n{json.dumps(subject.config, indent=1, default=str)}\n```")

    @staticmethod
    def address() -> str:
        return ""

    def log(self, step: int, row: Row) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)

    def finish(self, status: str, numbers: Row, files: Sequence[Path]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, 0)
        for file in files:
            if file.suffix == ".png":
                pixels = need("matplotlib.image", "matplotlib", "report").imread(file)
                self._writer.add_image(file.stem, pixels[..., :3], dataformats="HWC")
            elif file.suffix in (".json", ".md"):
                self._writer.add_text(file.name, f"```\n{read_text(file)}\n```")
        self._writer.close()


TRACKERS: dict[str, Any] = {"wandb": WandB, "mlflow": MLflow, "tensorboard": TensorBoard}
"""Each is one tracked run of one library: `log` takes the finite numbers of an epoch or trial (from 1), `finish` the
final numbers and the files, and is the end, for now or for good; what goes to another `address` is sent again."""


def parse_trackers(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """The trackers of "wandb,tensorboard"; one that is unknown or not installed is an error before anything runs."""
    parts = text.split(",") if isinstance(text, str) else text or ()
    names = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for name in names:
        one_of("--track", name, TRACKERS)
        if name == "wandb" and not hasattr(need("wandb", "wandb", "wandb"), "init"):
            raise MissingExtraError("wandb", "wandb")  # a folder that an earlier run left is taken for a package
        if name == "tensorboard":
            need("torch.utils.tensorboard", "tensorboard", "tensorboard")
        TRACKERS[name].address()
    return names


def flat(plain: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested sections as "section.key"."""
    flattened: dict[str, Any] = {}
    for key, value in plain.items():
        flattened |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return flattened


def numbers(row: Row) -> dict[str, float]:
    """The finite ones: a file holds no others, and what was sent must not depend on whether it was read from one."""
    return {name: float(value) for name, value in row.items() if isinstance(value, int | float) and isfinite(value)}


class Tracked:
    """One subject and its trackers: each is opened when there is something to send, and dropped where it fails."""

    failed: set[str] = set()  # noqa: RUF012
    """Trackers that failed in this process; a thousand runs should not wait for a server that is away."""

    def __init__(self, names: Sequence[str], subject: Subject) -> None:
        self._subject, self._open, self._size = subject, dict[str, Any](), -1
        self._sent, fresh = self._remembered(), {"step": 0, "end": ""}
        keys = {name: f"{name} {_short(TRACKERS[name].address())}" for name in names}
        self._states = {name: self._sent.setdefault(key, dict(fresh)) for name, key in keys.items()}

    def rows(self, rows: Sequence[Row], step: str = "epoch") -> None:
        """Send what has not been sent of an epoch's, or a trial's, numbers."""
        for name, state in self._states.items():
            for row in map(numbers, rows):
                number = int(row.get(step, 0))
                if number > state["step"] and self._send(name, "log", number, row):
                    state["step"] = number
        self._remember()

    def look(self, path: Path) -> None:
        size = path.stat().st_size if path.exists() else 0
        if size != self._size:
            self._size = size
            with contextlib.suppress(InputError):  # a damaged log is for whoever goes on with the run
                self.rows(read_log(path))

    def finish(self, status: str, row: Row, files: Sequence[Path] = ()) -> None:
        """Send the end. One that is not final is sent again with the next."""
        mark = _short(dumps({"status": status, **numbers(row)}))
        for name, state in self._states.items():
            if state["end"] != mark and self._send(name, "finish", status, numbers(row), files):
                state["end"] = mark
            self._open.pop(name, None)
        self._remember()

    def _send(self, name: str, method: str, *values: Any) -> bool:
        """Calls a method of a tracker; whether it went well."""
        if name in self.failed:
            return False
        try:
            if name not in self._open:
                self._open[name] = TRACKERS[name](self._subject)
            getattr(self._open[name], method)(*values)
        except Exception as error:  # whatever it is, it is not worth a run
            self.failed.add(name)
            why = " ".join(str(error).split())[:200] or type(error).__name__
            log.warning("%s failed and is left out (%s); the same command tells it again", name, why)
            return False
        return True

    def _remembered(self) -> dict[str, dict[str, Any]]:
        path = self._subject.folder / SENT
        try:
            sent = loads(read_text(path), str(path)) if path.is_file() else {}
            return dict(shaped("what was sent", sent, {str: {"step": int, "end": str}}))
        except InputError:
            return {}

    def _remember(self) -> None:
        with contextlib.suppress(InputError, OSError):  # a full disk, no folder yet: then it is sent again
            write_text(self._subject.folder / SENT, dumps(self._sent, indent=1) + "\n")


class Observer:
    """The trackers of every run of a store; `held_out` leaves out the numbers by which no search may be judged."""

    def __init__(self, names: Sequence[str], store: Store, *, held_out: bool = False) -> None:
        self._names, self._store, self._held_out = names, store, held_out
        self._runs: dict[str, Tracked] = {}
        self._looked: dict[str, float] = {}

    def moved(self, run: str, config: RunConfig) -> None:
        """A run has gone on. Called at every step."""
        if time.monotonic() - self._looked.get(run, 0.0) >= LOOK_S:
            self._of(run, config).look(self._store.log(run))
            self._looked[run] = time.monotonic()

    def ended(self, record: RunRecord) -> None:
        """A run is over, or saved; one that only a pack holds is left out."""
        folder = self._store.folder(record.id)
        if folder.is_dir():
            tracked = self._of(record.id, record.config)
            tracked.rows(record.epochs)
            # The epochs have curves of these names; here they are of the selected one.
            metrics = {re.sub("^val_", "selected_val_", name): value for name, value in record.metrics.items()}
            if self._held_out:
                metrics = {name: value for name, value in metrics.items() if not name.startswith(("test_", "last_"))}
            tracked.finish(record.status, {**metrics, **record.timings}, [folder / name for name in (RECORD, CONFIG)])
            self._runs.pop(record.id, None)

    def _of(self, run: str, config: RunConfig) -> Tracked:
        if run not in self._runs:
            subject = Subject(run, title(config), "run", to_plain(config), self._store.folder(run))
            self._runs[run] = Tracked(self._names, subject)
        return self._runs[run]


def track_study(
    names: Sequence[str],
    command: str,
    title: str,
    out: Path,
    config: Mapping[str, Any],
    results: Row,
    files: Sequence[Path],
    *,
    rows: Sequence[Row] = (),
    status: str = "done",
) -> None:
    """Sends a study to the trackers; while its config is the same, it continues the same tracked run.

    What was sent is kept in the folder `tracking` of `out`; rows have a number "trial", from 1.
    """
    if names:
        study = f"{command}-{_short(dumps(config))}"
        folder = out / "tracking" / study
        make_folder(folder)
        tracked = Tracked(names, Subject(study, title, command, config, folder))
        tracked.rows(rows, "trial")
        tracked.finish(status, results, files)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
