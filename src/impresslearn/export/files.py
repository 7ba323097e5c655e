"""Exports a task to a file: weights as .safetensors, computation as .pt2 or .onnx."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save
from torch import Tensor

from impresslearn.errors import InputError
from impresslearn.export.module import TaskModel, export_module, merged_network, traced, translating
from impresslearn.export.onnx import export_onnx
from impresslearn.files import check_place, write_file

Format = Literal["safetensors", "onnx", "pt2"]
FORMATS = get_args(Format)
METADATA_FILE = "impresslearn.json"
"""The extra file of a .pt2 archive that holds the metadata."""


def export_task(
    task: TaskModel, path: str | os.PathLike, format: Format | None = None, example: Any = None
) -> Path:
    """Writes a task to a file that needs no part of this library, and returns its path.

    - task: of `learner.task_model`.
    - path: of the file.
    - format: one of `FORMATS`; by default the suffix of the path.
    - example: a batch of inputs (n, ...) of the size that an .onnx or .pt2 file is made for; needed
      if the backbone takes inputs of any size.

    Raises InputError for another format, and the errors of `export_safetensors`, `export_onnx` and
    `export_program`.
    """
    check_place(path)
    name = os.path.splitext(path)[1][1:].lower() if format is None else format
    if name == "safetensors":
        return export_safetensors(task, path)
    if name in ("onnx", "pt2"):
        return (export_onnx if name == "onnx" else export_program)(task, path, example)
    if format is None:
        wanted = ", ".join(f".{suffix}" for suffix in FORMATS)
        raise InputError(f"the path of an export must end in {wanted}, got {path}")
    raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")


def export_safetensors(task: TaskModel, path: str | os.PathLike) -> Path:
    """Writes the network's state dict with the task's weights and statistics in it.

    It loads into the module of `create_backbone` called with the `backbone` of the file's metadata,
    or into your own module, without this library:

        state = module.state_dict()
        state.update(safetensors.torch.load_file(path))
        module.load_state_dict(state)

    Names, shapes and dtypes are the network's. A task with its own head has one row per class
    in it: pass num_classes=len(classes) to `create_backbone`. In a shared head with more outputs
    than classes only the first len(classes) are the task's. The metadata are `TaskModel.metadata`.
    Raises InputError if the file cannot be written, the task is a readout of several networks, or
    the state dict holds something other than tensors.
    """
    check_place(path)
    if task.view.others:
        raise InputError(
            f"task {task.name!r} reads the features of {1 + len(task.view.others)} networks, which "
            "one network's weights cannot hold; write .pt2 or .onnx"
        )
    tensors: dict[str, Tensor] = {}
    for name, value in merged_network(task).state_dict().items():
        if not isinstance(value, Tensor):
            raise InputError(
                f"{task.backbone.name} keeps a {type(value).__name__} as {name!r}, and a "
                "safetensors file holds only tensors"
            )
        # Copies, because the format refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
    return write_file(path, save(tensors, task.metadata()))


def export_program(task: TaskModel, path: str | os.PathLike, example: Any = None) -> Path:
    """Writes a program of `torch.export` that maps inputs (n, ...) to logits (n, K) on the CPU.

    - task, path: as in `export_task`.
    - example: a batch of inputs (n, ...); n is free, the program keeps its other sizes.
      Needed if the backbone takes inputs of any size.

    Load the file with torch alone:

        torch.export.load(path, extra_files=(about := {"impresslearn.json": ""})).module()

    about["impresslearn.json"] then holds `TaskModel.metadata` as a JSON object. Raises InputError
    if sizes are missing, torch cannot trace the network, or the file cannot be written.
    """
    check_place(path)
    program = traced(task, export_module(task).cpu(), task.example_inputs(example))
    data = io.BytesIO()
    metadata = json.dumps(task.metadata(), ensure_ascii=False)
    with translating(f"torch cannot save {task.backbone.name}", "a .safetensors file can be"):
        torch.export.save(program, data, extra_files={METADATA_FILE: metadata})
    return write_file(path, data.getvalue())
