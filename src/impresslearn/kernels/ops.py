"""Mixing as two torch operators, each the other's derivative.

`mix` computes W ⊙ Σ_t α_t M^t and `mask_sums` its adjoint Σ_j left_j right_j M^t_j. They are
registered with autograd (any order of differentiation) and with shape rules, so `functional_call`,
`torch.compile` and `torch.export` see through them. Tensors on the CPU go to the Numba kernels
where Numba imports, everything else to the reference.
"""

from __future__ import annotations

import functools
from math import prod
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from impresslearn.errors import InputError
from impresslearn.kernels import reference
from impresslearn.kernels.layout import row_bytes


@functools.cache
def _cpu_kernels() -> ModuleType:
    try:
        from impresslearn.kernels import cpu
    except ImportError:  # no Numba on this platform: slower, the same numbers
        return reference
    return cpu


def implementation(device: torch.device) -> ModuleType:
    """The module whose `mix` and `mask_sums` serve this device."""
    return _cpu_kernels() if device.type == "cpu" else reference


@torch.library.custom_op("impresslearn::mix", mutates_args=())
def _mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    return implementation(weight.device).mix(bits, alpha, weight)


@_mix.register_fake
def _(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    return torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)


@torch.library.custom_op("impresslearn::mask_sums", mutates_args=())
def _mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    return implementation(left.device).mask_sums(bits, left, right, per_unit)


@_mask_sums.register_fake
def _(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    shape = (bits.shape[0], bits.shape[1]) if per_unit else (bits.shape[0],)
    return torch.empty(shape, dtype=torch.float32, device=left.device)


def _save_mix(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _mix_backward(ctx: Any, grad: Tensor) -> tuple:
    bits, alpha, weight = ctx.saved_tensors
    grad_alpha = grad_weight = None
    if ctx.needs_input_grad[1]:
        grad_alpha = _mask_sums(bits, grad, weight, alpha.dim() == 2).to(alpha.dtype)
    if ctx.needs_input_grad[2]:
        grad_weight = _mix(bits, alpha, grad)
    return None, grad_alpha, grad_weight


def _save_sums(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _sums_backward(ctx: Any, grad: Tensor) -> tuple:
    bits, left, right = ctx.saved_tensors
    grad_left = _mix(bits, grad, right).to(left.dtype) if ctx.needs_input_grad[1] else None
    grad_right = _mix(bits, grad, left).to(right.dtype) if ctx.needs_input_grad[2] else None
    return None, grad_left, grad_right, None


_mix.register_autograd(_mix_backward, setup_context=_save_mix)
_mask_sums.register_autograd(_sums_backward, setup_context=_save_sums)


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """W ⊙ Σ_t α_t M^t (eq. 1), straight from packed bits.

    bits: (N, units, row_bytes) uint8 as `layout.pack` makes them; alpha: (N,), or (N, units) for
    coefficients per output unit; weight: (units, ...) float32, float16 or bfloat16. Returns a
    tensor like weight, differentiable in alpha and weight. Raises InputError for shapes that do
    not belong together.
    """
    _check_bits(bits, weight)
    if alpha.shape not in ((bits.shape[0],), (bits.shape[0], bits.shape[1])):
        raise InputError(
            f"coefficients of shape {tuple(alpha.shape)} do not fit {bits.shape[0]} masks of "
            f"{bits.shape[1]} units; expected ({bits.shape[0]},) or {tuple(bits.shape[:2])}"
        )
    _check_device(bits, alpha, weight)
    return _mix(bits, alpha, weight)


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool = False) -> Tensor:
    """Σ_j left_j right_j M^t_j for every mask t: (N,) or, if `per_unit`, (N, units), float32.

    left, right: (units, ...) of one shape. The adjoint of `mix` in alpha.
    """
    if left.shape != right.shape:
        raise InputError(f"shapes {tuple(left.shape)} and {tuple(right.shape)} must be equal")
    _check_bits(bits, left)
    _check_device(bits, left, right)
    return _mask_sums(bits, left, right, per_unit)


def _check_bits(bits: Tensor, weight: Tensor) -> None:
    # The kernels read by address: bits of another width would send them past the end.
    expected = (weight.shape[0], row_bytes(prod(weight.shape[1:])))
    if bits.dim() != 3 or tuple(bits.shape[1:]) != expected or bits.dtype != torch.uint8:
        raise InputError(
            f"bits of shape {tuple(bits.shape)} and {bits.dtype} do not mask a weight of shape "
            f"{tuple(weight.shape)}; expected uint8 of shape (masks, {expected[0]}, {expected[1]})"
        )


def _check_device(bits: Tensor, *others: Tensor) -> None:
    for other in others:
        if other.device != bits.device:
            raise InputError(
                f"tensors must lie on the device of the bits, {bits.device}, got {other.device}"
            )
