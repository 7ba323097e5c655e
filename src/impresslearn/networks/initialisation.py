"""Random weights for a network that is never trained, the same bit for bit on every machine.

Both choices have standard deviation sqrt(2 / fan_in) (He et al., "Delving Deep into Rectifiers",
2015): "kaiming_normal" as in the paper, "signed_constant" as in its authors' code and in Ramanujan
et al., "What's Hidden in a Randomly Weighted Neural Network?" (2020). A gain multiplies all
weights: a mask that keeps a tenth of them shrinks what a layer computes about threefold, which a
network without norms never gets back.

torch's normal numbers (version 1, in the oldest records) differ between versions and processor
families. Version 2 runs the polar method (Marsaglia and Bray, 1964) on NumPy's Philox
stream of integers, and all arithmetic is +, -, *, / and the square root in float64, which
IEEE 754 rounds to one right answer; the logarithm is a series of these. Every operation is a pass
over an array, so that no compiler can fuse two of them and round once.
"""

from __future__ import annotations

from math import sqrt
from typing import Literal, get_args

import numpy as np
import torch
from torch import nn

from impresslearn.checks import check_choice, check_integer, check_number
from impresslearn.errors import InputError
from impresslearn.networks.layers import plain_layers

Init = Literal["signed_constant", "kaiming_normal"]
GAINS: dict[str, float] = {"signed_constant": 2.0, "kaiming_normal": 1.0}
# A mask of sparsity 0.9 shrinks what each layer computes about threefold, and a network without
# norms never gets that back: doubled weights took a mask on permuted MNIST from 95.6% to
# 97.3–97.5% (gain 3: 96.7–97.4%, gain 0.5: 84%). The paper's gain is 1.
INIT_VERSION = 2
CHUNK = 2**14
"""Pairs drawn at a time: their arrays fit the cache. The numbers do not depend on it."""
STREAM = 2
"""The part of Philox's counter for weights; random masks have 0, disjoint masks 1."""
LOG_2 = 0.6931471805599453
SQRT_HALF = 0.7071067811865476
TERMS = 12
"""Of the logarithm's series, whose first term left out is below 1e-19 of the first."""


def check_gain(gain: float | None, init: str) -> float:
    """The gain as a float; None gives the one for `init`. Raises InputError for bad values."""
    check_choice("init", init, get_args(Init))
    number = GAINS[init] if gain is None else check_number("gain", gain)
    if not number > 0:
        raise InputError(f"gain must be a positive number, got {gain!r}")
    return number


def fill_weights(
    module: nn.Module,
    init: Init = "signed_constant",
    seed: int = 0,
    gain: float | None = None,
    version: int = INIT_VERSION,
) -> None:
    """Fills the weights of linear layers and convolutions in place, layer by layer.

    Everything else stays as the module's builder drew it: biases, norms, projections of attention.
    Numbers are drawn on the CPU in float32, whatever the module's device and dtype.

    - `init`: "kaiming_normal" fills in normal numbers times gain * sqrt(2 / fan_in),
      "signed_constant" the signs of the same numbers times gain * sqrt(2 / fan_in).
    - `seed`: at least 0.
    - `gain`: by default 2 for "signed_constant" and 1 for "kaiming_normal".
    - `version`: 2, or 1 for torch's numbers.

    Raises InputError for an unknown init or version and a bad seed or gain.
    """
    gain, layers = check_gain(gain, init), plain_layers(module)
    if version not in (1, INIT_VERSION) or isinstance(version, bool):
        raise InputError(f"init_version must be 1 or {INIT_VERSION}, got {version!r}")
    seed = check_integer("seed", seed, 0)
    in_turn = torch.Generator().manual_seed(seed) if version == 1 else None
    with torch.no_grad():
        for place, layer in enumerate(layers):
            if in_turn is not None:
                values = torch.randn(layer.shape, generator=in_turn, dtype=torch.float32)
            else:  # a separate sequence, whatever the other layers are
                normals = standard_normals(layer.numel, seed, place)
                values = torch.from_numpy(normals).reshape(layer.shape)
            if init == "signed_constant":
                values = torch.where(values < 0, -1.0, 1.0)
            module.get_parameter(layer.name).copy_(values * (gain * sqrt(2 / layer.fan_in)))


def standard_normals(count: int, seed: int, place: int) -> np.ndarray:
    """(count,) float32, of mean 0 and variance 1; `place` numbers the sequences of a seed."""
    stream = np.random.Philox(key=seed, counter=[0, STREAM, 0, place])
    normals = np.empty(count, dtype=np.float32)
    filled = 0
    while filled < count:
        pairs = min(CHUNK, count)
        uniform = (stream.random_raw(2 * pairs) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
        x, y = uniform[::2], uniform[1::2]
        square = x * x + y * y
        inside = (square > 0) & (square < 1)
        square = square[inside]
        factor = np.sqrt(-2 * _log(square) / square)
        both = np.stack([x[inside] * factor, y[inside] * factor], axis=1).reshape(-1)
        both = both[: count - filled]
        normals[filled : filled + both.size] = both
        filled += both.size
    return normals


def _log(values: np.ndarray) -> np.ndarray:
    """Natural logarithms of positive numbers: log(m 2^e) = 2 artanh((m-1) / (m+1)) + e log 2."""
    mantissa, exponent = np.frexp(values)
    low = mantissa < SQRT_HALF
    mantissa = np.where(low, 2 * mantissa, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square = ratio * ratio
    series = np.full_like(square, 1 / (2 * TERMS - 1))
    for term in range(TERMS - 1, 0, -1):
        series = series * square + 1 / (2 * term - 1)
    return 2 * ratio * series + (exponent - low) * LOG_2
