"""`Store`: the masks (the bank), tasks and shared norm statistics that a learner has committed.

A store is one SQLite database, in a file or in memory. Commits are atomic, and no later commit
changes a stored mask or a stored version of a task. A learned task is committed only if its outputs
on up to 512 training inputs are finite. The masks are also kept in memory, as packed bits on the
network's device. The *effective weights* of a task are those that the network computes with. A
cache holds them for recently used tasks. A readout is a task with a linear head over the features
of one or more networks: the frozen network, and the network under each mask.
"""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from impresslearn.coefficients.deltas import Head, head_coefficients, head_weights
from impresslearn.coefficients.masks import masked_weights, mixture_of
from impresslearn.coefficients.norm_statistics import (
    StoredStatistics,
    restore_statistics,
    round_statistics,
)
from impresslearn.coefficients.parametrisation import Coefficients, round_coefficients, task_weights
from impresslearn.coefficients.readout import Projection, Readout, over_features
from impresslearn.data import Features, inputs_behind
from impresslearn.errors import InputError, StoreError, TrainingError
from impresslearn.inference import PROFILED_INPUTS, task_profile
from impresslearn.inference.class_map import ClassMap
from impresslearn.inference.feature_scores import FeatureSpace
from impresslearn.inference.unknown import FEW_FEATURES
from impresslearn.kernels.compiling import forkable_lock
from impresslearn.masks.bank import MaskBank, PackedMask, coded_mask, packed_mask
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import spread_places
from impresslearn.networks.prediction import Statistics, TaskView, WeightCache, Weights
from impresslearn.store.database import Database
from impresslearn.store.feature_knowledge import learn_profile
from impresslearn.store.rows import CLASS_MAP, Rows, TaskTable, changed_meanwhile, mask_digest
from impresslearn.store.task_index import TaskIndex
from impresslearn.store.tasks import (
    StoredTask,
    TaskRow,
    TrainingRun,
    check_new_name,
    task_row,
    to_json,
)

CACHE_BYTES = 80 * 1024**2  # default size of the cache of effective weights


class Store:
    """The bank, tasks and shared norm statistics of one network.

    - bank: the masks to start from; the database need not contain them yet. `catch_up` appends
      masks that only the database has.
    - cache_bytes: memory for the effective weights of recently used tasks; default 80 MiB.
    - database: by default a new database in memory.
    """

    # Training uses tensors made here, and autograd rejects tensors made in inference mode.
    @torch.inference_mode(False)
    def __init__(
        self,
        backbone: Backbone,
        bank: MaskBank,
        cache_bytes: int = CACHE_BYTES,
        database: Database | None = None,
    ) -> None:
        self.backbone = backbone
        self.database = database or Database()
        self.rows = Rows(self.database, backbone)
        self.tasks = TaskTable(self.rows)
        self._bank = bank
        self.cache = WeightCache(cache_bytes)
        self._mask_digests: dict[int, bytes] = {}
        self._written_masks = 0  # how many masks of the bank are known to be in the database
        self._generation: Hashable = None  # `Database.generation` at the last `catch_up`
        # A commit acquires `committing`, then `_adopting`. A reader acquires one of them at a time.
        self.committing, self._adopting = forkable_lock(), forkable_lock()
        # Whether learning may add a projection or `FeatureSpace` for all tasks; False in workers.
        self.adds_shared = True
        self._space: FeatureSpace | None = None
        self.index = TaskIndex(self)
        # Whether the network ends with its head; None until this is checked.
        self.has_plain_head: bool | None = None
        self._class_map: tuple[bytes, ClassMap] | None = None  # encoded, and decoded
        self._shared: Statistics | None = None  # the network's own, or gathered by the first task
        if backbone.shares_statistics and backbone.pretrained:
            self._shared = backbone.initial_statistics()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy gets new locks and an empty cache.
        return Store, (self.backbone, self.bank, self.cache.limit, self.database)

    def with_first_task(self) -> "Store":
        """A copy in memory for workers: all masks, all shared data, and only the first task."""
        memory = Database(copy_of=self.database)
        with memory.transaction():
            memory.write("DELETE FROM tasks WHERE number > (SELECT min(number) FROM tasks)")
            memory.write("DELETE FROM tensors")  # of the network, which workers already have
        memory.vacuum()
        return Store(self.backbone, self.bank.to(self.bank.device), self.cache.limit, memory)

    @property
    def bank(self) -> MaskBank:
        """The masks, including masks that other processes have committed."""
        self.catch_up()
        return self._bank

    @property
    @torch.inference_mode(False)
    def shared(self) -> Statistics | None:
        """The norm statistics that all tasks share; None if there are none."""
        if self._shared is None and self.backbone.shares_statistics:
            content = self.rows.meta("shared")
            if content is not None:
                self._shared = restore_statistics(self.backbone, content, False).values
        return self._shared

    @property
    def class_map(self) -> ClassMap | None:
        """The class map, which infers the task of a single input; None until `tell_apart`."""
        content = self.rows.meta(CLASS_MAP)
        if content is None:
            return None
        if self._class_map is None or self._class_map[0] != content:
            self._class_map = content, ClassMap.decode(content)
        return self._class_map[1]

    def commit_class_map(self, tasks: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Adds tasks to the class map. tasks: name -> (features (n, f), class indices (n,))."""
        with self.committing, self.database.transaction():
            self.rows.write_meta(CLASS_MAP, ClassMap.of(tasks, self.class_map).encode())

    @property
    def profiles_features(self) -> bool:
        """Whether tasks recognise inputs by the features that enter their heads."""
        network, head = self.backbone, self.backbone.own_head
        if head is None or network.normalises_by_batch:
            return False
        # Without layers, features are input values. If these are few, their statistics do better.
        return network.pretrained or (not network.layers and head.fan_in > FEW_FEATURES)

    @property
    def space(self) -> FeatureSpace | None:
        """The coordinates in which tasks recognise inputs; None before a task has set them."""
        if self._space is None and self.profiles_features:
            self._space = self.rows.space()
        return self._space

    @property
    def frozen_view(self) -> TaskView:
        """The frozen network, ready to compute the features that profiles use."""
        view, backbone = self.feature_view(num_masks=0, residual=True), self.backbone
        if backbone.has_task_statistics:
            view = replace(view, statistics=backbone.initial_statistics())
        return view

    def catch_up(self) -> None:
        """Loads masks from the database: at first all, later those that others committed.

        Raises StoreError if another process committed other masks at positions of this bank.
        """
        generation = self.rows.generation()
        if generation is not None and generation == self._generation:
            return
        first = self._written_masks
        # Read before acquiring `_adopting`, or it may deadlock: a commit to a database in memory
        # holds the only connection while it waits for `_adopting`.
        masks = list(self.rows.masks(first))
        with self._adopting:
            self._adopt(first, masks, written=True)
            if generation is not None:
                self._generation = generation

    def check_new_task(self, name: str, masks: Sequence[str] = ()) -> None:
        """Raises InputError unless this task name and these mask names can be committed."""
        self.database.check_writable()
        check_new_name(name, self.tasks)
        if masks:
            self.catch_up()
            self._check_mask_names(masks)

    def commit_basis(
        self,
        masks: Mapping[str, Mapping[str, Tensor]],
        recipes: Mapping[str, Mapping[str, Any]],
        run: TrainingRun,
        head: Mapping[str, Tensor],
        precision: str,
    ) -> None:
        """Commits trained masks, and a basis task that uses the first mask and has its name.

        - masks: mask name -> layer name -> booleans; recipes: mask name -> how it was trained.
        - head: the task's own head; {} if tasks share the head.
        - precision: how the head and the task's norm statistics are rounded.
        """
        name, mask = next(iter(masks.items()))
        backbone, stored = self.backbone, None
        weights = {layer: backbone.weights[layer] * bits for layer, bits in mask.items()}
        if head:
            coefficients, classes = head_coefficients(head), len(run.classes)
            stored = round_coefficients(coefficients, precision, backbone, classes)
            weights |= head_weights(backbone, stored.restore(backbone).head)
        added, layers = [], backbone.layers
        for mask_name, bits in masks.items():
            packed = packed_mask(mask_name, bits, layers, "edge_popup", recipes[mask_name])
            added.append(coded_mask(packed, layers))
        size = len(added[0][0].coded or b"")  # of the task's own mask
        # `_commit` sets num_masks, once the position of the mask is certain.
        row = task_row(name, run, recipes[name], 1, stored, mask=name, mask_bytes=size)
        view = TaskView(weights, run.phase.statistics, len(run.classes))
        row = self._with_profile(row, self.rows.decode(row), view, run, precision)
        self._commit(row, run, added)

    def commit_learned(
        self,
        name: str,
        coefficients: Coefficients,
        precision: str,
        how_learned: Mapping[str, Any],
        run: TrainingRun,
        replaced: StoredTask | None = None,
        max_bytes: int | None = None,
    ) -> int | None:
        """Rounds and commits the coefficients and norm statistics of a learned task.

        - replaced: the version to replace; if the new version equals it, nothing is written.
        - max_bytes: a larger task is not committed, and its size in bytes is returned instead of
          None.

        Raises InputError if another process has updated or removed the task since learning began.
        """
        stored = round_coefficients(coefficients, precision, self.backbone, len(run.classes))
        version = 1 if replaced is None else replaced.version + 1
        row = task_row(name, run, how_learned, coefficients.num_masks, stored, version=version)
        draft = self.rows.decode(row)
        weights = self._weights(draft)
        view = self._view(draft, run.phase.statistics, weights)
        row = self._with_profile(row, draft, view, run, precision)
        if max_bytes is not None and (size := row.info().bytes) > max_bytes:
            return size
        self._commit(row, run, (), replaced)
        # Keep the weights for predictions: `get` adds them to the cache.
        self.cache.get(f"task {row.checksum.hex()}", lambda: weights)
        return None

    def commit_masks(self, masks: Sequence[PackedMask]) -> None:
        """Adds masks that belong to no task."""
        self._commit(None, None, masks)

    def commit_many(self, rows: Iterable[TaskRow]) -> list[str]:
        """Writes tasks whose names are not taken, in one transaction. Returns their names."""
        with self.committing, self.database.transaction():
            new = [row for row in rows if row.name not in self.tasks]
            for row in new:
                self.rows.add_task(row)
        return [row.name for row in new]

    def commit_projection(
        self, features: Tensor, dimensions: int, num_masks: int, residual: bool
    ) -> tuple[int, Projection]:
        """Commits a projection for later readouts. Returns its number in the store, and itself."""
        projection = Projection.of(features, dimensions, num_masks, residual)
        projection = replace(projection, matrix=projection.matrix.to(self.backbone.device))
        self.commit_masks(())  # writes masks that the bank had from the start
        with self.committing, self.database.transaction():
            return self.rows.add_projection(projection), projection

    def _commit(
        self,
        row: TaskRow | None,
        run: TrainingRun | None,
        masks: Sequence[PackedMask] = (),
        replaced: StoredTask | None = None,
    ) -> None:
        """Commits masks and a task in one transaction.

        replaced: as in `commit_learned`. Raises InputError if, since learning began, another commit
        took a name or set the shared norm statistics.
        """
        shared = None
        if run is not None and run.phase.mode == "train" and self.backbone.shares_statistics:
            shared = run.phase.statistics
        in_file = self.database.path is not None
        with self.committing:
            with self.database.transaction():
                bank = self.bank  # includes what others committed before this transaction
                self._check_mask_names(info.name for info, _ in masks)
                if shared is not None and self.shared is not None:
                    line = "another task set the shared norm statistics meanwhile"
                    raise InputError(f"{line}; learn this one again")
                if replaced is not None:
                    versions = list(self.rows.task_rows(replaced.name))
                    if not versions or versions[-1].checksum != replaced.digest:
                        raise changed_meanwhile(replaced.name)
                    if row is not None and row.same_numbers(versions[-1]):
                        return
                first = len(bank)
                # Encoding drawn masks is slow, so a database in memory gets them only when saved.
                if in_file and (masks or first > self._written_masks):
                    self.write_masks(self.rows, masks)
                if shared is not None:
                    self.rows.write_meta("shared", StoredStatistics(shared).content)
                if row is not None:
                    row = replace(row, num_masks=first + 1) if masks else row
                    self.rows.add_task(row)
            with self._adopting:
                self._adopt(first, masks, written=in_file)
            if shared is not None:
                self._shared = shared

    def write_masks(self, rows: Rows, further: Sequence[PackedMask] = ()) -> None:
        """Writes the masks of the bank that `rows` lack, then the further masks."""
        count = rows.database.rows("SELECT count(*) FROM masks")[0][0]
        unwritten = [self._bank.packed(place) for place in range(count, len(self._bank))]
        rows.add_masks(count, [*unwritten, *further])

    @torch.inference_mode(False)
    def _adopt(self, first: int, masks: Sequence[PackedMask], written: bool) -> None:
        """Adds committed masks, from position `first` on, that the bank does not have yet."""
        for position, (info, packed) in enumerate(masks, first):
            moved = [bits.to(self.backbone.device) for bits in packed]
            if position == len(self._bank):
                self._bank.adopt(info, moved)
                continue
            present, bits = self._bank.packed(position)
            if present.name != info.name or not all(map(torch.equal, bits, moved)):
                line = f"mask {info.name!r} in place of {present.name!r}"
                line += ", which only this process has; open the store again"
                raise StoreError(f"another process committed {line}")
        if written:
            self._written_masks = max(self._written_masks, first + len(masks))

    def _with_profile(
        self, row: TaskRow, draft: StoredTask, view: TaskView, run: TrainingRun, precision: str
    ) -> TaskRow:
        """Adds norm statistics and a profile to a row. Raises TrainingError for NaN or infinity."""
        backbone, statistics = self.backbone, None
        if run.phase.statistics is not None and backbone.has_task_statistics:
            gathered = run.phase.statistics
            statistics = round_statistics(backbone, gathered, precision, view.weights, run.examples)
            view = replace(view, statistics=statistics.values)
        places = spread_places(len(run.examples), PROFILED_INPUTS)
        # `profiled` are the inputs that the profile describes, `inputs` those for the predictions.
        inputs = profiled = run.examples.inputs_at(places)
        readout = draft.parts[-1] if draft.parts else None
        if run.features is not None and isinstance(readout, Readout):
            # Features from training save a forward pass. If the task changes the network, they are
            # the frozen network's features: its profile can use them, but its outputs cannot.
            changes_network = len(draft.parts) > 1
            positions = _positions(0 if changes_network else row.num_masks, readout.residual)
            values = run.features[torch.from_numpy(places)]
            keys = tuple(map(self._feature_key, positions))
            profiled = Features(values, inputs_behind(inputs), backbone.identity, keys, {})
            inputs = inputs if changes_network else profiled
        outputs = view.outputs(backbone, inputs)
        numbers = [outputs, *(statistics.values.values() if statistics else ())]
        if not all(values.isfinite().all() for values in numbers):
            line = f"task {row.name!r} is not kept: NaN or infinite predictions or norm statistics"
            raise TrainingError(f"{line}; try a smaller learning rate or scaled inputs")
        profile: Any = None
        if self.profiles_features:
            profile = learn_profile(self, view, run, profiled, places)
        if profile is None:
            profile = task_profile(backbone, view, inputs, outputs)
        return row.with_profile(statistics, profile)

    def _check_mask_names(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._bank:
                raise InputError(f"the bank holds a mask named {name!r}; choose another name")

    def versions(self, name: str) -> list[StoredTask]:
        """All versions of a task, the current one last. Raises UnknownTaskError."""
        name = self.tasks.stored(name).name
        return [self.rows.decode(row) for row in self.rows.task_rows(name)]

    def restore_version(self, name: str, version: int) -> None:
        """Commits a bit-for-bit copy of a former version as the task's next version."""
        with self.committing, self.database.transaction():
            *former, present = self.rows.task_rows(self.tasks.stored(name).name)
            chosen = next((row for row in former if row.version == version), None)
            if chosen is None:
                have = "no former version"
                if former:
                    have = f"the former versions {former[0].version} to {former[-1].version}"
                line = f"task {name!r} is at version {present.version} and has {have}"
                raise InputError(f"{line}, got version {version}")
            self.check_masks_of(chosen)
            history = json.loads(chosen.history)
            history["metrics"]["restored"] = version
            restored = replace(chosen, version=present.version + 1, history=to_json(history))
            self.rows.add_task(restored)

    def remove_task(self, name: str) -> None:
        """Deletes a task with all its versions; its masks stay in the bank."""
        with self.committing, self.database.transaction():
            self.rows.remove_tasks([self.tasks.stored(name).name])

    def coefficients(self, task: StoredTask) -> Coefficients:
        """A task's stored coefficients. For a basis task: 1 for its own mask, 0 for the rest."""
        self.check_masks_of(task)
        if task.coefficients is not None and task.mask is None:
            return task.coefficients.restore(self.backbone)
        alphas = torch.zeros(task.num_masks, dtype=torch.float32, device=self.backbone.device)
        alphas[self._bank.index(str(task.mask))] = 1
        return mixture_of(alphas, self.backbone.layers)

    def statistics(self, task: StoredTask) -> Statistics | None:
        """The norm statistics that a task computes with: its own, or the shared ones."""
        return self.shared if task.statistics is None else task.statistics.values

    def view(self, task: StoredTask, *, evict_others: bool = True) -> TaskView:
        """A stored task, ready to compute. evict_others: see `WeightCache.get`."""
        return self._view(task, self.statistics(task), self.weights(task, evict_others))

    def weights(self, task: StoredTask, evict_others: bool = True) -> Weights:
        """The effective weights of a task; of a readout, its head (f, K) over all features.

        evict_others: see `WeightCache.get`.
        """
        make = partial(self._weights, task)
        return self.cache.get(f"task {task.digest.hex()}", make, evict_others)

    def feature_view(self, num_masks: int, residual: bool) -> TaskView:
        """The networks whose features a readout reads.

        - num_masks: N, for the network under each of the first N masks of the bank.
        - residual: whether the frozen network comes before these N networks.
        """
        self.catch_up()
        positions = _positions(num_masks, residual)
        first, *others = map(self._network, positions)
        keys = tuple(map(self._feature_key, positions))
        return TaskView(first, self.shared, self.backbone.num_classes, "eval", tuple(others), keys)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _weights(self, task: StoredTask) -> Weights:
        """As `weights`, uncached."""
        self.check_masks_of(task)
        backbone, numbers = self.backbone, None
        if task.coefficients is not None:
            numbers = task.coefficients.restore(backbone)
        if task.mask is not None:
            masked = masked_weights(self._bank, backbone.weights, task.mask)
            return masked | head_weights(backbone, None if numbers is None else numbers.head)
        assert numbers is not None
        changed = task_weights(self._bank, backbone, numbers)
        readout = numbers.parts[-1] if numbers.parts else None
        if not isinstance(readout, Readout):
            return changed
        head = over_features(numbers.numbers[-1], self.rows.projection(readout.projection))
        if len(numbers.parts) > 1:
            return changed | head_weights(backbone, head)
        return dict(zip(("weight", "bias"), head, strict=False))  # without a bias if it has none

    def _view(self, task: StoredTask, statistics: Statistics | None, weights: Weights) -> TaskView:
        """A task with its weights, as `_weights` gives them."""
        parts, classes = task.parts, len(task.classes)
        readout = parts[0] if len(parts) == 1 else None
        if not isinstance(readout, Readout):
            view = TaskView(weights, statistics, classes)
            only_head = task.mask is None and [type(part) for part in parts] == [Head]
            if only_head and task.statistics is None:  # its features are the frozen network's
                view = replace(view, feature_keys=(self._feature_key(None),))
            return view
        # The logits of a readout are a sum over networks, each with its own part of the head; the
        # first network gets the bias. A network whose part of the head is zero is left out.
        positions = _positions(task.num_masks, readout.residual)
        heads = weights["weight"].chunk(len(positions))
        bias = [weights["bias"]] if "bias" in weights else []
        used = [number for number, head in enumerate(heads) if head.any()] or [0]
        networks = []
        for number in used:
            head = head_weights(self.backbone, [heads[number], *bias])
            networks.append(self._network(positions[number]) | head)
            bias = [torch.zeros_like(values) for values in bias]
        keys = tuple(self._feature_key(positions[number]) for number in used)
        return TaskView(networks[0], statistics, classes, "eval", tuple(networks[1:]), keys)

    def _network(self, position: int | None) -> Weights:
        """The weights under the mask at a position; {} for the frozen network itself."""
        if position is None:
            return {}
        name = self._bank.infos[position].name
        make = partial(masked_weights, self._bank, self.backbone.weights, name)
        return self.cache.get(f"mask {position}", make)

    def _feature_key(self, position: int | None) -> Hashable:
        """A key for the features under one mask; it is the same in all stores of this network."""
        mask = None if position is None else self.mask_digest(position)
        # A pretrained network has its own statistics, which are the same in all stores.
        gathered = None if self.backbone.pretrained else self.shared
        return mask, None if gathered is None else self.backbone.fingerprint(gathered)

    def mask_digest(self, position: int) -> bytes:
        if position not in self._mask_digests:
            self._mask_digests[position] = mask_digest(self._bank.packed(position)[1])
        return self._mask_digests[position]

    def check_masks_of(self, task: StoredTask | TaskRow) -> None:
        """Raises StoreError if a stored task combines masks that the bank does not have."""
        self.catch_up()
        if task.num_masks > len(self._bank):
            # A commit in memory writes the task's row first and then adds the masks: wait for it.
            with self.committing:
                count = len(self._bank)
            if task.num_masks > count:
                raise self.database.damaged(f"task {task.name!r} combines masks that are not there")


def _positions(num_masks: int, residual: bool) -> list[int | None]:
    """Positions of the masks whose features a readout uses; None is the frozen network."""
    return [*([None] if residual else []), *range(num_masks)]
