"""Exports one task: as a module, or as an .onnx file that is traced from the module."""

import copy
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from impresslearn import __version__
from impresslearn.checks import check_kind, imported
from impresslearn.data import Inputs, Label, as_network_inputs
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.files import check_place, reason_of, write_file
from impresslearn.networks import Backbone
from impresslearn.networks.norms import drop_statistics
from impresslearn.networks.prediction import TaskView, Weights


@dataclass(frozen=True)
class TaskModel:
    """One task of a learner, or of another method, as a model that can be exported.

    - backbone: the frozen network.
    - view: the effective weights and norm statistics of the task.
    - name: the name of the task.
    - classes: its labels; logit k belongs to classes[k].
    - preprocessing: applied to the inputs of the export; None if they come prepared.
    """

    backbone: Backbone
    view: TaskView
    name: str
    classes: tuple[Label, ...]
    preprocessing: Preprocessing | None = None

    def metadata(self) -> dict[str, str]:
        """Facts that every file holds in addition to the weights, as text, mostly JSON.

        `task` is the task's name. `backbone` has the arguments of `create_backbone` (null for an
        adapted module). `fingerprint` is the SHA-256 of the frozen network without the task.
        `preprocessing` has the settings of the preprocessing that the file applies to inputs.
        """
        raw = self.preprocessing.settings() if self.preprocessing else None
        return {
            "task": self.name,
            "classes": json.dumps(list(self.classes), ensure_ascii=False),
            "backbone": json.dumps(self.backbone.spec, ensure_ascii=False),
            "fingerprint": self.backbone.fingerprint(),
            "preprocessing": json.dumps(raw),
            "library": "impresslearn",
            "library_version": __version__,
        }

    def example_inputs(self, example: object) -> Inputs:
        """Two inputs (2, ...) on the CPU for tracing, raw if the task has a preprocessing.

        They are the first of the example, or zeros without an example. Raises InputError for an
        unsuitable example, and if there is none although a size is free.
        """
        backbone, raw = self.backbone, self.preprocessing
        dtype = torch.uint8 if raw is not None and raw.pixels else backbone.input_dtype
        if example is not None:
            inputs = as_network_inputs(example if raw is None else raw.ordered(example))
            backbone.check_inputs(inputs if raw is None else raw.apply(example))
            if len(inputs) == 0:
                raise InputError("example holds no input; expected a batch (n, ...) of one or more")
            # With one input, tracing would fix the size of the batch to 1.
            two = inputs[torch.arange(2) % len(inputs)].to("cpu", dtype)
            return two if isinstance(two, Inputs) else Inputs(two)
        shape = backbone.input_shape if raw is None or raw.shape is None else raw.shape
        sizes = [size for size in shape or () if size is not None]
        if shape is None or len(sizes) < len(shape):
            accepted = "" if shape is None else " " + str(shape).replace("None", "*")
            line = f"{backbone.name} takes inputs of any size{accepted}; pass example=, a batch of"
            raise InputError(f"{line} inputs of the size to export for")
        return Inputs(torch.zeros(2, *sizes, dtype=dtype))


class ExportedTask(nn.Module):
    """One task as a module: inputs (n, ...) to logits (n, K); logit k belongs to classes[k].

    The module is in evaluation mode and on the backbone's device. It shares no tensor with the
    backbone and requires no gradients. If the task has a preprocessing, inputs are raw (uint8 for
    pixels, tokens for text, else floats); otherwise they have the backbone's input_dtype. For up to
    1024 inputs, the logits are bit-identical to the learner's.

    Attributes: task, the name; classes, the labels; networks, copies of the network with the task's
    weights. A readout may have several networks, whose logits are added.
    """

    def __init__(self, task: TaskModel) -> None:
        super().__init__()
        backbone, view = task.backbone, task.view
        self.task, self.classes = task.name, task.classes
        every = (view.weights, *view.others)
        self.networks = nn.ModuleList(merged_network(task, weights) for weights in every)
        self._reader, self._flattens = backbone.logits_reader, backbone.flattens
        self._copies = backbone.spec is None  # a user's module may change its inputs in place
        raw, self._dtype = task.preprocessing, backbone.input_dtype
        self._preprocessing = None if raw is None or raw.tokenizer is not None else raw
        self.eval().requires_grad_(False)

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Logits (n, K) of prepared inputs, or of raw inputs if the task has a preprocessing."""
        if self._preprocessing is not None:
            inputs = (self._prepared(*inputs),)
        if self._flattens:
            inputs = (inputs[0].flatten(1),)
        if self._copies:
            inputs = tuple(value.clone() for value in inputs)
            named = {name: value.clone() for name, value in named.items()}
        parts = []
        for network in self.networks:
            output = network(*inputs, **named)
            # Some networks return more than a tensor only in training.
            if self._reader is not None and not isinstance(output, Tensor):
                output = self._reader(output, "logits")
            # Rows of the last layer without a class are computed and then dropped. A smaller matrix
            # product might add terms in another order, and the last bits would differ.
            parts.append(output[:, : len(self.classes)])
        return reduce(torch.add, parts)

    def _prepared(self, raw: Tensor) -> Tensor:
        """Prepares raw inputs by the same arithmetic as `Preprocessing.apply`, bit for bit."""
        settings = self._preprocessing
        assert settings is not None
        if raw.dtype != torch.uint8 if settings.pixels else not raw.is_floating_point():
            kind = "pixels of uint8" if settings.pixels else "floats"
            raise ValueError(f"expected raw inputs as {kind}, got {raw.dtype}")
        values = raw.to(torch.float32)
        return settings.arranged(values / 255 if settings.pixels else values).to(self._dtype)


@torch.no_grad()
def merged_network(task: TaskModel, weights: Weights) -> nn.Module:
    """A copy of the backbone's module, in evaluation mode, with the weights of the task."""
    backbone, view = task.backbone, task.view
    module = copy.deepcopy(backbone.module).eval()
    for name, weight in backbone.parameters_of(weights).items():
        if name not in backbone.head_shapes:
            module.get_parameter(name).copy_(weight)
            continue
        # The task's head may have another number of outputs than the module's last layer.
        prefix, _, leaf = name.rpartition(".")
        layer = module.get_submodule(prefix)
        setattr(layer, leaf, nn.Parameter(weight.clone(), requires_grad=False))
        for size in ("out_features", "out_channels"):
            if hasattr(layer, size):
                setattr(layer, size, len(weight))
    if view.mode == "batch":
        drop_statistics(module)
    elif backbone.has_statistics and view.statistics is not None:
        for name, statistic in view.statistics.items():
            module.get_buffer(name).copy_(statistic)
    return module


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
