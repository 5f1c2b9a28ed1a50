"""Pages for mkdocstrings: which names of the package are its public interface."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import rcad

HOMES = {
    "loss.criterion": "The loss in your loop",
    "train.own_loop": "The captured step in your loop",
    "loss.methods": "Methods",
    "loss.suggest_alpha": "Measuring alpha",
    "loss.likelihoods": "What the output means",
    "loss.perturbations": "Where the entropy is taken",
    "loss.terms": "Terms of a loss",
    "loss.objective": "The loss as a module",
    "loss.augmentations": "Augmentations",
    "loss.growth": "Sets that grow",
    "loss.model_calls": "BatchNorm in extra passes",
    "predict.predictor": "Finished runs on new data",
    "study.compare": "Comparing methods on your data",
    "study.tune": "Choosing a method's parameters",
    "study.evaluations": "Finished runs beyond accuracy",
    "errors": "Errors",
}
EVALUATE = {
    "evaluate.classification": (
        *("classification", "top_accuracy", "risk_coverage", "RiskCoverage"),
        *("fit_temperature", "Temperature"),
    ),
    "loss.predictions": ("ece", "reliability", "Reliability"),
    "evaluate.regression": ("regression", "interval_coverage"),
    "evaluate.ood": ("out_of_distribution", "scores", "detection", "entropy_against_alpha", "AlphaCurve"),
    "evaluate.attacks": ("attacked_accuracy", "accuracy_under", "Attacked", "FGSM", "PGD", "APGD", "Worst"),
    "evaluate.robustness": ("standard_suite",),
    "evaluate.masking": ("masking_checks", "Check"),
    "evaluate.corruptions": (
        *("corrupt", "corrupt_numbered", "evaluate_corruptions", "evaluate_published", "CorruptionScores"),
        *("mean_error", "mce", "relative_mce", "severity_curve"),
    ),
}
STACKS = ("sklearn", "lightning", "huggingface", "accelerate", "timm", "skorch")
RUNS = {
    "A run": (
        "runs.config.RunConfig",
        "runs.configure.configure",
        "train.run.run",
        "train.scheduler.schedule",
        "runs.record.RunRecord",
    ),
    "A run that predicts": ("predict.predictor.Predictor",),
    "The folder of runs": ("runs.store.Store",),
    "Statistics": (
        "study.judge.compare_groups",
        "study.judge.Difference",
        "study.statistics.describe",
        "study.statistics.paired_t",
        "study.statistics.welch",
        "study.statistics.wilcoxon",
        "study.statistics.seeds_needed",
        "study.statistics.against_published",
    ),
}


def pages(root: Path) -> dict[str, str]:
    """One page for each part of the package, and their index."""
    parts = {
        "rcad": ("rcad", "The loss, its parts, and methods: needs torch and numpy only.", _core()),
        "recipes": ("rcad.methods", "Every method by name.", _recipes()),
        "evaluate": ("rcad.evaluate", "Beyond accuracy: calibration, attacks, corruptions, foreign data.", _modules()),
        "runs": ("rcad.runs", "Runs with records, and statistics over seeds.", _runs()),
    }
    if stacks := _stacks(root):
        parts["integrations"] = ("rcad.integrations", "Adapters, one module for each stack.", stacks)
    rows = [f"| [`{title}`]({name}.md) | {about} |" for name, (title, about, _) in parts.items()]
    index = (
        "# Python\n\nNames are imported when they are first used, so `import rcad` costs little. Everything not listed "
        "here is internal and may change.\n\n| package | what |\n|---|---|\n" + "\n".join(rows) + "\n"
    )
    return {
        "api/index.md": index,
        **{f"api/{name}.md": f"# {title}\n\n{about}\n\n{text}\n" for name, (title, about, text) in parts.items()},
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
    about = "Each gives a `Method`; the [cards](../methods/index.md) say more. `rcad.METHODS` holds them by name."
    return "\n\n".join([about, *(_name(f"rcad.methods.{name}", level=2) for name in rcad.METHODS)])


def _modules() -> str:
    return "\n\n".join(_name(f"rcad.{name}", level=2, members=names) for name, names in EVALUATE.items())


def _runs() -> str:
    return "\n\n".join(
        f"## {title}\n\n" + "\n\n".join(_name(f"rcad.{name}") for name in names) for title, names in RUNS.items()
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
