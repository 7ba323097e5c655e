"""Codes the norm statistics that a task keeps for itself.

A batch norm computes (x - m) / s with s = sqrt(v + ε) for a mean m and a variance v. Under "coded"
both are rounded, seen from the m₀ and s₀ that every task starts from (0 and about 1 in a new
network): log(s / s₀) to a multiple of DEVIATION_STEP, then (m - m₀) / s to one of MEAN_STEP. So
what is normalised moves by a small part of its own deviation, however large that is. Layer after
layer is measured on training inputs and rounded, so that errors do not add up. The multiples
are whole numbers and coded as those of coefficients are (`quantisation`): all means by one model,
and by another all logarithms, each less a middle of its layer.

Statistics that whole numbers up to LARGEST do not reach, such as the mean of a channel that hardly
varies, are kept as they were gathered, and so are those under any other precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from impresslearn.coefficients.coding import (
    LARGEST,
    MODEL_BYTES,
    decode_levels,
    encode_levels,
)
from impresslearn.data import Examples, Inputs, StreamedExamples
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import some_inputs
from impresslearn.networks.norms import batch_norms
from impresslearn.networks.prediction import Statistics, remeasured

Floats = NDArray[np.float64]
MEAN_STEP = 0.5
"""Of means, in deviations."""
DEVIATION_STEP = 0.2
"""Of the natural logarithms of deviations."""
FEWEST_MEASURED = 16
MEASURED_NUMBERS = 2**22
"""Numbers at most in the inputs that statistics are measured on: 1,365 images of 3 x 32 x 32."""


@dataclass(frozen=True)
class StoredStatistics:
    """A task's norm statistics: what it is computed with, and as what that is kept.

    values: by buffer name, as `Backbone.initial_statistics` has them; code: their code, None where
    the values themselves are kept.
    """

    values: Statistics = field(repr=False)
    code: bytes | None = field(default=None, repr=False)

    @property
    def content(self) -> bytes:
        """What is kept of them."""
        return statistics_bytes(self.values) if self.code is None else self.code

    @property
    def nbytes(self) -> int:
        """Bytes of the content."""
        raw = self.values.values()
        return sum(value.nbytes for value in raw) if self.code is None else len(self.code)


def store_statistics(
    backbone: Backbone,
    gathered: Statistics,
    precision: str,
    weights: Mapping[str, Tensor],
    examples: Examples | StreamedExamples,
) -> StoredStatistics:
    """A task's statistics as a precision keeps them: as gathered, or under "coded" rounded.

    weights, examples: those that the network is computed with, and that it was trained on.
    """
    if precision != "coded":
        return StoredStatistics(gathered)
    size = max(1, sum(each[:1].numel() for each in _tensors(examples.inputs_at(np.arange(1)))))
    inputs = some_inputs(examples, max(FEWEST_MEASURED, MEASURED_NUMBERS // size))
    initial = backbone.initial_statistics()
    smoothing = {name: norm.eps for name, norm in batch_norms(backbone.module)}

    def settle(name: str, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        of = f"{name}." if name else ""
        first = [_floats(initial[f"{of}running_{each}"]) for each in ("mean", "var")]
        grid = _Grid(first[0], first[1], smoothing[name])
        rounded = grid.moments(*grid.levels(_floats(mean), _floats(variance)))
        return torch.from_numpy(rounded[0]).to(mean), torch.from_numpy(rounded[1]).to(variance)

    return coded_statistics(backbone, remeasured(backbone, weights, inputs, settle), gathered)


def coded_statistics(
    backbone: Backbone, statistics: Statistics, otherwise: Statistics
) -> StoredStatistics:
    """Statistics rounded and coded; what is kept otherwise where whole numbers do not reach."""
    code = _encoded(backbone, statistics)
    if code is not None:
        with suppress(ValueError):  # rounded up to more than their dtype holds
            return restore_statistics(backbone, code, coded=True)
    return StoredStatistics(otherwise)


def restore_statistics(backbone: Backbone, content: bytes, coded: bool) -> StoredStatistics:
    """Statistics from their content, coded or not; the network says how many there are.

    Raises ValueError for a damaged content, one of another network, and impossible values.
    """
    values = _decoded(backbone, content) if coded else _unpacked(backbone, content)
    for name, value in values.items():
        variance = name.endswith("running_var")
        if not value.isfinite().all() or (variance and (value < 0).any()):
            raise ValueError(f"the norm statistics {name!r} hold impossible values")
    return StoredStatistics(values, content if coded else None)


def statistics_bytes(statistics: Mapping[str, Tensor]) -> bytes:
    """Statistics as torch keeps them, little-endian, one buffer after the other."""
    return b"".join(
        value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for value in statistics.values()
    )


def _unpacked(backbone: Backbone, content: bytes) -> Statistics:
    initial, place, found = backbone.initial_statistics(), 0, {}
    if len(content) != sum(like.nbytes for like in initial.values()):
        raise ValueError("norm statistics of another network")
    for name, like in initial.items():
        piece = bytearray(content[place : place + like.nbytes])
        found[name] = torch.frombuffer(piece, dtype=like.dtype).view(like.shape).to(like.device)
        place += like.nbytes
    return found


def _encoded(backbone: Backbone, statistics: Statistics) -> bytes | None:
    """Middles, models and whole numbers; None where there are larger ones than can be coded."""
    counts, smoothing = _norms(backbone)
    grid = _Grid(*_moments(backbone.initial_statistics()), smoothing)
    shifts, logarithms = grid.levels(*_moments(statistics))
    with np.errstate(invalid="ignore"):
        middles = [np.rint(np.median(each)) for each in _by_layer(logarithms, counts)]
        logarithms -= np.repeat(middles, counts)
    if not all((np.abs(each) <= LARGEST).all() for each in (shifts, logarithms, middles)):
        return None
    models, levels = encode_levels([shifts.astype(np.int64), logarithms.astype(np.int64)])
    return b"".join([np.array(middles, np.int8).tobytes(), *models, levels])


def _decoded(backbone: Backbone, content: bytes) -> Statistics:
    counts, smoothing = _norms(backbone)
    initial = backbone.initial_statistics()
    ends = [len(counts) + MODEL_BYTES * number for number in range(3)]
    middles = np.frombuffer(content[: ends[0]], np.int8)
    models = [content[ends[0] : ends[1]], content[ends[1] : ends[2]]]
    shifts, logarithms = decode_levels(models, [(len(smoothing),)] * 2, content[ends[2] :])
    logarithms += np.repeat(middles, counts)
    moments = _Grid(*_moments(initial), smoothing).moments(
        shifts.astype(np.float64), logarithms.astype(np.float64)
    )
    layers = zip(*(_by_layer(each, counts) for each in moments), strict=True)
    pairs = zip(initial.items(), chain.from_iterable(layers), strict=True)
    return {name: torch.from_numpy(values).to(like) for (name, like), values in pairs}


@dataclass(frozen=True)
class _Grid:
    """Where the moments of some channels are rounded to: what tasks start from, and each ε."""

    means: Floats
    variances: Floats
    smoothing: Floats | float

    @property
    def deviations(self) -> Floats:
        return np.sqrt(self.variances + self.smoothing)

    def levels(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Whole numbers of means and of logarithms; not finite where there are none."""
        with np.errstate(all="ignore"):
            relative = np.sqrt(variances + self.smoothing) / self.deviations
            logarithms = np.rint(np.log(relative) / DEVIATION_STEP)
            deviations = self.deviations * np.exp(DEVIATION_STEP * logarithms)
            return np.rint((means - self.means) / deviations / MEAN_STEP), logarithms

    def moments(self, shifts: Floats, logarithms: Floats) -> tuple[Floats, Floats]:
        """The means and variances of such whole numbers."""
        with np.errstate(all="ignore"):
            deviations = self.deviations * np.exp(DEVIATION_STEP * logarithms)
            means = self.means + MEAN_STEP * shifts * deviations
            return means, np.maximum(deviations**2 - self.smoothing, 0.0)


def _tensors(inputs: Tensor | Inputs) -> Iterable[Tensor]:
    return inputs.tensors if isinstance(inputs, Inputs) else [inputs]


def _norms(backbone: Backbone) -> tuple[list[int], Floats]:
    """The channels of each norm with statistics, and the ε of each channel."""
    norms = [norm for _, norm in batch_norms(backbone.module) if norm.running_mean is not None]
    counts = [norm.num_features for norm in norms]
    return counts, np.repeat([norm.eps for norm in norms], counts)


def _moments(statistics: Statistics) -> tuple[Floats, Floats]:
    """Means and variances of all channels, of statistics in the order of a network's norms."""
    values = [_floats(value) for value in statistics.values()]
    return np.concatenate(values[::2]), np.concatenate(values[1::2])


def _floats(values: Tensor) -> Floats:
    return values.detach().cpu().double().numpy()


def _by_layer(values: Floats, counts: list[int]) -> list[Floats]:
    return np.split(values, np.cumsum(counts)[:-1])
