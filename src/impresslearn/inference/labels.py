"""From logits to labels, and mixed batches: computed task by task and put back in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import Tensor

from impresslearn.data import Label
from impresslearn.errors import InputError


def row_names(task: Any, rows: int) -> list[str]:
    """The task names of a batch, one a row. Raises InputError unless there are `rows` of them."""
    if isinstance(task, bytes) or not isinstance(task, Iterable):
        raise InputError(f"task must be a name, one name a row, or None, got {task!r}")
    names = list(task)
    if len(names) != rows:
        raise InputError(f"{rows} inputs came with {len(names)} task names")
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise InputError(f"every row needs the name of its task, a string, got {odd[0]!r}")
    return names


def labels_by_task(
    inputs: Tensor, names: list[str], labels: Callable[[Tensor, str], np.ndarray]
) -> np.ndarray:
    """labels(inputs of a task, task) for every task, as one array (n,) in the order of the rows.

    Its dtype is object where the tasks' labels are of different kinds.
    """
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    parts = {name: labels(inputs[index], name) for name, index in rows.items()}
    together = np.concatenate(list(parts.values())) if parts else np.array([])
    kind = together.dtype if len({part.dtype.kind for part in parts.values()}) <= 1 else object
    answer = np.empty(len(names), dtype=kind)
    for name, index in rows.items():
        answer[index] = parts[name]
    return answer


def named(logits: Tensor, classes: tuple[Label, ...]) -> np.ndarray:
    """(n, K) logits to the (n,) labels that the classes had when they were learned."""
    return np.asarray(classes)[logits[:, : len(classes)].argmax(dim=1).cpu().numpy()]
