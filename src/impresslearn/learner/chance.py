"""Warns when a task did not learn: its own examples are classified no better than by chance.

The usual reasons are too high a price on bits, too few steps, or inputs of an odd scale.
"""

from __future__ import annotations

import numpy as np

from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.data import to_batches
from impresslearn.errors import NotLearnedWarning, warn_caller
from impresslearn.learner.settings import LearnerSettings
from impresslearn.networks.inputs import LOOKED_AT, TrainingData, spread_places
from impresslearn.store import Store
from impresslearn.tables import percent
from impresslearn.training.loop import FitResult

CHANCE_LOSS_RATIO = 0.98
"""A task whose final loss is below this share of the loss by chance has learned something."""


def warn_if_at_chance(
    store: Store,
    settings: LearnerSettings,
    name: str,
    data: TrainingData,
    fit: FitResult | None,
    coefficients: Coefficients | None = None,
) -> None:
    """Warns if a learned task is no more accurate on its own examples than the commonest class.

    - fit: of the training; None for a readout, which is checked if all coefficients are zero.
    """
    examples, classes = data
    _, counts = np.unique(examples.labels, return_counts=True)
    shares = counts / counts.sum()
    chance_loss = -float(shares @ np.log(shares))  # nats, of always predicting the shares
    if fit is not None and fit.final_loss < CHANCE_LOSS_RATIO * chance_loss:
        return
    tensors = [] if fit or coefficients is None else coefficients.tensors()
    if any(tensor.any() for tensor in tensors):
        return
    # Only now is it worth predicting, and some of the examples are enough.
    places = spread_places(len(examples), LOOKED_AT)
    source = to_batches(examples.subset(places), classes, store.backbone.device)
    view = store.view(store.tasks.learned(name), evict_others=False)
    accuracy = view.accuracy(store.backbone, source)
    chance = float(shares.max())
    two_errors = 2 * (chance * (1 - chance) / len(places)) ** 0.5
    if accuracy < chance + two_errors:
        has_price = settings.precision == "coded" and settings.bit_price > 0
        hint = "lower the bit_price" if has_price else "try more steps or another learning rate"
        warn_caller(
            f"{name!r} was not learned: {percent(accuracy)} of its own examples are classified "
            f"correctly, and the commonest class makes up {percent(chance)} of them; {hint}",
            NotLearnedWarning,
        )
