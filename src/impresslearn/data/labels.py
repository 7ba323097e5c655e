"""Labels as the user gives them (integers or strings), and as class indices 0..K-1.

All labels pass through `label_array`, so the rest of the library can compare labels with ==.
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

    - `labels`: a list, array or tensor of shape (n,) or (n, 1). All are of one kind: integers of 64
      bits, booleans, floats without a fraction, or strings. Strings are brought to Unicode's NFC.
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
        if labels.dtype.kind in "ib":  # values of other kinds may be equal as int64
            return labels.ravel().astype(np.int64)
        # NumPy would turn times in nanoseconds into integers.
        labels = list(labels.ravel()) if labels.dtype.kind in "mM" else labels.ravel().tolist()
    return _from_values(labels)


def classes_of(labels: np.ndarray) -> tuple[Label, ...]:
    """The distinct labels, sorted, as plain Python values."""
    return tuple(np.unique(labels).tolist())


def task_classes(labels: np.ndarray, outputs: int | None) -> tuple[Label, ...]:
    """The classes of a training set. InputError unless there are 2 to `outputs` (None: any)."""
    classes = classes_of(labels)
    if len(classes) < 2:
        raise InputError(f"a task needs at least two classes; all labels are {classes[0]!r}")
    return _fitting(classes, outputs)


def grown_classes(
    known: tuple[Label, ...], added: tuple[Label, ...], outputs: int | None
) -> tuple[Label, ...]:
    """The classes of a task, followed by the classes that are new in added data."""
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
    """Positions (n,) int64 in the classes. Raises InputError, which names an unknown label."""
    index_of = {label: index for index, label in enumerate(classes)}
    try:
        return torch.tensor([index_of[label] for label in labels.tolist()], dtype=torch.long)
    except KeyError as error:
        label, known = error.args[0], tuple(classes)
        grown_classes(known or (label,), (label,), None)  # raises if integers and strings are mixed
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
    # Check kinds first: NumPy would turn [1, "1"] into strings, which are then one class.
    if not set(map(type, values)) <= {int, str}:
        values = [_plain(value, len(values)) for value in values]
    example_of = {type(value): value for value in values}
    if set(example_of) == {str}:
        if not encodable("".join(values)):
            raise InputError("a label is no valid Unicode, which no file can keep")
        if any(value.endswith("\0") for value in values):  # NumPy would drop it
            raise InputError("a label ends in NUL; strip it")
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
    """The Python value of a NumPy or torch scalar, a row of one value, or an enumeration member."""
    if isinstance(value, (Tensor, np.ndarray, np.generic, list, tuple)):
        shape = np.shape(value)
        if shape not in ((), (1,)):
            raise _wrong_shape((count, *shape))
        array = np.asarray(value)
        value = array.ravel()[0] if array.dtype.kind in "mM" else array.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else value


def _wrong_shape(shape: tuple[int, ...]) -> InputError:
    line = f"labels must be one per example, shape (n,), got shape {shape}"
    return InputError(f"{line}; give a list of them, or labels.argmax(1) of one-hot rows")
