"""The training behind a task that a store is to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np
from torch import Tensor

from impresslearn.data import Examples, Features, Label, StreamedExamples, encode_labels
from impresslearn.inference.feature_scores import MOST_BYTES
from impresslearn.networks.prediction import TaskView, TrainingPhase


@dataclass(frozen=True)
class TrainingRun:
    """The training behind a task.

    - examples, classes: its training data.
    - phase: holds the norm statistics that were gathered.
    - metrics: plain values for the task's history.
    - features: (n, f) of the examples, which a readout was fitted to.
    - profile_bytes: of what the task knows of its inputs' features, at most.
    """

    examples: Examples | StreamedExamples
    classes: tuple[Label, ...]
    phase: TrainingPhase
    metrics: Mapping[str, Any]
    features: Tensor | None = None
    profile_bytes: int = MOST_BYTES

    def history(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """How a task was learned, as plain values."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        recipe, metrics = dict(recipe), dict(self.metrics)
        for name in ("columns", "pixels", "shape"):
            if name in metrics:  # the tasks of a store share them, and their recipe is kept once
                recipe[name] = metrics.pop(name)
        return {"recipe": recipe, "metrics": metrics, "created_at": now}

    def known_features(self, frozen: TaskView, some: Any) -> Features | None:
        """The features of all examples, if they are known and the frozen network reads them."""
        if self.features is None or not isinstance(some, Features) or not frozen.reads(some):
            return None
        return Features(self.features, some.inputs, some.network, some.keys, {})

    def targets(self, places: np.ndarray) -> Tensor:
        """Class indices of the examples at these places."""
        index_of = {label: index for index, label in enumerate(self.classes)}
        return encode_labels(self.examples.labels[places], index_of)
