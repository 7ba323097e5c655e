"""The sanity check X: a mask trained for one task, applied alone to another."""

from __future__ import annotations

from typing import Any

import torch

from impresslearn.coefficients.mixing import mixed_weights, one_hot_coefficients
from impresslearn.data import classes_of, to_batches
from impresslearn.learner import ImpressLearner
from impresslearn.networks.inputs import checked_examples
from impresslearn.networks.prediction import TaskView


def single_mask_accuracy(learner: ImpressLearner, mask: str, data: Any) -> float:
    """The accuracy in [0, 1] on a labelled task of one mask of the bank, nothing learned.

    The task's classes are read in sorted order, as its own training would have. Norm statistics
    are those of the mask's own task where it has any, else those that a task starts from.
    """
    examples = checked_examples(learner.backbone, data, learner.settings.preprocessing)
    classes = classes_of(examples.labels)
    backbone, bank = learner.backbone, learner.bank_
    position = bank.index(mask)
    hot = one_hot_coefficients(bank.layers, position, position + 1, backbone.device)
    with torch.no_grad():
        weights = mixed_weights(bank, backbone.weights, hot)
    own = mask in learner.tasks_
    statistics = learner.statistics_of(mask) if own else learner.shared_statistics_
    view = TaskView(weights, statistics, len(classes))
    return view.accuracy(backbone, to_batches(examples, classes, backbone.device))
