"""A task as an ordinary module: its effective weights and norm statistics put in for good.

Networks of this library become `torch.fx.GraphModule`s, which torch can unpickle without it;
modules of the user's stay what they are. What the library does around a network, preparing and
flattening inputs and cutting logits to the task's classes, becomes part of such a graph. The rows
of the last layer that belong to no class are kept: without them a matrix product may add its terms
in another order, and logits would differ in their last bits.
"""

from __future__ import annotations

import copy
import operator

import torch
from torch import fx, nn

from impresslearn.errors import InputError
from impresslearn.export.inputs import add_preprocessing
from impresslearn.export.task import FinishedTask
from impresslearn.networks.norms import drop_statistics, settle_instance_norms

PACKAGE = __name__.partition(".")[0]
WRAPPED = "network"
"""The name of a user's module inside the graph that flattens its inputs or cuts its logits."""

KEPT_BY_DEEPCOPY = "_user_preserved_attributes"
"""The entry of a graph module's `meta` whose attributes torch copies along."""


def export_module(task: FinishedTask) -> nn.Module:
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
    if not own and (task.preprocessing or task.flattens or task.cuts or taken):
        module = _wrapped(module)
    if isinstance(module, fx.GraphModule):
        _surround(module, task)
        module.meta.setdefault(KEPT_BY_DEEPCOPY, {}).update(attributes)
    for name, value in attributes.items():
        setattr(module, name, value)
    return module.eval()


@torch.no_grad()
def merged_network(task: FinishedTask) -> nn.Module:
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


def _surround(module: fx.GraphModule, task: FinishedTask) -> None:
    """Put preprocessing and flattening in front of the graph, the cut to the classes behind."""
    graph = module.graph
    inputs = next(node for node in graph.nodes if node.op == "placeholder")
    output = next(node for node in graph.nodes if node.op == "output")
    users = list(inputs.users)
    with graph.inserting_before(inputs.next):
        ready = inputs
        if task.preprocessing is not None:
            ready = add_preprocessing(module, inputs, task.preprocessing, task.backbone)
        if task.flattens:
            ready = graph.call_method("flatten", (ready, 1))
    for user in users:
        user.replace_input_with(inputs, ready)
    if task.cuts:
        columns = (slice(None), slice(None, task.view.num_classes))
        with graph.inserting_before(output):
            logits = graph.call_function(operator.getitem, (output.args[0], columns))
        output.args = (logits,)
    module.recompile()
