"""A task as a program of `torch.export`: the computation itself, without any Python class.

`traced` is also where the ONNX export starts. The batch size of a program is free; all other sizes
are those of the inputs that it was traced with.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from impresslearn.data import as_inputs
from impresslearn.errors import InputError
from impresslearn.export.modules import export_module
from impresslearn.export.task import FinishedTask
from impresslearn.export.writing import checked_target, replace_file

METADATA_FILE = "impresslearn.json"
"""The extra file of a .pt2 archive that holds the metadata."""


def export_program(task: FinishedTask, path: str | os.PathLike, example: Any = None) -> Path:
    """Writes a program that maps inputs (n, ...) to logits (n, K), for the CPU, with n free.

    example: a batch of inputs (n, ...) whose other sizes the program is made for; needed where the
    backbone takes inputs of any size. The file is torch's: load it with

        torch.export.load(path, extra_files=(about := {"impresslearn.json": ""})).module()

    after which about["impresslearn.json"] holds `FinishedTask.metadata` as a JSON object. Which
    versions of torch can read which files is torch's business.
    Raises InputError where sizes are missing, torch cannot trace the network, or the file cannot be
    written.
    """
    checked_target(path)
    program = traced(task, export_module(task).cpu(), example_inputs(task, example))
    data = io.BytesIO()
    with quiet():
        metadata = json.dumps(task.metadata(), ensure_ascii=False)
        torch.export.save(program, data, extra_files={METADATA_FILE: metadata})
    return replace_file(path, data.getvalue())


def example_inputs(task: FinishedTask, example: Any) -> Tensor:
    """Two inputs (2, ...) on the CPU: the example's first, or zeros.

    They have the backbone's dtype, or are uint8 where the task takes raw pixels; with a
    preprocessing they are raw. Raises InputError for an unsuitable example, and without one where
    a size is free.
    """
    backbone, raw = task.backbone, task.preprocessing
    dtype = torch.uint8 if raw is not None and raw.pixels else backbone.dtype
    if example is not None:
        if raw is not None:
            backbone.check_inputs(raw.apply(example))
        inputs = as_inputs(example)
        if raw is None:
            backbone.check_inputs(inputs)
        if len(inputs) == 0:
            raise InputError("example holds no input; expected a batch (n, ...) of at least one")
        # Tracing takes a batch of one for a size that never changes.
        return torch.cat([inputs, inputs])[:2].to("cpu", dtype)
    shape = backbone.input_shape if raw is None or raw.shape is None else raw.shape
    sizes = [] if shape is None else [size for size in shape if size is not None]
    if shape is None or len(sizes) < len(shape):
        accepted = "" if shape is None else " " + str(shape).replace("None", "*")
        raise InputError(
            f"{backbone.name} takes inputs of any size{accepted}; pass example=, a batch of inputs "
            "of the size to export for"
        )
    return torch.zeros(2, *sizes, dtype=dtype)


def traced(task: FinishedTask, module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """The program of a module on the CPU, for batches of any size like `example` (2, ...).

    Raises InputError where torch cannot trace the module with a free batch size.
    """
    batch = torch.export.Dim("batch")
    try:
        with quiet(), torch.no_grad():
            shapes = ({0: batch},)
            return torch.export.export(module, (example,), dynamic_shapes=shapes, strict=False)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # torch raises all kinds for what it cannot trace
        reason = first_line(error)
        raise InputError(
            f"torch.export cannot trace {task.backbone.name}: {reason}; a .safetensors file needs "
            "no tracing"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of torch and its exporters, which are about their own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def first_line(error: BaseException) -> str:
    """The first line of an error's message that says anything, or the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
