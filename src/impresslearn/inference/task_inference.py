"""Which task is this? Task inference without labels and without a task name (the GN regime).

`exhaustive` runs every task on the inputs and judges it by its own predictions. It was at least as
accurate as every other method, and faster than searches by halving, wherever it was measured, so
"auto" is this one. The others follow the predictions of the tasks' superposition: `one_shot` takes
the task of the most negative gradient at equal shares, as published (Wortsman et al. 2020);
`alpha` optimises the shares per layer (the ImpressLearn paper), runs the best sixteen tasks, and
also returns the mixture it found. A judged task competes with "unknown": that the inputs belong to
no task, by what the task showed on its own and on foreign inputs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import TypedDict

from impresslearn.checks import check_choice, check_number, clear_calls
from impresslearn.data import Features, Inputs, even_parts
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.exhaustive import KnownTask, Mixture, Outputs, outputs_of_tasks
from impresslearn.inference.feature_scores import (
    FeatureProfile,
    FeatureSpace,
    frozen_features,
    head_of,
    log_ratios,
)
from impresslearn.inference.superposition import Superposition
from impresslearn.inference.unknown import (
    InputStatistics,
    TaskProfile,
    distances,
    largest_entropy,
    signals,
)
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import spread_places, spread_rows
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.training.loop import Recipe, information_maximisation, mean_entropy

InferenceMethod = Literal["auto", "exhaustive", "one_shot", "alpha"]
METHODS = get_args(InferenceMethod)
Objective = Literal["information", "entropy"]
OBJECTIVES = {"entropy": mean_entropy, "information": information_maximisation}
ALPHA_RECIPE = Recipe(
    optimizer="rmsprop", lr=0.01, schedule="constant", epochs=0, min_steps=400, batch_size=128
)
# Tasks that are run after α-optimisation: its shares are a poor witness for small batches.
SHORTLIST = 16
JUDGED_INPUTS = 256
# Stated against true probabilities at 0.1 on rotated digits: n=4 0.68 / 0.82, n=8 0.74 / 0.77,
# n=16 0.79 / 0.80, n=64 0.84 / 0.80.
TEMPERATURE = 0.1
# Uniform predictions added to a judged batch: with two to eight inputs the entropy of the mean is
# mostly chance (4 rotated digits: 83 in place of 66% right).
PRIOR = 2.0
# Of a squared distance, whose six parts are not independent: half of a Gaussian's. A half brings
# digits one to three points more and costs sentences ten (78 in place of 88% from one).
DISTANCE_WEIGHT = 0.25
# Of few features all means are known, and values depend on each other: the share of a Gaussian's
# evidence that counts, and a temperature at which predictions say half (chosen on three kinds of
# tables).
FEW_FEATURES_WEIGHT, FEW_FEATURES_TEMPERATURE = 0.75, 0.2
# The share of a likelihood ratio in features that counts, as these are not Gaussian, and a
# temperature at which predictions say little: a ratio knows more of a single input.
RATIO_WEIGHT, RATIO_TEMPERATURE = 0.25, 1.0
# The logarithm of the odds of "unknown" at one width beyond its threshold.
UNKNOWN_SLOPE = 3.0


class InferenceSettings(TypedDict, total=False):
    """The settings of `guess_task` that its method and objective take."""

    objective: Objective
    recipe: Recipe | Mapping[str, Any]
    penalty: float
    seed: int


@dataclass(frozen=True)
class TaskGuess:
    """The verdict on a batch of unlabelled inputs.

    - best: the most likely task.
    - posterior: task -> probability; with `unknown_probability` they add up to 1. Tasks that were
      not run have 0.
    - unknown_probability: that the inputs belong to none of the tasks.
    - entropy: the entropy of that distribution, in nats.
    - margin: probability of the best minus probability of the next hypothesis, unknown included.
    - method: how it was found.
    - mixture: for method "alpha" the optimised weights, or the best task's own if those fit
      better.
    """

    best: str
    posterior: dict[str, float]
    unknown_probability: float
    entropy: float
    margin: float
    method: str
    mixture: TaskView | None = field(default=None, repr=False)

    @property
    def unknown(self) -> bool:
        """Whether being none of the tasks is the most likely explanation."""
        return self.unknown_probability > self.posterior[self.best]

    @property
    def task(self) -> str | None:
        """The most likely task, or None if unknown."""
        return None if self.unknown else self.best

    def known(self) -> str:
        """The most likely task. Raises UnknownTaskError where the inputs look like none."""
        if self.unknown:
            raise UnknownTaskError(
                f"the inputs look like none of the tasks: {self.summary()}; name the task, or "
                "infer each input's own task with per_input=True if they come from several"
            )
        return self.best

    def summary(self) -> str:
        """One line for a person."""
        return (
            f"best match {self.best!r} with probability {self.posterior[self.best]:.2f}, "
            f"unknown with {self.unknown_probability:.2f}"
        )


@dataclass(frozen=True)
class SeenFeatures:
    """The same inputs as tasks see them in the features of the frozen network.

    - features: (n, f) of it, by its key; empty where no task knows its inputs by their features.
    - central: (n,) squared distances from the centre of all inputs.
    - relative: task -> (n,) relative distances from its nearest class: minus twice the largest of
      its `log_ratios`.
    """

    features: Mapping[Hashable, Tensor]
    central: Tensor
    relative: Mapping[str, Tensor]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        backbone: Backbone,
        tasks: Collection[KnownTask],
        inputs: Tensor | Inputs,
        space: FeatureSpace | None,
        frozen: TaskView | None,
    ) -> SeenFeatures:
        """Inputs (n, ...) as these tasks see them."""
        knowing = [task for task in tasks if isinstance(task.profile, FeatureProfile)]
        if space is None or frozen is None or not knowing:
            return cls({}, torch.empty(0), {})
        if not isinstance(inputs, Features):
            backbone.check_inputs(inputs)
        features = frozen_features(backbone, frozen, inputs)
        coordinates, relative = space.coordinates(features), {}
        for task in knowing:
            assert isinstance(task.profile, FeatureProfile)
            directions = space.directions(head_of(backbone, task.view().weights), task.num_classes)
            ratios = log_ratios(space, coordinates, task.profile.means(directions))
            relative[task.name] = -2 * ratios.max(dim=1).values
        (key,) = frozen.feature_keys or (None,)
        return cls({key: features}, space.distances(coordinates), relative)

    def rows(self, rows: slice) -> SeenFeatures:
        """Some of the inputs, without their features."""
        relative = {name: distances[rows] for name, distances in self.relative.items()}
        return SeenFeatures({}, self.central[rows], relative)


# Gradients are on here, whatever mode the caller is in.
@torch.inference_mode(False)
@clear_calls
def guess_task(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    method: InferenceMethod = "auto",
    *,
    objective: Objective = "information",
    recipe: Recipe | Mapping[str, Any] = ALPHA_RECIPE,
    penalty: float = 1.0,
    shared: Statistics | None = None,
    space: FeatureSpace | None = None,
    frozen: TaskView | None = None,
    seed: int = 0,
    evidence: Tensor | None = None,
) -> TaskGuess:
    """Finds the task of a batch of inputs (n, ...), n >= 1, all of one task.

    - tasks: read one after another under "exhaustive", and held all at once by the others.
    - inputs: unlabelled inputs, as the network takes them.
    - method: "auto" is "exhaustive".
    - objective: the loss of the superposition. "information" is the mean entropy minus the
      entropy of the mean; it ranks far better, and "alpha" does not collapse. Plain "entropy" is
      the papers' form.
    - recipe: for "alpha", a `Recipe` or a mapping of entries to change.
    - penalty: for "alpha", λ of the paper's eq. 2.
    - shared: norm statistics that all tasks share.
    - space, frozen: the coordinates of features in which tasks know their inputs, and the frozen
      network itself, which gives these.
    - seed: for "alpha".
    - evidence: (n, T) of a `ClassMap` for "exhaustive", which then does not judge tasks by their
      predictions.

    Raises InputError for no task, no input, an unknown method, and for another method than
    "exhaustive" if tasks cannot be superposed: with their own heads, tuned norms or biases, or a
    start at the network itself.
    """
    check_choice("method", method, METHODS)
    check_choice("objective", objective, OBJECTIVES)
    recipe, penalty = ALPHA_RECIPE.changed(recipe), check_number("penalty", penalty, 0.0)
    _check_asked(tasks, inputs)
    some = spread_rows(inputs, JUDGED_INPUTS)
    seen = SeenFeatures.of(backbone, tasks, some, space, frozen)
    if method in ("auto", "exhaustive"):
        outputs = outputs_of_tasks(backbone, bank, tasks, some, seen.features)
        if evidence is not None:
            evidence = evidence[spread_places(len(evidence), JUDGED_INPUTS)]
        return _judge(backbone, outputs, some, "exhaustive", seen, evidence)
    tasks = list(tasks)
    parts = [_superposed(backbone, task, method) for task in tasks]
    num_classes = max(task.num_classes for task in tasks)
    superposition = Superposition(backbone, bank, parts, num_classes, shared)
    loss = OBJECTIVES[objective]
    names = [task.name for task in tasks]
    if method == "one_shot":
        # The posterior is what equal shares become by one exponentiated-gradient step of size 1.
        # No task is run, so nothing speaks for "unknown".
        slopes = superposition.one_shot(inputs, loss)
        return _guess(names, (-slopes.double()).softmax(dim=0), int(slopes.argmin()), 0.0, method)
    mixture, order = superposition.alpha(inputs, loss, recipe, penalty, seed)
    shortlist = [tasks[place] for place in order[:SHORTLIST]]
    outputs = outputs_of_tasks(backbone, bank, shortlist, some, seen.features)
    guess = _judge(backbone, outputs, some, method, seen)
    posterior = dict.fromkeys(names, 0.0) | guess.posterior
    # The optimum may lie at another task than the judged one; then that task's own weights serve.
    best = next(task.view() for task in shortlist if task.name == guess.best)
    losses = [information_maximisation(view.logits(backbone, some)) for view in (mixture, best)]
    chosen = mixture if losses[0] <= losses[1] else best
    return replace(guess, posterior=posterior, mixture=chosen)


@torch.no_grad()
@clear_calls
def guess_tasks(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    space: FeatureSpace | None = None,
    frozen: TaskView | None = None,
    evidence: Tensor | None = None,
) -> list[TaskGuess]:
    """The task of each input, judged by itself: inputs (n, ...), n >= 1, may be of several tasks.

    Equal to `guess_task` by "exhaustive" of one input after the other, but runs a task on many
    inputs at once. Arguments and errors as there.
    """
    _check_asked(tasks, inputs)
    guesses: list[TaskGuess] = []
    # Where norms use a batch's statistics, an input alone is a batch of one.
    at_once = 1 if backbone.normalises_by_batch else JUDGED_INPUTS
    for part in inputs.split(even_parts(len(inputs), at_once)):
        seen = SeenFeatures.of(backbone, tasks, part, space, frozen)
        outputs = list(outputs_of_tasks(backbone, bank, tasks, part, seen.features))
        for row in range(len(part)):
            one = slice(row, row + 1)
            alone = [each._replace(logits=each.logits[:, one]) for each in outputs]
            place, row_seen = len(guesses), seen.rows(one)
            own = None if evidence is None else evidence[place : place + 1]
            guesses.append(_judge(backbone, alone, part[one], "exhaustive", row_seen, own))
    return guesses


def _check_asked(tasks: Collection[KnownTask], inputs: Tensor | Inputs) -> None:
    if not tasks:
        raise InputError("the learner has no task to choose from; learn one first")
    if len(inputs) == 0:
        raise InputError("the data hold no example")


def _superposed(backbone: Backbone, task: KnownTask, method: str) -> Mixture | Mapping[str, Tensor]:
    """A task as a superposition takes it. Raises InputError for one that cannot be superposed."""
    part = task.mixture() if task.mixture else task.view().weights
    if backbone.own_head is None:
        if isinstance(part, Mixture):
            if not part.residual:
                return part
        elif part.keys() == backbone.weights.keys():
            return part
    raise InputError(
        "tasks that start at the network, tune norms or have their own heads cannot be superposed "
        f"for {method!r}; use method='exhaustive'"
    )


def _guess(
    names: Sequence[str], likely: Tensor, best: int, unknown: float, method: str
) -> TaskGuess:
    """The verdict from the probabilities (T,) of tasks, and of "unknown"."""
    probabilities = likely.tolist()
    rivals = [unknown, *probabilities[:best], *probabilities[best + 1 :]]
    hypotheses = likely.new_tensor([*probabilities, unknown])
    return TaskGuess(
        best=names[best],
        posterior=dict(zip(names, probabilities, strict=True)),
        unknown_probability=unknown,
        entropy=float(torch.special.entr(hypotheses).sum()),
        margin=probabilities[best] - max(rivals),
        method=method,
    )


def _judge(
    backbone: Backbone,
    outputs: Iterable[Outputs],
    inputs: Tensor | Inputs,
    method: str,
    seen: SeenFeatures,
    evidence: Tensor | None = None,
) -> TaskGuess:
    """From the logits of tasks: the posterior over them and over "none of them".

    Against a task count the information objective of its predictions, over log K and a
    temperature, and how unlike its own inputs these are, since a wrong task may be as sure of few
    inputs as the right one. Inputs of a batch are not independent evidence: both are multiplied by
    the root of their number. "None" is as likely as the best task at that task's threshold.
    Evidence (n, T) of a class map takes the place of both.
    """
    strength = math.sqrt(len(inputs))
    judged: list[tuple[int, str, float]] = []
    leader: tuple[float, int, Tensor, KnownTask] | None = None
    for positions, members, logits in outputs:
        if evidence is not None:
            losses = -strength * evidence[:, positions].mean(dim=0)
        elif seen.relative:
            losses = strength * _objective(members, logits, RATIO_TEMPERATURE)
            # A task that does not know its features has the ratio of any input, 1.
            for place, task in enumerate(members):
                ratio = -float(seen.relative.get(task.name, seen.central.new_zeros(1)).mean()) / 2
                losses[place] -= RATIO_WEIGHT * strength * ratio
        else:
            losses = strength * _objective(members, logits)
            losses += input_mismatch(backbone, members, inputs, logits)
        names = [task.name for task in members]
        judged += zip(positions, names, losses.tolist(), strict=True)
        place = int(losses.argmin())
        lead = float(losses[place]), positions[place]
        if leader is None or lead < leader[:2]:
            leader = *lead, logits[place].clone(), members[place]
    assert leader is not None
    _, in_order, losses_in_order = zip(*sorted(judged), strict=True)
    lowest, best, logits, winner = leader
    profile = winner.profile
    if isinstance(profile, FeatureProfile):
        odds = UNKNOWN_SLOPE * profile.excess(seen.relative[winner.name], seen.central)
    else:
        odds = unknown_odds(backbone, profile, inputs, logits)
    losses_and_none = torch.tensor([*losses_in_order, lowest - odds], dtype=torch.float64)
    likely = (-losses_and_none).softmax(dim=0)
    return _guess(in_order, likely[:-1], best, float(likely[-1]), method)


def _objective(
    tasks: Sequence[KnownTask], logits: Tensor, temperature: float | None = None
) -> Tensor:
    """(T,) the information objective of each task's predictions, over log K and a temperature.

    - temperature: of all tasks; None for each one's by its statistics.
    """
    largest = largest_entropy(tasks[0].num_classes)
    objective = information_maximisation(logits, PRIOR).double().cpu() / largest
    temperatures = []
    for task in tasks:
        few = task.statistics is not None and task.statistics.has_few_features
        temperatures.append(temperature or (FEW_FEATURES_TEMPERATURE if few else TEMPERATURE))
    return objective / objective.new_tensor(temperatures)


def input_mismatch(
    backbone: Backbone, tasks: Sequence[KnownTask], inputs: Tensor | Inputs, logits: Tensor
) -> Tensor:
    """(T,) how much the inputs differ from each task's own, in nats; 0 without statistics.

    A squared distance times `DISTANCE_WEIGHT` and the root of the number of inputs. Of few features
    all means are known: a Gaussian's evidence, all of it independent, times `FEW_FEATURES_WEIGHT`.
    """
    mismatch = torch.zeros(len(tasks), dtype=torch.float64)
    known: dict[int, InputStatistics] = {}
    for place, task in enumerate(tasks):
        if task.statistics is not None:
            known[place] = task.statistics
    if not known:
        return mismatch
    places, statistics = list(known), list(known.values())
    seen = signals(backbone, inputs, logits[places])
    away = distances(statistics, seen).mean(dim=1).double() - (2.0 + len(statistics[0].means))
    if statistics[0].has_few_features:  # the network's inputs decide, so all tasks are alike
        spreads = away.new_tensor([each.spread for each in statistics]).log()
        away = away / 2 + seen.shape[-1] * spreads
        mismatch[places] = FEW_FEATURES_WEIGHT * len(inputs) * away
    else:
        mismatch[places] = DISTANCE_WEIGHT * math.sqrt(len(inputs)) * away
    return mismatch


def unknown_odds(
    backbone: Backbone, profile: TaskProfile | None, inputs: Tensor | Inputs, logits: Tensor
) -> float:
    """The logarithm of how much likelier no task is than the best one, whose logits these are.

    Either the inputs look foreign, or the task is unsure of them: its entropy is nearer to the one
    on shuffled inputs. With few features the entropy says nothing, since linear readouts are often
    unsure of own rows. Without a profile, "none" is impossible.
    """
    if profile is None:
        return -math.inf
    entropy = float(mean_entropy(logits)) / largest_entropy(logits.shape[1])
    unsure = math.sqrt(len(inputs)) / TEMPERATURE * (entropy - profile.entropy_threshold)
    if profile.inputs is None:
        return unsure
    foreign = UNKNOWN_SLOPE * profile.inputs.excess(signals(backbone, inputs, logits))
    return foreign if profile.inputs.has_few_features else max(unsure, foreign)
