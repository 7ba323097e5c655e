"""Exports a task to an .onnx file that computes its logits."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from impresslearn.checks import check_kind, imported
from impresslearn.data import Inputs
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.export.module import ExportedTask, TaskModel
from impresslearn.files import check_place, reason_of, write_file


def export_task(
    task: TaskModel, path: str | os.PathLike, example: Any = None, *, verify: bool = True
) -> Path:
    """Writes a task to an .onnx file, which runs without this library. Returns the path.

    - `task`: from `learner.task_model`.
    - `path`: the path of the file, which ends in .onnx.
    - `example`: a batch of inputs (n, ...) with the sizes that the file is made for; n stays free.
      Needed if the backbone takes inputs of any size.
    - `verify`: whether to compare the logits with the module's, if onnxruntime is installed. They
      may differ by 1e-3 of their Euclidean norm, or 1e-1 in half precision. Default True.

    The file has the input "input" (batch, ...), the output "logits" (batch, K), and
    `TaskModel.metadata`. If there are several inputs, they keep their names, or are called
    "input_0", "input_1" and so on. For `torch.export`, use the module of `learner.export(name)`.

    Raises InputError for another suffix, for missing sizes, if ONNX cannot express the network, and
    if the file cannot be written; MissingDependencyError without onnx and onnxscript; and
    ImpressLearnError, without writing a file, if onnxruntime fails or computes other logits.
    """
    check_kind("task (learner.task_model(name))", task, TaskModel)
    check_place(path)
    if os.path.splitext(path)[1].lower() != ".onnx":
        raise InputError(f"the path of an export must end in .onnx, got {path}")
    for package in ("onnx", "onnxscript"):
        imported(package, f"exporting to ONNX needs {package}", "onnx")
    inputs = task.example_inputs(example)
    names = [key if isinstance(key, str) else f"input_{key}" for key, _ in inputs.items()]
    names = ["input"] if names == ["input_0"] else names
    module = ExportedTask(task).cpu()
    program = _traced(task, module, inputs)
    with _one_line(f"{task.backbone.name} cannot be translated to ONNX"):
        translated = torch.onnx.export(
            program,
            input_names=names,
            output_names=["logits"],
            dynamic_shapes=tuple({0: "batch"} for _ in names),
            dynamo=True,
            verbose=False,
        )
        assert translated is not None  # None only if torch writes the file itself
        translated.model.metadata_props.update(task.metadata())
        model = translated.model_proto.SerializeToString()
    if verify and find_spec("onnxruntime") is not None:
        _verify(task, module, translated, inputs)
    return write_file(path, model)


@torch.no_grad()
def _verify(
    task: TaskModel, module: nn.Module, program: torch.onnx.ONNXProgram, example: Inputs
) -> None:
    """Raises ImpressLearnError unless onnxruntime computes the logits of the module."""
    rows, dtype = 16, task.backbone.dtype
    generator = torch.Generator().manual_seed(0)
    first, *others = example.tensors
    shape = (rows, *first.shape[1:])
    if others:  # some may be ids, in an unknown range
        inputs = example[torch.arange(rows) % len(example)]
    elif first.is_floating_point():
        inputs = Inputs(torch.randn(shape, generator=generator).to(first.dtype))
    else:
        top = 256 if first.dtype == torch.uint8 else task.backbone.vocabulary or 2
        inputs = Inputs(torch.randint(top, shape, generator=generator).to(first.dtype))
    expected = module(*inputs.arguments, **inputs.named).double()
    try:
        logits = program(*inputs.tensors)[0].double()
    except Exception as error:  # onnxruntime's errors have no common class
        raise ImpressLearnError(
            f"onnxruntime cannot run the exported {task.backbone.name} in {dtype}: "
            f"{reason_of(error)}; verify=False writes it all the same"
        ) from error
    # Batch norm over few values magnifies rounding errors; a wrong operator differs by much more.
    allowed = 1e-1 if dtype in (torch.float16, torch.bfloat16) else 1e-3
    relative = float("inf")
    if logits.shape == expected.shape:
        relative = float((logits - expected).norm()) / max(float(expected.norm()), 1e-30)
    if not relative <= allowed:  # written so that a NaN fails
        raise ImpressLearnError(
            f"the ONNX model of task {task.name!r} computes other logits than the module: a "
            f"relative error of {relative:.1e} for {rows} random inputs, allowed {allowed:.1e}; "
            "nothing was written"
        )


def _traced(task: TaskModel, module: nn.Module, inputs: Inputs) -> torch.export.ExportedProgram:
    """Traces a module on the CPU with `inputs` (2, ...), for batches of any size."""
    # torch.export does not take **named, so a graph gives the module one parameter per input.
    graph, count = fx.Graph(), len(inputs.arguments)
    names = [*(f"input_{place}" for place in range(count)), *inputs.named]
    nodes: list[Any] = [graph.placeholder(name) for name in names]
    named = dict(zip(inputs.named, nodes[count:], strict=True))
    graph.output(graph.call_module("network", tuple(nodes[:count]), named))
    module = fx.GraphModule({"network": module}, graph)
    shapes = {name: {0: torch.export.Dim("batch")} for name in names}
    with _one_line(f"torch.export cannot trace {task.backbone.name}"), torch.no_grad():
        return torch.export.export(
            module, inputs.arguments, inputs.named, dynamic_shapes=shapes, strict=False
        )


@contextmanager
def _one_line(failed: str) -> Iterator[None]:
    """Silences the warnings of torch's exporters about their own code; errors become InputError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # torch and onnxscript raise all kinds
        advice = "learner.export(name), a module, needs no tracing"
        raise InputError(f"{failed}: {reason_of(error)}; {advice}") from error
