"""Mixing as torch operators, registered with autograd and shape rules.

`impresslearn::mix` computes W ⊙ Σ_t α_t M^t and `impresslearn::mask_sums` its adjoint
Σ_j left_j right_j M^t_j; each is the other's derivative, to any order. `torch.compile` and
`torch.export` see through them. Tensors on the CPU go to the Numba kernels and those on a GPU to
Triton's, where these can be used, everything else to the reference. Eager code calls
`functions` instead, which does the same for all layers of a network at a fraction of the overhead.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from impresslearn.kernels import reference
from impresslearn.kernels.compiling import none_if_unusable


@none_if_unusable
def _cpu_kernels() -> ModuleType:
    from impresslearn.kernels import cpu

    return cpu


@none_if_unusable
def _gpu_kernels() -> ModuleType:
    from impresslearn.kernels import cuda

    return cuda


def implementation(device: torch.device) -> ModuleType:
    """The module whose `mix` and `mask_sums` serve this device."""
    load = {"cpu": _cpu_kernels, "cuda": _gpu_kernels}.get(device.type)
    return (load and load()) or reference


@torch.library.custom_op("impresslearn::mix", mutates_args=())
def mix_op(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    return implementation(weight.device).mix(bits, alpha, weight)


@mix_op.register_fake
def _(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    return torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)


@torch.library.custom_op("impresslearn::mask_sums", mutates_args=())
def mask_sums_op(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    return implementation(left.device).mask_sums(bits, left, right, per_unit)


@mask_sums_op.register_fake
def _(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    shape = (bits.shape[0], bits.shape[1]) if per_unit else (bits.shape[0],)
    return torch.empty(shape, dtype=torch.float32, device=left.device)


def _save_mix(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _mix_backward(ctx: Any, grad: Tensor) -> tuple:
    bits, alpha, weight = ctx.saved_tensors
    grad_alpha = grad_weight = None
    if ctx.needs_input_grad[1]:
        grad_alpha = mask_sums_op(bits, grad, weight, alpha.dim() == 2).to(alpha.dtype)
    if ctx.needs_input_grad[2]:
        grad_weight = mix_op(bits, alpha, grad)
    return None, grad_alpha, grad_weight


def _save_sums(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _sums_backward(ctx: Any, grad: Tensor) -> tuple:
    bits, left, right = ctx.saved_tensors
    grad_left = mix_op(bits, grad, right).to(left.dtype) if ctx.needs_input_grad[1] else None
    grad_right = mix_op(bits, grad, left).to(right.dtype) if ctx.needs_input_grad[2] else None
    return None, grad_left, grad_right, None


mix_op.register_autograd(_mix_backward, setup_context=_save_mix)
mask_sums_op.register_autograd(_sums_backward, setup_context=_save_sums)
