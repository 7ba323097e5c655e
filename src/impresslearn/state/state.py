"""What a learner has committed: the bank, the tasks and the norm statistics that all share.

Learning ends here: a task is judged on its own inputs and then kept whole or not at all, and
nothing that is kept ever changes. Learners decide what to optimise; they change no state
themselves. Commits go to a backend first (memory, or a store's file) and to memory after it, so
that memory never holds what the file does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import torch
from torch import Tensor

from impresslearn.coefficients.mixing import Coefficients, mixed_weights, uniform_coefficients
from impresslearn.coefficients.quantisation import store_coefficients
from impresslearn.errors import InputError, StoreError, TrainingError
from impresslearn.inference import PROFILED_INPUTS, entropy_profile
from impresslearn.kernels.forking import ForkableLock
from impresslearn.masks.bank import MaskBank, PackedMask, coded_mask, packed_mask
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import TrainingData, some_inputs
from impresslearn.networks.prediction import Statistics, TaskView, TrainingPhase
from impresslearn.state.backends import Backend, MemoryBackend
from impresslearn.state.runtime import TaskRuntime
from impresslearn.state.tasks import LearnedTask, TaskTable


class LearnerState:
    """The committed state of one learner.

    bank, tasks: as in `ImpressLearner`; shared: norm statistics of all tasks, or None; backend:
    keeps every commit. `bank` and `shared` hold what other processes committed up to now.
    """

    def __init__(
        self,
        backbone: Backbone,
        bank: MaskBank,
        cache_bytes: int,
        backend: Backend | None = None,
    ) -> None:
        self.backbone = backbone
        self.backend = backend or MemoryBackend(bank)
        self.tasks = TaskTable(self.backend.tasks)
        self._bank = bank
        self._runtime = TaskRuntime(backbone, bank, cache_bytes)
        self._kept = 0  # masks of the bank that are known to be in the backend
        # Taken in this order, the second alone by whoever only reads.
        self._committing, self._adopting = ForkableLock(), ForkableLock()
        self._unrounded: tuple[str, Coefficients] | None = None
        self._shared: Statistics | None = (
            backbone.initial_statistics()
            if backbone.shares_statistics and backbone.pretrained
            else None
        )

    @property
    def bank(self) -> MaskBank:
        """The masks."""
        self.catch_up()
        return self._bank

    @property
    def shared(self) -> Statistics | None:
        """Norm statistics of all tasks; None where there are none."""
        if self._shared is None and self.backbone.shares_statistics:
            self._shared = self.backend.shared()
        return self._shared

    def catch_up(self) -> None:
        """Takes over the masks that other processes have committed to the same file.

        Raises StoreError where the bank has other masks in their places, which were appended to it
        without a commit, and where others have removed masks.
        """
        with self._adopting:
            if not self.backend.masks_beyond(self._kept):
                return
            with self.backend.snapshot():
                self.backend.masks_beyond(self._kept)  # as it is in this snapshot
                for mask in self.backend.masks_after(self._kept):
                    self._adopt(self._kept, mask)
                    self._kept += 1

    @contextmanager
    def still(self) -> Iterator[None]:
        """Inside, this process commits nothing, and what others commit is not seen."""
        with self._committing, self._adopting, self.backend.snapshot():
            yield

    def adopt_shared(self, statistics: Statistics | None) -> None:
        """Takes over shared norm statistics that were committed elsewhere."""
        self._shared = statistics

    def refuse_taken(self, names: Sequence[str]) -> None:
        """Raises InputError unless the first is free as a task's name, and all as masks' names."""
        self.refuse_task(names[0])
        for name in names:
            if name in self.bank:
                raise InputError(f"the bank holds a mask named {name!r}; choose another name")

    def refuse_task(self, name: str) -> None:
        """Raises InputError unless a task of that name can be committed."""
        self.backend.check_writable()
        self.tasks.refuse_taken(name)

    def trained(self) -> int:
        """How many trainings are behind the bank and the tasks, a basis task's mask once."""
        trained = (info.name for info in self.bank.infos if info.source == "edge_popup")
        return len(self.tasks) + sum(name not in self.tasks for name in trained)

    def commit_basis(
        self,
        masks: Mapping[str, Mapping[str, Tensor]],
        recipes: Mapping[str, Mapping[str, Any]],
        prepared: TrainingData,
        phase: TrainingPhase,
        metrics: Mapping[str, Any],
    ) -> None:
        """Adds trained masks, name -> layers; the first one is the mask of the task of its name."""
        name, own = next(iter(masks.items()))
        layers = self.backbone.layers
        weights = {
            layer.name: self.backbone.weights[layer.name] * own[layer.name] for layer in layers
        }
        new = [
            coded_mask(packed_mask(each, mask, layers, "edge_popup", recipes[each]), layers)
            for each, mask in masks.items()
        ]
        size = len(new[0][0].coded or b"")
        history = _history(recipes[name], metrics)
        task = LearnedTask(name, prepared[1], 1, mask=name, mask_bytes=size, history=history)
        self._commit(self._judged(task, weights, prepared, phase), phase, new)

    def commit_learned(
        self,
        name: str,
        coefficients: Coefficients,
        precision: str,
        prepared: TrainingData,
        phase: TrainingPhase,
        recipe: Mapping[str, Any],
        metrics: Mapping[str, Any],
    ) -> None:
        """Rounds and keeps a learned task's coefficients."""
        stored = store_coefficients(coefficients, precision)
        history = _history(recipe, metrics)
        task = LearnedTask(name, prepared[1], coefficients.num_masks, stored, history=history)
        self._commit(self._judged(task, self._runtime.mix(task), prepared, phase), phase)
        self._unrounded = name, coefficients

    def commit_masks(self, masks: Sequence[PackedMask]) -> None:
        """Adds masks that belong to no task."""
        self._commit(None, None, masks)

    def coefficients(self, task: LearnedTask) -> Coefficients:
        """A task's coefficients as stored; one-hot on its own mask for a basis task."""
        self._catch_up_to(task)
        return self._runtime.coefficients(task)

    def view(self, task: LearnedTask) -> TaskView:
        """A kept task, ready to compute."""
        self._catch_up_to(task)
        return self._runtime.view(task, self.shared)

    @torch.no_grad()
    def equal_mixture(self) -> dict[str, Tensor]:
        """The weights of all masks with α = 1/N each; {} (the frozen ones) without a mask."""
        bank, device = self.bank, self.backbone.device
        if not len(bank):
            return {}
        equal = uniform_coefficients(bank.layers, len(bank), device=device)
        return mixed_weights(bank, self.backbone.weights, equal)

    def unrounded_view(self, task: LearnedTask) -> TaskView | None:
        """The task learned last with its coefficients before rounding; None for any other."""
        if self._unrounded is None or self._unrounded[0] != task.name:
            return None
        weights = mixed_weights(self._bank, self.backbone.weights, self._unrounded[1])
        return TaskView(weights, self.statistics(task), len(task.classes))

    def statistics(self, task: LearnedTask) -> Statistics | None:
        """The norm statistics that the task is computed with."""
        return self._runtime.statistics(task, self.shared)

    def check(self, task: LearnedTask) -> None:
        """Raises StoreError for a kept task that combines masks which are not there."""
        fits = 1 <= task.num_masks <= len(self._bank)
        if fits and task.mask is not None:
            fits = task.mask in self._bank and self._bank.index(task.mask) < task.num_masks
        if not fits:
            raise StoreError(
                f"task {task.name!r} combines masks that its bank of {len(self._bank)} does not "
                "have; restore the store from a copy"
            )

    def _catch_up_to(self, task: LearnedTask) -> None:
        self.catch_up()
        self.check(task)

    def _adopt(self, position: int, mask: PackedMask) -> None:
        """Puts a committed mask at its position; it may be there already."""
        info, packed = mask
        moved = [bits.to(self.backbone.device) for bits in packed]
        if position == len(self._bank):
            self._bank.adopt(info, moved)
            return
        own, bits = self._bank.packed(position)
        if own.name != info.name or not all(map(torch.equal, bits, moved)):
            raise StoreError(
                f"another process has committed mask {info.name!r} where this bank has "
                f"{own.name!r}, which was never committed; open the store again"
            )

    def _judged(
        self,
        task: LearnedTask,
        weights: dict[str, Tensor],
        prepared: TrainingData,
        phase: TrainingPhase,
    ) -> LearnedTask:
        """The task with its norm statistics, and its entropies on its own training inputs."""
        own = phase.statistics if self.backbone.has_task_statistics else None
        view = TaskView(weights, phase.statistics, len(task.classes))
        inputs = some_inputs(prepared[0], PROFILED_INPUTS)
        profile = entropy_profile(self.backbone, view, inputs)
        kept = [torch.tensor([profile.own, profile.foreign]), *(own or {}).values()]
        if not all(numbers.isfinite().all() for numbers in kept):
            raise TrainingError(
                f"task {task.name!r} is not kept: its predictions or norm statistics are NaN or "
                "infinite; try a smaller learning rate or scaled inputs"
            )
        return replace(task, statistics=own, profile=profile)

    def _commit(
        self,
        task: LearnedTask | None,
        phase: TrainingPhase | None,
        masks: Sequence[PackedMask] = (),
    ) -> None:
        """Keeps masks and a finished task, all of it or on an error nothing.

        Raises InputError where a name, or the norm statistics that all tasks share, were taken
        since learning began.
        """
        shared = None
        if phase is not None and phase.mode == "train" and self.backbone.shares_statistics:
            shared = phase.statistics
        with self._committing:
            with self.backend.transaction():
                bank = self.bank  # with what others committed before this transaction began
                self._check_free([info.name for info, _ in masks], shared)
                if task is not None:
                    self.tasks.refuse_taken(task.name)
                first = len(bank)
                if masks and task is not None:
                    task = replace(task, num_masks=first + 1)
                unsaved = [bank.packed(position) for position in range(self._kept, first)]
                self.backend.add_masks(self._kept, [*unsaved, *masks])
                if shared is not None:
                    self.backend.share(shared)
                if task is not None:
                    self.tasks.add(task)
            with self._adopting:
                for position, mask in enumerate(masks, first):
                    self._adopt(position, mask)
                self._kept = max(self._kept, first + len(masks))
            if shared is not None:
                self._shared = shared

    def _check_free(self, names: Sequence[str], shared: Statistics | None) -> None:
        for name in names:
            if name in self._bank:
                raise InputError(f"the bank holds a mask named {name!r}; choose another name")
        if shared is not None and self.shared is not None:
            raise InputError(
                "another task was learned meanwhile and fixed the norm statistics that all tasks "
                "share; learn this one again"
            )


def _history(recipe: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return {"recipe": dict(recipe), "metrics": dict(metrics), "created_at": now}
