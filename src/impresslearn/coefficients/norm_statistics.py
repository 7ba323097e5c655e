"""Rounds and codes the norm statistics of tasks that keep their own.

A batch norm computes (x - m) / s with mean m, variance v and s = sqrt(v + ε). With precision
"coded", m and s are rounded relative to the m₀ and s₀ that every task starts from (0 and about 1 in
a new network). First log(s / s₀) is rounded to a multiple of DEVIATION_STEP, then (m - m₀) / s to a
multiple of MEAN_STEP. So normalised activations change by only a small part of their deviation. The
statistics of each layer are measured after those of earlier layers are rounded, so that errors do
not add up. `coding` writes the multiples: one model for all means, and one for all logarithms, from
which the median of the layer is subtracted.

If a multiple exceeds LARGEST, as for the mean of a channel that hardly varies, the task keeps the
gathered values without rounding, as with every other precision.
"""

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST, decode_levels, encode_levels
from impresslearn.data import Examples, Inputs, StreamedExamples
from impresslearn.data.examples import bytes_of
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import some_inputs
from impresslearn.networks.norms import batch_norms
from impresslearn.networks.prediction import Statistics

Floats = NDArray[np.float64]
MEAN_STEP = 0.5  # step of means, in deviations
DEVIATION_STEP = 0.2  # step of the natural logarithms of deviations


@dataclass(frozen=True)
class StoredStatistics:
    """A task's norm statistics: the values that it uses, and the bytes that a store keeps.

    - values: by buffer name, as in `Backbone.initial_statistics`.
    - code: the coded values; None if the values are kept without coding.
    """

    values: Statistics = field(repr=False)
    code: bytes | None = field(default=None, repr=False)

    @property
    def content(self) -> bytes:
        """The bytes that a store keeps."""
        # Without a code: the little-endian values of one buffer after another.
        return b"".join(map(bytes_of, self.values.values())) if self.code is None else self.code


def round_statistics(
    backbone: Backbone,
    gathered: Statistics,
    precision: str,
    weights: Mapping[str, Tensor],
    examples: Examples | StreamedExamples,
) -> StoredStatistics:
    """A task's statistics: rounded if the precision is "coded", otherwise as gathered.

    weights, examples: of the task, to measure each layer after earlier ones are rounded.
    """
    if precision != "coded":
        return StoredStatistics(gathered)
    first = examples.inputs_at(np.arange(1))
    tensors = first.tensors if isinstance(first, Inputs) else [first]
    size = max(1, sum(tensor[:1].numel() for tensor in tensors))
    # At most 2^22 values, which are 1,365 images of 3 x 32 x 32, but at least 16 inputs.
    inputs = some_inputs(examples, max(16, 2**22 // size))
    return coded_statistics(backbone, _remeasured(backbone, weights, inputs), gathered)


@torch.no_grad()
def _remeasured(
    backbone: Backbone, weights: Mapping[str, Tensor], inputs: Tensor | Inputs
) -> Statistics:
    """The statistics of all batch norms, measured in one evaluation pass and rounded.

    Norms that are not called keep the initial statistics.
    """
    statistics = backbone.initial_statistics()
    left = {origin.prefix: origin for origin in _origins(backbone)}

    def measure(prefix: str, _: Any, arguments: tuple[Tensor, ...]) -> None:
        if (origin := left.pop(prefix, None)) is not None:
            values = arguments[0].double().transpose(0, 1).flatten(1)
            mean, variance = values.mean(dim=1), values.var(dim=1, correction=0)
            levels = origin.levels(mean.cpu().numpy(), variance.cpu().numpy())
            # In place, because the norm uses these statistics in the call that follows.
            for name, moment in zip(origin.names, origin.values(*levels), strict=True):
                statistics[name].copy_(torch.from_numpy(moment))

    inputs = inputs.to(backbone.device, backbone.input_dtype)
    with ExitStack() as hooks:
        for prefix, norm in batch_norms(backbone._view("eval")):
            hooks.enter_context(norm.register_forward_pre_hook(partial(measure, prefix)))
        backbone.forward(weights, inputs, statistics, "eval")
    return statistics


@np.errstate(invalid="ignore")
def coded_statistics(
    backbone: Backbone, statistics: Statistics, otherwise: Statistics
) -> StoredStatistics:
    """Rounded and coded statistics, or `otherwise` if an integer would exceed LARGEST."""
    shifts, logarithms, medians = [], [], []
    for origin in _origins(backbone):
        shift, logarithm = origin.levels(*origin.moments(statistics))
        median = np.rint(np.median(logarithm))
        shifts.append(shift)
        logarithms.append(logarithm - median)
        medians.append(median)
    numbers = [np.concatenate(shifts), np.concatenate(logarithms), np.array(medians)]
    # NaN and infinities fail this comparison too.
    if all((np.abs(values) <= LARGEST).all() for values in numbers):
        code = encode_levels([values.astype(np.int64) for values in numbers])
        with suppress(ValueError):  # a rounded value may exceed its dtype
            return restore_statistics(backbone, code, coded=True)
    return StoredStatistics(otherwise)


def restore_statistics(backbone: Backbone, content: bytes, coded: bool) -> StoredStatistics:
    """Decodes statistics. Raises ValueError for damaged content or that of another network."""
    values, place = backbone.initial_statistics(), 0
    if coded:
        origins = _origins(backbone)
        sizes = [len(origin.means) for origin in origins]
        shapes = [(sum(sizes),), (sum(sizes),), (len(sizes),)]
        (shifts, logarithms, medians), _ = decode_levels(content, shapes)
        for origin, size, median in zip(origins, sizes, medians, strict=True):
            own = slice(place, place + size)
            moments = origin.values(shifts[own], logarithms[own] + median)
            for name, moment in zip(origin.names, moments, strict=True):
                values[name] = torch.from_numpy(moment).to(values[name])
            place += size
    elif len(content) != sum(like.nbytes for like in values.values()):
        raise ValueError("norm statistics of another network")
    else:
        for name, like in values.items():
            piece = bytearray(content[place : place + like.nbytes])
            values[name] = torch.frombuffer(piece, dtype=like.dtype).view(like.shape).to(like)
            place += like.nbytes
    for name, value in values.items():
        is_negative = name.endswith("running_var") and (value < 0).any()
        if is_negative or not value.isfinite().all():
            raise ValueError(f"the norm statistics {name!r} hold impossible values")
    return StoredStatistics(values, content if coded else None)


class _Origin:
    """The initial means and deviations of one norm's channels, which statistics are relative to."""

    def __init__(self, prefix: str, epsilon: float, initial: Statistics) -> None:
        self.prefix, self._epsilon = prefix, epsilon
        self.names = f"{prefix}running_mean", f"{prefix}running_var"
        self.means, variances = self.moments(initial)
        self._deviations = np.sqrt(variances + epsilon)

    def moments(self, statistics: Statistics) -> list[Floats]:
        """The means and the variances of the norm's channels."""
        return [statistics[name].detach().cpu().double().numpy() for name in self.names]

    @np.errstate(all="ignore")
    def levels(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """The integers for means and for logarithms; NaN or infinite if there is none."""
        ratios = np.sqrt(variances + self._epsilon) / self._deviations
        logarithms = np.rint(np.log(ratios) / DEVIATION_STEP)
        deviations = self._deviations * np.exp(DEVIATION_STEP * logarithms)
        return np.rint((means - self.means) / deviations / MEAN_STEP), logarithms

    @np.errstate(all="ignore")
    def values(self, shifts: Any, logarithms: Any) -> tuple[Floats, Floats]:
        """The means and variances that belong to integers."""
        deviations = self._deviations * np.exp(DEVIATION_STEP * logarithms)
        means = self.means + MEAN_STEP * shifts * deviations
        return means, np.maximum(deviations**2 - self._epsilon, 0.0)


def _origins(backbone: Backbone) -> list[_Origin]:
    initial, norms = backbone.initial_statistics(), batch_norms(backbone.module)
    known = [(prefix, norm) for prefix, norm in norms if norm.running_mean is not None]
    return [_Origin(prefix, norm.eps, initial) for prefix, norm in known]
