"""Files changed at random, as bytes and inside their structure: the same seed gives the same mutant."""

import contextlib
import gzip
import hashlib
import io
import json
import struct
import tomllib
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

from rcad.runs.files import SUM

Mutate = Callable[[bytes, Random], bytes]

TEXTS = (
    *("", " ", "none", "nan", "-1", "0x10", "true", "1e999", "../../x", "/dev/full", "~nobody/x", "C:\\x", "\0"),
    *("é" * 40, "\x1b[31mred\x1b[0m", "a\nb", "\r", "\u202e", "\ud800", "x" * 400, "x" * 6000, "T1", "{0}", "%s"),
    *("<b>", "$(x)"),
)
NUMBERS = (0, -1, 1, 2, 3, 255, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**400, 1e-320, 0.5, 1e308, -1e308, -0.0)
WORDS = (
    *(b"\0", b"\xff", b"\xff\xfe", b"nan", b"inf", b"-", b"'", b'"', b",", b"\n", b"\r\n", b"1e999"),
    *(b"9" * 5000, b"{" * 50),
)


def value(draw: Random) -> Any:
    """Anything that JSON can hold, and some that no reader expects."""
    simple = (NUMBERS, NUMBERS, TEXTS, TEXTS, (None, True, False), ([], {}, [[]], {"": {}}, [None], {"kind": 1}))
    kind = draw.randrange(8)
    if kind < 6:
        return draw.choice(simple[kind])
    if kind == 6:
        return [value(draw) for _ in range(draw.randrange(1, 4))]
    deep: Any = 0
    for _ in range(draw.choice((3, 60, 200))):
        deep = [deep] if draw.random() < 0.5 else {"x": deep}
    return deep


def tree(plain: Any, draw: Random) -> Any:
    """The same data with one or a few of its parts replaced, removed, added, doubled or swapped."""
    plain = json.loads(json.dumps(plain))
    holder = {"top": plain}
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        places = list(_places(holder))
        parent, key = draw.choice(places)
        change = draw.randrange(7)
        if change < 3 or parent is holder:
            parent[key] = value(draw)
        elif change == 3:
            del parent[key]
        elif change == 4 and isinstance(parent, dict):
            parent[draw.choice((*TEXTS[:6], str(key) + "s"))] = parent.pop(key)
        elif change == 5 and isinstance(parent, list):
            parent.append(parent[key])
        else:
            other, place = draw.choice(places[1:] or places)
            if key in (parent if isinstance(parent, dict) else range(len(parent))):
                parent[key] = json.loads(json.dumps(other[place]))
    return holder["top"]


def _places(node: Any) -> Any:
    for key in node if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])


def raw(data: bytes, draw: Random) -> bytes:
    """One to four changes of bytes."""
    content = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        size = len(content)
        at = draw.randrange(size + 1)
        length = draw.choice((1, 2, 4, 8, 64, 512))
        change = draw.randrange(9)
        if change == 0 and size:
            content[at % size] ^= 1 << draw.randrange(8)
        elif change == 1:
            del content[at:]
        elif change == 2:
            content[at : at + length] = bytes(len(content[at : at + length]))
        elif change == 3:
            content[at : at + length] = draw.randbytes(length)
        elif change == 4:
            content[at:at] = draw.choice(WORDS)
        elif change == 5:
            content[at:at] = content[at : at + length]
        elif change == 6:
            del content[at : at + length]
        elif change == 7:
            number = draw.choice((0, 1, 127, 2**15, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1))
            packed = struct.pack(draw.choice("<>") + "Q", number)[: draw.choice((2, 4, 8))]
            content[at : at + len(packed)] = packed
        else:
            content += draw.randbytes(length)
    return bytes(content)


def _or_raw(mutate: Mutate, share: float = 0.25) -> Mutate:
    def mixed(data: bytes, draw: Random) -> bytes:
        return raw(data, draw) if draw.random() < share else mutate(data, draw)

    return mixed


def _dumped(plain: Any) -> bytes:
    return json.dumps(plain).encode("utf-8", "surrogatepass")


@_or_raw
def as_json(data: bytes, draw: Random) -> bytes:
    plain = tree(json.loads(data), draw)
    if isinstance(plain, dict) and draw.random() < 0.7:
        plain.pop(SUM, None)  # files of early versions have none, so that what they say is believed
    return _dumped(plain)


@_or_raw
def as_lines(data: bytes, draw: Random) -> bytes:
    lines = data.splitlines()
    at = draw.randrange(len(lines))
    lines[at] = _dumped(tree(json.loads(lines[at]), draw))
    return b"\n".join(lines) + b"\n"


@_or_raw
def as_toml(data: bytes, draw: Random) -> bytes:
    plain = tree(tomllib.loads(data.decode()), draw)
    if not isinstance(plain, dict):
        return _dumped(plain)
    lines = [f"{json.dumps(key)} = {_inline(item)}" for key, item in plain.items()]
    return "\n".join(lines).encode("utf-8", "replace")


def _inline(item: Any) -> str:
    if isinstance(item, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(one)}" for key, one in item.items()) + "}"
    if isinstance(item, list):
        return "[" + ", ".join(map(_inline, item)) + "]"
    return '"none"' if item is None else json.dumps(item)


@_or_raw
def as_pack(data: bytes, draw: Random) -> bytes:
    """A pack whose checksum fits, whatever its lines say."""
    header, *lines = gzip.decompress(data).splitlines()
    at = draw.randrange(len(lines) + 1)
    if at < len(lines):
        lines[at] = _dumped(tree(json.loads(lines[at]), draw))
    body = b"".join(line + b"\n" for line in lines)
    plain = {**json.loads(header), "sha256": hashlib.sha256(body).hexdigest()}
    changed = tree(plain, draw) if at == len(lines) else plain
    return gzip.compress(_dumped(changed) + b"\n" + body)


@_or_raw
def as_manifest(data: bytes, draw: Random) -> bytes:
    """A cache's manifest whose checksum fits."""
    plain = json.loads(data)
    plain.pop("checksum")
    changed = tree(plain, draw)
    if not isinstance(changed, dict):
        return _dumped(changed)
    checksum = hashlib.sha256(json.dumps(changed, sort_keys=True).encode("utf-8", "replace")).hexdigest()
    return _dumped({**changed, "checksum": checksum})


@_or_raw
def as_tensors(data: bytes, draw: Random) -> bytes:
    """A safetensors file: its header, the JSON inside its header, or the bytes of its tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    what = draw.randrange(3)
    texts = [key for key, text in header.get("__metadata__", {}).items() if text[:1] in "{["]
    if what == 0:
        header = tree(header, draw)
    elif what == 1 and texts:
        key = draw.choice(texts)
        inner = tree(json.loads(header["__metadata__"][key]), draw)
        header["__metadata__"][key] = json.dumps(inner)
    else:
        body = bytearray(body)
        at = draw.randrange(max(1, len(body) - 8))
        body[at : at + 8] = draw.choice((b"\0" * 8, b"\xff" * 8, draw.randbytes(8)))
    for key in texts if draw.random() < 0.7 and isinstance(header, dict) else ():
        with contextlib.suppress(LookupError, TypeError, ValueError):  # where what was put there is no such object
            inner = dict(json.loads(header["__metadata__"][key]))
            inner.pop(SUM, None)
            header["__metadata__"][key] = json.dumps(inner)
    text = _dumped(header)
    return struct.pack("<Q", len(text)) + text + bytes(body)


@_or_raw
def as_text(data: bytes, draw: Random) -> bytes:
    """Cells and lines of a table."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    cells = lines[at].split(b",")
    change = draw.randrange(5)
    word = draw.choice((*WORDS, *(text.encode("utf-8", "surrogatepass") for text in TEXTS), b"1e400", b"2020-99-99"))
    if change < 2:
        cells[draw.randrange(len(cells))] = word
    elif change == 2:
        cells.insert(draw.randrange(len(cells)), word)
    elif change == 3:
        cells.pop()
    else:
        lines[1:] = [b",".join([word, *line.split(b",")[1:]]) for line in lines[1:]]
    lines[at] = b",".join(cells)
    return b"\n".join(lines)


@_or_raw
def as_array(data: bytes, draw: Random) -> bytes:
    """The header of an .npy file, or the bytes after it."""
    start = 10 + struct.unpack("<H", data[8:10])[0]
    header = data[10:start].decode()
    shapes = ("()", "(4000000, 1500)", "(-1, 3)", "(((", "(0,)", "(10**30,)", "(3, 'a')", "(1, 2, 3, 4, 5)", "None")
    kinds = ("'|O'", "'<U7'", "'<f2'", "'>f8'", "'|V3'", "'<M8[D]'", "'c16'", "[('a', '<f8')]", "'x'", "3", "'|b1'")
    change = draw.randrange(4)
    if change == 0:
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {draw.choice(shapes)}, }}"
    elif change == 1:
        kind, order = draw.choice(kinds), draw.choice((True, 0, "x"))
        header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': (60, 2), }}"
    elif change == 2:
        header = raw(header.encode(), draw).decode("latin1")
    else:
        return data[:start] + raw(data[start:], draw)
    text = header.encode("latin1")[:60000]
    return data[:8] + struct.pack("<H", len(text)) + text + data[start:]


@_or_raw
def as_zip(data: bytes, draw: Random) -> bytes:
    """Members of a zip or npz: contents, names, sizes in the directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(one.filename, archive.read(one)) for one in archive.infolist()]
    at = draw.randrange(len(members))
    name, content = members[at]
    change = draw.randrange(4)
    if change == 0:
        members[at] = name, raw(content, draw)
    elif change == 1:
        names = ("../" + name, "/" + name, name + "/", "x", name.upper(), "é.npy", "a" * 300)
        members[at] = draw.choice(names), content
    elif change == 2:
        members[at] = name, as_array(content, draw) if content[:1] == b"\x93" else content * 3
    else:
        members.append((draw.choice((name, "__MACOSX/x", "x/y/z.png")), content))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, inside in members:
            archive.writestr(one, inside)
    whole = bytearray(made.getvalue())
    if draw.random() < 0.3 and (place := whole.rfind(b"PK\x01\x02")) >= 0:
        place += draw.randrange(4, 46)
        whole[place : place + 4] = draw.randbytes(4)
    return bytes(whole)


@_or_raw
def as_tar(data: bytes, draw: Random) -> bytes:
    """Headers of a tar, with checksums that fit."""
    plain = bytearray(gzip.decompress(data))
    heads = [at for at in range(0, len(plain), 512) if plain[at + 257 : at + 262] == b"ustar"]
    at = draw.choice(heads)
    field, size = draw.choice(((0, 100), (100, 8), (108, 8), (124, 12), (136, 12), (156, 1), (157, 100), (345, 155)))
    texts = (b"-1", b"../../x", b"/x", b"\x80" + b"\0" * 7 + b"\xff" * 4, b"S", b"x", b"L", b"2", b"K", b"V")
    new = draw.choice((b"\xff" * size, b"7" * (size - 1), *texts))
    plain[at + field : at + field + size] = new[:size].ljust(size, b"\0")
    plain[at + 148 : at + 156] = b" " * 8
    plain[at + 148 : at + 156] = b"%06o\0 " % sum(plain[at : at + 512])
    return gzip.compress(bytes(plain))
