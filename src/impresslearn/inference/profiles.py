"""What a task showed on its own training inputs, by which inputs of no task are told.

Predictions alone do not tell: a network is as sure of inverted digits as of digits. Signals are
what the inputs look like before any task: their values, or, for token ids, inputs of several
tensors or of no fixed size, the task's logits. Kept of them are the mean and root mean square of an
input, and the quietest of 256 groups of values: what hardly varies within a task gives noise and
other permutations away. Of inputs of few values, such as the columns of a table, each is kept.
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
from impresslearn.training.objectives import entropies

PROFILED_INPUTS = 512
GROUPS = 256
QUIET = 4
"""Groups of values that are kept, those of least variance."""
NARROW = 32
"""Values up to which the level of each is kept, to an eighth of their spread, in a byte."""
EIGHTHS = 8
CLOSEST = 0.25
"""The least spread of a group, as a share of the root mean square of an input."""
FARTHEST = 16.0
"""What each part of a squared distance counts at most."""
REJECTED = 0.05
"""The share of a task's own inputs that the threshold is to reject."""
ALLOWED = 1.64
"""Standard errors of its own mean that the limit of narrow inputs allows for."""
SEVERAL, MOST_INDEPENDENT = 8, 16
"""Inputs for which the threshold is measured beside one, and up to which it falls."""


@dataclass(frozen=True)
class InputStatistics:
    """What a task's own inputs look like; 28 bytes, or of narrow inputs 18 and one a value.

    moments: mean and standard deviation of an input's mean, of its root mean square, and their
    correlation; groups: which are quiet, none where every value is a group; levels: the groups'
    means; spread: their standard deviation; limits: (a, b) of a + b / √n, which the mean distance
    of n own inputs exceeds once in twenty. All are float16, but that levels of narrow inputs are
    multiples of an eighth of their spread.
    """

    moments: tuple[float, ...]
    groups: tuple[int, ...]
    levels: tuple[float, ...]
    spread: float
    limits: tuple[float, ...]

    @classmethod
    def of(cls, groups: Sequence[int], numbers: Sequence[float]) -> InputStatistics:
        """From the groups, and all numbers in their order, as `numbers` gives them."""
        first, levels, last = numbers[:5], numbers[5:-3], numbers[-3:]
        return cls(tuple(first), tuple(groups), tuple(levels), last[0], tuple(last[1:]))

    @classmethod
    def narrow(cls, steps: Sequence[int], numbers: Sequence[float]) -> InputStatistics:
        """From levels in eighths of the spread, and the other numbers in their order."""
        levels = [step * numbers[5] / EIGHTHS for step in steps]
        return cls.of((), [*numbers[:5], *levels, *numbers[5:]])

    @property
    def is_narrow(self) -> bool:
        """Whether every value has its own level."""
        return not self.groups

    @property
    def steps(self) -> list[int]:
        """Levels in eighths of the spread."""
        return [round(level / self.spread * EIGHTHS) for level in self.levels]

    @property
    def nbytes(self) -> int:
        """Bytes that a store keeps."""
        count = len(self.levels)
        return 17 + count + count % 2 if self.is_narrow else 16 + 3 * QUIET

    @property
    def usual(self) -> float:
        """The squared distance of an own input, in the mean."""
        return 2.0 + len(self.levels)

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
    seen = signals(backbone, own, logits)
    narrow = _are_inputs(backbone, own) and seen.shape[1] <= NARROW
    return TaskProfile(at_home, abroad, _input_statistics(seen, narrow))


def distances(known: Sequence[InputStatistics], signals: Tensor) -> Tensor:
    """(T, n) squared distances of signals from T tasks' own inputs, in standard deviations.

    signals: (n, d), or (T, n, d) where each task has its own. The parts of a distance, two and one
    a level, are clipped; of own inputs the mean is about `usual`. known: all narrow, or none.
    """
    numbers = signals.new_tensor([each.numbers for each in known])
    mean, mean_spread, size, size_spread, correlation = numbers[:, :5, None].unbind(1)
    least = (1e-3 * size).clamp_min(1e-6)
    first = (signals.mean(dim=-1) - mean) / torch.maximum(mean_spread, least)
    second = (_size(signals) - size) / torch.maximum(size_spread, least)
    moved = first.square() - 2 * correlation * first * second + second.square()
    found = (moved / (1 - correlation**2)).clamp(max=FARTHEST)
    levels, spread = numbers[:, None, 5:-3], numbers[:, None, -3, None]
    means = signals
    if not known[0].is_narrow:
        groups = torch.tensor([each.groups for each in known], device=signals.device)
        means = _group_means(signals).expand(len(known), *signals.shape[-2:-1], -1)
        means = means.gather(2, groups[:, None].expand(-1, means.shape[1], -1))
        spread = torch.maximum(spread, (CLOSEST * size[..., None]).clamp_min(1e-6))
    away = (means - levels) / spread
    return found + away.square().clamp(max=FARTHEST).sum(dim=-1)


def signals(backbone: Backbone, inputs: Tensor | Inputs, logits: Tensor) -> Tensor:
    """(n, d) float32: the inputs where they have one size and are no token ids, else the logits.

    logits: (n, K), or (T, n, K) of several tasks.
    """
    if isinstance(inputs, Tensor) and _are_inputs(backbone, inputs):
        return inputs.flatten(1).float().cpu()
    return logits.float().cpu()


def _are_inputs(backbone: Backbone, inputs: Tensor | Inputs) -> bool:
    """Whether signals are the inputs themselves."""
    shape = backbone.input_shape
    fixed = shape is not None and None not in shape and backbone.input_dtype.is_floating_point
    return fixed and isinstance(inputs, Tensor)


def largest_entropy(num_classes: int) -> float:
    """log K, the largest entropy of a prediction; that of two classes for a single one."""
    return math.log(max(2, num_classes))


def _input_statistics(own: Tensor, narrow: bool) -> InputStatistics | None:
    """Fitted on every other input and its limits on the rest, or None where float16 is too small.

    On inputs that it was fitted on, a quiet group would be quieter than it is. What is kept of
    narrow inputs is fitted on all in the end, and their limit allows for the few that it is from.
    """
    fitted, rest = own[::2], own[1::2]
    if len(rest) < 2:
        return None
    first = _fitted(fitted, torch.zeros(2), narrow)
    if not all(map(math.isfinite, first.numbers)):
        return None
    (away,) = distances([first], rest)
    drawn = torch.randint(len(rest), (1000, SEVERAL), generator=torch.Generator().manual_seed(0))
    one, several = (each.quantile(1 - REJECTED) for each in (away, away[drawn].mean(dim=1)))
    width = ((one - several) / (1 - SEVERAL**-0.5)).clamp_min(0.1)
    offset = torch.maximum(one - width, away.mean())
    if narrow:
        offset = offset + ALLOWED * away.std() / math.sqrt(len(rest))
    found = _fitted(own if narrow else fitted, torch.stack([offset, width]), narrow)
    return found if all(map(math.isfinite, found.numbers)) else None


def _fitted(own: Tensor, limits: Tensor, narrow: bool) -> InputStatistics:
    """What is kept of these inputs, with these limits."""
    means, sizes = own.mean(dim=1), _size(own)
    pair = torch.stack([means, sizes])
    correlation = torch.corrcoef(pair)[0, 1].nan_to_num().clamp(-0.99, 0.99)
    moments = torch.stack([means.mean(), means.std(), sizes.mean(), sizes.std(), correlation])
    if narrow:
        spread = own.var(dim=0).mean().sqrt().clamp_min(1e-3 * sizes.mean() + 1e-6).half()
        steps = (own.mean(dim=0) / spread * EIGHTHS).round().clamp(-127, 127)
        numbers = torch.cat([moments, spread[None], limits]).half()
        return InputStatistics.narrow(
            [int(each) for each in steps.nan_to_num().tolist()], numbers.tolist()
        )
    groups = _group_means(own)
    quiet = groups.std(dim=0).argsort()[torch.arange(QUIET) % groups.shape[1]]
    spread, levels = groups[:, quiet].var(dim=0).mean().sqrt(), groups[:, quiet].mean(dim=0)
    numbers = torch.cat([moments, levels, spread[None], limits])
    return InputStatistics.of(quiet.tolist(), numbers.half().tolist())


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
