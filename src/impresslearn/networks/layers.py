"""The ordered maskable layers of a module: what masks and coefficients are laid out over.

A task computes `{name: W ⊙ mask}` for the layers listed here and calls the module with those
tensors in place of its own, so any architecture works and nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from math import prod

from torch import nn
from torch.nn.parameter import is_lazy

from impresslearn.errors import InputError

MASKABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Module types whose `weight` has its output units in dimension 0 and can be masked."""


@dataclass(frozen=True)
class MaskableLayer:
    """One weight that masks cover.

    name: the parameter's qualified name, such as "0.weight"; shape: (units, fan-in dimensions ...).
    """

    name: str
    shape: tuple[int, ...]

    @property
    def units(self) -> int:
        """Output units of a linear layer, output channels of a convolution."""
        return self.shape[0]

    @property
    def numel(self) -> int:
        """Weights in the layer."""
        return prod(self.shape)

    @property
    def fan_in(self) -> int:
        """Weights that feed one output unit."""
        return prod(self.shape[1:])


def maskable_layers(module: nn.Module, skip: Collection[str] = ()) -> tuple[MaskableLayer, ...]:
    """The weights of linear and convolution layers, in module order, without those in `skip`.

    A weight that several layers share is listed once, under its first layer's name, and masked
    wherever it is used. Left out are biases, norms, embeddings, transposed convolutions and the
    packed `in_proj_weight` of `nn.MultiheadAttention`, whose `out_proj` is listed.
    Raises InputError if nothing is left, for a name in `skip` that is no maskable layer, and for
    weights that are not plain parameters (lazy, parametrised, pruned).
    """
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"{name} is lazy and has no shape yet; run the module on a batch once")
    found: dict[int, MaskableLayer] = {}
    for prefix, layer in module.named_modules():
        if not isinstance(layer, MASKABLE):
            continue
        name = f"{prefix}.weight" if prefix else "weight"
        # Parametrisation, weight norm and pruning recompute `weight` and keep no such parameter.
        weight = dict(layer.named_parameters(recurse=False)).get("weight")
        if weight is None:
            raise InputError(
                f"{name} is computed from other parameters (parametrised, normed or pruned); "
                "remove that before masking the module"
            )
        found.setdefault(id(weight), MaskableLayer(name, tuple(weight.shape)))
    if not found:
        kind = type(module).__name__
        raise InputError(f"{kind} has no maskable layer; expected an nn.Linear or nn.Conv in it")
    names = [layer.name for layer in found.values()]
    skipped = {skip} if isinstance(skip, str) else set(skip)
    if unknown := skipped.difference(names):
        known = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise InputError(
            f"skip names {min(unknown)!r}, which is no maskable layer; the layers are {known}"
        )
    layers = tuple(layer for layer in found.values() if layer.name not in skipped)
    if not layers:
        raise InputError(f"skip leaves none of the {len(found)} maskable layers; keep at least one")
    return layers
