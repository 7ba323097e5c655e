"""Labels as the user gave them, integers or strings, and as class indices 0..K-1.

All labels pass through `label_array`, which refuses what would make one class of two values, and
what no store or terminal could write. Everything behind it compares labels by equality.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import encodable
from impresslearn.data.paths import shorten, some
from impresslearn.errors import InputError

Label = int | str

MOST_BYTES = 2**30
"""What the labels of one data set may take: a numpy array of texts, each as long as the longest."""


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
    array = _exact_array(labels if isinstance(labels, Tensor) else np.asarray(labels))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise _not_one_each(array.shape, array)
    if array.dtype.kind in "USO":
        return _from_values(array.tolist())
    if array.dtype.kind == "u" and array.size and array.max() >= 2**63:
        raise InputError(f"labels must fit 64 bits with a sign, got {array.max()}")
    if array.dtype.kind not in "iubf":
        raise InputError(f"labels must be integers or strings, got {array.dtype} values")
    return array.astype(np.int64)


def classes_of(labels: np.ndarray) -> tuple[Label, ...]:
    """The distinct labels, sorted, as plain Python values."""
    return tuple(np.unique(labels).tolist())


def task_classes(labels: np.ndarray, outputs: int | None) -> tuple[Label, ...]:
    """The classes of a training set, for a network with so many outputs; None for any number.

    Raises InputError for a single class, and for more classes than outputs.
    """
    classes = classes_of(labels)
    if len(classes) < 2:
        raise InputError(f"a task needs at least two classes; all labels are {classes[0]!r}")
    if outputs is not None and len(classes) > outputs:
        raise InputError(
            f"the task has {len(classes)} classes, the network {outputs} outputs, which cannot "
            f"change; make a new one with num_classes={len(classes)}"
        )
    return classes


def grown_classes(
    known: tuple[Label, ...], found: tuple[Label, ...], outputs: int | None
) -> tuple[Label, ...]:
    """The classes of a task and, behind them, those that new data add, for so many outputs.

    Raises InputError for labels of another kind than the task's, and for too many classes.
    """
    if type(known[0]) is not type(found[0]):
        raise InputError(
            f"the task's labels are like {known[0]!r}, those of the new data like {found[0]!r}; "
            "give them as the task has them"
        )
    classes = known + tuple(label for label in found if label not in known)
    if outputs is not None and len(classes) > outputs:
        raise InputError(
            f"the task would have {len(classes)} classes, the backbone has {outputs} outputs; "
            'classes that come later want head="own", or a larger num_classes'
        )
    return classes


def encode_labels(labels: np.ndarray, index_of: dict[Label, int]) -> Tensor:
    """(n,) int64 class indices. Raises InputError that names a label that is not in the map."""
    try:
        return torch.tensor([index_of[label] for label in labels.tolist()], dtype=torch.long)
    except KeyError as error:
        raise InputError(
            f"label {error.args[0]!r} was never seen by this task; it knows {some(list(index_of))}"
        ) from None


def _from_values(values: Sequence[Any]) -> np.ndarray:
    """Labels one by one, before numpy makes strings of all of them."""
    if not set(map(type, values)) <= {int, float, str}:
        values = [_plain(value, len(values)) for value in values]
    example = {type(value): value for value in values}
    kinds = example.keys()
    if len(kinds) > 1 and not kinds <= {int, float}:
        shown = ", ".join(shorten(ascii(value)) for value in example.values())
        raise InputError(f"labels must be all integers or all strings, got {shown}")
    if not kinds <= {int, float, bool, str, bytes}:
        raise InputError(f"labels must be integers or strings, got {shorten(ascii(values[0]))}")
    if kinds & {str, bytes}:
        return _from_strings(values)
    if float in kinds:
        _exact_array(np.array([value for value in values if type(value) is float]))
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except OverflowError:
        largest = shorten(ascii(max(values, key=abs)))
        raise InputError(f"labels must fit 64 bits with a sign, got {largest}") from None


def _plain(value: Any, count: int) -> Any:
    """The plain value that a scalar of numpy or torch, or a member of an enumeration, stands for.

    Others come back as they are; count: of the labels it is one of, for the error about a row.
    """
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = _exact_array(value if isinstance(value, Tensor) else np.asarray(value)).tolist()
    if isinstance(value, (list, tuple)):
        row = np.array(value, dtype=object)
        if row.shape != (1,):
            raise _not_one_each((count, *row.shape), row[None])
        value = value[0]
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) and type(value) is not bool else value


def _exact_array(values: Tensor | np.ndarray) -> np.ndarray:
    """Labels as an array, bfloat16 among them as float64.

    Raises InputError for floats that are not whole, or that stand for their neighbours too: from
    2 / eps of their type on, or beyond 64 bits.
    """
    eps: Any = 1.0
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.is_floating_point():
            eps, values = torch.finfo(values.dtype).eps, values.double()
        values = values.numpy()
    elif values.dtype.kind == "f":
        eps = np.finfo(values.dtype).eps
    if values.dtype.kind != "f":
        return values
    odd = values[~np.isfinite(values) | (values != np.round(values))]
    if odd.size:
        raise InputError(f"labels must be integers or strings, got {odd[0]:g}")
    limit = min(2 / float(eps), 2.0**63)
    if values.size and np.abs(values).max() >= limit:
        raise InputError(
            f"labels as floats must be below {limit:,.0f}, where they are exact, got "
            f"{values.flat[np.abs(values).argmax()]:g}; give integers"
        )
    return values


def _from_strings(values: Sequence[str | bytes]) -> np.ndarray:
    text_of: dict[str | bytes, str] = {}
    for value in dict.fromkeys(values):
        try:
            text_of[value] = value if isinstance(value, str) else value.decode("utf-8")
        except UnicodeDecodeError:
            shown = shorten(ascii(value))
            raise InputError(f"labels of bytes must be UTF-8, got {shown}") from None
    for text in text_of.values():
        shown = shorten(ascii(text))
        if 4 * len(text) * len(values) > MOST_BYTES:  # numpy makes all as long as the longest
            raise InputError(
                f"{len(values):,} labels of up to {len(text):,} characters take more than "
                f"{MOST_BYTES:,} bytes; give numbers or shorter names"
            )
        if not encodable(text):
            raise InputError(f"a label is no valid Unicode, which no file can keep: {shown}")
        if text.endswith("\0"):
            raise InputError(f"labels must not end in NUL, which numpy cuts off, got {shown}")
    return np.array([text_of[value] for value in values], dtype=str)


def _not_one_each(shape: tuple[int, ...], rows: np.ndarray) -> InputError:
    """The error about labels of this shape, of which some rows are given."""
    line = f"labels must be one per example, shape (n,), got shape {tuple(shape)}"
    numbers = rows.ndim == 2 and rows.dtype.kind in "iufbO"
    if numbers and np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all():
        line += "; of one-hot rows give the positions, labels.argmax(1)"
    return InputError(line)
