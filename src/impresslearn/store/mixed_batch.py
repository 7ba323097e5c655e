"""Predicts batches whose rows belong to different tasks, with one pass for readouts together."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from impresslearn.coefficients.readout import Readout
from impresslearn.data import Inputs
from impresslearn.networks.prediction import TaskView, finite
from impresslearn.store.tasks import StoredTask


class MixedPart(NamedTuple):
    """The logits (n, K) of some rows of a batch, and the task of each row."""

    rows: list[int]
    tasks: list[StoredTask]
    logits: Tensor


@torch.no_grad()
def mixed_logits(store: Any, inputs: Tensor | Inputs, names: Sequence[str]) -> Iterator[MixedPart]:
    """The logits of every row of inputs (n, ...), each by the task named for it, in parts.

    Up to rounding they equal the logits that each task alone computes. Raises UnknownTaskError
    before anything is computed, and InputError for logits that are not finite.
    """
    tasks = {name: store.tasks.stored(name) for name in dict.fromkeys(names)}
    groups: dict[Hashable, list[int]] = {}
    for row, name in enumerate(names):
        groups.setdefault(_features_of(store, tasks[name]) or name, []).append(row)
    for group, rows in groups.items():
        members = [tasks[names[row]] for row in rows]
        distinct = {task.name: task for task in members}
        logits = None
        if isinstance(group, tuple) and len(distinct) > 1:
            logits = _stacked(store, inputs[rows], members, store.feature_view(*group[:2]))
        if logits is not None:
            yield MixedPart(rows, members, logits)
            continue
        for name, task in distinct.items():
            own = [row for row in rows if tasks[names[row]].name == name]
            logits = store.view(task).logits(store.backbone, inputs[own])
            yield MixedPart(own, [task] * len(own), logits)


def _features_of(store: Any, task: StoredTask) -> tuple[int, bool, int] | None:
    """A readout's masks, whether it is residual, and its number of classes; None: no shared pass.

    If norms use the statistics of the batch, rows of different tasks must not share a pass.
    """
    readout = task.parts[0] if len(task.parts) == 1 else None
    if not isinstance(readout, Readout) or store.backbone.normalises_by_batch:
        return None
    return task.num_masks, readout.residual, len(task.classes)


def _stacked(
    store: Any, inputs: Tensor | Inputs, members: Sequence[StoredTask], view: TaskView
) -> Tensor | None:
    """Logits (n, K) from one pass of the networks for the features, and one product for all heads.

    None if the network changes logits after its head.
    """
    backbone = store.backbone
    if store.has_plain_head is False or backbone.head_dtype != torch.float32:
        return None
    distinct = {task.name: task for task in members}
    heads = {name: store.weights(task) for name, task in distinct.items()}
    place = {name: number for number, name in enumerate(heads)}
    of_row = torch.tensor([place[task.name] for task in members], device=backbone.device)
    features = view.features(backbone, inputs).float()
    weights = torch.stack([head["weight"] for head in heads.values()])[of_row]
    logits = torch.bmm(features[:, None], weights)[:, 0]
    if biases := [head["bias"] for head in heads.values() if "bias" in head]:
        logits += torch.stack(biases)[of_row]
    if store.has_plain_head is None:
        alone = store.view(members[0]).outputs(backbone, inputs[:1])
        store.has_plain_head = torch.allclose(alone, logits[:1], rtol=1e-3, atol=1e-4)
    return finite(logits) if store.has_plain_head else None
