"""Figures inside a page."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rcad.report.drawing import blank, colour_of, colours_of, inline, label, limits

pytest.importorskip("matplotlib")


def picture(height: float = 1.0) -> Any:
    figure = blank(3, 2)
    ax = figure.subplots()
    ax.plot([0, 1], [0, height], label="a --> b <i>")
    ax.imshow(np.eye(3))
    ax.legend()
    return figure


def names(svg: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', svg)


def test_the_same_figure_gives_the_same_text() -> None:
    assert inline(picture()) == inline(picture())
    assert inline(picture()) != inline(picture(0.5))


def test_it_is_one_bare_element() -> None:
    svg = inline(picture())
    head = svg.partition(">")[0]
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")
    assert "viewBox" in head
    assert not re.search(r" (width|height)=", head)
    for unwanted in ("<?xml", "<!DOCTYPE", "<!--", "<metadata", "<style", "<i>"):
        assert unwanted not in svg
    assert "<image" in svg
    assert re.findall(r'href="(?!#|data:image/png;base64)', svg) == []


def test_ids_do_not_meet_on_a_page_and_every_reference_finds_its_own() -> None:
    one, two = inline(picture()), inline(picture(0.5))
    assert len(set(names(one))) == len(names(one)) > 3
    assert not set(names(one)) & set(names(two))
    references = re.findall(r'(?:href="#|url\(#)([^")]+)', one)
    assert references
    assert set(references) <= set(names(one))


def test_a_wild_value_does_not_squeeze_an_axis() -> None:
    low, high = limits([1.0, 1.1, 1.2, 1.3, 500.0])
    assert (low, high) == pytest.approx((1 - 0.06 * 0.3, 1.3 + 0.06 * 0.3))
    assert limits([1.0, 1.1, 1.2, 1.3], around=0.0)[0] < 0
    assert limits([2.0]) == (1.5, 2.5)
    assert limits([]) == (0.0, 1.0)


def test_labels_fit_and_hold_no_formula() -> None:
    assert label("a $x$ 猫") == "a \\$x\\$ \N{WHITE SQUARE}"
    assert label("one two three four five", 9, 2) == "one two\nthree …"


def test_colours_stay_with_their_method_and_apart_on_a_picture() -> None:
    colours = [colour_of(name) for name in ("ERM", "RCAD", "random direction", "XY")]
    assert colours == ["#000000", "#0072B2", "#D55E00", "#666666"]
    names = ["ERM", "RCAD", "RCAD, alpha 0.1", "FGSM", "LS", "XY", "random direction"]
    assert len(set(colours_of(names).values())) == len(names)
