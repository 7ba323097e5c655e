"""Differentiable mixing of masks into weights, for one layer or all layers of a network at once.

`mix` computes W ⊙ Σ_t α_t M^t and `mask_sums` its adjoint Σ_j left_j right_j M^t_j; each is the
other's derivative, to any order. Tensors on the CPU go to the Numba kernels and those on a GPU to
Triton's, where these can be used, everything else to the reference.

An operator call costs some 50 µs, as much as mixing a small layer, so eager code runs all layers in
one autograd function that calls the kernels directly (docs/decisions.md has the figures), and
batches over tasks under `vmap`. While torch compiles or exports, the registered operators
`impresslearn::mix` and `impresslearn::mask_sums` stand in for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

from impresslearn.errors import InputError
from impresslearn.kernels import reference
from impresslearn.kernels.compiling import usable

Value = TypeVar("Value")


def implementation(device: torch.device) -> ModuleType:
    """The module whose `mix` and `mask_sums` serve this device."""
    return (device.type in ("cpu", "cuda") and usable(device.type)) or reference


class _ByLayer(torch.autograd.Function):
    """A function of `by_unit`, whether each layer's alphas are per unit, and three tensors a layer.

    The layers' first tensors, the bits, come first, then their second and their third ones.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.by_unit = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple, by_unit: tuple[bool, ...], *tensors: Tensor) -> tuple:
        dims = in_dims[1:]
        parts = []
        for index in range(info.batch_size):
            pairs = zip(tensors, dims, strict=True)
            one = [each if dim is None else each.select(dim, index) for each, dim in pairs]
            parts.append(cls.apply(by_unit, *one))
        return tuple(map(torch.stack, zip(*parts, strict=True))), (0,) * len(by_unit)


class _Mix(_ByLayer):
    """Bits, alphas and weights to mixed weights."""

    @staticmethod
    def forward(by_unit: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        bits, alphas, weights = _thirds(tensors)
        return tuple(map(implementation(weights[0].device).mix, bits, alphas, weights))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        by_unit = ctx.by_unit
        bits, alphas, weights = _thirds(ctx.saved_tensors)
        _, alphas_learn, weights_learn = map(any, _thirds(ctx.needs_input_grad[1:]))
        to_alphas = to_weights = (None,) * len(by_unit)
        if alphas_learn:
            # Most backward passes are not differentiated again and need no node in a graph.
            run = _Sums.apply if torch.is_grad_enabled() or _transformed() else _Sums.forward
            sums = run(by_unit, *bits, *grads, *weights)
            to_alphas = tuple(s.to(a.dtype) for s, a in zip(sums, alphas, strict=True))
        if weights_learn:
            to_weights = _Mix.apply(by_unit, *bits, *alphas, *grads)
        return None, *(None,) * len(by_unit), *to_alphas, *to_weights


class _PlainMix(torch.autograd.Function):
    """`_Mix` outside of `torch.func` transforms, whose `setup_context` costs 0.03 ms a call."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        _Mix.setup_context(ctx, inputs, None)
        return _Mix.forward(*inputs)

    backward = _Mix.backward


class _Sums(_ByLayer):
    """Bits, left and right factors to their sums under each mask."""

    @staticmethod
    def forward(by_unit: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        bits, left, right = _thirds(tensors)
        return tuple(map(implementation(left[0].device).mask_sums, bits, left, right, by_unit))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        by_unit = ctx.by_unit
        bits, left, right = _thirds(ctx.saved_tensors)
        _, *needed = map(any, _thirds(ctx.needs_input_grad[1:]))
        found: list[Tensor | None] = []
        for factors, others, need in zip((left, right), (right, left), needed, strict=True):
            mixed = _Mix.apply(by_unit, *bits, *grads, *others) if need else (None,) * len(by_unit)
            found += [
                None if each is None else each.to(factor.dtype)
                for each, factor in zip(mixed, factors, strict=True)
            ]
        return None, *(None,) * len(by_unit), *found


def mix_layers(
    bits: Sequence[Tensor], alphas: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """`mix` for every layer of a network at once; one bits, alpha and weight a layer."""
    for packed, alpha, weight in zip(bits, alphas, weights, strict=True):
        _check_bits(packed, weight)
        if alpha.shape not in (packed.shape[:1], packed.shape[:2]):
            raise InputError(
                f"coefficients of shape {tuple(alpha.shape)} do not fit {packed.shape[0]} masks of "
                f"{packed.shape[1]} units; expected ({packed.shape[0]},) or "
                f"{tuple(packed.shape[:2])}"
            )
        _check_device(packed, alpha, weight)
    if _traced(weights[0]):
        return [_mix_op(*each) for each in zip(bits, alphas, weights, strict=True)]
    run = _Mix if _transformed() else _PlainMix
    return list(run.apply(tuple(alpha.dim() == 2 for alpha in alphas), *bits, *alphas, *weights))


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """W ⊙ Σ_t α_t M^t (eq. 1), straight from packed bits.

    bits: (N, units, row_bytes) uint8 as `pack` makes them; alpha: (N,), or (N, units) for
    coefficients per output unit; weight: (units, ...) float32, float16 or bfloat16. Returns a
    tensor like weight, differentiable in alpha and weight. Raises InputError for shapes, types or
    devices that do not belong together.
    """
    return mix_layers([bits], [alpha], [weight])[0]


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool = False) -> Tensor:
    """Σ_j left_j right_j M^t_j for every mask t: (N,) or, if `per_unit`, (N, units), float32.

    left, right: (units, ...) of one shape. The adjoint of `mix` in alpha.
    """
    if left.shape != right.shape:
        raise InputError(f"shapes {tuple(left.shape)} and {tuple(right.shape)} must be equal")
    _check_bits(bits, left)
    _check_device(bits, left, right)
    if _traced(left):
        return _sums_op(bits, left, right, per_unit)
    return _Sums.apply((per_unit,), bits, left, right)[0]


def _traced(tensor: Tensor) -> bool:
    """Whether torch compiles or exports at this moment, with tensors that hold no numbers."""
    return torch.compiler.is_compiling() or type(tensor) not in (Tensor, torch.nn.Parameter)


def _transformed() -> bool:
    """Whether `torch.func` transforms are at work, with tensors that stand for many."""
    return torch._C._are_functorch_transforms_active()


def _thirds(values: Sequence[Value]) -> tuple[Sequence[Value], ...]:
    layers = len(values) // 3
    return values[:layers], values[layers : 2 * layers], values[2 * layers :]


def _check_bits(bits: Tensor, weight: Tensor) -> None:
    # The kernels read by address: bits of another width would send them past the end.
    expected = (weight.shape[0], reference.row_bytes(prod(weight.shape[1:])))
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


@torch.library.custom_op("impresslearn::mix", mutates_args=())
def _mix_op(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    return implementation(weight.device).mix(bits, alpha, weight)


@_mix_op.register_fake
def _(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    return torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)


@torch.library.custom_op("impresslearn::mask_sums", mutates_args=())
def _sums_op(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    return implementation(left.device).mask_sums(bits, left, right, per_unit)


@_sums_op.register_fake
def _(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    shape = bits.shape[:2] if per_unit else bits.shape[:1]
    return torch.empty(shape, dtype=torch.float32, device=left.device)


def _save(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _mix_backward(ctx: Any, grad: Tensor) -> tuple:
    bits, alpha, weight = ctx.saved_tensors
    _, alpha_learns, weight_learns = ctx.needs_input_grad
    sums = _sums_op(bits, grad, weight, alpha.dim() == 2).to(alpha.dtype) if alpha_learns else None
    return None, sums, _mix_op(bits, alpha, grad) if weight_learns else None


def _sums_backward(ctx: Any, grad: Tensor) -> tuple:
    bits, left, right = ctx.saved_tensors
    needed = ctx.needs_input_grad
    to_left = _mix_op(bits, grad, right).to(left.dtype) if needed[1] else None
    to_right = _mix_op(bits, grad, left).to(right.dtype) if needed[2] else None
    return None, to_left, to_right, None


_mix_op.register_autograd(_mix_backward, setup_context=_save)
_sums_op.register_autograd(_sums_backward, setup_context=_save)
