"""A document as one HTML file that needs nothing else: light and dark, on paper and on a phone; or as a fragment."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from rcad.errors import need
from rcad.report.document import EXTRA, Command, Document, Figure, Table, code_spans


def page(document: Document) -> str:
    """The whole page; its policy lets nothing in but its own script."""
    script = _text("page.js")
    assert "</script" not in script.lower()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    # Only our own files and the pictures are taken as they are; everything else is escaped.
    trusted = _markup()
    return _render("page.html", document, policy=policy, script=trusted(script), style=trusted(_text("page.css")))


def fragment(document: Document) -> str:
    """The sections alone, for a notebook: no script, no style of its own."""
    return _render("sections.html", document, still=True)


def _render(name: str, document: Document, **values: Any) -> str:
    jinja2 = need("jinja2", "jinja2", EXTRA)
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_text),
    )
    environment.filters["prose"] = _prose
    for kind in (Table, Figure, Command):
        environment.tests[kind.__name__.lower()] = lambda part, kind=kind: isinstance(part, kind)
    values = {"still": False, "document": document, "trusted": _markup(), "list": list, **values}
    text: str = environment.get_template(name).render(values)
    return text


def _prose(text: str) -> Any:
    """Escaped text, what stands in backticks as code."""
    markup = _markup()
    code = markup("<code>{}</code>")
    return markup("").join(code.format(piece) if is_code else piece for piece, is_code in code_spans(text))


def _markup() -> Any:
    return need("markupsafe", "jinja2", EXTRA).Markup


def _text(name: str) -> str:
    return resources.files("rcad.report").joinpath(name).read_text(encoding="utf-8")
