"""Validates data against the backbone, and prepares it, before anything is learned from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.data import (
    Examples,
    Inputs,
    Label,
    StreamedExamples,
    as_examples,
    as_network_inputs,
    task_classes,
)
from impresslearn.data.examples import raw
from impresslearn.data.preprocessing import Prepared, Preprocessing
from impresslearn.errors import InputError, InputScaleWarning, warn_caller
from impresslearn.networks import Backbone

# float32 holds every integer below.
LARGEST_ID = 2**24
# Standard deviations of inputs that need no warning.
USUAL_DEVIATIONS = 0.1, 3.0
# Examples of a task from which its scale is measured.
LOOKED_AT = 1000
# Prepared examples of a task and its classes.
TrainingData = tuple[Examples | StreamedExamples, tuple[Label, ...]]


def checked_examples(
    backbone: Backbone, data: Any, preprocessing: Preprocessing | None = None
) -> Examples | StreamedExamples:
    """Labelled data as the backbone takes it.

    - `data`: as `as_examples` takes it; `Prepared` data is not prepared again.
    - `preprocessing`: prepares raw inputs, None for none.

    Raises InputError for data that do not fit the backbone.
    """
    if isinstance(data, Prepared):
        data, preprocessing = data.data, None
    if preprocessing is not None and isinstance(data, (tuple, list)) and len(data) == 2:
        data = preprocessing.ordered(data[0]), data[1]
    examples = as_examples(data)
    if preprocessing is not None:
        examples = preprocessing.apply_to(examples)
    if isinstance(examples, Examples):
        backbone.check_inputs(examples.inputs)
    if not backbone.input_dtype.is_floating_point:
        values = examples.inputs if isinstance(examples, Examples) else some_inputs(examples, 1)
        _check_ids(backbone, values, examples.pixels)
    return examples


def training_examples(
    backbone: Backbone, data: Any, preprocessing: Preprocessing | None = None
) -> TrainingData:
    """Data to learn a task from, and its classes, sorted. Arguments as `checked_examples`.

    Warns of inputs whose scale networks learn badly from. Raises InputError for fewer than two
    classes or more than fit, and if tasks have their own heads, but the layer that a head replaces
    does not give the logits.
    """
    examples = checked_examples(backbone, data, preprocessing)
    classes = task_classes(examples.labels, backbone.most_classes)
    scaled = preprocessing is not None and preprocessing.normalises
    floats = backbone.input_dtype.is_floating_point and not backbone.pretrained
    if floats and not scaled and (line := unusual_scale(examples)):
        warn_caller(
            f"{line}; a learner with preprocessing=il.Preprocessing.standardising(inputs) is "
            "likely to learn them better",
            InputScaleWarning,
        )
    if backbone.own_head is not None:
        _check_head(backbone, examples, len(classes))
    return examples, classes


def _check_head(
    backbone: Backbone, examples: Examples | StreamedExamples, num_classes: int
) -> None:
    """Raises InputError unless a head of zeros makes all logits zero."""
    some = some_inputs(examples, 2).to(backbone.device).to(backbone.input_dtype)
    with torch.no_grad():
        try:
            gives_logits = not backbone.forward(backbone.new_head(num_classes), some).any()
        except InputError:
            # If the inputs are at fault, a pass without a head reports what is wrong with them.
            backbone.forward({}, some)
            gives_logits = False
    if not gives_logits:
        name = backbone.own_head.name if backbone.own_head else ""
        raise InputError(
            f"{backbone.name}: {name}, the layer that was defined last, does not give the logits; "
            'define it last, or use head="shared"'
        )


def unusual_scale(examples: Examples | StreamedExamples) -> str | None:
    """A line about inputs whose scale networks learn badly from, or None."""
    if isinstance(examples, StreamedExamples) or isinstance(examples.inputs, Inputs):
        return None
    std, mean = torch.std_mean(examples.inputs[:LOOKED_AT].double(), correction=0)
    low, high = USUAL_DEVIATIONS
    if std == 0 or low <= std <= high:
        return None
    return f"inputs have a mean of {mean:.3g} and a deviation of {std:.3g}"


def are_pixels(backbone: Backbone, examples: Examples | StreamedExamples) -> bool | None:
    """Whether raw examples are pixels: uint8 is, values beyond [0, 1] are not; None if unclear."""
    inputs = examples.inputs if isinstance(examples, Examples) else None
    if isinstance(inputs, Inputs) or not backbone.input_dtype.is_floating_point:
        return None
    if examples.pixels or inputs is None:
        return examples.pixels or None
    low, high = map(float, inputs.aminmax())
    return False if low < 0 or high > 1 else None


def checked_inputs(
    backbone: Backbone, inputs: Any, preprocessing: Preprocessing | None = None
) -> Tensor | Inputs:
    """Inputs without labels as the backbone takes them: a float tensor, prepared if raw.

    Token ids are floats too until they enter the network, whose `input_dtype` makes integers of
    them: float32 holds every id, and files and caches need no second kind of input.
    """
    unprepared = inputs.data if isinstance(inputs, Prepared) else inputs
    if isinstance(inputs, Prepared) or preprocessing is None:
        values = as_network_inputs(unprepared)
    else:
        values = preprocessing.apply(unprepared)
    backbone.check_inputs(values)
    if not backbone.input_dtype.is_floating_point:
        pixels = isinstance(values, Tensor) and raw(unprepared).dtype == torch.uint8
        _check_ids(backbone, values, pixels)
    return values


def _check_ids(backbone: Backbone, values: Tensor | Inputs, pixels: bool) -> None:
    """Raises InputError for numbers outside the network's vocabulary."""
    if isinstance(values, Inputs):
        return  # only the network knows which of several inputs are ids
    most = min(backbone.vocabulary or LARGEST_ID, LARGEST_ID)
    kind = str(backbone.input_dtype).removeprefix("torch.")
    takes = f"{backbone.name} takes integers from 0 to {most - 1} (its input_dtype is {kind})"
    if pixels:
        raise InputError(f"{takes}; uint8 is read as pixels, give them as int64")
    if not torch.equal(values, values.floor()):
        raise InputError(f"{takes}, got fractions; adapt(…, input_dtype=torch.float32) takes them")
    low, high = map(int, values.aminmax()) if values.numel() else (0, 0)
    if low < 0 or high >= most:
        raise InputError(f"{takes}, got {low if low < 0 else high}")


def some_inputs(examples: Examples | StreamedExamples, count: int) -> Tensor | Inputs:
    """Up to `count` inputs, spread evenly over the data."""
    return examples.inputs_at(spread_places(len(examples), count))


def spread_rows(inputs: Tensor | Inputs, count: int) -> Tensor | Inputs:
    """Up to `count` rows, spread evenly: data are often sorted by class."""
    if len(inputs) <= count:
        return inputs
    return inputs[torch.from_numpy(spread_places(len(inputs), count))]


def spread_places(length: int, count: int) -> np.ndarray:
    """Up to `count` positions in order, from the first of `length` to the last."""
    return np.unique(np.linspace(0, length - 1, min(count, length)).astype(int))


def check_backbone(value: Any) -> Backbone:
    """The value itself. Raises InputError unless it is a backbone."""
    if not isinstance(value, Backbone):
        raise InputError(
            f"backbone must come from create_backbone or adapt, got {type(value).__name__}; wrap "
            "your own module with adapt(module)"
        )
    return value
