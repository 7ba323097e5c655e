"""Exports a task as an ordinary module, its weights and norm statistics put in for good.

Networks of this library become `torch.fx.GraphModule`s, which torch can unpickle without it. What
the library does around a network, preparing and flattening inputs and cutting logits to the task's
classes, becomes part of such a graph. The rows of the last layer that belong to no class are kept:
without them a matrix product may add its terms in another order, and logits would differ in their
last bits.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor, fx, nn

from impresslearn import __version__
from impresslearn.data import Inputs, Label, as_network_inputs
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.networks import Backbone
from impresslearn.networks.calls import takes_flat
from impresslearn.networks.norms import drop_statistics, settle_instance_norms
from impresslearn.networks.prediction import TaskView

PACKAGE = __name__.partition(".")[0]
WRAPPED = "network"
"""The name of a user's module inside the graph that flattens its inputs or cuts its logits."""

PLAIN = (bool, int, float, str, type(None), type)
"""Defaults of parameters that a graph can hold; no default is a type."""

KEPT_BY_DEEPCOPY = "_user_preserved_attributes"
"""The entry of a graph module's `meta` whose attributes torch copies along."""


@dataclass(frozen=True)
class TaskModel:
    """One task as a model that can be exported, of a learner or any other method.

    - backbone: the frozen network.
    - view: the effective weights and norm statistics of the task.
    - name: of the task.
    - classes: its labels; logit k stands for classes[k].
    - preprocessing: what an export does to its inputs; None if they come prepared.
    - version: of the task, 1 for one that was never updated.
    """

    backbone: Backbone
    view: TaskView
    name: str
    classes: tuple[Label, ...]
    preprocessing: Preprocessing | None = None
    version: int = 1

    def logits(self, inputs: Tensor | Inputs) -> Tensor:
        """Logits (n, K) of prepared inputs; raises InputError if they are not finite."""
        return self.view.logits(self.backbone, inputs)

    @property
    def flattens(self) -> bool:
        """Whether inputs of any shape are flattened before the network sees them."""
        return takes_flat(self.backbone.input_shape)

    @property
    def has_spare_outputs(self) -> bool:
        """Whether the network has more outputs than the task has classes."""
        return self.backbone.own_head is None and self.view.num_classes < self.backbone.num_classes

    def metadata(self) -> dict[str, str]:
        """What goes along with every file, all of it text.

        task: its name; classes: a JSON list; backbone: a JSON object, the arguments of
        `create_backbone` that make the same structure, or null for an adapted module; fingerprint:
        that of the frozen network, before the task's mask (SHA-256, hexadecimal); preprocessing:
        what raw inputs go through, a JSON object (the settings of `Preprocessing`) or null, already
        in the program of .onnx and .pt2, left to the reader of weights; library and
        library_version: what wrote the file.
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

    def example_inputs(self, example: object) -> Tensor | Inputs:
        """Two inputs (2, ...) on the CPU for tracing: the example's first, or zeros.

        They have the backbone's input_dtype, or are uint8 where the task takes raw pixels; with a
        preprocessing they are raw. Raises InputError for an unsuitable example, and without one
        where a size is free.
        """
        backbone, raw = self.backbone, self.preprocessing
        dtype = torch.uint8 if raw is not None and raw.pixels else backbone.input_dtype
        if example is not None:
            inputs = as_network_inputs(example)
            backbone.check_inputs(inputs if raw is None else raw.apply(example))
            if len(inputs) == 0:
                raise InputError("example holds no input; expected a batch (n, ...) of one or more")
            # Tracing takes a batch of one for a size that never changes.
            return inputs[torch.arange(2) % len(inputs)].to("cpu", dtype)
        shape = backbone.input_shape if raw is None or raw.shape is None else raw.shape
        sizes = [size for size in shape or () if size is not None]
        if shape is None or len(sizes) < len(shape):
            accepted = "" if shape is None else " " + str(shape).replace("None", "*")
            raise InputError(
                f"{backbone.name} takes inputs of any size{accepted}; pass example=, a batch of "
                "inputs of the size to export for"
            )
        return torch.zeros(2, *sizes, dtype=dtype)


def export_module(task: TaskModel) -> nn.Module:
    """A module that maps inputs (n, ...) to the task's logits (n, K), K its number of classes.

    It is in evaluation mode, shares no tensor with the backbone, requires no gradients and lies on
    the backbone's device. Inputs must have the backbone's input_dtype, unless a preprocessing takes
    raw ones (uint8 where they are pixels, else any floats); the logits are then bit-identical to
    the learner's for the same batch of up to 1024 inputs (of float32). Attributes `task` (the name)
    and `classes` (a tuple; logit k stands for classes[k]) go along.

    The state dict of a network of the library's own fits `create_backbone(...).module`. A module of
    the user's comes back as a copy, inside a graph as `network` where something is added around it.
    torch traces while a graph is made, and no other thread should call a module meanwhile.
    """
    attributes = {"task": task.name, "classes": task.classes}
    if task.view.others:
        return _added(task, attributes)
    module = _without_own_classes(merged_network(task), {})
    taken = any(hasattr(module, name) for name in attributes)  # and may be what forward works with
    own = _is_own(task.backbone.module)
    reader = task.backbone.logits_reader
    around = task.preprocessing or task.flattens or task.has_spare_outputs or reader
    if not own and (around or taken):
        graph = _calling(module)
        if reader is not None:
            (output,) = (node for node in graph.nodes if node.op == "output")
            with graph.inserting_before(output):
                output.args = (graph.call_function(reader, (output.args[0], "logits")),)
        module = fx.GraphModule({WRAPPED: module}, graph, type(module).__name__)
    if isinstance(module, fx.GraphModule):
        _surround(module, task)
    return _labelled(module, attributes)


def _labelled(module: nn.Module, attributes: Mapping[str, Any]) -> nn.Module:
    """The module with what says which task it computes, in evaluation mode."""
    if isinstance(module, fx.GraphModule):
        module.meta.setdefault(KEPT_BY_DEEPCOPY, {}).update(attributes)
    for name, value in attributes.items():
        setattr(module, name, value)
    return module.eval()


def _added(task: TaskModel, attributes: Mapping[str, Any]) -> nn.Module:
    """A readout: the modules of its networks in one, which adds their logits in their order."""
    view = task.view
    parts = [
        export_module(replace(task, view=replace(view, weights=weights, others=())))
        for weights in (view.weights, *view.others)
    ]
    graph = _calling(parts[0])
    (call,) = (node for node in graph.nodes if node.op == "call_module")
    call.target = f"{WRAPPED}_0"
    (output,) = (node for node in graph.nodes if node.op == "output")
    total: Any = fx.Proxy(call)
    with graph.inserting_before(output):
        for number in range(1, len(parts)):
            name = f"{WRAPPED}_{number}"
            total = total + fx.Proxy(graph.call_module(name, call.args, call.kwargs))
    output.args = (total.node,)
    named = {f"{WRAPPED}_{number}": part for number, part in enumerate(parts)}
    module = fx.GraphModule(named, graph, type(task.backbone.module).__name__)
    return _labelled(module, attributes)


@torch.no_grad()
def merged_network(task: TaskModel) -> nn.Module:
    """A copy of the backbone's module, in evaluation mode, with all that the task changes."""
    backbone, view = task.backbone, task.view
    if view.mode not in ("eval", "batch"):
        raise InputError(f"a task in mode {view.mode!r} is still learned and cannot be exported")
    module = copy.deepcopy(backbone.module).eval()
    settle_instance_norms(module)
    heads = () if backbone.own_head is None else backbone.own_head.shapes
    for name, weight in backbone.parameters_of(view.weights).items():
        if name in heads:
            _replace_head(module, name, weight)
        else:
            module.get_parameter(name).copy_(weight)
    if view.mode == "batch":
        drop_statistics(module)
    elif backbone.has_statistics and view.statistics is not None:
        for name, statistic in view.statistics.items():
            module.get_buffer(name).copy_(statistic)
    return module


def _replace_head(module: nn.Module, name: str, value: Tensor) -> None:
    """Puts a parameter of a last layer with another number of outputs in place."""
    prefix, _, leaf = name.rpartition(".")
    layer = module.get_submodule(prefix)
    setattr(layer, leaf, nn.Parameter(value.clone(), requires_grad=False))
    for size in ("out_features", "out_channels"):
        if hasattr(layer, size):
            setattr(layer, size, len(value))


def traced(
    task: TaskModel, module: nn.Module, example: Tensor | Inputs
) -> torch.export.ExportedProgram:
    """The program of a module on the CPU, for batches of any size like `example` (2, ...)."""
    inputs = example
    if isinstance(inputs, Inputs):
        module, names = _taking(module, inputs)
    else:
        inputs, names = Inputs(inputs), list(inspect.signature(module.forward).parameters)[:1]
    batch = torch.export.Dim("batch")
    shapes = {name: {0: batch} for name in names}
    failed = f"torch.export cannot trace {task.backbone.name}"
    with translating(failed, "a .safetensors file needs no tracing"), torch.no_grad():
        arguments, named = inputs.arguments, inputs.named
        return torch.export.export(module, arguments, named, dynamic_shapes=shapes, strict=False)


def _taking(module: nn.Module, inputs: Inputs) -> tuple[nn.Module, list[str]]:
    """The module with these parameters alone, in this order, and their names.

    torch.export takes named inputs of a graph for its first parameters.
    """
    graph, first = fx.Graph(), len(inputs.arguments)
    names = [*list(inspect.signature(module.forward).parameters)[:first], *inputs.named]
    nodes: list[Any] = [graph.placeholder(name) for name in names]
    named = dict(zip(inputs.named, nodes[first:], strict=True))
    graph.output(graph.call_module(WRAPPED, tuple(nodes[:first]), named))
    return fx.GraphModule({WRAPPED: module}, graph), names


@contextmanager
def translating(failed: str, advice: str) -> Iterator[None]:
    """Without the warnings of torch's exporters, about their own code; errors as InputError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # torch and onnxscript raise all kinds
        raise InputError(f"{failed}: {first_line(error)}; {advice}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message that says anything, or the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)


def _is_own(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] == PACKAGE


def _without_own_classes(module: nn.Module, seen: dict[nn.Module, nn.Module]) -> nn.Module:
    """The module with a graph in place of every part whose class is this library's.

    seen: what took the place of which module, so that a module used twice stays one module.
    """
    if module not in seen and _is_own(module):
        seen[module] = graph = fx.symbolic_trace(module)
        for node in graph.graph.nodes:
            node.type = None  # annotations arrive as strings, with which a graph cannot be pickled
        graph.recompile()
    elif module not in seen:
        seen[module] = module
        for name, child in list(module._modules.items()):
            if child is not None:
                module._modules[name] = _without_own_classes(child, seen)
    return seen[module]


def _calling(module: nn.Module) -> fx.Graph:
    """A graph that calls the module, with its parameters if there are several that can be named."""
    given = inspect.signature(module.forward).parameters.values()
    plain = [
        each
        for each in given
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and isinstance(each.default, PLAIN)
    ]
    graph = fx.Graph()
    if len(plain) < 2:
        graph.output(graph.call_module(WRAPPED, (graph.placeholder("input"),)))
        return graph
    nodes: dict[str, Any] = {
        each.name: graph.placeholder(each.name, default_value=each.default) for each in plain
    }
    graph.output(graph.call_module(WRAPPED, kwargs=nodes))
    return graph


def _surround(module: fx.GraphModule, task: TaskModel) -> None:
    """Puts preprocessing and flattening in front of the graph, the cut to the classes behind."""
    graph = module.graph
    inputs = next(node for node in graph.nodes if node.op == "placeholder")
    output = next(node for node in graph.nodes if node.op == "output")
    users = list(inputs.users)
    with graph.inserting_before(inputs.next):
        ready = fx.Proxy(inputs)
        if task.preprocessing is not None:
            ready = _prepared(ready, task.preprocessing, module, task.backbone)
        if task.flattens:
            ready = ready.flatten(1)
    for user in users:
        user.replace_input_with(inputs, ready.node)
    if task.has_spare_outputs:
        with graph.inserting_before(output):
            logits: Any = fx.Proxy(output.args[0])
            logits = logits[:, : task.view.num_classes]
        output.args = (logits.node,)
    module.recompile()


def _prepared(
    raw: Any, preprocessing: Preprocessing, module: fx.GraphModule, backbone: Backbone
) -> Any:
    """Raw inputs, a node of the graph, after the arithmetic of `Preprocessing.apply`, bit for bit.

    What the graph cannot take is refused by its own assertions: torch would otherwise compute
    something else. The numbers to normalise by become buffers outside the module's state dict.
    """
    if preprocessing.pixels:
        torch._assert(raw.dtype == torch.uint8, "expected the pixels of raw inputs as uint8")
        ready = raw.to(torch.float32) / 255
    else:
        torch._assert(raw.is_floating_point(), "expected raw inputs as floats")
        ready = raw.to(torch.float32)
    if preprocessing.shape is not None:
        shape = tuple(preprocessing.shape)
        # Flat inputs may be folded, and sizes of 1 come and go; anything else would be shuffled.
        known = {shape, (math.prod(shape),), tuple(size for size in shape if size > 1)}
        fits = reduce(operator.or_, (raw.shape[1:] == sizes for sizes in sorted(known)))
        line = f"expected raw inputs of shape (n, {', '.join(map(str, shape))}), or flat"
        torch._assert(fits, line)
        ready = ready.reshape(-1, *shape)
    if preprocessing.normalises:
        along_channels = [-1] + [1] * (ready.ndim - 2)
        for name, function in (("mean", operator.sub), ("std", operator.truediv)):
            buffer, numbers = f"preprocessing_{name}", getattr(preprocessing, name)
            kept = torch.tensor(numbers, device=backbone.device).reshape(-1)
            module.register_buffer(buffer, kept, persistent=False)
            stored = fx.Proxy(module.graph.get_attr(buffer))
            ready = function(ready, stored.reshape(along_channels))
    return ready.to(backbone.input_dtype)
