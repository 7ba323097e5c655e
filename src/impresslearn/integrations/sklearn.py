"""`ImpressClassifier`: a scikit-learn classifier that learns small tasks over a frozen network."""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from impresslearn.data import Preprocessing
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.networks import Backbone, create_backbone

TASK = "task"


class ImpressClassifier(ClassifierMixin, BaseEstimator):
    """Classifies rows by a task of a few hundred bytes; several tasks share one network.

    `fit(X, y)` forgets all tasks and learns one. `fit(X, y, task="oslo")` adds a task over the same
    features, and leaves the earlier named tasks as they are. All inputs are standardised by the
    mean and standard deviation of the first task's inputs.

    - preset: a preset in which each task has its own head, such as "few_labels" or "pretrained".
    - backbone: the frozen network, which takes rows of numbers; by default there is none, and a
      readout reads the columns themselves.
    - max_bytes: the most bytes that a task may take; None leaves it to the preset.
    - seed: the seed of all random draws.

    Fitted attributes: classes_ (K,) of the last task; n_features_in_; learner_, the
    `ImpressLearner` that holds the tasks.
    """

    learner_: ImpressLearner
    _classes: dict[str, np.ndarray]

    def __init__(
        self,
        preset: str = "few_labels",
        *,
        backbone: Backbone | None = None,
        max_bytes: int | None = None,
        seed: int = 0,
    ) -> None:
        self.preset = preset
        self.backbone = backbone
        self.max_bytes = max_bytes
        self.seed = seed

    def fit(self, X: Any, y: Any, task: str | None = None) -> "ImpressClassifier":
        """Learns a task.

        - X: finite numbers (n, columns).
        - y: labels (n,) of at least two classes.
        - task: the name of a new task; None forgets all earlier tasks.

        Raises ValueError for unusable data, and for a name that a task already has.
        """
        named = task is not None and hasattr(self, "learner_")
        X, y = validate_data(self, X, y, reset=not named, dtype=np.float32, ensure_min_samples=2)
        check_classification_targets(y)
        # The task learns positions in `classes`; this object keeps the labels, of any type.
        classes, places = np.unique(y, return_inverse=True)
        learner = self.learner_ if named else self._new_learner(X)
        learner.learn_task(task or TASK, (X, places))
        self._classes = (self._classes if named else {}) | {task or TASK: classes}
        self.learner_, self.classes_ = learner, classes
        return self

    def _new_learner(self, X: np.ndarray) -> ImpressLearner:
        backbone = self.backbone
        if backbone is None:
            backbone = create_backbone("linear", in_features=X.shape[1], head="own")
        limit = {} if self.max_bytes is None else {"max_bytes": self.max_bytes}
        prepared = Preprocessing.standardising(X)
        return ImpressLearner.from_preset(
            backbone, self.preset, seed=self.seed, preprocessing=prepared, progress=False, **limit
        )

    def decision_function(self, X: Any, task: str | None = None) -> np.ndarray:
        """Logits (n, K). For two classes (n,): the second's logit minus the first's."""
        logits = self._logits(X, task)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any, task: str | None = None) -> np.ndarray:
        """Probabilities (n, K) of the task's classes, in sorted order."""
        return torch.from_numpy(self._logits(X, task)).softmax(dim=1).numpy()

    def predict(self, X: Any, task: str | None = None) -> np.ndarray:
        """Labels (n,) by the named task, or else by the last task."""
        best = self._logits(X, task).argmax(axis=1)
        return self._classes[self._name(task)][best]

    def _name(self, task: str | None) -> str:
        name = next(reversed(self._classes)) if task is None else task
        if name not in self._classes:
            raise InputError(f"no task {name!r}; fitted are {', '.join(self._classes)}")
        return name

    def _logits(self, X: Any, task: str | None) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float32)
        return self.learner_.logits(X, self._name(task)).double().cpu().numpy()
