"""A task as a model to export: the network, the task's weights and statistics, its labels.

It holds a single task, so that whatever can give a `TaskView`, a learner or a baseline, can export.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch
from torch import Tensor

from impresslearn import __version__
from impresslearn.data import Label, as_inputs
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView


@dataclass(frozen=True)
class TaskModel:
    """One task as a model that can be exported.

    backbone: the frozen network; view: the task's effective weights and norm statistics; name: the
    task's; classes: its labels, that of logit k at place k; preprocessing: what the export does to
    its inputs, None where they come prepared.
    """

    backbone: Backbone
    view: TaskView
    name: str
    classes: tuple[Label, ...]
    preprocessing: Preprocessing | None = None

    @property
    def flattens(self) -> bool:
        """Whether inputs of any shape are flattened before the network sees them."""
        shape = self.backbone.input_shape
        return shape is not None and len(shape) == 1 and shape[0] is not None

    @property
    def has_spare_outputs(self) -> bool:
        """Whether the network has more outputs than the task has classes."""
        return self.view.num_classes < self.backbone.num_classes

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

    def example_inputs(self, example: object) -> Tensor:
        """Two inputs (2, ...) on the CPU for tracing: the example's first, or zeros.

        They have the backbone's dtype, or are uint8 where the task takes raw pixels; with a
        preprocessing they are raw. Raises InputError for an unsuitable example, and without one
        where a size is free.
        """
        backbone, raw = self.backbone, self.preprocessing
        dtype = torch.uint8 if raw is not None and raw.pixels else backbone.dtype
        if example is not None:
            inputs = as_inputs(example)
            backbone.check_inputs(inputs if raw is None else raw.apply(example))
            if len(inputs) == 0:
                raise InputError("example holds no input; expected a batch (n, ...) of one or more")
            # Tracing takes a batch of one for a size that never changes.
            return torch.cat([inputs, inputs])[:2].to("cpu", dtype)
        shape = backbone.input_shape if raw is None or raw.shape is None else raw.shape
        sizes = [size for size in shape or () if size is not None]
        if shape is None or len(sizes) < len(shape):
            accepted = "" if shape is None else " " + str(shape).replace("None", "*")
            raise InputError(
                f"{backbone.name} takes inputs of any size{accepted}; pass example=, a batch of "
                "inputs of the size to export for"
            )
        return torch.zeros(2, *sizes, dtype=dtype)
