"""Codes the norm statistics that a task keeps for itself.

A batch norm computes (x - m) / s with s = sqrt(v + ε) for a mean m and a variance v. Under "coded"
both are rounded relative to the m₀ and s₀ that every task starts from (0 and about 1 in a new
network): log(s / s₀) to a multiple of DEVIATION_STEP, then (m - m₀) / s to a multiple of MEAN_STEP.
The normalised activations so move by a small part of their deviation, however large that is.
Layer after layer is measured on training inputs and rounded, so that errors do not add up. The
multiples are integers: one model codes all means, and another all logarithms, each less the median
of its layer (`coding`).

Integers up to LARGEST do not reach every statistic (the mean of a channel that hardly varies). A
task then keeps the gathered values as they are, as it does under any other precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST, decode_levels, encode_levels
from impresslearn.data import Examples, Inputs, StreamedExamples
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import some_inputs
from impresslearn.networks.norms import batch_norms
from impresslearn.networks.prediction import Statistics, remeasured

Floats = NDArray[np.float64]
# The means and variances that every task starts from, and the norms' ε.
Origin = tuple[Floats, Floats, Floats | float]
MEAN_STEP = 0.5  # step of means, in deviations
DEVIATION_STEP = 0.2  # step of the natural logarithms of deviations
FEWEST_MEASURED = 16
# Numbers at most in the inputs that statistics are measured on: 1,365 images of 3 x 32 x 32.
MEASURED_NUMBERS = 2**22


@dataclass(frozen=True)
class StoredStatistics:
    """A task's norm statistics: the values that it computes with, and the bytes that it keeps.

    - values: by buffer name, as `Backbone.initial_statistics` has them.
    - code: their code; None where the values themselves are kept.
    """

    values: Statistics = field(repr=False)
    code: bytes | None = field(default=None, repr=False)

    @property
    def content(self) -> bytes:
        """The bytes that a store keeps."""
        return statistics_bytes(self.values) if self.code is None else self.code

    @property
    def nbytes(self) -> int:
        """Bytes of the content."""
        return len(self.content)


def store_statistics(
    backbone: Backbone,
    gathered: Statistics,
    precision: str,
    weights: Mapping[str, Tensor],
    examples: Examples | StreamedExamples,
) -> StoredStatistics:
    """A task's statistics as a precision keeps them: as gathered, or under "coded" rounded.

    - gathered: by buffer name, from training.
    - weights: layer name -> the weights that the task computes with.
    - examples: the task's training examples, to measure each layer behind rounded ones.
    """
    if precision != "coded":
        return StoredStatistics(gathered)
    first = examples.inputs_at(np.arange(1))
    tensors = first.tensors if isinstance(first, Inputs) else [first]
    size = max(1, sum(tensor[:1].numel() for tensor in tensors))
    inputs = some_inputs(examples, max(FEWEST_MEASURED, MEASURED_NUMBERS // size))
    initial = backbone.initial_statistics()
    epsilons = {prefix: norm.eps for prefix, norm in batch_norms(backbone.module)}

    def settle(prefix: str, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        first_means = _floats(initial[f"{prefix}running_mean"])
        start = first_means, _floats(initial[f"{prefix}running_var"]), epsilons[prefix]
        means, variances = _values(start, *_levels(start, _floats(mean), _floats(variance)))
        return torch.from_numpy(means).to(mean), torch.from_numpy(variances).to(variance)

    return coded_statistics(backbone, remeasured(backbone, weights, inputs, settle), gathered)


def coded_statistics(
    backbone: Backbone, statistics: Statistics, otherwise: Statistics
) -> StoredStatistics:
    """Statistics rounded and coded; `otherwise` where the integers do not reach."""
    code = _encoded(backbone, statistics)
    if code is not None:
        with suppress(ValueError):  # rounded up to more than their dtype holds
            return restore_statistics(backbone, code, coded=True)
    return StoredStatistics(otherwise)


def restore_statistics(backbone: Backbone, content: bytes, coded: bool) -> StoredStatistics:
    """Statistics from their content, coded or not; the network fixes how many there are.

    Raises ValueError for a damaged content, one of another network, and impossible values.
    """
    values = (_decoded if coded else _unpacked)(backbone, content)
    for name, value in values.items():
        is_negative = name.endswith("running_var") and (value < 0).any()
        if is_negative or not value.isfinite().all():
            raise ValueError(f"the norm statistics {name!r} hold impossible values")
    return StoredStatistics(values, content if coded else None)


def statistics_bytes(statistics: Mapping[str, Tensor]) -> bytes:
    """Statistics as torch keeps them, little-endian, one buffer after the other."""
    content = bytearray()
    for value in statistics.values():
        flat = value.detach().cpu().contiguous().view(-1)
        content += flat.view(torch.uint8).numpy().tobytes()
    return bytes(content)


def _unpacked(backbone: Backbone, content: bytes) -> Statistics:
    initial, place, values = backbone.initial_statistics(), 0, {}
    if len(content) != sum(like.nbytes for like in initial.values()):
        raise ValueError("norm statistics of another network")
    for name, like in initial.items():
        piece = bytearray(content[place : place + like.nbytes])
        values[name] = torch.frombuffer(piece, dtype=like.dtype).view(like.shape).to(like.device)
        place += like.nbytes
    return values


def _encoded(backbone: Backbone, statistics: Statistics) -> bytes | None:
    """Integers and their medians; None where there are larger ones than can be coded."""
    start, counts = _start_of(backbone)
    shifts, logarithms = _levels(start, *_moments(statistics))
    medians = []
    with np.errstate(invalid="ignore"):
        for layer in np.split(logarithms, np.cumsum(counts)[:-1]):
            medians.append(np.rint(np.median(layer)))
        logarithms -= np.repeat(medians, counts)
    # NaN and infinities fail this comparison too.
    if not (np.abs(np.concatenate([shifts, logarithms, medians])) <= LARGEST).all():
        return None
    levels = [values.astype(np.int64) for values in (shifts, logarithms, np.array(medians))]
    return encode_levels(levels)


def _decoded(backbone: Backbone, content: bytes) -> Statistics:
    start, counts = _start_of(backbone)
    channels = sum(counts)
    shapes = [(channels,), (channels,), (len(counts),)]
    (shifts, logarithms, medians), _ = decode_levels(content, shapes)
    logarithms += np.repeat(medians, counts)
    means, variances = _values(start, shifts.astype(np.float64), logarithms.astype(np.float64))
    statistics, place = {}, 0
    for name, like in backbone.initial_statistics().items():
        moments = variances if name.endswith("running_var") else means
        statistics[name] = torch.from_numpy(moments[place : place + len(like)]).to(like)
        place += len(like) if name.endswith("running_var") else 0  # a layer's variance is last
    return statistics


def _levels(origin: Origin, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """The nearest integers of means and of logarithms; NaN or infinite where none is near."""
    first_means, first_variances, epsilon = origin
    with np.errstate(all="ignore"):
        first = np.sqrt(first_variances + epsilon)
        logarithms = np.rint(np.log(np.sqrt(variances + epsilon) / first) / DEVIATION_STEP)
        deviations = first * np.exp(DEVIATION_STEP * logarithms)
        return np.rint((means - first_means) / deviations / MEAN_STEP), logarithms


def _values(origin: Origin, shifts: Floats, logarithms: Floats) -> tuple[Floats, Floats]:
    """The means and variances that integers stand for."""
    first_means, first_variances, epsilon = origin
    with np.errstate(all="ignore"):
        deviations = np.sqrt(first_variances + epsilon) * np.exp(DEVIATION_STEP * logarithms)
        means = first_means + MEAN_STEP * shifts * deviations
        return means, np.maximum(deviations**2 - epsilon, 0.0)


def _start_of(backbone: Backbone) -> tuple[Origin, list[int]]:
    """Where all channels of a network start, and the number of channels of each norm."""
    counts, epsilons = [], []
    for _, norm in batch_norms(backbone.module):
        if norm.running_mean is not None:
            counts.append(norm.num_features)
            epsilons.append(norm.eps)
    means, variances = _moments(backbone.initial_statistics())
    return (means, variances, np.repeat(epsilons, counts)), counts


def _moments(statistics: Statistics) -> tuple[Floats, Floats]:
    """Means and variances of all channels, of statistics in the order of a network's norms."""
    values = [_floats(value) for value in statistics.values()]
    return np.concatenate(values[::2]), np.concatenate(values[1::2])


def _floats(values: Tensor) -> Floats:
    return values.detach().cpu().double().numpy()
