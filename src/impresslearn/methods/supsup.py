"""SupSup (Wortsman et al. 2020): each task trains and uses one mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from impresslearn.checks import ReadOnlySettings, check_known
from impresslearn.coefficients.quantisation import Precision
from impresslearn.data import Label
from impresslearn.inference import TaskGuess
from impresslearn.learner import ImpressLearner
from impresslearn.masks.edge_popup import POPUP_RECIPE
from impresslearn.methods.finetuning import LENGTH
from impresslearn.networks import Backbone
from impresslearn.store import TaskTable

# Edge-popup at the rate of basis tasks, for the same number of images as every other method.
SUPSUP_RECIPE = POPUP_RECIPE.changed(LENGTH)
# The settings of `ImpressLearner` that concern trained masks.
MASK_SETTINGS = (
    *("sparsity", "allocation", "basis_recipe", "score_rule"),
    *("seed", "preprocessing", "progress", "cache_bytes"),
)


class SupSup(ReadOnlySettings):
    """Trains a mask for every task; nothing is shared and nothing is forgotten.

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
        check_mask_settings("SupSup", settings, "precision")
        settings.setdefault("basis_recipe", SUPSUP_RECIPE)
        # A basis task of ImpressLearner is a task of SupSup: a mask that edge-popup trains.
        self._learner = ImpressLearner(backbone, precision=precision, **settings)
        self.backbone = backbone
        self.settings, self.bank_ = self._learner.settings, self._learner.bank_
        self.recipe = self.settings.basis_recipe
        self.progress = self._learner.progress

    @property
    def tasks_(self) -> TaskTable:
        """name -> TaskInfo; bytes count the mask, head, norm statistics and labels."""
        return self._learner.tasks_

    def learn_task(self, name: str, data: Any, *, seed: int | None = None) -> SupSup:
        """Trains the task's mask with edge-popup. Raises as `ImpressLearner.learn_basis`."""
        self._learner.progress = self.progress
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

    def infer_task(self, inputs: Any, **settings: Any) -> TaskGuess:
        """The task of unlabelled inputs (n, ...), as `ImpressLearner` infers it.

        - settings: as there; SupSup's paper uses `method="one_shot"`
        """
        return self._learner.infer_task(inputs, **settings)


def check_mask_settings(method: str, settings: Mapping[str, Any], *more: str) -> None:
    """Raises InputError for a setting that is not in `MASK_SETTINGS`; more: others that it has."""
    for name in settings:
        check_known(f"{method} has no setting", name, (*MASK_SETTINGS, *more))
