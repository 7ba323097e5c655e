"""Profiles of tasks on their own training inputs, which reveal inputs that belong to no task.

Predictions alone are not enough: a network is as sure of inverted digits as of digits. So a profile
also describes the inputs (its *signals*) by the mean and root mean square of an input, and by the
means of the quietest of 256 groups of values: what hardly varies within a task gives noise and
other permutations away. For inputs of at most 32 values, such as the rows of a table, it keeps the
mean of each value. For token ids, several tensors, and inputs of free size, the signals are the
task's logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.data import Inputs, inputs_behind
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import spread_rows
from impresslearn.networks.prediction import TaskView
from impresslearn.training.loop import entropies

PROFILED_INPUTS = 512
SHUFFLED_INPUTS = 128  # the mean entropy of shuffled inputs needs fewer
GROUPS = 256
QUIET = 4  # groups that are kept, which vary least
FEW_FEATURES = 32  # inputs of up to this number of values keep the mean of each one
PARTS_PER_SPREAD = 8  # means are kept in a byte each, as multiples of an eighth of their unit
CORRELATION_PARTS = 100  # a correlation is kept in hundredths
LARGEST_BYTE = 247  # a larger one would be an infinite float16
MIN_SPREAD = 0.25  # of a group, as a share of the root mean square of an input
MAX_PART = 16.0  # the most that one part of a squared distance counts
REJECTED = 0.05  # share of a task's own inputs that the threshold rejects
# With few features the limit is raised by this number of standard errors of the mean distance.
LIMIT_TOLERANCE = 1.64
# The threshold is measured for 1 and for 8 inputs, and falls up to 16 inputs.
SEVERAL, MAX_INDEPENDENT = 8, 16


@dataclass(frozen=True)
class TaskProfile:
    """Statistics of a task on its training inputs, for out-of-distribution detection.

    A store keeps it in 21 bytes, or with few features in 13 and one per value. Where inputs are too
    few or too large for statistics, it keeps the entropies alone, in 2.

    - own_entropy: mean prediction entropy on own inputs, as a fraction of log K.
    - shuffled_entropy: the same on own inputs with shuffled features.
    - moments: mean and standard deviation of an input's mean, mean and standard deviation of its
      root mean square, and their correlation.
    - groups: which groups are quiet; none if every value is its own group.
    - means: of the groups, or of each value; a store keeps them in eighths of `unit`.
    - spread: the groups' standard deviation.
    - limits: (a, b) of a + b / √n, which the mean distance of n own inputs exceeds once in 20.
    """

    own_entropy: float
    shuffled_entropy: float
    moments: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()
    means: tuple[float, ...] = ()
    spread: float = 0.0
    limits: tuple[float, ...] = ()

    @property
    def has_few_features(self) -> bool:
        """Whether it has the mean of each value."""
        return bool(self.means) and not self.groups

    @property
    def unit(self) -> float:
        """What distances from the means are measured in."""
        if self.groups:
            return max(self.spread, MIN_SPREAD * self.moments[2], 1e-6)
        return self.spread

    @property
    def entropy_threshold(self) -> float:
        """The relative entropy above which inputs look foreign."""
        return max((self.own_entropy + self.shuffled_entropy) / 2, 1.5 * self.own_entropy)

    def encode(self) -> bytes:
        """Two means and a limit in two bytes each; roots of entropies and all else in one each."""
        roots = np.sqrt([self.own_entropy, self.shuffled_entropy])
        entropies = np.rint(255 * roots.clip(0, 1)).astype(np.uint8).tobytes()
        if not self.means:
            return entropies
        mean, mean_spread, size, size_spread, correlation = self.moments
        halves = np.array([mean, size, self.limits[0]], "<f2").tobytes()
        spreads = _to_bytes([mean_spread, size_spread, self.spread, self.limits[1]])
        unit = replace(self, spread=_from_bytes(spreads)[2]).unit  # as `decode` finds it
        means = (np.array(self.means) / unit * PARTS_PER_SPREAD).round().clip(-127, 127)
        rounded = np.array([CORRELATION_PARTS * correlation, *means]).round().astype("i1").tobytes()
        return entropies + halves + spreads + rounded + bytes(self.groups)

    @classmethod
    def decode(cls, content: bytes, few_features: bool) -> TaskProfile:
        """The profile of `encode`."""
        own, shuffled = ((root / 255) ** 2 for root in content[:2])
        if len(content) == 2:
            return cls(own, shuffled)
        mean, size, offset = np.frombuffer(content[2:8], "<f2").tolist()
        mean_spread, size_spread, spread, width = _from_bytes(content[8:12])
        end = len(content) if few_features else len(content) - QUIET
        correlation, *parts = np.frombuffer(content[12:end], "i1").tolist()
        moments = mean, mean_spread, size, size_spread, correlation / CORRELATION_PARTS
        groups, limits = tuple(content[end:]), (offset, width)
        profile = cls(own, shuffled, moments, groups, (), spread, limits)
        unit = profile.unit / PARTS_PER_SPREAD
        return replace(profile, means=tuple(unit * part for part in parts))


def task_profile(
    backbone: Backbone, view: TaskView, inputs: Tensor | Inputs, logits: Tensor
) -> TaskProfile:
    """The profile of a task.

    - view: the task, ready to compute.
    - inputs: its own inputs (n, ...), at most `PROFILED_INPUTS`; `Features` save the passes.
    - logits: its outputs (n, K) on them, finite.
    """
    # Shuffled inputs stand for foreign ones. Where features are known they are shuffled instead:
    # a pretrained network maps shuffled words close to the sentence.
    rows = spread_rows(inputs, SHUFFLED_INPUTS)
    shuffled = rows.map(_shuffled) if isinstance(rows, Inputs) else _shuffled(rows)
    relative = []
    for outputs in (logits, view.outputs(backbone, shuffled)):
        relative.append(float(entropies(outputs).mean()) / largest_entropy(view.num_classes))
    seen = signals(backbone, inputs, logits)
    own = inputs_behind(inputs)
    few = _signals_are_inputs(backbone, own) and seen.shape[1] <= FEW_FEATURES
    exact = replace(_described(seen, few), own_entropy=relative[0], shuffled_entropy=relative[1])
    return TaskProfile.decode(exact.encode(), few)  # as a store keeps it


def largest_profile_bytes(inputs: Tensor | Inputs) -> int:
    """The bytes that the profile of a task with these inputs takes at most."""
    inputs = inputs_behind(inputs)
    values = inputs[0].numel() if isinstance(inputs, Tensor) else 0
    return 2 + 11 + max(2 * QUIET, values if values <= FEW_FEATURES else 0)


def distances(profiles: Sequence[TaskProfile], signals: Tensor) -> Tensor:
    """(T, n) squared distances of signals from T tasks' own inputs, in standard deviations.

    Mean and root mean square of an input are one part, about 2 for own inputs; every kept mean adds
    a part of about 1. Parts are clipped.

    - profiles: of T tasks, all with few features or none.
    - signals: (n, d), or (T, n, d) if each task has its own.
    """
    moments = signals.new_tensor([profile.moments for profile in profiles])
    mean, mean_spread, size, size_spread, correlation = moments[:, :, None].unbind(1)
    # The squared Mahalanobis distance of mean and root mean square. Inputs that are all equal in
    # one of them, such as normalised images, have no spread to divide by.
    least = (1e-3 * size).clamp_min(1e-6)
    first = (signals.mean(dim=-1) - mean) / torch.maximum(mean_spread, least)
    second = (_size(signals) - size) / torch.maximum(size_spread, least)
    moved = first.square() - 2 * correlation * first * second + second.square()
    distance = (moved / (1 - correlation**2)).clamp(max=MAX_PART)
    means = signals.new_tensor([profile.means for profile in profiles])[:, None]
    units = signals.new_tensor([profile.unit for profile in profiles])[:, None, None]
    values = signals
    if not profiles[0].has_few_features:
        groups = torch.tensor([profile.groups for profile in profiles], device=signals.device)
        values = _group_means(signals).expand(len(profiles), *signals.shape[-2:-1], -1)
        values = values.gather(2, groups[:, None].expand(-1, values.shape[1], -1))
    away = (values - means) / units
    return distance + away.square().clamp(max=MAX_PART).sum(dim=-1)


def signals(backbone: Backbone, inputs: Tensor | Inputs, logits: Tensor) -> Tensor:
    """(n, d) float32: the inputs if they have one size and are not token ids, else the logits.

    - logits: (n, K), or (T, n, K) of several tasks.
    """
    inputs = inputs_behind(inputs)
    if isinstance(inputs, Tensor) and _signals_are_inputs(backbone, inputs):
        return inputs.flatten(1).float().cpu()
    return logits.float().cpu()


def _signals_are_inputs(backbone: Backbone, inputs: Tensor | Inputs) -> bool:
    """Whether signals are the inputs themselves."""
    shape = backbone.input_shape
    fixed = shape is not None and None not in shape and backbone.input_dtype.is_floating_point
    return fixed and isinstance(inputs, Tensor)


def largest_entropy(num_classes: int) -> float:
    """log K, the largest entropy of a prediction; log 2 for a single class."""
    return math.log(max(2, num_classes))


def limits_of(away: Tensor) -> Tensor:
    """(a, b) such that the mean distance of n own inputs exceeds a + b / √n once in 20.

    - away: (inputs,) distances of own inputs.
    """
    drawn = torch.randint(len(away), (1000, SEVERAL), generator=torch.Generator().manual_seed(0))
    one = away.quantile(1 - REJECTED)
    several = away[drawn].mean(dim=1).quantile(1 - REJECTED)
    width = ((one - several) / (1 - SEVERAL**-0.5)).clamp_min(0.1)
    return torch.stack([torch.maximum(one - width, away.mean()), width])


def exceeded_by(limits: Any, away: Tensor) -> Tensor:
    """(...) how far the mean distances of batches (..., n) are above the threshold, in its widths.

    Above 0 the inputs look foreign.

    - limits: two numbers, or tensors (...), as `limits_of` measures them.
    """
    offset, width = torch.as_tensor(limits, dtype=away.dtype)
    # Inputs of a batch resemble one another: beyond 16 they narrow the mean no further.
    root = math.sqrt(min(away.shape[-1], MAX_INDEPENDENT))
    return (away.mean(dim=-1) - offset - width / root) / (width.clamp_min(0.1) / root)


def _described(own: Tensor, few: bool) -> TaskProfile:
    """A profile with the statistics of own signals, or without where a store cannot keep them."""
    # Half of the inputs are fitted. Limits are measured on the other half, because a quiet group is
    # quieter on the inputs it was chosen by.
    fitted, rest = own[::2], own[1::2]
    if len(rest) < 2:
        return TaskProfile(0, 0)
    unlimited = _fitted(fitted, few)
    if not unlimited.means:
        return unlimited
    (away,) = distances([unlimited], rest)
    offset, width = limits_of(away).tolist()
    if few:
        # The limit of a small table is itself measured on few rows: allow for its standard error.
        offset += LIMIT_TOLERANCE * float(away.std()) / math.sqrt(len(rest))
        unlimited = _fitted(own, few)
    return replace(unlimited, limits=(offset, width))


def _fitted(own: Tensor, few: bool) -> TaskProfile:
    """The statistics of these signals, without limits; none where one exceeds float16."""
    averages, sizes = own.mean(dim=1), _size(own)
    # Their Gaussian in `distances` has no width at a correlation of 1.
    correlation = torch.corrcoef(torch.stack([averages, sizes]))[0, 1]
    correlation = correlation.nan_to_num().clamp(-0.99, 0.99)
    moments = torch.stack([averages.mean(), averages.std(), sizes.mean(), sizes.std(), correlation])
    described, quiet = own, list[int]()
    if not few:
        # Noise and permuted inputs differ most where own inputs hardly vary. With fewer groups
        # than `QUIET` some count more than once.
        groups = _group_means(own)
        quietest = groups.std(dim=0).argsort()
        quiet = quietest[torch.arange(QUIET) % len(quietest)].tolist()
        described = groups[:, quiet]
    means, spread = described.mean(dim=0), described.var(dim=0).mean().sqrt()
    if few:
        # Distances are divided by the spread, which is 0 for a table of constant columns.
        spread = spread.clamp_min(1e-3 * sizes.mean() + 1e-6)
    numbers = torch.cat([moments, means, spread[None]]).half()
    if not numbers.isfinite().all():
        return TaskProfile(0, 0)
    kept = tuple(numbers.tolist())
    fitted = TaskProfile(0, 0, kept[:5], tuple(quiet), kept[5:-1], kept[-1], (0.0, 0.0))
    # The limits are then measured with the statistics as a store keeps them.
    return TaskProfile.decode(fitted.encode(), few)


def _to_bytes(values: Sequence[float]) -> bytes:
    """Positive float16 of which five bits of exponent and three of mantissa are kept."""
    bits = np.array(values, np.float16).view(np.uint16)
    return ((bits + (1 << 6)) >> 7).clip(1, LARGEST_BYTE).astype(np.uint8).tobytes()


def _from_bytes(content: bytes) -> list[float]:
    return (np.frombuffer(content, np.uint8).astype(np.uint16) << 7).view(np.float16).tolist()


def _size(signals: Tensor) -> Tensor:
    return signals.square().mean(dim=-1).sqrt()


def _group_means(signals: Tensor) -> Tensor:
    """(..., d) to (..., groups): every 256th value is of one group; up to 256, each is a group."""
    values, count = signals.shape[-1], min(GROUPS, signals.shape[-1])
    whole = torch.nn.functional.pad(signals, (0, -values % count))
    sizes = (values + count - 1 - torch.arange(count)) // count
    return whole.unflatten(-1, (-1, count)).sum(dim=-2) / sizes


def _shuffled(inputs: Tensor) -> Tensor:
    """Inputs (n, ...) with their features in another order, the same for all inputs."""
    if inputs.dim() < 2:  # one number per input
        return inputs
    features = inputs.flatten(1)
    order = torch.randperm(features.shape[1], generator=torch.Generator().manual_seed(0))
    return features[:, order.to(features.device)].reshape(inputs.shape)
