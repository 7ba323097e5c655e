"""SupSup (Wortsman et al. 2020): each task trains and uses one mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import Unpack

from impresslearn.checks import ReadOnlySettings, check_known
from impresslearn.coefficients.masks import masked_weights
from impresslearn.coefficients.quantisation import Precision
from impresslearn.data import Label
from impresslearn.errors import InputError
from impresslearn.inference import InferenceSettings, TaskGuess
from impresslearn.learner import ImpressLearner
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.edge_popup import POPUP_RECIPE
from impresslearn.methods.finetuning import LENGTH
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView, accuracy_of
from impresslearn.store import TaskTable
from impresslearn.training.progress import ProgressChoice

SUPSUP_RECIPE = POPUP_RECIPE.changed(LENGTH)
"""Edge-popup at the rate of basis tasks, for the same number of images as every other method."""


MASK_SETTINGS = (
    *("sparsity", "allocation", "basis_recipe", "score_rule"),
    *("seed", "preprocessing", "progress", "cache_bytes"),
)
"""The settings of `ImpressLearner` that concern trained masks."""


class SupSup(ReadOnlySettings):
    """Trains a mask for every task; nothing is shared and nothing is forgotten.

    It runs the basis phase of `ImpressLearner`, and raises the same errors.

    - backbone: the frozen network
    - precision: of heads and norm statistics
    - settings: sparsity, allocation, basis_recipe, score_rule, seed, preprocessing, progress and
      cache_bytes, as in `ImpressLearner`; the default basis_recipe trains on the same number of
      images as the library's other methods

    Raises InputError for other settings.
    Source: Wortsman et al., "Supermasks in Superposition" (2020).
    """

    def __init__(
        self, backbone: Backbone, *, precision: Precision = "float32", **settings: Any
    ) -> None:
        check_mask_settings("SupSup", settings)
        settings.setdefault("basis_recipe", SUPSUP_RECIPE)
        self._learner = ImpressLearner(backbone, precision=precision, **settings)
        self.backbone = backbone
        self.settings = self._learner.settings
        self.recipe = self.settings.basis_recipe

    @property
    def bank_(self) -> MaskBank:
        """The masks of all tasks."""
        return self._learner.bank_

    @property
    def progress(self) -> ProgressChoice:
        """As in `ImpressLearner`; may be changed."""
        return self._learner.progress

    @progress.setter
    def progress(self, choice: ProgressChoice) -> None:
        self._learner.progress = choice

    @property
    def tasks_(self) -> TaskTable:
        """name -> TaskInfo; bytes count the mask, head, norm statistics and labels."""
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

    def infer_task(self, inputs: Any, **settings: Unpack[InferenceSettings]) -> TaskGuess:
        """The task of unlabelled inputs, as `ImpressLearner` infers it.

        - inputs: (n, ...) of one task
        - settings: as there; SupSup's paper uses `method="one_shot"`
        """
        return self._learner.infer_task(inputs, **settings)


def check_mask_settings(method: str, settings: Mapping[str, Any]) -> None:
    """Raises InputError for a setting that is not in `MASK_SETTINGS`."""
    for name in settings:
        check_known(f"{method} has no setting", name, MASK_SETTINGS)


def single_mask_accuracy(
    learner: ImpressLearner, mask: str, data: Any, classes: Sequence[Label] | None = None
) -> float:
    """The accuracy in [0, 1] of one mask on a labelled task, with nothing learned.

    Norm statistics come from the task that trained the mask. A mask that no task trained gets the
    statistics that tasks start from.

    - learner: its bank has the mask
    - mask: the mask's name
    - data: labelled examples
    - classes: of the task, sorted; by default the labels of the data

    Raises InputError if each task has its own head, because a mask has no head.
    """
    if learner.backbone.own_head is not None:
        raise InputError(
            "each task of this network has its own head, and a mask has none: score a task, or "
            'make the network with head="shared"'
        )
    weights = masked_weights(learner.bank_, learner.backbone.weights, mask)
    is_task = mask in learner.tasks_
    statistics = learner.statistics_of(mask) if is_task else learner.shared_statistics_
    view = TaskView(weights, statistics, learner.backbone.num_classes)
    return accuracy_of(learner.backbone, view, data, learner.preprocessing_, classes)
