"""A linear probe: logistic regression on the features of the frozen network, one per task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import ReadOnlySettings, check_choice, check_number, check_seed
from impresslearn.coefficients.quantisation import PRECISIONS, rounded_tensors
from impresslearn.data import Examples, Inputs, StreamedExamples, task_classes, to_batches
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone, checked_examples, checked_inputs
from impresslearn.networks.prediction import BATCH, TaskView
from impresslearn.store.tasks import TaskInfo, check_new_name, find_task, label_map_bytes

MOST_ITERATIONS = 1000


class LinearProbe(ReadOnlySettings):
    """Fits logistic regression on the inputs of the frozen network's head, for every task.

    Augmentations are not used, and the features of all examples of a task are kept in memory.

    - backbone: the frozen network; its initial norm statistics are used
    - C: the inverse of the L2 penalty, 1 by default as in scikit-learn
    - precision: of the stored coefficients and intercepts, which are rounded after fitting
    - seed: of scikit-learn's solver
    - preprocessing: as in `ImpressLearner`

    Raises InputError for settings out of range.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        C: float = 1.0,
        precision: str = "float32",
        seed: int = 0,
        preprocessing: Preprocessing | None = None,
    ) -> None:
        self.backbone = check_backbone(backbone)
        self.C = check_number("C", C, 1e-12)
        self.precision = check_choice("precision", precision, PRECISIONS)
        self.seed = check_seed(seed)
        self.preprocessing = preprocessing
        self._infos: dict[str, TaskInfo] = {}
        self._fitted: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; bytes count coefficients, intercepts and labels."""
        return self._infos

    def learn_task(self, name: str, data: Any) -> LinearProbe:
        """Fits the task. Raises InputError for a name that is taken and for unusable data."""
        from sklearn.linear_model import LogisticRegression

        check_new_name(name, self._infos)
        examples = checked_examples(self.backbone, data, self.preprocessing)
        classes = task_classes(examples.labels, None)
        features, targets = self._table(examples, classes)
        seed = self.seed % 2**32
        fitted = LogisticRegression(C=self.C, max_iter=MOST_ITERATIONS, random_state=seed)
        fitted.fit(features, targets)
        (coefficients, intercepts), size = rounded_linear(
            fitted.coef_, fitted.intercept_, self.precision
        )
        breakdown = {"head": size, "labels": label_map_bytes(classes)}
        total = sum(breakdown.values())
        self._fitted[name] = coefficients, intercepts
        self._infos[name] = TaskInfo(name, "learned", classes, 0, total, breakdown)
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        info = find_task(task, self._infos)
        values = checked_inputs(self.backbone, inputs, self.preprocessing)
        coefficients, intercepts = self._fitted[task]
        scores = self._features(values) @ coefficients.T + intercepts
        if scores.shape[1] > 1:
            indices = scores.argmax(axis=1)
        else:  # for two classes scikit-learn fits one column, the score of the second
            indices = (scores[:, 0] > 0).astype(int)
        return np.asarray(info.classes)[indices]

    def _table(
        self, examples: Examples | StreamedExamples, classes: tuple[Any, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(n, f) features and (n,) class indices."""
        source = to_batches(examples, classes, self.backbone.device)
        features, targets = [], []
        for inputs, indices in source.batches(BATCH):
            features.append(self._features(inputs))
            targets.append(indices.cpu().numpy())
        return np.concatenate(features), np.concatenate(targets)

    def _features(self, inputs: Tensor | Inputs) -> np.ndarray:
        view = TaskView({}, None, self.backbone.num_classes)
        return view.features(self.backbone, inputs).float().cpu().numpy()


def rounded_linear(
    coefficients: np.ndarray, intercepts: np.ndarray, precision: str
) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """A linear classifier's rounded numbers, and their bytes.

    - coefficients: (classes, features), or (1, features) for two classes
    - intercepts: one per row
    - precision: as in `rounded_tensors`, with a step for each class (one for all under "coded")
    """
    weights = torch.from_numpy(np.asarray(coefficients)).float()
    offsets = torch.from_numpy(np.asarray(intercepts)).float()
    if precision == "coded":  # positions by classes of rows and columns: many pixels say nothing
        values, size = rounded_tensors([offsets, weights], precision, [True, False], matrices=1)
    else:
        values, size = rounded_tensors([offsets, weights.t()], precision, [True, False])
        values[1] = values[1].t()
    return (values[1].contiguous().numpy(), values[0].contiguous().numpy()), size
