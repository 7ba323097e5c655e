"""Masks trained on one task: by edge-popup, or by pruning the trained network.

Pruning is iterative, by magnitude (Frankle & Carbin 2019): the whole network is trained, the
smallest weights are pruned, the survivors go back to their first values, and so on until the asked
number of ones is left. Either mask is then applied to the frozen, untrained network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from impresslearn.checks import check_integer
from impresslearn.data import Label
from impresslearn.masks.edge_popup import PopupScores, ScoreRule, top_mask
from impresslearn.masks.sparsity import Allocation, ones_per_layer
from impresslearn.masks.weights import PRUNING_RECIPE, training_task, weights_under
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics
from impresslearn.training.loop import FitResult, Recipe, Trainable, with_head
from impresslearn.training.progress import ProgressChoice

POPUP_RECIPE = Recipe(optimizer="adam", lr=0.03, schedule="cosine", epochs=2, min_steps=300)
"""Adam 0.03 with cosine decay: the best found for LeNet-300-100 (docs/decisions.md)."""


@dataclass(frozen=True)
class TrainedMask:
    """A mask (layer name -> booleans), the scores it was cut from, and how the run ended.

    initial: the network's own weights, by layer name; statistics: the norm statistics gathered in
    training, None where the network keeps none. head: that which was trained beside, by parameter
    name, where tasks have heads of their own. classes: the task's, in the order of the outputs.
    """

    mask: dict[str, Tensor]
    scores: dict[str, Tensor]
    initial: dict[str, Tensor]
    fit: FitResult
    statistics: Statistics | None = None
    head: dict[str, Tensor] = field(default_factory=dict)
    classes: tuple[Label, ...] = ()


@dataclass(frozen=True)
class PrunedMask:
    """A mask found by pruning, and the weights that it was found with, all by layer name.

    initial: the network's own weights; trained: those at the end of the last round, 0 where earlier
    ones had pruned. A lottery ticket is the mask over `initial`, the pruned network the mask over
    `trained`, not trained further since it was cut: `train_weights` does that. statistics: the
    norm statistics of the last round, None where the network keeps none. head, classes: as of
    `TrainedMask`.
    """

    mask: dict[str, Tensor]
    initial: dict[str, Tensor]
    trained: dict[str, Tensor]
    statistics: Statistics | None = None
    head: dict[str, Tensor] = field(default_factory=dict)
    classes: tuple[Label, ...] = ()


def train_mask(
    backbone: Backbone,
    data: Any,
    *,
    sparsity: float = 0.9,
    allocation: Allocation = "erdos_renyi",
    score_rule: ScoreRule = "magnitude",
    recipe: Recipe = POPUP_RECIPE,
    seed: int = 0,
    progress: ProgressChoice = False,
) -> TrainedMask:
    """A mask for one task, trained with edge-popup on the frozen network.

    As Ramanujan et al. 2020, "What's hidden in a randomly weighted neural network?". data: labelled
    examples, such as (X, y), in any form that a learner takes. sparsity: the share of zeros;
    allocation: how it spreads over layers; score_rule: whether weights are ranked by their "score"
    or its "magnitude". recipe: how scores are optimised. seed: draws the scores and the order of
    the data. Raises InputError for data and settings that cannot be used, TrainingError for a loss
    that is no finite number.
    """
    task, classes = training_task(backbone, data, recipe, seed, progress)
    ones = ones_per_layer(backbone.layers, sparsity, allocation)
    scores = PopupScores.create(backbone.layers, ones, task.seed, score_rule, backbone.device)
    trained = with_head(trainable_scores(scores, backbone), backbone, task.num_classes)
    result = task.fit(trained)
    mask, head = trained.result()
    kept = dict(zip(backbone.weights, (score.detach() for score in scores.tensors), strict=True))
    initial = dict(backbone.weights)
    return TrainedMask(mask, kept, initial, result, task.phase.statistics, head, classes)


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

    As lottery tickets are found (Frankle & Carbin 2019): each of the `rounds` trains the weights
    that are left, from their first values and with `recipe`, and keeps the same share of them, so
    that the last one ends at `sparsity`. The other settings and the errors are those of
    `train_mask`.
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


def trainable_scores(scores: PopupScores, backbone: Backbone) -> Trainable:
    """Popup scores and the masked weights that they make; the result is the mask."""
    return Trainable(scores.tensors, lambda: (scores.weights(backbone.weights), 0.0), scores.masks)
