"""Warns of tasks that were not learned, whose own examples are right as often as by guessing.

What a price on bits that is too high, too few steps or inputs of an odd scale end in.
"""

from __future__ import annotations

import numpy as np

from impresslearn.coefficients.mixing import Coefficients
from impresslearn.data import to_batches
from impresslearn.errors import NotLearnedWarning, warn_caller
from impresslearn.networks.inputs import LOOKED_AT, TrainingData, spread_places
from impresslearn.state.settings import LearnerSettings
from impresslearn.state.state import LearnerState
from impresslearn.tables import percent
from impresslearn.training.loop import FitResult

GUESSING = 0.98
"""Of the loss of guessing: a training that ends above may have learned nothing."""


def warn_of_guessing(
    state: LearnerState,
    settings: LearnerSettings,
    name: str,
    data: TrainingData,
    fit: FitResult | None,
    numbers: Coefficients | None = None,
) -> None:
    """Warns where a kept task does no better on its own examples than the commonest class.

    These are looked at, `LOOKED_AT` at most, where the loss is no better than that of guessing, or
    is not known (fit: None) and all numbers are zero.
    """
    examples, classes = data
    _, counts = np.unique(examples.labels, return_counts=True)
    shares = counts / counts.sum()
    if fit is not None and fit.final_loss < -GUESSING * float(shares @ np.log(shares)):
        return
    if fit is None and numbers is not None and any(each.any() for each in numbers.tensors()):
        return
    places = spread_places(len(examples), LOOKED_AT)
    source = to_batches(examples.subset(places), classes, state.backbone.device)
    view = state.view(state.tasks.learned(name), displace=False)
    right, guessed = view.accuracy(state.backbone, source), float(shares.max())
    if right < guessed + 2 * (guessed * (1 - guessed) / len(places)) ** 0.5:
        priced = settings.precision == "coded" and settings.bit_price > 0
        hint = "a lower bit_price" if priced else "more steps, or another learning rate,"
        warn_caller(
            f"{name!r} was not learned: {percent(right)} of its own examples are right, and the "
            f"commonest class is {percent(guessed)} of them; {hint} may help",
            NotLearnedWarning,
        )
