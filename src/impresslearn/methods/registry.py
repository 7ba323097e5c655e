"""Creates methods by name, and registers new ones.

| name | method |
|---|---|
| impresslearn | `ImpressLearner` over the masks of basis tasks, random masks, or both |
| supsup, single_mask | `SupSup`, `SingleMask` |
| hybrid | `Hybrid`, over masks as of impresslearn |
| finetuning | `SequentialFineTuning`: one network trained on task after task |
| separate | `FineTuning`: a network a task |
| bitfit | `bitfit`: norms, biases and a head a task |
| best_mask | `BestMask`, over masks as of impresslearn |
| lora, vera, unilora, randlora, vblora, fourierft | `Adapter` of that kind, through PEFT |
| pranc, nola | `pranc`, `nola`: combinations of random networks, or of random low-rank factors |
| pruned | `pruned`: a magnitude-pruned, rounded and coded network a task |
| linear_probe | logistic regression on the features of the frozen network |
| logistic_regression, svc | `SklearnClassifier` with that estimator: one a task |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from impresslearn.checks import check_integer, check_known, check_name
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.presets import preset as find_preset
from impresslearn.learner.settings import RECIPES
from impresslearn.methods.adapter_kinds import ADAPTER_RECIPES, Kind
from impresslearn.methods.adapters import Adapter
from impresslearn.methods.bitfit import BITFIT_RECIPE, bitfit
from impresslearn.methods.classical import SklearnClassifier
from impresslearn.methods.evaluation import Method
from impresslearn.methods.finetuning import FINETUNING_RECIPE, FineTuning, SequentialFineTuning
from impresslearn.methods.hybrid import HYBRID_RECIPE, Hybrid
from impresslearn.methods.pruned import PRUNED_RECIPE, pruned
from impresslearn.methods.random_bases import NOLA_RECIPE, PRANC_RECIPE, nola, pranc
from impresslearn.methods.supsup import BestMask, SingleMask, SupSup
from impresslearn.networks import Backbone
from impresslearn.training.loop import Recipe
from impresslearn.training.progress import ProgressChoice

Factory = Callable[..., Method]


@dataclass(frozen=True)
class _Entry:
    """settings: the names that are taken, None for any; defaults: those before the preset's."""

    make: Factory
    settings: tuple[str, ...] | None
    defaults: Mapping[str, Any] = field(default_factory=dict)


def create_method(
    name: str,
    backbone: Backbone,
    *,
    seed: int = 0,
    progress: ProgressChoice = False,
    **settings: Any,
) -> Method:
    """A method of `list_methods` on a frozen network, with nothing learned.

    seed: of all that it draws. settings: of those of the class or function that makes it, such as
    `SupSup` for "supsup". Methods with masks also take preset, whose settings hold where nothing
    else is said, and all but supsup and single_mask random_masks, how many are drawn first. recipe
    changes entries of every recipe that the method has, basis_recipe and task_recipe those of one:
    a mapping such as {"epochs": 1}, or a whole `Recipe`. Raises InputError for an unknown name or
    setting, naming close ones, and for values out of range.
    """
    entry, values = _entry(name), method_settings(name, **settings)
    if entry.settings is None:
        given = {"seed": seed, "progress": progress}
        parameters = inspect.signature(entry.make).parameters
        return entry.make(backbone, **{k: given[k] for k in given if k in parameters}, **values)
    values |= {key: Recipe(**values[key]) for key in ("recipe", *RECIPES) if key in values}
    random_masks = check_integer("random_masks", values.pop("random_masks", 0), 0)
    method: Any = entry.make(backbone, seed=seed, progress=progress, **values)
    return method.add_random_masks(random_masks) if random_masks else method


def method_settings(name: str, **settings: Any) -> dict[str, Any]:
    """The settings of `create_method` with presets and recipes resolved, recipes as plain values.

    `create_method(name, backbone, **method_settings(name, **settings))` makes the same method, also
    where defaults have changed in the meantime. Errors as of `create_method`.
    """
    entry = _entry(name)
    if entry.settings is None:
        return settings
    for key in settings:
        check_known(f"{name} has no setting", key, entry.settings)
    defaults: dict[str, Any] = dict(entry.defaults)
    if "preset" in entry.settings:
        preset = settings.pop("preset", "default")
        if find_preset(preset).own_head:
            raise InputError(f"the preset {preset!r} is that of ImpressLearner.from_preset alone")
        chosen = find_preset(preset).learner_settings()
        defaults = {key: chosen[key] for key in chosen if key in entry.settings} | defaults
    shared = settings.pop("recipe", {})
    for key, default in defaults.items():
        if isinstance(default, Recipe):
            own = settings.pop(key, {}) if key != "recipe" else {}
            defaults[key] = default.changed(shared).changed(own).settings()
    return defaults | settings


def list_methods() -> list[str]:
    """The names that `create_method` knows."""
    return list(_entries)


def register_method(name: str, factory: Factory) -> None:
    """Makes a method available to `create_method` under a name.

    factory: called as factory(backbone, **settings), with `seed` and `progress` as well where it
    has such parameters; returns an object with the verbs of `Method`. Raises InputError for a name
    that is taken.
    """
    if check_name(name, "a method's name") in _entries:
        raise InputError(f"a method named {name!r} is registered already; choose another name")
    _entries[name] = _Entry(factory, None)


def _entry(name: str) -> _Entry:
    check_known("no method", name, _entries)
    return _entries[name]


def _hybrid(backbone: Backbone, *, task_recipe: Recipe, **settings: Any) -> Hybrid:
    return Hybrid(backbone, recipe=task_recipe, **settings)


def _classical(
    backbone: Backbone, *, estimator: str, progress: ProgressChoice, **settings: Any
) -> SklearnClassifier:
    """Without progress: it is fitted in a blink."""
    return SklearnClassifier(backbone, estimator, **settings)


_COMMON = ("recipe", "preprocessing")
_MASKS = (*_COMMON, "preset", "sparsity", "allocation", "score_rule", "basis_recipe")
_BANK = (*_MASKS, "random_masks", "task_recipe")
_SCALES = ("granularity", "output_scale")
_COEFFICIENTS = (*_BANK, *_SCALES, "precision", "bit_price", "penalty")
_ROUNDED = (*_COMMON, "precision", "largest")
_ADAPTERS = (*_ROUNDED, "rank", "config")
_TUNED = {"recipe": FINETUNING_RECIPE}
_LINEAR = ("preprocessing", "features", "C", "precision")
_KERNEL = ("preprocessing", "features", "C", "kernel", "gamma")
_entries: dict[str, _Entry] = {
    "impresslearn": _Entry(ImpressLearner, _COEFFICIENTS),
    "supsup": _Entry(SupSup, (*_MASKS, "precision")),
    "single_mask": _Entry(SingleMask, _MASKS),
    "hybrid": _Entry(_hybrid, _BANK, {"task_recipe": HYBRID_RECIPE}),
    "finetuning": _Entry(SequentialFineTuning, _COMMON, _TUNED),
    "separate": _Entry(FineTuning, _COMMON, _TUNED),
    "bitfit": _Entry(bitfit, (*_COMMON, "tune", "statistics"), {"recipe": BITFIT_RECIPE}),
    "best_mask": _Entry(BestMask, (*_MASKS, "random_masks")),
    **{
        name: _Entry(
            partial(Adapter, kind=cast(Kind, name)),
            (*_ADAPTERS, "bit_price") if name == "lora" else _ADAPTERS,
            {"recipe": recipe},
        )
        for name, recipe in ADAPTER_RECIPES.items()
    },
    "pranc": _Entry(pranc, (*_ROUNDED, "bases"), {"recipe": PRANC_RECIPE}),
    "nola": _Entry(nola, (*_ROUNDED, "bases", "rank"), {"recipe": NOLA_RECIPE}),
    "pruned": _Entry(
        pruned, (*_COMMON, "sparsity", "allocation", "largest"), {"recipe": PRUNED_RECIPE}
    ),
    "linear_probe": _Entry(
        partial(_classical, estimator="logistic_regression", features="backbone"),
        ("preprocessing", "C", "precision"),
        {"C": 1.0},
    ),
    "logistic_regression": _Entry(
        partial(_classical, estimator="logistic_regression"),
        _LINEAR,
        {"features": "inputs", "C": 1.0},
    ),
    "svc": _Entry(partial(_classical, estimator="svc"), _KERNEL, {"features": "inputs", "C": 10.0}),
}
