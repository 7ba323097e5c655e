"""Validates data against the backbone, and prepares it, before anything is learned from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from impresslearn.data import (
    Examples,
    Label,
    StreamedExamples,
    as_examples,
    as_inputs,
    task_classes,
)
from impresslearn.data.preprocessing import Prepared, Preprocessing
from impresslearn.networks import Backbone

TrainingData = tuple[Examples | StreamedExamples, tuple[Label, ...]]
"""Prepared examples of a task and its classes."""


def checked_examples(
    backbone: Backbone, data: Any, preprocessing: Preprocessing | None = None
) -> Examples | StreamedExamples:
    """Labelled data, as `as_examples` takes it, prepared unless it comes as `Prepared`."""
    examples = as_examples(data.data if isinstance(data, Prepared) else data)
    if preprocessing is not None and not isinstance(data, Prepared):
        examples = preprocessing.apply_to(examples)
    if isinstance(examples, Examples):
        backbone.check_inputs(examples.inputs)
    return examples


def training_examples(
    backbone: Backbone, data: Any, preprocessing: Preprocessing | None = None
) -> TrainingData:
    """Data and classes, sorted. Raises InputError for fewer than two, or more than fit."""
    examples = checked_examples(backbone, data, preprocessing)
    return examples, task_classes(examples.labels, backbone.most_classes)


def checked_inputs(
    backbone: Backbone, inputs: Any, preprocessing: Preprocessing | None = None
) -> Tensor:
    """Inputs without labels as the backbone takes them: a float tensor, prepared if raw."""
    if isinstance(inputs, Prepared):
        values = as_inputs(inputs.data)
    else:
        values = as_inputs(inputs) if preprocessing is None else preprocessing.apply(inputs)
    backbone.check_inputs(values)
    return values


def some_inputs(examples: Examples | StreamedExamples, count: int) -> Tensor:
    """Up to `count` inputs, spread evenly over the data."""
    places = np.linspace(0, len(examples) - 1, min(count, len(examples)))
    return examples.inputs_at(np.unique(places.astype(int)))
