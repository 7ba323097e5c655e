"""Fine-tuning: weights or low-rank changes for each task, or one network trained on all in turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import (
    ReadOnlySettings,
    check_choice,
    check_integer,
    check_known,
    check_seed,
)
from impresslearn.coefficients.learning import COEFFICIENT_RECIPE
from impresslearn.coefficients.norm_statistics import round_statistics
from impresslearn.coefficients.quantisation import PRECISIONS, rounded_tensors
from impresslearn.data import Label, to_batches
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone, checked_inputs, training_examples
from impresslearn.networks.prediction import TaskView, TrainingPhase, accuracy_of, labels_of
from impresslearn.store.tasks import TaskInfo, check_new_name, find_task, label_map_bytes
from impresslearn.training.first_session import HEAD_RATE
from impresslearn.training.loop import Recipe, TaskTraining, Trainable, Weights, with_head
from impresslearn.training.progress import ProgressChoice, progress_for

# By default every method trains on the same number of images.
DURATION_SETTINGS = ("epochs", "min_steps", "batch_size", "batch_fraction")
DURATION: dict[str, Any] = {name: getattr(COEFFICIENT_RECIPE, name) for name in DURATION_SETTINGS}
FINETUNING_RECIPE = Recipe(optimizer="adam", lr=0.001, schedule="cosine", **DURATION)
# The better of two learning rates on one task of permuted MNIST. For rank 1, 0.03 is better.
LORA_RECIPE = Recipe(lr=0.01, schedule="cosine", **DURATION)
SCALE = 2.0  # alpha / r, a common choice at any rank


def require_shared_head(method: str, backbone: Backbone) -> None:
    """Raises InputError if each task has its own head."""
    if check_backbone(backbone).own_head is not None:
        line = 'needs one head that all tasks share: adapt(module, head="shared")'
        raise InputError(f"{method} {line}")


def rounded_numbers(
    start: Sequence[Tensor],
    weights_of: Callable[[Sequence[Tensor]], Weights],
    device: torch.device,
    precision: str,
    **how: Any,
) -> Trainable:
    """Numbers to train from a start, and the weights that they make. how: see `encode_tensors`."""
    numbers = [first.to(device, copy=True).requires_grad_(True) for first in start]

    def result() -> tuple[Weights, int]:
        rounded, size = rounded_tensors(numbers, precision, **how)
        return weights_of(rounded), size

    return Trainable(numbers, lambda: (weights_of(numbers), 0.0), result)


class FineTuning(ReadOnlySettings):
    """Trains separate weights for every task, by default a copy of all maskable weights.

    Every task starts from the frozen network and changes no other task, so nothing is forgotten.

    - backbone: the frozen network. For an upper bound make it with `init="kaiming_normal"`: the
      default signed constants suit masks, but fine-tuning reaches a lower accuracy from them
    - recipe: the recipe for training a task
    - seed: the seed of the order of batches
    - preprocessing, progress: as in `ImpressLearner`
    - statistics: "task" if each task gathers its own norm statistics, "network" if all tasks use
      the statistics of the frozen network
    - make_trainable: a function that takes the number of examples and returns the `Trainable` of
      the next task, whose result is the task's weights and the bytes that store them
    - precision: norm statistics and the task's own head are rounded to it after training
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        recipe: Recipe = FINETUNING_RECIPE,
        seed: int = 0,
        preprocessing: Preprocessing | None = None,
        progress: ProgressChoice = "auto",
        statistics: str = "task",
        make_trainable: Callable[[int], Trainable] | None = None,
        precision: str = "float32",
    ) -> None:
        self.backbone = check_backbone(backbone)
        self.recipe = recipe
        self.seed = check_seed(seed)
        self.preprocessing = preprocessing
        self.progress = progress
        self.statistics = check_choice("statistics", statistics, ("task", "network"))
        self.precision = check_choice("precision", precision, PRECISIONS)
        self._make_trainable = make_trainable or self._copied_weights
        self._infos: dict[str, TaskInfo] = {}
        self._views: dict[str, TaskView] = {}
        self._network = TaskView(backbone.weights, None, backbone.num_classes)  # where tasks start

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """Task name -> `TaskInfo`; bytes count weights, norm statistics and labels."""
        return self._infos

    def _copied_weights(self, _: int) -> Trainable:  # a lambda could not be pickled
        """Copies of all weights as the numbers to train, stored in float32."""
        weights = self._network.weights
        copies = {layer: weight.clone().requires_grad_(True) for layer, weight in weights.items()}

        def result() -> tuple[Weights, int]:
            trained = {layer: weight.detach() for layer, weight in copies.items()}
            return trained, sum(weight.nbytes for weight in trained.values())

        return Trainable(list(copies.values()), lambda: (copies, 0.0), result)

    @torch.inference_mode(False)
    def learn_task(self, name: str, data: Any) -> "FineTuning":
        """Trains weights for the task with cross-entropy."""
        phase = TrainingPhase("frozen", None)
        if self.statistics == "task":
            phase = TrainingPhase.begin(self.backbone)
        self._learn(name, data, self.seed, phase)
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """Labels (n,). Raises UnknownTaskError for a task that was not learned."""
        classes = find_task(task, self.tasks_).classes
        values = checked_inputs(self.backbone, inputs, self.preprocessing)
        return labels_of(self._views[task].logits(self.backbone, values), classes)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        classes = find_task(task, self.tasks_).classes
        return accuracy_of(self.backbone, self._views[task], data, self.preprocessing, classes)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy in [0, 1] on a task before it is learned, of the network that it starts from."""
        return accuracy_of(self.backbone, self._network, data, self.preprocessing, classes)

    # Training needs gradients, even if the caller is in inference mode.
    @torch.inference_mode(False)
    def _learn(self, name: str, data: Any, seed: int, phase: TrainingPhase) -> None:
        check_new_name(name, self.tasks_)
        examples, classes = training_examples(self.backbone, data, self.preprocessing)
        source = to_batches(examples, classes, self.backbone.device)
        progress = progress_for(self.progress).titled(f"task {name}")
        trainable = self._make_trainable(len(source))
        trainable = with_head(trainable, self.backbone, len(classes), HEAD_RATE)
        task = (self.backbone, source, len(classes), self.recipe, phase, seed, progress)
        TaskTraining(*task).fit(trainable)
        with torch.no_grad():
            (weights, size), head = trainable.result()
            # Make classes columns, as int8 to int4 have a rounding step per column.
            columns = [values.t() for values in head.values()]
            rounded, head_size = rounded_tensors(columns, self.precision)
        weights = weights | dict(zip(head, [values.t() for values in rounded], strict=True))
        size += head_size
        breakdown = {"weights": size, "statistics": 0, "labels": label_map_bytes(classes)}
        statistics, gathered = None, phase.statistics
        if gathered is not None:
            stored = round_statistics(self.backbone, gathered, self.precision, weights, examples)
            statistics, breakdown["statistics"] = stored.values, len(stored.content)
        total = sum(breakdown.values())
        self._views[name] = TaskView(weights, statistics, len(classes))
        self._infos[name] = TaskInfo(name, "learned", classes, 0, total, breakdown)


class SequentialFineTuning(FineTuning):
    """Trains one network on task after task, so that earlier tasks are forgotten.

    Each task has a new optimiser and schedule. Norm statistics continue from the last task; with
    the norm policy "shared", the statistics of the first task stay. In `tasks_` only the first
    task counts the bytes of the network.

    - backbone: the network, with one head for all tasks; a copy of it is trained
    - settings: recipe, seed, preprocessing and progress, as in `FineTuning`
    """

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        require_shared_head("SequentialFineTuning", backbone)
        super().__init__(backbone, **settings)

    def learn_task(self, name: str, data: Any) -> "SequentialFineTuning":
        """Trains the network further, with cross-entropy on this task alone."""
        statistics, seed = self._network.statistics, self.seed + len(self.tasks_)
        # Train copies, because a failed training must not change the network.
        self._learn(name, data, seed, TrainingPhase.begin(self.backbone, statistics, statistics))
        self._network = self._views[name]
        if len(self.tasks_) > 1:
            size = self.tasks_[name].breakdown["labels"]
            self._infos[name] = replace(self.tasks_[name], bytes=size, breakdown={"labels": size})
        # From now on the changed network predicts earlier tasks too. This causes forgetting.
        for other, info in self.tasks_.items():
            self._views[other] = replace(self._network, num_classes=len(info.classes))
        return self


def lora(
    backbone: Backbone, *, rank: int = 4, precision: str = "float32", **settings: Any
) -> FineTuning:
    """Trains W + 2 B A for every task, with B (units, r) and A (r, fan_in) for each layer.

    All tasks share the frozen network. The kernel of a convolution counts as a matrix (units,
    fan_in). B starts at zero.

    - backbone: the frozen network; every maskable layer gets a change
    - rank: r, default 4
    - precision: the precision of the stored factors, default "float32". They are rounded after
      training, with one step per column (per factor for "coded"); predictions use the result
    - settings: recipe, seed, preprocessing and progress, as in `FineTuning`
    """
    known = ("rank", "precision", "recipe", "seed", "preprocessing", "progress")
    for name in settings:
        check_known("lora has no argument", name, known)
    rank = check_integer("rank", rank, 1)
    seed = check_seed(settings.get("seed", 0))
    settings.setdefault("recipe", LORA_RECIPE)
    make_trainable = partial(_low_rank, backbone, rank, precision, seed)
    return FineTuning(backbone, make_trainable=make_trainable, precision=precision, **settings)


def _low_rank(backbone: Backbone, rank: int, precision: str, seed: int, examples: int) -> Trainable:
    layers = backbone.layers

    def weights_of(factors: Sequence[Tensor]) -> Weights:
        weights = {}
        for layer, up, down in zip(layers, factors[::2], factors[1::2], strict=True):
            change = SCALE * (up @ down.t()).reshape(layer.shape)
            weights[layer.name] = backbone.weights[layer.name] + change
        return weights

    draws = torch.Generator().manual_seed(seed)
    factors = []
    for layer in layers:
        bound = layer.fan_in**-0.5  # like torch's initialisation of a linear layer
        drawn = torch.rand(layer.fan_in, rank, dtype=torch.float32, generator=draws)
        # Only one factor starts at zero: if both did, neither would have a gradient.
        factors += [torch.zeros(layer.units, rank, dtype=torch.float32), (2 * drawn - 1) * bound]
    return rounded_numbers(factors, weights_of, backbone.device, precision)
