"""What a training leaves behind, and how the task that it learned is judged before it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import torch

from impresslearn.coefficients.norm_statistics import store_statistics
from impresslearn.data import Examples, Label, StreamedExamples
from impresslearn.errors import TrainingError
from impresslearn.inference import PROFILED_INPUTS, task_profile
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import some_inputs
from impresslearn.networks.prediction import TaskView, TrainingPhase
from impresslearn.state.tasks import LearnedTask


@dataclass(frozen=True)
class TrainingRun:
    """The training behind a task: its data and classes, norm statistics and metrics.

    phase: holds the statistics that were gathered; metrics: plain values for the history.
    """

    examples: Examples | StreamedExamples
    classes: tuple[Label, ...]
    phase: TrainingPhase
    metrics: Mapping[str, Any]

    def history(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """How a task was learned, as plain values."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        return {"recipe": dict(recipe), "metrics": dict(self.metrics), "created_at": now}

    def judged(
        self, task: LearnedTask, view: TaskView, backbone: Backbone, precision: str
    ) -> LearnedTask:
        """The task with its norm statistics, and its entropies on its own training inputs.

        Raises TrainingError where they are not finite.
        """
        kept = None
        if self.phase.statistics is not None and backbone.has_task_statistics:
            gathered = self.phase.statistics
            kept = store_statistics(backbone, gathered, precision, view.weights, self.examples)
            view = replace(view, statistics=kept.values)
        inputs = some_inputs(self.examples, PROFILED_INPUTS)
        profile = task_profile(backbone, view, inputs)
        checked = [torch.tensor([profile.own_entropy, profile.shuffled_entropy])]
        checked += kept.values.values() if kept else []
        if not all(numbers.isfinite().all() for numbers in checked):
            raise TrainingError(
                f"task {task.name!r} is not kept: its predictions or norm statistics are NaN or "
                "infinite; try a smaller learning rate or scaled inputs"
            )
        return replace(task, statistics=kept, profile=profile)
