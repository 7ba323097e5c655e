"""Prepares data for a backbone, and checks data and network before anything is learned."""

import copy
import math
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from impresslearn.data import Examples, Features, Inputs, Label, StreamedExamples, as_examples
from impresslearn.data.examples import as_network_inputs, check_levels, drawing, inputs_behind, raw
from impresslearn.data.labels import task_classes
from impresslearn.data.preprocessing import Prepared, Preprocessing
from impresslearn.errors import InputError, InputScaleWarning, warn_caller
from impresslearn.networks.backbone import Backbone, attributes_of

LARGEST_ID = 2**24  # float32 holds every integer below this
LOOKED_AT = 1000  # the scale of inputs is measured on up to this number of examples
# `check_passes`: inputs, and the largest difference of logits as a share of the largest logit.
PASSED, PASSED_SINGLE, PASSED_HALF = 4, 2e-3, 5e-2
# A task's prepared examples, and its classes.
TrainingData = tuple[Examples | StreamedExamples, tuple[Label, ...]]


def checked_examples(
    backbone: Backbone, data: Any, preprocessing: Preprocessing | None = None
) -> Examples | StreamedExamples:
    """Labelled data as examples that fit the backbone.

    - `data`: anything that `as_examples` takes; `Prepared` data is not prepared again.
    - `preprocessing`: prepares raw inputs; None (default) for no preprocessing.
    """
    if isinstance(data, Prepared):
        data, preprocessing = data.data, None
    examples = as_examples(data, layout=preprocessing)
    if isinstance(examples, Examples) and isinstance(examples.inputs, Features):
        return replace(examples, inputs=checked_features(backbone, examples.inputs))
    if preprocessing is not None:
        examples = preprocessing.apply_to(examples)
    else:
        check_levels(getattr(examples, "inputs", None), examples.pixels)
    if isinstance(examples, Examples):
        backbone.check_inputs(examples.inputs)
    if not backbone.input_dtype.is_floating_point:
        values = examples.inputs if isinstance(examples, Examples) else some_inputs(examples, 1)
        _check_ids(backbone, values, examples.pixels)
    return examples


def training_examples(
    backbone: Backbone,
    data: Any,
    preprocessing: Preprocessing | None = None,
    any_scale: bool = False,
) -> TrainingData:
    """Examples to learn a task from, and its sorted classes. Arguments as in `checked_examples`.

    Warns about inputs on a scale from which networks learn badly, unless `any_scale`. Raises
    InputError for fewer than two classes or more than the network has, and as `check_passes`.
    """
    examples = checked_examples(backbone, data, preprocessing)
    classes = task_classes(examples.labels, backbone.most_classes)
    scaled = preprocessing is not None and preprocessing.normalises
    floats = backbone.input_dtype.is_floating_point and not backbone.pretrained
    if floats and not (scaled or any_scale) and (line := unusual_scale(examples)):
        line += "; a learner with preprocessing=il.Preprocessing.standardising(inputs) is likely to"
        warn_caller(f"{line} learn them better", InputScaleWarning)
    if not backbone.checked:
        check_passes(backbone, inputs_behind(some_inputs(examples, PASSED)))
    return examples, classes


@torch.no_grad()
@drawing(0)  # dropout must leave the caller's generators as they are
def check_passes(backbone: Backbone, inputs: Tensor | Inputs) -> None:
    """Raises InputError for a network with which a task could not be learned or repeated.

    A pass changes it, its rows depend on one another, or its outputs are not its head's logits.
    """
    inputs = inputs.to(backbone.device, backbone.input_dtype)
    name, probe = backbone.name, copy.deepcopy(backbone)  # passes change only the copy
    backwards = torch.arange(len(inputs)).flip(0)
    logits = probe.forward({}, inputs)
    passes = [probe.forward({}, inputs), probe.forward({}, inputs[backwards])[backwards]]
    if not backbone.normalises_by_batch:
        alone = [probe.forward({}, inputs[place : place + 1]) for place in range(len(inputs))]
        passes.append(torch.cat(alone))
    half = logits.dtype in (torch.float16, torch.bfloat16)
    allowed = (PASSED_HALF if half else PASSED_SINGLE) * float(logits.abs().max()) + 1e-6
    compared = [(logits, other, allowed, "in another pass, order or batch") for other in passes]
    module, buffers, outputs = _trained(backbone, inputs)
    compared += [(outputs[0], after, allowed / 100, "after training") for after in outputs[1:]]
    first = dict(backbone.module.named_parameters()) | buffers
    for key, tensor in chain(module.named_parameters(), module.named_buffers()):
        if not torch.equal(tensor, first.get(key, tensor)):
            kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
            until = "run it on data until the values are final, then " * (kind == "buffer")
            raise InputError(
                f"{name} writes to its {kind} {key} in a pass, which no task would keep: only "
                f"torch's batch norms may; {until}make forward leave it unchanged before adapt"
            )
    for before, after, most, when in compared if logits.isfinite().all() else ():
        if float((after - before).abs().max()) > most:
            raise InputError(
                f"{name} gives other outputs for the same inputs {when}, so its tasks could not be "
                "repeated: it draws random numbers in evaluation, keeps a state, or lets the rows "
                "of a batch depend on one another; change that first"
            )
    # Large weights make logits large, but probabilities stay between 0 and 1.
    last = backbone.own_head.name if backbone.own_head else backbone.layers[-1].parameter
    scaled = [logits]
    for factor in (1e4, -1):
        probe.module.get_parameter(last).data.mul_(factor)
        scaled.append(probe.forward({}, inputs))
    low, high = map(float, torch.cat(scaled).aminmax())
    if backbone.spec is None and low >= 0 and 0.5 < high <= 1:
        adds_up = torch.allclose(logits.sum(1), torch.ones(()).to(logits), atol=PASSED_HALF)
        line = f"{name} ends in {'softmax' if adds_up else 'sigmoid'}, so it returns probabilities"
        raise InputError(f"{line}; adapt a network that returns logits, without its last function")
    if backbone.own_head is not None:
        _check_head(backbone, inputs)
    every = (inputs if isinstance(inputs, Inputs) else Inputs(inputs)).items()
    seen = [(key, [*each.shape[1:]], str(each.dtype).removeprefix("torch.")) for key, each in every]
    vars(backbone).update(checked=True, seen_inputs=seen)


def _trained(
    backbone: Backbone, inputs: Tensor | Inputs
) -> tuple[nn.Module, dict[str, Tensor], list[Tensor]]:
    """A module after a training pass, its buffers before it, and outputs before and after it."""
    probe = copy.deepcopy(backbone)
    # Let passes write to the buffers themselves, and see what earlier passes wrote.
    probe._fixed_buffers, probe._restores = {}, False
    module = probe._local.eval = probe._view("train")
    training = [part for part in module.modules() if part.training]
    buffers: dict[str, Tensor] = {}
    outputs = []
    with suppress(Exception):  # a user's module may raise anything; learning raises the reason
        module.train(False)
        first = attributes_of(module)
        outputs.append(probe.forward({}, inputs))
        evaluated = attributes_of(module)
        buffers = {key: buffer.clone() for key, buffer in module.named_buffers()}
        for part in training:
            part.training = True
        probe.forward({}, inputs)
        module.train(False)
        # Attributes that evaluation itself changes start every pass with their first value.
        for (attributes, before), (_, after) in zip(first, evaluated, strict=True):
            for key, value in after.items():
                if before.get(key) is not value:
                    attributes.pop(key, None)
                    attributes.update({key: before[key]} if key in before else {})
        outputs.append(probe.forward({}, inputs))
    return module, buffers, outputs


def _check_head(backbone: Backbone, inputs: Tensor | Inputs) -> None:
    """Raises InputError unless a head of zeros gives zeros, or the log-softmax of zeros."""
    outputs = backbone.num_classes + 1  # another number, which a network may not allow
    new = backbone.new_head(outputs).items()
    head = {key: torch.zeros_like(part).requires_grad_(True) for key, part in new}
    with torch.inference_mode(False), torch.enable_grad():
        logits = None
        with suppress(RuntimeError, ValueError, AssertionError, IndexError, TypeError):
            logits = backbone.forward(head, inputs).float()
        # The loss is the same after log-softmax, but not after other functions.
        if logits is None or (logits.any() and (logits + math.log(outputs)).abs().max() > 1e-4):
            raise InputError(f"{backbone.name}: {backbone.head_advice()}")
        # A ReLU after the head has no gradient at 0, so a head of zeros would never learn.
        if logits.requires_grad and backbone.spec is None:
            parts = list(head.values())
            gradients = torch.autograd.grad(logits[:, 0].sum(), parts, allow_unused=True)
            if not any(gradient is not None and gradient.any() for gradient in gradients):
                if len(head) == 1:
                    line = f"{backbone.name} ends in a function that is flat at 0, such as a ReLU"
                    why = "its last layer has no bias to start above; adapt it without the function"
                    raise InputError(f"{line}, and {why}")
                vars(backbone)["head_bias"] = 1.0
    drawn = {key: torch.arange(x.numel()).cos().to(x).view(x.shape) for key, x in new}
    with suppress(InputError, RuntimeError):  # readouts refuse features that no vector holds
        wanted = backbone.headed(backbone.features(drawn, inputs), drawn).float()
        apart = backbone.forward(drawn, inputs).float() - wanted
        apart -= apart.mean(1, keepdim=True)
        is_far = float(apart.abs().max()) > PASSED_HALF * float(wanted.abs().max())
        vars(backbone)["plain_head"] = not is_far


def unusual_scale(examples: Examples | StreamedExamples) -> str | None:
    """A line about inputs on a scale from which networks learn badly, or None."""
    if isinstance(examples, StreamedExamples) or isinstance(examples.inputs, Inputs):
        return None
    std, mean = torch.std_mean(examples.inputs[:LOOKED_AT].double(), correction=0)
    if std == 0 or 0.1 <= std <= 3.0:  # the usual scales
        return None
    return f"inputs have a mean of {mean:.3g} and a deviation of {std:.3g}"


def are_pixels(backbone: Backbone, examples: Examples | StreamedExamples) -> bool | None:
    """Whether raw examples are pixels: True for uint8, False beyond [0, 1], None if unclear."""
    inputs = examples.inputs if isinstance(examples, Examples) else some_inputs(examples, 64)
    if isinstance(inputs, Inputs) or not backbone.input_dtype.is_floating_point:
        return None
    if examples.pixels:
        return True
    low, high = map(float, inputs.aminmax())
    return False if low < 0 or high > 1 else None


def checked_inputs(
    backbone: Backbone, inputs: Any, preprocessing: Preprocessing | None = None
) -> Tensor | Inputs:
    """Inputs without labels as the backbone takes them: a float tensor, prepared if raw.

    Token ids are floats too; they are converted to the network's `input_dtype` later.
    """
    unprepared = inputs.data if isinstance(inputs, Prepared) else inputs
    if isinstance(unprepared, Features):
        return checked_features(backbone, unprepared)
    if isinstance(inputs, Prepared) or preprocessing is None:
        values = as_network_inputs(unprepared)
    else:
        values = preprocessing.apply(unprepared)
    backbone.check_inputs(values)
    if not backbone.input_dtype.is_floating_point:
        pixels = isinstance(values, Tensor) and raw(unprepared).dtype == torch.uint8
        _check_ids(backbone, values, pixels)
    return values


def checked_features(backbone: Backbone, features: Features) -> Features:
    """Returns the features. Raises InputError for features of another network."""
    if features.network != backbone.identity:
        line = f"these features are of another network than this {backbone.name}"
        raise InputError(f"{line}; compute them with this learner's features(inputs)")
    return features


def _check_ids(backbone: Backbone, values: Tensor | Inputs, pixels: bool) -> None:
    """Raises InputError for token ids outside the network's vocabulary."""
    if isinstance(values, Inputs):
        return  # only the network knows which of several inputs are ids
    most = min(backbone.vocabulary or LARGEST_ID, LARGEST_ID)
    kind = str(backbone.input_dtype).removeprefix("torch.")
    takes = f"{backbone.name} takes integers from 0 to {most - 1} (its input_dtype is {kind})"
    if pixels:
        raise InputError(f"{takes}; uint8 is read as pixels, give them as int64")
    if not torch.equal(values, values.floor()):
        raise InputError(f"{takes}, got fractions; give integers, as int64")
    low, high = map(int, values.aminmax()) if values.numel() else (0, 0)
    if low < 0 or high >= most:
        raise InputError(f"{takes}, got {low if low < 0 else high}")


def some_inputs(examples: Examples | StreamedExamples, count: int) -> Tensor | Inputs:
    """Up to `count` inputs, spread evenly over the data."""
    return examples.inputs_at(spread_places(len(examples), count))


def spread_rows(inputs: Tensor | Inputs, count: int) -> Tensor | Inputs:
    """Up to `count` rows, spread evenly over the data, which are often sorted by class."""
    if len(inputs) <= count:
        return inputs
    return inputs[torch.from_numpy(spread_places(len(inputs), count))]


def spread_places(length: int, count: int) -> np.ndarray:
    """Up to `count` positions below `length`, in order: a random one of each equal part."""
    # Evenly spaced ones could miss whole classes of data whose labels repeat in turn.
    count = min(count, length)
    parts = np.arange(count) + np.random.default_rng(0).random(count)
    return np.unique((parts * (length / max(1, count))).astype(int))


def check_backbone(value: Any) -> Backbone:
    """Returns the value. Raises InputError unless it is a backbone."""
    if not isinstance(value, Backbone):
        line = f"backbone must come from create_backbone or adapt, got {type(value).__name__}"
        raise InputError(f"{line}; wrap your own module with adapt(module)")
    return value
