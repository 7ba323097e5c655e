"""Exports a task as a module: the network with the task's weights and norm statistics.

`ExportedTask` also prepares and flattens inputs, and cuts the logits to the task's classes. So a
file that is traced from it does the same.
"""

import copy
import json
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from impresslearn import __version__
from impresslearn.data import Inputs, Label, as_network_inputs
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
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
        total = None
        for network in self.networks:
            output = network(*inputs, **named)
            # Some networks return more than a tensor only in training.
            if self._reader is not None and not isinstance(output, Tensor):
                output = self._reader(output, "logits")
            # Rows of the last layer without a class are computed and then dropped. A smaller matrix
            # product might add terms in another order, and the last bits would differ.
            logits = output[:, : len(self.classes)]
            total = logits if total is None else total + logits
        assert total is not None
        return total

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
    heads = () if backbone.own_head is None else backbone.own_head.shapes
    for name, weight in backbone.parameters_of(weights).items():
        if name not in heads:
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
