"""Pages for mkdocstrings: which names of the package are its public interface."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import rcad

HOMES = {
    "criterion": "The loss in your loop",
    "methods": "Methods",
    "alpha": "Measuring alpha",
    "likelihoods": "What the output means",
    "perturbations": "Where the entropy is taken",
    "terms": "Terms of a loss",
    "objective": "The loss as a module",
    "augmentations": "Augmentations",
    "growth": "Sets that grow",
    "passes": "BatchNorm in extra passes",
    "errors": "Errors",
}
EVALUATE = {
    "classification": ("classification", "top_accuracy"),
    "calibration": ("ece", "reliability", "Reliability"),
    "brier": ("brier_parts", "BrierParts"),
    "selective": ("risk_coverage", "RiskCoverage"),
    "temperature": ("fit_temperature", "Temperature"),
    "regression": ("regression", "interval_coverage"),
    "ood": ("out_of_distribution", "scores", "detection"),
    "attacks": ("attacked_accuracy", "accuracy_under", "Attacked", "FGSM", "PGD", "APGD", "Worst"),
    "masking": ("masking_checks", "Check"),
    "corruptions": ("corrupt", "corrupt_numbered", "evaluate_corruptions", "evaluate_published", "CorruptionScores"),
    "corruption_error": ("mean_error", "mce", "relative_mce", "severity_curve"),
    "alpha_curve": ("entropy_against_alpha", "AlphaCurve"),
}
STACKS = ("sklearn", "lightning", "huggingface", "accelerate", "timm", "skorch")
EXPERIMENTS = {
    "A run": ("config.RunConfig", "configure.configure", "run.run", "together.run_together", "record.RunRecord"),
    "The folder of runs": ("store.Store",),
    "Statistics": (
        "statistics.groups.compare_groups",
        "statistics.groups.Difference",
        "statistics.describe.describe",
        "statistics.ttests.paired_t",
        "statistics.ttests.welch",
        "statistics.ranks.wilcoxon",
        "statistics.power.seeds_needed",
        "statistics.published.against_published",
    ),
}


def pages(root: Path) -> dict[str, str]:
    """One page for each part of the package, and their index."""
    found = {
        "rcad": ("rcad", "The loss, its parts, and methods: needs torch and numpy only.", _core()),
        "recipes": ("rcad.methods", "Every method by name.", _recipes()),
        "evaluate": ("rcad.evaluate", "Beyond accuracy: calibration, attacks, corruptions, foreign data.", _modules()),
        "experiments": ("rcad.experiments", "Runs with records, and statistics over seeds.", _experiments()),
    }
    if stacks := _stacks(root):
        found["integrations"] = ("rcad.integrations", "Adapters, one module for each stack.", stacks)
    rows = [f"| [`{title}`]({name}.md) | {about} |" for name, (title, about, _) in found.items()]
    index = (
        "# Python\n\nNames are imported when they are first used, so `import rcad` costs little. Everything not listed "
        "here is internal and may change.\n\n| package | what |\n|---|---|\n" + "\n".join(rows) + "\n"
    )
    return {
        "api/index.md": index,
        **{f"api/{name}.md": f"# {title}\n\n{about}\n\n{text}\n" for name, (title, about, text) in found.items()},
    }


def _core() -> str:
    parts = []
    for home, title in HOMES.items():
        names = [name for name in rcad._HOMES.get(home, ()) if name != "METHODS"]
        parts.append(
            f"## {title}\n\n" + "\n\n".join(_name(f"rcad.{home}.{name}", inherited=name == "RCAD") for name in names)
        )
    missing = set(rcad._HOMES) - set(HOMES)
    assert not missing, f"expected a title for every home of public names, but {missing} have none"
    return "\n\n".join(parts)


def _recipes() -> str:
    told = "Each gives a `Method`; the [cards](../methods/index.md) say more. `rcad.METHODS` holds them by name."
    return "\n\n".join([told, *(_name(f"rcad.methods.{name}", level=2) for name in rcad.METHODS)])


def _modules() -> str:
    return "\n\n".join(_name(f"rcad.evaluate.{name}", level=2, members=names) for name, names in EVALUATE.items())


def _experiments() -> str:
    return "\n\n".join(
        f"## {title}\n\n" + "\n\n".join(_name(f"rcad.experiments.{name}") for name in names)
        for title, names in EXPERIMENTS.items()
    )


def _stacks(root: Path) -> str:
    """The adapters that have a page."""
    parts = []
    for stack in STACKS:
        folder = root / "src" / "rcad" / "integrations"
        module = next((p for p in (folder / f"{stack}.py", folder / stack / "__init__.py") if p.is_file()), None)
        if module is not None and (root / "docs" / "stacks" / f"{stack}.md").is_file():
            more = f"What it changes in your loop: [{stack}](../stacks/{stack}.md).\n\n"
            names = [_name(f"rcad.integrations.{stack}.{name}", inherited=True) for name in _public(module)]
            parts.append(f"## rcad.integrations.{stack}\n\n{more}" + "\n\n".join(names))
    return "\n\n".join(parts)


def _public(module: Path) -> list[str]:
    """The names in `__all__`, or the functions and classes without an underscore."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def _name(path: str, *, level: int = 3, members: Sequence[str] = (), inherited: bool = False) -> str:
    """The directive for one name; of a module these members, in this order."""
    lines = [f"::: {path}", "    options:", f"      heading_level: {level}"]
    if inherited:
        lines.append("      inherited_members: true")  # those of our own classes; a framework's are not read
    if members:
        lines += ["      show_root_full_path: true", f"      members: [{', '.join(members)}]"]
    return "\n".join(lines)
