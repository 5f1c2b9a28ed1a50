"""What stands around the package: extras, bounds, versions, the files of a release."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def tool(name: str) -> ModuleType:
    """A program of tools/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def packages(*extras: str) -> set[str]:
    """The requirements of extras, those of extras they include among them."""
    lowest = tool("lowest_versions").lowest
    return {f"{name}>={version}" for extra in extras for name, version in lowest(extra, PROJECT).items()}


def test_all_is_every_extra_for_users_and_a_package_has_one_bound() -> None:
    assert packages("all") == packages(*(EXTRAS.keys() - {"all", "dev", "docs"}))
    bounds: dict[str, set[str]] = {}
    for requirement in [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]:
        if not requirement.startswith("rcad["):
            name, version = requirement.split(">=")
            bounds.setdefault(name, set()).add(version)
    assert {name: found for name, found in bounds.items() if len(found) > 1} == {}


def test_the_lowest_versions_of_every_adapter_have_tests() -> None:
    tests = tool("lowest_versions").TESTS
    assert tests.keys() == EXTRAS.keys() - {"all", "bench", "dev", "docs"}
    for pattern in (one for patterns in tests.values() for one in patterns):
        assert list(ROOT.glob(pattern)), pattern


def test_the_conda_recipe_asks_for_the_same_bounds() -> None:
    recipe = (ROOT / "packaging/conda/recipe.yaml").read_text()
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    asked = {f"{name}>={version}" for name, version in re.findall(r"- (\S+) >=(\S+)", run)}
    declared = {*PROJECT["dependencies"], *packages("cli", "data", "sklearn")}
    assert asked - {"python>=3.11"} == {one.replace("torch>", "pytorch>") for one in declared}
    assert f'version: "{PROJECT["version"]}"' in recipe


def test_links_of_the_readme_are_absolute_in_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    # The build has hatchling, the tests need not.
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", Mock(MetadataHookInterface=object))
    absolute = tool("index_readme").absolute
    text = (
        "<!-- setup\nx = 1\n-->\n\n[how](docs/faq.md#why), [all](methods), [there](https://a.b/c), ![a](docs/a.svg)\n"
    )
    assert absolute(text, "https://host/o/rcad", "1.2.0") == (
        "[how](https://host/o/rcad/blob/v1.2.0/docs/faq.md#why), [all](https://host/o/rcad/tree/v1.2.0/methods), "
        "[there](https://a.b/c), ![a](https://host/o/rcad/raw/v1.2.0/docs/a.svg)\n"
    )
    assert absolute(text, "", "1.2.0") == "how, all, [there](https://a.b/c), \n"


def test_versions_agree_and_a_release_needs_its_dated_section() -> None:
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {PROJECT['version']} (" in (ROOT / "CHANGELOG.md").read_text()
    changes = tool("release").changes
    text = "# Changes\n\n## 1.2.0 (2026-01-31)\n\n- new\n\n## 1.1.0 (2025-01-01)\n\n- old\n"
    assert changes(text, "1.2.0") == "- new"
    with pytest.raises(ValueError, match=r"begin with '## 1.2.0 \(YYYY-MM-DD\)', but got '## 1.2.0 \(unreleased\)'"):
        changes("# Changes\n\n## 1.2.0 (unreleased)\n\n- new\n", "1.2.0")


def test_the_lock_knows_every_pin_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    for name, version in pins:
        plain = re.sub("[-_.]+", "-", name).lower()
        assert re.search(rf"^(# )?{plain}=={re.escape(version)}[ +]", text, re.MULTILINE), f"{name}: make lock"
