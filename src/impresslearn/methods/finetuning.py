"""Fine-tuning: weights of its own for every task, or one network trained on task after task.

`FineTuning` forgets nothing: with a whole network a task it is the upper bound in accuracy and in
bytes, and what it trains may be any `Trainable`. Beside it `SequentialFineTuning`, which forgets,
is the lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypedDict, Unpack

from impresslearn.checks import ReadOnlySettings, check_choice, check_seed
from impresslearn.coefficients.learning import COEFFICIENT_RECIPE
from impresslearn.coefficients.norm_statistics import store_statistics
from impresslearn.coefficients.quantisation import PRECISIONS
from impresslearn.data import Label, to_batches
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.inference.labels import accuracy_of, labels_of
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone, checked_inputs, training_examples
from impresslearn.networks.prediction import TaskView, TrainingPhase
from impresslearn.store.tasks import (
    TaskInfo,
    check_new_name,
    find_task,
    label_map_bytes,
    tensor_bytes,
)
from impresslearn.training.loop import Recipe, TaskTraining, Trainable, Weights, with_head
from impresslearn.training.progress import ProgressChoice, progress_for

StatisticsOf = Literal["task", "network"]
HEAD_RATE = 10.0
"""How much faster a head of the task's own learns, from zeros, than weights that were trained."""
# The images of every method by default: those of ImpressLearner's own task recipe.
LENGTH = {
    name: getattr(COEFFICIENT_RECIPE, name)
    for name in ("epochs", "min_steps", "batch_size", "batch_fraction")
}
FINETUNING_RECIPE = Recipe(optimizer="adam", lr=0.001, schedule="cosine", **LENGTH)


class TrainingSettings(TypedDict, total=False):
    """The settings of `FineTuning` that methods built on it take and pass to it."""

    recipe: Recipe
    seed: int
    preprocessing: Preprocessing | None
    progress: ProgressChoice


def share_settings(method: ReadOnlySettings, tuned: FineTuning) -> None:
    """Makes the network and the settings of `tuned` attributes of a method that is built on it."""
    for name in ("backbone", "recipe", "seed", "preprocessing", "progress"):
        setattr(method, name, getattr(tuned, name))


def require_shared_head(method: str, backbone: Backbone) -> None:
    """Raises InputError where every task has a head of its own."""
    if check_backbone(backbone).own_head is not None:
        raise InputError(
            f'{method} needs one head that all tasks share: adapt(module, head="shared")'
        )


def copied_weights(weights: Mapping[str, Tensor]) -> Trainable:
    """Copies of all weights to train, kept as they are."""
    copies = {layer: weight.clone().requires_grad_(True) for layer, weight in weights.items()}

    def result() -> tuple[Weights, int]:
        trained = {layer: weight.detach() for layer, weight in copies.items()}
        return trained, tensor_bytes(trained.values())

    return Trainable(list(copies.values()), lambda: (copies, 0.0), result)


class FineTuning(ReadOnlySettings):
    """Trains weights of its own for every task, by default a copy of all maskable ones.

    Every task starts from the frozen network, has norm statistics of its own, and leaves those
    before it untouched. statistics: "network" for those of the frozen network, as they are, instead
    of each "task"'s. trains: gives what the next task trains on so many examples, whose result is
    the weights that it computes with and the bytes that they are kept in; role: what `tasks_` calls
    it; precision: "coded" where norm statistics are. The other settings are those of
    `ImpressLearner`. Raises InputError for other statistics and precisions.

    As an upper bound it wants a backbone made for training, such as Kaiming normal weights: from
    signed constants of gain 2, which suit masks, it ends lower.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        recipe: Recipe = FINETUNING_RECIPE,
        seed: int = 0,
        preprocessing: Preprocessing | None = None,
        progress: ProgressChoice = "auto",
        statistics: StatisticsOf = "task",
        trains: Callable[[int], Trainable] | None = None,
        role: str = "network",
        precision: str = "float32",
    ) -> None:
        if statistics not in get_args(StatisticsOf):
            raise InputError(f"statistics must be task or network, got {statistics!r}")
        self.backbone = check_backbone(backbone)
        self.recipe = recipe
        self.seed = check_seed(seed)
        self.preprocessing = preprocessing
        self.progress = progress
        self.statistics = statistics
        self.role = role
        check_choice("precision", precision, PRECISIONS)
        self.precision = precision
        self._trains = trains or (lambda _: copied_weights(backbone.weights))
        self._infos: dict[str, TaskInfo] = {}
        self._views: dict[str, TaskView] = {}

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; bytes are those of the task's weights and what goes with them."""
        return self._infos

    def learn_task(self, name: str, data: Any) -> FineTuning:
        """Trains weights for the task with cross-entropy.

        Raises InputError for a name that is taken, unusable data and too many classes.
        """
        own = self.statistics == "task"
        phase = TrainingPhase.begin(self.backbone) if own else TrainingPhase("frozen", None)
        self._learn(name, data, self._trains, self.seed, phase)
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        classes = find_task(task, self._infos).classes
        values = checked_inputs(self.backbone, inputs, self.preprocessing)
        return labels_of(self._views[task].logits(self.backbone, values), classes)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        classes = find_task(task, self._infos).classes
        return accuracy_of(self.backbone, self._views[task], data, self.preprocessing, classes)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the frozen network on an unlearned task: nothing is shared."""
        frozen = TaskView({}, None, self.backbone.num_classes)
        return accuracy_of(self.backbone, frozen, data, self.preprocessing, classes)

    def _learn(
        self,
        name: str,
        data: Any,
        trains: Callable[[int], Trainable],
        seed: int,
        phase: TrainingPhase,
    ) -> None:
        check_new_name(name, self._infos)
        examples, classes = training_examples(self.backbone, data, self.preprocessing)
        source = to_batches(examples, classes, self.backbone.device)
        progress = progress_for(self.progress).titled(f"task {name}")
        trainable = with_head(trains(len(source)), self.backbone, len(classes), HEAD_RATE)
        task = (self.backbone, source, len(classes), self.recipe, phase, seed, progress)
        TaskTraining(*task).fit(trainable)
        with torch.no_grad():
            (weights, size), head = trainable.result()
        kept = None
        if phase.statistics is not None:
            kept = store_statistics(
                self.backbone, phase.statistics, self.precision, weights | head, examples
            )
        breakdown = {
            "weights": size + tensor_bytes(head.values()),
            "statistics": kept.nbytes if kept else 0,
            "labels": label_map_bytes(classes),
        }
        total = sum(breakdown.values())
        self._views[name] = TaskView(weights | head, kept.values if kept else None, len(classes))
        self._infos[name] = TaskInfo(name, self.role, classes, 0, total, breakdown)


class SequentialFineTuning(ReadOnlySettings):
    """Trains one copy of all maskable weights on every task in turn, each from where the last left.

    All tasks share the network whole, its outputs and norm statistics included: class k of every
    task is output k. Nothing is kept of a task but its label map, and nothing is done against
    forgetting. Every task has an optimiser and a schedule of its own. Norm statistics go on being
    gathered, unless the norm policy is "shared": then the first task's stay. Settings as of
    `FineTuning`.
    """

    progress: ProgressChoice

    def __init__(self, backbone: Backbone, **settings: Unpack[TrainingSettings]) -> None:
        require_shared_head("SequentialFineTuning", backbone)
        self._tuned = FineTuning(backbone, **settings)
        share_settings(self, self._tuned)
        self._network = TaskView(backbone.weights, None, backbone.num_classes)

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; bytes are what learning the task added: the network with the first."""
        return self._tuned.tasks_

    def learn_task(self, name: str, data: Any) -> SequentialFineTuning:
        """Trains the network further, with cross-entropy on this task alone."""
        tuned, statistics = self._tuned, self._network.statistics
        tuned.progress = self.progress
        seed, phase = tuned.seed + len(self.tasks_), TrainingPhase.begin(tuned.backbone, statistics)
        if phase.mode == "train" and statistics is not None:
            phase = TrainingPhase("train", {key: each.clone() for key, each in statistics.items()})
        tuned._learn(name, data, lambda _: copied_weights(self._network.weights), seed, phase)
        self._network = tuned._views[name]
        if len(self.tasks_) > 1:
            info, size = self.tasks_[name], self.tasks_[name].breakdown["labels"]
            tuned._infos[name] = replace(info, bytes=size, breakdown={"labels": size})
        for other, info in self.tasks_.items():
            tuned._views[other] = self.view(len(info.classes))
        return self

    def view(self, num_classes: int) -> TaskView:
        """The network as it is now, for a task of so many classes, learned or not."""
        return replace(self._network, num_classes=num_classes)

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels, by the network as it is now."""
        return self._tuned.predict(inputs, task)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1] of the network as it is now."""
        return self._tuned.score(data, task)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the network as it is now on an unlearned task."""
        tuned = self._tuned
        return accuracy_of(tuned.backbone, self._network, data, tuned.preprocessing, classes)
