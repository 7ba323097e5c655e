"""Labelled examples, held in memory or read anew each epoch, and the numbers they consist of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from impresslearn.data.inputs import Inputs
from impresslearn.data.labels import label_array
from impresslearn.data.random_state import drawing
from impresslearn.errors import InputError
from impresslearn.files import reason_of

Augmentation = Callable[[Any, torch.Generator], Any]

MEMORY_LIMIT = 4 * 1024**3
"""Bytes of inputs, as float32, up to which data are held in memory."""
EXACT = 2**24
"""Whole numbers up to here are themselves in float32."""


@dataclass(frozen=True, repr=False)
class Examples:
    """Inputs and labels held in memory.

    inputs: (n, ...) floating point, float64 where float32 would round what was given and nothing
    has been subtracted yet, or several tensors; labels: (n,) array of integers or strings;
    augment: a function of (batch, generator) applied to training batches only, whose draws all come
    from that generator; pixels: whether the inputs came as uint8 pixels, scaled to [0, 1] here;
    integers: whether they came as integers of another type.
    """

    inputs: Tensor | Inputs
    labels: np.ndarray
    augment: Augmentation | None = None
    pixels: bool = False
    integers: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        one = repr(self.inputs) if isinstance(self.inputs, Inputs) else tuple(self.inputs.shape[1:])
        classes = len(np.unique(self.labels))
        return f"Examples({len(self):,} inputs of {one}, {classes} classes)"

    def subset(self, indices: Sequence[int] | np.ndarray | Tensor) -> Examples:
        """The examples at these positions, in this order, or those where a mask (n,) is True."""
        index = torch.as_tensor(_places(indices, len(self)), dtype=torch.long)
        return replace(self, inputs=self.inputs[index], labels=self.labels[index.numpy()])

    def inputs_at(self, indices: np.ndarray) -> Tensor | Inputs:
        """The inputs at these positions."""
        return self.inputs[torch.from_numpy(indices)]


@dataclass(frozen=True, repr=False)
class StreamedExamples:
    """Examples of a `Dataset` that does not fit in memory, or draws: it is read anew each epoch.

    labels: those that one reading gave; workers: processes that read; pixels, augment: as of
    `Examples`.
    """

    dataset: Dataset
    labels: np.ndarray
    workers: int = 0
    pixels: bool = False
    augment: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        classes, kind = len(np.unique(self.labels)), type(self.dataset).__name__
        return f"StreamedExamples({len(self):,} inputs of a {kind}, {classes} classes)"

    def subset(self, indices: Sequence[int] | np.ndarray | Tensor) -> StreamedExamples:
        """The examples at these positions, in this order, or those where a mask (n,) is True."""
        places = _places(indices, len(self))
        part = Subset(self.dataset, places.tolist())
        return replace(self, dataset=part, labels=self.labels[places])

    def inputs_at(self, indices: np.ndarray) -> Tensor:
        """The inputs at these positions, read now; the same at each call if torch, numpy or Python
        draws them."""
        with drawing(0):
            return as_inputs(torch.stack([raw(self.dataset[int(i)][0]) for i in indices]))


def _places(indices: Sequence[int] | np.ndarray | Tensor, length: int) -> np.ndarray:
    """Positions, or those where a mask of this length is True. Raises InputError for others."""
    places = np.asarray(indices)
    if places.dtype == bool and places.shape == (length,):
        places = np.flatnonzero(places)
    if places.dtype.kind not in "iu" and places.size:
        raise InputError(
            f"indices must be integers, or one boolean an example, got {places.dtype} of shape "
            f"{places.shape}"
        )
    return places.astype(np.int64)


def raw(values: Any) -> Tensor:
    """Values as a tensor of their own type. Raises InputError for values that are no numbers."""
    if isinstance(values, (Mapping, Inputs)):
        raise InputError(
            "several inputs an example are held as a dictionary of tensors (n, ...) or as Inputs; "
            "a Dataset, a file or a preprocessing gives one tensor"
        )
    if isinstance(values, Tensor) and values.layout != torch.strided:
        raise InputError("inputs are a sparse tensor; make it dense, .to_dense()")
    if hasattr(values, "toarray") and hasattr(values, "nnz"):  # SciPy's
        raise InputError("inputs are a sparse matrix; make it dense, .toarray()")
    if isinstance(values, np.ma.MaskedArray):
        raise InputError("inputs are a masked array; fill what is missing, .filled(0) say")
    try:
        if isinstance(values, (list, tuple)) and values and isinstance(values[0], Tensor):
            values = torch.stack(list(values))
        if isinstance(values, Tensor):
            return values.detach() if values.requires_grad else values
        array = np.asarray(values)
        if not array.dtype.isnative:  # bytes in the order of another machine
            array = array.astype(array.dtype.newbyteorder("="))
        # What torch cannot share, or would share with a warning, such as the values of a table.
        own = any(stride < 0 for stride in array.strides)
        own |= not (array.flags.writeable or isinstance(array, np.memmap))
        return torch.as_tensor(array.copy() if own else array)
    except (TypeError, ValueError, RuntimeError) as error:
        given = f"{type(values).__name__}: {reason_of(error)}"
        raise InputError(f"inputs must be a numeric tensor or array, got {given}") from None


def as_inputs(values: Any) -> Tensor:
    """(n, ...) inputs as a float tensor: uint8 pixels are scaled to [0, 1], others become float32.

    Half precision stays as it is. Raises InputError for values that are no numbers, for NaN or
    infinite ones, for a single number, and for a shape of which no input holds a number (n may
    be 0).
    """
    tensor = raw(values)
    if not tensor.dim():
        raise InputError("inputs must be one per example, shape (n, ...), got a single number")
    if 0 in tensor.shape[1:]:
        raise InputError(f"inputs of shape {tuple(tensor.shape)} hold no number")
    if tensor.dtype == torch.uint8:
        return tensor.float() / 255
    if tensor.is_complex():
        raise InputError("inputs must be real numbers, got complex ones")
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        tensor = tensor.float()
    # One reduction instead of a mask as large as the data: a sum is finite unless a value is not
    # (or the sum overflows, which the exact check then settles).
    if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
        bad = int((~torch.isfinite(tensor)).sum())
        raise InputError(f"inputs hold {bad} NaN or infinite values; clean them first")
    return tensor


def as_network_inputs(values: Any) -> Tensor | Inputs:
    """`as_inputs`, or of a dictionary or `Inputs` each tensor: integers and booleans are kept.

    Raises InputError as that, for none, for different numbers of rows, and for uint8, which could
    be ids as well as pixels.
    """
    if isinstance(values, Mapping):
        if not all(isinstance(name, str) for name in values):
            raise InputError(f"the names of inputs must be strings, got {list(values)}")
        values = Inputs(**values)
    if not isinstance(values, Inputs):
        return as_inputs(values)
    checked = values.map(_one_of_several)
    rows = sorted(set(map(len, checked.tensors)))
    if len(rows) != 1:
        raise InputError(f"several inputs need one row an example each, got {rows or 'none'}")
    return checked


def _one_of_several(values: Any) -> Tensor:
    tensor = raw(values)
    if tensor.dtype == torch.uint8:
        raise InputError("among several inputs give ids as int64 and pixels as floats, not uint8")
    if tensor.is_floating_point() or tensor.is_complex() or not tensor.dim():
        return as_inputs(tensor)
    return tensor if tensor.dtype == torch.bool else tensor.long()


def with_kind(values: Any) -> tuple[Tensor, bool, bool]:
    """`as_inputs`, and whether the values are uint8, or integers of another type.

    float64 stays as it is, and integers that float32 would round become it: what varies in a column
    of time stamps is left only if the mean is subtracted first.
    """
    given = raw(values)
    integers = not (given.is_floating_point() or given.is_complex() or given.is_quantized)
    pixels = given.dtype == torch.uint8
    integers = integers and not pixels and given.dtype != torch.bool
    rounded = as_inputs(given)
    large = integers and rounded.numel() > 0 and float(rounded.abs().max()) >= EXACT
    kept = given.double() if large or given.dtype == torch.float64 else rounded
    return kept, pixels, integers


def pair(inputs: Any, labels: Any) -> Examples:
    """Inputs and labels that belong together by their positions."""
    if isinstance(inputs, (Mapping, Inputs)):
        return Examples(as_network_inputs(inputs), label_array(labels))
    values, pixels, integers = with_kind(inputs)
    return Examples(values, label_array(labels), None, pixels, integers)


def data_fingerprint(examples: Examples | StreamedExamples) -> str:
    """The SHA-256 of a data set, as 64 hexadecimal digits.

    It covers type, shape and bytes of inputs and labels, in their order; an augmentation is left
    out, and float64 counts as float32, which networks take. Of `StreamedExamples` it covers the
    labels and their number only, as to read all inputs would take an epoch. A data set in memory
    never has the digest of a streamed one.
    """
    labels = label_array(examples.labels)
    kind: dict[str, Any] = {
        "kind": type(examples).__name__,
        "labels": labels.dtype.kind,
        "count": len(labels),
    }
    content: list[Any] = []
    if isinstance(examples, Examples):
        inputs = examples.inputs
        if isinstance(inputs, Inputs):
            tensors = inputs.tensors
            kind["inputs"] = [[str(name), _form(each)] for name, each in inputs.items()]
        else:
            inputs = inputs.float() if inputs.dtype == torch.float64 else inputs
            tensors = (inputs,)
            kind |= _form(inputs)
        flat = (each.detach().cpu().contiguous().reshape(-1) for each in tensors)
        content = [each.view(torch.uint8).numpy().data for each in flat]
    digest = hashlib.sha256(json.dumps(kind, sort_keys=True).encode())
    for values in content:
        digest.update(values)
    # The same bytes for equal labels, whatever the width of their array's type.
    texts = labels.dtype.kind == "U"
    digest.update(json.dumps(labels.tolist()).encode() if texts else labels.astype("<i8").tobytes())
    return digest.hexdigest()


def _form(inputs: Tensor) -> dict[str, Any]:
    return {"dtype": str(inputs.dtype), "shape": list(inputs.shape)}
