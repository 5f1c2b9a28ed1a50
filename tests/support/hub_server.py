"""A Hugging Face Hub on this machine: the addresses that huggingface_hub asks for, over repositories in memory."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

Files = dict[str, bytes]
Answer = tuple[int, bytes, dict[str, str]]
LARGE = 200  # files of at least so many bytes are stored as large ones (LFS), with their sha256
REPO = "((?:datasets|models)/[^/]+/[^/]+?)"


class Hub:
    """Repositories by "datasets/owner/name" or "models/owner/name", each a list of commits; the last is main."""

    def __init__(self) -> None:
        self.repositories: dict[str, list[Files]] = {}
        self.asked: list[str] = []
        self.url = ""

    def put(self, repo: str, files: Files) -> str:
        """One more commit; returns its name."""
        self.repositories.setdefault(repo, []).append(files)
        return commit(repo, len(self.repositories[repo]) - 1)

    def find(self, repo: str, revision: str) -> tuple[str, Files] | None:
        commits = {commit(repo, number): files for number, files in enumerate(self.repositories.get(repo, []))}
        name = list(commits)[-1] if revision == "main" and commits else revision
        return (name, commits[name]) if name in commits else None

    def answer(self, path: str, body: bytes) -> Answer:
        if path == "/api/validate-yaml":
            return plain({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            request = json.loads(body)
            name = f"{request.get('organization') or 'me'}/{request['name']}"
            self.repositories.setdefault(f"{request.get('type', 'model')}s/{name}", [{}])
            return plain({"url": f"{self.url}/{name}", "id": name})
        if match := re.fullmatch(rf"/api/{REPO}/preupload/main", path):
            fixed = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            return plain({"files": [{"path": file["path"], **fixed} for file in json.loads(body)["files"]]})
        if match := re.fullmatch(rf"/api/{REPO}/commit/main", path):
            lines = [line["value"] for line in map(json.loads, body.splitlines()) if line["key"] == "file"]
            new = {line["path"]: base64.b64decode(line["content"]) for line in lines}
            name = self.put(match[1], {**self.repositories[match[1]][-1], **new})
            url = f"{self.url}/{match[1].partition('/')[2]}/commit/{name}"
            return plain({"commitUrl": url, "commitOid": name, "success": True})
        if match := re.fullmatch(rf"/api/{REPO}(?:/revision/(.+))?", path):
            version, name = self.find(match[1], match[2] or "main"), match[1].partition("/")[2]
            if version is None:
                return missing("Revision" if match[1] in self.repositories else "Repo")
            siblings = []
            for file, content in version[1].items():
                blob, large = digests(content)
                lfs = {"lfs": {"sha256": large, "size": len(content), "pointerSize": 130}} if large else {}
                siblings.append({"rfilename": file, "size": len(content), "blobId": blob, **lfs})
            about = {"_id": "1", "id": name, "modelId": name, "sha": version[0], "tags": []}
            return plain({**about, "siblings": siblings})
        if match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            version = self.find(f"{match[1] or 'models/'}{match[2]}", match[3])
            if version is not None and match[4] in version[1]:
                blob, large = digests(version[1][match[4]])
                headers = {"ETag": f'"{large or blob}"', "X-Repo-Commit": version[0], "Accept-Ranges": "bytes"}
                return 200, version[1][match[4]], headers
        return missing("Entry")


def plain(value: Any) -> Answer:
    return 200, json.dumps(value).encode(), {"Content-Type": "application/json"}


def missing(kind: str) -> Answer:
    return 404, json.dumps({"error": f"{kind} not found"}).encode(), {"X-Error-Code": f"{kind}NotFound"}


def commit(repo: str, number: int) -> str:
    return hashlib.sha1(f"{repo} {number}".encode()).hexdigest()


def digests(content: bytes) -> tuple[str, str | None]:
    """git's hash, and the sha256 of a large file."""
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return blob, hashlib.sha256(content).hexdigest() if len(content) >= LARGE else None


def point_to(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """The library reads HF_ENDPOINT once, when it is imported."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: Any) -> None:
            pass

        def do_GET(self) -> None:
            path = unquote(self.path).partition("?")[0]
            hub.asked.append(f"{self.command} {path}")
            code, body, headers = hub.answer(path, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            self.send_response(code)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
