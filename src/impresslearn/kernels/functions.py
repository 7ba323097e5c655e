"""Differentiable mixing of masks into weights, for one layer or all layers of a network at once.

An operator call costs some 50 µs, as much as mixing a small layer, so eager code runs all layers in
one autograd function that calls the kernels directly (docs/decisions.md has the figures). The two
functions are each other's derivative, and batch over tasks under `vmap`. While torch compiles or
exports, the registered operators stand in for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from impresslearn.errors import InputError
from impresslearn.kernels import ops
from impresslearn.kernels.layout import row_bytes


class _Mix(torch.autograd.Function):
    """Layers' bits, alphas and weights, one after another, to their mixed weights."""

    @staticmethod
    def forward(layers: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        bits, alphas, weights = _thirds(layers, tensors)
        kernels = ops.implementation(weights[0].device)
        return tuple(map(kernels.mix, bits, alphas, weights))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.layers = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        layers = ctx.layers
        bits, alphas, weights = _thirds(layers, ctx.saved_tensors)
        to_alphas = to_weights = (None,) * layers
        if any(ctx.needs_input_grad[1 + layers : 1 + 2 * layers]):
            by_unit = tuple(alpha.dim() == 2 for alpha in alphas)
            # Most backward passes are not differentiated again and need no node in a graph.
            run = _Sums.apply if torch.is_grad_enabled() or _transformed() else _Sums.forward
            sums = run(layers, by_unit, *bits, *grads, *weights)
            to_alphas = tuple(s.to(a.dtype) for s, a in zip(sums, alphas, strict=True))
        if any(ctx.needs_input_grad[1 + 2 * layers :]):
            to_weights = _Mix.apply(layers, *bits, *alphas, *grads)
        return None, *(None,) * layers, *to_alphas, *to_weights

    @staticmethod
    def vmap(info: Any, in_dims: tuple, layers: int, *tensors: Tensor) -> tuple:
        parts = [
            _Mix.apply(layers, *_slices(tensors, in_dims[1:], index))
            for index in range(info.batch_size)
        ]
        return _stacked(parts), (0,) * layers


class _PlainMix(torch.autograd.Function):
    """`_Mix` outside of `torch.func` transforms, whose `setup_context` costs 0.03 ms a call."""

    @staticmethod
    def forward(ctx: Any, layers: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.layers = layers
        ctx.save_for_backward(*tensors)
        return _Mix.forward(layers, *tensors)

    backward = _Mix.backward


class _Sums(torch.autograd.Function):
    """Layers' bits, left and right factors, one after another, to their sums under each mask."""

    @staticmethod
    def forward(layers: int, by_unit: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        bits, left, right = _thirds(layers, tensors)
        kernels = ops.implementation(left[0].device)
        return tuple(map(kernels.mask_sums, bits, left, right, by_unit))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.layers = inputs[0]
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        layers = ctx.layers
        bits, left, right = _thirds(layers, ctx.saved_tensors)
        to_left = to_right = (None,) * layers
        if any(ctx.needs_input_grad[2 + layers : 2 + 2 * layers]):
            mixed = _Mix.apply(layers, *bits, *grads, *right)
            to_left = tuple(m.to(x.dtype) for m, x in zip(mixed, left, strict=True))
        if any(ctx.needs_input_grad[2 + 2 * layers :]):
            mixed = _Mix.apply(layers, *bits, *grads, *left)
            to_right = tuple(m.to(x.dtype) for m, x in zip(mixed, right, strict=True))
        return None, None, *(None,) * layers, *to_left, *to_right

    @staticmethod
    def vmap(info: Any, in_dims: tuple, layers: int, by_unit: Any, *tensors: Tensor) -> tuple:
        parts = [
            _Sums.apply(layers, by_unit, *_slices(tensors, in_dims[2:], index))
            for index in range(info.batch_size)
        ]
        return _stacked(parts), (0,) * layers


def mix_layers(
    bits: Sequence[Tensor], alphas: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """`mix` for every layer of a network at once; one bits, alpha and weight a layer."""
    for each in zip(bits, alphas, weights, strict=True):
        _check_mix(*each)
    if _traced(weights[0]):
        return [ops.mix_op(*each) for each in zip(bits, alphas, weights, strict=True)]
    run = _Mix if _transformed() else _PlainMix
    return list(run.apply(len(bits), *bits, *alphas, *weights))


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """W ⊙ Σ_t α_t M^t (eq. 1), straight from packed bits.

    bits: (N, units, row_bytes) uint8 as `layout.pack` makes them; alpha: (N,), or (N, units) for
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
        return ops.mask_sums_op(bits, left, right, per_unit)
    return _Sums.apply(1, (per_unit,), bits, left, right)[0]


def _traced(tensor: Tensor) -> bool:
    """Whether torch compiles or exports at this moment, with tensors that hold no numbers."""
    return torch.compiler.is_compiling() or type(tensor) not in (Tensor, torch.nn.Parameter)


def _transformed() -> bool:
    """Whether `torch.func` transforms are at work, with tensors that stand for many."""
    return torch._C._are_functorch_transforms_active()


def _thirds(layers: int, tensors: Sequence[Tensor]) -> tuple[Sequence[Tensor], ...]:
    return tensors[:layers], tensors[layers : 2 * layers], tensors[2 * layers :]


def _slices(tensors: Sequence[Tensor], dims: Sequence[int | None], index: int) -> list[Tensor]:
    return [
        tensor if dim is None else tensor.select(dim, index)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]


def _stacked(parts: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    return tuple(torch.stack(each) for each in zip(*parts, strict=True))


def _check_mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> None:
    _check_bits(bits, weight)
    if alpha.shape not in ((bits.shape[0],), (bits.shape[0], bits.shape[1])):
        raise InputError(
            f"coefficients of shape {tuple(alpha.shape)} do not fit {bits.shape[0]} masks of "
            f"{bits.shape[1]} units; expected ({bits.shape[0]},) or {tuple(bits.shape[:2])}"
        )
    _check_device(bits, alpha, weight)


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
