"""The committed state of a learner: the bank, the tasks and the norm statistics that all share.

Learning ends here: a task is judged on its own inputs and then kept whole or not at all, and
nothing that is kept ever changes. Learners decide what to optimise; they change no state
themselves. Commits go to a backend first (memory, or a store's file) and to memory after it, so
that memory never holds what the file does not. Effective weights of the tasks used last are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from impresslearn.coefficients.mixing import (
    Coefficients,
    head_columns,
    head_weights,
    masked_weights,
    mixed_weights,
    one_hot_coefficients,
    task_weights,
    uniform_coefficients,
)
from impresslearn.coefficients.quantisation import store_coefficients
from impresslearn.coefficients.readout import Projection
from impresslearn.errors import InputError, StoreError
from impresslearn.kernels.forking import ForkableLock
from impresslearn.masks.bank import MaskBank, PackedMask, coded_mask, packed_mask
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics, TaskView, TrainingPhase
from impresslearn.networks.weight_cache import WeightCache, Weights
from impresslearn.state.backends import Backend, MemoryBackend
from impresslearn.state.readouts import networks, whole_head, with_heads
from impresslearn.state.tasks import (
    LearnedTask,
    TaskTable,
    check_new_name,
    check_parts,
    free_masks,
)
from impresslearn.state.training_run import TrainingRun


class LearnerState:
    """The committed state of one learner.

    backend: keeps every commit. `bank`, `tasks` and `shared` (norm statistics of all tasks) hold
    what other processes committed up to now.
    """

    def __init__(
        self, backbone: Backbone, bank: MaskBank, cache_bytes: int, backend: Backend | None = None
    ) -> None:
        self.backbone = backbone
        self.backend = backend or MemoryBackend(bank)
        self.tasks = TaskTable(self.backend.tasks)
        self._bank = bank
        self._cache = WeightCache(cache_bytes)
        self._kept = 0  # masks of the bank that are known to be in the backend
        # Taken in this order, the second alone by whoever only reads.
        self._committing, self._adopting = ForkableLock(), ForkableLock()
        self._unrounded: tuple[str, Coefficients] | None = None
        self._shared: Statistics | None = None
        if backbone.shares_statistics and backbone.pretrained:
            self._shared = backbone.initial_statistics()

    @property
    def bank(self) -> MaskBank:
        """The masks, as in `ImpressLearner`."""
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
        with self._adopting, closing(self.backend.new_masks(self._kept)) as masks:
            for mask in masks:
                self._adopt(self._kept, mask)
                self._kept += 1

    @contextmanager
    def still(self) -> Iterator[None]:
        """Holds the state still: this process commits nothing, others' commits are not seen."""
        with self._committing, self._adopting, self.backend.snapshot():
            yield

    def check_new_masks(self, names: Sequence[str]) -> None:
        """Raises InputError unless the first is free as a task's name, and all as masks' names."""
        self.check_new_task(names[0])
        self.catch_up()
        self._check_names(names)

    def check_new_task(self, name: str) -> None:
        """Raises InputError unless a task of that name can be committed."""
        self.backend.check_writable()
        check_new_name(name, self.tasks)

    def trained(self) -> int:
        """The number of trainings behind the bank and the tasks; a basis task counts once."""
        trained = (info.name for info in self.bank.infos if info.source == "edge_popup")
        return len(self.tasks) + sum(name not in self.tasks for name in trained)

    def commit_basis(
        self,
        masks: Mapping[str, Mapping[str, Tensor]],
        recipes: Mapping[str, Mapping[str, Any]],
        run: TrainingRun,
        head: Mapping[str, Tensor],
        precision: str,
    ) -> None:
        """Adds trained masks, name -> layers; the first one is the mask of the task of its name.

        head: the task's own, {} without. precision: of the head and the task's norm statistics.
        """
        name, mask = next(iter(masks.items()))
        layers, stored = self.backbone.layers, None
        weights = {layer: self.backbone.weights[layer] * kept for layer, kept in mask.items()}
        if head:
            stored = store_coefficients(Coefficients((), head=head_columns(head)), precision)
            restored = stored.restore(self.backbone.device)
            weights |= head_weights(self.backbone, restored.head)
        new = [
            coded_mask(packed_mask(each, mask, layers, "edge_popup", recipes[each]), layers)
            for each, mask in masks.items()
        ]
        own: Any = {"mask": name, "mask_bytes": len(new[0][0].coded or b"")}
        task = LearnedTask(name, run.classes, 1, stored, **own, history=run.history(recipes[name]))
        view = TaskView(weights, run.phase.statistics, len(run.classes))
        self._commit(run.judged(task, view, self.backbone, precision), run.phase, new)

    def commit_learned(
        self,
        name: str,
        coefficients: Coefficients,
        precision: str,
        recipe: Mapping[str, Any],
        run: TrainingRun,
        bank: int,
        replaced: LearnedTask | None = None,
        most: int | None = None,
    ) -> int | None:
        """Rounds and keeps a learned task's coefficients, and norm statistics of its own.

        bank: the serial number of that which they were learned over. replaced: the version that
        this one takes the place of. most: bytes that the task may take; one that takes more is not
        kept, and its bytes are returned. Raises InputError where masks were removed since, and
        where another version, or none, is in the place of the replaced one by now.
        """
        self._check_bank(bank)  # before masks that are gone are looked at
        stored, history = store_coefficients(coefficients, precision), run.history(recipe)
        task = LearnedTask(name, run.classes, coefficients.num_masks, stored, history=history)
        task = run.judged(task, self._view(task, run.phase.statistics), self.backbone, precision)
        if replaced is not None:
            task = task.as_version(replaced.version + 1)
        if most is not None and (size := task.info().bytes) > most:
            return size
        self._commit(task, run.phase, replaced=replaced, learned_over=bank)
        self._unrounded = name, coefficients
        return None

    def former_versions(self, task: LearnedTask) -> list[LearnedTask]:
        """The versions of a task before this one, the first one first."""
        return self.backend.former_versions(task.name) if task.version > 1 else []

    def restore_version(self, name: str, version: int) -> None:
        """Puts a former version of a task into its place, as a new version of the same bits."""
        with self._committing, self.backend.transaction():
            present, former = self.tasks.learned(name), self.backend.former_versions(name)
            if not 1 <= version <= len(former):
                last = f" to {len(former)}" if len(former) > 1 else ""
                have = f"the former versions 1{last}" if former else "no former version"
                raise InputError(f"task {name!r} has {have}, got version {version}")
            found = former[version - 1].as_version(present.version + 1, restored=version)
            self._catch_up_to(found)
            self.backend.replace_task(found)
        self._unrounded = None

    def remove_task(self, name: str) -> None:
        """Takes a task out with all its versions; the bank keeps its masks."""
        self.backend.check_writable()
        with self._committing, self.backend.transaction():
            self.tasks.learned(name)
            self.backend.remove_task(name)
        self._unrounded = None

    def remove_masks(self, names: Sequence[str]) -> None:
        """Takes masks out that no task needs: these, or all. Raises InputError for others."""
        self.commit_masks(())
        with self._committing:
            with self.backend.transaction():
                bank = self.bank
                free = free_masks(bank, self.tasks.all(), self.former_versions)
                going = {bank.index(name) for name in names} or free
                if needed := sorted(going - free):
                    raise InputError(f"mask {bank.names[needed[0]]!r} cannot go, as tasks need it")
                left = bank.without(going)
                if going:
                    self.backend.remove_masks(going, left)
            with self._adopting:
                self._bank, self._kept = left, len(left)

    def commit_masks(self, masks: Sequence[PackedMask]) -> None:
        """Adds masks that belong to no task."""
        self._commit(None, None, masks)

    def coefficients(self, task: LearnedTask) -> Coefficients:
        """A task's coefficients as stored; one-hot on its own mask for a basis task."""
        self._catch_up_to(task)
        layers, device = self.backbone.layers, self.backbone.device
        if task.coefficients is not None and task.mask is None:
            return task.coefficients.restore(device)
        position = self._bank.index(str(task.mask))
        return one_hot_coefficients(layers, position, task.num_masks, device)

    def view(self, task: LearnedTask, *, evict_others: bool = True) -> TaskView:
        """A kept task, ready to compute; an old task never changes, so neither do its weights.

        evict_others: as of `WeightCache.get`.
        """
        self._catch_up_to(task)
        keep = partial(self._cache.get, task.key, evict_others=evict_others)
        return self._view(task, self.statistics(task), keep)

    def feature_view(self, num_masks: int, residual: bool) -> TaskView:
        """The networks whose features readouts use: under each mask, its own first if residual."""
        found = networks(self.backbone, self.bank, self._cache, num_masks, residual)
        return TaskView(found[0], self.shared, self.backbone.num_classes, others=tuple(found[1:]))

    def last_projection(self) -> tuple[int, Projection | None]:
        """The number of the projection kept last, 0 without any, and the projection.

        Raises StoreError for one of more masks than there are.
        """
        number = self.backend.projections()
        projection = self.backend.projection(number)
        if projection is not None and projection.num_masks > len(self.bank):
            raise StoreError(
                f"features are of {projection.num_masks} masks of a bank of {len(self.bank)}; "
                "restore the store from a copy"
            )
        return number, projection

    def commit_projection(self, projection: Projection, bank: int) -> None:
        """Keeps a projection for later readouts; bank: as of `commit_learned`."""
        self.commit_masks(())  # those of a bank that was given
        with self._committing, self.backend.transaction():
            self.catch_up()  # refuses features of masks that others removed
            self._check_bank(bank)
            self.backend.add_projection(projection)

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
        return self._view(task, self.statistics(task), numbers=self._unrounded[1])

    def statistics(self, task: LearnedTask) -> Statistics | None:
        """The norm statistics that the task is computed with."""
        return self.shared if task.statistics is None else task.statistics.values

    def check(self, task: LearnedTask) -> None:
        """Raises StoreError for a kept task that combines masks which are not there."""
        check_parts(task, self._bank, self.backend.projections)

    def _view(
        self,
        task: LearnedTask,
        statistics: Statistics | None,
        keep: Callable[[Callable[[], Weights]], Weights] = lambda make: make(),
        numbers: Coefficients | None = None,
    ) -> TaskView:
        """A task with its weights; keep: caches what is made; numbers: those stored by default."""
        form, classes = task.coefficients, len(task.classes)
        found = keep(partial(self._weights, task, numbers))
        if form is None or form.readout is None:
            alone = form is not None and form.is_head and task.mask is None
            shared = (None,) if alone and task.statistics is None else None
            return TaskView(found, statistics, classes, feature_keys=shared)
        bodies, networks = with_heads(self.backbone, self._bank, self._cache, form, found)
        return TaskView(networks[0], statistics, classes, "eval", tuple(networks[1:]), bodies)

    @torch.no_grad()
    def _weights(self, task: LearnedTask, numbers: Coefficients | None = None) -> Weights:
        """The task's effective weights, by its one mask or mixed over many; a readout's head."""
        bank, backbone, found = self._bank, self.backbone, task.coefficients
        if numbers is None and found is not None:
            numbers = found.restore(backbone.device)
        if numbers is not None and numbers.readout is not None:
            projection = self.backend.projection(numbers.readout.projection)
            return whole_head(backbone, numbers, projection)
        if numbers is not None and task.mask is None:
            return task_weights(bank, backbone, numbers)
        masked = masked_weights(bank, backbone.weights, str(task.mask))
        return masked | head_weights(backbone, None if numbers is None else numbers.head)

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

    def _commit(
        self,
        task: LearnedTask | None,
        phase: TrainingPhase | None,
        masks: Sequence[PackedMask] = (),
        replaced: LearnedTask | None = None,
        learned_over: int | None = None,
    ) -> None:
        """Keeps masks and a finished task, all of it or on an error nothing.

        replaced, learned_over: as `replaced` and `bank` of `commit_learned`. Raises InputError
        where a name, or the norm statistics that all share, were taken since learning began.
        """
        shared = None
        if phase is not None and phase.mode == "train" and self.backbone.shares_statistics:
            shared = phase.statistics
        with self._committing:
            with self.backend.transaction():
                bank = self.bank  # with what others committed before this transaction began
                self._check_bank(learned_over)
                self._check_names(info.name for info, _ in masks)
                if shared is not None and self.shared is not None:
                    line = "another task was learned meanwhile and fixed the norm statistics that"
                    raise InputError(f"{line} all tasks share; learn this one again")
                if task is not None and replaced is None:
                    check_new_name(task.name, self.tasks)
                elif replaced is not None:
                    self._check_present(replaced)
                first = len(bank)
                if masks and task is not None:
                    task = replace(task, num_masks=first + 1)
                unsaved = [bank.packed(position) for position in range(self._kept, first)]
                self.backend.add_masks([*unsaved, *masks])
                if shared is not None:
                    self.backend.share(shared)
                if task is not None and replaced is None:
                    self.backend.add_task(task)
                elif task is not None:
                    self.backend.replace_task(task)
            with self._adopting:
                for position, mask in enumerate(masks, first):
                    self._adopt(position, mask)
                self._kept = max(self._kept, first + len(masks))
            if shared is not None:
                self._shared = shared

    def _check_bank(self, serial: int | None) -> None:
        """Raises InputError unless the bank is still the one with this serial number, if any."""
        if serial not in (None, self._bank.serial):
            raise InputError("masks were removed while this was learned over them; learn it again")

    def _check_present(self, task: LearnedTask) -> None:
        """Raises InputError unless this version of the task is the one that is kept."""
        now = self.tasks.learned(task.name) if task.name in self.tasks else None
        if now is None or (now.number, now.version) != (task.number, task.version):
            line = f"task {task.name!r} was changed or removed meanwhile; update it again"
            raise InputError(line)

    def _check_names(self, names: Iterable[str]) -> None:
        for name in filter(self._bank.__contains__, names):
            raise InputError(f"the bank holds a mask named {name!r}; choose another name")
