"""Random weights for a network that is never trained, the same on every machine.

The level of every weight counts, since only masks and coefficients will act on it. Both choices
have standard deviation sqrt(2 / fan_in) (He et al., "Delving Deep into Rectifiers", 2015):
"kaiming_normal" as in the paper, "signed_constant" as in its authors' code and in Ramanujan et al.,
"What's Hidden in a Randomly Weighted Neural Network?" (2020). Networks of version 1, as old stores
and records have them, drew torch's normal numbers, which are promised for one version of torch on
one family of processors; `Backbone.fingerprint` tells whether a rebuilt network is the same.

A gain multiplies all weights: a mask that keeps a tenth of them shrinks what a layer computes about
threefold, which a network without norms never gets back.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from math import sqrt

import torch
from torch import Tensor, nn

from impresslearn.errors import InputError
from impresslearn.networks.layers import MaskableLayer, maskable_layers
from impresslearn.networks.normals import standard_normals
from impresslearn.validation import check_integer

INITS = ("kaiming_normal", "signed_constant")
INIT_VERSION = 2


def check_gain(gain: float) -> float:
    """The gain as a float. Raises InputError unless it is a positive, finite number."""
    if isinstance(gain, bool) or not isinstance(gain, numbers.Real) or not 0 < gain < float("inf"):
        raise InputError(f"gain must be a positive number, got {gain!r}")
    return float(gain)


def fill_weights(
    module: nn.Module,
    init: str = "kaiming_normal",
    seed: int = 0,
    gain: float = 1.0,
    version: int = INIT_VERSION,
) -> None:
    """Fill the maskable weights in place, layer by layer; biases and norms stay as they are.

    "kaiming_normal": normal numbers times gain * sqrt(2 / fan_in); "signed_constant": the signs of
    the same numbers times gain * sqrt(2 / fan_in). Drawn on the CPU in float32, whatever the
    module's device and dtype. version: 2, or 1 for torch's numbers. Raises InputError for an
    unknown init or version and a bad seed or gain.
    """
    if init not in INITS:
        raise InputError(f"init must be {' or '.join(INITS)}, got {init!r}")
    if version not in (1, INIT_VERSION) or isinstance(version, bool):
        raise InputError(f"init_version must be 1 or {INIT_VERSION}, got {version!r}")
    gain, layers = check_gain(gain), maskable_layers(module)
    draw = _torch_normals if version == 1 else _normals
    with torch.no_grad():
        for layer, values in zip(layers, draw(layers, check_integer("seed", seed, 0)), strict=True):
            if init == "signed_constant":
                values = torch.where(values < 0, -1.0, 1.0)
            module.get_parameter(layer.name).copy_(values * (gain * sqrt(2 / layer.fan_in)))


def _normals(layers: Sequence[MaskableLayer], seed: int) -> Iterator[Tensor]:
    """Each layer's own sequence, whatever the other layers are."""
    for place, layer in enumerate(layers):
        yield torch.from_numpy(standard_normals(layer.numel, seed, place)).reshape(layer.shape)


def _torch_normals(layers: Sequence[MaskableLayer], seed: int) -> Iterator[Tensor]:
    """One sequence of torch's for all layers in turn."""
    generator = torch.Generator().manual_seed(seed)
    for layer in layers:
        yield torch.randn(layer.shape, generator=generator, dtype=torch.float32)
