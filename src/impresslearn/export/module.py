"""Exports a task as an ordinary module, its weights and norm statistics put in for good.

Networks of this library become `torch.fx.GraphModule`s, which torch can unpickle without it;
modules of the user's stay what they are. What the library does around a network, preparing and
flattening inputs and cutting logits to the task's classes, becomes part of such a graph. The rows
of the last layer that belong to no class are kept: without them a matrix product may add its terms
in another order, and logits would differ in their last bits.
"""

from __future__ import annotations

import copy
import math
import operator
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch
from torch import Tensor, fx, nn

from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.export.task import TaskModel
from impresslearn.networks import Backbone
from impresslearn.networks.norms import drop_statistics, settle_instance_norms

PACKAGE = __name__.partition(".")[0]
WRAPPED = "network"
"""The name of a user's module inside the graph that flattens its inputs or cuts its logits."""

KEPT_BY_DEEPCOPY = "_user_preserved_attributes"
"""The entry of a graph module's `meta` whose attributes torch copies along."""


def export_module(task: TaskModel) -> nn.Module:
    """A module that maps inputs (n, ...) to the task's logits (n, K), K its number of classes.

    It is in evaluation mode, shares no tensor with the backbone, requires no gradients and lies on
    the backbone's device. Inputs must have the device of its weights and, unless a preprocessing
    takes raw ones (uint8 where they are pixels, else any floats), their dtype; the logits are then
    bit-identical to the learner's for the same batch of up to 1024 inputs. Attributes `task` (the
    name) and `classes` (a tuple; logit k stands for classes[k]) go along.

    The parameters of a network of the library's own keep their names, so that the state dict fits
    `create_backbone(...).module`. A module of the user's comes back as a copy, inside a graph as
    `network` where its inputs have to be flattened, its logits cut, or it has attributes of those
    names. torch traces while a graph is made, and no other thread should call a module meanwhile.
    """
    module = merged_network(task)
    own = _is_own(module)
    module = _without_own_classes(module, {})
    attributes = {"task": task.name, "classes": task.classes}
    taken = any(hasattr(module, name) for name in attributes)  # and may be what forward works with
    if not own and (task.preprocessing or task.flattens or task.has_spare_outputs or taken):
        module = _wrapped(module)
    if isinstance(module, fx.GraphModule):
        _surround(module, task)
        module.meta.setdefault(KEPT_BY_DEEPCOPY, {}).update(attributes)
    for name, value in attributes.items():
        setattr(module, name, value)
    return module.eval()


@torch.no_grad()
def merged_network(task: TaskModel) -> nn.Module:
    """A copy of the backbone's module, in evaluation mode, with all that the task changes."""
    backbone, view = task.backbone, task.view
    if view.mode not in ("eval", "batch"):
        raise InputError(f"a task in mode {view.mode!r} is still learned and cannot be exported")
    module = copy.deepcopy(backbone.module).eval()
    settle_instance_norms(module)
    for name, weight in view.weights.items():
        module.get_parameter(name).copy_(weight)
    if view.mode == "batch":
        drop_statistics(module)
    elif backbone.has_statistics and view.statistics is not None:
        for name, statistic in view.statistics.items():
            module.get_buffer(name).copy_(statistic)
    return module


def traced(task: TaskModel, module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """The program of a module on the CPU, for batches of any size like `example` (2, ...).

    Raises InputError where torch cannot trace the module with a free batch size.
    """
    shapes = ({0: torch.export.Dim("batch")},)
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(module, (example,), dynamic_shapes=shapes, strict=False)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # torch raises all kinds for what it cannot trace
        raise InputError(
            f"torch.export cannot trace {task.backbone.name}: {first_line(error)}; a .safetensors "
            "file needs no tracing"
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


def _is_own(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] == PACKAGE


def _without_own_classes(module: nn.Module, seen: dict[nn.Module, nn.Module]) -> nn.Module:
    """The module with a graph in place of every part whose class is this library's.

    seen: what took the place of which module, so that a module used twice stays one module.
    """
    if module not in seen:
        seen[module] = _graph_of(module) if _is_own(module) else module
        if seen[module] is module:
            for name, child in list(module._modules.items()):
                if child is not None:
                    module._modules[name] = _without_own_classes(child, seen)
    return seen[module]


def _graph_of(module: nn.Module) -> fx.GraphModule:
    traced = fx.symbolic_trace(module)
    for node in traced.graph.nodes:
        node.type = None  # annotations arrive as strings, with which a graph cannot be pickled
    traced.recompile()
    return traced


def _wrapped(module: nn.Module) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.call_module(WRAPPED, (graph.placeholder("input"),)))
    return fx.GraphModule({WRAPPED: module}, graph, type(module).__name__)


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
    """Raw inputs, a node of the graph, after the arithmetic of `Preprocessing.apply`.

    Logits are then the learner's bit for bit. What the graph cannot take is refused by its own
    assertions: torch would otherwise compute something else without a word. The numbers to
    normalise by become buffers that are no part of the module's state dict.
    """
    if preprocessing.pixels:
        torch._assert(raw.dtype == torch.uint8, "expected the pixels of raw inputs as uint8")
    else:
        torch._assert(raw.is_floating_point(), "expected raw inputs as floats")
    ready = raw.to(torch.float32)
    if preprocessing.pixels:
        ready = ready / 255
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
    return ready.to(backbone.dtype)
