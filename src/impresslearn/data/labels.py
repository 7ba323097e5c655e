"""Labels as the user gave them, integers or strings, and as class indices 0..K-1.

`label_array` is the only door: what two different values would make one class is refused there, and
so is what no store or terminal could write. Everything behind it compares labels by equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.errors import InputError
from impresslearn.validation import encodable

Label = int | str

MOST_BYTES = 2**30
"""What the labels of one data set may take: a numpy array of texts, each as long as the longest."""
_EXACT = float(2**53)
"""From here on neighbouring whole numbers are the same float64."""


def label_array(labels: Any) -> np.ndarray:
    """Labels as a (n,) array of int64 or of strings; whole floats are taken as integers.

    Booleans become 0 and 1, bytes are read as UTF-8, and (n, 1) is as good as (n,). Raises
    InputError for values of several kinds ([1, "1"], [True, 2]), for numbers that int64 or their
    own float type cannot tell from their neighbours, for strings that cannot be kept (ending
    in NUL, with half a surrogate pair, of a GiB together), and for one-hot rows.
    """
    if isinstance(labels, (list, tuple)):
        return _from_values(labels)
    if isinstance(labels, np.ma.MaskedArray):
        raise InputError("labels must not be masked; leave out the examples without one")
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu()
        if labels.is_floating_point():
            _check_exact(labels.double().numpy(), _limit(torch.finfo(labels.dtype).eps))
            labels = labels.double()
        labels = labels.numpy()
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise _not_one_each(array.shape, array)
    if array.dtype.kind in "USO":
        return _from_values(array.tolist())
    if array.dtype.kind == "f":
        _check_exact(array, _limit(np.finfo(array.dtype).eps))
    elif array.dtype.kind == "u" and array.size and array.max() >= 2**63:
        raise InputError(f"labels must fit 64 bits with a sign, got {array.max()}")
    elif array.dtype.kind not in "iub":
        raise InputError(f"labels must be integers or strings, got {array.dtype} values")
    return array.astype(np.int64)


def classes_of(labels: np.ndarray) -> tuple[Label, ...]:
    """The distinct labels, sorted, as plain Python values."""
    return tuple(np.unique(labels).tolist())


def task_classes(labels: np.ndarray, outputs: int) -> tuple[Label, ...]:
    """The classes of a training set, for a network with so many outputs.

    Raises InputError for a single class, and for more classes than outputs.
    """
    classes = classes_of(labels)
    if len(classes) < 2:
        raise InputError(f"a task needs at least two classes, got only {classes[0]!r}")
    if len(classes) > outputs:
        raise InputError(
            f"the task has {len(classes)} classes, the backbone only {outputs} outputs; "
            f"create it with num_classes={len(classes)}"
        )
    return classes


def encode_labels(labels: np.ndarray, index_of: dict[Label, int]) -> Tensor:
    """(n,) int64 class indices. Raises InputError that names a label that is not in the map."""
    try:
        return torch.tensor([index_of[label] for label in labels.tolist()], dtype=torch.long)
    except KeyError as error:
        known = ", ".join(map(repr, list(index_of)[:8])) + (", …" if len(index_of) > 8 else "")
        raise InputError(
            f"label {error.args[0]!r} was never seen by this task; it knows {known}"
        ) from None


def _from_values(values: Sequence[Any]) -> np.ndarray:
    """Labels one by one, before numpy makes strings of all of them."""
    if not set(map(type, values)) <= {int, float, str}:
        values = [_plain(value, len(values)) for value in values]
    example = {type(value): value for value in values}
    kinds = example.keys()
    if len(kinds) > 1 and not kinds <= {int, float}:
        shown = ", ".join(map(_shown, example.values()))
        raise InputError(f"labels must be all integers or all strings, got {shown}")
    if not kinds <= {int, float, bool, str, bytes}:
        raise InputError(f"labels must be integers or strings, got {_shown(values[0])}")
    if kinds & {str, bytes}:
        return _strings(values)
    if float in kinds:
        _check_exact(np.array([value for value in values if type(value) is float]), _EXACT)
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except OverflowError:
        largest = max(values, key=abs)
        raise InputError(f"labels must fit 64 bits with a sign, got {_shown(largest)}") from None


def _plain(value: Any, count: int) -> Any:
    """The plain value that a scalar of numpy or torch, or a member of an enumeration, stands for.

    Others come back as they are; count: of the labels it is one of, for the error about a row.
    """
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        _check_type(value)
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        row = np.array(value, dtype=object)
        if row.shape != (1,):
            raise _not_one_each((count, *row.shape), row[None])
        value = value[0]
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) and type(value) is not bool else value


def _check_type(value: Tensor | np.ndarray | np.generic) -> None:
    """Raises InputError for floats that their own type cannot tell from their neighbours."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            _check_exact(value.double().reshape(-1).numpy(), _limit(torch.finfo(value.dtype).eps))
    elif value.dtype.kind == "f":
        _check_exact(np.atleast_1d(value), _limit(np.finfo(value.dtype).eps))


def _limit(eps: Any) -> float:
    """From where on neighbouring whole numbers are the same, or beyond 64 bits."""
    return min(2 / float(eps), 2.0**63)


def _strings(values: Sequence[str | bytes]) -> np.ndarray:
    text_of = {value: _text(value) for value in dict.fromkeys(values)}
    for value in text_of.values():
        if 4 * len(value) * len(values) > MOST_BYTES:  # numpy makes all as long as the longest
            raise InputError(
                f"{len(values):,} labels of up to {len(value):,} characters take more than "
                f"{MOST_BYTES:,} bytes; give numbers or shorter names"
            )
        if not encodable(value):
            raise InputError(
                f"a label is no valid Unicode, which no file can keep: {_shown(value)}"
            )
        if value.endswith("\0"):
            raise InputError(
                f"labels must not end in NUL, which numpy cuts off, got {_shown(value)}"
            )
    return np.array([text_of[value] for value in values], dtype=str)


def _text(value: str | bytes) -> str:
    try:
        return value if isinstance(value, str) else value.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"labels of bytes must be UTF-8, got {_shown(value)}") from None


def _check_exact(values: np.ndarray, limit: float) -> None:
    """Raises InputError for floats that are not whole, or that stand for their neighbours too."""
    odd = values[~np.isfinite(values) | (values != np.round(values))]
    if odd.size:
        raise InputError(f"labels must be integers or strings, got {odd[0]:g}")
    if values.size and np.abs(values).max() >= limit:
        raise InputError(
            f"labels as floats must be below {limit:,.0f}, where they are exact, got "
            f"{values[np.abs(values).argmax()]:g}; give integers"
        )


def _not_one_each(shape: tuple[int, ...], rows: np.ndarray) -> InputError:
    """The error about labels of this shape, of which some rows are given."""
    line = f"labels must be one per example, shape (n,), got shape {tuple(shape)}"
    numbers = rows.ndim == 2 and rows.dtype.kind in "iufbO"
    if numbers and np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all():
        line += "; of one-hot rows give the positions, labels.argmax(1)"
    return InputError(line)


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else text[:39] + "…"
