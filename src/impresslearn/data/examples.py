"""Labelled examples, in memory or read anew each epoch, and the tensors that hold their inputs."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from impresslearn.data.labels import label_array, shorten
from impresslearn.errors import InputError

Augmentation = Callable[[Any, torch.Generator], Any]

MEMORY_LIMIT = 4 * 1024**3  # most bytes of inputs, as float32, that are held in memory


class Inputs:
    """The inputs of a network that takes several tensors.

    You can index, split and move `Inputs` like one tensor. It is unpacked into arguments only when
    the network is called. A dictionary of named tensors is accepted wherever `Inputs` is.

    - `tensors`: arguments in order, each (n, ...) for n examples, as in `Inputs(images, ages)`.
    - `named`: arguments by name, as in `Inputs(input_ids=ids, attention_mask=mask)`.
    """

    def __init__(self, /, *tensors: Any, **named: Any) -> None:
        self._tensors: dict[int | str, Tensor] = dict(enumerate(tensors)) | named

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return tuple(self._tensors.values())

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """The tensors without a name, in order."""
        return tuple(tensor for name, tensor in self.items() if isinstance(name, int))

    @property
    def named(self) -> dict[str, Tensor]:
        """The tensors with a name."""
        return {name: tensor for name, tensor in self.items() if isinstance(name, str)}

    def items(self) -> Iterator[tuple[int | str, Tensor]]:
        """Pairs (position or name, tensor), one per argument."""
        return iter(self._tensors.items())

    @classmethod
    def from_items(cls, tensors: Mapping[int | str, Tensor]) -> Inputs:
        """Inputs from tensors by position or name."""
        made = Inputs()
        made._tensors.update(tensors)
        return made

    def map(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        """The same arguments, with a function applied to each tensor."""
        return Inputs.from_items({name: function(tensor) for name, tensor in self.items()})

    def clone(self) -> Inputs:
        """The same arguments with a copy of each tensor."""
        return self.map(torch.clone)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: Any) -> Inputs:
        return self.map(lambda tensor: tensor[index])

    def __repr__(self) -> str:
        forms = [
            f"{name}: {tuple(tensor.shape[1:])} {str(tensor.dtype).removeprefix('torch.')}"
            for name, tensor in self.items()
        ]
        return f"{type(self).__name__}({', '.join(forms)})"

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.tensors[0].device

    def to(self, *targets: Any, **options: Any) -> Inputs:
        """Like `Tensor.to`, but a floating-point dtype converts only floating-point tensors."""
        # So token ids stay integers when all inputs get the network's dtype.
        places = [target for target in targets if not isinstance(target, torch.dtype)]
        floats = [target for target in targets if target in places or target.is_floating_point]

        def moved(tensor: Tensor) -> Tensor:
            chosen = floats if tensor.is_floating_point() else places
            return tensor.to(*chosen, **options) if chosen else tensor

        return self.map(moved)

    def split(self, sizes: Sequence[int]) -> list[Inputs]:
        """Consecutive parts with these numbers of rows."""
        ends = accumulate(sizes)
        return [self[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def index_select(self, dim: int, index: Tensor) -> Inputs:
        """As `Tensor.index_select`; dim is 0."""
        return self.map(lambda tensor: tensor.index_select(dim, index))


class Features(Inputs):
    """Features of inputs, from `ImpressLearner.features`. Index, slice and move it like a tensor.

    - `values`: (n, f) float, the inputs of the head under each set of weights, side by side.
    - `inputs`: the n prepared inputs that the features were computed from.
    - `network`: the fingerprint of the frozen network.
    - `keys`: one for each set of weights (frozen or masked), in the order of `values`.
    - `form`: the type and shape of the raw inputs, which a first task keeps in its history.
    """

    def __init__(
        self,
        values: Tensor,
        inputs: Tensor | Inputs,
        network: str,
        keys: Sequence[Hashable],
        form: Mapping[str, Any],
    ) -> None:
        super().__init__(values=values)
        self.values, self.inputs = values, inputs
        self.network, self.keys, self.form = network, tuple(keys), form

    def map(self, function: Callable[[Tensor], Tensor]) -> Features:
        """The same features and inputs, with a function applied to each tensor."""
        inputs = self.inputs
        mapped = inputs.map(function) if isinstance(inputs, Inputs) else function(inputs)
        return Features(function(self.values), mapped, self.network, self.keys, self.form)

    def of(self, keys: Sequence[Hashable] | None) -> list[Tensor]:
        """The features (n, f) of each of these keys. Raises InputError if a key is missing."""
        if keys is None or not set(keys) <= set(self.keys):
            raise InputError(
                "these features are not what the task reads: it has weights of its own, or the "
                "features were computed under other masks; give the inputs, or compute them again"
            )
        parts = dict(zip(self.keys, self.values.chunk(len(self.keys), dim=1), strict=True))
        return [parts[key] for key in keys]


def inputs_behind(inputs: Tensor | Inputs) -> Tensor | Inputs:
    """The inputs that `Features` were computed from; other inputs as they are."""
    return inputs.inputs if isinstance(inputs, Features) else inputs


def one_tensor(inputs: Tensor | Inputs) -> Tensor:
    """Returns inputs that are a single tensor. Raises InputError for several tensors."""
    if isinstance(inputs, Inputs):
        line = "give the tensor alone, or il.Prepared(data) to a network of several inputs"
        raise InputError(f"the learner takes one tensor or table, got {inputs}; {line}")
    return inputs


@dataclass(frozen=True, repr=False)
class Examples:
    """Inputs and labels held in memory.

    - `inputs`: (n, ...) floating point, or several tensors.
    - `labels`: (n,) array of integers or strings.
    - `augment`: a function of (batch, generator), for training batches only, which draws from it.
    - `pixels`: whether the inputs were uint8 before they were scaled to [0, 1].
    - `integers`: whether the inputs were integers of another type before.
    - `columns`: the names of the inputs' columns; empty if they have none.
    """

    inputs: Tensor | Inputs
    labels: np.ndarray
    augment: Augmentation | None = None
    pixels: bool = False
    integers: bool = False
    columns: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        one = repr(self.inputs) if isinstance(self.inputs, Inputs) else tuple(self.inputs.shape[1:])
        classes = len(np.unique(self.labels))
        return f"Examples({len(self):,} inputs of {one}, {classes} classes)"

    def subset(self, indices: Sequence[int] | np.ndarray | Tensor) -> Examples:
        """The examples at these positions, in this order, or where a mask (n,) is True."""
        places = _places(indices, len(self))
        return replace(self, inputs=self.inputs_at(places), labels=self.labels[places])

    def inputs_at(self, indices: np.ndarray) -> Tensor | Inputs:
        """The inputs at these positions."""
        return self.inputs[torch.from_numpy(indices)]


@dataclass(frozen=True, repr=False)
class StreamedExamples:
    """Examples of a `Dataset` that does not fit in memory, or whose inputs are drawn at random.

    - `dataset`: pairs (input, label), read anew each epoch.
    - `labels`: (n,) array of the labels, which were read once in advance.
    - `workers`: the number of processes that read; 0 (default) reads in this process.
    - `pixels`, `augment`: as for `Examples`.
    - `steps`: functions that are applied in turn to a batch of raw inputs (n, ...).
    """

    dataset: Dataset
    labels: np.ndarray
    workers: int = 0
    pixels: bool = False
    augment: Augmentation | None = None
    steps: tuple[Callable[[Tensor], Any], ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        classes, kind = len(np.unique(self.labels)), type(self.dataset).__name__
        return f"StreamedExamples({len(self):,} inputs of a {kind}, {classes} classes)"

    def subset(self, indices: Sequence[int] | np.ndarray | Tensor) -> StreamedExamples:
        """The examples at these positions, in this order, or where a mask (n,) is True."""
        places = _places(indices, len(self))
        part = Subset(self.dataset, places.tolist())
        return replace(self, dataset=part, labels=self.labels[places])

    def inputs_at(self, indices: np.ndarray) -> Tensor:
        """Reads the inputs at these positions; random transforms are the same in each call."""
        with drawing(0):
            return self.prepared(torch.stack([raw(self.dataset[int(i)][0]) for i in indices]))

    def prepared(self, inputs: Tensor) -> Tensor:
        """Turns a batch that was read into inputs of the network, by `steps` and `as_inputs`."""
        for step in self.steps:
            inputs = step(inputs)
        return as_inputs(inputs)


def _places(indices: Sequence[int] | np.ndarray | Tensor, length: int) -> np.ndarray:
    # NumPy would turn an empty list into floats, which cannot index an array.
    chosen = np.asarray(indices, dtype=None if len(indices) else np.int64)
    return np.arange(length)[chosen]


def raw(values: Any) -> Tensor:
    """Values as a tensor of the same dtype. Raises InputError for anything but numbers."""
    kind, is_tensor = type(values).__name__, isinstance(values, Tensor)
    several = isinstance(values, (Mapping, Inputs, Dataset, DataLoader))
    if several or (hasattr(values, "column_names") and hasattr(values, "with_format")):
        raise InputError(
            f"inputs must be one tensor, array or table without their labels, got {kind}; give one "
            "column of a data set, as data['x'], or all rows of several inputs, as {'x': X, 'z': Z}"
        )
    if is_tensor and values.is_meta:
        raise InputError("inputs are a tensor on meta, which holds no values; give the real tensor")
    if is_tensor:
        odd = values.is_quantized or values.is_nested or values.layout != torch.strided
    else:  # NumPy would ignore the mask of a masked array
        odd = isinstance(values, np.ma.MaskedArray) or hasattr(values, "toarray")
    if odd:
        raise InputError(
            f"inputs must be dense and complete, got a {kind} that is sparse, masked, quantized "
            "or nested; convert it, as by .to_dense(), .toarray(), .filled(0) or .dequantize()"
        )
    if is_tensor:
        if not values.is_inference():
            return values.detach()
        with torch.inference_mode(False):  # a copy that training can use
            return values.clone()
    if hasattr(values, "getbands"):  # one Pillow image
        return raw([values])[0]
    values = as_table(values)
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):
        values = _numbers_of_table(values)
    elif getattr(values, "dtype", None) == np.dtype(object):
        values = values.tolist()  # such as a column of images or arrays
    if isinstance(values, Sequence) and len(values) and hasattr(values[0], "getbands"):
        values = pixels_of_images(values, all(image.getbands() == ("L",) for image in values))
    try:
        if isinstance(values, (list, tuple)) and values and isinstance(values[0], Tensor):
            return raw(torch.stack(list(values)))
        # Copies arrays whose memory torch cannot share, such as read-only ones.
        array = np.require(values, requirements=["C", "W"])
        if array.dtype == np.longdouble:  # torch has no such type
            array = array.astype(np.float64)
        if array.dtype.kind in "biufc":
            return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
        held = f" of {type(array.flat[0]).__name__.strip('_')}" if array.ndim and array.size else ""
    except (TypeError, ValueError, RuntimeError):
        held = " whose parts are not numbers or differ in shape"
    if held == " of str" and array.ndim == 1:
        line = "give the learner il.Preprocessing(tokenizer=…), or `new` --prepare tokenizer=…"
        raise InputError(f"these inputs are text; {line}")
    line = f"inputs must be a numeric tensor or array, without labels, got {kind}{held}"
    raise InputError(f"{line}; load files and make numbers of words first") from None


def as_table(values: Any) -> Any:
    """An Arrow table as a DataFrame, whose index is not a column. Other values as they are."""
    of_arrow = hasattr(values, "column_names") and hasattr(values, "to_pandas")
    return values.to_pandas() if of_arrow and not hasattr(values, "with_format") else values


def upright(image: Any) -> Any:
    """A Pillow image, upright by its EXIF tag. Raises InputError above 8 bits per channel."""
    from PIL import ImageOps

    if image.mode.startswith(("I", "F")):  # Pillow would clip values above 255
        raise InputError("an image has more than 8 bits a channel; save it with 8")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # else Pillow warns when it converts to RGB
    return ImageOps.exif_transpose(image)


def pixels_of_images(images: Sequence[Any], grey: bool, size: int | None = None) -> np.ndarray:
    """Pillow images as uint8 (n, c, h, w), grey or RGB. size: crop and resize to such a square."""
    from PIL import Image, ImageOps

    pixels = []
    for image in images:
        converted = upright(image).convert("L" if grey else "RGB")
        if size:
            # `fit` crops and resizes in one step, so a long, narrow image takes no more memory.
            converted = ImageOps.fit(converted, (size, size), Image.Resampling.BILINEAR)
        pixels.append(np.asarray(converted))
    shapes = sorted({array.shape[:2] for array in pixels})
    if len(shapes) > 1:
        raise InputError(
            f"images must have one size, got {shapes[0]} and {shapes[-1]}; resize them"
        )
    stacked = np.stack(pixels).reshape(len(pixels), *shapes[0], -1)
    return stacked.transpose(0, 3, 1, 2)


def _numbers_of_table(table: Any) -> np.ndarray:
    """The numbers of a DataFrame. Raises InputError, which names a cell that is not a number."""
    numbers = [name for name in table.columns if isinstance(name, int)]
    if numbers != sorted(numbers) == list(range(len(table.columns))):
        shown = ", ".join(map(str, numbers[:8]))
        raise InputError(f"columns are numbered {shown}, in no order; use table.sort_index(axis=1)")
    values = table.to_numpy()
    if values.dtype.kind in "biufc":
        return values
    # Columns of several types, such as booleans and numbers that may be missing.
    columns = []
    for name, cells in zip(table.columns, values.T, strict=True):
        try:
            if cells.dtype.kind in "mM" or any(isinstance(cell, str) for cell in cells):
                raise TypeError
            columns.append(cells.astype(np.float64))
        except (TypeError, ValueError):
            row = next((row for row, cell in enumerate(cells) if not is_number(cell)), 0)
            raise InputError(
                f"row {row + 1}, column {shorten(str(name))!r} holds {shorten(str(cells[row]))!r}, "
                "expected a number and no text; fill what is missing, and encode words, dates and "
                "categories as numbers, as with pandas.get_dummies; sentences need "
                "il.Preprocessing(tokenizer=…)"
            ) from None
    return np.stack(columns, axis=1)


def is_number(value: Any) -> bool:
    """Whether a cell is a number other than NaN, or text that can be read as such a number."""
    try:
        return not math.isnan(float(value))
    except (TypeError, ValueError):
        return False


def as_inputs(values: Any) -> Tensor:
    """Inputs as a float tensor: uint8 pixels are scaled to [0, 1], other numbers become float32.

    float16 and bfloat16 stay. Raises InputError unless inputs are finite numbers (n, ...).
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
    # The sum needs no mask as large as the data. If it is finite, so are all values. If not, the
    # sum may just have overflowed, so count the values that are not finite.
    if not torch.isfinite(tensor.sum()) and (bad := int((~torch.isfinite(tensor)).sum())):
        line = "inputs hold values that are NaN, infinite or too large for float32"
        raise InputError(f"{line} ({bad} of {tensor.numel()}); clean or scale them first")
    return tensor


def as_network_inputs(values: Any) -> Tensor | Inputs:
    """Applies `as_inputs` to one tensor, or to the float tensors of a dictionary or `Inputs`.

    Other tensors of a dictionary or `Inputs`: booleans stay, and integers become int64. Raises
    InputError for uint8 among them, because uint8 may mean ids or pixels.
    """
    if isinstance(values, Mapping):
        values = Inputs(**values)
    if not isinstance(values, Inputs):
        tensor, pixels, _ = to_tensor_and_dtype_kind(values)
        check_levels(tensor, pixels)
        return tensor
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


def to_tensor_and_dtype_kind(values: Any) -> tuple[Any, bool, bool]:
    """(`as_network_inputs`, whether the values are uint8, whether they are other integers)."""
    if isinstance(values, (Mapping, Inputs)):
        return as_network_inputs(values), False, False
    tensor = raw(values)
    pixels = tensor.dtype == torch.uint8
    floats = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool
    return as_inputs(tensor), pixels, not floats and not pixels


def check_levels(values: Any, pixels: bool) -> None:
    """Raises InputError for uint8 inputs of only 0 and 1: they may be flags or dark pixels."""
    if pixels and values is not None and values.numel() and 0 < float(values.max()) < 1.5 / 255:
        line = "uint8 is read as pixels, but these are only 0 and 1; give flags as float32, ids as"
        raise InputError(f"{line} int64; dark images need il.Preprocessing(pixels=True)")


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Seeds the global generators of torch, NumPy and Python for a while, then restores them."""
    saved = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
    try:
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        yield
    finally:
        torch.default_generator.set_state(saved[0])
        np.random.set_state(saved[1])
        random.setstate(saved[2])


def draws() -> tuple[float, ...]:
    """The next number of each global generator."""
    return float(torch.rand((), device="cpu")), float(np.random.random()), random.random()


def data_fingerprint(examples: Examples | StreamedExamples) -> str:
    """The SHA-256 of inputs and labels in their order, as 64 hexadecimal digits.

    For `StreamedExamples` it covers only the labels, because reading all inputs takes an epoch.
    """
    labels = label_array(examples.labels)
    inputs = examples.inputs if isinstance(examples, Examples) else Inputs()
    tensors = dict(inputs.items() if isinstance(inputs, Inputs) else [("", inputs)])
    kind = [type(examples).__name__]
    kind += [f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items()]
    digest = hashlib.sha256(json.dumps([kind, labels.tolist()]).encode())
    for tensor in tensors.values():
        digest.update(bytes_of(tensor))
    return digest.hexdigest()


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, as in torch's memory."""
    # Viewed as uint8, because NumPy has no bfloat16.
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
