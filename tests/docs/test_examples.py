"""Every example runs, prints what it promises and complains about nothing."""

import ast
import re

import pytest

from docs.conftest import Program
from documents import EXAMPLES
from timm_folder import prelude

KEY_LINES = {
    "own_loop": [r"^RCAD +\d\d\.\d ± \d\.\d   \d\.\d{3} ± \d\.\d{3}$"],
    "captured_loop": [
        r"^rcad\.capture: 9\d\.\d% of 1597 test images, last loss -\d\.\d{4}, (eagerly|in a CUDA graph), \d+\.\d s$"
    ],
    "compose": [
        r"^written as JSON and read back: mixup\(alpha=0\.2\) \+ label_smoothing\(.*\) \+ rcad\(alpha=1\.0, .*\)$",
        r"^conflict: expected one method to set the mix augmentation, but got 'mixup' and 'cutmix'$",
    ],
    "regression": [r"^RCAD +5\.\d{3} ± 0\.\d{3} +5\d\.\d ± \d\.\d$"],
    "lightning_trainer": [
        r"^with the mixin +8\d\.\d% of 1697 test images, NLL 0\.\d{3}$",
        r"^callback and mixin: weights differ by at most (0e\+00|\de-0[5-9])$",
    ],
    "lightning_fabric": [r"^rcad\(alpha=0\.8, lam=0\.5\) +accuracy 8\d\.\d%, NLL 0\.\d{3}; .*'rcad': -\d\.\d+\}$"],
    "timm_task": [
        r"^RCADTask +[78]\d\.\d% of 1597 test images, NLL \d\.\d{3} \{'rcad/loss': .*'rcad/entropy': \d\.\d+\}$"
    ],
    "huggingface_text": [
        r"^RCADTrainer: test accuracy [67]\d\.\d%, NLL 0\.\d{3} \(one seed\)$",
        r"^with lam=0 the parameters equal the plain Trainer's, bit for bit: True$",
    ],
    "accelerate_loop": [
        r"^RCAD: accuracy 8\d\.\d%, NLL 0\.\d{3} on 1697 test images \(one seed\)$",
        r"^with lam=0 the parameters equal the plain loop's, bit for bit: True$",
    ],
    "skorch_grid": [r"^rcad: best \{'alpha': \d\.\d, 'lam': 0\.\d\}, test accuracy (8|9)\d\.\d%, NLL 0\.\d{3}$"],
    "scikit_learn": [
        r"^rcad +accuracy +\d\d\.\d%, NLL \d\.\d{3} \(5 folds\)$",
        r"^saved without pickle, and the same after loading: True$",
        r"^90% intervals hold \d\d% of 111 test targets",
    ],
    "embeddings": [r"^longest step of a padding position: 0\.0$"],
}


def test_every_example_is_short_says_what_it_shows_and_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(KEY_LINES)
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(ast.get_docstring(ast.parse(text)).splitlines()) == 2, path
        assert 40 <= len(text.splitlines()) <= 90, path


@pytest.mark.slow
@pytest.mark.parametrize("name", KEY_LINES)
def test_an_example_runs_and_prints_its_key_lines(name: str, program: Program) -> None:
    first = prelude() if name.startswith("timm") else ""
    like = "" if first else (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    code, printed, said = program(f"{first}\nimport documents; documents.example({name!r})", like=like)
    assert (code, said) == (0, ""), printed
    for line in KEY_LINES[name]:
        assert re.search(line, printed, re.MULTILINE), f"expected a line like {line}, but it gave\n{printed}"
