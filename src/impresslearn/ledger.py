"""What a learner has committed: the bank, the tasks and the norm statistics that all share.

Learning ends here: a task is judged on its own inputs and then kept whole or not at all, and
nothing that is kept ever changes. Learners decide what to optimise; they change no state
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from torch import Tensor

from impresslearn.backbones import Backbone
from impresslearn.bank import MaskBank
from impresslearn.errors import InputError
from impresslearn.inference import PROFILED_INPUTS, entropy_profile
from impresslearn.intake import Prepared, some_inputs
from impresslearn.mixing import Coefficients
from impresslearn.prediction import Statistics, TaskView, TrainingPhase
from impresslearn.quantisation import store_coefficients
from impresslearn.runtime import TaskRuntime
from impresslearn.tasks import LearnedTask, TaskTable


class Ledger:
    """The committed state of one learner.

    bank, tasks: as in `ImpressLearner`; shared: norm statistics of all tasks, or None; runtime:
    makes kept tasks compute.
    """

    def __init__(self, backbone: Backbone, bank: MaskBank, cache_bytes: int) -> None:
        self.backbone = backbone
        self.bank = bank
        self.tasks = TaskTable()
        self.runtime = TaskRuntime(backbone, bank, cache_bytes)
        self.shared: Statistics | None = (
            backbone.initial_statistics()
            if backbone.norm == "shared" and backbone.pretrained and backbone.has_statistics
            else None
        )

    def refuse_taken(self, names: Sequence[str]) -> None:
        """Raises InputError unless the first is free as a task's name, and all as masks' names."""
        self.tasks.refuse_taken(names[0])
        for name in names:
            if name in self.bank:
                raise InputError(f"the bank holds a mask named {name!r}; choose another name")

    def trained(self) -> int:
        """How many trainings are behind the bank and the tasks, a basis task's mask once."""
        extra = sum(
            info.source == "edge_popup" and info.name not in self.tasks for info in self.bank.infos
        )
        return len(self.tasks) + extra

    def commit_basis(
        self,
        masks: Mapping[str, Mapping[str, Tensor]],
        recipes: Mapping[str, Mapping[str, Any]],
        prepared: Prepared,
        phase: TrainingPhase,
    ) -> None:
        """Adds trained masks, name -> layers; the first one is the mask of the task of its name."""
        name, own = next(iter(masks.items()))
        layers = self.bank.layers
        size = sum(prod(self.bank.bits(i).shape[1:]) for i in range(len(layers)))
        weights = {
            layer.name: self.backbone.weights[layer.name] * own[layer.name] for layer in layers
        }
        task = LearnedTask(name, prepared[1], len(self.bank) + 1, mask=name, mask_bytes=size)
        task = self._judged(task, weights, prepared, phase)
        for mask_name, mask in masks.items():
            self.bank.append(mask_name, mask, "edge_popup", recipes[mask_name])
        self._commit(task, phase)

    def commit_learned(
        self,
        name: str,
        coefficients: Coefficients,
        precision: str,
        prepared: Prepared,
        phase: TrainingPhase,
    ) -> None:
        """Rounds and keeps a learned task's coefficients."""
        stored = store_coefficients(coefficients, precision)
        task = LearnedTask(name, prepared[1], coefficients.num_masks, stored)
        self._commit(self._judged(task, self.runtime.mix(task), prepared, phase), phase)

    def view(self, task: LearnedTask) -> TaskView:
        """A kept task, ready to compute."""
        return self.runtime.view(task, self.shared)

    def _judged(
        self,
        task: LearnedTask,
        weights: dict[str, Tensor],
        prepared: Prepared,
        phase: TrainingPhase,
    ) -> LearnedTask:
        """The task with its norm statistics, and its entropies on its own training inputs."""
        own = phase.statistics if self.backbone.norm == "per_task" else None
        view = TaskView(weights, phase.statistics, len(task.classes))
        inputs = some_inputs(prepared[0], PROFILED_INPUTS)
        profile = entropy_profile(self.backbone, view, inputs)
        return replace(task, statistics=own, profile=profile)

    def _commit(self, task: LearnedTask, phase: TrainingPhase) -> None:
        """Keeps a finished task; nothing here can fail."""
        if phase.mode == "train" and self.backbone.norm == "shared":
            self.shared = phase.statistics
        self.tasks.add(task)
