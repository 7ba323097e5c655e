"""The optimisation loop `fit`, its settings (`Recipe`), the training of a task, and objectives.

A `Trainable` holds the numbers to optimise, and a `TaskTraining` holds the data and the network.
`TaskTraining.fit` runs the loop with both: eqs. 1 and 2 of the paper.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from numbers import Integral
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from impresslearn.checks import check_choice, check_integer, check_number, clear_calls, torch_seed
from impresslearn.data import BatchSource, Inputs
from impresslearn.data.examples import drawing
from impresslearn.errors import InputError, NotLearnedWarning, TrainingError, warn_caller
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics, TrainingPhase, Weights
from impresslearn.training.progress import Progress, silent

NUMBERS = ("lr", "weight_decay", "epochs", "batch_fraction", "warmup_epochs", "label_smoothing")
# Least and largest values; other NUMBERS only have to be at least 0.
LIMITS = {"lr": (1e-12, math.inf), "batch_fraction": (1e-12, 1.0), "label_smoothing": (0.0, 0.999)}
Optimizer = Literal["adam", "adamw", "rmsprop", "sgd"]
Schedule = Literal["constant", "cosine"]
# A gradient must reach every weight in this number of steps. If all are 0, a warning follows.
WATCHED = 4


@clear_calls
@dataclass(frozen=True)
class Recipe:
    """Settings of an optimisation.

    - optimizer: "adam", "adamw", "rmsprop" or "sgd".
    - lr: the peak learning rate.
    - schedule: "constant", or "cosine" to zero.
    - momentum: for sgd and rmsprop, and the first beta of adam; None uses torch's default.
    - weight_decay: passed to torch's optimiser.
    - epochs: passes over the data.
    - min_steps: the least number of steps, so that few examples get more passes.
    - batch_size: the largest number of inputs per step.
    - batch_fraction: the largest batch as a fraction of the data, but at least 16 inputs. Lower it
      to train on few examples in small batches.
    - warmup_epochs: epochs in which the learning rate rises linearly from zero.
    - label_smoothing: the part of each target, below 1, that is spread equally over all classes.
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
        checked: dict[str, Any] = {"min_steps": check_integer("min_steps", self.min_steps, 0)}
        checked["batch_size"] = check_integer("batch_size", self.batch_size, 1)
        for name in NUMBERS if self.momentum is None else (*NUMBERS, "momentum"):
            value = getattr(self, name)
            number = check_number(name, value, *LIMITS.get(name, (0.0, math.inf)))
            # Integers stay ints, because the cache of the benchmarks finds jobs by their text.
            checked[name] = int(value) if isinstance(value, Integral) else number
        vars(self).update(checked)
        check_choice("optimizer", self.optimizer, get_args(Optimizer))
        check_choice("schedule", self.schedule, get_args(Schedule))
        if self.momentum is not None and self.momentum >= 1 and self.optimizer.startswith("adam"):
            raise InputError(f"momentum of {self.optimizer} must be below 1, got {self.momentum}")

    def changed(self, change: "Recipe | Mapping[str, Any]") -> "Recipe":
        """This recipe with some entries changed; a `Recipe` is returned as it is."""
        if isinstance(change, Recipe):
            return change
        if not isinstance(change, Mapping):
            raise InputError(f"a recipe must be a Recipe or a dict of its settings, got {change!r}")
        return replace(self, **change)

    def total_steps(self, examples: int) -> int:
        """The number of steps of a training on this number of examples."""
        return max(self.min_steps, math.ceil(self.epochs * self.steps_per_epoch(examples)))

    def batch_for(self, examples: int) -> int:
        """Inputs per step, 16 or more unless batch_size is smaller, for this number of examples."""
        return min(self.batch_size, max(16, int(examples * self.batch_fraction)))

    def steps_per_epoch(self, examples: int) -> int:
        """Batches in one pass over this number of examples."""
        return math.ceil(examples / self.batch_for(examples))

    def settings(self) -> dict[str, Any]:
        """The recipe as plain values. Like committed results, it omits a label_smoothing of 0."""
        plain = asdict(self)
        if not self.label_smoothing:
            del plain["label_smoothing"]
        return plain


@dataclass(frozen=True)
class FitResult:
    """How a training ended: the number of steps, and the mean loss in nats over its last epoch.

    final_losses: the mean of each loss, if several were minimised together.
    """

    steps: int
    final_loss: float
    final_losses: Sequence[float] = ()


def fit(
    parameters: Sequence[Tensor],
    loss: Callable[[Tensor | Inputs, Tensor], Tensor],
    source: BatchSource,
    recipe: Recipe,
    seed: int,
    progress: Progress = silent,
) -> FitResult:
    """Minimises `loss(inputs, targets)`, or the sum of several losses, over `parameters` in place.

    - seed: seed of the order of batches, the augmentation and, on the CPU, the network's own draws
      from torch, NumPy or Python, as for dropout. Global random states are restored afterwards.
    - progress: advances once per step, and logs the loss and the learning rate.

    Raises TrainingError when the loss or a parameter becomes NaN or infinite.
    """
    generator = torch.Generator().manual_seed(torch_seed(seed))
    total = recipe.total_steps(len(source))
    if total == 0:
        return FitResult(0, math.nan)
    optimizer, advice = _optimizer(parameters, recipe), f"lower the learning rate {recipe.lr}"
    window = min(total, recipe.steps_per_epoch(len(source)))
    recent: list[Tensor] = []
    with drawing(torch_seed(seed)), progress.track(total) as advance:
        batches = islice(endless_batches(source, recipe, generator), total)
        for step, (inputs, targets) in enumerate(batches):
            rate = _rate(step, total, recipe, len(source))
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
            value = loss(inputs, targets)
            value.backward(torch.ones_like(value))
            optimizer.step()
            if step >= total - window:
                recent.append(value.detach())
            # Reading a loss waits for the GPU, so it is read only every 50 steps.
            if step % 50 == 0 or step == total - 1:
                mean = float(value.detach().mean())
                if not math.isfinite(mean):
                    raise TrainingError(f"the loss became {mean} at step {step + 1}; {advice}")
                if progress.write is not None:
                    progress.write(progress.title, step + 1, {"loss": mean, "learning_rate": rate})
            advance()
    for parameter in parameters:  # the last step follows the last check of the loss
        if not torch.isfinite(parameter).all():
            raise TrainingError(f"parameters became NaN or infinite; {advice}")
    losses = torch.stack(recent, dim=-1).reshape(-1, len(recent))
    final = [float(of_one.mean()) for of_one in losses]
    return FitResult(total, sum(final) / len(final), final)


@dataclass(frozen=True)
class Trainable:
    """The numbers that a task trains, and how weights of the network are computed from them.

    - parameters: the leaves to optimise: popup scores, coefficients or a whole network.
    - step_weights: returns the weights by name for the present parameters, and a cost in nats that
      is added to the mean cross-entropy. Call it once per step: the price of bits may rise.
    - result: returns the task's final numbers.
    - fold: called with gathered norm statistics and the task's frozen ones. Changes the parameters
      so that the network computes the same with the frozen statistics.
    - quantized: the `QuantizedParameters` that hold some of the leaves, or None.
    """

    parameters: Sequence[Tensor]
    step_weights: Callable[[], tuple[Weights, Tensor | float]]
    result: Callable[[], Any]
    fold: Callable[[Statistics, Statistics], None] | None = None
    quantized: Any = None


def with_head(
    trainable: Trainable, backbone: Backbone, num_classes: int, rate: float = 1.0
) -> Trainable:
    """A `Trainable` that also trains the task's own head, if tasks of the network have one.

    - rate: learning rate of the head, as a multiple of the rate of the other numbers.

    Its result is a pair: the result of `trainable`, and the head by parameter name, or {}.
    """
    new = backbone.new_head(num_classes).items()
    head = {name: (values / rate).requires_grad_(True) for name, values in new}

    def scaled() -> Weights:
        return {name: rate * values for name, values in head.items()}

    def step_weights() -> tuple[Weights, Tensor | float]:
        body, cost = trainable.step_weights()
        return body | scaled(), cost

    @torch.no_grad()
    def result() -> tuple[Any, Weights]:
        return trainable.result(), scaled()

    parameters = [*trainable.parameters, *head.values()]
    return replace(trainable, parameters=parameters, step_weights=step_weights, result=result)


@dataclass(frozen=True)
class TaskTraining:
    """A task to train on: its batches and recipe, the network, and the mode of its norms.

    Its method `fit` runs the loop with a `Trainable`: eqs. 1 and 2 of the paper.

    - source: batches of inputs with class indices.
    - num_classes: the number of the network's outputs that the task uses.
    - phase: the mode of norms, and the statistics that they gather or use.
    - seed, progress: see `fit`.
    - fold_after: the first fraction of the steps, in which batch norms use the statistics of the
      batch. The gathered statistics are then folded into the trained scales and shifts.
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
        """Whether norm statistics are gathered during training and then folded."""
        return self.fold_after > 0 and self.phase.mode == "frozen"

    def fit(self, trainable: Trainable) -> FitResult:
        """Minimises cross-entropy plus cost over the parameters. Raises as the function `fit`."""
        step_loss, source, recipe = StepLoss(self, trainable), self.source, self.recipe
        try:
            result = fit(trainable.parameters, step_loss, source, recipe, self.seed, self.progress)
        except CheckpointError:
            raise InputError(
                f"{self.backbone.name} uses activation checkpointing, which cannot be used here; "
                "switch it off before adapt, as by set_grad_checkpointing(False)"
            ) from None
        step_loss.end()
        return result

    def loss(self, weights: Weights, inputs: Tensor | Inputs, targets: Tensor) -> Tensor:
        """The mean cross-entropy of a batch in nats, with the recipe's label smoothing."""
        inputs, phase = inputs.to(self.backbone.input_dtype), self.phase
        logits = self.backbone.forward(weights, inputs, phase.statistics, phase.mode)
        smoothing = self.recipe.label_smoothing
        return F.cross_entropy(logits[:, : self.num_classes], targets, label_smoothing=smoothing)


class StepLoss:
    """The loss of a task at each training step, with the checks and folding between the steps."""

    def __init__(self, training: TaskTraining, trainable: Trainable) -> None:
        self._training, self._gathering, self._trainable = training, training, trainable
        self._step = self._last = 0  # the last step in which norm statistics are gathered
        self._reached: dict[str, list[Tensor]] = {}  # per weight: was each gradient nonzero?
        self._frozen = training.phase.statistics or {}
        self._gathered = {name: values.clone() for name, values in self._frozen.items()}
        if trainable.fold and training.folds:
            steps = training.recipe.total_steps(len(training.source))
            self._last = math.ceil(training.fold_after * steps)
            self._gathering = replace(training, phase=TrainingPhase("train", self._gathered))

    def __call__(self, inputs: Tensor | Inputs, targets: Tensor) -> Tensor:
        """Cross-entropy plus cost of the next step."""
        self._fold()
        training = self._gathering if self._step < self._last else self._training
        self._step += 1
        weights, cost = self._trainable.step_weights()
        if self._step <= WATCHED:
            weights = dict(weights)
            for name, weight in weights.items():
                if weight.requires_grad:
                    # A view has its own node; a node with several outputs gives each a gradient.
                    weights[name] = weight.view_as(weight)
                    nonzero = self._reached.setdefault(name, [])
                    weights[name].register_hook(partial(_note, nonzero))
        value = training.loss(weights, inputs, targets) + cost
        if not value.requires_grad:  # no gradient reaches any weight in this step
            self._reached = {name: [] for name in self._reached}
        if self._step == WATCHED + 1 or not value.requires_grad:
            self._check_reached()
        return value

    def end(self) -> None:
        """Call this after the last step, for the final fold and check."""
        self._fold()  # if fold_after is 1
        if self._step <= WATCHED:
            self._check_reached()

    def _fold(self) -> None:
        if self._trainable.fold and self._step == self._last > 0:
            self._trainable.fold(self._gathered, self._frozen)

    def _check_reached(self) -> None:
        """Raises InputError for weights that no gradient reached; warns if all were 0."""
        backbone, reached = self._training.backbone, self._reached
        missing = [name for name, nonzero in reached.items() if not nonzero]
        zero = [name for name, nonzero in reached.items() if not any(nonzero)]
        names = missing or (zero if self._step > WATCHED else [])  # zeros may last a few steps
        listed = ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
        if missing:
            raise InputError(
                f"no gradient reaches {listed} of {backbone.name}: its forward does not use such "
                "a layer, or runs it under torch.no_grad(), detach() or activation checkpointing; "
                "change that, or leave the layer unmasked by adapt(..., skip=[...])"
            )
        if names and backbone.spec is None:
            warn_caller(
                f"the gradient of {listed} of {backbone.name} is 0 so far, so training does "
                "not change them: what follows is flat, as sign, round and dead ReLUs are, or "
                "multiplies by 0",
                NotLearnedWarning,
            )


def _note(nonzero: list[Tensor], gradient: Tensor | None) -> None:
    if gradient is not None:  # an autograd.Function may give none
        nonzero.append(gradient.detach().any())  # a tensor: bool() would wait for the GPU


def endless_batches(
    source: BatchSource, recipe: Recipe, generator: torch.Generator
) -> Iterator[tuple[Tensor | Inputs, Tensor]]:
    """The batches of one epoch after another, without end."""
    size = recipe.batch_for(len(source))
    while True:
        for inputs, targets in source.batches(size, generator):
            # A last batch of one input has no batch statistics, so it is skipped if possible.
            if len(targets) > 1 or len(source) == 1 or size == 1:
                yield inputs, targets


def _rate(step: int, total: int, recipe: Recipe, examples: int) -> float:
    warmup = recipe.warmup_epochs * recipe.steps_per_epoch(examples)
    if step < warmup:
        return recipe.lr * min((step + 1) / warmup, 1.0)
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
    shared["momentum"] = recipe.momentum or 0.0
    if recipe.optimizer == "rmsprop":
        return torch.optim.RMSprop(parameters, **shared)
    return torch.optim.SGD(parameters, **shared)


def entropies(logits: Tensor) -> Tensor:
    """The entropy in nats of each row's prediction: (..., n, K) to (..., n)."""
    log_probabilities = F.log_softmax(logits, dim=-1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=-1)


def mean_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of predictions: (..., n, K) to (...). The paper's objective without labels."""
    return entropies(logits).mean(dim=-1)


def information_maximisation(logits: Tensor, prior: float = 0.0) -> Tensor:
    """Mean entropy of the predictions minus the entropy of the mean prediction, in nats.

    (..., n, K) to (...). This is the negative mutual information between input and prediction.
    Unlike the mean entropy, it is not minimal if one class is predicted with confidence for all
    inputs. For one input without a prior the result is the entropy of its prediction.

    - prior: number of uniform predictions added to the mean, to reduce the noise of few inputs.
    """
    examples, classes = logits.shape[-2:]
    if examples == 1 and not prior:
        return mean_entropy(logits)
    mean = (F.softmax(logits, dim=-1).sum(dim=-2) + prior / classes) / (examples + prior)
    marginal = -(mean * mean.clamp_min(torch.finfo(mean.dtype).tiny).log()).sum(dim=-1)
    return mean_entropy(logits) - marginal


def unit_norm_penalty(alphas: Sequence[Tensor]) -> Tensor:
    """Σ_layers (Σ_t |α_t| - 1)², the penalty of eq. 2; alphas: (N,) or (N, units) for each layer.

    Squares are averaged over units, so that λ has the same effect for both granularities.
    """
    return torch.stack([(alpha.abs().sum(dim=0) - 1).square().mean() for alpha in alphas]).sum()
