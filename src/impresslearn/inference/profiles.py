"""What a task showed on its own training inputs, by which inputs of no task are told.

Predictions alone do not tell: a network is as sure of inverted digits as of digits. Signals are
what the inputs look like before any task: their values, or, for token ids, inputs of several
tensors or of no fixed size, the task's logits. Kept of them are the mean and root mean square of an
input, and the quietest of 256 groups of values: what hardly varies within a task gives noise and
other permutations away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from impresslearn.data import Inputs
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView
from impresslearn.optimisation.objectives import entropies

PROFILED_INPUTS = 512
GROUPS = 256
QUIET = 4
"""Groups of values that are kept, those of least variance."""
CLOSEST = 0.25
"""The least spread of a group, as a share of the root mean square of an input."""
FARTHEST = 16.0
"""What each part of a squared distance counts at most."""
USUAL = 2.0 + QUIET
"""A squared distance of own inputs, in the mean."""
REJECTED = 0.05
"""The share of a task's own inputs that the threshold is to reject."""
SEVERAL, MOST_INDEPENDENT = 8, 16
"""Inputs for which the threshold is measured beside one, and up to which it falls."""


@dataclass(frozen=True)
class InputStatistics:
    """What a task's own inputs look like; all numbers float16, so 24 bytes and one a group.

    moments: mean and standard deviation of an input's mean, of its root mean square, and their
    correlation; groups: which are quiet; levels: their means; spread: their standard deviation;
    limits: (a, b) of a + b / √n, which the mean distance of n own inputs exceeds once in twenty.
    """

    moments: tuple[float, ...]
    groups: tuple[int, ...]
    levels: tuple[float, ...]
    spread: float
    limits: tuple[float, ...]

    nbytes = 24 + QUIET

    @classmethod
    def of(cls, groups: Sequence[int], numbers: Sequence[float]) -> InputStatistics:
        """From the groups, and all numbers in their order, as `numbers` gives them."""
        first, spread, limits = numbers[:5], numbers[5 + QUIET], numbers[6 + QUIET :]
        return cls(
            tuple(first), tuple(groups), tuple(numbers[5 : 5 + QUIET]), spread, tuple(limits)
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """All that are no whole numbers: moments, levels, spread, limits."""
        return (*self.moments, *self.levels, self.spread, *self.limits)

    def excess(self, signals: Tensor) -> float:
        """By how many widths of the threshold inputs exceed it; above 0 they look foreign."""
        offset, width = self.limits
        root = math.sqrt(min(len(signals), MOST_INDEPENDENT))
        mean = float(distances([self], signals).mean())
        return (mean - offset - width / root) / (max(width, 0.1) / root)


@dataclass(frozen=True)
class TaskProfile:
    """What a task's own training inputs look like to it; the field's out-of-distribution detection.

    own, foreign: mean prediction entropy as a fraction of log K, float16, on own inputs and on the
    same with shuffled features; inputs: None in older stores, and where it cannot be had.
    """

    own: float
    foreign: float
    inputs: InputStatistics | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that a store keeps."""
        return 4 + (self.inputs.nbytes if self.inputs else 0)

    @property
    def doubtful(self) -> float:
        """The relative entropy above which inputs rather look foreign."""
        return max((self.own + self.foreign) / 2, 1.5 * self.own)


def task_profile(backbone: Backbone, view: TaskView, inputs: Tensor | Inputs) -> TaskProfile:
    """The profile of a task by its own inputs (n, ...), of which 512 are looked at."""
    own = inputs[:PROFILED_INPUTS]
    foreign = own.map(_shuffled) if isinstance(own, Inputs) else _shuffled(own)
    most = largest_entropy(view.num_classes)
    logits = view.outputs(backbone, own)
    found = [entropies(each) / most for each in (logits, view.outputs(backbone, foreign))]
    at_home, abroad = (float(each.mean().half()) for each in found)
    return TaskProfile(at_home, abroad, _input_statistics(signals(backbone, own, logits)))


def distances(known: Sequence[InputStatistics], signals: Tensor) -> Tensor:
    """(T, n) squared distances of signals from T tasks' own inputs, in standard deviations.

    signals: (n, d), or (T, n, d) where each task has its own. The six parts of a distance are
    clipped; of own inputs the mean is about `USUAL`.
    """
    numbers = signals.new_tensor([each.numbers for each in known])
    mean, mean_spread, size, size_spread, correlation = numbers[:, :5, None].unbind(1)
    least = (1e-3 * size).clamp_min(1e-6)
    first = (signals.mean(dim=-1) - mean) / torch.maximum(mean_spread, least)
    second = (_size(signals) - size) / torch.maximum(size_spread, least)
    moved = first.square() - 2 * correlation * first * second + second.square()
    found = (moved / (1 - correlation**2)).clamp(max=FARTHEST)
    groups = torch.tensor([each.groups for each in known], device=signals.device)
    means = _group_means(signals).expand(len(known), *signals.shape[-2:-1], -1)
    means = means.gather(2, groups[:, None].expand(-1, means.shape[1], -1))
    levels, spread = numbers[:, None, 5 : 5 + QUIET], numbers[:, None, 5 + QUIET, None]
    away = (means - levels) / torch.maximum(spread, (CLOSEST * size[..., None]).clamp_min(1e-6))
    return found + away.square().clamp(max=FARTHEST).sum(dim=-1)


def signals(backbone: Backbone, inputs: Tensor | Inputs, logits: Tensor) -> Tensor:
    """(n, d) float32: the inputs where they have one size and are no token ids, else the logits.

    logits: (n, K), or (T, n, K) of several tasks.
    """
    shape = backbone.input_shape
    fixed = shape is not None and None not in shape and backbone.input_dtype.is_floating_point
    chosen = inputs.flatten(1) if fixed and isinstance(inputs, Tensor) else logits
    return chosen.float().cpu()


def largest_entropy(num_classes: int) -> float:
    """log K, the largest entropy of a prediction; that of two classes for a single one."""
    return math.log(max(2, num_classes))


def _input_statistics(own: Tensor) -> InputStatistics | None:
    """Fitted on every other input and its limits on the rest, or None where float16 is too small.

    On inputs that it was fitted on, a quiet group would be quieter than it is.
    """
    fitted, rest = own[::2], own[1::2]
    if len(rest) < 2:
        return None
    means, sizes = fitted.mean(dim=1), _size(fitted)
    groups = _group_means(fitted)
    quiet = groups.std(dim=0).argsort()[torch.arange(QUIET) % groups.shape[1]]
    spread = groups[:, quiet].var(dim=0).mean().sqrt()
    pair = torch.stack([means, sizes])
    correlation = torch.corrcoef(pair)[0, 1].nan_to_num().clamp(-0.99, 0.99)
    moments = torch.stack([means.mean(), means.std(), sizes.mean(), sizes.std(), correlation])

    levels = groups[:, quiet].mean(dim=0)

    def made(limits: Tensor) -> InputStatistics:
        numbers = torch.cat([moments, levels, spread[None], limits])
        return InputStatistics.of(quiet.tolist(), numbers.half().tolist())

    (away,) = distances([made(torch.zeros(2))], rest)
    drawn = torch.randint(len(rest), (1000, SEVERAL), generator=torch.Generator().manual_seed(0))
    one, several = (each.quantile(1 - REJECTED) for each in (away, away[drawn].mean(dim=1)))
    width = ((one - several) / (1 - SEVERAL**-0.5)).clamp_min(0.1)
    found = made(torch.stack([torch.maximum(one - width, away.mean()), width]))
    return found if all(map(math.isfinite, found.numbers)) else None


def _size(signals: Tensor) -> Tensor:
    return signals.square().mean(dim=-1).sqrt()


def _group_means(signals: Tensor) -> Tensor:
    """(..., d) to (..., groups): every 256th value belongs to the same group; one each if fewer."""
    values, count = signals.shape[-1], min(GROUPS, signals.shape[-1])
    whole = torch.nn.functional.pad(signals, (0, -values % count))
    sizes = (values + count - 1 - torch.arange(count)) // count
    return whole.unflatten(-1, (-1, count)).sum(dim=-2) / sizes


def _shuffled(inputs: Tensor) -> Tensor:
    """Inputs (n, ...) with the features of all in one other order."""
    features = inputs.flatten(1)
    order = torch.randperm(features.shape[1], generator=torch.Generator().manual_seed(0))
    return features[:, order.to(features.device)].reshape(inputs.shape)
