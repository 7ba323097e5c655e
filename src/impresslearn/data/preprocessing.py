"""Shapes, scales and normalises raw inputs, or makes tokens of text, before the network sees them.

A learner and its store keep one `Preprocessing` with the network. They apply it to all inputs and
put it into every export, so that the same raw inputs get the same labels everywhere.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
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
    encodable,
    imported,
    shown,
)
from impresslearn.data.examples import (
    Examples,
    Inputs,
    StreamedExamples,
    as_inputs,
    as_table,
    check_levels,
    one_tensor,
    pixels_of_images,
    raw,
    to_tensor_and_dtype_kind,
)
from impresslearn.errors import InputError
from impresslearn.files import reason_of

Numbers = float | Sequence[float]
# How far pixels may be outside their range, for example after resampling.
RANGE_TOLERANCE = 1e-3
ROUNDING = 1e-13  # a standard deviation below this share of the mean is a rounding error
FAR = 1e-3  # a standard deviation below this share of the mean needs all digits of the mean
SMALLEST_STD = 1e-30  # division by a smaller number would make ordinary inputs infinite
FLOAT_STEP = torch.finfo(torch.float32).eps
LARGEST_SIZE = 8192  # the largest `size`, in pixels


@dataclass(frozen=True)
class Prepared:
    """Marks inputs or labelled data as prepared: a learner does not apply its preprocessing."""

    data: Any


@clear_calls
@dataclass(frozen=True)
class Preprocessing:
    """A shape, a scale and a normalisation of raw inputs, the same for all tasks of a learner.

    - `shape`: the shape of one input. Inputs are folded or flattened to it; sizes of 1 are added or
      removed; (h, w, c) becomes (c, h, w). None (default) leaves inputs as they are.
    - `mean`, `std`: at the end, mean is subtracted and the result divided by std. Each is one
      number, or one per channel (per column of flat inputs). 0 and 1 by default.
    - `size`: image files are resized to this shorter side and cropped to the centre square.
    - `pixels`: True for pixels: integers from 0 to 255, which are scaled to [0, 1], or floats in
      [0, 1]. False for other numbers; uint8 is then refused. None (default) scales only uint8.
    - `columns`: a table's columns in the order of the inputs. Later tables may have another order.
    - `tokenizer`: for text: the path of a tokenizer.json, its content or a `tokenizers.Tokenizer`.
      Sentences in a list or column become the arguments `input_ids` and `attention_mask`.
    - `max_length`: the most tokens of a sentence (cut); by default the tokenizer's, or 512.
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
    def standardising(cls, data: Any, **settings: Any) -> "Preprocessing":
        """A preprocessing whose mean and standard deviation are measured on raw inputs.

        If columns (or channels) differ in scale, each gets its own mean and standard deviation.

        - `data`: inputs (n, ...) or `Examples`.
        - `settings`: shape, size, pixels (by default if uint8), columns (by default a table's).

        Raises InputError for streamed data, equal inputs, and columns too constant for float32.
        """
        if isinstance(data, StreamedExamples):
            raise InputError(
                "the data are too large to measure their mean and standard deviation; give them"
            )
        if hasattr(data, "__len__") and not len(data):
            raise InputError("the data hold no example")
        if not settings.keys() <= {"shape", "size", "pixels", "columns"}:
            raise InputError("mean and std are measured: set only shape, size, pixels, columns")
        # If two columns have the same name, the order of names says nothing: do not keep it.
        names = names_of(data)
        if names and len(set(names)) == len(names):
            settings.setdefault("columns", names)
        if isinstance(data, Examples):
            inputs, pixels, integers = data.inputs, data.pixels, data.integers
        else:
            ordered = cls(**{**settings, "pixels": None}).ordered(data)
            inputs, pixels, integers = to_tensor_and_dtype_kind(ordered)
            _check_precision(raw(ordered))
        check_levels(inputs, pixels and "pixels" not in settings)
        made = cls(**{"pixels": pixels, **settings})
        values = made.prepare(inputs, pixels, integers).double()
        std, mean = torch.std_mean(values, correction=0)
        if not std > ROUNDING * mean.abs():
            raise InputError(f"all inputs are {mean:g}; they cannot be standardised")
        # Rows of an image look like the channels of (n, channels, time), but share one scale.
        low, high = map(float, values.aminmax())
        one_scale = values.dim() > 2 and (pixels or made.pixels or (low >= 0 and high <= 1))
        columns = values.reshape(-1, 1)
        if not one_scale and values.dim() > 1:
            channels = values.movedim(1, -1).flatten(0, -2)
            largest = channels.abs().amax(dim=0)
            # At least a quarter of the columns (of a few, one) must be on a smaller scale, with a
            # largest value below a tenth of the table's.
            small = largest.quantile(0.25, interpolation="lower")
            columns = channels if small < 0.1 * largest.max() else columns
        stds, means = torch.std_mean(columns, dim=0, correction=0)
        # A column that is constant, except for rounding, is divided by its value.
        varies = stds > FLOAT_STEP * means.abs()
        stds = torch.where(varies, stds, torch.where(means == 0, 1.0, means.abs()))
        digits = 9 if columns.shape[1] > 1 or std <= FAR * mean.abs() else 6
        return replace(made, mean=_rounded(means, digits), std=_rounded(stds, digits))

    @property
    def normalises(self) -> bool:
        """Whether mean or std change the inputs."""
        return (self.mean, self.std) != (0.0, 1.0)

    def settings(self) -> dict[str, Any]:
        """The fields as JSON values; `Preprocessing(**settings)` makes an equal preprocessing."""
        values = {}
        for name, value in asdict(self).items():
            values[name] = list(value) if isinstance(value, tuple) else value
        if self.columns is None:
            del values["columns"]  # older records have no such key
        if self.tokenizer is None:
            del values["tokenizer"], values["max_length"]
        return values

    def apply(self, inputs: Any) -> Tensor | Inputs:
        """Turns raw inputs into inputs of the network: a new float tensor, or the tokens of text.

        - `inputs`: numbers (n, ...), a table with the names of `columns`, or sentences.
        """
        return self.prepare(*to_tensor_and_dtype_kind(self.ordered(inputs)))

    def ordered(self, inputs: Any) -> Any:
        """Orders a table by `columns`; turns Pillow images into pixels and text into tokens."""
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
        if isinstance(inputs, Examples):
            places = [names.index(name) for name in self.columns]
            return replace(inputs, inputs=inputs.inputs[:, places], columns=tuple(self.columns))
        table = as_table(inputs)
        key_of = dict(zip(names, table.columns, strict=True))
        return table[[key_of[name] for name in self.columns]]

    def pixels_of(self, images: Sequence[Any]) -> np.ndarray:
        """Pillow images as uint8 (n, c, h, w) of `size`; grey if `shape` has 1 channel, or RGB."""
        width, height = (self.size, self.size) if self.size else images[0].size
        grey = self.shape is not None and math.prod(self.shape) == width * height
        return pixels_of_images(images, grey, self.size)

    def apply_to(self, examples: Examples | StreamedExamples) -> Examples | StreamedExamples:
        """Prepares raw labelled examples for the network; streamed ones when they are read."""
        if isinstance(examples, Examples):
            inputs = self.prepare(examples.inputs, examples.pixels, examples.integers)
            return replace(examples, inputs=inputs)
        self._check_kind(examples.pixels)
        return replace(examples, steps=(*examples.steps, self.apply))

    def prepare(self, values: Tensor | Inputs, pixels: bool, integers: bool = False) -> Any:
        """Prepares the inputs of `Examples` with these flags `pixels` and `integers`."""
        if self.tokenizer is not None:
            return tokens_of(values, self.tokenizer, self.max_length)
        values = one_tensor(values)
        self._check_kind(pixels)
        check_levels(values, pixels and self.pixels is None)
        if self.pixels and not pixels:
            values = self._scaled(values, integers)
        return as_inputs(self.arranged(values))

    def arranged(self, inputs: Tensor) -> Tensor:
        """Float inputs (n, ...), brought to `shape` and normalised."""
        if self.shape is not None:
            inputs = _reshaped(inputs, tuple(self.shape))
        if not self.normalises:
            return inputs
        # In half precision, subtracting a large mean would lose digits.
        inputs = inputs.float()
        return inputs.sub(_spread("mean", self.mean, inputs)).div_(_spread("std", self.std, inputs))

    def _scaled(self, values: Tensor, integers: bool) -> Tensor:
        """Checks and scales to [0, 1] pixels that were not uint8."""
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
    """The preprocessing if the user gives none: the first task decides if inputs are pixels."""

    def _scaled(self, values: Tensor, integers: bool) -> Tensor:
        # JSON writes 0.0 and 1.0 as integers, but these need no scaling.
        integers = integers and values.numel() > 0 and bool(values.max() > 1)
        return super()._scaled(values, integers)


def with_form(preprocessing: Preprocessing | None, form: Mapping[str, Any]) -> Preprocessing | None:
    """A learner's preprocessing, completed with what its first task recorded of raw inputs.

    - `form`: "pixels" (if the user gave no preprocessing), "columns" of a table, and "shape" of
      inputs before they were flattened; each may be missing.
    """
    shape = getattr(preprocessing, "shape", None) or tuple(form.get("shape", ())) or None
    columns = getattr(preprocessing, "columns", None) or tuple(form.get("columns", ())) or None
    return _formed(preprocessing, shape, form.get("pixels"), columns)


@lru_cache(maxsize=64)  # every prediction needs it
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
    # Other changes would shuffle values, for example a reshape of (32, 32, 3) to (3, 32, 32).
    keeps_order = same_but_ones or len(given) == 1 or len(shape) == 1
    as_many = math.prod(given) == math.prod(shape)
    if not as_many or not keeps_order:
        hint = "bring their axes into its order" if as_many else "give one with as many values"
        raise InputError(f"inputs of shape {given} cannot be given the shape {shape}; {hint}")
    # `len(inputs)` would fix the size of the batch in an exported program.
    return inputs.reshape(inputs.shape[0], *shape)


def _check_precision(raw_inputs: Tensor) -> None:
    """Raises InputError if a column's standard deviation is below ten rounding steps of float32."""
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
    """The names of a table's columns; () if columns have only numbers, and for other data."""
    names = tuple(getattr(as_table(table), "columns", ()))
    return () if names == tuple(range(len(names))) else tuple(composed(str(each)) for each in names)


def _rounded(values: Tensor, digits: int) -> tuple[float, ...]:
    return tuple(float(f"{value:.{digits}g}") for value in values)


def _spread(name: str, values: Numbers, inputs: Tensor) -> Tensor:
    """Numbers as a tensor that broadcasts along the channels (columns) of (n, channels, ...)."""
    numbers = values if isinstance(values, tuple) else (values,)
    if len(numbers) > 1 and (inputs.dim() < 2 or len(numbers) != inputs.shape[1]):
        kind = "channels" if inputs.dim() > 2 else "columns"
        hint = f"give one number, or one for each of the {kind}"
        if inputs.dim() == 4 and len(numbers) == inputs.shape[3]:
            hint = "channels come first: inputs.permute(0, 3, 1, 2)"
        line = f"{name} has {len(numbers)} numbers, one per {kind[:-1]}, but inputs have the shape"
        raise InputError(f"{line} {tuple(inputs.shape[1:])}; {hint}")
    made = torch.tensor(numbers, dtype=inputs.dtype, device=inputs.device)
    return made.view(-1, *[1] * max(0, inputs.dim() - 2))


def _numbers(name: str, values: Any) -> float | tuple[float, ...]:
    """`values` as one float or a tuple of floats. Raises InputError for anything else."""
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


class TokenizerText(str):
    """A tokenizer's JSON text; its repr shows only a digest."""

    def __repr__(self) -> str:
        return f"{len(self):,} characters, SHA-256 {hashlib.sha256(self.encode()).hexdigest()}"


def shown_settings(settings: Any) -> Any:
    """The settings of a preprocessing, with a digest in place of the tokenizer's text."""
    text = (settings or {}).get("tokenizer")
    return settings | {"tokenizer": repr(TokenizerText(text))} if text else settings


def checked_tokenizer(given: Any, max_length: int | None) -> TokenizerText:
    """A tokenizer's JSON text, from the path of its file, a tokenizer object or the text itself."""
    text = getattr(given, "backend_tokenizer", given)  # transformers' tokenizers
    text = text.to_str() if hasattr(text, "to_str") else text
    try:
        if not str(text).lstrip().startswith("{"):
            text = Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError, TypeError) as error:
        line = f"cannot read the tokenizer {shown(given)}: {reason_of(error)}"
        raise InputError(line) from None
    _tokenizer(text, max_length)
    return TokenizerText(text)


@lru_cache(maxsize=8)  # making a tokenizer takes a tenth of a second
def _tokenizer(text: str, max_length: int | None) -> Any:
    library = imported("tokenizers", "text needs tokenizers", "text")
    try:
        made = library.Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises plain exceptions
        line = f"the tokenizer is damaged, or no tokenizer.json: {reason_of(error)}"
        raise InputError(line) from None
    most = (made.truncation or {}).get("max_length", 512)  # 512 as in `Preprocessing`
    least = made.num_special_tokens_to_add(False) + 1
    most = check_integer("max_length", most if max_length is None else max_length, least)
    made.enable_truncation(most)
    made.enable_padding(pad_id=(made.padding or {}).get("pad_id", 0))
    return made


def tokens_of(values: Any, text: str, max_length: int | None) -> Any:
    """Sentences as `Inputs(input_ids=…, attention_mask=…)`; returns tokens unchanged."""
    if isinstance(values, (Inputs, Mapping)):
        return values
    values = as_table(values)
    columns = list(getattr(values, "columns", ()))
    if len(columns) > 1:
        raise InputError(f"text must be one column, got {', '.join(map(str, columns))[:80]}")
    values = values[columns[0]] if columns else values
    sentences = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(sentences, str) or not hasattr(sentences, "__len__") or not len(sentences):
        raise InputError(f"inputs must be a list of sentences, got {shown(values)}")
    for row, sentence in enumerate(sentences, 1):
        if not isinstance(sentence, str) or not encodable(sentence):
            raise InputError(f"inputs must be sentences, but row {row} is {shown(sentence)}")
    try:
        encoded = _tokenizer(text, max_length).encode_batch(list(sentences))
    except Exception as error:  # for example for an unknown word
        raise InputError(f"the tokenizer cannot read the text: {reason_of(error)}") from None
    mask = torch.tensor([each.attention_mask for each in encoded])
    if len(empty := (~mask.any(dim=1)).nonzero()):
        raise InputError(f"row {int(empty[0]) + 1} holds no word that the tokenizer knows")
    return Inputs(input_ids=torch.tensor([each.ids for each in encoded]), attention_mask=mask)
