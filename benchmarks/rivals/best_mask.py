"""The best mask of a bank: every task is predicted with the one that suits its examples most.

Nothing is trained: it shows how far choosing a mask goes, without combining any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import Unpack

from impresslearn.checks import ReadOnlySettings
from impresslearn.data import Label, to_batches
from impresslearn.errors import InputError
from impresslearn.inference.labels import labels_of
from impresslearn.learner import ImpressLearner
from impresslearn.masks.bank import MaskBank
from impresslearn.methods.finetuning import require_shared_head
from impresslearn.methods.supsup import (
    MaskSettings,
    check_mask_settings,
    mask_view,
    single_mask_accuracy,
)
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import training_examples
from impresslearn.store.tasks import TaskInfo, check_new_name, find_task, label_map_bytes
from impresslearn.training.progress import ProgressChoice


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
        check_mask_settings("BestMask", settings)
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
        views = (replace(mask_view(learner, each), num_classes=len(classes)) for each in names)
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
        view = replace(mask_view(learner, self.mask_of(task)), num_classes=len(classes))
        return labels_of(view.logits(learner.backbone, learner.prepare(inputs)), classes)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        classes = find_task(task, self.tasks_).classes
        return single_mask_accuracy(self._learner, self.mask_of(task), data, classes)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the equal mixture of all masks on an unlearned task."""
        return self._learner.zero_shot_score(data, classes)
