"""Calls a module with other tensors than its parameters, and explains unsuitable inputs.

An error about inputs is one line, raised before the call or made of torch's own message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from impresslearn.data import Inputs
from impresslearn.errors import InputError

Shape = Sequence[int | None]
Reader = Callable[[Any, str], Any]

_INPUT_WORDS = ("shape", "size", "dim", "d input", "channel", "type", "same device", "index out")
"""Words that torch's errors about unsuitable inputs contain."""


def takes_flat(shape: Shape | None) -> bool:
    """Whether inputs of any shape are flattened: the shape is one size."""
    return shape is not None and len(shape) == 1 and shape[0] is not None


def check_batch(name: str, inputs: Tensor | Inputs, wanted: Shape | None) -> None:
    """Raises InputError unless `inputs` is a batch (n, ...) of the network's input shape."""
    if isinstance(inputs, Inputs):
        if wanted is not None:
            raise InputError(f"{name} has an input_shape and takes one tensor, got {inputs}")
        return
    if not isinstance(inputs, Tensor) or inputs.dim() == 0:
        got = "a single number" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise InputError(f"{name} expects a batch of inputs as a tensor, got {got}")
    shape, flat = tuple(inputs.shape[1:]), takes_flat(wanted)
    if wanted is None or (prod(shape) == wanted[0] if flat else _fits(shape, wanted)):
        return
    expected, got = f"{wanted[0]} values per input", f"shape {shape} = {prod(shape)}"
    if not flat:
        sizes = ", ".join("*" if size is None else str(size) for size in wanted)
        expected, got = f"inputs of shape ({sizes})", f"{shape}"
    raise InputError(f"{name} expects {expected}, got {got}{_hint(inputs, wanted)}")


def call(
    name: str,
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    inputs: Tensor | Inputs,
    flat: bool,
) -> Any:
    """What the module returns for inputs, with other tensors than its parameters.

    - `name`: the network's name, for errors.
    - `flat`: whether inputs are flattened.

    Raises InputError for inputs that the module does not take.
    """
    several = inputs if isinstance(inputs, Inputs) else Inputs(inputs)
    if flat:
        several = several.map(lambda tensor: tensor.flatten(1))
    arguments, named = several.arguments, several.named
    try:
        # Not strict: views for batch statistics lack the buffers that others pass in.
        return functional_call(module, dict(tensors), arguments, named, strict=False)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
        if line := _explained(name, error, several):
            raise InputError(line) from error
        raise


@contextmanager
def recorded_inputs(layer: nn.Module) -> Iterator[list[Tensor]]:
    """The first argument of every call of the layer inside the block."""
    calls: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: calls.extend(arguments[:1]))
    try:
        yield calls
    finally:
        hook.remove()


def reader_of_logits(output: Any) -> Reader | None:
    """What takes "logits" out of an output in the style of transformers; None for other outputs."""
    if isinstance(output, Mapping):
        return operator.getitem if "logits" in output else None
    return getattr if hasattr(output, "logits") else None


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return str(error).split("\n", 1)[0]


def _explained(name: str, error: Exception, inputs: Inputs) -> str | None:
    """One line about unsuitable inputs, or None for an error that is about something else."""
    message = first_line(error)
    if isinstance(error, TypeError):
        return f"{name} does not take {inputs}: {message}" if "forward() " in message else None
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in inputs.tensors)
    if "more than 1 value per channel" in message:
        return (
            f"{name} normalises by the batch and needs more than one value a channel; got inputs "
            f"of shape {shapes}, give a larger batch"
        )
    if message.startswith("CUDA") or not any(word in message.lower() for word in _INPUT_WORDS):
        return None
    kinds = ", ".join(str(tensor.dtype) for tensor in inputs.tensors)
    return f"{name} cannot take {kinds} inputs of shape {shapes} on {inputs.device}: {message}"


def _hint(inputs: Tensor, expected: Shape) -> str:
    shape = tuple(inputs.shape)
    if takes_flat(expected):
        if inputs.numel() == expected[0]:
            return "; add a batch dimension"
        return f"; a network for these has in_features={prod(shape[1:])}"
    if _fits(shape, expected):
        return "; add a batch dimension: inputs[None]"
    if len(shape) == len(expected) + 1 > 2 and _fits((shape[-1], *shape[1:-1]), expected):
        order = ", ".join(map(str, (0, len(expected), *range(1, len(expected)))))
        return f"; channels come first: inputs.permute({order})"
    return ""


def _fits(shape: Sequence[int], expected: Shape) -> bool:
    return len(shape) == len(expected) and all(
        wanted is None or size == wanted for size, wanted in zip(shape, expected, strict=True)
    )
