"""Shapes, scales and normalises raw inputs before the network sees them.

A learner and its store keep one `Preprocessing` beside the network, apply it wherever inputs come
in, and put it into every export, so that the same raw inputs get the same labels everywhere.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from impresslearn.checks import check_integer
from impresslearn.data.examples import Examples, StreamedExamples, as_inputs, raw, with_kind
from impresslearn.data.inputs import Inputs
from impresslearn.errors import InputError

Numbers = float | Sequence[float]
APART = 0.1
"""Below this share of the largest value of all a column's own largest is of another scale."""
SLACK = 1e-3
"""How far beyond their range pixels may lie, by resampling say."""
ROUNDING = 1e-8
"""A spread below this share of a mean is rounding of float32 numbers."""
FINE_ROUNDING = 1e-13
"""The same of float64 numbers."""
FAR = 1e-3
"""A spread below this share of a mean needs all digits of the mean."""
LARGEST_SIZE = 8192
"""Pixels to a side that images are resized to at most."""


@dataclass(frozen=True)
class Prepared:
    """Inputs, or labelled data, that are as the network takes them: nothing is applied to them."""

    data: Any


@dataclass(frozen=True)
class Preprocessing:
    """A shape, a scale and a normalisation for raw inputs, the same for all tasks of a learner.

    shape: of one input: flat inputs are folded to it, others flattened; sizes of 1 come and go;
    (h, w, c) becomes (c, h, w). None leaves inputs as they are. mean, std: numbers, one for all or
    one a channel (a column, where inputs are flat), subtracted and divided by last. size: of image
    files: the shorter side is resized to so many pixels, then the centre square kept. pixels: True
    where raw inputs are pixels: integers from 0 to 255, which are scaled to [0, 1], or floats that
    are in [0, 1] already; False where they are any other numbers, and then uint8 is refused; None
    scales uint8 and takes everything else as it is. columns: of tables, their names in the order of
    the inputs: files and DataFrames that name them have them in any order.
    Raises InputError for sizes out of range, numbers that are not finite, and a std not above 0.
    """

    shape: Sequence[int] | None = None
    mean: Numbers = 0.0
    std: Numbers = 1.0
    size: int | None = None
    pixels: bool | None = None
    columns: Sequence[str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = self.shape
        if shape is not None:
            shape = tuple(shape) if isinstance(shape, (tuple, list)) else ()
            if not shape or any(type(length) is not int or length < 1 for length in shape):
                raise InputError(
                    f"shape must be whole numbers from 1, as in (1, 28, 28), got {self.shape!r}"
                )
        if self.size is not None:
            object.__setattr__(self, "size", check_integer("size", self.size, 1, LARGEST_SIZE + 1))
        if self.pixels is not None and not isinstance(self.pixels, bool):
            raise InputError(f"pixels must be True, False or None, got {self.pixels!r}")
        object.__setattr__(self, "shape", shape)
        if self.columns is not None:
            names = self.columns if isinstance(self.columns, (tuple, list)) else ()
            if not names or not all(isinstance(name, str) for name in names):
                raise InputError(
                    f"columns must be names, as in ('age', 'size'), got {self.columns!r}"
                )
            if len(set(names)) < len(names):
                raise InputError("columns must be names that differ from one another")
            object.__setattr__(self, "columns", tuple(names))
        for name in ("mean", "std"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))

    @classmethod
    def standardising(cls, data: Any, **settings: Any) -> Preprocessing:
        """With one mean and one standard deviation, measured over all of these raw inputs.

        Flat inputs whose columns differ in scale, unlike pixels, have one a column. data: inputs
        (n, ...) or `Examples`; settings: shape, size, pixels, columns; by default pixels says
        whether the data are uint8, and columns are the names of a table that has them. Raises
        InputError where all inputs are the same.
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
        held = isinstance(data, Examples)
        values, pixels, integers = (
            (data.inputs, data.pixels, data.integers)
            if held
            else with_kind(cls(columns=settings.get("columns")).ordered(data))
        )
        made = cls(**dict[str, Any](pixels=pixels) | settings)
        values = made._arranged_raw(values, pixels, integers)
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
            return replace(made, mean=_plain(mean, 17 if lost else 9), std=_plain(std))
        mean, std = values.mean(), values.std(correction=0)
        digits = 6 if std > FAR * mean.abs() else 17
        return replace(made, mean=float(f"{mean:.{digits}g}"), std=float(f"{std:.6g}"))

    @property
    def normalises(self) -> bool:
        """Whether there is anything to subtract or to divide by."""
        return (self.mean, self.std) != (0.0, 1.0)

    def settings(self) -> dict[str, Any]:
        """The fields as JSON values, from which `Preprocessing(**settings)` makes it again."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name != "columns" or value is not None  # which older versions do not know
        }

    def apply(self, inputs: Any) -> Tensor:
        """Raw inputs (n, ...) as the network takes them: a float tensor; the given one is kept.

        Raises InputError for inputs that are no finite numbers, that `pixels` refuses, or whose
        shape would have to be shuffled, and for as many means as there are neither channels nor
        columns.
        """
        return self.prepare(*with_kind(self.ordered(inputs)))

    def ordered(self, inputs: Any) -> Any:
        """A table with names, such as a DataFrame, with its columns in the order of `columns`.

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
        """Raw labelled examples as the network takes them; streamed ones as they are read.

        What augments examples sees them prepared.
        """
        if isinstance(examples, Examples):
            inputs = self.prepare(examples.inputs, examples.pixels, examples.integers)
            return replace(examples, inputs=inputs)
        self._check_kind(examples.pixels)
        return replace(examples, dataset=_PreparedItems(examples.dataset, self))

    def prepare(self, values: Tensor | Inputs, pixels: bool, integers: bool = False) -> Tensor:
        """What `as_inputs` made of raw inputs, prepared.

        pixels: whether they came as uint8, scaled to [0, 1] since; integers: as those of another
        type. Errors as of `apply`.
        """
        return as_inputs(self._arranged_raw(values, pixels, integers))

    def _arranged_raw(self, values: Tensor | Inputs, pixels: bool, integers: bool) -> Tensor:
        """As `prepare`, and float64 where the values are."""
        if isinstance(values, Inputs):
            raise InputError("a preprocessing takes one tensor; several inputs go in as Prepared")
        self._check_kind(pixels)
        if self.pixels and not pixels:
            limit = 255 if integers else 1
            low, high = map(float, values.aminmax()) if values.numel() else (0.0, 0.0)
            if low < -SLACK * limit or high > (1 + SLACK) * limit:
                raise InputError(
                    "the learner's inputs are pixels (as set, or as its first task's were): "
                    "integers from 0 to 255, or floats in [0, 1]; "
                    f"got {'integers' if integers else 'floats'} from {low:g} to {high:g}; what is "
                    "prepared already goes in as Prepared(inputs)"
                )
            values = values / limit if integers else values
        return self.arranged(values)

    def arranged(self, inputs: Tensor) -> Tensor:
        """Float inputs (n, ...) in the shape asked for, and normalised.

        In float64 where they are, so that nothing is lost beside a large mean, else in float32.
        """
        if self.shape is not None:
            inputs = _reshaped(inputs, tuple(self.shape))
        if not self.normalises:
            return inputs
        inputs = inputs if inputs.dtype == torch.float64 else inputs.float()
        return inputs.sub(_spread("mean", self.mean, inputs)).div_(_spread("std", self.std, inputs))

    def _check_kind(self, pixels: bool) -> None:
        if self.pixels is False and pixels:
            raise InputError(
                "the learner's inputs are no pixels (as set, or as its first task's were); "
                "got uint8 values, which would be scaled to [0, 1]: convert them to what it was "
                "trained on, such as float32, divided by 255 if that was"
            )

    def difference(self, other: Mapping[str, Any]) -> str | None:
        """The first setting among those of `other` that is not this one's; None where all are."""
        kept = self.settings()
        given = Preprocessing(**{**kept, **other}).settings()
        return next((name for name in other if given[name] != kept[name]), None)


class ImpliedPreprocessing(Preprocessing):
    """Of a learner that was given none: inputs are pixels, or are not, as its first task's were.

    Integers that are all zero or one, as JSON writes 0.0 and 1.0, are in [0, 1] already.
    """

    def _arranged_raw(self, values: Tensor | Inputs, pixels: bool, integers: bool) -> Tensor:
        if integers and isinstance(values, Tensor) and values.numel():
            integers = bool(values.max() > 1)
        return super()._arranged_raw(values, pixels, integers)


@dataclass(frozen=True, eq=False)
class _PreparedItems(Dataset):
    """A data set of raw inputs and labels, whose inputs are prepared when they are read."""

    dataset: Dataset
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        given, label = self.dataset[index]
        return self.preprocessing.apply(raw(given)[None])[0], label


def _reshaped(inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    given = tuple(inputs.shape[1:])
    if given == shape:
        return inputs
    if len(given) == len(shape) == 3 and given == (*shape[1:], shape[0]):
        return inputs.movedim(-1, 1).contiguous()
    same_but_ones = [size for size in given if size > 1] == [size for size in shape if size > 1]
    # Any other change, say (3, 32, 32) from (32, 32, 3) by reshape, would shuffle the pixels.
    if math.prod(given) == math.prod(shape) and (
        same_but_ones or len(given) == 1 or len(shape) == 1
    ):
        return inputs.reshape(len(inputs), *shape)
    raise InputError(f"inputs of shape {given} cannot be given the shape {shape}")


def _differ_in_scale(values: Tensor) -> bool:
    """Whether a quarter of the columns, or the smallest of a few, lie far below the largest."""
    largest = values.abs().amax(dim=0)
    return bool(largest.quantile(0.25, interpolation="lower") < APART * largest.max())


def _lost_in_float32(values: Tensor) -> bool:
    """Whether a column varies by less than ten steps of the float32 numbers at its largest."""
    step = torch.finfo(torch.float32).eps * values.abs().amax(dim=0)
    std = values.std(dim=0, correction=0)
    return bool(((std > FINE_ROUNDING * values.mean(dim=0).abs()) & (step > 0.1 * std)).any())


def _names_of(table: Any) -> tuple[str, ...]:
    """The names of the columns of a DataFrame, say; () of anything else, and for other names."""
    names = tuple(getattr(table, "columns", ()))
    return names if all(isinstance(name, str) for name in names) else ()


def _plain(values: Tensor, digits: int = 9) -> tuple[float, ...]:
    """Plain numbers of as many digits as float32 has: a mean may be large beside its spread."""
    return tuple(float(f"{value:.{digits}g}") for value in values.tolist())


def _spread(name: str, values: Numbers, inputs: Tensor) -> Tensor:
    """Numbers along the channels (or columns) of (n, channels, ...)."""
    numbers = values if isinstance(values, tuple) else (values,)
    if len(numbers) > 1 and (inputs.dim() < 2 or len(numbers) != inputs.shape[1]):
        kind = "channels" if inputs.dim() > 2 else "columns"
        raise InputError(
            f"{name} has {len(numbers)} numbers, for as many {kind}, but inputs are of shape "
            f"{tuple(inputs.shape[1:])}; give all {kind} in their order, or one number for each"
        )
    made = torch.tensor(numbers, dtype=inputs.dtype, device=inputs.device)
    return made.view(-1, *[1] * max(0, inputs.dim() - 2))


def _numbers(name: str, given: Any) -> float | tuple[float, ...]:
    """One float, or several as a tuple."""
    values = given.tolist() if isinstance(given, (Tensor, np.ndarray, np.generic)) else given
    numbers = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    valid = numbers and all(
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max  # which NaN is not
        for value in numbers
    )
    if not valid or (name == "std" and min(numbers) <= 0):
        bound = " above 0" if name == "std" else ""
        raise InputError(f"{name} must be a number{bound}, or one a channel, got {given!r}")
    return float(numbers[0]) if len(numbers) == 1 else tuple(map(float, numbers))
