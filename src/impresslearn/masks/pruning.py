"""Masks by iterative magnitude pruning, and the accuracy of any mask on a task.

The paper names pruning as another way to make basis-masks ("Mask generation & edge-popup").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from impresslearn.checks import check_integer, clear_calls
from impresslearn.data import Label, classes_of, to_batches
from impresslearn.errors import InputError
from impresslearn.masks.bank import checked_mask
from impresslearn.masks.edge_popup import top_mask, training_task
from impresslearn.masks.sparsity import Allocation, ones_per_layer
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone, checked_examples
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.training.loop import Recipe, TaskTraining, Trainable, with_head
from impresslearn.training.progress import ProgressChoice

PRUNING_RECIPE = Recipe(optimizer="adam", lr=0.01, schedule="cosine", epochs=1, min_steps=300)


@dataclass(frozen=True)
class PrunedMask:
    """A mask found by pruning, and the weights that it was found with, all by layer name.

    A lottery ticket is the mask over `initial`. The pruned network is the mask over `trained`.

    - `mask`: booleans of the weights' shapes.
    - `initial`: the network's own weights.
    - `trained`: the weights at the end of the last round, 0 where earlier rounds had pruned.
    - `statistics`: norm statistics of the last round, None if the network keeps none.
    - `head`: the last layer trained beside the mask, if every task has its own, else {}.
    - `classes`: the task's classes, in the order of the outputs.
    """

    mask: dict[str, Tensor]
    initial: dict[str, Tensor]
    trained: dict[str, Tensor]
    statistics: Statistics | None = None
    head: dict[str, Tensor] = field(default_factory=dict)
    classes: tuple[Label, ...] = ()


# Gradients are on here, whatever mode the caller is in.
@torch.inference_mode(False)
@clear_calls
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
        trained, head = weights_under(mask, task, initial)
        for layer, count in zip(backbone.layers, ones, strict=True):
            keep = round(layer.numel * (count / layer.numel) ** (number / rounds))
            keep = count if number == rounds else keep
            # Pruned weights rank below every survivor, also below one that trained to zero.
            ranked = torch.where(mask[layer.name], trained[layer.name].abs(), -1.0)
            mask[layer.name] = top_mask(ranked, keep, "score")
    return PrunedMask(mask, initial, trained, task.phase.statistics, head, classes)


def weights_under(
    mask: Mapping[str, Tensor], task: TaskTraining, initial: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The mask's weights, trained from `initial`, 0 elsewhere; and the task's own head."""
    weights = {name: value.clone().requires_grad_(True) for name, value in initial.items()}

    def masked() -> tuple[dict[str, Tensor], float]:
        return {name: weight * mask[name] for name, weight in weights.items()}, 0.0

    trained = Trainable(list(weights.values()), masked, lambda: None)
    trained = with_head(trained, task.backbone, task.num_classes)
    task.fit(trained)
    final, _ = masked()
    return {name: weight.detach() for name, weight in final.items()}, trained.result()[1]


def accuracy(
    backbone: Backbone, masked: Any, data: Any, classes: Sequence[Label] | None = None
) -> float:
    """The accuracy in [0, 1] of a mask over the network's own weights on a labelled task.

    - `masked`: layer name -> booleans, or what `train_mask` and `prune` return, whose head is used
      too.
    - `data`: labelled examples.
    - `classes`: the task's classes in the order of the outputs. Results of training know them; a
      plain mask takes the labels in the data, if there is one for each of the network's outputs.

    Raises InputError for masks that do not fit, for a result of training on another network (its
    `.mask` may be used on any), and where a head, statistics or classes are missing.
    """
    mask = checked_mask(masked, check_backbone(backbone).layers)
    origin, network = getattr(masked, "initial", backbone.weights), {}
    for name, weight in backbone.weights.items():
        if not torch.equal(origin[name].to(weight), weight):
            raise InputError(
                "the mask was made for a network of other weights, by its seed or its init "
                "perhaps; give that network, or .mask to use it here all the same"
            )
        network[name] = weight * mask[name].to(backbone.device)
    head = getattr(masked, "head", {})
    if backbone.own_head is not None and not head:
        raise InputError(
            "each task of this network has its own head, and a mask alone has none: give the "
            'result of train_mask, or make the network with head="shared"'
        )
    examples = checked_examples(backbone, data)
    known = getattr(masked, "classes", ()) if classes is None else tuple(classes)
    order = known or classes_of(examples.labels)
    if not known and len(order) < backbone.num_classes:
        raise InputError(
            f"the data show {len(order)} classes and the network has {backbone.num_classes} "
            "outputs; pass classes= in the order of the outputs (train_mask sorts the labels)"
        )
    # A pruned mask has statistics of its trained weights, which are not scored here.
    statistics = None if isinstance(masked, PrunedMask) else getattr(masked, "statistics", None)
    if backbone.has_statistics and statistics is None:
        raise InputError(
            "the norms of this network keep statistics, which a mask alone does not have: give the "
            'result of train_mask, or make the network with norm="batch"'
        )
    view = TaskView(network | head, statistics, len(order))
    return view.accuracy(backbone, to_batches(examples, order, backbone.device))
