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

from impresslearn.data import Inputs
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

    The batch size is free. Several inputs keep their names, or are "input_0", "input_1" and so on.
    example: as in `export_program`. The metadata_props are those of
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


def _translated(task: TaskModel, module: nn.Module, inputs: Tensor | Inputs) -> bytes:
    program, names = traced(task, module, inputs), _names(inputs)
    failed = f"{task.backbone.name} cannot be translated to ONNX"
    with translating(failed, "a .pt2 or .safetensors file can be written without"):
        translated = torch.onnx.export(
            program,
            input_names=names,
            output_names=[OUTPUT],
            dynamic_shapes=tuple({0: BATCH} for _ in names),
            dynamo=True,
            verbose=False,
        )
        assert translated is not None  # it is None only where torch writes the file itself
        translated.model.metadata_props.update(task.metadata())
        return translated.model_proto.SerializeToString()


@torch.no_grad()
def _verify(
    task: TaskModel,
    module: nn.Module,
    data: bytes,
    inputs: Tensor | Inputs,
    tolerance: float | None,
) -> None:
    """Raises ImpressLearnError unless onnxruntime's logits are those of the module."""
    generator, dtype = torch.Generator().manual_seed(0), task.backbone.dtype
    by_batch = task.backbone.normalises_by_batch or task.view.mode == "batch"
    # Statistics of a small batch magnify rounding, and those of one input may not exist.
    for rows in (16, 24) if by_batch else (1, 16):
        if isinstance(inputs, Inputs):  # of which only the network knows what is an id
            values = inputs[torch.arange(rows) % len(inputs)]
        else:
            values = Inputs(_random(inputs, rows, task.backbone.vocabulary, generator))
        expected = module(*values.arguments, **values.named).double()
        try:
            logits = _run(data, dict(zip(_names(inputs), values.tensors, strict=True))).double()
        except Exception as error:  # onnxruntime's errors have no common base
            raise ImpressLearnError(
                f"onnxruntime cannot run the exported {task.backbone.name} in {dtype}: "
                f"{first_line(error)}; verify=False writes it all the same"
            ) from error
        found = _relative_error(logits, expected)
        allowed = TOLERANCE.get(dtype, 1e-5) if tolerance is None else tolerance
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


def _rounding(task: TaskModel, raw: Inputs, logits: Tensor) -> float:
    """The relative error of the module itself against float64; 0 where it cannot run in float64."""
    module = export_module(replace(task, preprocessing=None)).cpu().double()
    values = raw if task.preprocessing is None else raw.map(task.preprocessing.apply)
    values = values.to(torch.float64)
    try:
        exact = module(*values.arguments, **values.named)
    except (RuntimeError, ValueError):  # a dtype written into the code
        return 0.0
    return _relative_error(logits, exact.double())


def _names(inputs: Tensor | Inputs) -> list[str]:
    """What the model calls its inputs: "input", or their names, or "input_0" and so on."""
    if not isinstance(inputs, Inputs):
        return [INPUT]
    return [name if isinstance(name, str) else f"{INPUT}_{name}" for name, _ in inputs.items()]


def _random(
    example: Tensor, rows: int, vocabulary: int | None, generator: torch.Generator
) -> Tensor:
    """Inputs like the example: normal numbers, pixels, or token ids."""
    shape = rows, *example.shape[1:]
    if example.is_floating_point():
        return torch.randn(shape, generator=generator).to(example.dtype)
    most = 256 if example.dtype == torch.uint8 else vocabulary or 2
    return torch.randint(most, shape, generator=generator).to(example.dtype)


def _run(data: bytes, values: dict[str, Tensor]) -> Tensor:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return torch.from_numpy(
        session.run([OUTPUT], {name: each.numpy() for name, each in values.items()})[0]
    )
