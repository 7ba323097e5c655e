"""What a task showed on its own training inputs, by which inputs of no task are told."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from impresslearn.data import Inputs
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView
from impresslearn.optimisation.objectives import entropies

PROFILED_INPUTS = 512


@dataclass(frozen=True)
class EntropyProfile:
    """Mean prediction entropy, as a fraction of log K, on a task's own inputs and on foreign ones.

    Foreign inputs are the task's own with their features shuffled. Kept as two float16 (4 bytes).
    """

    own: float
    foreign: float

    nbytes = 4


def entropy_profile(backbone: Backbone, view: TaskView, inputs: Tensor | Inputs) -> EntropyProfile:
    """A task's mean entropy on its own inputs, and on the same with shuffled features."""
    own = inputs[:PROFILED_INPUTS]
    foreign = own.map(_shuffled) if isinstance(own, Inputs) else _shuffled(own)
    means = [entropies(view.outputs(backbone, each)).mean() for each in (own, foreign)]
    most = largest_entropy(view.num_classes)
    return EntropyProfile(*(float((mean / most).half()) for mean in means))


def largest_entropy(num_classes: int) -> float:
    """log K, the largest entropy of a prediction; that of two classes for a single one."""
    return math.log(max(2, num_classes))


def _shuffled(inputs: Tensor) -> Tensor:
    """Inputs (n, ...) with the features of all in one other order."""
    features = inputs.flatten(1)
    order = torch.randperm(features.shape[1], generator=torch.Generator().manual_seed(0))
    return features[:, order.to(features.device)].reshape(inputs.shape)
