"""From logits to labels and accuracy, and batches whose inputs belong to several tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from impresslearn.data import Inputs, Label, classes_of, to_batches
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import checked_examples
from impresslearn.networks.prediction import TaskView


def labels_of(logits: Tensor, classes: tuple[Label, ...]) -> np.ndarray:
    """(n, K) logits to the (n,) labels that the classes had when they were learned."""
    return np.asarray(classes)[logits[:, : len(classes)].argmax(dim=1).cpu().numpy()]


def check_task_names(tasks: Any, count: int) -> list[str]:
    """The task names of a batch, one per input. Raises InputError unless there are `count`."""
    if isinstance(tasks, bytes) or not isinstance(tasks, Iterable):
        raise InputError(f"task must be a name, one name per input, or None, got {tasks!r}")
    names = list(tasks)
    if len(names) != count:
        raise InputError(f"{count} inputs came with {len(names)} task names")
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise InputError(f"every input needs the name of its task, a string, got {odd[0]!r}")
    return names


def labels_by_task(
    inputs: Tensor | Inputs,
    tasks: str | Sequence[str],
    predict: Callable[[Tensor | Inputs, str], np.ndarray],
    known: Callable[[str], Any],
) -> np.ndarray:
    """Labels by the task of each input, as one array (n,) in the inputs' order.

    The dtype is object if the tasks' labels are of different kinds.

    - `tasks`: the task of all inputs, or one per input.
    - `predict`: called once per task as predict(inputs of the task, task).
    - `known`: raises for an unknown name, before anything is computed.
    """
    if isinstance(tasks, str):
        return predict(inputs, tasks)
    names = check_task_names(tasks, len(inputs))
    for name in dict.fromkeys(names):
        known(name)
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)
    parts = {name: predict(inputs[index], name) for name, index in positions.items()}
    one_kind = len({part.dtype.kind for part in parts.values()}) <= 1
    together = np.concatenate(list(parts.values()) or [np.array([])])
    labels = np.empty(len(names), dtype=together.dtype if one_kind else object)
    for name, index in positions.items():
        labels[index] = parts[name]
    return labels


def accuracy_of(
    backbone: Backbone,
    view: TaskView,
    data: Any,
    preprocessing: Preprocessing | None = None,
    classes: Sequence[Label] | None = None,
) -> float:
    """Accuracy in [0, 1] of a task's weights on labelled data, of that task or an unlearned one.

    - `data`, `preprocessing`: as of `checked_examples`.
    - `classes`: the task's classes in the order of the outputs; by default those in the data.

    Raises InputError for more classes than outputs, and data that do not fit the backbone.
    """
    examples = checked_examples(backbone, data, preprocessing)
    labels = tuple(classes_of(examples.labels) if classes is None else classes)
    # A view without a head, in a network where tasks have their own, predicts the first class.
    if backbone.own_head is not None and backbone.own_head.name not in view.weights:
        view = replace(view, weights=view.weights | backbone.new_head(len(labels)))
    elif backbone.own_head is None and len(labels) > backbone.num_classes:
        raise InputError(
            f"the data have {len(labels)} classes, the backbone only {backbone.num_classes} outputs"
        )
    source = to_batches(examples, labels, backbone.device)
    return replace(view, num_classes=len(labels)).accuracy(backbone, source)
