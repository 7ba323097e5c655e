"""Learning a new task: its coefficients over the masks of a bank (eqs. 1 and 2)."""

from __future__ import annotations

from torch import Tensor

from impresslearn.coefficients.mixing import Coefficients, CoefficientSpec, mixed_weights
from impresslearn.coefficients.parameters import Unknowns, price_of_bits, unknowns
from impresslearn.data import BatchSource
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.loop import FitResult, Recipe, fit
from impresslearn.optimisation.objectives import cross_entropy, unit_norm_penalty
from impresslearn.optimisation.progress import Progress, silent

COEFFICIENT_RECIPE = Recipe(
    optimizer="adam", lr=0.02, schedule="cosine", epochs=3, min_steps=300, batch_fraction=1 / 8
)
"""Adam 0.02 with cosine decay, at least 300 steps of small batches (docs/decisions.md)."""


def learn_coefficients(
    backbone: Backbone,
    bank: MaskBank,
    source: BatchSource,
    num_classes: int,
    spec: CoefficientSpec | None = None,
    recipe: Recipe = COEFFICIENT_RECIPE,
    penalty: float = 0.0,
    seed: int = 0,
    phase: TrainingPhase | None = None,
    progress: Progress = silent,
) -> tuple[Coefficients, FitResult]:
    """The coefficients that minimise cross-entropy plus λ times the penalty of eq. 2.

    Starts from equal α over all masks of the bank (`unknowns`); the backbone and the bank are not
    touched. Where the spec gives bits a price, coefficients lie on grids and bits are part of the
    loss.
    `penalty` is λ; norm statistics go to `phase`. Raises InputError for an empty bank and
    TrainingError when the loss leaves the finite numbers.
    """
    phase = phase or TrainingPhase.begin(backbone)
    unknown = unknowns(bank, backbone.weights, spec)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        weights, price = priced_weights(backbone, bank, unknown, spec, penalty, len(source))
        logits = phase.forward(backbone, weights, inputs)[:, :num_classes]
        return cross_entropy(logits, targets, recipe.label_smoothing) + price

    result = fit(unknown.parameters, loss, source, recipe, seed, progress)
    return unknown.result(), result


def priced_weights(
    backbone: Backbone,
    bank: MaskBank,
    unknown: Unknowns,
    spec: CoefficientSpec | None,
    penalty: float,
    examples: int,
) -> tuple[dict[str, Tensor], Tensor | float]:
    """The weights that coefficients make, and what these cost beside the mean cross-entropy."""
    coefficients = unknown.coefficients()
    price = price_of_bits(unknown, spec, examples)
    if penalty:
        price = price + penalty * unit_norm_penalty(coefficients.alpha)
    return mixed_weights(bank, backbone.weights, coefficients), price
