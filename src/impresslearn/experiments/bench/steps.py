"""One optimisation step of each kind, on one network and one batch, ready to be called.

Ours and the references that the bar names: the plain step of the same network, the loop over float
masks and the dense stacked masks that the field's code uses, and edge-popup with a sort.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.coefficients.mixing import mixed_weights, uniform_coefficients
from impresslearn.kernels import unpack
from impresslearn.masks import PopupScores
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.objectives import cross_entropy

Step = Callable[[], object]
LR = 1e-5
"""So small that hundreds of repeats leave the numbers where they are."""


def _adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=LR, fused=True)


def _step(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Step:
    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return run


def plain_step(backbone: Backbone, inputs: Tensor, targets: Tensor) -> Step:
    """Forward, backward and fused Adam on all weights of the same network, as anyone trains it."""
    module = copy.deepcopy(backbone.module).train()
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    flat = inputs.flatten(1) if len(backbone.input_shape or ()) == 1 else inputs
    optimizer = _adam(list(module.parameters()))
    return _step(optimizer, lambda: F.cross_entropy(module(flat), targets))


def coefficient_step(backbone: Backbone, bank: MaskBank, inputs: Tensor, targets: Tensor) -> Step:
    """Ours: what `learn_coefficients` does at every step."""
    coefficients = uniform_coefficients(backbone.layers, len(bank), device=backbone.device)
    parameters = [alpha.requires_grad_(True) for alpha in coefficients.alpha]
    phase = TrainingPhase.begin(backbone)

    def loss() -> Tensor:
        weights = mixed_weights(bank, backbone.weights, coefficients)
        return cross_entropy(phase.forward(backbone, weights, inputs), targets)

    return _step(_adam(parameters), loss)


def loop_step(backbone: Backbone, bank: MaskBank, inputs: Tensor, targets: Tensor) -> Step:
    """The field's way: a Python loop over float masks for every layer."""
    masks = [_floats(bank, number) for number in range(len(bank.layers))]
    alphas = [torch.full((len(bank),), 1 / len(bank), requires_grad=True) for _ in masks]
    phase = TrainingPhase.begin(backbone)

    def loss() -> Tensor:
        weights = {}
        for layer, stack, alpha in zip(bank.layers, masks, alphas, strict=True):
            total = torch.zeros(layer.shape)
            for mask, coefficient in zip(stack, alpha, strict=True):
                total = total + coefficient * mask
            weights[layer.name] = backbone.weights[layer.name] * total
        return cross_entropy(phase.forward(backbone, weights, inputs), targets)

    return _step(_adam(alphas), loss)


def dense_step(backbone: Backbone, bank: MaskBank, inputs: Tensor, targets: Tensor) -> Step:
    """A matrix-vector product over the stacked float masks of every layer."""
    masks = [_floats(bank, number).flatten(1) for number in range(len(bank.layers))]
    alphas = [torch.full((len(bank),), 1 / len(bank), requires_grad=True) for _ in masks]
    phase = TrainingPhase.begin(backbone)

    def loss() -> Tensor:
        weights = {
            layer.name: backbone.weights[layer.name] * (alpha @ stack).view(layer.shape)
            for layer, stack, alpha in zip(bank.layers, masks, alphas, strict=True)
        }
        return cross_entropy(phase.forward(backbone, weights, inputs), targets)

    return _step(_adam(alphas), loss)


def popup_step(backbone: Backbone, inputs: Tensor, targets: Tensor) -> Step:
    """Ours: what `train_mask` does at every step."""
    ones = ones_per_layer(backbone.layers, 0.9, "erdos_renyi")
    scores = PopupScores.create(backbone.layers, ones, seed=0)
    phase = TrainingPhase.begin(backbone)

    def loss() -> Tensor:
        return cross_entropy(
            phase.forward(backbone, scores.weights(backbone.weights), inputs), targets
        )

    return _step(_adam(scores.tensors), loss)


def sorted_popup_step(backbone: Backbone, inputs: Tensor, targets: Tensor) -> Step:
    """Edge-popup as its authors wrote it: a full sort of the scores for every layer and step."""
    ones = ones_per_layer(backbone.layers, 0.9, "erdos_renyi")
    scores = PopupScores.create(backbone.layers, ones, seed=0).tensors
    phase = TrainingPhase.begin(backbone)

    def loss() -> Tensor:
        weights = {}
        for layer, score, count in zip(backbone.layers, scores, ones, strict=True):
            ranked = score.abs()
            mask = torch.zeros(layer.numel)
            mask[ranked.detach().flatten().sort().indices[layer.numel - count :]] = 1
            straight = mask.view(layer.shape) - ranked.detach() + ranked
            weights[layer.name] = backbone.weights[layer.name] * straight
        return cross_entropy(phase.forward(backbone, weights, inputs), targets)

    return _step(_adam(scores), loss)


def _floats(bank: MaskBank, number: int) -> Tensor:
    layer = bank.layers[number]
    return unpack(bank.bits(number), layer.fan_in).float().reshape(len(bank), *layer.shape)
