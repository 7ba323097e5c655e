"""Random weights for a network that is never trained, the same on every run of one torch version.

The level of every weight counts, since only masks and coefficients will act on it. Both choices
have standard deviation sqrt(2 / fan_in) (He et al., "Delving Deep into Rectifiers", 2015):
"kaiming_normal" as in the paper, "signed_constant" as in its authors' code and in Ramanujan et al.,
"What's Hidden in a Randomly Weighted Neural Network?" (2020). torch promises its random numbers for
one version only; `Backbone.fingerprint` tells whether a rebuilt network is the same.

A gain multiplies all weights: a mask that keeps a tenth of them shrinks what a layer computes about
threefold, which a network without norms never gets back.
"""

from __future__ import annotations

import numbers
from math import sqrt

import torch
from torch import nn

from impresslearn.errors import InputError
from impresslearn.masking import maskable_layers

INITS = ("kaiming_normal", "signed_constant")


def check_seed(seed: int) -> int:
    """The seed as a plain int. Raises InputError unless it is an integer in [0, 2^63)."""
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be an integer from 0 to 2^63 - 1, got {seed!r}")
    return int(seed)


def check_gain(gain: float) -> float:
    """The gain as a float. Raises InputError unless it is a positive, finite number."""
    if isinstance(gain, bool) or not isinstance(gain, numbers.Real) or not 0 < gain < float("inf"):
        raise InputError(f"gain must be a positive number, got {gain!r}")
    return float(gain)


def fill_weights(
    module: nn.Module, init: str = "kaiming_normal", seed: int = 0, gain: float = 1.0
) -> None:
    """Fill the maskable weights in place, layer by layer; biases and norms stay as they are.

    "kaiming_normal": normal numbers times gain * sqrt(2 / fan_in); "signed_constant": the signs of
    the same numbers times gain * sqrt(2 / fan_in). Drawn on the CPU in float32, whatever the
    module's device and dtype. Raises InputError for an unknown init and a bad seed or gain.
    """
    if init not in INITS:
        raise InputError(f"init must be {' or '.join(INITS)}, got {init!r}")
    gain = check_gain(gain)
    generator = torch.Generator().manual_seed(check_seed(seed))
    with torch.no_grad():
        for layer in maskable_layers(module):
            values = torch.randn(layer.shape, generator=generator, dtype=torch.float32)
            if init == "signed_constant":
                values = torch.where(values < 0, -1.0, 1.0)
            module.get_parameter(layer.name).copy_(values * (gain * sqrt(2 / layer.fan_in)))
