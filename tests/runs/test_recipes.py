from __future__ import annotations

import pytest

from rcad.loss.method_rows import rows_to_plain
from rcad.loss.methods import Method
from rcad.runs.configure import configure, default_recipe
from rcad.runs.recipes import RECIPES
from rcad.train.one_gpu import can_join, can_share


def test_few_labels_trains_on_every_label_and_can_be_joined() -> None:
    config = configure("images/", [("two_views", {})], recipe="few-labels", seed=3)
    assert (config.data.validation, config.train.selection, config.train.batch_size) == (0.0, "last", 32)
    assert config.method == (("data_augmentation", ()), ("two_views", ()))
    assert can_join(config)
    assert can_share(config)


def test_what_the_method_brings_is_not_composed_twice() -> None:
    rows = RECIPES["paper"].rows([("data_augmentation", {"padding": 2}), ("rcad", {})])
    assert rows == (("data_augmentation", (("padding", 2),)), ("rcad", (("alpha", 0.5), ("lam", 0.02))))


def test_a_named_recipe_brings_its_values_and_one_that_was_chosen_does_not() -> None:
    def values(recipe: str | None, **given: float) -> dict[str, object]:
        return dict(configure("cifar100[:2000]", [("rcad", given)], recipe=recipe).method[-1][1])

    assert values("paper-2k") == {"alpha": 1.0, "lam": 0.1}
    assert values("paper") == {"alpha": 0.5, "lam": 0.02}
    assert values("paper", lam=0.3) == {"alpha": 0.5, "lam": 0.3}
    assert values(None) == values("small") == {"alpha": "auto", "lam": "auto"}


def test_data_fields_win_over_the_recipe() -> None:
    config = RECIPES["released"].config({"name": "my.csv", "target": "price", "balanced": True}, [("erm", ())])
    assert (config.data.target, config.data.balanced, config.data.validation) == ("price", True, 0.0)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_composes(recipe: str) -> None:
    for method in ("rcad", "erm", "mixup", "label_smoothing"):
        rows = RECIPES[recipe].config("digits", [(method, ())]).method
        assert Method.from_dict({"methods": rows_to_plain(rows)}).terms


def test_the_protocol_follows_the_data() -> None:
    sizes = {"[:2000]": "paper-2k", "[:500]": "paper-2k", "[:10000]": "paper-10k", "": "paper"}
    assert {part: default_recipe(f"cifar100{part}") for part in sizes} == sizes
    assert [default_recipe(name) for name in ("svhn", "digits", "table.csv")] == ["paper-svhn", "small", "small"]
