"""Repositories of the Hugging Face Hub: one commit of one of them, its files verified; from the cache when offline."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rcad.errors import InputError, need, shaped

PREFIX = "hf:"
Kind = Literal["dataset", "model"]
Progress = Callable[[int, int], None]
_ADDRESS = re.compile(
    r"hf:(?P<repo>(?:[\w-][\w.-]*/)?[\w-][\w.-]*)(?:@(?P<revision>[^\s:@]+))?(?::(?P<part>[\w-][\w./-]*))?"
)
_AT_ONCE = 8


@dataclass(frozen=True)
class Address:
    """What "hf:owner/name@revision:part" says; a revision is a branch, a tag or a commit."""

    repo: str
    revision: str | None = None
    part: str | None = None

    @staticmethod
    def parse(text: str) -> Address:
        match = _ADDRESS.fullmatch(text)
        if match is None or ".." in text:
            raise InputError(f"expected an address like hf:owner/name@revision:split, but got {text!r}; mend it")
        return Address(**match.groupdict())

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}" + (f"@{self.revision}" if self.revision else "")


def library() -> Any:
    """huggingface_hub with the parts of it that are used."""
    for part in ("constants", "errors", "utils"):
        need(f"huggingface_hub.{part}", "huggingface_hub", "hub")
    return need("huggingface_hub", "huggingface_hub", "hub")


def why(error: BaseException) -> str:
    """What the library says, as part of a line."""
    return " ".join(str(error).split())[:160] or type(error).__name__


class Repository:
    """One commit, of 40 hexadecimal digits, with the names of its files; offline those that the cache holds.

    The folder `memory` keeps which files were verified, so that large ones are read once.
    """

    def __init__(self, address: Address, kind: Kind, memory: Path) -> None:
        self.address, self._kind, self._memory = address, kind, memory
        hub = library()
        self._home = Path(hub.constants.HF_HUB_CACHE) / f"{kind}s--{address.repo.replace('/', '--')}"
        self._described: dict[str, Any] = {}
        try:
            info = hub.HfApi().repo_info(
                address.repo, revision=address.revision, repo_type=kind, files_metadata=True, timeout=20
            )
        except (hub.errors.GatedRepoError, hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError):
            told = f"expected the {kind} {address} on the Hub, but it is not there for you"
            raise InputError(f"{told}; check its name and revision, or log in: hf auth login") from None
        except hub.errors.HFValidationError as error:
            raise InputError(f"expected the name of a {kind} on the Hub, but got {address} ({why(error)})") from None
        except Exception as error:  # no network, or a server in trouble
            revision = address.revision or "main"
            ref = self._home / "refs" / revision
            self.online, self.commit = False, ref.read_text(errors="replace").strip() if ref.is_file() else revision
            self._folder = self._home / "snapshots" / self.commit
            if not self._folder.is_dir():
                raise InputError(
                    f"expected {address} from the Hub or from the cache {self._home.parent}, but it is not there and "
                    f"the Hub was not reached ({why(error)}); fetch it online once"
                ) from None
            self.names = sorted(str(p.relative_to(self._folder)) for p in self._folder.rglob("*") if p.is_file())
            return
        self.online, self.commit = True, str(info.sha)
        self._folder = self._home / "snapshots" / self.commit
        self._described = {file.rfilename: file for file in info.siblings if ".." not in file.rfilename.split("/")}
        self.names = list(self._described)

    def __str__(self) -> str:
        return f"{PREFIX}{self.address.repo}@{self.commit}"

    def fetch(self, names: Sequence[str], progress: Progress | None = None) -> dict[str, Path]:
        """Where these files are on this machine, each downloaded once and verified."""
        if self.online:
            self._download([name for name in names if not (self._folder / name).is_file()], progress)
        files = {name: self._folder / name for name in names}
        for name, path in files.items():
            if not path.is_file():
                raise InputError(f"expected {name} of {self.address} in the cache, but it is not; fetch it online once")
        self._verify(files)
        return files

    def _download(self, names: Sequence[str], progress: Progress | None) -> None:
        hub = library()
        done, total = 0, sum(self._described[name].size or 0 for name in names)

        class Bytes(hub.utils.tqdm):  # type: ignore[misc, name-defined]
            def __init__(self, *words: Any, **options: Any) -> None:
                super().__init__(*words, **{**options, "disable": True})

            def update(self, n: float | None = 1) -> None:
                nonlocal done
                done = min(done + int(n or 0), total)

        def fetch(name: str) -> None:
            options = {"repo_type": self._kind, "revision": self.commit, "tqdm_class": Bytes}
            hub.hf_hub_download(self.address.repo, name, **options)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                waiting = [pool.submit(fetch, name) for name in names]
                for future in waiting:
                    while not future.done() and progress is not None:
                        progress(done, total)
                        with contextlib.suppress(TimeoutError):
                            future.exception(timeout=0.2)
                    future.result()
            except Exception as error:
                pool.shutdown(cancel_futures=True)
                raise InputError(f"expected the files of {self}, but got: {why(error)}; try again") from None
        # As the library does where a branch is asked for: offline it is found by that name.
        ref = self._home / "refs" / (self.address.revision or "main")
        if self._folder.is_dir() and ref.name != self.commit:
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(self.commit)

    def _verify(self, files: dict[str, Path]) -> None:
        """That each holds what the Hub says, now or when it was fetched: the cache names a file by its hash."""
        record = self._memory / f"{hashlib.sha256(str(self).encode()).hexdigest()[:32]}.json"
        try:
            known: dict[str, list[Any]] = shaped("what was seen", json.loads(record.read_text()), {str: list})
        except (OSError, ValueError, RecursionError):
            known = {}
        for name, path in files.items():
            stat = path.stat()
            file = self._described.get(name)
            digest = file and (file.blob_id if file.lfs is None else file.lfs.sha256)
            wanted = digest or path.resolve().name
            seen = [wanted, stat.st_size, stat.st_mtime_ns]
            if known.get(name) == seen:
                continue
            if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", wanted) is None or _digest(path, len(wanted)) != wanted:
                raise InputError(
                    f"expected {name} of {self.address} as the Hub has it, but {path.resolve()} holds something else; "
                    "delete that file and fetch it again"
                )
            known[name] = seen
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(known))


def _digest(path: Path, length: int) -> str:
    """sha256 of a large file; of a small one git's own hash, which begins with the size."""
    begun = b"blob %d\0" % path.stat().st_size
    hasher = hashlib.sha256() if length == 64 else hashlib.sha1(begun, usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hasher).hexdigest()


def send(repo: str, files: Mapping[str, bytes | Path], message: str, *, private: bool = False) -> str:
    """Commit files to a model's repository, which is made where there is none; the commit's name."""
    if "/" not in repo:
        raise InputError(f"expected a repository like owner/name, but got {repo!r}")
    hub = library()
    api = hub.HfApi(library_name="rcad")
    parts = [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=data) for name, data in files.items()]
    bars = hub.utils.are_progress_bars_disabled()
    hub.utils.disable_progress_bars()
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        info = api.create_commit(repo, parts, commit_message=message)
    except Exception as error:  # no network, no right to write, a name that is taken
        raise InputError(f"expected to send to {repo}, but got: {why(error)}; log in: hf auth login") from None
    finally:
        if not bars:
            hub.utils.enable_progress_bars()
    return str(info.oid)
