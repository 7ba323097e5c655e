"""Which task is this? Task inference without labels and without a task name (the GN regime).

The methods follow what the tasks' superposition predicts: `one_shot` ranks all tasks by one
gradient at equal shares (Wortsman et al. 2020), `halving` superposes pairs and drops the worse of
each until one is left, `alpha` optimises the shares per layer (the paper) and also returns the
mixture it found. The best few of that ranking, or under `exhaustive` all tasks, are then run for
real and judged by their own predictions, against what each task showed on its own and on foreign
inputs: that gives the posterior, and "unknown" where the best is no surer than on foreign ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor
from typing_extensions import TypedDict

from impresslearn.coefficients.mixing import Coefficients
from impresslearn.data import Inputs, TensorBatches
from impresslearn.errors import InputError
from impresslearn.inference.superposition import Superposition
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone, Mode
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.optimisation.loop import Recipe, fit
from impresslearn.optimisation.objectives import (
    entropies,
    information_maximisation,
    mean_entropy,
    unit_norm_penalty,
)

InferenceMethod = Literal["auto", "exhaustive", "halving", "one_shot", "alpha"]
METHODS = get_args(InferenceMethod)
Objective = Literal["information", "entropy"]
OBJECTIVES: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": mean_entropy,
    "information": information_maximisation,
}
ALPHA_RECIPE = Recipe(
    optimizer="rmsprop", lr=0.01, schedule="constant", epochs=0, min_steps=400, batch_size=128
)
SHORTLIST = 16
PAIRED = 512
JUDGED_INPUTS = 256
PROFILED_INPUTS = 512
SUPERPOSED_INPUTS = 512
TEMPERATURE = 0.1
"""Calibrated on rotated digits and permuted MNIST (docs/decisions.md)."""


class InferenceSettings(TypedDict, total=False):
    """The settings of `guess_task` that its method and objective take."""

    objective: Objective
    recipe: Recipe
    penalty: float
    seed: int


@dataclass(frozen=True)
class EntropyProfile:
    """Mean prediction entropy, as a fraction of log K, on a task's own inputs and on foreign ones.

    Foreign inputs are the task's own with their features shuffled. Kept as two float16 (4 bytes).
    """

    own: float
    foreign: float

    nbytes = 4


@dataclass(frozen=True)
class KnownTask:
    """A task that the inputs may belong to; `view` makes it ready to compute."""

    name: str
    num_classes: int
    coefficients: Coefficients
    view: Callable[[], TaskView]
    profile: EntropyProfile | None


@dataclass(frozen=True)
class TaskGuess:
    """The verdict on a batch of unlabelled inputs.

    best: the most likely task; posterior: task -> probability (with `unknown_probability` they add
    up to 1; tasks that were not shortlisted have 0); entropy: of that distribution, in nats;
    margin: probability of the best minus that of the next hypothesis, unknown included; mixture:
    for method "alpha" the optimised weights, or the best task's own where those fit better.
    """

    best: str
    posterior: dict[str, float]
    unknown_probability: float
    entropy: float
    margin: float
    method: str
    mixture: TaskView | None = None

    @property
    def unknown(self) -> bool:
        """Whether being none of the tasks is the most likely explanation."""
        return self.unknown_probability > self.posterior[self.best]

    @property
    def task(self) -> str | None:
        """The most likely task, or None if unknown."""
        return None if self.unknown else self.best

    def summary(self) -> str:
        """One line for a person."""
        return (
            f"best match {self.best!r} with probability {self.posterior[self.best]:.2f}, "
            f"unknown with {self.unknown_probability:.2f}"
        )


def guess_task(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Sequence[KnownTask],
    inputs: Tensor | Inputs,
    method: InferenceMethod = "auto",
    *,
    objective: Objective = "information",
    recipe: Recipe = ALPHA_RECIPE,
    penalty: float = 1.0,
    shared: Statistics | None = None,
    seed: int = 0,
) -> TaskGuess:
    """Finds the task of a batch of inputs (n, ...), n >= 1, all of one task.

    method: "auto" is "halving", or "exhaustive" where tasks cannot be superposed: with heads of
    their own, tuned norms or biases, or a start at the network itself.
    objective: what the superposition minimises: "information" (mean entropy minus entropy of the
    mean; by far the better ranking, and "alpha" does not collapse), or plain "entropy" as in the
    papers. recipe, penalty (λ of eq. 2) and seed belong to "alpha". shared: norm
    statistics of all tasks. Raises InputError for no task, no input, or an unknown method.
    """
    words = {"method": (method, METHODS), "objective": (objective, OBJECTIVES)}
    for name, (word, known) in words.items():
        if word not in known:
            raise InputError(f"{name} must be one of {', '.join(known)}, got {word!r}")
    if not tasks:
        raise InputError("there is no task to choose from; learn one first")
    if len(inputs) == 0:
        raise InputError("the data hold no example")
    mixtures = [task.coefficients for task in tasks]
    plain = not any(each.residual or each.small is not None for each in mixtures)
    if method == "auto":
        method = "halving" if plain and backbone.own_head is None else "exhaustive"
    if method == "exhaustive":
        return _judge(backbone, tasks, tasks, inputs[:JUDGED_INPUTS], method)
    if not plain or backbone.own_head is not None:
        raise InputError(
            "tasks that start at the network, tune norms or have heads of their own are told by "
            f'"exhaustive", not {method!r}'
        )
    search = _Search(
        Superposition(backbone, bank, [task.coefficients for task in tasks]),
        OBJECTIVES[objective],
        max(task.num_classes for task in tasks),
        shared,
    )
    mixture = None
    if method == "alpha":
        mixture, order = search.optimise(inputs, recipe, penalty, seed)
    else:
        order = search.one_shot(inputs) if method == "one_shot" else search.halving(inputs)
    shortlist = [tasks[i] for i in order[:SHORTLIST]]
    guess = _judge(backbone, tasks, shortlist, inputs[:JUDGED_INPUTS], method)
    if mixture is None:
        return guess
    # The optimum may lie at another task than the judged one; then that task's own weights serve.
    own = next(task.view() for task in shortlist if task.name == guess.best)
    losses = [_losses(backbone, view, inputs[:JUDGED_INPUTS])[0] for view in (mixture, own)]
    return replace(guess, mixture=mixture if losses[0] <= losses[1] else own)


@dataclass(frozen=True)
class _Search:
    """The gradient methods over one superposition; each gives task positions, best first."""

    superposition: Superposition
    objective: Callable[[Tensor], Tensor]
    num_classes: int
    shared: Statistics | None

    @property
    def _mode(self) -> Mode:
        # Running statistics of different tasks cannot be superposed; those of the batch can be had.
        per_task = self.superposition.backbone.has_task_statistics
        return "batch" if per_task else "eval"

    def loss(self, shares: Tensor, inputs: Tensor | Inputs) -> Tensor:
        weights, backbone = self.superposition.weights(shares), self.superposition.backbone
        logits = backbone.forward(weights, inputs.to(backbone.input_dtype), self.shared, self._mode)
        return self.objective(logits[:, : self.num_classes])

    def gradient(self, inputs: Tensor | Inputs, active: Tensor | None = None) -> Tensor:
        """(C,): how the objective changes with each task's share, at equal shares."""
        shares = self.superposition.uniform(active).requires_grad_(True)
        chunk = inputs[:SUPERPOSED_INPUTS].to(shares.device)
        return torch.autograd.grad(self.loss(shares, chunk), shares)[0]

    def one_shot(self, inputs: Tensor | Inputs) -> list[int]:
        return self.gradient(inputs).argsort().tolist()

    def halving(self, inputs: Tensor | Inputs) -> list[int]:
        """Every round superposes two tasks at a time and keeps the better one of each pair.

        Superposing all that are left, as a binary search would, fails: the kept half agrees on
        the inputs by chance and outvotes the right task (docs/decisions.md). Beyond `PAIRED`
        tasks one gradient over all of them decides which take part.
        """
        order = self.one_shot(inputs) if self.superposition.num_tasks > PAIRED else None
        active = list(range(self.superposition.num_tasks)) if order is None else order[:PAIRED]
        dropped = [] if order is None else order[PAIRED:]
        while len(active) > 1:
            lost = []
            for pair in zip(active[::2], active[1::2], strict=False):
                slopes = self.gradient(inputs, torch.tensor(pair))
                lost.append(max(pair, key=slopes.tolist().__getitem__))
            dropped = lost + dropped
            active = [task for task in active if task not in set(lost)]
        return active + dropped

    def optimise(
        self, inputs: Tensor | Inputs, recipe: Recipe, penalty: float, seed: int
    ) -> tuple[TaskView, list[int]]:
        shares = self.superposition.uniform(per_layer=True).requires_grad_(True)
        no_labels = torch.zeros(len(inputs), dtype=torch.long, device=shares.device)

        def loss(batch: Tensor | Inputs, _: Tensor) -> Tensor:
            value = self.loss(shares, batch)
            if penalty:
                value = value + penalty * unit_norm_penalty(list(shares.unbind(dim=1)))
            return value

        fit([shares], loss, TensorBatches(inputs.to(shares.device), no_labels), recipe, seed)
        found = shares.detach()
        weights = self.superposition.weights(found)
        view = TaskView(weights, self.shared, self.num_classes, self._mode)
        return view, found.abs().mean(dim=1).argsort(descending=True).tolist()


def entropy_profile(backbone: Backbone, view: TaskView, inputs: Tensor | Inputs) -> EntropyProfile:
    """A task's mean entropy on its own inputs, and on the same with shuffled features."""
    own = inputs[:PROFILED_INPUTS]
    foreign = own.map(_shuffled) if isinstance(own, Inputs) else _shuffled(own)
    means = [entropies(view.outputs(backbone, each)).mean() for each in (own, foreign)]
    return EntropyProfile(*(float((mean / _most(view)).half()) for mean in means))


def _shuffled(inputs: Tensor) -> Tensor:
    """Inputs (n, ...) with the features of all in one other order."""
    features = inputs.flatten(1)
    order = torch.randperm(features.shape[1], generator=torch.Generator().manual_seed(0))
    return features[:, order.to(features.device)].reshape(inputs.shape)


def _judge(
    backbone: Backbone,
    tasks: Sequence[KnownTask],
    shortlist: Sequence[KnownTask],
    inputs: Tensor | Inputs,
    method: str,
) -> TaskGuess:
    """Judges the shortlist: the posterior over it and over "none of them".

    A task's loss is the information objective of its own predictions, over log K. "None" is
    the best task with its entropy replaced by the level halfway between what that task shows
    on its own and on foreign inputs. Losses count in units of `TEMPERATURE`, times the root of the
    number of inputs: inputs of one batch are not independent evidence.
    """
    judged = [_losses(backbone, task.view(), inputs) for task in shortlist]
    losses = [loss for loss, _ in judged]
    best = min(range(len(shortlist)), key=losses.__getitem__)
    excess = judged[best][1] - _foreign_level(shortlist[best].profile)
    strength = math.sqrt(len(inputs)) / TEMPERATURE
    levels = torch.tensor([*losses, losses[best] - excess], dtype=torch.float64)
    *likely, unknown = (-strength * levels).softmax(dim=0).tolist()
    named = dict(zip((task.name for task in shortlist), likely, strict=True))
    rivals = [unknown, *likely[:best], *likely[best + 1 :]]
    return TaskGuess(
        best=shortlist[best].name,
        posterior=dict.fromkeys((task.name for task in tasks), 0.0) | named,
        unknown_probability=unknown,
        entropy=float(torch.special.entr(levels.new_tensor([*likely, unknown])).sum()),
        margin=likely[best] - max(rivals),
        method=method,
    )


def _losses(backbone: Backbone, view: TaskView, inputs: Tensor | Inputs) -> tuple[float, float]:
    """The information objective and the mean entropy of a task's predictions, over log K."""
    logits, most = view.logits(backbone, inputs), _most(view)
    return float(information_maximisation(logits)) / most, float(mean_entropy(logits)) / most


def _most(view: TaskView) -> float:
    """log K, the largest entropy of a prediction; that of two classes for a single one."""
    return math.log(max(2, view.num_classes))


def _foreign_level(profile: EntropyProfile | None) -> float:
    """The relative entropy above which inputs rather look foreign; never, without a profile."""
    if profile is None:
        return math.inf
    return max((profile.own + profile.foreign) / 2, 1.5 * profile.own)
