"""The methods that a configuration may name, all with the same four verbs.

`KEYS` says what each takes, `settled` fills in what was not said, `contender` makes the method.
A contender learns tasks in turn and is asked for the accuracy on any task of the stream, learned or
not. What it predicts for a task that it has **not** learned, with the task's number of classes
known, is defined so:

impresslearn, supsup, hybrid    the equal mixture of all masks that it holds (every α = 1/N, the
    point from which ImpressLearn starts to learn); before there is a mask, the random network
single_mask                     the first task's mask, which it uses for every task
finetuning                      the network as it is
separate                        the random network, for its networks share nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

import torch

from impresslearn.coefficients.mixing import mixed_weights, uniform_coefficients
from impresslearn.data import Label, to_batches
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.presets import preset as find_preset
from impresslearn.methods import Adapter, FineTuning, Hybrid, single_mask_accuracy
from impresslearn.methods.adapters import ADAPTER_RECIPES
from impresslearn.methods.finetuning import FINETUNING_RECIPE, SequentialFineTuning
from impresslearn.methods.hybrid import HYBRID_RECIPE
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView
from impresslearn.optimisation.loop import Recipe
from impresslearn.state.tasks import label_map_bytes
from impresslearn.streams.base import LabelledData, Task

TEXT, WHOLE, NUMBER, FLAG, TABLE = "a text", "an integer", "a number", "true or false", "a table"

_COMMON = {"name": TEXT, "label": TEXT, "backbone": TABLE, "recipe": TABLE}
_MASKS = {
    "preset": TEXT,
    "sparsity": NUMBER,
    "allocation": TEXT,
    "score_rule": TEXT,
    "basis_recipe": TABLE,
}
_BANK = {"basis": WHOLE, "random_masks": WHOLE, "task_recipe": TABLE}
_COEFFICIENTS = {
    "granularity": TEXT,
    "output_scale": FLAG,
    "input_scale": FLAG,
    "precision": TEXT,
    "bit_price": NUMBER,
    "penalty": NUMBER,
}
_ADAPTERS = {"rank": WHOLE, "precision": TEXT}
KEYS: Mapping[str, Mapping[str, str]] = {
    "impresslearn": _COMMON | _BANK | _MASKS | _COEFFICIENTS,
    "supsup": _COMMON | _MASKS,
    "single_mask": _COMMON | _MASKS,
    "hybrid": _COMMON | _BANK | _MASKS,
    "finetuning": _COMMON,
    "separate": _COMMON,
    "lora": _COMMON | _ADAPTERS,
    "vera": _COMMON | _ADAPTERS,
}
"""Method -> what its table may hold, and the kind of each value."""

_KIND_OF = {"str": TEXT, "float": NUMBER, "float | None": NUMBER, "int": WHOLE}
RECIPE_KEYS: Mapping[str, str] = {each.name: _KIND_OF[str(each.type)] for each in fields(Recipe)}
RECIPES = ("recipe", "basis_recipe", "task_recipe")


class Contender(Protocol):
    """A method that learns a stream."""

    def learn(self, task: Task) -> None:
        """Learns the next task of the stream."""
        ...

    def accuracy(self, task: Task, test: LabelledData) -> float:
        """The accuracy in [0, 1] on a task's test examples as the method is now."""
        ...

    def role_of(self, task: Task) -> str:
        """How a learned task is kept: "basis" (a mask), "learned", "reused" or "network"."""
        ...

    def bytes_of(self, task: Task) -> int:
        """The bytes that learning the task added to what is kept."""
        ...


def settled(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a checked [[method]] table means, defaults filled in, as plain values.

    {name, basis, random_masks, settings, basis_recipe, task_recipe}, without what does not apply.
    Raises InputError for an unknown preset, no masks, and recipes out of range.
    """
    name, both = entry["name"], entry.get("recipe", {})
    if name in ("finetuning", "separate"):
        return {"name": name, "task_recipe": _merged(FINETUNING_RECIPE, both)}
    if name in ADAPTER_RECIPES:
        given = {key: value for key, value in entry.items() if key in _ADAPTERS}
        recipe = _merged(ADAPTER_RECIPES[name], both)
        return {"name": name, "settings": given, "task_recipe": recipe}
    chosen = find_preset(entry.get("preset", "default")).learner_settings()
    basis, task = chosen.pop("basis_recipe"), chosen.pop("task_recipe")
    allowed = KEYS[name].keys() - {*_BANK, *_COMMON, "preset", "basis_recipe"}
    given = {key: value for key, value in (chosen | dict(entry)).items() if key in allowed}
    found = {
        "name": name,
        "settings": given,
        "basis_recipe": _merged(basis, both, entry.get("basis_recipe", {})),
    }
    if name in ("supsup", "single_mask"):
        return found
    counts = {key: entry.get(key, 0) for key in ("basis", "random_masks")}
    if min(counts.values()) < 0 or not any(counts.values()):
        raise InputError(f"{name} needs basis or random_masks, a number of at least 1")
    task = HYBRID_RECIPE if name == "hybrid" else task
    return found | counts | {"task_recipe": _merged(task, both, entry.get("task_recipe", {}))}


def contender(method: Mapping[str, Any], backbone: Backbone, seed: int) -> Contender:
    """The method of `settled`'s values on this network; seed: of all that it draws."""
    name = method["name"]
    if name in ("finetuning", "separate"):
        kind = FineTuning if name == "separate" else SequentialFineTuning
        recipe = Recipe(**method["task_recipe"])
        return _Networks(kind(backbone, recipe=recipe, seed=seed, progress=False))
    if name in ADAPTER_RECIPES:
        recipe = Recipe(**method["task_recipe"])
        own = method["settings"] | {"recipe": recipe, "seed": seed, "progress": False}
        return _Networks(Adapter(backbone, kind=name, **own))
    learner = _learner(method, backbone, seed)
    if name == "supsup":
        return _Masks(learner, None)
    if name == "single_mask":
        return _SingleMask(learner)
    if method["random_masks"]:
        learner.add_random_masks(method["random_masks"])
    if name == "impresslearn":
        return _Masks(learner, method["basis"])
    hybrid = Hybrid(
        backbone,
        learner.bank_,
        sparsity=learner.settings.sparsity,
        allocation=learner.settings.allocation,
        recipe=Recipe(**method["task_recipe"]),
        seed=seed,
        progress=False,
    )
    return _BodyAndHead(learner, method["basis"], hybrid)


class _Masks:
    """ImpressLearn; with no limit to the basis SupSup, which is the same code."""

    def __init__(self, learner: ImpressLearner, basis: int | None) -> None:
        self.learner = learner
        self.basis = basis

    def learn(self, task: Task) -> None:
        if self.basis is None or len(self.learner.tasks_) < self.basis:
            self.learner.learn_basis(task.name, task.train)
        else:
            self.learner.learn_task(task.name, task.train)

    def accuracy(self, task: Task, test: LabelledData) -> float:
        if task.name in self.learner.tasks_:
            return self.learner.score(test, task.name)
        return _equal_mixture_accuracy(self.learner, task.classes, test)

    def role_of(self, task: Task) -> str:
        return self.learner.tasks_[task.name].role

    def bytes_of(self, task: Task) -> int:
        return self.learner.tasks_[task.name].bytes


class _BodyAndHead:
    """The hybrid, after a basis that is learned as ImpressLearn's."""

    def __init__(self, learner: ImpressLearner, basis: int, hybrid: Hybrid) -> None:
        self.basis = _Masks(learner, basis)
        self.count = basis
        self.hybrid = hybrid
        self._own: set[str] = set()

    def learn(self, task: Task) -> None:
        if len(self.basis.learner.tasks_) < self.count:
            self.basis.learn(task)
        else:
            self.hybrid.learn_task(task.name, task.train)
            self._own.add(task.name)

    def accuracy(self, task: Task, test: LabelledData) -> float:
        if task.name in self._own:
            return self.hybrid.score(test, task.name)
        return self.basis.accuracy(task, test)

    def role_of(self, task: Task) -> str:
        return "learned" if task.name in self._own else self.basis.role_of(task)

    def bytes_of(self, task: Task) -> int:
        if task.name in self._own:
            return self.hybrid.tasks_[task.name].bytes
        return self.basis.bytes_of(task)


class _SingleMask:
    """The first task's mask, used for all."""

    def __init__(self, learner: ImpressLearner) -> None:
        self.learner = learner

    def learn(self, task: Task) -> None:
        if not self.learner.tasks_:
            self.learner.learn_basis(task.name, task.train)

    def accuracy(self, task: Task, test: LabelledData) -> float:
        if not self.learner.tasks_:
            return _equal_mixture_accuracy(self.learner, task.classes, test)
        return single_mask_accuracy(self.learner, next(iter(self.learner.tasks_)), test)

    def role_of(self, task: Task) -> str:
        return "basis" if task.name in self.learner.tasks_ else "reused"

    def bytes_of(self, task: Task) -> int:
        known = self.learner.tasks_
        return known[task.name].bytes if task.name in known else label_map_bytes(task.classes)


class _Networks:
    """Fine-tuning, one network in turn or one a task, whole or by an adapter."""

    def __init__(self, tuned: Adapter | FineTuning | SequentialFineTuning) -> None:
        self.tuned = tuned
        self._learned: set[str] = set()

    def learn(self, task: Task) -> None:
        self.tuned.learn_task(task.name, task.train)
        self._learned.add(task.name)

    def accuracy(self, task: Task, test: LabelledData) -> float:
        if task.name in self._learned:
            return self.tuned.score(test, task.name)
        backbone, count = self.tuned.backbone, len(task.classes)
        if isinstance(self.tuned, SequentialFineTuning):
            view = self.tuned.view(count)
        else:
            view = TaskView(backbone.weights, None, count)
        return view.accuracy(backbone, to_batches(test, task.classes, backbone.device))

    def role_of(self, task: Task) -> str:
        return "network"

    def bytes_of(self, task: Task) -> int:
        return self.tuned.tasks_[task.name].bytes


def _equal_mixture_accuracy(
    learner: ImpressLearner, classes: Sequence[Label], test: LabelledData
) -> float:
    """All masks of the bank with α = 1/N, or the network itself where there are none."""
    backbone, bank = learner.backbone, learner.bank_
    weights = backbone.weights
    if len(bank):
        equal = uniform_coefficients(bank.layers, len(bank), device=backbone.device)
        with torch.no_grad():
            weights = mixed_weights(bank, backbone.weights, equal)
    view = TaskView(weights, learner.shared_statistics_, len(classes))
    return view.accuracy(backbone, to_batches(test, classes, backbone.device))


def _learner(method: Mapping[str, Any], backbone: Backbone, seed: int) -> ImpressLearner:
    recipes: dict[str, Any] = {key: Recipe(**method[key]) for key in RECIPES if key in method}
    if method["name"] == "hybrid":
        recipes.pop("task_recipe")
    return ImpressLearner(backbone, **method["settings"], **recipes, seed=seed, progress=False)


def _merged(recipe: Recipe, *overrides: Mapping[str, Any]) -> dict[str, Any]:
    for each in overrides:
        recipe = replace(recipe, **each)
    return recipe.settings()
