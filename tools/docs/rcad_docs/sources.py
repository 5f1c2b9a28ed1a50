"""Files of the repository that are pages as they stand, and the examples with their code."""

from __future__ import annotations

import ast
from pathlib import Path

from rcad_docs import table
from rcad_docs.evidence import WIDE

AS_THEY_STAND = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/NOTES.md", "results/README.md")


def pages(root: Path) -> dict[str, str]:
    """By address in the site."""
    results = sorted(str(path.relative_to(root)) for path in (root / "results").glob("*/*.md"))
    texts = {name: (root / name).read_text(encoding="utf-8") for name in (*AS_THEY_STAND, *results)}
    wide = {name: f"{WIDE}\n\n{texts[name]}" for name in (*results, "results/README.md")}
    return {**texts, **wide, **_examples(root)}


def _examples(root: Path) -> dict[str, str]:
    texts, rows = {}, []
    for path in sorted((root / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        first, _, more = (ast.get_docstring(ast.parse(code)) or "").partition("\n")
        texts[f"examples/{path.stem}.md"] = (
            f"{WIDE}\n\n# {path.stem}\n\n{first} {' '.join(more.split())}\n\n"
            f"`python examples/{path.name}` runs it; a test does too.\n\n````python\n{code}````\n"
        )
        rows.append([f"[{path.stem}]({path.stem}.md)", first])
    intro = "# Examples\n\nWhole programs, each under half a minute on a CPU core. Nothing is downloaded.\n\n"
    texts["examples/index.md"] = f"{intro}{table(['example', 'what it shows'], rows)}\n"
    return texts
