"""Methods without network training: a scikit-learn classifier, or the best mask of a bank."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from torch import Tensor

from impresslearn.checks import check_choice
from impresslearn.coefficients.masks import masked_weights
from impresslearn.coefficients.quantisation import TensorLayout, rounded_tensors
from impresslearn.data import Features, Inputs, to_batches
from impresslearn.data.examples import one_tensor
from impresslearn.errors import InputError
from impresslearn.masks.bank import MaskBank
from impresslearn.methods.finetuning import FineTuning
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import checked_examples, training_examples
from impresslearn.networks.prediction import TaskView
from impresslearn.store.tasks import TaskInfo, label_map_bytes

ESTIMATORS = {
    "logistic_regression": partial(LogisticRegression, C=1.0, max_iter=1000),
    "svc": partial(SVC, C=10.0),
}
# Attributes that a fitted classifier needs to predict, in float32; _gamma is the kernel's width.
KEPT = {
    "logistic_regression": ("coef_", "intercept_"),
    "svc": ("support_vectors_", "n_support_", "dual_coef_", "intercept_", "_gamma"),
}


class SklearnClassifier:
    """Fits a scikit-learn classifier for every task.

    - estimator: "logistic_regression", or "svc" with a Gaussian kernel and C = 10
    - features: "inputs" for flattened inputs, or "backbone" for features of the frozen network
      (with a bank: under each of its masks, side by side). `Features` are used as they are
    - precision: the numbers of a logistic regression are rounded to it after fitting
    - C: the estimator's C, in place of the default
    - components: if given, this number of principal components is classified in place of the
      inputs. All tasks share the components of `learn_features`, or else of the first task
    """

    def __init__(
        self,
        backbone: Backbone,
        estimator: str = "logistic_regression",
        *,
        features: str = "inputs",
        bank: MaskBank | None = None,
        precision: str = "float32",
        C: float | None = None,
        components: int | None = None,
    ) -> None:
        check_choice("the estimator", estimator, ESTIMATORS)
        check_choice("features", features, ("inputs", "backbone"))
        self.backbone, self.bank, self.features = backbone, bank, features
        self.estimator, self.precision = estimator, precision
        self._settings: dict[str, Any] = {} if C is None else {"C": C}
        self._components, self.shared_bytes = components, 0
        self._projection: PCA | None = None
        self.tasks_: dict[str, TaskInfo] = {}
        self._fitted: dict[str, Any] = {}

    def learn_features(self, *data: Any) -> None:
        """Fits the principal components to the training inputs of several tasks."""
        tasks = [training_examples(self.backbone, each, None)[0] for each in data]
        values = np.concatenate([self._features(examples.inputs) for examples in tasks])
        self._projection = PCA(self._components, random_state=0).fit(values)
        self.shared_bytes = 4 * (self._projection.n_components_ + 1) * values.shape[1]

    def learn_task(self, name: str, data: Any) -> SklearnClassifier:
        """Fits a new estimator to the task."""
        examples, classes = training_examples(self.backbone, data, None)
        if self._components and self._projection is None:
            self.learn_features(data)
        values = self._columns(examples.inputs)
        fitted = ESTIMATORS[self.estimator](**self._settings).fit(values, examples.labels)
        size = 4 * sum(np.size(getattr(fitted, numbers)) for numbers in KEPT[self.estimator])
        if self.precision != "float32":
            size = _round(fitted, self.precision)
        self._fitted[name] = fitted
        masks = 0 if self.bank is None else len(self.bank)
        self.tasks_[name] = _info(name, classes, masks, {"classifier": size})
        return self

    def predict(self, inputs: Tensor, task: str) -> np.ndarray:
        """(n,) labels."""
        return self._fitted[task].predict(self._columns(inputs))

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]."""
        examples = checked_examples(self.backbone, data, None)
        return float((self.predict(examples.inputs, task) == examples.labels).mean())

    def _columns(self, inputs: Tensor | Inputs) -> np.ndarray:
        """The columns (n, f) float32 that the classifier reads: features or their components."""
        table = self._features(inputs)
        return table if self._projection is None else self._projection.transform(table)

    def _features(self, inputs: Tensor | Inputs) -> np.ndarray:
        """The features (n, f) float32 of inputs."""
        if isinstance(inputs, Features) or self.features == "inputs":
            inputs = inputs.values if isinstance(inputs, Features) else inputs
            return one_tensor(inputs).flatten(1).float().cpu().numpy()
        networks: list[dict[str, Tensor]] = [{}]
        if self.bank is not None:
            names = self.bank.names
            networks = [masked_weights(self.bank, self.backbone.weights, name) for name in names]
        first, *others = networks
        view = TaskView(first, None, self.backbone.num_classes, others=tuple(others))
        return view.features(self.backbone, inputs).float().cpu().numpy()


def _round(fitted: LogisticRegression, precision: str) -> int:
    """Rounds the numbers with a step per class ("coded": one step); returns their bytes."""
    weights = torch.from_numpy(fitted.coef_).float()
    offsets = torch.from_numpy(fitted.intercept_).float()
    is_coded = precision == "coded"
    turned = weights if is_coded else weights.t()
    # "coded" stores positions of non-zeros by row and column, as many pixels have only zeros.
    layout = TensorLayout("weights", tuple(turned.shape), sparse=is_coded)
    layouts = TensorLayout("offsets", tuple(offsets.shape), around_one=not is_coded), layout
    (offsets, turned), size = rounded_tensors([offsets, turned], precision, layouts)
    weights = turned if is_coded else turned.t()
    fitted.coef_, fitted.intercept_ = weights.contiguous().numpy(), offsets.contiguous().numpy()
    return size


class BestMask(FineTuning):
    """Predicts every task with the mask of a bank that is right on most of the task's examples."""

    # Nothing is trained: this shows how accurate a single mask is, without combining masks.

    def __init__(self, backbone: Backbone, bank: MaskBank) -> None:
        if not len(bank):
            raise InputError("the bank is empty; BestMask chooses one of its masks")
        super().__init__(backbone)
        self.bank = bank

    def learn_task(self, name: str, data: Any) -> BestMask:
        """Tries every mask on the examples; keeps the best (of equal ones the first)."""
        examples, classes = training_examples(self.backbone, data, None)
        source, best = to_batches(examples, classes, self.backbone.device), -1.0
        for mask in self.bank.names:
            weights = masked_weights(self.bank, self.backbone.weights, mask)
            view = TaskView(weights, None, len(classes))
            accuracy = view.accuracy(self.backbone, source)
            if accuracy > best:
                self._views[name], best = view, accuracy
        bits = (len(self.bank) - 1).bit_length()
        self._infos[name] = _info(name, classes, len(self.bank), {"mask_number": -(-bits // 8)})
        return self


def _info(name: str, classes: tuple[Any, ...], masks: int, sizes: dict[str, int]) -> TaskInfo:
    breakdown = {**sizes, "labels": label_map_bytes(classes)}
    return TaskInfo(name, "learned", classes, masks, sum(breakdown.values()), breakdown)
