"""SupSup (Wortsman et al. 2020): one dedicated mask per task on the same frozen network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from impresslearn.inference import TaskGuess
from impresslearn.learner import ImpressLearner
from impresslearn.networks import Backbone
from impresslearn.state.tasks import TaskTable
from impresslearn.validation import ReadOnlySettings


class SupSup(ReadOnlySettings):
    """Every task trains a mask of its own; nothing is shared and nothing is forgotten.

    The verbs are those of `ImpressLearner`; settings are its settings that concern masks
    (sparsity, allocation, basis_recipe, score_rule, seed, progress). It is the same code as the
    basis phase of ImpressLearn, so the two differ only in what they do with the masks.
    """

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        self._learner = ImpressLearner(backbone, **settings)
        vars(self).update(vars(self._learner.settings), backbone=backbone)

    @property
    def tasks_(self) -> TaskTable:
        """name -> TaskInfo; bytes are those of the task's own mask and what goes with it."""
        return self._learner.tasks_

    def learn_task(self, name: str, data: Any, *, seed: int | None = None) -> SupSup:
        """Trains the task's mask with edge-popup."""
        self._learner.learn_basis(name, data, seed=seed)
        return self

    def predict(self, inputs: Any, task: str | Sequence[str] | None = None) -> np.ndarray:
        """Labels; with task=None the task is inferred first (GN)."""
        return self._learner.predict(inputs, task)

    def score(self, data: Any, task: str) -> float:
        """Accuracy with the task known (GG), in [0, 1]."""
        return self._learner.score(data, task)

    def infer_task(self, inputs: Any, *, method: str = "one_shot", **settings: Any) -> TaskGuess:
        """The task of unlabelled inputs: SupSup's "one_shot" gradient, or "halving"."""
        return self._learner.infer_task(inputs, method=method, **settings)
