"""`Trainer`, which does the learning of `ImpressLearner`: masks, coefficients and readouts."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_flag, check_mapping, check_name, check_seed, plain_json
from impresslearn.coefficients.learning import Budget, trainable_numbers
from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.coefficients.readout import without_head
from impresslearn.data import (
    Examples,
    Features,
    Inputs,
    Preprocessing,
    classes_of,
    encode_labels,
    to_batches,
)
from impresslearn.data.examples import as_inputs, as_network_inputs, raw
from impresslearn.data.labels import grown_classes
from impresslearn.data.preprocessing import Prepared, with_form
from impresslearn.errors import InputError, NotLearnedWarning, warn_caller
from impresslearn.inference.feature_scores import profile_share
from impresslearn.learner import readouts
from impresslearn.learner.presets import LearnerSettings
from impresslearn.masks import PopupScores, trainable_scores
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks.inputs import (
    LOOKED_AT,
    PASSED,
    TrainingData,
    check_passes,
    checked_examples,
    some_inputs,
    spread_places,
    training_examples,
)
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.store.store import Store
from impresslearn.store.tasks import TrainingRun
from impresslearn.tables import percent
from impresslearn.training.batched import Problem, solve, stacks
from impresslearn.training.loop import FitResult, TaskTraining, with_head
from impresslearn.training.progress import Progress

# A task that ends over 10% above its byte budget is trained again; at most 4 trainings in all.
MAX_EXCESS, MAX_TRIALS = 0.1, 4
# A task has learned something if its final loss is below this fraction of the chance loss.
CHANCE_LOSS_RATIO = 0.98
Note = Mapping[str, Any]  # JSON values for a task's history, from the caller
# A seed for each mask or task; None derives the seeds from the learner's seed and the names.
Seeds = Sequence[int] | int | None


@dataclass(frozen=True)
class Trainer:
    """Learns masks and tasks with a learner's settings and commits them to its store.

    - preprocessing: how raw inputs are prepared, or None; the first task may add to it.
    - progress: makes the `Progress` of one training from its title.
    """

    store: Store
    settings: LearnerSettings
    preprocessing: Preprocessing | None
    progress: Callable[[str], Progress]

    # inference_mode(False) also turns gradients on, whatever mode the caller is in.
    @torch.inference_mode(False)
    def learn_masks(
        self, names: Sequence[str], data: Any, seeds: Seeds, note: Note | None, batched: bool
    ) -> None:
        """Trains one mask per name and seed on one task, which predicts with the first mask."""
        store, settings, backbone = self.store, self.settings, self.store.backbone
        names = [check_name(name) for name in names]
        store.check_new_task(names[0], names)
        seeds = self._seeds(names, seeds)
        if not len(seeds) == len(set(seeds)) == len(names):
            raise InputError(f"{len(names)} masks need {len(names)} distinct seeds, got {seeds}")
        note = _checked_note(note)
        check_flag("batched", batched)
        examples, classes = training_examples(backbone, data, self.preprocessing)
        extra = note | readouts.raw_form(store, settings, data, examples)
        started = time.perf_counter()
        source = to_batches(examples, classes, backbone.device)
        ones = ones_per_layer(backbone.layers, settings.sparsity, settings.allocation)
        ended: list[tuple[TrainingPhase, Any, FitResult]] = []
        title = f"basis {names[0]}" if len(names) == 1 else f"{len(names)} masks of {names[0]}"
        recipe, progress = settings.basis_recipe, self.progress(title)

        def problem(seed: int) -> Problem:
            # If all tasks share norm statistics, the first mask gathers them for the other masks.
            shared = ended[0][0].statistics if ended else store.shared
            phase = TrainingPhase.begin(backbone, shared)
            training = TaskTraining(backbone, source, len(classes), recipe, phase, seed, progress)
            rule, device = settings.score_rule, backbone.device
            scores = PopupScores.create(backbone.layers, ones, seed, rule, device)
            return training, with_head(trainable_scores(scores, backbone), backbone, len(classes))

        masks, recipes = {}, {}
        # A mask that gathers statistics trains alone: the other problems begin with its result.
        first = 1 if self._gathers_statistics else 0
        others = solve(seeds[first:], problem, batched, progress)
        solved = chain(solve(seeds[:first], problem), others)
        for name, (seed, (training, trainable), result) in zip(names, solved, strict=True):
            masks[name], head = trainable.result()
            how = {"seed": seed, "sparsity": settings.sparsity, "allocation": settings.allocation}
            recipes[name] = how | {"rule": settings.score_rule, **settings.basis_recipe.settings()}
            ended.append((training.phase, head, result))
        phase, head, result = ended[0]
        run = TrainingRun(examples, classes, phase, metrics_of(started, examples, result) | extra)
        store.commit_basis(masks, recipes, run, head, settings.precision)
        self.warn_if_at_chance(names[0], (examples, classes), result)

    @torch.inference_mode(False)
    def learn_tasks(
        self, tasks: Any, seeds: Seeds, notes: Mapping[str, Note | None], batched: bool
    ) -> None:
        """Learns new tasks, similar ones together if `batched`; notes: task name -> note."""
        store, backbone = self.store, self.store.backbone
        check_mapping("tasks", tasks, "{name: (inputs, labels)}", least=0)
        names = list(map(check_name, tasks))
        if len(set(names)) < len(names):
            raise InputError("two of the tasks have the same name in Unicode's NFC; rename one")
        for name in names:
            store.check_new_task(name)
        tasks = dict(zip(names, tasks.values(), strict=True))
        check_flag("batched", batched)
        new: list[readouts.NewTask] = []
        form: dict[str, Any] = {}
        preprocessing = self.preprocessing
        for name, seed in zip(tasks, self._seeds(list(tasks), seeds), strict=True):
            data = training_examples(backbone, tasks[name], preprocessing, self._is_readout)
            if not new:
                # The form of the first task's raw inputs (pixels, columns, shape) holds for all.
                form = readouts.raw_form(store, self.settings, tasks[name], data[0])
                preprocessing = with_form(preprocessing, form)
            extra = _checked_note(notes.get(name)) | form
            new.append(readouts.NewTask(name, data, seed, extra))
        groups: dict[Any, list[readouts.NewTask]] = {}
        for task in new:
            # Readouts, staged tasks and a first task that gathers norm statistics train alone.
            if batched and not (self._gathers_statistics or self._is_readout or self._staged):
                groups.setdefault(self._batching_key(task.data), []).append(task)
            else:
                self._learn([task])
        for group in groups.values():
            self._learn(group, batched=True)

    @torch.inference_mode(False)
    def update_task(self, name: str, data: Any, seed: int | None, note: Note | None) -> None:
        """Trains a task further on new data and stores the result as its next version."""
        store, backbone = self.store, self.store.backbone
        store.database.check_writable()
        task, note = store.tasks.stored(name), _checked_note(note)
        name = task.name  # the stored name, in composed Unicode
        if task.role == "basis":
            line = f"{name!r} is a basis task: other tasks combine its mask, so it never changes"
            raise InputError(f"{line}; learn the new data as a task of another name")
        (seed,) = self._seeds([f"{name} {task.version + 1}"], seed)
        examples, seen = training_examples(backbone, data, self.preprocessing, self._is_readout)
        classes = grown_classes(task.classes, seen, backbone.most_classes)
        missing = [label for label in task.classes if label not in seen]
        if missing:
            warn_caller(
                f"the data of the update have no example of {len(missing)} of the {len(classes)} "
                f"classes of {name!r} ({', '.join(map(repr, missing[:5]))}), which it will hardly "
                "predict any more; give some examples of every class"
            )
        extra = note | readouts.raw_form(store, self.settings, data, examples)
        self._learn([readouts.NewTask(name, (examples, classes), seed, extra, task)])

    @torch.no_grad()
    def learn_features(self, data: Sequence[Any], dimensions: int) -> None:
        """Learns the projection of features that later readouts read."""
        store, backbone = self.store, self.store.backbone
        store.database.check_writable()
        if not self._is_readout and not self._staged:
            line = 'use the preset "few_labels", or "pretrained" with staged=True'
            raise InputError(f"learn_features is for readouts: {line}")
        if not data:
            raise InputError("features are learned from data; give the data of a task or more")
        # Readouts of staged tasks read features of the frozen network, without masks.
        networks = readouts.networks_of(store, self.settings) if self._is_readout else (0, True)
        features = []
        for labelled in data:
            examples = checked_examples(backbone, labelled, self.preprocessing)
            features.append(readouts.features_of(store, examples, *networks))
        store.commit_projection(torch.cat(features), dimensions, *networks)

    # Autograd rejects tensors made in inference mode.
    @torch.inference_mode(False)
    @torch.no_grad()
    def features(self, inputs: Any, values: Any = None) -> Features:
        """Computes features, or checks given ones; arguments as in `ImpressLearner.features`."""
        store, backbone = self.store, self.store.backbone
        readouts.check_features(backbone, alone=True)
        networks = readouts.networks_of(store, self.settings, store.rows.last_projection()[1])
        is_prepared = isinstance(inputs, Prepared)
        given = inputs.data if is_prepared else inputs
        if self.preprocessing is not None and not is_prepared:
            given = self.preprocessing.ordered(given)
        given = as_network_inputs(given) if isinstance(given, (Mapping, Inputs)) else given
        first = given.tensors[0] if isinstance(given, Inputs) else raw(given)
        # The checks take labelled examples: each input gets the label 0, which nothing reads.
        data: Any = given, np.zeros(first.shape[:1], dtype=np.int64)
        data = Prepared(data) if is_prepared else data
        examples = checked_examples(backbone, data, self.preprocessing)
        assert isinstance(examples, Examples)
        if not backbone.checked:
            check_passes(backbone, some_inputs(examples, PASSED))
        if values is None:
            kept = readouts.features_of(store, examples, *networks)
        else:
            kept = as_inputs(values).to(backbone.device)
            places = spread_places(len(examples), PASSED)
            computed = readouts.features_of(store, examples.subset(places), *networks)
            readouts.check_values(kept, computed, len(examples), places)
        keys = store.feature_view(*networks).feature_keys or ()
        form = readouts.raw_form(store, self.settings, data, examples)
        return Features(kept, examples.inputs, backbone.identity, keys, form)

    @torch.inference_mode(False)
    @torch.no_grad()
    def learn_class_map(self, tasks: Mapping[str, Any]) -> None:
        """Learns a class map; arguments as in `ImpressLearner.tell_apart`."""
        store, backbone = self.store, self.store.backbone
        store.database.check_writable()
        readouts.check_features(backbone, alone=True)
        check_mapping("tasks", tasks, "{name: (inputs, labels)}")
        tables = {}
        for given, labelled in tasks.items():
            stored = store.tasks.stored(given)
            examples = checked_examples(backbone, labelled, self.preprocessing)
            seen = classes_of(examples.labels)
            if set(seen) != set(stored.classes):
                line = f"the examples of task {given!r} must have all its classes"
                raise InputError(f"{line}, {stored.classes}, and no others; they have {seen}")
            features = readouts.features_of(store, examples, num_masks=0, residual=True)
            tables[stored.name] = features, encode_labels(examples.labels, stored.classes)
        store.commit_class_map(tables)

    def _batching_key(self, data: TrainingData) -> Any:
        """A key to group tasks by: tasks with equal keys can be trained together."""
        examples, classes = data
        if not stacks(self.store.backbone.device):
            recipe, count = self.settings.task_recipe, len(examples)
            return recipe.total_steps(count), recipe.steps_per_epoch(count)
        # On a GPU the batches of all tasks are stacked, which needs equal shapes.
        if isinstance(examples, Examples) and not isinstance(examples.inputs, Inputs):
            return len(classes), examples.inputs.shape, examples.inputs.dtype
        return id(data)  # differs for each task: these data cannot be stacked

    def _learn(self, tasks: Sequence[readouts.NewTask], batched: bool = False) -> None:
        """Learns and commits tasks within max_bytes; if batched, trains all in one loop."""
        started, max_bytes = time.perf_counter(), self.settings.max_bytes
        remaining = []
        for task in tasks:
            room, price = readouts.room_of(self.store, max_bytes, task), self.settings.bit_price
            remaining.append(replace(task, started=started, room=room, price=price))
        if self._is_readout or self._staged:
            try:
                for task in remaining:
                    self._learn_readout(task)
                return
            except readouts.UnreadableFeaturesError:
                # A staged task without readable features learns a head and changes of the network.
                if self._is_readout:
                    raise
        budgets: dict[str, Budget | None] = {}

        def problem(task: readouts.NewTask) -> Problem:
            # Training changes the price in its budget, so each training gets a new budget.
            budgets[task.name] = None if task.room is None else Budget(task.room, task.price)
            return self.problem_of(task, budgets[task.name])

        # A task is trained again for one of two reasons: its code ended far above its budget, or
        # it is too large with its norm statistics, whose bytes are known only after training.
        for trial in range(MAX_TRIALS):
            tasks, remaining = remaining, []
            progress = self.progress(f"{len(tasks)} tasks")
            for task, (training, trainable), result in solve(tasks, problem, batched, progress):
                learned, budget = trainable.result(), budgets[task.name]
                if budget is not None and budget.excess > MAX_EXCESS and trial + 1 < MAX_TRIALS:
                    # Many numbers were set to 0 to make it fit: begin again at a higher price.
                    remaining.append(replace(task, price=math.sqrt(task.price * budget.price)))
                    continue
                refused_bytes = self._commit(task, learned, training.phase, result, None, max_bytes)
                if refused_bytes is None:
                    self.warn_if_at_chance(task.name, task.data, result)
                    continue
                # What the task takes above its limit must come from the room of its numbers.
                room = (task.room or 0) + (max_bytes or 0) - refused_bytes
                if room < 0 or trial + 1 == MAX_TRIALS:
                    raise readouts.does_not_fit(task, max_bytes, f"it takes {refused_bytes} bytes")
                remaining.append(replace(task, room=room))

    def _commit(
        self,
        task: readouts.NewTask,
        learned: Coefficients,
        phase: TrainingPhase,
        result: FitResult | None,
        features: Tensor | None,
        max_bytes: int | None,
    ) -> int | None:
        """Commits a task, or returns its size in bytes if that is more than max_bytes."""
        metrics = metrics_of(task.started, task.data[0], result) | dict(task.extra_metrics)
        share = profile_share(self.settings.max_bytes)
        run = TrainingRun(*task.data, phase, metrics, features, share)
        history, precision = self.settings.task_history(task.seed), self.settings.precision
        return self.store.commit_learned(
            task.name, learned, precision, history, run, task.replaced, max_bytes
        )

    def problem_of(
        self, task: readouts.NewTask, budget: Budget | None = None, head: bool = True
    ) -> Problem:
        """The training of a task's numbers; head: whether they include the task's own head."""
        store, backbone, (examples, classes) = self.store, self.store.backbone, task.data
        settings = self.settings
        previous = statistics = None
        if task.replaced is not None:
            previous = store.coefficients(task.replaced)
            statistics = store.statistics(task.replaced)
            if not head:
                previous = without_head(previous)
        source = to_batches(examples, classes, backbone.device)
        phase = TrainingPhase.begin(backbone, store.shared, statistics)
        recipe, progress = settings.task_recipe, self.progress(f"task {task.name}")
        how = recipe, phase, task.seed, progress, settings.fold_after
        training = TaskTraining(backbone, source, len(classes), *how)
        numbers = trainable_numbers(
            training,
            store.bank,
            settings.spec,
            penalty=settings.penalty,
            previous=previous,
            budget=budget,
            head=head,
        )
        return training, numbers

    @torch.no_grad()
    def _learn_readout(self, task: readouts.NewTask) -> None:
        """Learns and commits a readout; a staged task may learn changes of the network, too.

        The network computes a readout's features once, from the data without augmentation.
        """
        problem = None if self._is_readout else self.problem_of
        readout = readouts.TaskReadout(self.store, self.settings, task, problem)
        learned, result, evidence = readout.learned()
        task = replace(task, extra_metrics={**task.extra_metrics, **evidence})
        phase = TrainingPhase.begin(self.store.backbone, self.store.shared)
        # No limit is needed here: the readout was fitted to the bytes that are left.
        self._commit(task, learned, phase, result, readout.features, None)
        # A readout has no training loss. If its weights are all 0, it predicts the commonest class.
        if not learned.numbers[-1][0].any():
            self.warn_if_at_chance(task.name, task.data, None)

    def warn_if_at_chance(self, name: str, data: TrainingData, result: FitResult | None) -> None:
        """Warns if a task predicts its training examples no better than the commonest class."""
        examples, classes = data
        _, counts = np.unique(examples.labels, return_counts=True)
        shares = counts / counts.sum()
        chance_loss = -float(shares @ np.log(shares))  # nats, if predictions are the class shares
        if result is not None and result.final_loss < CHANCE_LOSS_RATIO * chance_loss:
            return
        # A high loss does not prove failure, so the slower check follows: the accuracy.
        store = self.store
        places = spread_places(len(examples), LOOKED_AT)
        source = to_batches(examples.subset(places), classes, store.backbone.device)
        view = store.view(store.tasks.stored(name), evict_others=False)
        accuracy, chance = view.accuracy(store.backbone, source), float(shares.max())
        standard_error = (chance * (1 - chance) / len(places)) ** 0.5
        if accuracy >= chance + 2 * standard_error:
            return
        is_coded = self.settings.precision == "coded" and store.tasks.stored(name).mask is None
        has_price = is_coded and self.settings.bit_price > 0
        hint = "lower the bit_price" if has_price else "try more steps or another learning rate"
        warn_caller(
            f"{name!r} was not learned: {percent(accuracy)} of its examples are classified "
            f"correctly, and the commonest class makes up {percent(chance)} of them. It is stored "
            f"all the same; {hint} (new --set), or keep such tasks out (learn --min-accuracy)",
            NotLearnedWarning,
        )

    @property
    def _gathers_statistics(self) -> bool:
        """Whether the next task gathers the norm statistics that all tasks share."""
        return self.store.backbone.shares_statistics and self.store.shared is None

    @property
    def _staged(self) -> bool:
        """Whether tasks begin with a readout, which needs features that all tasks share."""
        backbone = self.store.backbone
        usable = backbone.own_head is not None and not backbone.has_task_statistics
        return self.settings.staged and usable and not self._gathers_statistics

    @property
    def _is_readout(self) -> bool:
        """Whether tasks are only readouts."""
        return self.settings.spec.parametrisation.is_readout

    def _seeds(self, names: Sequence[str], seeds: Seeds) -> list[int]:
        """The given seeds; by default each depends only on the learner's seed and the name."""
        if seeds is not None:
            return list(map(check_seed, seeds if isinstance(seeds, Iterable) else [seeds]))
        drawn = []
        for name in names:
            digest = hashlib.blake2b(f"{self.settings.seed} {name}".encode(), digest_size=4)
            drawn.append(int.from_bytes(digest.digest(), "little"))
        return drawn


def metrics_of(started: float, examples: Any, result: FitResult | None) -> dict[str, Any]:
    """For a task's history: the number of examples, seconds, steps, and the final loss (nats)."""
    seconds = float(f"{time.perf_counter() - started:.3g}")
    metrics: dict[str, Any] = {"examples": len(examples), "seconds": seconds}
    if result is not None and result.steps:
        metrics |= {"steps": result.steps, "loss": float(f"{result.final_loss:.4g}")}
    return metrics


def _checked_note(note: Note | None) -> dict[str, Any]:
    """The note as an entry of a task's history. Raises InputError unless it has JSON values."""
    if not note:
        return {}
    check_mapping("a note", note, "of JSON values")
    return {"note": plain_json(dict(note), "a note")}
