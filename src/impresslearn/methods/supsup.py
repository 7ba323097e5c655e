"""Methods that predict with masks as they are: one for each task, one for all, the best of a bank.

`SupSup` (Wortsman et al. 2020) trains a mask for every task. `SingleMask` keeps the first task's
for all others: the sanity check of how far a mask goes by itself. `BestMask` chooses by labels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import TypedDict, Unpack

from impresslearn.checks import ReadOnlySettings, check_known
from impresslearn.coefficients.masks import masked_weights
from impresslearn.coefficients.quantisation import Precision
from impresslearn.data import Label, to_batches
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.inference import InferenceMethod, InferenceSettings, TaskGuess
from impresslearn.inference.labels import accuracy_of, labels_of
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import load
from impresslearn.masks import Allocation, ScoreRule
from impresslearn.masks.bank import MaskBank
from impresslearn.methods.finetuning import require_shared_head
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import training_examples
from impresslearn.networks.prediction import TaskView
from impresslearn.store.tasks import (
    TaskInfo,
    TaskTable,
    check_new_name,
    find_task,
    label_map_bytes,
)
from impresslearn.training.loop import Recipe
from impresslearn.training.progress import ProgressChoice


class MaskSettings(TypedDict, total=False):
    """The settings of `ImpressLearner` that concern trained masks."""

    sparsity: float
    allocation: Allocation
    basis_recipe: Recipe
    score_rule: ScoreRule
    seed: int
    preprocessing: Preprocessing | None
    progress: ProgressChoice
    cache_bytes: int


class SupSupSettings(MaskSettings, total=False):
    """Those, and in what heads and norm statistics of the tasks are kept."""

    precision: Precision


def check_settings(method: str, given: Mapping[str, Any], known: type) -> None:
    """Raises InputError for a setting that a method does not have."""
    for name in given:
        check_known(f"{method} has no setting", name, known.__annotations__)


class SupSup(ReadOnlySettings):
    """Every task trains a mask of its own; nothing is shared and nothing is forgotten.

    As Wortsman et al. 2020, "Supermasks in superposition". The verbs are those of `ImpressLearner`,
    and so are their errors and the settings: sparsity, allocation, basis_recipe, score_rule,
    precision (of heads and norm statistics of the tasks), seed, preprocessing, progress,
    cache_bytes. It is the same code as the basis phase of ImpressLearn, so the two differ only in
    what they do with the masks. Raises InputError for other settings.
    """

    _learner: ImpressLearner

    def __init__(self, backbone: Backbone, **settings: Unpack[SupSupSettings]) -> None:
        check_settings("SupSup", settings, SupSupSettings)
        self._use(ImpressLearner(backbone, **settings))

    @property
    def bank_(self) -> MaskBank:
        """The masks of all tasks."""
        return self._learner.bank_

    @classmethod
    def load(cls, path: str | os.PathLike, **settings: Any) -> SupSup:
        """Loads what `save` wrote. settings: as of `il.load`.

        Raises as that, and InputError for a store of tasks that have coefficients.
        """
        learner = load(path, **settings)
        if any(task.role != "basis" for task in learner.tasks_.all()):
            raise InputError(f"{path} holds tasks without a mask of their own; open it with load")
        supsup = cls.__new__(cls)
        supsup._use(learner)
        return supsup

    def _use(self, learner: ImpressLearner) -> None:
        vars(self).update(vars(learner.settings), backbone=learner.backbone, _learner=learner)

    @property
    def preprocessing_(self) -> Preprocessing | None:
        """As of `ImpressLearner`."""
        return self._learner.preprocessing_

    @property
    def tasks_(self) -> TaskTable:
        """name -> TaskInfo; bytes are those of the task's own mask and what goes with it."""
        return self._learner.tasks_

    def learn_task(self, name: str, data: Any, *, seed: int | None = None) -> SupSup:
        """Trains the task's mask with edge-popup. Raises as `ImpressLearner.learn_basis`."""
        self._learner.learn_basis(name, data, seed=seed)
        return self

    def predict(self, inputs: Any, task: str | Sequence[str] | None = None) -> np.ndarray:
        """Labels (n,); with task=None the task is inferred first (GN).

        Raises UnknownTaskError for a task that was not learned and for inputs that look like none.
        """
        return self._learner.predict(inputs, task)

    def score(self, data: Any, task: str) -> float:
        """Accuracy with the task known (GG), in [0, 1]. Raises UnknownTaskError for another."""
        return self._learner.score(data, task)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the equal mixture of all masks on an unlearned task."""
        return self._learner.zero_shot_score(data, classes)

    def infer_task(
        self,
        inputs: Any,
        *,
        method: InferenceMethod | None = None,
        **settings: Unpack[InferenceSettings],
    ) -> TaskGuess:
        """The task of unlabelled inputs, by default from SupSup's "one_shot" gradient.

        Tasks with heads of their own are all run instead. Other methods: as of `ImpressLearner`.
        """
        if method is None:
            method = "one_shot" if self._learner.backbone.own_head is None else "exhaustive"
        return self._learner.infer_task(inputs, method=method, **settings)

    def save(self, path: str | os.PathLike, **settings: Any) -> SupSup:
        """Writes everything to one new file, which `SupSup.load` and `il.load` read.

        settings: as of `ImpressLearner.save`.
        """
        self._learner.save(path, **settings)
        return self


class SingleMask(ReadOnlySettings):
    """The first task trains a mask; every other task is predicted with it and learns nothing.

    Of the others only the label map is kept. Settings as of `SupSup`, without precision. Raises
    InputError for others, and where tasks have heads of their own.
    """

    def __init__(self, backbone: Backbone, **settings: Unpack[MaskSettings]) -> None:
        require_shared_head("SingleMask", backbone)
        check_settings("SingleMask", settings, MaskSettings)
        self._learner = ImpressLearner(backbone, **settings)
        vars(self).update(vars(self._learner.settings), backbone=backbone)
        self._reused: dict[str, TaskInfo] = {}

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; role is "basis" for the first task, "reused" for the others."""
        return {**self._learner.tasks_, **self._reused}

    def learn_task(self, name: str, data: Any) -> SingleMask:
        """Trains the mask on the first task, and takes the classes of any other.

        Raises InputError for a name that is taken, unusable data and too many classes.
        """
        check_new_name(name, self.tasks_)
        learner = self._learner
        if not learner.tasks_:
            learner.learn_basis(name, data)
            return self
        _, classes = training_examples(learner.backbone, data, learner.preprocessing_)
        size = label_map_bytes(classes)
        self._reused[name] = TaskInfo(name, "reused", classes, 1, size, {"labels": size})
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        classes, learner = find_task(task, self.tasks_).classes, self._learner
        view = _mask_view(learner, learner.bank_.names[0])
        return labels_of(view.logits(learner.backbone, learner.prepare(inputs)), classes)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        return self.zero_shot_score(data, find_task(task, self.tasks_).classes)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the mask on an unlearned task; before there is one, of the frozen network."""
        if not self.tasks_:
            return self._learner.zero_shot_score(data, classes)
        return single_mask_accuracy(self._learner, self._learner.bank_.names[0], data, classes)


class BestMask(ReadOnlySettings):
    """Every task is predicted with that mask of a bank which is right on most of its examples.

    Of a task the mask's number and the label map are kept, and nothing is trained. bank: masks to
    choose from, as it is when a task is learned; empty by default, for `learn_basis` to fill.
    settings: as of `SupSup`, without precision. Raises InputError for others, and where tasks have
    heads of their own.
    """

    progress: ProgressChoice

    def __init__(
        self, backbone: Backbone, bank: MaskBank | None = None, **settings: Unpack[MaskSettings]
    ) -> None:
        require_shared_head("BestMask", backbone)
        check_settings("BestMask", settings, MaskSettings)
        self._learner = ImpressLearner(backbone, bank=bank, **settings)
        vars(self).update(vars(self._learner.settings), backbone=backbone, bank=self._learner.bank_)
        self.progress = self._learner.progress
        self._chosen: dict[str, tuple[str, TaskInfo]] = {}

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; basis tasks first; bytes are those of the mask's number and labels."""
        return {**self._learner.tasks_, **{name: info for name, (_, info) in self._chosen.items()}}

    def learn_basis(self, name: str, data: Any) -> BestMask:
        """Trains a mask on a task and adds it to the bank; the task keeps that mask."""
        check_new_name(name, self.tasks_)
        self._learner.progress = self.progress
        self._learner.learn_basis(name, data)
        return self

    def add_random_masks(self, count: int, *, seed: int | None = None) -> BestMask:
        """Appends random masks to the bank."""
        self._learner.add_random_masks(count, seed=seed)
        return self

    def learn_task(self, name: str, data: Any) -> BestMask:
        """Tries every mask on the task's examples; the first of equally good ones is kept.

        Raises InputError without a mask, for a name that is taken, unusable data and too many
        classes.
        """
        check_new_name(name, self.tasks_)
        learner, names = self._learner, self._learner.bank_.names
        if not names:
            raise InputError("the bank is empty; learn a basis task or add random masks first")
        backbone = learner.backbone
        examples, classes = training_examples(backbone, data, learner.preprocessing_)
        source = to_batches(examples, classes, backbone.device)
        views = (replace(_mask_view(learner, each), num_classes=len(classes)) for each in names)
        accuracies = [view.accuracy(backbone, source) for view in views]
        best = names[accuracies.index(max(accuracies))]
        bits = (len(names) - 1).bit_length()
        breakdown = {"mask_number": -(-bits // 8), "labels": label_map_bytes(classes)}
        total = sum(breakdown.values())
        info = TaskInfo(name, "learned", classes, len(names), total, breakdown)
        self._chosen[name] = best, info
        return self

    def mask_of(self, task: str) -> str:
        """The name of the mask that a task is predicted with."""
        find_task(task, self.tasks_)
        return self._chosen[task][0] if task in self._chosen else task

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        classes, learner = find_task(task, self.tasks_).classes, self._learner
        view = replace(_mask_view(learner, self.mask_of(task)), num_classes=len(classes))
        return labels_of(view.logits(learner.backbone, learner.prepare(inputs)), classes)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        classes = find_task(task, self.tasks_).classes
        return single_mask_accuracy(self._learner, self.mask_of(task), data, classes)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the equal mixture of all masks on an unlearned task."""
        return self._learner.zero_shot_score(data, classes)


def single_mask_accuracy(
    learner: ImpressLearner, mask: str, data: Any, classes: Sequence[Label] | None = None
) -> float:
    """The accuracy in [0, 1] on a labelled task of one mask of the bank, nothing learned.

    classes: the task's, by default those of the data, in sorted order as its own training would
    read them. Norm statistics are those of the mask's own task where it has any, else those that a
    task starts from. Raises InputError where tasks have heads of their own: a mask has none.
    """
    if learner.backbone.own_head is not None:
        raise InputError(
            "each task of this network has a head of its own, and a mask alone has none: score a "
            'task, or make the network with head="shared"'
        )
    view, preprocessing = _mask_view(learner, mask), learner.preprocessing_
    return accuracy_of(learner.backbone, view, data, preprocessing, classes)


def _mask_view(learner: ImpressLearner, mask: str) -> TaskView:
    weights = masked_weights(learner.bank_, learner.backbone.weights, mask)
    with_task = mask in learner.tasks_
    statistics = learner.statistics_of(mask) if with_task else learner.shared_statistics_
    return TaskView(weights, statistics, learner.backbone.num_classes)
