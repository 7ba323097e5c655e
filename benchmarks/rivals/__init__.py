"""Methods that are compared with ImpressLearn, besides those of `impresslearn.methods`.

`create_method` makes every method, the library's too, by the name that records use:

| name | method |
|---|---|
| impresslearn | `ImpressLearner` over the masks of basis tasks, random masks, or both |
| supsup | `SupSup` |
| hybrid | `Hybrid`, over masks as of impresslearn |
| best_mask | `BestMask`, over masks as of impresslearn |
| finetune_sequential | `SequentialFineTuning`: one network trained on task after task |
| finetune_separate | `FineTuning`: a network per task |
| bitfit | `bitfit`: norms, biases and a head per task |
| lora, vera, unilora, randlora, vblora, fourierft | `Adapter` of that kind, through PEFT |
| pranc, nola | combinations of random networks, or of random low-rank factors |
| pruned | a magnitude-pruned, rounded and coded network per task |
| linear_probe | logistic regression on the features of the frozen network |
| logistic_regression, svc | `SklearnClassifier` with that estimator: one per task |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.rivals.adapter_kinds import ADAPTER_RECIPES
from benchmarks.rivals.adapters import Adapter
from benchmarks.rivals.best_mask import BestMask
from benchmarks.rivals.bitfit import BITFIT_RECIPE, bitfit
from benchmarks.rivals.classical import SklearnClassifier
from benchmarks.rivals.pruned import PRUNED_RECIPE, pruned
from benchmarks.rivals.random_bases import NOLA_RECIPE, PRANC_RECIPE, nola, pranc
from impresslearn.checks import check_known
from impresslearn.learner import ImpressLearner
from impresslearn.learner.presets import preset as find_preset
from impresslearn.methods import (
    FineTuning,
    Hybrid,
    LinearProbe,
    SequentialFineTuning,
    SupSup,
)
from impresslearn.methods.finetuning import FINETUNING_RECIPE
from impresslearn.methods.hybrid import HYBRID_RECIPE
from impresslearn.methods.supsup import MaskSettings
from impresslearn.networks import Backbone
from impresslearn.training.loop import Recipe

METHODS: dict[str, tuple[Callable[..., Any], Recipe | None]] = {
    "impresslearn": (ImpressLearner, None),
    "supsup": (SupSup, None),
    "hybrid": (Hybrid, HYBRID_RECIPE),
    "best_mask": (BestMask, None),
    "finetune_sequential": (SequentialFineTuning, FINETUNING_RECIPE),
    "finetune_separate": (FineTuning, FINETUNING_RECIPE),
    "bitfit": (bitfit, BITFIT_RECIPE),
    **{kind: (partial(Adapter, kind=kind), recipe) for kind, recipe in ADAPTER_RECIPES.items()},
    "pranc": (pranc, PRANC_RECIPE),
    "nola": (nola, NOLA_RECIPE),
    "pruned": (pruned, PRUNED_RECIPE),
    "linear_probe": (LinearProbe, None),
    "logistic_regression": (partial(SklearnClassifier, estimator="logistic_regression"), None),
    "svc": (partial(SklearnClassifier, estimator="svc"), None),
}
"""Name -> what makes the method, and its recipe where it has one of its own."""
OVER_MASKS = ("impresslearn", "supsup", "hybrid", "best_mask")
WITHOUT_PROGRESS = ("linear_probe", "logistic_regression", "svc")


def create_method(name: str, backbone: Backbone, *, seed: int = 0, **settings: Any) -> Any:
    """A method on a frozen network, with nothing learned and no progress shown.

    - name: one of `METHODS`
    - backbone: the frozen network
    - seed: of all that the method draws
    - settings: of the method; for those over masks also `preset`, whose settings hold where
      nothing else is said, and `random_masks`, how many are drawn first. `recipe` may be a mapping
      of the entries that differ from the method's own (of the preset's two, for those over masks)

    Raises InputError for an unknown name, and as the method does.
    """
    check_known("no method", name, METHODS)
    make, recipe = METHODS[name]
    if name not in WITHOUT_PROGRESS:
        settings["progress"] = False
    random_masks = settings.pop("random_masks", 0)
    if recipe is not None:
        settings["recipe"] = recipe.changed(settings.get("recipe", {}))
    if name in OVER_MASKS:
        settings = _with_preset(name, settings)
    method = make(backbone, seed=seed, **settings)
    return method.add_random_masks(random_masks) if random_masks else method


def _with_preset(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a method over masks, completed by those of a preset."""
    given = dict(settings)
    chosen = find_preset(given.pop("preset", "default")).learner_settings()
    if name != "impresslearn":
        known = {*MaskSettings.__annotations__, *(("precision",) if name == "supsup" else ())}
        chosen = {key: value for key, value in chosen.items() if key in known}
    change = given.pop("recipe", {}) if name != "hybrid" else {}
    for key in ("basis_recipe", "task_recipe"):
        if key in chosen:
            chosen[key] = chosen[key].changed(change).changed(given.pop(key, {}))
    return chosen | given
