"""Files changed at random, as bytes and inside their structure: the same seed gives the same mutant."""

import gzip
import hashlib
import io
import json
import struct
import tomllib
import zipfile
from collections.abc import Callable, Iterator
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
OTHERS = ("null", "true", "false", "[]", "{}", "[[]]", '{"": {}}', "[null]", '{"kind": 1}')
SHORT = (b"\0", b"\xff", b"\xff\xfe", b"nan", b"inf", b"-", b"'", b'"', b",", b"\n", b"\r\n", b"1e999")
WORDS = (*SHORT, b"9" * 5000, b"{" * 50)
CELLS = (*WORDS, *(text.encode("utf-8", "surrogatepass") for text in TEXTS), b"1e400", b"2020-99-99")
SIZES = (0, 1, 127, 2**15, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
SHAPES = ("()", "(4000000, 1500)", "(-1, 3)", "(((", "(0,)", "(10**30,)", "(3, 'a')", "(1, 2, 3, 4, 5)", "None")
TYPES = ("'|O'", "'<U7'", "'<f2'", "'>f8'", "'|V3'", "'<M8[D]'", "'c16'", "[('a', '<f8')]", "'x'", "3", "'|b1'")
TAR_FIELDS = ((0, 100), (100, 8), (108, 8), (124, 12), (136, 12), (156, 1), (157, 100), (345, 155))
TAR_TEXTS = (b"-1", b"../../x", b"/x", b"\x80" + b"\0" * 7 + b"\xff" * 4, b"S", b"x", b"L", b"2", b"K", b"V")


def value(draw: Random) -> Any:
    """Anything that JSON can hold, and some that no reader expects."""
    several, deep = draw.choices((*NUMBERS, *TEXTS), k=draw.randrange(1, 4)), 0
    for _ in range(draw.choice((3, 60, 200))):
        deep = draw.choice(([deep], {"x": deep}))
    simple = draw.choice(NUMBERS), draw.choice(TEXTS), json.loads(draw.choice(OTHERS))
    return draw.choices((*simple, several, deep), (2, 2, 2, 1, 1))[0]


def tree(plain: Any, draw: Random) -> Any:
    """The same data with one or a few of its parts replaced, removed, added, doubled or swapped."""
    holder = {"top": json.loads(json.dumps(plain))}
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
            other, place = draw.choice(places[1:])
            parent[key] = json.loads(json.dumps(other[place]))
    return holder["top"]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key in node if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])


def raw(data: bytes, draw: Random) -> bytes:
    """One to four changes of bytes: bits turned, parts cut, emptied, doubled, replaced or put in."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.choice((len(data), *(draw.randrange(len(data) + 1) for _ in range(8))))
        length = draw.choice((1, 2, 4, 8, 64, 512))
        part, noise = data[at : at + length], draw.randbytes(length)
        turned = bytes(byte ^ 1 << draw.randrange(8) for byte in part[:1])
        number = struct.pack(draw.choice("<>") + "Q", draw.choice(SIZES))[: draw.choice((2, 4, 8))]
        instead = ((1, turned), (length, bytes(len(part))), (length, noise), (length, b""), (len(number), number))
        added = ((0, draw.choice(WORDS)), (0, part), (0, noise))
        cut, new = draw.choice((*instead, *added, (len(data), b"")))
        data = data[:at] + new + data[at + cut :]
    return data


def _believed(plain: Any, draw: Random) -> Any:
    """Mostly without the checksum: files of early versions have none, so that what they say is believed."""
    if isinstance(plain, dict) and draw.random() < 0.7:
        plain.pop(SUM, None)
    return plain


def as_json(data: bytes, draw: Random) -> bytes:
    return json.dumps(_believed(tree(json.loads(data), draw), draw)).encode()


def as_lines(data: bytes, draw: Random) -> bytes:
    lines = data.splitlines()
    at = draw.randrange(len(lines))
    lines[at] = json.dumps(tree(json.loads(lines[at]), draw)).encode()
    return b"\n".join(lines) + b"\n"


def as_toml(data: bytes, draw: Random) -> bytes:
    plain = tree(tomllib.loads(data.decode()), draw)
    pairs = plain.items() if isinstance(plain, dict) else [("top", plain)]
    lines = [f"{json.dumps(key)} = {json.dumps(item, separators=(', ', ' = '))}" for key, item in pairs]
    return "\n".join(lines).replace("null", '"none"').encode("utf-8", "replace")


def as_pack(data: bytes, draw: Random) -> bytes:
    """A pack whose checksum fits, whatever its lines say."""
    header, *lines = gzip.decompress(data).splitlines()
    at = draw.randrange(len(lines) + 1)
    if at < len(lines):
        lines[at] = json.dumps(tree(json.loads(lines[at]), draw)).encode()
    body = b"".join(line + b"\n" for line in lines)
    plain = {**json.loads(header), "sha256": hashlib.sha256(body).hexdigest()}
    return gzip.compress(json.dumps(plain if at < len(lines) else tree(plain, draw)).encode() + b"\n" + body, mtime=0)


def as_manifest(data: bytes, draw: Random) -> bytes:
    """A cache's manifest whose checksum fits."""
    changed = tree({key: value for key, value in json.loads(data).items() if key != "checksum"}, draw)
    if isinstance(changed, dict):
        changed["checksum"] = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    return json.dumps(changed).encode()


def as_tensors(data: bytes, draw: Random) -> bytes:
    """A safetensors file: its header, the JSON inside its header, or the bytes of its tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    told = header.get("__metadata__", {})
    texts = {key: json.loads(text) for key, text in told.items() if text[:1] in ("{", "[")}
    what = draw.choice(("header", "texts" if texts else "body", "body"))
    if what == "texts":
        key = draw.choice(list(texts))
        texts[key] = tree(texts[key], draw)
    told |= {key: json.dumps(_believed(inner, draw)) for key, inner in texts.items()}
    if what == "header":
        header = tree(header, draw)
    elif what == "body":
        at = draw.randrange(max(1, len(body) - 8))
        body = body[:at] + draw.choice((b"\0" * 8, b"\xff" * 8, draw.randbytes(8))) + body[at + 8 :]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def as_text(data: bytes, draw: Random) -> bytes:
    rows = [line.split(b",") for line in data.split(b"\n")]
    row, word, change = draw.choice(rows), draw.choice(CELLS), draw.randrange(5)
    at = draw.randrange(len(row))
    for cells in rows[1:] if change == 4 else [row]:
        cells[at : at + (change != 2)] = [] if change == 3 else [word]
    return b"\n".join(map(b",".join, rows))


def as_array(data: bytes, draw: Random) -> bytes:
    """The header of an .npy file, or the bytes after it."""
    start = 10 + struct.unpack("<H", data[8:10])[0]
    shape, kind, order = draw.choice(SHAPES), draw.choice(TYPES), draw.choice((True, 0, "x"))
    of_shape = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    of_type = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': (60, 2), }}".encode()
    header = draw.choice((b"", of_shape, of_type, raw(data[10:start], draw)[:60000]))
    if not header:
        return data[:start] + raw(data[start:], draw)
    return data[:8] + struct.pack("<H", len(header)) + header + data[start:]


def as_zip(data: bytes, draw: Random) -> bytes:
    """Members of a zip or npz: contents, names, sizes in the directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(one.filename, archive.read(one)) for one in archive.infolist()]
    at = draw.randrange(len(members))
    name, content = members[at]
    names = ("../" + name, "/" + name, name + "/", "x", name.upper(), "é.npy", "a" * 300)
    other = as_array(content, draw) if content[:1] == b"\x93" else content * 3
    changed, renamed = (name, draw.choice((raw(content, draw), other))), (draw.choice(names), content)
    more = draw.choice((name, "__MACOSX/x", "x/y/z.png")), content
    members[at : at + 1] = draw.choice(([changed], [changed], [renamed], [members[at], more]))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, inside in members:
            archive.writestr(one, inside)
    whole = made.getvalue()
    place = whole.rfind(b"PK\x01\x02") + draw.randrange(4, 46)
    return whole if draw.random() < 0.7 else whole[:place] + draw.randbytes(4) + whole[place + 4 :]


def as_tar(data: bytes, draw: Random) -> bytes:
    """Headers of a tar, with checksums that fit."""
    plain = bytearray(gzip.decompress(data))
    at = draw.choice([at for at in range(0, len(plain), 512) if plain[at + 257 : at + 262] == b"ustar"])
    field, size = draw.choice(TAR_FIELDS)
    new = draw.choice((b"\xff" * size, b"7" * (size - 1), *TAR_TEXTS))
    plain[at + field : at + field + size] = new[:size].ljust(size, b"\0")
    plain[at + 148 : at + 156] = b" " * 8
    plain[at + 148 : at + 156] = b"%06o\0 " % sum(plain[at : at + 512])
    return gzip.compress(bytes(plain), mtime=0)
