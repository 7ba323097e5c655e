"""Task profiles: statistics of a task's own inputs, to detect inputs that belong to no task.

Predictions alone are not enough: a network is as sure of inverted digits as of digits. So a profile
also describes the inputs: by the mean and the root mean square of an input, and by group means. The
values of an input form 256 groups. The profile keeps the means of the four *quiet* groups, which
vary least within the task: noise and permuted inputs differ most there. For inputs of at most 32
values, such as rows of a table, it keeps the mean of each value. For token ids, several tensors,
and inputs without a fixed size, it describes the task's logits instead. The described values
(inputs or logits) are called *signals*.
"""

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
GROUPS = 256
QUIET = 4  # the number of quiet groups
FEW_FEATURES = 32  # inputs of up to this number of values have a mean of each value, no groups
PARTS_PER_SPREAD = 8  # a mean is kept in one byte, in eighths of its unit
CORRELATION_PARTS = 100  # a correlation is kept in hundredths
LARGEST_BYTE = 247  # a larger one would be an infinite float16
MIN_SPREAD = 0.25  # least spread of a group, as a fraction of the root mean square of an input
MAX_PART = 16.0  # each part of a squared distance is clipped at this value
REJECTED = 0.05  # fraction of a task's own inputs that the threshold rejects
# The threshold is measured for batches of 1 and of 8 inputs. Up to 16, it falls as batches grow.
SEVERAL, MAX_INDEPENDENT = 8, 16


@dataclass(frozen=True)
class TaskProfile:
    """Statistics of a task on its training inputs, for out-of-distribution detection.

    A store keeps a profile in 21 bytes, or with few features in 13 bytes and one per value. If
    inputs are too few, or values too large for float16, it keeps only the entropies, in 2 bytes.

    - own_entropy: mean prediction entropy on the task's own inputs, as a fraction of log K.
    - shuffled_entropy: the same on its inputs with shuffled features.
    - moments: the mean and standard deviation of the inputs' means, the same two of their root mean
      squares (RMS), and the correlation of means and RMS.
    - groups: the numbers of the quiet groups; none if the mean of each value is kept.
    - means: the means of the groups, or of each value; a store keeps them in eighths of `unit`.
    - spread: the standard deviation of the groups, or of the values.
    - limits: (a, b). The mean distance of n own inputs exceeds a + b / √n once in 20 batches.
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
        """Whether the profile has the mean of each value, not of groups."""
        return bool(self.means) and not self.groups

    @property
    def unit(self) -> float:
        """The unit of distances from the means."""
        if self.groups:
            return max(self.spread, MIN_SPREAD * self.moments[2], 1e-6)
        return self.spread

    @property
    def entropy_threshold(self) -> float:
        """The relative entropy above which inputs look foreign."""
        return max((self.own_entropy + self.shuffled_entropy) / 2, 1.5 * self.own_entropy)

    def encode(self) -> bytes:
        """The profile as bytes: two means and one limit take two bytes each, all else one each."""
        roots = np.sqrt([self.own_entropy, self.shuffled_entropy])
        entropies = np.rint(255 * roots.clip(0, 1)).astype(np.uint8).tobytes()
        if not self.means:
            return entropies
        mean, mean_spread, rms, rms_spread, correlation = self.moments
        halves = np.array([mean, rms, self.limits[0]], "<f2").tobytes()
        spreads = _to_bytes([mean_spread, rms_spread, self.spread, self.limits[1]])
        unit = replace(self, spread=_from_bytes(spreads)[2]).unit  # of the rounded spread
        means = (np.array(self.means) / unit * PARTS_PER_SPREAD).round().clip(-127, 127)
        rounded = np.array([CORRELATION_PARTS * correlation, *means]).round().astype("i1").tobytes()
        return entropies + halves + spreads + rounded + bytes(self.groups)

    @classmethod
    def decode(cls, content: bytes, few_features: bool) -> "TaskProfile":
        """The profile from the bytes of `encode`."""
        own, shuffled = ((root / 255) ** 2 for root in content[:2])
        if len(content) == 2:
            return cls(own, shuffled)
        mean, rms, offset = np.frombuffer(content[2:8], "<f2").tolist()
        mean_spread, rms_spread, spread, width = _from_bytes(content[8:12])
        end = len(content) if few_features else len(content) - QUIET
        correlation, *parts = np.frombuffer(content[12:end], "i1").tolist()
        moments = mean, mean_spread, rms, rms_spread, correlation / CORRELATION_PARTS
        groups, limits = tuple(content[end:]), (offset, width)
        profile = cls(own, shuffled, moments, groups, (), spread, limits)
        unit = profile.unit / PARTS_PER_SPREAD
        return replace(profile, means=tuple(unit * part for part in parts))


def task_profile(
    backbone: Backbone, view: TaskView, inputs: Tensor | Inputs, logits: Tensor
) -> TaskProfile:
    """Measures the profile of a task.

    - view: the task, ready to compute.
    - inputs: its own inputs (n, ...), at most `PROFILED_INPUTS`; `Features` need no forward pass.
    - logits: the task's finite outputs (n, K) on these inputs.
    """
    # Shuffled inputs represent foreign ones. Of `Features` the features are shuffled, because a
    # pretrained network maps a sentence and its shuffled words to similar features.
    rows = spread_rows(inputs, 128)  # fewer are enough for their mean entropy
    shuffled = rows.map(_shuffled) if isinstance(rows, Inputs) else _shuffled(rows)
    relative = []
    for outputs in (logits, view.outputs(backbone, shuffled)):
        relative.append(float(entropies(outputs).mean()) / largest_entropy(view.num_classes))
    seen = signals(backbone, inputs, logits)
    few = _signals_are_inputs(backbone, inputs_behind(inputs)) and seen.shape[1] <= FEW_FEATURES
    exact = replace(_described(seen, few), own_entropy=relative[0], shuffled_entropy=relative[1])
    return TaskProfile.decode(exact.encode(), few)  # rounded as in the store


def largest_profile_bytes(inputs: Tensor | Inputs) -> int:
    """The most bytes that the profile of a task with these inputs can take."""
    inputs = inputs_behind(inputs)
    values = inputs[0].numel() if isinstance(inputs, Tensor) else 0
    return 2 + 11 + max(2 * QUIET, values if values <= FEW_FEATURES else 0)


def distances(profiles: Sequence[TaskProfile], signals: Tensor) -> Tensor:
    """(T, n) squared distances of signals from T tasks' own inputs, in standard deviations.

    A distance is a sum of clipped parts. The mean and root mean square of an input give one part,
    about 2 for the task's own inputs. Each mean in the profile gives a part of about 1.

    - profiles: of T tasks, all with few features or all without.
    - signals: (n, d), or (T, n, d) if each task has different signals.
    """
    moments = signals.new_tensor([profile.moments for profile in profiles])
    mean, mean_spread, rms, rms_spread, correlation = moments[:, :, None].unbind(1)
    # The squared Mahalanobis distance of mean and root mean square. The spread of either may be
    # zero, as for normalised images, so it is bounded below.
    least = (1e-3 * rms).clamp_min(1e-6)
    first = (signals.mean(dim=-1) - mean) / torch.maximum(mean_spread, least)
    second = (_rms(signals) - rms) / torch.maximum(rms_spread, least)
    moved = first.square() - 2 * correlation * first * second + second.square()
    distance = (moved / (1 - correlation**2)).clamp(max=MAX_PART)
    means = signals.new_tensor([profile.means for profile in profiles])[:, None]
    units = signals.new_tensor([profile.unit for profile in profiles])[:, None, None]
    values = signals
    if not profiles[0].has_few_features:
        groups = torch.tensor([profile.groups for profile in profiles], device=signals.device)
        values = _group_means(signals).expand(len(profiles), signals.shape[-2], -1)
        values = values.gather(2, groups[:, None].expand(-1, values.shape[1], -1))
    away = (values - means) / units
    return distance + away.square().clamp(max=MAX_PART).sum(dim=-1)


def signals(backbone: Backbone, inputs: Tensor | Inputs, logits: Tensor) -> Tensor:
    """(n, d) float32: the inputs if they have a fixed size and are not token ids, else the logits.

    - logits: (n, K), or (T, n, K) of T tasks.
    """
    inputs = inputs_behind(inputs)
    if isinstance(inputs, Tensor) and _signals_are_inputs(backbone, inputs):
        return inputs.flatten(1).float().cpu()
    return logits.float().cpu()


def _signals_are_inputs(backbone: Backbone, inputs: Tensor | Inputs) -> bool:
    shape = backbone.input_shape
    fixed = shape is not None and None not in shape and backbone.input_dtype.is_floating_point
    return fixed and isinstance(inputs, Tensor)


def largest_entropy(num_classes: int) -> float:
    """log K, the largest entropy of a prediction; log 2 for a single class."""
    return math.log(max(2, num_classes))


def limits_of(away: Tensor) -> Tensor:
    """(a, b) such that the mean distance of n own inputs exceeds a + b / √n once in 20 batches.

    - away: (inputs,), the distances of the task's own inputs.
    """
    drawn = torch.randint(len(away), (1000, SEVERAL), generator=torch.Generator().manual_seed(0))
    one = away.quantile(1 - REJECTED)
    several = away[drawn].mean(dim=1).quantile(1 - REJECTED)
    b = ((one - several) / (1 - SEVERAL**-0.5)).clamp_min(0.1)  # one = a + b, several = a + b / √8
    return torch.stack([torch.maximum(one - b, away.mean()), b])


def exceeded_by(limits: Any, away: Tensor) -> Tensor:
    """(...) how far the mean distance of batches (..., n) is above the threshold a + b / √n.

    The unit is the width b / √n. Above 0 the inputs look foreign.

    - limits: (a, b) of `limits_of`, as numbers or tensors (...).
    """
    offset, width = torch.as_tensor(limits, dtype=away.dtype)
    # Inputs of a batch resemble one another: more than 16 do not make the mean more precise.
    root = math.sqrt(min(away.shape[-1], MAX_INDEPENDENT))
    return (away.mean(dim=-1) - offset - width / root) / (width.clamp_min(0.1) / root)


def _described(own: Tensor, few: bool) -> TaskProfile:
    """A profile with the statistics of a task's signals, or without if a store cannot keep them."""
    # Statistics are fitted to half of the inputs and limits measured on the other half, because a
    # quiet group varies less on the inputs by which it was chosen. Both halves are random, because
    # labels often repeat in turn.
    order = torch.randperm(len(own), generator=torch.Generator().manual_seed(0))
    fitted, rest = own[order[::2]], own[order[1::2]]
    if len(rest) < 2:
        return TaskProfile(0, 0)
    profile = _fitted(fitted, few)
    if not profile.means:
        return profile
    (away,) = distances([profile], rest)
    offset, width = limits_of(away).tolist()
    if few:
        # A table may have few rows: add 1.64 standard errors to the limit, and fit to all rows.
        offset += 1.64 * float(away.std()) / math.sqrt(len(rest))
        profile = _fitted(own, few)
    return replace(profile, limits=(offset, width))


def _fitted(own: Tensor, few: bool) -> TaskProfile:
    """A profile with statistics but no limits; with neither if float16 cannot hold a statistic."""
    averages, rms = own.mean(dim=1), _rms(own)
    # A correlation of 1 would divide by zero in `distances`.
    correlation = torch.corrcoef(torch.stack([averages, rms]))[0, 1]
    correlation = correlation.nan_to_num().clamp(-0.99, 0.99)
    moments = torch.stack([averages.mean(), averages.std(), rms.mean(), rms.std(), correlation])
    described, quiet = own, list[int]()
    if not few:
        # With fewer groups than `QUIET` some are taken more than once.
        groups = _group_means(own)
        quietest = groups.std(dim=0).argsort()
        quiet = quietest[torch.arange(QUIET) % len(quietest)].tolist()
        described = groups[:, quiet]
    means, spread = described.mean(dim=0), described.var(dim=0).mean().sqrt()
    if few:
        # Distances are divided by the spread, which is 0 for a table of constant columns.
        spread = spread.clamp_min(1e-3 * rms.mean() + 1e-6)
    numbers = torch.cat([moments, means, spread[None]]).half()
    if not numbers.isfinite().all():
        return TaskProfile(0, 0)
    kept = tuple(numbers.tolist())
    fitted = TaskProfile(0, 0, kept[:5], tuple(quiet), kept[5:-1], kept[-1], (0.0, 0.0))
    # Rounded as in the store, so that the limits are measured with the rounded statistics.
    return TaskProfile.decode(fitted.encode(), few)


def _to_bytes(values: Sequence[float]) -> bytes:
    """Positive numbers as bytes: float16 with five bits of exponent and three of mantissa."""
    bits = np.array(values, np.float16).view(np.uint16)
    return ((bits + (1 << 6)) >> 7).clip(1, LARGEST_BYTE).astype(np.uint8).tobytes()


def _from_bytes(content: bytes) -> list[float]:
    return (np.frombuffer(content, np.uint8).astype(np.uint16) << 7).view(np.float16).tolist()


def _rms(signals: Tensor) -> Tensor:
    return signals.square().mean(dim=-1).sqrt()


def _group_means(signals: Tensor) -> Tensor:
    """(..., d) to (..., groups): a group is every 256th value, or one value if d is at most 256."""
    values, count = signals.shape[-1], min(GROUPS, signals.shape[-1])
    whole = torch.nn.functional.pad(signals, (0, -values % count))
    sizes = (values + count - 1 - torch.arange(count)) // count
    return whole.unflatten(-1, (-1, count)).sum(dim=-2) / sizes


def _shuffled(inputs: Tensor) -> Tensor:
    """Inputs (n, ...) with their features in a random order, the same for all inputs."""
    if inputs.dim() < 2:  # one number per input
        return inputs
    features = inputs.flatten(1)
    order = torch.randperm(features.shape[1], generator=torch.Generator().manual_seed(0))
    return features[:, order.to(features.device)].reshape(inputs.shape)
