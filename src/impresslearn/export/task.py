"""What an export is made from: the network, one task's weights and statistics, and its labels.

It holds a single task, so that exporting needs to know neither learners nor banks: whatever can
give a `TaskView`, a learner's state or a baseline, can be exported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from impresslearn.data import Label
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView
from impresslearn.state.state import LearnerState


@dataclass(frozen=True)
class FinishedTask:
    """One task, ready to leave the library.

    backbone: the frozen network; view: the task's effective weights and norm statistics; name: the
    task's; classes: its labels, the one that logit k stands for at place k; preprocessing: what the
    export does to its inputs, None where they come prepared.
    """

    backbone: Backbone
    view: TaskView
    name: str
    classes: tuple[Label, ...]
    preprocessing: Preprocessing | None = None

    @classmethod
    def of(cls, state: LearnerState, name: str) -> FinishedTask:
        """A task that a learner has committed. Raises UnknownTaskError for any other name."""
        task = state.tasks.learned(name)
        return cls(state.backbone, state.view(task), task.name, task.classes)

    @property
    def flattens(self) -> bool:
        """Whether inputs of any shape are flattened before the network sees them."""
        shape = self.backbone.input_shape
        return shape is not None and len(shape) == 1 and shape[0] is not None

    @property
    def cuts(self) -> bool:
        """Whether the network has more outputs than the task has classes."""
        return self.view.num_classes < self.backbone.num_classes

    @property
    def normalises_by_batch(self) -> bool:
        """Whether the rows of a batch depend on one another."""
        return self.backbone.norm == "batch" or self.view.mode == "batch"

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
            "library_version": _library_version(),
        }


def _library_version() -> str:
    try:
        return version("impresslearn")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
