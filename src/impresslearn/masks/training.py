"""Impressions: masks trained with edge-popup on one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from impresslearn.data import BatchSource
from impresslearn.masks.edge_popup import initial_scores, popup, top_mask
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MaskableLayer
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.loop import FitResult, Recipe, fit
from impresslearn.optimisation.objectives import cross_entropy
from impresslearn.optimisation.progress import Progress, silent

POPUP_RECIPE = Recipe(optimizer="adam", lr=0.03, schedule="cosine", epochs=2, min_steps=300)
"""Adam 0.03 with cosine decay: the best found for LeNet-300-100 (docs/decisions.md)."""


@dataclass(frozen=True)
class TrainedMask:
    """A mask (layer name -> booleans), the scores it was cut from, and how the run ended."""

    mask: dict[str, Tensor]
    scores: dict[str, Tensor]
    fit: FitResult


@dataclass(frozen=True)
class PopupScores:
    """Trainable scores for some layers of a network, and how many ones their masks have."""

    layers: tuple[MaskableLayer, ...]
    ones: tuple[int, ...]
    rule: str
    tensors: list[Tensor]

    @classmethod
    def create(
        cls,
        layers: Sequence[MaskableLayer],
        ones: Sequence[int],
        seed: int,
        rule: str = "score",
        device: torch.device | str = "cpu",
    ) -> PopupScores:
        """Fresh scores drawn from `seed`."""
        generator = torch.Generator().manual_seed(seed)
        drawn = initial_scores([layer.shape for layer in layers], generator)
        scores = [score.to(device).requires_grad_(True) for score in drawn]
        return cls(tuple(layers), tuple(ones), rule, scores)

    def weights(self, frozen: dict[str, Tensor]) -> dict[str, Tensor]:
        """Layer name -> W ⊙ mask, straight-through in the scores."""
        return {
            layer.name: popup(score, frozen[layer.name], ones, self.rule)
            for layer, score, ones in zip(self.layers, self.tensors, self.ones, strict=True)
        }

    def masks(self) -> dict[str, Tensor]:
        """Layer name -> booleans."""
        return {
            layer.name: top_mask(score, ones, self.rule)
            for layer, score, ones in zip(self.layers, self.tensors, self.ones, strict=True)
        }


def train_mask(
    backbone: Backbone,
    source: BatchSource,
    num_classes: int,
    ones: Sequence[int],
    recipe: Recipe = POPUP_RECIPE,
    seed: int = 0,
    rule: str = "score",
    phase: TrainingPhase | None = None,
    progress: Progress = silent,
) -> TrainedMask:
    """A mask for one task, with exactly `ones` ones a layer.

    Trains scores on the frozen backbone with cross-entropy over the first `num_classes` logits.
    `seed` draws the scores and the order of the data; norm statistics go to `phase`.
    """
    phase = phase or TrainingPhase.begin(backbone)
    scores = PopupScores.create(backbone.layers, ones, seed, rule, backbone.device)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        weights = scores.weights(backbone.weights)
        logits = phase.forward(backbone, weights, inputs)[:, :num_classes]
        return cross_entropy(logits, targets, recipe.label_smoothing)

    result = fit(scores.tensors, loss, source, recipe, seed, progress)
    kept = {
        layer.name: score.detach()
        for layer, score in zip(scores.layers, scores.tensors, strict=True)
    }
    return TrainedMask(scores.masks(), kept, result)


def train_masks_in_turn(
    backbone: Backbone,
    source: BatchSource,
    num_classes: int,
    ones: Sequence[int],
    recipe: Recipe,
    seeds: Sequence[int],
    rule: str,
    phase: TrainingPhase,
    progress: Progress = silent,
) -> list[TrainedMask]:
    """What `train_mask` gives for each seed; norm statistics of the first go to `phase`.

    Where all tasks share them, the other masks are trained on those that the first one gathered.
    """
    trained, own = [], phase
    for seed in seeds:
        how = (ones, recipe, seed, rule, own, progress)
        trained.append(train_mask(backbone, source, num_classes, *how))
        own = TrainingPhase.begin(backbone, phase.statistics)
    return trained
