"""What a learner lets in: data checked against its backbone before anything is learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.backbones import Backbone
from impresslearn.data import (
    Examples,
    Label,
    StreamedExamples,
    as_examples,
    as_inputs,
    task_classes,
)

Prepared = tuple[Examples | StreamedExamples, tuple[Label, ...]]
"""Checked examples of a task and its classes."""


def checked_examples(backbone: Backbone, data: Any) -> Examples | StreamedExamples:
    """Labelled data in any form that `as_examples` takes, of a shape that the backbone takes."""
    examples = as_examples(data)
    if isinstance(examples, Examples):
        backbone.check_inputs(examples.inputs)
    return examples


def training_examples(backbone: Backbone, data: Any) -> Prepared:
    """Data that a task can be learned from, and its classes, sorted.

    Raises InputError for fewer than two classes and for more than the backbone has outputs.
    """
    examples = checked_examples(backbone, data)
    return examples, task_classes(examples.labels, backbone.num_classes)


def checked_inputs(backbone: Backbone, inputs: Any) -> Tensor:
    """Inputs without labels, as a float tensor of a shape that the backbone takes."""
    values = as_inputs(inputs)
    backbone.check_inputs(values)
    return values


def some_inputs(examples: Examples | StreamedExamples, count: int) -> Tensor:
    """Up to `count` inputs, spread evenly over the data."""
    places = np.linspace(0, len(examples) - 1, min(count, len(examples)))
    index = np.unique(places.astype(int))
    if isinstance(examples, Examples):
        return examples.inputs[torch.from_numpy(index)]
    return torch.stack([as_inputs(examples.dataset[int(i)][0]) for i in index])
