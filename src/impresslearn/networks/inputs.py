"""Validates data against the backbone, and prepares it, before anything is learned from it."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from impresslearn.data import (
    Examples,
    Features,
    Inputs,
    Label,
    StreamedExamples,
    as_examples,
    as_network_inputs,
    inputs_behind,
    task_classes,
)
from impresslearn.data.examples import drawing, raw
from impresslearn.data.preprocessing import Prepared, Preprocessing
from impresslearn.errors import InputError, InputScaleWarning, warn_caller
from impresslearn.networks import Backbone
from impresslearn.networks.backbone import Mode

INTERNAL = frozenset(vars(nn.Module()))
# float32 holds every integer below.
LARGEST_ID = 2**24
# Standard deviations of inputs that need no warning.
USUAL_DEVIATIONS = 0.1, 3.0
# Examples of a task from which its scale is measured.
LOOKED_AT = 1000
# Inputs of the check of passes, and how far logits may be apart, as a share of the largest.
PASSED, PASSED_SINGLE, PASSED_HALF = 4, 2e-3, 5e-2
# What the last weights are multiplied by, to tell probabilities from logits.
LARGE = 1e4
MODES_COMPARED: tuple[Mode, ...] = ("eval", "train", "eval")
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
    examples = as_examples(data, layout=preprocessing)
    if isinstance(examples, Examples) and isinstance(examples.inputs, Features):
        return replace(examples, inputs=checked_features(backbone, examples.inputs))
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
    if not backbone.checked:
        check_passes(backbone, inputs_behind(some_inputs(examples, PASSED)))
    if backbone.own_head is not None and len(classes) not in backbone.checked_heads:
        _check_head(backbone, examples, len(classes))
        backbone.checked_heads.add(len(classes))
    return examples, classes


@torch.no_grad()
@drawing(0)  # dropout must leave the caller's generators as they are
def check_passes(backbone: Backbone, inputs: Tensor | Inputs) -> None:
    """Raises InputError for a module that a pass changes, or whose rows depend on one another.

    Attributes that change are remembered, so that every later pass begins with their first values.
    """
    inputs = inputs.to(backbone.device, backbone.input_dtype)
    name, probe = backbone.name, copy.deepcopy(backbone)  # what changes is the copy
    attributes = _attributes_of(probe._view("eval"))
    logits = probe.forward({}, inputs)
    _remember(backbone, probe._view("eval"), attributes)
    probe = copy.deepcopy(backbone)
    backwards = torch.arange(len(inputs)).flip(0)
    passes = [probe.forward({}, inputs), probe.forward({}, inputs[backwards])[backwards]]
    if not backbone.normalises_by_batch:
        alone = [probe.forward({}, inputs[place : place + 1]) for place in range(len(inputs))]
        passes.append(torch.cat(alone))
    half = logits.dtype in (torch.float16, torch.bfloat16)
    allowed = (PASSED_HALF if half else PASSED_SINGLE) * float(logits.abs().max()) + 1e-6
    for other in passes if logits.isfinite().all() else ():
        if float((other - logits).abs().max()) > allowed:
            raise InputError(
                f"{name} gives other outputs for the same inputs in another pass, order or batch, "
                "so its tasks could not be repeated: it draws random numbers in evaluation, keeps "
                "a state, or lets the rows of a batch depend on one another; change that first"
            )
    _check_training(backbone, inputs, allowed / 100)
    # Large weights make large logits; probabilities stay between 0 and 1.
    last = backbone.own_head.name if backbone.own_head else backbone.layers[-1].parameter
    outputs = [logits]
    for factor in (LARGE, -1):
        probe.module.get_parameter(last).data.mul_(factor)
        outputs.append(probe.forward({}, inputs))
    low, high = map(float, torch.cat(outputs).aminmax())
    if backbone.spec is None and low >= 0 and 0.5 < high <= 1:
        adds_up = torch.allclose(logits.sum(1), torch.ones(()).to(logits), atol=PASSED_HALF)
        raise InputError(
            f"{name} ends in {'softmax' if adds_up else 'sigmoid'}, so it returns probabilities; "
            "adapt a network that returns logits, without its last function"
        )
    seen = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else None
    vars(backbone).update(checked=True, seen_shape=seen)


def _remember(backbone: Backbone, view: nn.Module, before: dict[str, dict[str, Any]]) -> None:
    """Notes the attributes that passes of a view changed. Raises InputError for a parameter."""
    frozen = dict(backbone.module.named_parameters())
    for key, parameter in view.named_parameters():
        if not torch.equal(parameter, frozen.get(key, parameter)):
            raise InputError(
                f"{backbone.name} writes to its parameter {key} in a pass, so it is not frozen; "
                "run it on data until it has its final values, and switch that off before adapt"
            )
    for owner, values in _attributes_of(view).items():
        known = before.get(owner, values)
        keys = [key for key in values if key not in known or values[key] is not known[key]]
        if keys:
            keys += backbone.changing.get(owner, ())
            backbone.changing[owner] = tuple(dict.fromkeys(keys))


def _check_training(backbone: Backbone, inputs: Tensor | Inputs, allowed: float) -> None:
    """Raises InputError for what training changes, evaluation reads and no task keeps.

    Attributes that evaluation does not read are remembered, as in `check_passes`.
    """
    probe = copy.deepcopy(backbone)
    probe._fixed_buffers = {}  # so that passes write to the buffers, not to copies of them
    module = probe._local.eval = probe._view("train")  # evaluation finds what training leaves
    training = [part for part in module.modules() if part.training]
    attributes, outputs, buffers = _attributes_of(module), [], []
    try:
        for mode in MODES_COMPARED:
            for part in training:
                part.training = mode == "train"
            outputs.append(probe.forward({}, inputs, mode=mode))
            buffers.append({key: buffer.clone() for key, buffer in module.named_buffers()})
    except Exception:
        return  # a user's module may raise anything here; learning raises it with the reason
    evaluated, trained, _ = buffers  # what evaluation sets too is not gathered
    for key, buffer in trained.items():
        if not torch.equal(buffer, evaluated.get(key, buffer)):
            owner = type(module.get_submodule(key.rpartition(".")[0])).__name__
            raise InputError(
                f"{backbone.name} gathers the buffer {key} while it trains, which no task would "
                f"keep: only torch's batch norms can. Let {owner} run as in evaluation"
            )
    known = dict(backbone.changing)
    _remember(backbone, module, attributes)
    if float((outputs[2] - outputs[0]).abs().max()) > allowed:
        # What is put back before each pass would not be gathered when it is learned again.
        backbone.changing.clear()
        backbone.changing.update(known)
        raise InputError(
            f"{backbone.name} gathers something while it trains, outside of buffers, that its "
            "outputs depend on and that no task would keep; let it run as in evaluation"
        )


def _attributes_of(module: nn.Module) -> dict[str, dict[str, Any]]:
    """The attributes of every submodule by its name, without its tensors and hooks."""
    return {
        name: {key: value for key, value in vars(owner).items() if key not in INTERNAL}
        for name, owner in module.named_modules()
    }


def _check_head(
    backbone: Backbone, examples: Examples | StreamedExamples, num_classes: int
) -> None:
    """Raises InputError unless a head of zeros makes all logits equal, as logits or log-softmax."""
    some = inputs_behind(some_inputs(examples, 2)).to(backbone.device, backbone.input_dtype)
    name = backbone.own_head.name if backbone.own_head else ""
    head = {key: torch.zeros_like(part) for key, part in backbone.new_head(num_classes).items()}
    for part in head.values():
        part.requires_grad_(True)
    with torch.inference_mode(False):
        try:
            logits = backbone.forward(head, some).float()
        except (RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
            # If the inputs are at fault, a pass without a head reports what is wrong with them.
            backbone.forward({}, some)
            kind = type(backbone.module.get_submodule(name.rpartition(".")[0]))
            own_kind = not kind.__module__.startswith("torch.")
            reason = backbone.called_last(some) or (
                f"{f'the forward of {kind.__name__}' if own_kind else 'what follows it'}, or other "
                f"layers, need {backbone.num_classes}; let the layer of the logits be last"
            )
            raise InputError(
                f"{backbone.name}: {name}, the layer that was defined last, cannot be replaced by "
                f'a task\'s head of {num_classes} outputs: {reason}, or use head="shared"'
            ) from error
    # log-softmax is the same to the loss; other functions at the end are not.
    if logits.any() and not torch.allclose(logits, torch.full_like(logits, -math.log(num_classes))):
        reason = backbone.called_last(some) or "what follows it changes them; return what it gives"
        raise InputError(
            f"{backbone.name}: {name}, the layer that was defined last, does not give the logits: "
            f'{reason}, or use head="shared"'
        )
    # A ReLU behind the head has no gradient at 0: the head would stay there.
    if logits.requires_grad and backbone.spec is None:
        with torch.inference_mode(False):
            parts = list(head.values())
            gradients = torch.autograd.grad(logits[:, 0].sum(), parts, allow_unused=True)
        if not any(gradient is not None and gradient.any() for gradient in gradients):
            if len(head) == 1:
                raise InputError(
                    f"{backbone.name} ends in a function that is flat at 0, such as a ReLU, and "
                    "its last layer has no bias to start above; adapt it without that function"
                )
            vars(backbone)["head_bias"] = 1.0


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
    """The features. Raises InputError for features of another network, and for NaN."""
    if features.network != backbone.identity:
        raise InputError(
            f"these features are of another network than this {backbone.name}; compute them with "
            "this learner's features(inputs)"
        )
    return features


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
        raise InputError(f"{takes}, got fractions; give integers, as int64")
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
