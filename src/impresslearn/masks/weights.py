"""Weights under a mask: trained again, such as a lottery ticket's, and scored on a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from impresslearn.checks import check_seed
from impresslearn.data import Label, classes_of, to_batches
from impresslearn.errors import InputError
from impresslearn.masks.arithmetic import check_origin, checked_mask
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import (
    check_backbone,
    checked_examples,
    some_inputs,
    training_examples,
)
from impresslearn.networks.prediction import Statistics, TaskView, TrainingPhase
from impresslearn.networks.remeasuring import remeasured
from impresslearn.training.loop import FitResult, Recipe, TaskTraining, Trainable, with_head
from impresslearn.training.progress import ProgressChoice, progress_for

MEASURED = 1000
"""Inputs that norm statistics of a plain mask are measured on."""
PRUNING_RECIPE = Recipe(optimizer="adam", lr=0.01, schedule="cosine", epochs=1, min_steps=300)


@dataclass(frozen=True)
class TrainedWeights:
    """Weights trained under a mask (layer name -> floats, 0 outside it), and how the run ended.

    statistics: the norm statistics gathered in training, None where the network keeps none. head:
    that which was trained beside, by parameter name, where tasks have heads of their own. classes:
    the task's, in the order of the outputs.
    """

    weights: dict[str, Tensor]
    fit: FitResult
    statistics: Statistics | None = None
    head: dict[str, Tensor] = field(default_factory=dict)
    classes: tuple[Label, ...] = ()


def train_weights(
    backbone: Backbone,
    mask: Any,
    data: Any,
    *,
    initial: Any = None,
    recipe: Recipe = PRUNING_RECIPE,
    seed: int = 0,
    progress: ProgressChoice = False,
) -> TrainedWeights:
    """Trains the weights that a mask keeps on one task; the network itself stays as it is.

    mask: layer name -> booleans, or what has one, such as a `PrunedMask`; None keeps all weights,
    which is the dense network beside a ticket. initial: layer name -> the weights to start from, or
    what `train_weights` returned, by default the network's own: a lottery ticket (Frankle & Carbin
    2019). data: as of `train_mask`; seed: the order of the data, and a head of the task's own.
    Raises InputError for other layers, for a `TrainedMask` or `PrunedMask` of another network (its
    `.mask` may be used on any), and data that cannot be used.
    """
    task, classes = training_task(backbone, data, recipe, seed, progress)
    if mask is None:
        mask = {
            name: torch.ones_like(each, dtype=torch.bool) for name, each in backbone.weights.items()
        }
    ones, first = _mask_of(backbone, mask), getattr(initial, "weights", initial)
    first = backbone.weights if first is None else first
    _check_weights(backbone, first, "initial")
    weights, head, result = weights_under(ones, task, first)
    return TrainedWeights(weights, result, task.phase.statistics, head, classes)


def accuracy(
    backbone: Backbone,
    masked: Any,
    data: Any,
    classes: Sequence[Label] | None = None,
    *,
    weights: Mapping[str, Tensor] | None = None,
    statistics: Any = None,
) -> float:
    """The accuracy in [0, 1] on a labelled task of a mask over the network, or of weights.

    masked: layer name -> booleans, or what `train_mask`, `prune` (its mask over the untrained
    weights) and `train_weights` return, whose head is used too. weights: layer name -> floats that
    a mask is put over in place of the network's own, or that are scored as they are where masked
    is None, such as those of `dense_weights`. classes: the task's, in the order of the outputs,
    which what was trained knows; by default those that the data show, if they are as many as the
    network's outputs. statistics: by buffer name, or data on whose inputs they are measured, where
    the network's norms keep statistics; what was trained has its own. Raises InputError for those
    of other layers, for a `TrainedMask` or `PrunedMask` of another network (its `.mask` may be used
    on any), where a task needs a head, or statistics, and brings none, and where it is unclear
    which class an output is.
    """
    check_backbone(backbone)
    scored = _scored(backbone, masked, weights)
    head = getattr(masked, "head", {})
    if backbone.own_head is not None and not head:
        raise InputError(
            "each task of this network has a head of its own, and a mask alone has none: give what "
            'train_mask returned, or make the network with head="shared"'
        )
    network = {**scored, **head}
    # Statistics go with the weights they were gathered under: `trained` ones, where there are such.
    if statistics is None and weights is getattr(masked, "trained", None):
        statistics = getattr(masked, "statistics", None)
    examples = checked_examples(backbone, data)
    known = getattr(masked, "classes", ()) if classes is None else tuple(classes)
    found = known or classes_of(examples.labels)
    outputs = backbone.num_classes
    if not known and len(found) < outputs:
        raise InputError(
            f"the data show {len(found)} classes and the network has {outputs} outputs, so which "
            "class an output is, is unclear; pass classes=, in the order of the outputs "
            "(train_mask sorts those of its data)"
        )
    view = TaskView(network, _statistics(backbone, network, statistics), len(found))
    return view.accuracy(backbone, to_batches(examples, found, backbone.device))


def training_task(
    backbone: Backbone, data: Any, recipe: Recipe, seed: int, progress: ProgressChoice
) -> tuple[TaskTraining, tuple[Label, ...]]:
    """One task's data, ready to train masks or weights on, and its classes.

    Raises InputError for data that cannot be used.
    """
    examples, classes = training_examples(check_backbone(backbone), data)
    source, phase = to_batches(examples, classes, backbone.device), TrainingPhase.begin(backbone)
    shown = progress_for(progress)
    seed = check_seed(seed)
    return TaskTraining(backbone, source, len(classes), recipe, phase, seed, shown), classes


def weights_under(
    mask: Mapping[str, Tensor], task: TaskTraining, first: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor], FitResult]:
    """The mask's weights, trained from `first`, 0 elsewhere; and a head of the task's own."""
    device = task.backbone.device
    weights = {
        name: value.detach().to(device, copy=True).requires_grad_(True)
        for name, value in first.items()
    }

    def masked() -> tuple[dict[str, Tensor], float]:
        return {name: weight * mask[name] for name, weight in weights.items()}, 0.0

    trained = Trainable(list(weights.values()), masked, lambda: None)
    trained = with_head(trained, task.backbone, task.num_classes)
    result = task.fit(trained)
    _, head = trained.result()
    kept = {name: weight.detach() * mask[name] for name, weight in weights.items()}
    return kept, head, result


def _mask_of(backbone: Backbone, mask: Any) -> dict[str, Tensor]:
    """The mask on the network's device. Raises InputError for that of another network."""
    found = checked_mask(mask)
    MaskBank(backbone.layers).check(found)
    check_origin(mask, backbone.weights)
    return {name: ones.to(backbone.device) for name, ones in found.items()}


def _scored(
    backbone: Backbone, masked: Any, weights: Mapping[str, Tensor] | None
) -> dict[str, Tensor]:
    """The weights that `accuracy` scores. Raises InputError for unclear or foreign ones."""
    trained = getattr(masked, "weights", None)
    if (masked is None and weights is None) or (trained is not None and weights is not None):
        given = "neither" if masked is None else "weights= beside trained weights"
        raise InputError(f"give a mask, or weights=, or a mask to put over weights=; got {given}")
    found = trained if trained is not None else backbone.weights if weights is None else weights
    _check_weights(backbone, found, "weights")
    found = {name: value.to(backbone.device) for name, value in found.items()}
    if masked is None or trained is not None:
        return found
    ones = _mask_of(backbone, masked)
    return {name: value * ones[name] for name, value in found.items()}


def _statistics(backbone: Backbone, weights: Mapping[str, Tensor], given: Any) -> Statistics | None:
    """Norm statistics as given, or measured on data. Raises InputError where they are missing."""
    if not backbone.has_statistics:
        return None
    if given is None:
        raise InputError(
            "the norms of this network keep statistics, which a mask alone does not "
            "have: pass statistics=task.train to measure them there, or give what train_mask or "
            "train_weights returned (those that prune returns belong to its trained weights)"
        )
    own = backbone.initial_statistics()
    if isinstance(given, Mapping) and given.keys() == own.keys():
        for name, value in given.items():
            if not isinstance(value, Tensor) or value.shape != own[name].shape:
                shape = tuple(own[name].shape)
                raise InputError(f"the statistic {name} must be a tensor of shape {shape}")
        return {name: value.to(backbone.device) for name, value in given.items()}
    inputs = some_inputs(checked_examples(backbone, given), MEASURED)
    return remeasured(backbone, weights, inputs, lambda _, mean, variance: (mean, variance))


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _check_weights(backbone: Backbone, weights: Any, name: str) -> None:
    """Raises InputError unless these are floats of every layer's shape, and nothing else."""
    wanted = {layer.name: layer.shape for layer in backbone.layers}
    floats = isinstance(weights, Mapping) and all(map(_is_float, weights.values()))
    if not floats or {key: tuple(value.shape) for key, value in weights.items()} != wanted:
        got = "others" if floats else type(weights).__name__
        raise InputError(
            f"{name} must map the network's layers to weights (floats) of their shapes, got {got}"
        )
