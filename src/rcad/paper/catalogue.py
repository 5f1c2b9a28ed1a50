"""The suites by name, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from rcad.paper.suite import Suite

MODULES = {
    "T1": "adversarial_rivals",
    "T2": "with_label_smoothing",
    "T3": "wide_resnet",
    "T4": "low_data",
    "T5": "imagenet",
    "T6": "attacked",
    "F1": "first_page",
    "F2": "combinations",
    "F3": "gains",
    "F4": "step_size",
    "F6": "corrupted",
}
"""The other tables and figures are studies of their own; see `targets`."""


def suite(name: str) -> Suite:
    found: Suite = import_module(f"rcad.paper.{MODULES[name]}").SUITE
    return found
