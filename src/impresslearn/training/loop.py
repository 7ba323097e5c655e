"""The one optimisation loop, `fit`, its settings, `Recipe`, and what tasks train with it.

`fit` minimises a loss over tensors. A `Trainable` is the tensors that a task trains (popup scores,
coefficients or a whole network); a `TaskTraining` runs the loop for it on the task's batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from numbers import Integral
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.checks import (
    check_choice,
    check_integer,
    check_known,
    check_number,
    torch_seed,
)
from impresslearn.data import BatchSource, Inputs
from impresslearn.errors import InputError, TrainingError
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics, TrainingPhase
from impresslearn.training.progress import Progress, silent

COUNTS = {"min_steps": 0, "batch_size": 1}
"""The least that each may be."""
NUMBERS = (
    "lr",
    "momentum",
    "weight_decay",
    "epochs",
    "batch_fraction",
    "warmup_epochs",
    "label_smoothing",
)
Optimizer = Literal["adam", "adamw", "rmsprop", "sgd"]
Schedule = Literal["constant", "cosine"]
WORDS = {"optimizer": get_args(Optimizer), "schedule": get_args(Schedule)}
CHECK_EVERY = 50
SMALLEST_BATCH = 16

Loss = Callable[[Tensor | Inputs, Tensor], Tensor]
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Recipe:
    """Settings of an optimisation.

    optimizer: adam, adamw, rmsprop or sgd; lr: peak learning rate; schedule: constant, or cosine to
    zero; momentum: that of sgd and rmsprop, the first beta of adam; weight_decay: as torch's
    optimiser of that name means it; epochs: passes over the data; min_steps: steps taken even if
    the epochs have fewer (few examples need more passes); batch_size: inputs a step;
    batch_fraction: the largest share of the data that a batch may be, though never under 16 inputs
    (few examples want small batches); warmup_epochs: linear increase from zero; label_smoothing:
    the share of every label that counts for all classes alike, for losses that look at labels.
    """

    optimizer: Optimizer = "adam"
    lr: float = 0.02
    schedule: Schedule = "cosine"
    momentum: float | None = None
    weight_decay: float = 0.0
    epochs: float = 3
    min_steps: int = 0
    batch_size: int = 128
    batch_fraction: float = 1.0
    warmup_epochs: float = 0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        for name, least in COUNTS.items():
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least))
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None or name != "momentum":
                number = check_number(name, value, 0)
                # Whole numbers stay ints: finished jobs are found by their text.
                plain = int(value) if isinstance(value, Integral) else number
                object.__setattr__(self, name, plain)
        for name, known in WORDS.items():
            check_choice(name, getattr(self, name), known)
        if self.momentum is not None and self.momentum >= 1 and self.optimizer.startswith("adam"):
            raise InputError(f"momentum of {self.optimizer} must be below 1, got {self.momentum}")
        if not (self.lr > 0 and 0 < self.batch_fraction <= 1 and self.label_smoothing < 1):
            raise InputError(
                "a recipe needs lr > 0, batch_fraction in (0, 1] and label_smoothing in [0, 1), "
                f"got lr={self.lr}, batch_fraction={self.batch_fraction}, "
                f"label_smoothing={self.label_smoothing}"
            )

    def changed(self, change: Recipe | Mapping[str, Any]) -> Recipe:
        """This recipe with some entries changed, or another one.

        Raises InputError for entries that a recipe does not have, naming close ones.
        """
        if isinstance(change, Recipe):
            return change
        if not isinstance(change, Mapping):
            line = "a recipe must be a Recipe or a mapping of its entries"
            raise InputError(f"{line}, got {change!r}")
        for key in change:
            check_known("a recipe has no entry", key, vars(self))
        return replace(self, **change)

    def total_steps(self, examples: int) -> int:
        """The steps that a run over so many examples takes."""
        return max(self.min_steps, math.ceil(self.epochs * self.steps_per_epoch(examples)))

    def batch_for(self, examples: int) -> int:
        """Inputs a step, for so many examples."""
        return min(self.batch_size, max(SMALLEST_BATCH, int(examples * self.batch_fraction)))

    def steps_per_epoch(self, examples: int) -> int:
        """Batches in one pass."""
        return math.ceil(examples / self.batch_for(examples))

    def settings(self) -> dict[str, Any]:
        """The recipe as plain values; label_smoothing only where there is any, as in old files."""
        plain = asdict(self)
        if not self.label_smoothing:
            del plain["label_smoothing"]
        return plain


@dataclass(frozen=True)
class FitResult:
    """How an optimisation ended: steps taken, and the mean loss over its last epoch (in nats)."""

    steps: int
    final_loss: float


def fit(
    parameters: Sequence[Tensor],
    loss: Loss,
    source: BatchSource,
    recipe: Recipe,
    seed: int,
    progress: Progress = silent,
) -> FitResult:
    """Minimises `loss(inputs, targets)` over `parameters`, in place.

    The order of batches, the augmentation and, on the CPU, dropout follow `seed`; torch's global
    random state is left as it was. Raises TrainingError when the loss is no longer finite.
    """
    generator = torch.Generator().manual_seed(torch_seed(seed))
    total = recipe.total_steps(len(source))
    if total == 0:
        return FitResult(0, math.nan)
    optimizer = _optimizer(parameters, recipe)
    recent: list[Tensor] = []
    window = min(total, recipe.steps_per_epoch(len(source)))
    with torch.random.fork_rng(devices=[]), progress.track(total) as advance:
        torch.default_generator.manual_seed(torch_seed(seed))
        batches = islice(_endless(source, recipe, generator), total)
        for step, (inputs, targets) in enumerate(batches):
            rate = _rate(step, total, recipe, len(source))
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
            value = loss(inputs, targets)
            value.backward()
            optimizer.step()
            if step >= total - window:
                recent.append(value.detach())
            if step % CHECK_EVERY == 0 or step == total - 1:
                if not value.isfinite():
                    raise TrainingError(
                        f"the loss became {value.item()} at step {step + 1}; "
                        f"lower the learning rate {recipe.lr}"
                    )
                progress.log(step + 1, {"loss": value.item(), "learning_rate": rate})
            advance()
    if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
        raise TrainingError(
            f"parameters became NaN or infinite; lower the learning rate {recipe.lr}"
        )
    return FitResult(total, float(torch.stack(recent).mean()))


@dataclass(frozen=True)
class Trainable:
    """The numbers that a task trains, and the weights of the frozen network that they make.

    weights: the effective weights by layer name, as the parameters are now, and what these cost
    beside the mean cross-entropy (nats); result: what is kept of the numbers in the end; fold:
    given norm statistics and those that the task will be computed with, changes the parameters so
    that the second give what the first did.
    """

    parameters: Sequence[Tensor]
    weights: Callable[[], tuple[Weights, Tensor | float]]
    result: Callable[[], Any]
    fold: Callable[[Statistics, Statistics], None] | None = None


def with_head(
    trained: Trainable, backbone: Backbone, num_classes: int, rate: float = 1.0
) -> Trainable:
    """The same with a head of the task's own, where the network wants one, trained beside it.

    rate: how much faster than the rest the head learns. The result becomes a pair: that of
    `trained`, and the head by parameter name, {} where all tasks share the network's.
    """
    head = {
        name: each.requires_grad_(True) for name, each in backbone.new_head(num_classes).items()
    }

    def weights() -> tuple[Weights, Tensor | float]:
        found, cost = trained.weights()
        return found | {name: rate * each for name, each in head.items()}, cost

    def result() -> tuple[Any, Weights]:
        return trained.result(), {name: rate * each.detach() for name, each in head.items()}

    return Trainable([*trained.parameters, *head.values()], weights, result)


@dataclass(frozen=True)
class TaskTraining:
    """A task that weights of a frozen network are trained on.

    source: batches with class indices; num_classes: the outputs that count; phase: where norm
    statistics go; seed, progress: as of `fit`; fold_after: the share of the steps in which frozen
    statistics give way to those of the batch, which are then folded into what is trained.
    """

    backbone: Backbone
    source: BatchSource
    num_classes: int
    recipe: Recipe
    phase: TrainingPhase
    seed: int = 0
    progress: Progress = silent
    fold_after: float = 0.0

    @property
    def folds(self) -> bool:
        """Whether norm statistics are gathered and folded while training."""
        return self.fold_after > 0 and self.phase.mode == "frozen"

    def fit(self, trained: Trainable) -> FitResult:
        """Minimises cross-entropy and cost over the parameters. Raises as the function `fit`."""

        total = self.recipe.total_steps(len(self.source))
        last = math.ceil(self.fold_after * total) if trained.fold and self.folds else 0
        kept = self.phase.statistics or {}
        gathered = {name: each.clone() for name, each in kept.items()}
        gathering = replace(self, phase=TrainingPhase("train", gathered))
        steps = count()

        def fold() -> None:
            if last and trained.fold:
                trained.fold(gathered, kept)

        def loss(inputs: Tensor | Inputs, targets: Tensor) -> Tensor:
            step = next(steps)
            if step == last:
                fold()
            weights, cost = trained.weights()
            return (gathering if step < last else self).loss(weights, inputs, targets) + cost

        recipe = self.recipe
        result = fit(trained.parameters, loss, self.source, recipe, self.seed, self.progress)
        if last >= total:
            fold()
        return result

    def loss(self, weights: Weights, inputs: Tensor | Inputs, targets: Tensor) -> Tensor:
        """The mean cross-entropy of a batch in nats, with the recipe's label smoothing."""
        logits = self.phase.forward(self.backbone, weights, inputs)[:, : self.num_classes]
        return F.cross_entropy(logits, targets, label_smoothing=self.recipe.label_smoothing)


def _endless(
    source: BatchSource, recipe: Recipe, generator: torch.Generator
) -> Iterator[tuple[Tensor | Inputs, Tensor]]:
    size = recipe.batch_for(len(source))
    while True:
        for inputs, targets in source.batches(size, generator):
            # A last batch of one has no batch statistics; it is skipped unless it is all there is.
            if len(targets) > 1 or len(source) == 1 or size == 1:
                yield inputs, targets


def _rate(step: int, total: int, recipe: Recipe, examples: int) -> float:
    warmup = recipe.warmup_epochs * recipe.steps_per_epoch(examples)
    if step < warmup:
        return recipe.lr * (step + 1) / warmup
    if recipe.schedule == "constant":
        return recipe.lr
    done = (step - warmup) / max(1.0, total - warmup)
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * done))


def _optimizer(parameters: Sequence[Tensor], recipe: Recipe) -> torch.optim.Optimizer:
    shared: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if recipe.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
        beta = 0.9 if recipe.momentum is None else recipe.momentum
        return kind(parameters, betas=(beta, 0.999), fused=True, **shared)
    momentum = recipe.momentum or 0.0
    if recipe.optimizer == "rmsprop":
        return torch.optim.RMSprop(parameters, momentum=momentum, **shared)
    return torch.optim.SGD(parameters, momentum=momentum, **shared)
