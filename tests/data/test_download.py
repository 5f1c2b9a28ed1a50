"""Downloads against a server on this machine that cuts, ignores, refuses and lies."""

import dataclasses
import hashlib
import http.server
import socket
import threading

import pytest

from one_line import one_line
from rcad.data import official
from rcad.data.official import fetch, fetch_file
from rcad.data.registry import OFFICIAL, Remote
from rcad.errors import InputError

CONTENT = bytes(range(256)) * 4000


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT. `cuts`: after how many bytes to drop each of the first connections."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cuts, self.statuses, self.ranges = [], [], []
        self.supports_range, self.sends_length, self.ignores_start = True, True, False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/files/data.bin"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.ranges.append(wanted)
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.supports_range else 0
        if start >= len(CONTENT):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            start = 0 if server.ignores_start else start
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if server.sends_length:
            self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        stop = start + server.cuts.pop(0) if server.cuts else None
        self.wfile.write(CONTENT[start:stop])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(official.time, "sleep", lambda seconds: None)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def remote(server, md5=None):
    return Remote(server.url, md5 or hashlib.md5(CONTENT, usedforsecurity=False).hexdigest())


def test_a_whole_file_with_progress(server, tmp_path):
    calls = []
    path = fetch_file(remote(server), tmp_path / "new", progress=lambda *counts: calls.append(counts))
    assert path == tmp_path / "new" / "data.bin"
    assert path.read_bytes() == CONTENT
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    assert len(calls) > 2
    assert not list(path.parent.glob("*.part"))
    fetch_file(remote(server), tmp_path / "new")
    assert len(server.ranges) == 1, "a file that is there is not asked for again"


def test_a_cut_connection_is_continued(server, tmp_path):
    server.cuts = [400_000, 300_000]
    assert fetch_file(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=400000-", "bytes=700000-"]


def test_a_later_call_continues_what_an_earlier_one_left(server, tmp_path):
    server.cuts = [1000, 0, 0, 0]
    with pytest.raises(InputError, match=r"connection was lost; try again to continue, or put the file at .*data.bin"):
        fetch_file(remote(server), tmp_path)
    assert (tmp_path / "data.bin.part").stat().st_size == 1000
    assert not (tmp_path / "data.bin").exists()
    assert fetch_file(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=1000-"


@pytest.mark.parametrize("fault", ["no range", "wrong range", "no length"])
def test_a_server_that_cannot_resume_starts_over_and_one_without_a_length_has_no_total(server, tmp_path, fault):
    server.cuts = [1000] if fault != "no length" else []
    server.supports_range = fault != "no range"
    server.ignores_start = fault == "wrong range"
    server.sends_length = fault != "no length"
    calls = []
    path = fetch_file(remote(server), tmp_path, progress=lambda *counts: calls.append(counts))
    assert path.read_bytes() == CONTENT
    assert calls[-1] == (len(CONTENT), 0 if fault == "no length" else len(CONTENT))


@pytest.mark.parametrize("extra", [b"", b"too long"])
def test_a_part_that_is_already_whole_or_too_long(server, tmp_path, extra):
    (tmp_path / "data.bin.part").write_bytes(CONTENT + extra)
    assert fetch_file(remote(server), tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing_and_a_wrong_file_there_is_kept_and_named(server, tmp_path):
    with pytest.raises(
        InputError, match=r"^expected md5 0{32} for .*data.bin.part, but got [0-9a-f]{32}; fetch it again"
    ):
        fetch_file(remote(server, "0" * 32), tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    (tmp_path / "data.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match="delete it and fetch it again"):
        fetch_file(remote(server), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == b"mine"


def test_not_found_is_not_tried_again_and_a_server_error_is(server, tmp_path):
    server.statuses = [404]
    with pytest.raises(InputError, match=r"but got: HTTP 404 .*put the file at .*data.bin by hand$"):
        fetch_file(remote(server), tmp_path)
    assert len(server.ranges) == 1
    server.statuses = [503, 500]
    assert fetch_file(remote(server), tmp_path).read_bytes() == CONTENT


def test_no_network_and_other_addresses_are_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/data.bin"  # bound but not listening: refused
        with one_line(f"put the file at {tmp_path / 'data.bin'} by hand"):
            fetch_file(Remote(url, "0" * 32), tmp_path)
    for url in ("file:///etc/passwd", "ftp://host/data.bin"):
        with one_line("expected an http"):
            fetch_file(Remote(url, "0" * 32), tmp_path)


def test_fetch_takes_every_file_of_a_set(server, tmp_path, monkeypatch):
    other = Remote(server.url.replace("data", "more"), remote(server).md5)
    toy = dataclasses.replace(OFFICIAL["svhn"], files=(remote(server),), optional=(other,))
    monkeypatch.setitem(OFFICIAL, "svhn", toy)
    assert fetch("svhn", tmp_path) == [tmp_path / "svhn" / "data.bin"]
    assert fetch("svhn", tmp_path, extra=True) == [tmp_path / "svhn" / name for name in ("data.bin", "more.bin")]
    with pytest.raises(InputError, match="expected a data set that can be fetched"):
        fetch("digits", tmp_path)


def test_a_full_disk_is_not_taken_for_a_lost_connection(server, tmp_path):
    (tmp_path / "data.bin.part").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"expected to write the download in .*No space left"):
        fetch_file(remote(server), tmp_path)
    assert len(server.ranges) == 1
