"""Classical models: a classifier of scikit-learn for every task, on inputs or on features.

What a task of few examples is up against: it is fitted in a blink, shares nothing with other tasks,
and keeps nothing but its own fitted numbers.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import ReadOnlySettings, check_choice, check_seed
from impresslearn.coefficients.masks import masked_weights
from impresslearn.coefficients.quantisation import PRECISIONS
from impresslearn.data import Examples, Inputs, Label, StreamedExamples, task_classes, to_batches
from impresslearn.data.examples import one_tensor
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.files import reason_of
from impresslearn.masks.bank import MaskBank
from impresslearn.methods.probes import rounded_linear
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone, checked_examples, checked_inputs
from impresslearn.networks.prediction import BATCH, TaskView
from impresslearn.store.tasks import TaskInfo, check_new_name, find_task, label_map_bytes

Features = Literal["inputs", "backbone"]
FEATURES = get_args(Features)
ESTIMATORS = ("logistic_regression", "svc")
LINEAR = ("coef_", "intercept_")
"""What a linear classifier of scikit-learn has fitted."""


class SklearnClassifier(ReadOnlySettings):
    """Fits a classifier of scikit-learn for every task.

    estimator: "logistic_regression", "svc" (Gaussian kernel, C = 10), or any object with fit and
    predict, of which every task gets a clone. features: what it is fitted on, "inputs", flattened,
    or "backbone", the activations that enter the head of the frozen network; with a bank
    those under each of its masks, as it is when a task is learned, side by side. Norm statistics
    are then those that a task starts from. seed: the random_state of an estimator that has one and
    leaves it open. preprocessing: as of `ImpressLearner`. parameters: of the estimator, as in
    C=0.1. precision: what a linear estimator's coefficients and intercepts are rounded to after
    fitting and kept in, as a learner's coefficients are, with a step a class (under "coded" one for
    all); others are kept as they are, "float32". Labels reach the estimator as class indices
    0..K-1, augmentations are not used, and all examples of a task are held in memory.
    Raises InputError for settings and parameters that do not fit.
    """

    def __init__(
        self,
        backbone: Backbone,
        estimator: Any = "logistic_regression",
        *,
        features: Features = "inputs",
        bank: MaskBank | None = None,
        seed: int = 0,
        preprocessing: Preprocessing | None = None,
        precision: str = "float32",
        **parameters: Any,
    ) -> None:
        if features not in FEATURES:
            raise InputError(f"features must be {' or '.join(FEATURES)}, got {features!r}")
        if bank is not None and features != "backbone":
            raise InputError(f'a bank needs features="backbone", got {features!r}')
        self.backbone = check_backbone(backbone)
        self.features = features
        self.bank = bank
        self.seed = check_seed(seed)
        self.preprocessing = preprocessing
        check_choice("precision", precision, PRECISIONS)
        self.precision = precision
        self.estimator = _with_parameters(estimator, parameters, self.seed)
        self._infos: dict[str, TaskInfo] = {}
        self._fitted: dict[str, Any] = {}

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; bytes are those of `classifier_bytes` and of the labels."""
        return self._infos

    def learn_task(self, name: str, data: Any) -> SklearnClassifier:
        """Fits a clone of the estimator to the task.

        Raises InputError for a name that is taken, unusable data, an empty bank, and data or
        parameters that the estimator refuses.
        """
        from sklearn.base import clone

        check_new_name(name, self._infos)
        examples = checked_examples(self.backbone, data, self.preprocessing)
        classes = task_classes(examples.labels, None)
        if self.bank is not None and not len(self.bank):
            raise InputError("the bank is empty; learn a basis task or add random masks first")
        masks = 0 if self.bank is None else len(self.bank)
        values, targets = self._table(examples, classes, masks)
        fitted = clone(self.estimator, safe=False)
        with _told_in_one_line(fitted):
            fitted.fit(values, targets)
        size = classifier_bytes(fitted)
        if self.precision != "float32":
            size = _round_linear(fitted, self.precision)
        breakdown = {"classifier": size, "labels": label_map_bytes(classes)}
        total = sum(breakdown.values())
        self._fitted[name] = fitted
        self._infos[name] = TaskInfo(name, "learned", classes, masks, total, breakdown)
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        info = find_task(task, self._infos)
        values = checked_inputs(self.backbone, inputs, self.preprocessing)
        return np.asarray(info.classes)[self._indices(task, self._columns(values, info.num_masks))]

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        info = find_task(task, self._infos)
        examples = checked_examples(self.backbone, data, self.preprocessing)
        values, targets = self._table(examples, info.classes, info.num_masks)
        return float((self._indices(task, values) == targets).mean())

    def _table(
        self, examples: Examples | StreamedExamples, classes: tuple[Label, ...], masks: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(n, f) features and (n,) class indices."""
        source = to_batches(examples, classes, self.backbone.device)
        parts = [
            (self._columns(inputs, masks), targets.cpu().numpy())
            for inputs, targets in source.batches(BATCH)
        ]
        values, targets = (np.concatenate(each) for each in zip(*parts, strict=True))
        return values, targets

    def _columns(self, inputs: Tensor | Inputs, masks: int) -> np.ndarray:
        """(n, f) features of inputs, float32."""
        given = self.features == "inputs"
        found = one_tensor(inputs).flatten(1) if given else self._activations(inputs, masks)
        return found.float().cpu().numpy()

    def _activations(self, inputs: Tensor | Inputs, masks: int) -> Tensor:
        backbone, bank = self.backbone, self.bank
        weights: Iterable[dict[str, Tensor]] = [{}]
        if bank is not None:
            weights = (masked_weights(bank, backbone.weights, name) for name in bank.names[:masks])
        views = (TaskView(each, None, backbone.num_classes) for each in weights)
        return torch.cat([view.features(backbone, inputs) for view in views], dim=1)

    def _indices(self, task: str, values: np.ndarray) -> np.ndarray:
        """(n,) class indices of features."""
        fitted, classes = self._fitted[task], self._infos[task].classes
        with _told_in_one_line(fitted):
            found = np.asarray(fitted.predict(values))
        if found.shape != values.shape[:1] or not np.isin(found, range(len(classes))).all():
            raise InputError(
                f"{type(fitted).__name__} must predict one of the {len(classes)} class indices it "
                f"was fitted to for each input, got {found.dtype} of shape {found.shape}"
            )
        return found.astype(np.int64)


def classifier_bytes(fitted: Any) -> int:
    """Bytes of what a fitted classifier predicts with.

    Coefficients and intercepts of a linear one, and of an SVC with another kernel its support
    vectors and their counts, dual coefficients, intercepts and the kernel's width, all in float32;
    of anything else the size of its pickle. Raises InputError where it cannot be pickled.
    """
    if hasattr(fitted, "coef_") and hasattr(fitted, "intercept_"):
        return 4 * (np.size(fitted.coef_) + np.size(fitted.intercept_))
    if hasattr(fitted, "support_vectors_") and hasattr(fitted, "dual_coef_"):
        kept = ("support_vectors_", "n_support_", "dual_coef_", "intercept_")
        return 4 * (sum(np.size(getattr(fitted, name)) for name in kept) + 1)
    try:
        return len(pickle.dumps(fitted))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InputError(
            f"the bytes of {type(fitted).__name__} cannot be counted: {reason_of(error)}"
        ) from error


def _round_linear(fitted: Any, precision: str) -> int:
    """Rounds a linear classifier to what is kept of it; its bytes."""
    linear = all(isinstance(getattr(fitted, name, None), np.ndarray) for name in LINEAR)
    if not linear or hasattr(fitted, "support_vectors_"):
        raise InputError(
            f'{type(fitted).__name__} is not linear and cannot be rounded; use precision="float32"'
        )
    numbers, size = rounded_linear(fitted.coef_, fitted.intercept_, precision)
    fitted.coef_, fitted.intercept_ = numbers
    return size


def _with_parameters(estimator: Any, parameters: Mapping[str, Any], seed: int) -> Any:
    """A clone of an estimator, or a new one by name, with its parameters and the seed."""
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    if isinstance(estimator, str):
        if estimator not in ESTIMATORS:
            known = " or ".join(ESTIMATORS)
            raise InputError(f"estimator must be {known}, or an object, got {estimator!r}")
        made: Any = SVC(C=10.0) if estimator == "svc" else LogisticRegression(max_iter=1000)
    else:
        verbs = (getattr(estimator, verb, None) for verb in ("fit", "predict"))
        if isinstance(estimator, type) or not all(map(callable, verbs)):
            raise InputError(f"estimator must be an object with fit and predict, got {estimator!r}")
        made = clone(estimator, safe=False)
    values = made.get_params() if hasattr(made, "get_params") else {}
    for name in parameters:
        if name not in values:
            has = ", ".join(values) or "none"
            raise InputError(f"{type(made).__name__} has no parameter {name!r}; it has {has}")
    open_seeds = [key for key in values if key.endswith("random_state") and values[key] is None]
    settings = dict.fromkeys(open_seeds, seed % 2**32) | dict(parameters)
    return made.set_params(**settings) if settings else made


@contextmanager
def _told_in_one_line(fitted: Any) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InputError(f"{type(fitted).__name__}: {reason_of(error)}") from error
