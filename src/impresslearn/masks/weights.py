"""Weights under a mask: pruned, trained again such as a lottery ticket's, and scored on a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from impresslearn.checks import check_integer
from impresslearn.data import Label, classes_of, to_batches
from impresslearn.errors import InputError
from impresslearn.masks.arithmetic import check_origin, checked_mask
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.edge_popup import top_mask, training_task
from impresslearn.masks.sparsity import Allocation, ones_per_layer
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone, checked_examples, some_inputs
from impresslearn.networks.prediction import Statistics, TaskView, remeasured
from impresslearn.training.loop import FitResult, Recipe, TaskTraining, Trainable, with_head
from impresslearn.training.progress import ProgressChoice

MEASURED = 1000
"""Inputs on which norm statistics of a plain mask are measured."""
PRUNING_RECIPE = Recipe(optimizer="adam", lr=0.01, schedule="cosine", epochs=1, min_steps=300)


@dataclass(frozen=True)
class PrunedMask:
    """A mask found by pruning, and the weights that it was found with, all by layer name.

    A lottery ticket is the mask over `initial`. The pruned network is the mask over `trained`; it
    was not trained further since it was cut, `train_weights` does that.

    - `mask`: booleans of the weights' shapes.
    - `initial`: the network's own weights.
    - `trained`: the weights at the end of the last round, 0 where earlier rounds had pruned.
    - `statistics`: norm statistics of the last round, None if the network keeps none.
    - `head`: the last layer trained beside, if every task has its own, else {}.
    - `classes`: the task's classes, in the order of the outputs.
    """

    mask: dict[str, Tensor]
    initial: dict[str, Tensor]
    trained: dict[str, Tensor]
    statistics: Statistics | None = None
    head: dict[str, Tensor] = field(default_factory=dict)
    classes: tuple[Label, ...] = ()


@dataclass(frozen=True)
class TrainedWeights:
    """Weights trained under a mask, and how the run ended.

    - `weights`: layer name -> floats, 0 outside the mask.
    - `fit`: how the run ended.
    - `statistics`, `head`, `classes`: as of `PrunedMask`.
    """

    weights: dict[str, Tensor]
    fit: FitResult
    statistics: Statistics | None = None
    head: dict[str, Tensor] = field(default_factory=dict)
    classes: tuple[Label, ...] = ()


def prune(
    backbone: Backbone,
    data: Any,
    *,
    sparsity: float = 0.9,
    allocation: Allocation = "erdos_renyi",
    rounds: int = 4,
    recipe: Recipe = PRUNING_RECIPE,
    seed: int = 0,
    progress: ProgressChoice = False,
) -> PrunedMask:
    """A mask for one task by iterative magnitude pruning; the network itself stays as it is.

    As lottery tickets are found (Frankle & Carbin 2019): each round trains the weights that are
    left, from their first values, and keeps the same share of them.

    - `rounds`: after the last one, `sparsity` is reached.
    - `recipe`: how weights are trained in each round.
    - the other arguments as for `train_mask`.

    Raises the errors of `train_mask`.
    """
    task, classes = training_task(backbone, data, recipe, seed, progress)
    ones = ones_per_layer(backbone.layers, sparsity, allocation)
    rounds = check_integer("rounds", rounds, 1)
    initial = {name: value.clone() for name, value in backbone.weights.items()}
    mask = {name: torch.ones_like(value, dtype=torch.bool) for name, value in initial.items()}
    trained, head = initial, dict[str, Tensor]()
    for number in range(1, rounds + 1):
        trained, head, _ = weights_under(mask, task, initial)
        for layer, count in zip(backbone.layers, ones, strict=True):
            keep = round(layer.numel * (count / layer.numel) ** (number / rounds))
            keep = count if number == rounds else keep
            # Pruned weights rank below every survivor, also below one that trained to zero.
            ranked = torch.where(mask[layer.name], trained[layer.name].abs(), -1.0)
            mask[layer.name] = top_mask(ranked, keep, "score")
    return PrunedMask(mask, initial, trained, task.phase.statistics, head, classes)


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

    - `mask`: layer name -> booleans, or an object that has a mask, such as a `PrunedMask`; None
      keeps all weights, which is the dense network beside a ticket.
    - `data`: as of `train_mask`.
    - `initial`: layer name -> the weights to start from, or what `train_weights` returned; by
      default the network's own, a lottery ticket (Frankle & Carbin 2019).
    - `recipe`: how weights are trained.
    - `seed`: the order of the data.
    - `progress`: whether to show a progress bar.

    Raises InputError for other layers, for a `TrainedMask` or `PrunedMask` of another network (its
    `.mask` may be used on any), and for data that cannot be used.
    """
    task, classes = training_task(backbone, data, recipe, seed, progress)
    start = getattr(initial, "weights", initial)
    start = backbone.weights if start is None else start
    _check_weights(backbone, start, "initial")
    if mask is None:
        mask = {name: torch.ones_like(w, dtype=torch.bool) for name, w in backbone.weights.items()}
    weights, head, result = weights_under(_mask_of(backbone, mask), task, start)
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

    - `masked`: layer name -> booleans, or what `train_mask`, `prune` (its mask over the untrained
      weights) and `train_weights` return, whose head is used too; None with `weights`.
    - `data`: labelled examples.
    - `classes`: the task's classes in the order of the outputs. Results of training know them; a
      plain mask takes the labels in the data, if there is one for each of the network's outputs.
    - `weights`: layer name -> floats to put the mask over in place of the network's own, or to
      score as they are if `masked` is None, such as the result of `dense_weights`.
    - `statistics`: norm statistics by buffer name, or data to measure them on. Results of training
      have their own.

    Raises InputError for weights or masks that do not fit, for a result of training on another
    network (its `.mask` may be used on any), and where a head, statistics or classes are missing.
    """
    check_backbone(backbone)
    scored = _scored(backbone, masked, weights)
    head = getattr(masked, "head", {})
    if backbone.own_head is not None and not head:
        raise InputError(
            "each task of this network has its own head, and a mask alone has none: give what "
            'train_mask returned, or make the network with head="shared"'
        )
    network = {**scored, **head}
    # Statistics go with the weights they were gathered under: `trained` ones, where there are such.
    if statistics is None and weights is getattr(masked, "trained", None):
        statistics = getattr(masked, "statistics", None)
    examples = checked_examples(backbone, data)
    known = getattr(masked, "classes", ()) if classes is None else tuple(classes)
    order = known or classes_of(examples.labels)
    if not known and len(order) < backbone.num_classes:
        raise InputError(
            f"the data show {len(order)} classes and the network has {backbone.num_classes} "
            "outputs, so which class an output is, is unclear; pass classes=, in the order of the "
            "outputs (train_mask sorts the labels)"
        )
    view = TaskView(network, _statistics(backbone, network, statistics), len(order))
    return view.accuracy(backbone, to_batches(examples, order, backbone.device))


def weights_under(
    mask: Mapping[str, Tensor], task: TaskTraining, initial: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor], FitResult]:
    """The mask's weights, trained from `initial`, 0 elsewhere; and a head of the task's own."""
    weights = {}
    for name, value in initial.items():
        weights[name] = value.detach().to(task.backbone.device, copy=True).requires_grad_(True)

    def masked() -> tuple[dict[str, Tensor], float]:
        return {name: weight * mask[name] for name, weight in weights.items()}, 0.0

    trained = Trainable(list(weights.values()), masked, lambda: None)
    trained = with_head(trained, task.backbone, task.num_classes)
    result = task.fit(trained)
    _, head = trained.result()
    final = {name: weight.detach() * mask[name] for name, weight in weights.items()}
    return final, head, result


def _mask_of(backbone: Backbone, mask: Any) -> dict[str, Tensor]:
    """The mask on the network's device. Raises InputError for the mask of another network."""
    checked = checked_mask(mask)
    MaskBank(backbone.layers).check(checked)
    check_origin(mask, backbone.weights)
    return {name: ones.to(backbone.device) for name, ones in checked.items()}


def _scored(
    backbone: Backbone, masked: Any, weights: Mapping[str, Tensor] | None
) -> dict[str, Tensor]:
    """The weights that `accuracy` scores."""
    trained = getattr(masked, "weights", None)
    if (masked is None and weights is None) or (trained is not None and weights is not None):
        got = "neither" if masked is None else "weights= beside trained weights"
        raise InputError(f"give a mask, or weights=, or a mask to put over weights=; got {got}")
    if trained is None:
        trained = backbone.weights if weights is None else weights
    else:
        masked = None
    _check_weights(backbone, trained, "weights")
    scored = {name: value.to(backbone.device) for name, value in trained.items()}
    if masked is None:
        return scored
    ones = _mask_of(backbone, masked)
    return {name: value * ones[name] for name, value in scored.items()}


def _statistics(
    backbone: Backbone, weights: Mapping[str, Tensor], statistics: Any
) -> Statistics | None:
    """The statistics themselves, or measured on data. Raises InputError if they are missing."""
    if not backbone.has_statistics:
        return None
    if statistics is None:
        raise InputError(
            "the norms of this network keep statistics, which a mask alone does not "
            "have: pass statistics=task.train to measure them there, or give what train_mask or "
            "train_weights returned (those that prune returns belong to its trained weights)"
        )
    initial = backbone.initial_statistics()
    if not isinstance(statistics, Mapping) or statistics.keys() != initial.keys():
        inputs = some_inputs(checked_examples(backbone, statistics), MEASURED)
        return remeasured(backbone, weights, inputs, lambda _, mean, variance: (mean, variance))
    for name, value in statistics.items():
        if not isinstance(value, Tensor) or value.shape != initial[name].shape:
            shape = tuple(initial[name].shape)
            raise InputError(f"the statistic {name} must be a tensor of shape {shape}")
    return {name: value.to(backbone.device) for name, value in statistics.items()}


def _check_weights(backbone: Backbone, weights: Any, name: str) -> None:
    """Raises InputError unless these are floats of every layer's shape, and nothing else."""
    shapes = {}
    if isinstance(weights, Mapping):
        for layer, value in weights.items():
            is_float = isinstance(value, Tensor) and value.is_floating_point()
            shapes[layer] = tuple(value.shape) if is_float else None
    if shapes != {layer.name: layer.shape for layer in backbone.layers}:
        raise InputError(
            f"{name} must map the network's layers to weights (floats) of their shapes, got "
            f"{type(weights).__name__} of {shapes or 'nothing'}"
        )
