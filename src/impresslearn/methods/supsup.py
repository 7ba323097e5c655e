"""SupSup (Wortsman et al. 2020): every task trains a mask of its own and predicts with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import TypedDict, Unpack

from impresslearn.checks import ReadOnlySettings, check_known
from impresslearn.coefficients.masks import masked_weights
from impresslearn.coefficients.quantisation import Precision
from impresslearn.data import Label
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.inference import InferenceMethod, InferenceSettings, TaskGuess
from impresslearn.inference.labels import accuracy_of
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import load
from impresslearn.masks import Allocation, ScoreRule
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.edge_popup import POPUP_RECIPE
from impresslearn.methods.finetuning import LENGTH
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView
from impresslearn.store.tasks import TaskTable
from impresslearn.training.loop import Recipe
from impresslearn.training.progress import ProgressChoice

SUPSUP_RECIPE = POPUP_RECIPE.changed(LENGTH)
"""Edge-popup at the rate of our basis tasks, for as many images as every other method."""


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


class SupSup(ReadOnlySettings):
    """Trains a mask for every task; nothing is shared and nothing is forgotten.

    Wortsman et al. 2020, "Supermasks in superposition". It is the same code as the basis phase of
    `ImpressLearner`, whose verbs and errors it has, so the two differ only in what they do with the
    masks.

    - backbone: the frozen network
    - precision: of heads and norm statistics, float32 by default
    - settings: sparsity, allocation, basis_recipe, score_rule, seed, preprocessing, progress and
      cache_bytes, as in `ImpressLearner`; by default masks are trained on as many images as the
      library's other methods take

    Raises InputError for other settings.
    """

    _learner: ImpressLearner

    def __init__(
        self,
        backbone: Backbone,
        *,
        precision: Precision = "float32",
        **settings: Unpack[MaskSettings],
    ) -> None:
        check_mask_settings("SupSup", settings)
        settings.setdefault("basis_recipe", SUPSUP_RECIPE)
        self._use(ImpressLearner(backbone, precision=precision, **settings))

    @property
    def bank_(self) -> MaskBank:
        """The masks of all tasks."""
        return self._learner.bank_

    @classmethod
    def load(cls, path: str | os.PathLike, **settings: Any) -> SupSup:
        """Loads what `save` wrote.

        - path: of the store
        - settings: as in `il.load`

        Raises as that does, and InputError for a store of tasks that have coefficients.
        """
        learner = load(path, **settings)
        if any(task.role != "basis" for task in learner.tasks_.all()):
            raise InputError(f"{path} holds tasks without a mask of their own; open it with load")
        supsup = cls.__new__(cls)
        supsup._use(learner)
        return supsup

    def _use(self, learner: ImpressLearner) -> None:
        self._learner, self.backbone = learner, learner.backbone
        self.recipe = self.basis_recipe = learner.settings.basis_recipe
        for name in ("sparsity", "allocation", "score_rule", "precision", "seed", "preprocessing"):
            setattr(self, name, getattr(learner.settings, name))

    @property
    def progress(self) -> ProgressChoice:
        """As in `ImpressLearner`; may be changed."""
        return self._learner.progress

    @progress.setter
    def progress(self, choice: ProgressChoice) -> None:
        self._learner.progress = choice

    @property
    def preprocessing_(self) -> Preprocessing | None:
        """As in `ImpressLearner`."""
        return self._learner.preprocessing_

    @property
    def tasks_(self) -> TaskTable:
        """name -> TaskInfo; bytes are those of the task's mask and what goes with it."""
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
        """The task of unlabelled inputs.

        - inputs: (n, ...) of one task
        - method, settings: as in `ImpressLearner`; by default SupSup's "one_shot" gradient, or
          "exhaustive" where tasks have heads of their own
        """
        if method is None:
            method = "one_shot" if self._learner.backbone.own_head is None else "exhaustive"
        return self._learner.infer_task(inputs, method=method, **settings)

    def save(self, path: str | os.PathLike, **settings: Any) -> SupSup:
        """Writes everything to one new file, which `SupSup.load` and `il.load` read.

        - path, settings: as in `ImpressLearner.save`
        """
        self._learner.save(path, **settings)
        return self


def check_mask_settings(method: str, settings: Mapping[str, Any]) -> None:
    """Raises InputError for a setting that methods with masks do not have."""
    for name in settings:
        check_known(f"{method} has no setting", name, MaskSettings.__annotations__)


def single_mask_accuracy(
    learner: ImpressLearner, mask: str, data: Any, classes: Sequence[Label] | None = None
) -> float:
    """The accuracy in [0, 1] of one mask of the bank on a labelled task, with nothing learned.

    - learner: whose bank has the mask
    - mask: its name
    - data: labelled examples
    - classes: the task's, in sorted order; by default those of the data

    Norm statistics are those of the mask's own task where it has one, else those that a task starts
    from. Raises InputError where tasks have heads of their own: a mask has none.
    """
    if learner.backbone.own_head is not None:
        raise InputError(
            "each task of this network has a head of its own, and a mask alone has none: score a "
            'task, or make the network with head="shared"'
        )
    view, preprocessing = mask_view(learner, mask), learner.preprocessing_
    return accuracy_of(learner.backbone, view, data, preprocessing, classes)


def mask_view(learner: ImpressLearner, mask: str) -> TaskView:
    """The network under one mask of a learner's bank."""
    weights = masked_weights(learner.bank_, learner.backbone.weights, mask)
    is_task = mask in learner.tasks_
    statistics = learner.statistics_of(mask) if is_task else learner.shared_statistics_
    return TaskView(weights, statistics, learner.backbone.num_classes)
