"""Methods to compare with ImpressLearn, beside the ones of `impresslearn.methods`.

`create_method` makes a method of neural networks by the name that records use. `SklearnClassifier`
and `BestMask` train no network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.rivals.adapters import ADAPTERS, adapter
from benchmarks.rivals.classical import BestMask, SklearnClassifier
from benchmarks.rivals.random_bases import NOLA_RECIPE, PRANC_RECIPE, nola, pranc
from benchmarks.rivals.tuned import BITFIT_RECIPE, PRUNED_RECIPE, bitfit, pruned
from impresslearn.checks import check_known
from impresslearn.learner.presets import preset
from impresslearn.methods import FineTuning, SupSup
from impresslearn.methods.finetuning import FINETUNING_RECIPE
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.training.loop import Recipe

__all__ = ["METHODS", "BestMask", "SklearnClassifier", "bitfit", "create_method", "pruned"]


def supsup(backbone: Backbone, *, recipe: Recipe, **settings: Any) -> SupSup:
    """A mask per task, with the settings of the preset `default`."""
    defaults = preset("default").mask_settings()
    return SupSup(backbone, **{**defaults, **settings, "basis_recipe": recipe})


METHODS: dict[str, tuple[Callable[..., Any], Recipe]] = {
    "supsup": (supsup, preset("default").basis_recipe),
    "finetune_separate": (FineTuning, FINETUNING_RECIPE),
    "bitfit": (bitfit, BITFIT_RECIPE),
    **{name: (partial(adapter, kind=name), kind.recipe) for name, kind in ADAPTERS.items()},
    "pranc": (pranc, PRANC_RECIPE),
    "nola": (nola, NOLA_RECIPE),
    "pruned": (pruned, PRUNED_RECIPE),
}
"""Name -> what makes the method, and its recipe."""


def create_method(name: str, backbone: Backbone, *, seed: int = 0, **settings: Any) -> Any:
    """A method on a frozen network, with nothing learned and no progress shown.

    - name: one of `METHODS`
    - seed: of all that the method draws
    - settings: of the method; `recipe` is a mapping of the entries that differ from the method's

    Raises InputError for an unknown name, and as the method does.
    """
    check_known("no method", name, METHODS)
    check_backbone(backbone)
    make, recipe = METHODS[name]
    settings["recipe"] = recipe.changed(settings.get("recipe", {}))
    return make(backbone, seed=seed, progress=False, **settings)
