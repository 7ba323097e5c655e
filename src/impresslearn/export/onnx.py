"""Exports a task as an ONNX file, and compares it with the module that it was made from."""

from __future__ import annotations

import math
import os
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
DEFAULT_TOLERANCE = 1e-3
"""Batch norm over few values magnifies rounding; a wrong operator is off by much more."""


def export_onnx(
    task: TaskModel,
    path: str | os.PathLike,
    example: Any = None,
    *,
    verify: bool = True,
    tolerance: float | None = None,
) -> Path:
    """Writes an ONNX model with the input "input" (batch, ...) and the output "logits" (batch, K).

    - task: of `learner.task_model`.
    - path: of the file.
    - example: as in `export_program`.
    - verify: whether to compare the model's logits with the module's on random inputs, where
      onnxruntime is installed.
    - tolerance: the largest relative error (Euclidean norm) of these logits; by default 1e-3, 1e-2
      for float16 and 1e-1 for bfloat16.

    The batch size is free. Several inputs keep their names, or are "input_0", "input_1" and so on.
    The metadata_props are those of `TaskModel.metadata`. Raises MissingDependencyError without onnx
    and onnxscript; InputError if sizes are missing, the network cannot be translated or the file
    cannot be written; ImpressLearnError if onnxruntime cannot run the model or computes something
    else, and then nothing is written.
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"exporting to ONNX needs {' and '.join(missing)}: pip install 'impresslearn[onnx]'"
        )
    check_place(path)
    inputs = task.example_inputs(example)
    module = export_module(task).cpu()
    model = _translated(task, module, inputs)
    if verify and find_spec("onnxruntime") is not None:
        if tolerance is None:
            tolerance = TOLERANCE.get(task.backbone.dtype, DEFAULT_TOLERANCE)
        _verify(task, module, model, inputs, tolerance)
    return write_file(path, model)


def _translated(task: TaskModel, module: nn.Module, inputs: Tensor | Inputs) -> bytes:
    """The bytes of the ONNX model of a module."""
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
    task: TaskModel, module: nn.Module, model: bytes, inputs: Tensor | Inputs, tolerance: float
) -> None:
    """Raises ImpressLearnError unless onnxruntime computes the logits of the module."""
    generator, dtype = torch.Generator().manual_seed(0), task.backbone.dtype
    by_batch = task.backbone.normalises_by_batch or task.view.mode == "batch"
    # Statistics of a small batch magnify rounding, and one input may have none.
    for rows in (16, 24) if by_batch else (1, 16):
        if isinstance(inputs, Inputs):  # only the network knows which of them are ids
            values = inputs[torch.arange(rows) % len(inputs)]
        else:
            values = Inputs(_random(inputs, rows, task.backbone.vocabulary, generator))
        expected = module(*values.arguments, **values.named).double()
        try:
            logits = _run(model, dict(zip(_names(inputs), values.tensors, strict=True))).double()
        except Exception as error:  # onnxruntime's errors have no common base
            raise ImpressLearnError(
                f"onnxruntime cannot run the exported {task.backbone.name} in {dtype}: "
                f"{first_line(error)}; verify=False writes it all the same"
            ) from error
        relative = math.inf
        if logits.shape == expected.shape:
            size = max(float(expected.norm()), 1e-30)  # logits may all be zero
            relative = float((logits - expected).norm()) / size
        if not relative <= tolerance:  # written so that a NaN fails
            raise ImpressLearnError(
                f"the ONNX model of task {task.name!r} computes other logits than the module: a "
                f"relative error of {relative:.1e} for {rows} random inputs, allowed "
                f"{tolerance:.1e}; nothing was written"
            )


def _names(inputs: Tensor | Inputs) -> list[str]:
    """The names of the model's inputs: "input", or their own names, or "input_0" and so on."""
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
    top = 256 if example.dtype == torch.uint8 else vocabulary or 2
    return torch.randint(top, shape, generator=generator).to(example.dtype)


def _run(model: bytes, inputs: dict[str, Tensor]) -> Tensor:
    """The logits that onnxruntime computes."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    return torch.from_numpy(session.run([OUTPUT], arrays)[0])
