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
LARGE = 200
"""Files of at least so many bytes are stored as large ones (LFS), with their sha256."""


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
        commits = self.repositories.get(repo, [])
        for number, files in enumerate(commits):
            if revision == commit(repo, number) or (revision == "main" and number == len(commits) - 1):
                return commit(repo, number), files
        return None


def commit(repo: str, number: int) -> str:
    return hashlib.sha1(f"{repo} {number}".encode()).hexdigest()


def digests(content: bytes) -> tuple[str, str | None]:
    """git's hash, and the sha256 of a large file."""
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return blob, hashlib.sha256(content).hexdigest() if len(content) >= LARGE else None


def described(name: str, content: bytes) -> dict[str, Any]:
    """A file in the answer about its repository."""
    blob, large = digests(content)
    lfs = {"lfs": {"sha256": large, "size": len(content), "pointerSize": 130}} if large else {}
    return {"rfilename": name, "size": len(content), "blobId": blob, **lfs}


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

        def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(code)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def plain(self, value: Any) -> None:
            self.answer(200, json.dumps(value).encode(), Content_Type="application/json")

        def missing(self, kind: str) -> None:
            self.answer(404, json.dumps({"error": f"{kind} not found"}).encode(), X_Error_Code=f"{kind}NotFound")

        def asked(self) -> str:
            path = unquote(self.path).partition("?")[0]
            hub.asked.append(f"{self.command} {path}")
            return path

        def do_GET(self) -> None:
            path = self.asked()
            if match := re.fullmatch(r"/api/((?:datasets|models)/[^/]+/[^/]+?)(?:/revision/(.+))?", path):
                repo, revision = match[1], match[2] or "main"
                version = hub.find(repo, revision)
                if version is None:
                    self.missing("Revision" if repo in hub.repositories else "Repo")
                    return
                name, siblings = repo.partition("/")[2], [described(*file) for file in version[1].items()]
                about = {"_id": "1", "id": name, "modelId": name, "sha": version[0]}
                self.plain({**about, "siblings": siblings, "tags": []})
            elif match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                repo = f"{'datasets' if match[1] else 'models'}/{match[2]}"
                version = hub.find(repo, match[3])
                if version is None or match[4] not in version[1]:
                    self.missing("Entry")
                    return
                content = version[1][match[4]]
                blob, large = digests(content)
                self.answer(200, content, ETag=f'"{large or blob}"', X_Repo_Commit=version[0], Accept_Ranges="bytes")
            else:
                self.missing("Entry")

        do_HEAD = do_GET

        def do_POST(self) -> None:
            path = self.asked()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if path == "/api/repos/create":
                request = json.loads(body)
                repo = f"{request.get('type', 'model')}s/{request.get('organization') or 'me'}/{request['name']}"
                hub.repositories.setdefault(repo, [{}])
                self.plain({"url": f"{hub.url}/{repo.partition('/')[2]}", "id": repo.partition("/")[2]})
            elif path == "/api/validate-yaml":
                self.plain({"errors": [], "warnings": []})
            elif match := re.fullmatch(r"/api/((?:datasets|models)/.+)/preupload/main", path):
                fixed = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
                self.plain({"files": [{"path": file["path"], **fixed} for file in json.loads(body)["files"]]})
            elif match := re.fullmatch(r"/api/((?:datasets|models)/.+)/commit/main", path):
                files = dict(hub.repositories[match[1]][-1])
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                name = hub.put(match[1], files)
                url = f"{hub.url}/{match[1].partition('/')[2]}/commit/{name}"
                self.plain({"commitUrl": url, "commitOid": name, "success": True})
            else:
                self.missing("Entry")

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
