"""Methods to compare with ImpressLearn, in addition to those in `impresslearn.methods`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.rivals.adapters import ADAPTERS, adapter
from benchmarks.rivals.classical import BestMask, SklearnClassifier
from benchmarks.rivals.weights import bitfit, nola, pranc, pruned, share
from impresslearn.checks import check_known
from impresslearn.learner.presets import preset
from impresslearn.methods import FineTuning, Hybrid, SupSup
from impresslearn.methods.finetuning import DURATION, FINETUNING_RECIPE
from impresslearn.methods.supsup import HYBRID_RECIPE
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.training.loop import Recipe

__all__ = ["METHODS", "BestMask", "SklearnClassifier", "bitfit", "create_method", "pruned"]


def supsup(backbone: Backbone, *, recipe: Recipe, **settings: Any) -> SupSup:
    """SupSup (a mask per task) with the settings of the preset `default`."""
    return SupSup(backbone, **{**settings, "basis_recipe": recipe})


def _adam(lr: float) -> Recipe:
    return Recipe(optimizer="adam", lr=lr, schedule="cosine", **DURATION)


METHODS: dict[str, tuple[Callable[..., Any], Recipe]] = {
    "supsup": (supsup, preset("default").basis_recipe),
    "hybrid": (Hybrid, HYBRID_RECIPE),
    "finetune_separate": (FineTuning, FINETUNING_RECIPE),
    # Learning rates are the best on held-out images. For bitfit: of 0.003, 0.01 and 0.03, in 60
    # steps on a task of CIFAR-100 over a ResNet-20.
    "bitfit": (bitfit, _adam(0.03)),
    **{name: (partial(adapter, kind=name), _adam(kind.lr)) for name, kind in ADAPTERS.items()},
    # On one task of permuted MNIST with coded numbers: for PRANC (k = 300) the best of 0.003, 0.01
    # and 0.03 after one epoch; for NOLA (k = 200) the best of these and 0.1 after three epochs.
    "pranc": (pranc, _adam(0.03)),
    "nola": (nola, _adam(0.01)),
    "share": (share, _adam(0.001)),
    # Better than 0.001 at sparsity 0.95 (97.7 against 96.8%), and equal to 0.01 at 0.98.
    "pruned": (pruned, _adam(0.003)),
}
"""Name -> what makes a method that trains networks, and its recipe."""
CLASSICAL = {"classifier": SklearnClassifier, "best_mask": BestMask}
"""Name -> a method that trains no network."""


def create_method(
    name: str, backbone: Backbone, *, seed: int = 0, recipe: Any = (), **settings: Any
) -> Any:
    """A method on a frozen network, which has learned nothing and prints no progress.

    - name: one of `METHODS`, or of `CLASSICAL`, which draw nothing and have no recipe
    - seed: the seed of everything that the method draws
    - recipe: a mapping with the entries that differ from the method's own recipe
    - settings: settings of the method

    Raises InputError for an unknown name, and the errors of the method.
    """
    check_known("no method", name, [*METHODS, *CLASSICAL])
    check_backbone(backbone)
    if name in CLASSICAL:
        return CLASSICAL[name](backbone, **settings)
    make, default = METHODS[name]
    settings["recipe"] = default.changed(dict(recipe))
    return make(backbone, seed=seed, progress=False, **settings)
