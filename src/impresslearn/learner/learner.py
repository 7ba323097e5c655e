"""`ImpressLearner`: one frozen network, a bank of masks, and any number of tasks.

`learn_basis` trains a mask and adds it to the bank. `learn_task` learns coefficients of the masks.
Neither changes what an earlier task uses. A task whose learning fails is not kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from impresslearn.checks import (
    ReadOnlySettings,
    check_flag,
    check_integer,
    check_kind,
    check_name,
    check_seed,
)
from impresslearn.coefficients.deltas import can_fold
from impresslearn.coefficients.learning import COEFFICIENT_RECIPE
from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.coefficients.quantisation import Precision
from impresslearn.coefficients.readout import Readout
from impresslearn.data import Features, Inputs, Label, label_array
from impresslearn.data.preprocessing import Prepared, Preprocessing, with_form
from impresslearn.errors import ImpressLearnError, InputError, warn_caller
from impresslearn.export import ExportedTask, TaskModel
from impresslearn.inference import InferenceMethod, KnownTask, TaskGuess, guess_task, guess_tasks
from impresslearn.inference.class_map import ClassMap
from impresslearn.inference.prediction_labels import check_task_names
from impresslearn.learner.parallel import learn_in_parallel
from impresslearn.learner.presets import LearnerSettings, StartName
from impresslearn.learner.presets import preset as find_preset
from impresslearn.learner.readouts import known_form
from impresslearn.learner.trainer import Note, Trainer
from impresslearn.masks import POPUP_RECIPE, Allocation, ScoreRule, draw_masks
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone, create_backbone
from impresslearn.networks.inputs import check_backbone, checked_inputs
from impresslearn.networks.layers import TunedKind
from impresslearn.networks.prediction import Statistics, TaskView, accuracy_of, labels_of
from impresslearn.store.encoded import EncodedTask, OnConflict, commit_encoded, encode_tasks
from impresslearn.store.mixed_batch import mixed_logits
from impresslearn.store.rows import TaskTable
from impresslearn.store.store import CACHE_BYTES, Store
from impresslearn.store.store_files import WeightStorage, save_file
from impresslearn.store.tasks import ROLES, TaskInfo
from impresslearn.training.loop import Recipe
from impresslearn.training.progress import ProgressChoice, progress_for

MANY_COMPARED = 2000  # inference warns before it runs more tasks than this, one after another


class ImpressLearner(ReadOnlySettings):
    """Learns tasks one after another on a frozen backbone; forgets nothing.

    Settings are attributes, fixed once the learner is made (except progress). The defaults are the
    preset "default".

    - backbone: from `create_backbone` (a LeNet-300-100 by default) or `adapt`.
    - bank: masks to start from, such as a `random_bank`; empty by default.
    - sparsity: fraction of zeros in trained and drawn masks, in [0, 1).
    - allocation: how the ones spread over layers: "erdos_renyi" (small layers stay dense) or
      "uniform".
    - granularity: the numbers that a task learns. "layer": one coefficient per mask and layer (the
      paper). "unit": one per mask and output unit. "weight": one integer per weight, without masks;
      needs precision="coded". "readout": a linear head over the features under each mask.
      `register_parametrisation` adds more.
    - output_scale: whether masks also get a learned scale per output unit.
    - precision: what coefficients are rounded to, stored and used in: float32, float16, int8, int5,
      int4, or "coded" (integers whose code length is part of the loss).
    - bit_price: for "coded", the weight λ of rate–distortion: one bit of code costs as much as this
      number of bits of cross-entropy, summed over the examples. Raise it for smaller tasks.
    - penalty: λ of the paper's eq. 2, which keeps Σ |α| near 1.
    - basis_recipe, task_recipe: how masks and coefficients are optimised.
    - score_rule: whether edge-popup ranks weights by "score" or by its "magnitude".
    - seed: of all draws. A training derives its seed from this one and the name of its task.
    - preprocessing: shapes and scales all raw inputs; stores and exports keep it. None takes inputs
      as they are, with uint8 scaled to [0, 1].
    - start: "mixture" starts a task at a mixture of masks (eq. 1), "network" at the network without
      masks, whose weights the masks then change. Default: "network" for a pretrained network with
      a head per task and no penalty, otherwise "mixture".
    - tune: other parameters that a task learns: "norm" (scales, shifts), "bias" or both.
    - fold_after: batch norms use batch statistics for this first fraction of the training steps.
      Then training folds running statistics into the tuned scales and shifts. 0 turns this off.
    - max_bytes: limit on a learned task; training adjusts the price of bits to fit it.
    - staged: whether a task begins with a coded readout of the frozen network's features. With 60
      examples or more it then changes the network, unless this clearly raises the held-out loss.
    - progress: True, False, "auto" (on a terminal), or a log (see `training.progress`).
    - cache_bytes: memory for the weights of recently used tasks, in bytes.

    Raises InputError for settings that cannot be used. Methods raise UnknownTaskError if no task
    has the name, StoreError where a store cannot be used, and InputError for names that are taken,
    data that cannot be used, and a change to a store that was opened for reading only.
    """

    def __init__(
        self,
        backbone: Backbone | None = None,
        *,
        bank: MaskBank | None = None,
        sparsity: float = 0.9,
        allocation: Allocation = "erdos_renyi",
        granularity: str = "layer",
        output_scale: bool = False,
        precision: Precision = "float32",
        bit_price: float = 1.0,
        penalty: float = 0.0,
        basis_recipe: Recipe = POPUP_RECIPE,
        task_recipe: Recipe = COEFFICIENT_RECIPE,
        score_rule: ScoreRule = "magnitude",
        seed: int = 0,
        preprocessing: Preprocessing | None = None,
        start: StartName | None = None,
        tune: Sequence[TunedKind] = (),
        fold_after: float = 0.0,
        max_bytes: int | None = None,
        staged: bool = False,
        progress: ProgressChoice = "auto",
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        backbone = check_backbone(create_backbone() if backbone is None else backbone)
        if bank is not None:
            check_kind("bank", bank, MaskBank)
            bank.check_network(backbone)
        self.backbone = backbone
        starts_at_network = backbone.own_head and backbone.pretrained and not penalty
        self.settings = LearnerSettings(
            sparsity, allocation, granularity, output_scale, precision, bit_price,
            penalty, basis_recipe, task_recipe, score_rule, seed, preprocessing,
            start or ("network" if starts_at_network else "mixture"), cast(Any, tune), fold_after,
            max_bytes, staged,
        )  # fmt: skip
        vars(self).update(self.settings.values())  # checked, and as attributes of the learner
        if fold_after and not can_fold(backbone, self.settings.tune):
            line = f"fold_after = {fold_after} has no effect on {backbone.name}; leave it out, as"
            raise InputError(f"{line} there are no tuned batch norms whose statistics tasks share")
        self.progress = progress
        self.cache_bytes = check_integer("cache_bytes", cache_bytes, 0)
        # The learner adds masks to its own copy of a given bank.
        masks = MaskBank(backbone.layers, backbone.device) if bank is None else bank.to(bank.device)
        self._store = Store(backbone, masks, self.cache_bytes)

    @classmethod
    def from_preset(cls, backbone: Backbone, name: str, **overrides: Any) -> ImpressLearner:
        """A learner with a preset's settings, some overridden, and its masks where it needs any.

        `basis_recipe`, `task_recipe` and `recipe`, which sets both, may be mappings of the entries
        to change.

        Raises InputError for "pretrained" and "few_labels" where tasks share the network's head.
        """
        settings, masks = find_preset(name).settings_on(check_backbone(backbone), overrides)
        learner = cls(backbone, **settings)
        if masks and backbone.layers and not len(learner.bank_):
            learner.add_masks(masks, source="disjoint_kernels")
        return learner

    def __repr__(self) -> str:
        return f"ImpressLearner({self.backbone!r}, {self.bank_!r}, {self.tasks_!r})"

    def _repr_html_(self) -> str:
        return f"<p>{self.backbone!r}<br>{self.bank_!r}</p>{self.tasks_._repr_html_()}"

    @property
    def bank_(self) -> MaskBank:
        """The masks."""
        return self._store.bank.trained_with(self.backbone)

    @property
    def tasks_(self) -> TaskTable:
        """All tasks, name -> TaskInfo, in the order they were learned."""
        return self._store.tasks

    @property
    def preprocessing_(self) -> Preprocessing | None:
        """How raw inputs are prepared: the setting, completed from the first task's inputs."""
        # Later inputs must have the first task's form. Otherwise uint8 inputs would silently be
        # scaled to [0, 1] although the task learned floats from 0 to 255, and reordered columns
        # would be accepted.
        return with_form(self.settings.preprocessing, known_form(self._store) or {})

    @property
    def shared_statistics_(self) -> Statistics | None:
        """Norm statistics that all tasks share; None where there are none."""
        return self._store.shared

    @property
    def class_map_(self) -> ClassMap | None:
        """What `tell_apart` learned, to infer tasks from single inputs; None before."""
        return self._store.class_map

    @property
    def coefficients_(self) -> dict[str, Coefficients]:
        """The coefficients of every learned task, as stored (after rounding)."""
        learned = (task for task in self.tasks_.all() if task.role == "learned")
        return {task.name: self._store.coefficients(task) for task in learned}

    def learn_basis(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Trains a mask on a task with edge-popup and adds it to the bank.

        The task is then predicted with its own mask.

        - name: a new name.
        - data: anything that `as_examples` takes.
        - seed: of the training; None derives it from the learner's seed and the name.
        - note: JSON values to keep in the task's history.
        """
        self._trainer.learn_masks([name], data, seed, note, batched=False)
        return self

    def learn_homogeneous(
        self,
        name: str,
        data: Any,
        count: int,
        *,
        seeds: Sequence[int] | None = None,
        batched: bool = False,
        note: Note | None = None,
    ) -> ImpressLearner:
        """Adds `count` masks of one task, trained from different seeds (the paper's homogeneous).

        They are named name, name/1, …; the first is the task's own mask.

        - seeds: distinct ones; each mask depends on its own seed alone.
        - batched: as in `learn_tasks`. name, data, note: as in `learn_basis`.
        """
        numbers = range(check_integer("count", count, 1))
        names = [f"{name}/{number}" if number else name for number in numbers]
        self._trainer.learn_masks(names, data, seeds, note, batched=batched)
        return self

    def add_random_masks(self, count: int, *, seed: int | None = None) -> ImpressLearner:
        """Appends random masks of the learner's sparsity and allocation."""
        return self.add_masks(count, seed=seed)

    def add_masks(
        self, count: int, *, source: str = "random", seed: int | None = None
    ) -> ImpressLearner:
        """Draws masks and adds them to the bank.

        - source: "random" (of the learner's sparsity and allocation), "disjoint" (each weight in
          one of them) or "disjoint_kernels" (each kernel). Add masks of your own by `bank_.append`.
        - seed: of the draw; the learner's by default.
        """
        settings, count = self.settings, check_integer("count", count, 1)
        seed = settings.seed if seed is None else check_seed(seed)
        how = settings.sparsity, settings.allocation, seed, source
        self._store.commit_masks(draw_masks(self.bank_, count, *how))
        return self

    def learn_task(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Learns a new task over the bank's masks: the numbers that `granularity` sets.

        - data: anything that `as_examples` takes; a few labelled examples suffice.
        - name, seed, note: as in `learn_basis`.
        """
        name = check_name(name)
        self._trainer.learn_tasks({name: data}, seed, {name: note}, batched=False)
        return self

    def learn_tasks(
        self,
        tasks: Mapping[str, Any] | Iterable[tuple[str, Any]],
        *,
        batched: bool = False,
        workers: int | str | Executor | None = None,
    ) -> ImpressLearner:
        """Learns several new tasks, as `learn_task` does one by one.

        - tasks: name -> data. With workers also an iterable of (name, data), read as tasks are
          learned; data may be a function without arguments that a worker calls.
        - batched: whether to train tasks of similar size side by side, as memory allows. On a CPU,
          coefficients take three quarters of the time and come out bit-identical; on a GPU
          `torch.vmap` gives equal results up to rounding.
        - workers: a number of processes, "ray" for the cluster that `ray.init` has connected to, or
          a `concurrent.futures` executor. Tasks that the store has are skipped, so an interrupted
          call can be repeated. Results do not depend on the number of workers.

        Raises, with workers, TasksFailedError with an error for each task that failed, after all
        others were learned.
        """
        if workers is None:
            self._trainer.learn_tasks(tasks, None, {}, batched=batched)
        elif check_flag("batched", batched):
            raise InputError("workers train tasks side by side by themselves; leave out batched")
        else:
            learn_in_parallel(self, tasks, workers)
        return self

    def update_task(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Trains a task further on new data and stores the result as its next version.

        The version before is kept. A readout is fitted anew.

        - data: of every class that the task must still separate; new labels become further classes.
        - seed, note: as in `learn_task`.

        Raises InputError also for a basis task, whose mask other tasks combine.
        """
        self._trainer.update_task(name, data, seed, note)
        return self

    def versions(self, name: str) -> tuple[TaskInfo, ...]:
        """All versions of a task in their order, the present one last."""
        return tuple(task.info() for task in self._store.versions(name))

    def restore_task(self, name: str, version: int) -> ImpressLearner:
        """Adds a copy of a former version as the next one; InputError if there is none."""
        self._store.restore_version(name, check_integer("version", version, 1))
        return self

    def remove_task(self, name: str) -> ImpressLearner:
        """Removes a task with all its versions; masks stay."""
        self._store.remove_task(name)
        return self

    def encoded(self, names: Sequence[str]) -> list[EncodedTask]:
        """Learned tasks as bytes, for a learner with the same network and masks on any machine.

        They can be pickled. Raises InputError for a basis task.
        """
        return encode_tasks(self._store, names)

    def commit_encoded(
        self, tasks: Sequence[EncodedTask], *, on_conflict: OnConflict = "error"
    ) -> dict[str, str | ImpressLearnError]:
        """Adds tasks that were learned elsewhere, all in one transaction.

        - tasks: from `encoded`.
        - on_conflict: what to do if this learner has a different task of that name: "error",
          "version" (add the task as the next version) or "skip".

        Returns by name "new", "version 2", "unchanged", "skipped", or the error of a task that was
        not added. An error does not stop the other tasks.
        """
        return commit_encoded(self._store, tasks, on_conflict)

    def learn_features(self, *data: Any, dimensions: int = 128) -> ImpressLearner:
        """Learns the principal components of the features that readouts read.

        Unless max_bytes is ample, later readouts read these components instead and are smaller.

        - data: as in `learn_task`, of tasks like those to come; 600 inputs in all, from a dozen
          tasks, suffice; labels are ignored.
        - dimensions: the number of components.
        """
        self._trainer.learn_features(data, check_integer("dimensions", dimensions, 1))
        return self

    def features(self, inputs: Any, values: Any = None) -> Features:
        """Computes the features that readouts use, so that the network runs only once.

        Tasks can learn from `(features, labels)` and predict from features in place of inputs. The
        features can be indexed and sliced; `features.values` is a tensor (n, f) to save.

        - inputs: (n, ...), raw unless they are `Prepared`.
        - values: features of the same network that were computed before, in the order of the
          inputs; a few rows of them are checked. None (the default) computes them.
        """
        return self._trainer.features(inputs, values)

    def tell_apart(self, tasks: Mapping[str, Any]) -> ImpressLearner:
        """Learns to infer tasks from single inputs, by the features of a pretrained network.

        The store keeps a `ClassMap`, which all tasks share, and no task changes. Add tasks that are
        learned later by another call; until then tasks are inferred without the map.

        - tasks: learned task -> labelled data of all its classes, such as its training data. Give
          all tasks at once where you can.
        """
        self._trainer.learn_class_map(tasks)
        return self

    def prepare(self, inputs: Any) -> Tensor | Inputs:
        """Raw inputs (n, ...) as the network takes them."""
        return checked_inputs(self.backbone, inputs, self.preprocessing_)

    def logits(self, inputs: Any, task: str) -> Tensor:
        """A task's logits (n, K) for K classes, on the backbone's device."""
        view = self._store.view(self.tasks_.stored(task))
        return view.logits(self.backbone, self.prepare(inputs))

    def predict(
        self, inputs: Any, task: str | Sequence[str] | None = None, *, per_input: bool = False
    ) -> np.ndarray:
        """The labels of inputs, as an array (n,).

        - inputs: (n, ...), raw unless they are `Prepared`.
        - task: one name for all rows; n names for a mixed batch, in which tasks that read the same
          features share one pass of the network; or None, which infers the task from the inputs.
          Labels of different kinds give an array of dtype object.
        - per_input: without task, True infers a task for each input by itself; a class map also
          helps to choose the label. False infers one task for all inputs, which is more reliable.

        Raises UnknownTaskError also if the inputs as a whole look like no task.
        """
        values, guesses = self.prepare(inputs), list[TaskGuess]()
        if per_input:
            if task is not None:
                raise InputError(f"pass per_input or task={task!r}, not both")
            guesses = self.infer_tasks(Prepared(values))
            task = [guess.best for guess in guesses]
        elif task is None:
            task = self.infer_task(Prepared(values)).known()
        if isinstance(task, str):
            stored = self.tasks_.stored(task)
            logits = self._store.view(stored).logits(self.backbone, values)
            return labels_of(logits, stored.classes)
        names = check_task_names(task, len(values))
        labels: list[Any] = [None] * len(names)
        for row, guess in enumerate(guesses):
            if guess.class_index is not None:
                labels[row] = self.tasks_.stored(guess.best).classes[guess.class_index]
        parts = mixed_logits(self._store, values, names) if None in labels else ()
        for part in parts:
            best = part.logits.argmax(dim=1).tolist()
            for row, stored, place in zip(part.rows, part.tasks, best, strict=True):
                labels[row] = stored.classes[place]
        kinds = set(map(type, labels))
        return np.array(labels, dtype=object if len(kinds) > 1 else None)

    def score(self, data: Any, task: str) -> float:
        """A task's accuracy in [0, 1] on labelled data, which must have no new labels.

        `class_incremental` measures accuracy without task names.
        """
        stored = self.tasks_.stored(task)
        view, preprocessing = self._store.view(stored), self.preprocessing_
        return accuracy_of(self.backbone, view, data, preprocessing, stored.classes)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """The accuracy in [0, 1] on a task that was not learned.

        Predicts by all masks with α = 1/N, or by the frozen network if start="network" or without
        masks.

        - classes: the task's labels, sorted, if the data may not show all.
        """
        mixture = {} if self.settings.start == "network" else self._store.equal_mixture()
        view = TaskView(mixture, self.shared_statistics_, self.backbone.num_classes)
        known = None if classes is None else label_array(list(classes)).tolist()
        return accuracy_of(self.backbone, view, data, self.preprocessing_, known)

    def infer_task(
        self,
        inputs: Any,
        *,
        method: InferenceMethod = "auto",
        among: str | Sequence[str] = "all",
        **settings: Any,
    ) -> TaskGuess:
        """The task of unlabelled inputs (n, ...), n >= 1, all of one task; up to 256 are judged.

        - method: "auto", "exhaustive" (runs every task), "one_shot" (SupSup's search) or
          "alpha" (the ImpressLearn paper). "auto" does the same with up to 256 tasks. With more,
          over a pretrained network or `linear` with more than 32 inputs, it runs the 64 nearest to
          the inputs and all tasks without class means, and the posterior omits the others.
        - among: "all" tasks, "basis" or "learned" for the tasks of this role, or names.
        - settings: see `guess_task`.
        """
        tasks, values, keywords = self._inference_arguments(inputs, among, method == "auto")
        keywords |= {"shared": self.shared_statistics_, **settings}  # `settings` win
        return guess_task(self.backbone, self.bank_, tasks, values, method, **keywords)

    def infer_tasks(self, inputs: Any, *, among: str | Sequence[str] = "all") -> list[TaskGuess]:
        """The task of each unlabelled input by itself, for inputs (n, ...) of several tasks.

        - among: as in `infer_task`. Where "auto" runs 64 tasks, this runs 16 per input.
        """
        tasks, values, keywords = self._inference_arguments(inputs, among, True, one_by_one=True)
        return guess_tasks(self.backbone, self.bank_, tasks, values, **keywords)

    def predict_with(self, inputs: Any, guess: TaskGuess) -> np.ndarray:
        """Labels (n,) by the mixture of `infer_task(method="alpha")`; InputError without one."""
        if guess.mixture is None:
            raise InputError(f"a guess by {guess.method!r} holds no mixture; use method='alpha'")
        logits = guess.mixture.logits(self.backbone, self.prepare(inputs))
        return labels_of(logits, self.tasks_.stored(guess.best).classes)

    def statistics_of(self, task: str) -> Statistics | None:
        """Norm statistics of a task; None where its network has none."""
        return self._store.statistics(self.tasks_.stored(task))

    def task_model(self, task: str, *, prepared: bool = False) -> TaskModel:
        """A task as `impresslearn.export` takes it, for raw or `prepared` inputs."""
        stored = self.tasks_.stored(task)
        preprocessing = None if prepared else self.settings.preprocessing
        view = self._store.view(stored)
        return TaskModel(self.backbone, view, stored.name, stored.classes, preprocessing)

    def export(self, task: str, *, prepared: bool = False) -> nn.Module:
        """A module from inputs to a task's logits, which shares nothing with the learner.

        Its inputs are raw, like the learner's, or `prepared`.
        """
        return ExportedTask(self.task_model(task, prepared=prepared))

    def save(
        self,
        path: str | os.PathLike,
        *,
        tasks: Sequence[str] | None = None,
        weights: WeightStorage = "stored",
        overwrite: bool = False,
    ) -> ImpressLearner:
        """Writes everything to one new file, whole or not at all; `load` and `open_store` read it.

        - tasks: only these and the masks they need; an empty list keeps all masks and no task, as a
          base for tasks to come. By default everything.
        - weights: "stored", or "seed" to keep only the network's settings and its SHA-256.
        - overwrite: whether an existing file may be replaced; if not, it is an error.
        """
        plain = self.settings.plain()
        save_file(self._store, plain, path, names=tasks, weights=weights, overwrite=overwrite)
        return self

    def close(self) -> None:
        """Closes the file of a learner from `open_store`; no effect in memory."""
        self._store.database.close()

    def __enter__(self) -> ImpressLearner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _trainer(self) -> Trainer:
        progress = progress_for(self.progress).titled
        return Trainer(self._store, self.settings, self.preprocessing_, progress)

    def _inference_arguments(
        self, inputs: Any, among: str | Sequence[str], may_omit: bool, one_by_one: bool = False
    ) -> tuple[list[KnownTask], Tensor | Inputs, dict[str, Any]]:
        """Tasks (a shortlist if it `may_omit` some), prepared inputs, keywords of `guess_task`."""
        store, values = self._store, self.prepare(inputs)
        if may_omit and among in ("all", "learned"):
            shortlist = store.index.shortlist(values, one_by_one)
            if shortlist is not None:
                names, values = shortlist  # the inputs now come with their features
                if among == "learned":
                    names = [name for name in names if store.tasks.stored(name).role == "learned"]
                among = names or among  # without a learned task in the shortlist, run them all
        keywords = {"frozen": store.frozen_view, "space": store.space, "class_map": store.class_map}
        return self._known_tasks(among), values, keywords

    def _known_tasks(self, among: str | Sequence[str]) -> list[KnownTask]:
        """Tasks as inference takes them; their weights are made when they are needed."""
        if among and isinstance(among, Sequence) and not isinstance(among, str):  # names
            chosen = [self.tasks_.stored(name) for name in dict.fromkeys(among)]
        elif among in ("all", *ROLES):
            chosen = [task for task in self.tasks_.all() if among in ("all", task.role)]
        else:
            raise InputError(f"among must be all, basis, learned or a list of names, got {among!r}")
        if len(chosen) > MANY_COMPARED:
            warn_caller(
                f"inputs are compared with {len(chosen):,} tasks one by one, which takes minutes; "
                "name fewer in among; without method and among, a pretrained network judges only "
                "the nearest"
            )
        known = []
        for task in chosen:
            # Readouts may stay in the cache if they are not too many: each is needed twice, for the
            # evidence and for the logits.
            stays = len(chosen) <= MANY_COMPARED and all(isinstance(p, Readout) for p in task.parts)
            view = partial(self._store.view, task, evict_others=stays)
            # A basis task's own mask is the simplest mixture.
            mixes = task.mask is not None or [part.mixes_masks() for part in task.parts] == [True]
            mixture = partial(self._store.coefficients, task) if mixes else None
            known.append(KnownTask(task.name, len(task.classes), view, task.profile, mixture))
        return known
