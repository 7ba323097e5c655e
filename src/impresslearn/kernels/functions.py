"""Differentiable mixing of masks into weights, for one layer or all layers of a network at once.

Each implementation has two functions. `mix` computes W ⊙ Σ_t α_t M^t. Its adjoint `mask_sums`
computes Σ_j l_j r_j M^t_j: (N,) float32, or (N, units) with `per_unit`. CPU tensors use the Numba
kernels and GPU tensors the Triton kernels, if available; otherwise the reference is used.
"""

from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from impresslearn.errors import InputError
from impresslearn.kernels import reference
from impresslearn.kernels.compiling import usable


def implementation(device: torch.device) -> ModuleType:
    """The module whose `mix` and `mask_sums` are used on a device."""
    return (device.type in ("cpu", "cuda") and usable(device.type)) or reference


class _Mix(torch.autograd.Function):
    """Mixes all layers; arguments: the bits of all layers, then their alphas, then their weights.

    One autograd function for all of six layers adds 0.10 ms per step to the time of the kernels.
    One function for each layer would add 0.30 ms.
    """

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        count = len(tensors) // 3
        kernels = implementation(tensors[0].device)
        layers = zip(tensors[:count], tensors[count : 2 * count], tensors[2 * count :], strict=True)
        return tuple(kernels.mix(*layer) for layer in layers)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tensors, count = ctx.saved_tensors, len(grads)
        kernels = implementation(tensors[0].device)
        gradients: list[Tensor | None] = [None] * (3 * count)
        for layer, grad in enumerate(grads):
            bits, alpha, weight = tensors[layer::count]
            if ctx.needs_input_grad[count + layer]:
                sums = kernels.mask_sums(bits, grad, weight, alpha.dim() == 2)
                gradients[count + layer] = sums.to(alpha.dtype)
            if ctx.needs_input_grad[2 * count + layer]:
                gradients[2 * count + layer] = kernels.mix(bits, alpha, grad)
        return tuple(gradients)


def mix_layers(
    bits: Sequence[Tensor], alphas: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """`mix` for all layers of a network at once, with one tensor per layer; raises as `mix`."""
    for packed, alpha, weight in zip(bits, alphas, weights, strict=True):
        # The kernels read by address: bits of another width would send them past the end.
        sizes = (weight.shape[0], reference.row_bytes(prod(weight.shape[1:])))
        if packed.dim() != 3 or packed.shape[1:] != sizes or packed.dtype != torch.uint8:
            got = f"bits of shape {tuple(packed.shape)} and {packed.dtype}"
            line = f"{got} do not mask a weight of shape {tuple(weight.shape)}"
            raise InputError(f"{line}; expected uint8 of shape (masks, {sizes[0]}, {sizes[1]})")
        if alpha.shape not in (packed.shape[:1], packed.shape[:2]):
            line = f"coefficients of shape {tuple(alpha.shape)} do not fit {len(packed)} masks"
            raise InputError(f"{line}; expected ({len(packed)},) or {tuple(packed.shape[:2])}")
        for other in (weight, alpha):
            if other.device != packed.device:
                line = f"tensors must be on the device of the bits, {packed.device}"
                raise InputError(f"{line}, got {other.device}")
    if torch.compiler.is_compiling():
        # The kernels read memory by address, and traced tensors have no address. The reference in
        # plain torch can be traced, compiled and exported.
        return list(map(reference.mix, bits, alphas, weights))
    return list(_Mix.apply(*bits, *alphas, *weights)) if bits else []


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """W ⊙ Σ_t α_t M^t (eq. 1 of the paper), without unpacking the bits.

    Returns a tensor like weight, differentiable (once) in alpha and weight.

    - `bits`: (N, units, row_bytes) uint8, from `pack`.
    - `alpha`: (N,), or (N, units) for one coefficient per mask and output unit.
    - `weight`: (units, ...) float32, float16 or bfloat16; the sum runs in float32.

    Raises InputError for shapes, dtypes or devices that do not fit together.
    """
    return mix_layers([bits], [alpha], [weight])[0]
