"""Learning a new task: its coefficients over the masks of a bank (eqs. 1 and 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from impresslearn.coefficients.mixing import Coefficients, CoefficientSpec, mixed_weights
from impresslearn.coefficients.parameters import trainable_coefficients
from impresslearn.data import BatchSource
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.loop import FitResult, Recipe, TaskTraining, Trainable
from impresslearn.optimisation.objectives import unit_norm_penalty
from impresslearn.optimisation.progress import Progress, silent

COEFFICIENT_RECIPE = Recipe(
    optimizer="adam", lr=0.02, schedule="cosine", epochs=3, min_steps=300, batch_fraction=1 / 8
)
"""Adam 0.02 with cosine decay, at least 300 steps of small batches (docs/decisions.md)."""


@dataclass(frozen=True)
class CoefficientTraining:
    """How coefficients are learned: which numbers, the optimisation, and λ of eq. 2 (`penalty`)."""

    spec: CoefficientSpec = field(default_factory=CoefficientSpec)
    recipe: Recipe = COEFFICIENT_RECIPE
    penalty: float = 0.0


def learn_coefficients(
    backbone: Backbone,
    bank: MaskBank,
    source: BatchSource,
    num_classes: int,
    training: CoefficientTraining | None = None,
    *,
    seed: int = 0,
    phase: TrainingPhase | None = None,
    progress: Progress = silent,
) -> tuple[Coefficients, FitResult]:
    """The coefficients that minimise cross-entropy plus λ times the penalty of eq. 2.

    Starts from equal α over all masks of the bank. With `bit_price`, coefficients are quantised in
    training and their code length is part of the loss. Norm statistics go to `phase`. Raises
    InputError for an empty bank and TrainingError when the loss leaves the finite numbers.
    """
    training = training or CoefficientTraining()
    phase = phase or TrainingPhase.begin(backbone)
    trained = trainable_numbers(backbone, bank, training, len(source))
    task = TaskTraining(backbone, source, num_classes, training.recipe, phase, seed, progress)
    result = task.fit(trained)
    return trained.result(), result


def trainable_numbers(
    backbone: Backbone, bank: MaskBank, training: CoefficientTraining, examples: int
) -> Trainable:
    """Equal coefficients over all masks of the bank, to be trained on so many examples.

    With `bit_price` their code length costs, with `penalty` λ times the penalty of eq. 2.
    """
    trained = trainable_coefficients(bank, backbone.weights, training.spec)

    def weights() -> tuple[dict[str, Tensor], Tensor | float]:
        coefficients = trained.coefficients()
        cost: Tensor | float = 0.0
        if training.spec.bit_price:  # in nats an example
            cost = trained.bits() * (training.spec.bit_price * math.log(2) / examples)
        if training.penalty:
            cost = cost + training.penalty * unit_norm_penalty(coefficients.alpha)
        return mixed_weights(bank, backbone.weights, coefficients), cost

    return Trainable(trained.parameters, weights, trained.result)
