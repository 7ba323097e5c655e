"""Shapes, scales and normalises raw inputs before the network sees them.

A learner and its store keep one `Preprocessing` beside the network, apply it wherever inputs come
in, and put it into every export, so that the same raw inputs get the same labels everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import (
    check_flag,
    check_integer,
    check_name,
    check_number,
    clear_calls,
    composed,
)
from impresslearn.data.examples import (
    Examples,
    Inputs,
    StreamedExamples,
    as_inputs,
    as_table,
    one_tensor,
    pixels_of_images,
    raw,
    to_tensor_and_dtype_kind,
)
from impresslearn.data.text import checked_tokenizer, tokens_of
from impresslearn.errors import InputError

Numbers = float | Sequence[float]
# A column whose largest value is below this share of the table's largest has a smaller scale.
SCALE_RATIO = 0.1
# How far pixels may lie beyond their range, after resampling for example.
RANGE_TOLERANCE = 1e-3
ROUNDING = 1e-13  # a spread below this share of a mean is rounding of sums
FAR = 1e-3  # a spread below this share of a mean needs all digits of the mean
SMALLEST_STD = 1e-30  # a smaller one would make infinite inputs of ordinary ones
FLOAT_STEP = torch.finfo(torch.float32).eps
LARGEST_SIZE = 8192  # pixels per side that images are resized to at most


@dataclass(frozen=True)
class Prepared:
    """Inputs, or labelled data, that a learner takes as they are, without its preprocessing."""

    data: Any


@clear_calls
@dataclass(frozen=True)
class Preprocessing:
    """A shape, a scale and a normalisation of raw inputs, the same for all tasks of a learner.

    - `shape`: of one input. Flat inputs are folded to it, others flattened; sizes of 1 come and go;
      (h, w, c) becomes (c, h, w). None (the default) leaves inputs as they are.
    - `mean`, `std`: subtracted and divided by last; one number, or one per channel (per column of
      flat inputs). 0 and 1 by default.
    - `size`: of image files. The shorter side is resized to this number of pixels, then the centre
      square kept. None by default.
    - `pixels`: True for integers from 0 to 255, which are scaled to [0, 1], and floats in [0, 1];
      False for other numbers, so that uint8 is refused; None (the default) scales uint8 only.
    - `columns`: names of a table's columns in the order of the inputs. DataFrames and files with
      these names may have them in any order. None by default.
    - `tokenizer`: of text: the path of a tokenizer.json, its content or a `tokenizers.Tokenizer`.
      Inputs are then a list or one column of sentences, which a network takes as the arguments
      `input_ids` and `attention_mask`. None by default.
    - `max_length`: tokens of a sentence, after which it is cut; by default as the tokenizer says,
      else 512.

    Raises InputError for sizes out of range, numbers that are not finite, and a std below 1e-30.
    """

    shape: Sequence[int] | None = None
    mean: Numbers = 0.0
    std: Numbers = 1.0
    size: int | None = None
    pixels: bool | None = None
    columns: Sequence[str] | None = field(default=None, repr=False, compare=False)
    tokenizer: Any = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "mean": _numbers("mean", self.mean),
            "std": _numbers("std", self.std),
        }
        if self.shape is not None:
            lengths = _items("shape", self.shape, "[1, 28, 28]")
            checked["shape"] = tuple(check_integer("a size in shape", each, 1) for each in lengths)
        if self.size is not None:
            checked["size"] = check_integer("size", self.size, 1, LARGEST_SIZE + 1)
        if self.pixels is not None:
            checked["pixels"] = check_flag("pixels", self.pixels)
        if self.columns is not None:
            names = _items("columns", self.columns, '["age", "weight"]')
            checked["columns"] = tuple(check_name(name, "a column") for name in names)
        if self.tokenizer is not None:
            scaled = checked["mean"] != 0 or checked["std"] != 1
            if scaled or checked.keys() & {"shape", "size"}:
                raise InputError("text has no shape, mean, std or size; leave them out")
            checked["tokenizer"] = checked_tokenizer(self.tokenizer, self.max_length)
        elif self.max_length is not None:
            raise InputError("max_length is the tokens of a sentence; give a tokenizer, too")
        vars(self).update(checked)

    @classmethod
    def standardising(cls, data: Any, **settings: Any) -> Preprocessing:
        """A preprocessing whose mean and standard deviation are measured on raw inputs.

        Where columns of flat inputs, or channels of others, differ in scale, each gets its own.

        - `data`: inputs (n, ...) or `Examples`.
        - `settings`: shape, size, pixels, columns. By default `pixels` is True for uint8, and
          `columns` are the names of a table.

        Raises InputError if all inputs are the same, for a column whose changes float32 cannot hold
        beside its mean, and for streamed data.
        """
        if isinstance(data, StreamedExamples):
            raise InputError(
                "the data are too large to measure their mean and standard deviation; give them"
            )
        if hasattr(data, "__len__") and not len(data):
            raise InputError("the data hold no example")
        if not settings.keys() <= {"shape", "size", "pixels", "columns"}:
            raise InputError("mean and std are measured: set only shape, size, pixels, columns")
        # Columns of one name cannot be distinguished, so their order is not kept.
        names = names_of(data)
        if names and len(set(names)) == len(names):
            settings.setdefault("columns", names)
        if isinstance(data, Examples):
            inputs, pixels, integers = data.inputs, data.pixels, data.integers
        else:
            ordered = cls(**{**settings, "pixels": None}).ordered(data)
            inputs, pixels, integers = to_tensor_and_dtype_kind(ordered)
            _check_precision(raw(ordered))
        made = cls(**{"pixels": pixels, **settings})
        values = made.prepare(inputs, pixels, integers).double()
        std, mean = torch.std_mean(values, correction=0)
        if not std > ROUNDING * mean.abs():
            raise InputError(f"all inputs are {mean:g}; they cannot be standardised")
        # Rows of an image look like channels (n, channels, time), but pixels have one scale.
        low, high = map(float, values.aminmax())
        one_scale = values.dim() > 2 and (pixels or made.pixels or (low >= 0 and high <= 1))
        columns = values.reshape(-1, 1)
        if not one_scale and values.dim() > 1:
            channels = values.movedim(1, -1).flatten(0, -2)
            largest = channels.abs().amax(dim=0)
            # A quarter of the columns, or the smallest of a few.
            small = largest.quantile(0.25, interpolation="lower")
            columns = channels if small < SCALE_RATIO * largest.max() else columns
        stds, means = torch.std_mean(columns, dim=0, correction=0)
        # A column that does not vary here, but for rounding, is measured by its value.
        varies = stds > FLOAT_STEP * means.abs()
        stds = torch.where(varies, stds, torch.where(means == 0, 1.0, means.abs()))
        digits = 9 if columns.shape[1] > 1 or std <= FAR * mean.abs() else 6
        return replace(made, mean=_rounded(means, digits), std=_rounded(stds, digits))

    @property
    def normalises(self) -> bool:
        """Whether there is anything to subtract or to divide by."""
        return (self.mean, self.std) != (0.0, 1.0)

    def settings(self) -> dict[str, Any]:
        """The fields as JSON values, from which `Preprocessing(**settings)` makes it again."""
        values = {}
        for name, value in asdict(self).items():
            values[name] = list(value) if isinstance(value, tuple) else value
        if self.columns is None:
            del values["columns"]  # so that settings without columns are equal to recorded ones
        if self.tokenizer is None:
            del values["tokenizer"], values["max_length"]
        return values

    def apply(self, inputs: Any) -> Tensor | Inputs:
        """Raw inputs as the network takes them, in a new float tensor, or the tokens of text.

        - `inputs`: (n, ...) numbers, or a table with the names of `columns`; sentences.
        """
        return self.prepare(*to_tensor_and_dtype_kind(self.ordered(inputs)))

    def ordered(self, inputs: Any) -> Any:
        """A table with its columns in the order of `columns`, pixels of Pillow's images, or tokens.

        Anything else comes back as it is.
        """
        if self.tokenizer is not None:
            return tokens_of(inputs, self.tokenizer, self.max_length)
        images: Any = [inputs] if hasattr(inputs, "getbands") else inputs
        if getattr(images, "dtype", None) == np.dtype(object):  # a column
            images = images.tolist()
        if isinstance(images, (list, tuple)) and images and hasattr(images[0], "getbands"):
            unchanged = self.size is None and self.shape is None
            return images if unchanged else self.pixels_of(images)
        names = names_of(inputs)
        if self.columns is None or not names:
            return inputs
        if sorted(names) != sorted(self.columns):
            odd = min(set(names) ^ set(self.columns), default=names[0])
            lacks = "has no" if odd in self.columns else "has a"
            raise InputError(
                f"the table {lacks} column {odd!r}; the learner takes {len(self.columns)} columns, "
                f"{', '.join(self.columns)[:80]}"
            )
        table = as_table(inputs)
        key_of = dict(zip(names, table.columns, strict=True))
        return table[[key_of[name] for name in self.columns]]

    def pixels_of(self, images: Sequence[Any]) -> np.ndarray:
        """(n, c, h, w) uint8 of Pillow's images of `size`: grey if `shape` is, else RGB."""
        width, height = (self.size, self.size) if self.size else images[0].size
        grey = self.shape is not None and math.prod(self.shape) == width * height
        return pixels_of_images(images, grey, self.size)

    def apply_to(self, examples: Examples | StreamedExamples) -> Examples | StreamedExamples:
        """Raw labelled examples as the network takes them, streamed ones while they are read."""
        if isinstance(examples, Examples):
            inputs = self.prepare(examples.inputs, examples.pixels, examples.integers)
            return replace(examples, inputs=inputs)
        self._check_kind(examples.pixels)
        return replace(examples, steps=(*examples.steps, self.apply))

    def prepare(self, values: Tensor | Inputs, pixels: bool, integers: bool = False) -> Any:
        """Prepares the inputs of `Examples`, whose flags are `pixels` and `integers`."""
        if self.tokenizer is not None:
            return tokens_of(values, self.tokenizer, self.max_length)
        values = one_tensor(values)
        self._check_kind(pixels)
        if self.pixels and not pixels:
            values = self._scaled(values, integers)
        return as_inputs(self.arranged(values))

    def arranged(self, inputs: Tensor) -> Tensor:
        """Float inputs (n, ...) in the shape asked for, and normalised."""
        if self.shape is not None:
            inputs = _reshaped(inputs, tuple(self.shape))
        if not self.normalises:
            return inputs
        # In half precision the difference from a large mean would lose its digits.
        inputs = inputs.float()
        return inputs.sub(_spread("mean", self.mean, inputs)).div_(_spread("std", self.std, inputs))

    def _scaled(self, values: Tensor, integers: bool) -> Tensor:
        """Pixels that did not come as uint8, in [0, 1]."""
        limit = 255 if integers else 1
        low, high = map(float, values.aminmax()) if values.numel() else (0.0, 0.0)
        if low < -RANGE_TOLERANCE * limit or high > (1 + RANGE_TOLERANCE) * limit:
            kind = "integers" if integers else "floats"
            raise InputError(
                "the learner's inputs are pixels (as set, or as in its first task): integers from "
                f"0 to 255, or floats in [0, 1]; got {kind} from {low:g} to {high:g}; give these, "
                "or prepared pixels as il.Prepared(inputs); other data need another learner"
            )
        return values / limit if integers else values

    def _check_kind(self, pixels: bool) -> None:
        if self.pixels is False and pixels:
            raise InputError(
                "these inputs are pixels (images or uint8), but other numbers are expected "
                "(pixels=False, or a first task of other numbers); give numbers as float32, or "
                "make another learner or store (`new`) for images"
            )


class ImpliedPreprocessing(Preprocessing):
    """The preprocessing of a learner without one: the first task decides about pixels."""

    def _scaled(self, values: Tensor, integers: bool) -> Tensor:
        # JSON writes 0.0 and 1.0 as integers, which are in [0, 1] already.
        integers = integers and values.numel() > 0 and bool(values.max() > 1)
        return super()._scaled(values, integers)


def with_form(preprocessing: Preprocessing | None, form: Mapping[str, Any]) -> Preprocessing | None:
    """A learner's preprocessing, and what its first task says of raw inputs.

    - `form`: "pixels" without a preprocessing, "columns" of a table, "shape" before it is flattened
    """
    shape = getattr(preprocessing, "shape", None) or tuple(form.get("shape", ())) or None
    columns = getattr(preprocessing, "columns", None) or tuple(form.get("columns", ())) or None
    return _formed(preprocessing, shape, form.get("pixels"), columns)


@lru_cache(maxsize=64)  # each prediction asks for it
def _formed(
    preprocessing: Preprocessing | None, shape: Any, pixels: bool | None, columns: Any
) -> Preprocessing | None:
    if preprocessing is not None:
        return replace(preprocessing, columns=columns, shape=shape)
    if pixels is columns is shape is None:
        return None
    return ImpliedPreprocessing(shape, pixels=pixels, columns=columns)


def _reshaped(inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    given = tuple(inputs.shape[1:])
    if given == shape:
        return inputs
    if len(given) == len(shape) == 3 and given == (*shape[1:], shape[0]):
        return inputs.movedim(-1, 1).contiguous()
    same_but_ones = [size for size in given if size > 1] == [size for size in shape if size > 1]
    # Any other change, say (3, 32, 32) from (32, 32, 3) by reshape, would shuffle the pixels.
    keeps_order = same_but_ones or len(given) == 1 or len(shape) == 1
    as_many = math.prod(given) == math.prod(shape)
    if not as_many or not keeps_order:
        hint = "bring their axes into its order" if as_many else "give one with as many values"
        raise InputError(f"inputs of shape {given} cannot be given the shape {shape}; {hint}")
    # Not len(inputs), which would fix the size of the batch in an exported program.
    return inputs.reshape(inputs.shape[0], *shape)


def _check_precision(raw_inputs: Tensor) -> None:
    """Raises InputError for a column whose spread is below ten steps of float32."""
    if raw_inputs.dim() != 2 or raw_inputs.dtype in (torch.float32, torch.float16, torch.bfloat16):
        return
    values = raw_inputs.double()
    step = FLOAT_STEP * values.abs().amax(dim=0)
    stds, means = torch.std_mean(values, dim=0, correction=0)
    lost = (stds > ROUNDING * means.abs()) & (step > 0.1 * stds)
    if lost.any():
        column = int(lost.int().argmax())
        raise InputError(
            f"column {column + 1} varies by {stds[column]:.3g} about {means[column]:.9g}, which "
            "float32 cannot hold; subtract a constant from it, such as the first time stamp"
        )


def names_of(table: Any) -> tuple[str, ...]:
    """The names of a table's columns; () for columns that are only numbered, and other data."""
    names = tuple(getattr(as_table(table), "columns", ()))
    return () if names == tuple(range(len(names))) else tuple(composed(str(each)) for each in names)


def _rounded(values: Tensor, digits: int) -> tuple[float, ...]:
    return tuple(float(f"{value:.{digits}g}") for value in values)


def _spread(name: str, values: Numbers, inputs: Tensor) -> Tensor:
    """Numbers along the channels (or columns) of (n, channels, ...)."""
    numbers = values if isinstance(values, tuple) else (values,)
    if len(numbers) > 1 and (inputs.dim() < 2 or len(numbers) != inputs.shape[1]):
        kind = "channels" if inputs.dim() > 2 else "columns"
        raise InputError(
            f"{name} has {len(numbers)} numbers, one per {kind[:-1]}, but inputs have the shape "
            f"{tuple(inputs.shape[1:])}; give one number, or one for each of the {kind}"
        )
    made = torch.tensor(numbers, dtype=inputs.dtype, device=inputs.device)
    return made.view(-1, *[1] * max(0, inputs.dim() - 2))


def _numbers(name: str, values: Any) -> float | tuple[float, ...]:
    """One float, or several as a tuple."""
    if isinstance(values, (Tensor, np.ndarray)):
        values = values.tolist()
    values = _items(name, values, "[0.5, 0.4]") if isinstance(values, (tuple, list)) else [values]
    numbers = tuple(check_number(f"{name} (one, or one per channel)", value) for value in values)
    if name == "std" and min(numbers) < SMALLEST_STD:
        raise InputError(f"std must be at least {SMALLEST_STD:g}, got {min(numbers):g}")
    return numbers[0] if len(numbers) == 1 else numbers


def _items(name: str, values: Any, example: str) -> Sequence[Any]:
    if not isinstance(values, (tuple, list)) or not values:
        raise InputError(f"{name} must be a list, such as {example}, got {values!r}")
    return values
