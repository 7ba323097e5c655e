"""Exports a task as an ONNX file, and checks it against the module that it was made from."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from impresslearn.errors import ImpressLearnError, MissingDependencyError
from impresslearn.export.module import TaskModel, export_module, first_line, traced, translating
from impresslearn.files import check_place, write_file

INPUT, OUTPUT, BATCH = "input", "logits", "batch"
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 1e-1}
"""Allowed relative error of number formats with few digits; 1e-5 for others."""

ROUNDING = 10
"""How many times the module's own rounding error passes too: batch norm over few values, layer upon
layer, magnifies rounding beyond any fixed tolerance."""


def export_onnx(
    task: TaskModel,
    path: str | os.PathLike,
    example: Any = None,
    *,
    verify: bool = True,
    tolerance: float | None = None,
) -> Path:
    """Writes an ONNX model with the input "input" (batch, ...) and the output "logits" (batch, K).

    The batch size is free. example: as in `export_program`. The metadata_props are those of
    `TaskModel.metadata`. verify: whether the model is compared with the module where onnxruntime is
    installed: ‖difference‖ <= tolerance ‖logits‖ in the Euclidean norm over a batch of random
    inputs. By default tolerance is 1e-5, 1e-2 for float16 and 1e-1 for bfloat16, or ten times the
    module's own error against float64 where that is more.
    Raises MissingDependencyError without onnx and onnxscript, InputError where sizes are missing,
    the network cannot be translated or the file cannot be written, and ImpressLearnError where
    onnxruntime cannot run the model or computes something else; nothing is written then.
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"exporting to ONNX needs {' and '.join(missing)}: pip install 'impresslearn[onnx]'"
        )
    check_place(path)
    inputs = task.example_inputs(example)
    module = export_module(task).cpu()
    data = _translated(task, module, inputs)
    if verify and find_spec("onnxruntime") is not None:
        _verify(task, module, data, inputs, tolerance)
    return write_file(path, data)


def _translated(task: TaskModel, module: nn.Module, inputs: Tensor) -> bytes:
    program = traced(task, module, inputs)
    failed = f"{task.backbone.name} cannot be translated to ONNX"
    with translating(failed, "a .pt2 or .safetensors file can be written without"):
        translated = torch.onnx.export(
            program,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: BATCH},),
            dynamo=True,
            verbose=False,
        )
        assert translated is not None  # it is None only where torch writes the file itself
        translated.model.metadata_props.update(task.metadata())
        return translated.model_proto.SerializeToString()


@torch.no_grad()
def _verify(
    task: TaskModel, module: nn.Module, data: bytes, inputs: Tensor, tolerance: float | None
) -> None:
    """Raises ImpressLearnError unless onnxruntime's logits are those of the module."""
    generator = torch.Generator().manual_seed(0)
    by_batch = task.backbone.normalises_by_batch or task.view.mode == "batch"
    # Statistics of a small batch magnify rounding, and those of one input may not exist.
    for rows in (16, 24) if by_batch else (1, 16):
        values = torch.randn(rows, *inputs.shape[1:], generator=generator).to(inputs.dtype)
        if inputs.dtype == torch.uint8:  # raw pixels
            values = torch.randint(256, values.shape, generator=generator).to(torch.uint8)
        expected = module(values).double()
        try:
            logits = _run(data, values).double()
        except Exception as error:  # onnxruntime's errors have no common base
            raise ImpressLearnError(
                f"onnxruntime cannot run the exported {task.backbone.name} in {inputs.dtype}: "
                f"{first_line(error)}; verify=False writes it all the same"
            ) from error
        found = _relative_error(logits, expected)
        allowed = TOLERANCE.get(inputs.dtype, 1e-5) if tolerance is None else tolerance
        if tolerance is None and not found <= allowed:
            allowed = max(allowed, ROUNDING * _rounding(task, values, expected))
        if not found <= allowed:  # written so that a NaN fails
            raise ImpressLearnError(
                f"the ONNX model of task {task.name!r} computes other logits than the module: a "
                f"relative error of {found:.1e} for {rows} random inputs, allowed {allowed:.1e}; "
                "nothing was written"
            )


def _relative_error(logits: Tensor, expected: Tensor) -> float:
    if logits.shape != expected.shape:
        return math.inf
    difference, size = float((logits - expected).norm()), float(expected.norm())
    if not difference:
        return 0.0
    return difference / size if size else difference * math.inf


def _rounding(task: TaskModel, raw: Tensor, logits: Tensor) -> float:
    """The relative error of the module itself against float64; 0 where it cannot run in float64."""
    module = export_module(replace(task, preprocessing=None)).cpu().double()
    values = raw if task.preprocessing is None else task.preprocessing.apply(raw)
    try:
        exact = module(values.double())
    except (RuntimeError, ValueError):  # a dtype written into the code
        return 0.0
    return _relative_error(logits, exact.double())


def _run(data: bytes, values: Tensor) -> Tensor:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run([OUTPUT], {INPUT: values.numpy()})[0])
