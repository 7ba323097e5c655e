"""Labels as the user gives them, integers or strings, and as class indices 0..K-1.

All labels pass through `label_array`, so that the rest of the library can compare them by equality.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import composed, encodable
from impresslearn.errors import InputError

Label = int | str


def label_array(labels: Any) -> np.ndarray:
    """Labels as a (n,) array of int64 or of strings.

    - `labels`: integers of 64 bits, booleans, whole floats or strings, all of one kind: a list, an
      array or a tensor of shape (n,) or (n, 1). Strings come back in Unicode's form NFC.
    """
    if isinstance(labels, np.ma.MaskedArray):
        raise InputError("labels must not be masked; leave out the examples without one")
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu()
        # NumPy has no bfloat16.
        labels = (labels.float() if labels.is_floating_point() else labels).numpy()
    if not isinstance(labels, (list, tuple)):
        labels = np.asarray(labels)
        if labels.ndim != 1 and labels.shape[1:] != (1,):
            raise _wrong_shape(labels.shape)
        if labels.dtype.kind in "ib":  # other kinds may hold values that int64 cannot keep apart
            return labels.ravel().astype(np.int64)
        labels = labels.ravel().tolist()
    return _from_values(labels)


def classes_of(labels: np.ndarray) -> tuple[Label, ...]:
    """The distinct labels, sorted, as plain Python values."""
    return tuple(np.unique(labels).tolist())


def task_classes(labels: np.ndarray, outputs: int | None) -> tuple[Label, ...]:
    """The classes of a training set, at least two and at most `outputs` (None for no limit)."""
    classes = classes_of(labels)
    if len(classes) < 2:
        raise InputError(f"a task needs at least two classes; all labels are {classes[0]!r}")
    return _fitting(classes, outputs)


def grown_classes(
    known: tuple[Label, ...], added: tuple[Label, ...], outputs: int | None
) -> tuple[Label, ...]:
    """The classes of a task, followed by the classes that only the new data have."""
    if type(known[0]) is not type(added[0]):
        line = f"the task's labels are like {known[0]!r}, the new labels like {added[0]!r}"
        raise InputError(f"{line}; give them as the task has them")
    return _fitting(known + tuple(label for label in added if label not in known), outputs)


def _fitting(classes: tuple[Label, ...], outputs: int | None) -> tuple[Label, ...]:
    count = len(classes)
    if outputs is not None and count > outputs:
        raise InputError(
            f"the task would have {count} classes, but the network has {outputs} outputs, which "
            f'cannot change; make a new network with head="own", or with num_classes={count}'
        )
    return classes


def encode_labels(labels: np.ndarray, classes: Sequence[Label]) -> Tensor:
    """(n,) int64 places in the classes. Raises InputError that names a label of none of them."""
    index_of = {label: index for index, label in enumerate(classes)}
    try:
        return torch.tensor([index_of[label] for label in labels.tolist()], dtype=torch.long)
    except KeyError as error:
        label, known = error.args[0], tuple(classes)
        grown_classes(known or (label,), (label,), None)  # raises for strings among integers
        raise InputError(
            f"label {label!r} is not among the classes {some(known)}; leave it out, add it to "
            "classes= if they were given, or update the task with examples of it (update_task, "
            "learn --update)"
        ) from None


def some(values: Sequence[str | int]) -> str:
    """Names for an error line, cut after the eighth."""
    shown = [repr(shorten(value) if isinstance(value, str) else value) for value in values[:8]]
    return ", ".join(shown) + (", …" if len(values) > 8 else "")


def shorten(text: str) -> str:
    """A text for an error line, cut after forty characters."""
    return text if len(text) <= 40 else text[:39] + "…"


def _from_values(values: Sequence[Any]) -> np.ndarray:
    # NumPy would make strings of [1, "1"] and so one class of two: kinds are compared before.
    if not set(map(type, values)) <= {int, str}:
        values = [_plain(value, len(values)) for value in values]
    example_of = {type(value): value for value in values}
    if set(example_of) == {str}:
        if not encodable("".join(values)):
            raise InputError("a label is no valid Unicode, which no file can keep")
        return np.array(list(map(composed, values)), dtype=str)
    if not set(example_of) <= {int}:
        shown = ", ".join(shorten(ascii(value)) for value in example_of.values())
        hint = "; decode them, as with numpy.char.decode" if bytes in example_of else ""
        raise InputError(f"labels must be all integers or all strings, got {shown}{hint}")
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        largest = shorten(str(max(values, key=abs)))
        raise InputError(f"labels must fit 64 bits with a sign, got {largest}") from None


def _plain(value: Any, count: int) -> Any:
    """The Python value of a scalar of NumPy or torch, of a row of one, or of an enumeration."""
    if isinstance(value, (Tensor, np.ndarray, np.generic, list, tuple)):
        shape = np.shape(value)
        if shape not in ((), (1,)):
            raise _wrong_shape((count, *shape))
        value = np.asarray(value).item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else value


def _wrong_shape(shape: tuple[int, ...]) -> InputError:
    line = f"labels must be one per example, shape (n,), got shape {shape}"
    return InputError(f"{line}; give a list of them, or labels.argmax(1) of one-hot rows")
