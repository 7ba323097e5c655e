"""Shapes, scales and normalises raw inputs before the network sees them.

A learner and its store keep one `Preprocessing` beside the network, apply it wherever inputs come
in, and put it into every export, so that the same raw inputs get the same labels everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from impresslearn.checks import check_integer, check_number
from impresslearn.data.examples import (
    Examples,
    Inputs,
    StreamedExamples,
    as_inputs,
    raw,
    to_tensor_and_dtype_kind,
)
from impresslearn.errors import InputError

Numbers = float | Sequence[float]
SCALE_RATIO = 0.1
"""A column whose largest value is below this share of the table's largest has a smaller scale."""
RANGE_TOLERANCE = 1e-3
"""How far pixels may lie beyond their range, after resampling for example."""
ROUNDING = 1e-8
"""A spread below this share of a mean is rounding of float32 numbers."""
FINE_ROUNDING = 1e-13
"""The same share for float64 numbers."""
FAR = 1e-3
"""A spread below this share of a mean needs all digits of the mean."""
LARGEST_SIZE = 8192
"""Pixels per side that images are resized to at most."""


@dataclass(frozen=True)
class Prepared:
    """Inputs, or labelled data, that a learner takes as they are, without its preprocessing."""

    data: Any


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

    Raises InputError for sizes out of range, numbers that are not finite, and a std not above 0.
    """

    shape: Sequence[int] | None = None
    mean: Numbers = 0.0
    std: Numbers = 1.0
    size: int | None = None
    pixels: bool | None = None
    columns: Sequence[str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "mean": _numbers("mean", self.mean),
            "std": _numbers("std", self.std),
        }
        if self.shape is not None:
            lengths = tuple(self.shape) if isinstance(self.shape, (tuple, list)) else ()
            if not lengths or any(type(length) is not int or length < 1 for length in lengths):
                raise InputError(
                    f"shape must be whole numbers from 1, as in (1, 28, 28), got {self.shape!r}"
                )
            checked["shape"] = lengths
        if self.size is not None:
            checked["size"] = check_integer("size", self.size, 1, LARGEST_SIZE + 1)
        if self.pixels is not None and not isinstance(self.pixels, bool):
            raise InputError(f"pixels must be True, False or None, got {self.pixels!r}")
        if self.columns is not None:
            names = tuple(self.columns) if isinstance(self.columns, (tuple, list)) else ()
            texts = all(isinstance(name, str) for name in names)
            if not names or not texts or len(set(names)) < len(names):
                raise InputError(
                    f"columns must be different names, as in ('age', 'size'), got {self.columns!r}"
                )
            checked["columns"] = names
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def standardising(cls, data: Any, **settings: Any) -> Preprocessing:
        """A preprocessing whose mean and standard deviation are measured on raw inputs.

        Flat inputs whose columns differ in scale, unlike pixels, get one of each per column.

        - `data`: inputs (n, ...) or `Examples`.
        - `settings`: shape, size, pixels, columns. By default `pixels` is True for uint8, and
          `columns` are the names of a table.

        Raises InputError if all inputs are the same, and for streamed data.
        """
        if isinstance(data, StreamedExamples):
            raise InputError(
                "the data are too large to measure their mean and standard deviation; give them"
            )
        if not settings.keys() <= {"shape", "size", "pixels", "columns"}:
            raise InputError("mean and std are measured; settings are shape, size, pixels, columns")
        names = _names_of(data)
        if names and len(set(names)) == len(names):
            settings.setdefault("columns", names)
        if isinstance(data, Examples):
            inputs, pixels, integers = data.inputs, data.pixels, data.integers
        else:
            ordered = cls(columns=settings.get("columns")).ordered(data)
            inputs, pixels, integers = to_tensor_and_dtype_kind(ordered)
        made = cls(**{"pixels": pixels, **settings})
        values = made._arranged_raw(inputs, pixels, integers)
        rounding = FINE_ROUNDING if values.dtype == torch.float64 else ROUNDING
        values = values.double()
        if not values.std(correction=0) > FINE_ROUNDING * values.mean().abs():
            raise InputError(f"all inputs are {values.mean():g}; they cannot be standardised")
        lost = values.dim() == 2 and _lost_in_float32(values)
        if lost or (values.dim() == 2 and _differ_in_scale(values)):
            mean, std = values.mean(dim=0), values.std(dim=0, correction=0)
            # A column that does not vary here, but for rounding, is measured by its value.
            varies = std > rounding * mean.abs()
            std = torch.where(varies, std, torch.where(mean == 0, 1.0, mean.abs()))
            return replace(made, mean=_plain(mean, 17 if lost else 9), std=_plain(std, 9))
        mean, std = values.mean(), values.std(correction=0)
        digits = 6 if std > FAR * mean.abs() else 17
        return replace(made, mean=float(f"{mean:.{digits}g}"), std=float(f"{std:.6g}"))

    @property
    def normalises(self) -> bool:
        """Whether there is anything to subtract or to divide by."""
        return (self.mean, self.std) != (0.0, 1.0)

    def settings(self) -> dict[str, Any]:
        """The fields as JSON values, from which `Preprocessing(**settings)` makes it again."""
        values = {}
        for name, value in asdict(self).items():
            if name == "columns" and value is None:
                continue  # so that settings without columns are equal to recorded ones
            values[name] = list(value) if isinstance(value, tuple) else value
        return values

    def apply(self, inputs: Any) -> Tensor:
        """Raw inputs as the network takes them, in a new float tensor.

        - `inputs`: (n, ...) numbers, or a table with the names of `columns`.

        Raises InputError for anything but finite numbers, inputs that `pixels` refuses, a shape
        that would have to be shuffled, and another number of channels or columns than of means.
        """
        return self.prepare(*to_tensor_and_dtype_kind(self.ordered(inputs)))

    def ordered(self, inputs: Any) -> Any:
        """A table, such as a DataFrame, with its columns in the order of `columns`.

        Anything else comes back as it is. Raises InputError for other names.
        """
        names = _names_of(inputs)
        if self.columns is None or not names:
            return inputs
        if sorted(names) != sorted(self.columns):
            odd = min(set(names) ^ set(self.columns), default=names[0])
            lacks = "has no" if odd in self.columns else "has a"
            raise InputError(
                f"the table {lacks} column {odd!r}; the learner takes {len(self.columns)} columns, "
                f"{', '.join(self.columns)[:80]}"
            )
        return inputs[list(self.columns)]

    def apply_to(self, examples: Examples | StreamedExamples) -> Examples | StreamedExamples:
        """Raw labelled examples as the network takes them, streamed ones while they are read.

        An augmentation gets prepared inputs.
        """
        if isinstance(examples, Examples):
            inputs = self.prepare(examples.inputs, examples.pixels, examples.integers)
            return replace(examples, inputs=inputs)
        self._check_kind(examples.pixels)
        return replace(examples, dataset=_PreparedItems(examples.dataset, self))

    def prepare(self, values: Tensor | Inputs, pixels: bool, integers: bool = False) -> Tensor:
        """Prepares the inputs of `Examples`.

        - `values`: (n, ...) floating point.
        - `pixels`: whether they came as uint8, and have been scaled to [0, 1].
        - `integers`: whether they came as integers of another type (False).
        """
        return as_inputs(self._arranged_raw(values, pixels, integers))

    def arranged(self, inputs: Tensor) -> Tensor:
        """Float inputs (n, ...) in the shape asked for, and normalised."""
        if self.shape is not None:
            inputs = _reshaped(inputs, tuple(self.shape))
        if not self.normalises:
            return inputs
        # float64 stays until the mean is subtracted: beside a large mean float32 loses the rest.
        inputs = inputs if inputs.dtype == torch.float64 else inputs.float()
        return inputs.sub(_spread("mean", self.mean, inputs)).div_(_spread("std", self.std, inputs))

    def difference(self, other: Mapping[str, Any]) -> str | None:
        """The name of the first setting in `other` that differs from this one; None if none."""
        current = self.settings()
        changed = Preprocessing(**{**current, **other}).settings()
        for name in other:
            if changed[name] != current[name]:
                return name
        return None

    def _arranged_raw(self, values: Tensor | Inputs, pixels: bool, integers: bool) -> Tensor:
        if isinstance(values, Inputs):
            raise InputError("a preprocessing takes one tensor; several inputs go in as Prepared")
        self._check_kind(pixels)
        if self.pixels and not pixels:
            limit = 255 if integers else 1
            low, high = map(float, values.aminmax()) if values.numel() else (0.0, 0.0)
            if low < -RANGE_TOLERANCE * limit or high > (1 + RANGE_TOLERANCE) * limit:
                raise InputError(
                    "the learner's inputs are pixels (as set, or as in its first task): "
                    "integers from 0 to 255, or floats in [0, 1]; "
                    f"got {'integers' if integers else 'floats'} from {low:g} to {high:g}; "
                    "prepared inputs go in as Prepared(inputs)"
                )
            values = values / limit if integers else values
        return self.arranged(values)

    def _check_kind(self, pixels: bool) -> None:
        if self.pixels is False and pixels:
            raise InputError(
                "the learner's inputs are no pixels (as set, or as in its first task); "
                "got uint8 values, which would be scaled to [0, 1]: convert them to the type it "
                "was trained on, such as float32, divided by 255 if that was"
            )


class ImpliedPreprocessing(Preprocessing):
    """The preprocessing of a learner without one: the first task decides about pixels."""

    def _arranged_raw(self, values: Tensor | Inputs, pixels: bool, integers: bool) -> Tensor:
        # JSON writes 0.0 and 1.0 as integers, which are in [0, 1] already.
        if integers and isinstance(values, Tensor) and values.numel():
            integers = bool(values.max() > 1)
        return super()._arranged_raw(values, pixels, integers)


@dataclass(frozen=True, eq=False)
class _PreparedItems(Dataset):
    """A data set of raw inputs and labels, whose inputs are prepared when they are read."""

    dataset: Any
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        value, label = self.dataset[index]
        return self.preprocessing.apply(raw(value)[None])[0], label


def _reshaped(inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    given = tuple(inputs.shape[1:])
    if given == shape:
        return inputs
    if len(given) == len(shape) == 3 and given == (*shape[1:], shape[0]):
        return inputs.movedim(-1, 1).contiguous()
    same_but_ones = [size for size in given if size > 1] == [size for size in shape if size > 1]
    # Any other change, say (3, 32, 32) from (32, 32, 3) by reshape, would shuffle the pixels.
    keeps_order = same_but_ones or len(given) == 1 or len(shape) == 1
    if math.prod(given) != math.prod(shape) or not keeps_order:
        raise InputError(f"inputs of shape {given} cannot be given the shape {shape}")
    return inputs.reshape(len(inputs), *shape)


def _differ_in_scale(values: Tensor) -> bool:
    """Whether a quarter of the columns, or the smallest of a few, lie far below the largest."""
    largest = values.abs().amax(dim=0)
    return bool(largest.quantile(0.25, interpolation="lower") < SCALE_RATIO * largest.max())


def _lost_in_float32(values: Tensor) -> bool:
    """Whether a column varies by less than ten steps of the float32 numbers at its largest."""
    step = torch.finfo(torch.float32).eps * values.abs().amax(dim=0)
    std = values.std(dim=0, correction=0)
    return bool(((std > FINE_ROUNDING * values.mean(dim=0).abs()) & (step > 0.1 * std)).any())


def _names_of(table: Any) -> tuple[str, ...]:
    """The names of a DataFrame's columns; () if they are no strings, and for anything else."""
    names = tuple(getattr(table, "columns", ()))
    return names if all(isinstance(name, str) for name in names) else ()


def _plain(values: Tensor, digits: int) -> tuple[float, ...]:
    return tuple(float(f"{value:.{digits}g}") for value in values.tolist())


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


def _numbers(name: str, given: Any) -> float | tuple[float, ...]:
    """One float, or several as a tuple."""
    values = given.tolist() if isinstance(given, (Tensor, np.ndarray, np.generic)) else given
    values = values if isinstance(values, (tuple, list)) else [values]
    numbers = tuple(check_number(name, value) for value in values)
    if not numbers or (name == "std" and min(numbers) <= 0):
        bound = " above 0" if name == "std" else ""
        raise InputError(f"{name} must be a number{bound}, or one per channel, got {given!r}")
    return numbers[0] if len(numbers) == 1 else numbers
