"""Files of the repository that are pages as they stand, and the examples with their code."""

from __future__ import annotations

import ast
from pathlib import Path

from rcad_docs.evidence import WIDE

AS_THEY_STAND = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/NOTES.md", "results/README.md")


def pages(root: Path) -> dict[str, str]:
    """By address in the site."""
    tables = sorted(str(path.relative_to(root)) for path in (root / "results").glob("*/*.md"))
    found = {name: (root / name).read_text(encoding="utf-8") for name in (*AS_THEY_STAND, *tables)}
    found.update({name: f"{WIDE}\n\n{found[name]}" for name in (*tables, "results/README.md")})
    return {**found, **_examples(root)}


def _examples(root: Path) -> dict[str, str]:
    found, lines = {}, []
    for path in sorted((root / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        told = ast.get_docstring(ast.parse(code)) or ""
        first, _, rest = told.partition("\n")
        found[f"examples/{path.stem}.md"] = (
            f"{WIDE}\n\n# {path.stem}\n\n{first} {' '.join(rest.split())}\n\n"
            f"`python examples/{path.name}` runs it; a test does too.\n\n````python\n{code}````\n"
        )
        lines.append(f"| [{path.stem}]({path.stem}.md) | {first} |")
    intro = "# Examples\n\nWhole programs, each under half a minute on a CPU core. Nothing is downloaded.\n\n"
    found["examples/index.md"] = intro + "\n".join(["| example | what it shows |", "|---|---|", *lines]) + "\n"
    return found
