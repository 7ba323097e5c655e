"""`ImpressLearner`: one frozen network, a bank of masks over its weights, and any number of tasks.

No method changes the network's weights, the masks or what earlier tasks have learned. If
learning fails, the task is not stored.
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
from impresslearn.coefficients.masks import equal_alphas, mix
from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.coefficients.quantisation import Precision
from impresslearn.coefficients.readout import Readout
from impresslearn.data import Features, Inputs, Label, label_array
from impresslearn.data.preprocessing import Prepared, Preprocessing, with_form
from impresslearn.errors import ImpressLearnError, InputError, warn_caller
from impresslearn.export import ExportedTask, TaskModel
from impresslearn.inference import InferenceMethod, KnownTask, TaskGuess, guess_task, guess_tasks
from impresslearn.inference.class_map import ClassMap
from impresslearn.inference.task_inference import check_task_names
from impresslearn.learner.parallel import learn_in_parallel
from impresslearn.learner.presets import LearnerSettings, StartName
from impresslearn.learner.presets import preset as find_preset
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

MANY_COMPARED = 2000  # inference warns if it compares more tasks than this


class ImpressLearner(ReadOnlySettings):
    """Learns tasks one after another on a frozen backbone, without forgetting earlier tasks.

    Settings are attributes of the learner and cannot be changed later, except `progress`. The
    default values are the preset "default".

    - backbone: the frozen network, from `create_backbone` (default: a LeNet-300-100) or `adapt`.
    - bank: masks to start with, such as a `random_bank`; empty by default.
    - sparsity: fraction of zeros in trained and random masks, in [0, 1).
    - allocation: how the ones of a mask are spread over the layers: "erdos_renyi" (denser in small
      layers) or "uniform" (equal density).
    - granularity: the kind of numbers that a task learns. "layer": a coefficient per mask and layer
      (the paper). "unit": a coefficient per mask and output unit. "weight": an integer per weight,
      without masks; needs precision="coded". "readout": a linear head over features of the
      network under each mask, or of the frozen network if there are no masks.
      `register_parametrisation` adds other values.
    - output_scale: whether a task that combines masks also learns a scale per output unit.
    - precision: the number format of coefficients, in computations and in the store: "float32",
      "float16", "int8", "int5", "int4", or "coded" (integers, with their code length in the loss).
    - bit_price: for "coded", the price of one bit of code, in bits of cross-entropy summed over
      the examples (λ in rate–distortion optimisation). Raise it for smaller tasks.
    - penalty: λ of the paper's eq. 2. It keeps Σ |α|, over the coefficients of a layer, near 1.
    - basis_recipe, task_recipe: how masks and a task's numbers are optimised.
    - score_rule: edge-popup trains a score per weight. The mask keeps the weights with the highest
      scores ("score") or the highest absolute scores ("magnitude").
    - seed: seed of all random draws. Each training combines it with the name of its task.
    - preprocessing: how all raw inputs are shaped and scaled; saved in stores and exports. None
      leaves inputs as they are, except that uint8 values are scaled to [0, 1].
    - start: what a task's weights are: "mixture" (a mixture of masked weights, eq. 1) or "network"
      (the network's own weights, times learned factors that start at 1). By default "network"
      for a pretrained network with a head per task and penalty = 0, else "mixture".
    - tune: other parameters that each task learns: "norm" (scales and shifts), "bias" or both.
    - fold_after: batch norms use the statistics of the batch during this first fraction of the
      training steps. Then training folds the gathered running statistics into the tuned scales
      and shifts. 0 turns this off.
    - max_bytes: the most bytes a learned task may take. Training adjusts the price of bits to fit.
    - staged: whether a task first learns a coded readout of the frozen network's features. With 60
      or more examples it may then also tune norms and biases, unless held-out loss clearly rises.
    - progress: whether to show progress bars: True, False or "auto" (only on a terminal); or a
      function that logs numbers, see `training.progress`.
    - cache_bytes: memory for the weights of recently used tasks, in bytes.

    Raises InputError for invalid settings. Methods raise UnknownTaskError for a task that does not
    exist and StoreError for a store that cannot be read or written. They raise InputError for
    invalid data, for a name that is taken, and for changes to a store opened with readonly=True.
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
        vars(self).update(self.settings.values())  # `LearnerSettings` has checked these
        if fold_after and not can_fold(backbone, self.settings.tune):
            line = f"fold_after = {fold_after} has no effect on {backbone.name}; leave it out:"
            raise InputError(f"{line} no tuned batch norm has statistics that tasks share")
        self.progress = progress
        self.cache_bytes = check_integer("cache_bytes", cache_bytes, 0)
        # The learner adds its masks to a copy: the caller's bank must not change.
        masks = MaskBank(backbone.layers, backbone.device) if bank is None else bank.to(bank.device)
        self._store = Store(backbone, masks, self.cache_bytes)

    @classmethod
    def from_preset(cls, backbone: Backbone, name: str, **overrides: Any) -> ImpressLearner:
        """Creates a learner with the settings of a preset, and draws the masks that it needs.

        - overrides: settings that replace the preset's. `basis_recipe`, `task_recipe`, and `recipe`
          for both, may be mappings of only the entries to change.

        Raises InputError for "pretrained" and "few_labels" if all tasks share the network's head.
        """
        settings, masks = find_preset(name).settings_on(check_backbone(backbone), overrides)
        learner = cls(backbone, **settings)
        if masks and backbone.layers and not len(learner.bank_):
            learner.add_masks(masks, source="disjoint_kernels")
        return learner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.backbone!r}, {self.bank_!r}, {self.tasks_!r})"

    def _repr_html_(self) -> str:
        return f"<p>{self.backbone!r}<br>{self.bank_!r}</p>{self.tasks_._repr_html_()}"

    @property
    def bank_(self) -> MaskBank:
        """The bank with all masks. Its method `append` adds a mask that you made yourself."""
        bank = self._store.bank
        if bank.trained_on is None and any(info.source == "edge_popup" for info in bank.infos):
            bank.trained_on = self.backbone.fingerprint(self.backbone.weights)
        return bank

    @property
    def tasks_(self) -> TaskTable:
        """All tasks, name -> TaskInfo, in the order they were learned."""
        return self._store.tasks

    @property
    def preprocessing_(self) -> Preprocessing | None:
        """How raw inputs are prepared: the setting, completed with the form of the first inputs."""
        # Later inputs must have the form of the first task's inputs. Otherwise reordered columns
        # would be accepted, and uint8 inputs would be scaled to [0, 1] although the task learned
        # floats from 0 to 255.
        return with_form(self.settings.preprocessing, self._store.rows.form() or {})

    @property
    def shared_statistics_(self) -> Statistics | None:
        """Norm statistics (running means and variances) that all tasks share; None without any."""
        return self._store.shared

    @property
    def class_map_(self) -> ClassMap | None:
        """The class map from `tell_apart`, which infers tasks from single inputs, or None."""
        return self._store.class_map

    @property
    def coefficients_(self) -> dict[str, Coefficients]:
        """The rounded coefficients of every learned task, by task name."""
        learned = (task for task in self.tasks_.all() if task.role == "learned")
        return {task.name: self._store.coefficients(task) for task in learned}

    def learn_basis(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Trains a mask for a task with edge-popup and adds the mask to the bank.

        The task predicts with this mask alone. Later tasks may combine it with other masks.

        - name: a new name, for the task and its mask.
        - data: labelled examples, such as (inputs, labels); see `as_examples` for other forms.
        - seed: seed of the training; None derives it from the learner's seed and the name.
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
        """Trains `count` masks for one task from different seeds (the paper's homogeneous masks).

        The masks are named name, name/1, name/2, … The task predicts with the first mask.

        - seeds: one integer per mask, all different. A mask depends on its own seed alone. But if
          the first mask gathers norm statistics that all tasks share, the others depend on it.
        - batched: as in `learn_tasks`. name, data, note: as in `learn_basis`.
        """
        numbers = range(check_integer("count", count, 1))
        names = [f"{name}/{number}" if number else name for number in numbers]
        self._trainer.learn_masks(names, data, seeds, note, batched=batched)
        return self

    def add_random_masks(self, count: int, *, seed: int | None = None) -> ImpressLearner:
        """Adds `count` random masks with the learner's sparsity and allocation to the bank."""
        return self.add_masks(count, seed=seed)

    def add_masks(
        self, count: int, *, source: str = "random", seed: int | None = None
    ) -> ImpressLearner:
        """Draws masks and adds them to the bank.

        - source: "random" (with the learner's sparsity and allocation), "disjoint" (each weight is
          in exactly one mask) or "disjoint_kernels" (the same, but convolution kernels stay whole).
        - seed: seed of the draw; by default the learner's seed.
        """
        settings, count = self.settings, check_integer("count", count, 1)
        seed = settings.seed if seed is None else check_seed(seed)
        how = settings.sparsity, settings.allocation, seed, source
        self._store.commit_masks(draw_masks(self.bank_, count, *how))
        return self

    def learn_task(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Learns a new task: trains the numbers that the setting `granularity` selects.

        - name, data, seed, note: as in `learn_basis`. A few labelled examples are enough.
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
        """Learns several new tasks, like one call of `learn_task` for each.

        - tasks: name -> data. With `workers` it may also be an iterable of pairs (name, data),
          which is read during the learning, and data may be a function that a worker calls.
        - batched: whether to train tasks of similar size together, as memory allows. On a CPU this
          takes three quarters of the time and the coefficients are bit-identical. On a GPU it uses
          `torch.vmap`, and they are equal up to rounding.
        - workers: a number of processes, "ray" for the cluster that `ray.init` has connected to, or
          a `concurrent.futures` executor. Results do not depend on the number of workers. Tasks in
          the store are skipped, so you can repeat an interrupted call.

        With `workers`, raises TasksFailedError at the end, with the error of each failed task.
        """
        if workers is None:
            self._trainer.learn_tasks(tasks, None, {}, batched=batched)
        elif check_flag("batched", batched):
            raise InputError("workers already train tasks in parallel; leave out batched")
        else:
            learn_in_parallel(self, tasks, workers)
        return self

    def update_task(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Trains a task further on new data and stores the result as its next version.

        The store keeps the previous version. A readout is not trained further but fitted anew.

        - data: examples of every class that the task must still predict. New labels add classes.
        - seed, note: as in `learn_basis`.

        Raises InputError also for a basis task, because other tasks may combine its mask.
        """
        self._trainer.update_task(name, data, seed, note)
        return self

    def versions(self, name: str) -> tuple[TaskInfo, ...]:
        """All versions of a task, oldest first; the last one is the current version."""
        return tuple(task.info() for task in self._store.versions(name))

    def restore_task(self, name: str, version: int) -> ImpressLearner:
        """Makes a copy of an old version the current one; InputError if it does not exist."""
        self._store.restore_version(name, check_integer("version", version, 1))
        return self

    def remove_task(self, name: str) -> ImpressLearner:
        """Removes a task with all its versions. All masks stay in the bank."""
        self._store.remove_task(name)
        return self

    def encoded(self, names: Sequence[str]) -> list[EncodedTask]:
        """Encodes learned tasks as picklable objects, for `commit_encoded` of a similar learner.

        Network, masks and preprocessing must be the same. Raises InputError for a basis task.
        """
        return encode_tasks(self._store, names, self.settings.preprocessing)

    def commit_encoded(
        self, tasks: Sequence[EncodedTask], *, on_conflict: OnConflict = "error"
    ) -> dict[str, str | ImpressLearnError]:
        """Adds tasks that were learned elsewhere, all in one transaction.

        - tasks: the result of `encoded`.
        - on_conflict: what to do if this learner has a different task with the same name: "error",
          "version" (add the task as the next version) or "skip".

        Returns the outcome by task name: "new", "version 2", "unchanged", "skipped", or the error
        if a task was not added. Such an error does not stop the other tasks.
        """
        return commit_encoded(self._store, tasks, on_conflict, self.settings.preprocessing)

    def learn_features(self, *data: Any, dimensions: int = 128) -> ImpressLearner:
        """Learns the principal components of the network's features, to make readouts smaller.

        Later readouts read the components, unless max_bytes has room for all features.

        - data: as in `learn_task`, one argument per task; choose tasks like the later ones. 600
          inputs from a dozen tasks are enough. Labels are ignored.
        - dimensions: the number of components.
        """
        self._trainer.learn_features(data, check_integer("dimensions", dimensions, 1))
        return self

    def features(self, inputs: Any, values: Any = None) -> Features:
        """Computes the features that readouts read, so that the network runs once per input.

        Pass the result in place of the inputs, to learn from `(features, labels)` or to predict. It
        can be indexed and sliced. `features.values` is a tensor (n, f), which you can save.

        - inputs: raw inputs (n, ...), or `Prepared` ones.
        - values: values that you saved earlier for these inputs, in the same order. A few rows are
          checked. If None, all are computed.
        """
        return self._trainer.features(inputs, values)

    def tell_apart(self, tasks: Mapping[str, Any]) -> ImpressLearner:
        """Learns to infer the task of a single input, from the features of a pretrained network.

        The store keeps the result, a `ClassMap` that all tasks share. Inference uses it only if it
        has all classes of all possible tasks: call this again after tasks or their classes change.

        - tasks: name of a learned task -> labelled data of all its classes, such as its training
          data. Pass all tasks in one call if you can.
        """
        self._trainer.learn_class_map(tasks)
        return self

    def prepare(self, inputs: Any) -> Tensor | Inputs:
        """Preprocesses raw inputs (n, ...) for the network."""
        return checked_inputs(self.backbone, inputs, self.preprocessing_)

    def logits(self, inputs: Any, task: str) -> Tensor:
        """The logits (n, K) of a task with K classes, on the backbone's device."""
        view = self._store.view(self.tasks_.stored(task))
        return view.logits(self.backbone, self.prepare(inputs))

    def predict(
        self, inputs: Any, task: str | Sequence[str] | None = None, *, per_input: bool = False
    ) -> np.ndarray:
        """Predicts the labels of inputs, as an array (n,).

        - inputs: raw inputs (n, ...), or `Prepared` ones.
        - task: one name for all inputs, a list of n names, or None to infer the task. In a list,
          tasks that read the same features share one pass of the network. If their labels have
          different types, the array has dtype object.
        - per_input: for task=None. False infers one task for all inputs together, which is more
          reliable. True infers a task for each input; a class map then helps to choose its label.

        If one task is inferred for all inputs and they fit no task, raises UnknownTaskError.
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
        # A class map gives a class for every row, or for none.
        parts = mixed_logits(self._store, values, names) if None in labels else ()
        for part in parts:
            best = part.logits.argmax(dim=1).tolist()
            for row, stored, place in zip(part.rows, part.tasks, best, strict=True):
                labels[row] = stored.classes[place]
        kinds = set(map(type, labels))
        return np.array(labels, dtype=object if len(kinds) > 1 else None)

    def score(self, data: Any, task: str) -> float:
        """A task's accuracy in [0, 1] on labelled data whose labels the task knows.

        `class_incremental` measures accuracy without task names.
        """
        stored = self.tasks_.stored(task)
        view, preprocessing = self._store.view(stored), self.preprocessing_
        return accuracy_of(self.backbone, view, data, preprocessing, stored.classes)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """The accuracy in [0, 1] on data of a task that was not learned.

        Predicts with the equal mixture of all N masks (α = 1/N). Without masks, or with
        start="network", it predicts with the frozen network.

        - classes: the task's labels, sorted; needed if the data lack some of them.
        """
        bank, mixture = self._store.bank, dict[str, Tensor]()
        if len(bank) and self.settings.start != "network":
            mixture = mix(bank, self.backbone.weights, equal_alphas(bank))
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
        """Infers the task of unlabelled inputs (n, ...), n >= 1, which must all be of one task.

        At most 256 inputs are judged. If the learner has more than 256 tasks, "auto" may run a
        shortlist: the 64 tasks whose class means are nearest to the inputs, and all tasks without
        class means. The posterior omits other tasks. A shortlist needs a pretrained network, or
        `linear` with more than 32 input values. In all other cases "auto" equals "exhaustive".

        - method: "auto", "exhaustive" (runs every task), "one_shot" (SupSup's search) or "alpha"
          (the ImpressLearn paper).
        - among: "all" tasks; "basis" or "learned", for the tasks of this role; or task names.
        - settings: see `guess_task`.
        """
        tasks, values, keywords = self._inference_arguments(inputs, among, method == "auto")
        keywords |= {"shared": self.shared_statistics_, **settings}  # `settings` win
        return guess_task(self.backbone, self.bank_, tasks, values, method, **keywords)

    def infer_tasks(self, inputs: Any, *, among: str | Sequence[str] = "all") -> list[TaskGuess]:
        """Infers the task of each unlabelled input (n, ...) separately.

        - among: as in `infer_task`. A shortlist has the 16 nearest tasks of each input, not 64.
        """
        tasks, values, keywords = self._inference_arguments(inputs, among, True, one_by_one=True)
        return guess_tasks(self.backbone, self.bank_, tasks, values, **keywords)

    def predict_with(self, inputs: Any, guess: TaskGuess) -> np.ndarray:
        """Labels (n,) from the mixture of an "alpha" guess. Raises InputError for other guesses."""
        if guess.mixture is None:
            raise InputError(f"a guess by {guess.method!r} holds no mixture; use method='alpha'")
        logits = guess.mixture.logits(self.backbone, self.prepare(inputs))
        return labels_of(logits, self.tasks_.stored(guess.best).classes)

    def statistics_of(self, task: str) -> Statistics | None:
        """The norm statistics of a task; None if the network keeps none."""
        return self._store.statistics(self.tasks_.stored(task))

    def task_model(self, task: str) -> TaskModel:
        """A task in the form that `impresslearn.export` takes."""
        stored, raw = self.tasks_.stored(task), self.settings.preprocessing and self.preprocessing_
        return TaskModel(self.backbone, self._store.view(stored), stored.name, stored.classes, raw)

    def export(self, task: str) -> nn.Module:
        """A torch module that computes a task's logits, independent of the learner."""
        return ExportedTask(self.task_model(task))

    def save(
        self,
        path: str | os.PathLike,
        *,
        tasks: Sequence[str] | None = None,
        weights: WeightStorage = "stored",
        overwrite: bool = False,
    ) -> ImpressLearner:
        """Saves the learner in one file, whole or not at all, for `load` and `open_store`.

        - tasks: names of tasks to save, with the masks they need; None saves everything. An empty
          list saves all masks and no task, as a base for later tasks.
        - weights: "stored", or "seed" to save only the network's settings and its SHA-256.
        - overwrite: whether to replace an existing file, which is otherwise an InputError.
        """
        plain = self.settings.plain()
        save_file(self._store, plain, path, names=tasks, weights=weights, overwrite=overwrite)
        return self

    def close(self) -> None:
        """Closes the file of a learner from `open_store`; does nothing for one in memory."""
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
        """Returns the tasks to compare, the prepared inputs, and keywords of `guess_task`.

        - may_omit: whether a shortlist may replace all tasks.
        """
        store, values = self._store, self.prepare(inputs)
        among = cast(Any, among.tolist() if isinstance(among, np.ndarray) else among)
        if may_omit and among in ("all", "learned"):
            shortlist = store.index.shortlist(values, one_by_one)
            if shortlist is not None:
                names, values = shortlist  # the inputs now come with their features
                if among == "learned":
                    names = [name for name in names if store.tasks.stored(name).role == "learned"]
                among = names or among  # if none is left, run all learned tasks
        keywords = {"frozen": store.frozen_view, "space": store.space, "class_map": store.class_map}
        return self._known_tasks(among), values, keywords

    def _known_tasks(self, among: str | Sequence[str]) -> list[KnownTask]:
        """Tasks in the form that inference takes; their weights are computed only when needed."""
        if among and isinstance(among, Sequence) and not isinstance(among, str):  # names
            chosen = [*{task.name: task for task in map(self.tasks_.stored, among)}.values()]
        elif among in ("all", *ROLES):
            chosen = [task for task in self.tasks_.all() if among in ("all", task.role)]
        else:
            raise InputError(f"among must be all, basis, learned or a list of names, got {among!r}")
        if len(chosen) > MANY_COMPARED:
            warn_caller(
                f"inputs are compared with {len(chosen):,} tasks one by one, which takes minutes; "
                "pass fewer tasks as among=, or omit method= and among=: over a pretrained "
                "network only the nearest tasks then run"
            )
        known = []
        for task in chosen:
            # Inference needs each readout twice, for the evidence and for the logits: a readout may
            # take the place of other weights in the cache, unless there are very many tasks.
            is_readout = bool(task.parts) and all(isinstance(part, Readout) for part in task.parts)
            may_evict = is_readout and len(chosen) <= MANY_COMPARED
            view = partial(self._store.view, task, evict_others=may_evict)
            # A basis task is the simplest mixture: its own mask alone.
            mixes = task.mask is not None or [part.mixes_masks() for part in task.parts] == [True]
            mixture = partial(self._store.coefficients, task) if mixes else None
            known.append(KnownTask(task.name, len(task.classes), view, task.profile, mixture))
        return known
