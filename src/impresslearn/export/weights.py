"""A task's weights as a safetensors file, for a network of the same structure."""

from __future__ import annotations

import os
from pathlib import Path

from torch import Tensor

from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.export.modules import merged_network
from impresslearn.export.task import FinishedTask
from impresslearn.export.writing import checked_target, replace_file


def export_safetensors(task: FinishedTask, path: str | os.PathLike) -> Path:
    """Writes the network's state dict with the task's weights and statistics in it.

    With nothing but safetensors and torch it loads into the module of `create_backbone` called with
    the `backbone` of the file's metadata, or into the user's own module:

        state = module.state_dict()
        state.update(safetensors.torch.load_file(path))
        module.load_state_dict(state)

    (A plain dict lacks the versions that a state dict carries, and torch then looks for counters of
    batches in batch norms that have none.)

    Names, shapes and dtypes are the network's own, so that this holds for every task; where the
    network has more outputs than the task has classes, only the first len(classes) mean anything.
    Tensors that are tied are written once for each name. The metadata are those of
    `FinishedTask.metadata`. Raises MissingDependencyError without safetensors, and InputError where
    the file cannot be written or the state dict holds something else than tensors.
    """
    try:
        from safetensors.torch import save
    except ImportError:
        raise MissingDependencyError(
            "exporting weights needs safetensors: pip install safetensors"
        ) from None
    checked_target(path)
    tensors: dict[str, Tensor] = {}
    for name, value in merged_network(task).state_dict().items():
        if not isinstance(value, Tensor):
            raise InputError(
                f"{task.backbone.name} keeps a {type(value).__name__} as {name!r}, and a "
                "safetensors file holds only tensors"
            )
        # A copy each: the format refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
    return replace_file(path, save(tensors, task.metadata()))
