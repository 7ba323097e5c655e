"""The file formats of an export, by the suffix of the path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from impresslearn.errors import InputError
from impresslearn.export.onnx import export_onnx
from impresslearn.export.programs import export_program
from impresslearn.export.task import FinishedTask
from impresslearn.export.weights import export_safetensors
from impresslearn.export.writing import checked_target

FORMATS = ("safetensors", "onnx", "pt2")


def export_task(
    task: FinishedTask, path: str | os.PathLike, format: str | None = None, example: Any = None
) -> Path:
    """Writes a task to a file that needs no part of this library, and returns its path.

    format: one of `FORMATS`, by default the suffix of the path. example: a batch of inputs (n, ...)
    of the size that an .onnx or .pt2 file is made for; needed where the backbone takes inputs of
    any size. See `export_safetensors`, `export_onnx` and `export_program`, also for the errors;
    raises InputError for any other format.
    """
    checked_target(path)
    name = os.path.splitext(path)[1][1:].lower() if format is None else format
    if name == "safetensors":
        return export_safetensors(task, path)
    if name == "onnx":
        return export_onnx(task, path, example)
    if name == "pt2":
        return export_program(task, path, example)
    if format is None:
        wanted = ", ".join(f".{each}" for each in FORMATS)
        raise InputError(f"the path of an export must end in {wanted}, got {path}")
    raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
