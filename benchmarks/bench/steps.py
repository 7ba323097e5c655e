"""One optimisation step of each kind, on one network and one batch, ready to be called.

Ours and the references: the plain step of the same network, the loop over float masks and the dense
stacked masks that the field's code uses, and edge-popup with a sort.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.coefficients.masks import mixed_weights, uniform_coefficients
from impresslearn.kernels import unpack
from impresslearn.masks import PopupScores
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase

Step = Callable[[], object]
LR = 1e-5
"""So small that hundreds of repeats leave the numbers where they are."""


def plain_step(backbone: Backbone, inputs: Tensor, targets: Tensor) -> Step:
    """Forward, backward and fused Adam on all weights of the same network, as anyone trains it."""
    module = copy.deepcopy(backbone.module).train()
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    flat = inputs.flatten(1) if len(backbone.input_shape or ()) == 1 else inputs
    return _step(module.parameters(), lambda: F.cross_entropy(module(flat), targets))


def coefficient_step(backbone: Backbone, bank: MaskBank, inputs: Tensor, targets: Tensor) -> Step:
    """Ours: what learning coefficients does at every step."""
    coefficients = uniform_coefficients(backbone.layers, len(bank), device=backbone.device)
    parameters = [alpha.requires_grad_(True) for alpha in coefficients.alpha]

    def weights() -> dict[str, Tensor]:
        return mixed_weights(bank, backbone.weights, coefficients)

    return _step_on(backbone, parameters, weights, inputs, targets)


def loop_step(backbone: Backbone, bank: MaskBank, inputs: Tensor, targets: Tensor) -> Step:
    """The field's way: a Python loop over float masks for every layer."""
    masks, alphas = _float_masks(bank)

    def weights() -> dict[str, Tensor]:
        found = {}
        for layer, stack, alpha in zip(bank.layers, masks, alphas, strict=True):
            total = torch.zeros(layer.shape)
            for mask, coefficient in zip(stack, alpha, strict=True):
                total = total + coefficient * mask
            found[layer.name] = backbone.weights[layer.name] * total
        return found

    return _step_on(backbone, alphas, weights, inputs, targets)


def dense_step(backbone: Backbone, bank: MaskBank, inputs: Tensor, targets: Tensor) -> Step:
    """A matrix-vector product over the stacked float masks of every layer."""
    masks, alphas = _float_masks(bank)
    stacks = [mask.flatten(1) for mask in masks]

    def weights() -> dict[str, Tensor]:
        return {
            layer.name: backbone.weights[layer.name] * (alpha @ stack).view(layer.shape)
            for layer, stack, alpha in zip(bank.layers, stacks, alphas, strict=True)
        }

    return _step_on(backbone, alphas, weights, inputs, targets)


def popup_step(backbone: Backbone, inputs: Tensor, targets: Tensor) -> Step:
    """Ours: what `train_mask` does at every step."""
    scores = _popup_scores(backbone)
    weights = partial(scores.weights, backbone.weights)
    return _step_on(backbone, scores.tensors, weights, inputs, targets)


def sorted_popup_step(backbone: Backbone, inputs: Tensor, targets: Tensor) -> Step:
    """Edge-popup as its authors wrote it: a full sort of the scores for every layer and step."""
    scores, ones = _popup_scores(backbone).tensors, _ones(backbone)

    def weights() -> dict[str, Tensor]:
        found = {}
        for layer, score, count in zip(backbone.layers, scores, ones, strict=True):
            ranked = score.abs()
            mask = torch.zeros(layer.numel)
            mask[ranked.detach().flatten().sort().indices[layer.numel - count :]] = 1
            straight = mask.view(layer.shape) - ranked.detach() + ranked
            found[layer.name] = backbone.weights[layer.name] * straight
        return found

    return _step_on(backbone, scores, weights, inputs, targets)


def _step_on(
    backbone: Backbone,
    parameters: list[Tensor],
    weights: Callable[[], dict[str, Tensor]],
    inputs: Tensor,
    targets: Tensor,
) -> Step:
    """Through the frozen network with the weights that the parameters give."""
    phase = TrainingPhase.begin(backbone)
    return _step(
        parameters, lambda: F.cross_entropy(phase.forward(backbone, weights(), inputs), targets)
    )


def _step(parameters: Iterable[Tensor], loss: Callable[[], Tensor]) -> Step:
    optimizer = torch.optim.Adam(list(parameters), lr=LR, fused=True)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return run


def _float_masks(bank: MaskBank) -> tuple[list[Tensor], list[Tensor]]:
    """Each layer's masks as floats, and a coefficient a mask."""
    masks = [
        unpack(bank.bits(number), layer.fan_in).float().reshape(len(bank), *layer.shape)
        for number, layer in enumerate(bank.layers)
    ]
    return masks, [torch.full((len(bank),), 1 / len(bank), requires_grad=True) for _ in masks]


def _ones(backbone: Backbone) -> tuple[int, ...]:
    return tuple(ones_per_layer(backbone.layers, 0.9, "erdos_renyi"))


def _popup_scores(backbone: Backbone) -> PopupScores:
    return PopupScores.create(backbone.layers, _ones(backbone), seed=0, score_rule="magnitude")
