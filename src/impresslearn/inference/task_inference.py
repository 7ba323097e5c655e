"""Task inference: finds the task of inputs without labels or a task name (GN in the SupSup paper).

"exhaustive" runs every task and judges it by its predictions and by its profile, which describes
the task's own inputs. A class map of all tasks, if there is one, replaces the profiles. In all
measurements "exhaustive" was at least as accurate as the other methods, so "auto" means
"exhaustive". With very many tasks, a learner passes only those nearest to the inputs.

"one_shot" and "alpha" search in the superposition of all tasks' weights, see `superposition`; then
"alpha" judges the best sixteen tasks as "exhaustive" does. "exhaustive" and "alpha" answer
"unknown" if inputs exceed the thresholds of a task's profile.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_choice, check_number, clear_calls
from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.data import Features, Inputs, even_parts, inputs_behind
from impresslearn.errors import InputError, UnknownTaskError, warn_caller
from impresslearn.inference.class_map import ClassMap
from impresslearn.inference.exhaustive import KnownTask, Outputs, check_wanted, outputs_of_tasks
from impresslearn.inference.feature_scores import FeatureProfile, FeatureSpace, frozen_features
from impresslearn.inference.superposition import Superposition
from impresslearn.inference.unknown import (
    TaskProfile,
    distances,
    exceeded_by,
    largest_entropy,
    signals,
)
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import spread_rows
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.training.loop import Recipe, information_maximisation, mean_entropy

InferenceMethod = Literal["auto", "exhaustive", "one_shot", "alpha"]
OBJECTIVES = {"entropy": mean_entropy, "information": information_maximisation}
ALPHA_RECIPE = Recipe(
    optimizer="rmsprop", lr=0.01, schedule="constant", epochs=0, min_steps=400, batch_size=128
)
JUDGED_INPUTS = 256  # the most inputs of a batch that are judged
# The loss of predictions is divided by this temperature, calibrated on rotated digits.
TEMPERATURE = 0.1
# The weight of a squared distance. 0.5 would be right if the six parts of the distance (two moments
# and four group means) were independent and Gaussian. 0.5 is 1 to 3 points better on digits, but
# finds the task of 78% of single sentences instead of 88%.
DISTANCE_WEIGHT = 0.25
# For inputs of few values: the weight of a Gaussian likelihood, below 1 because values correlate,
# and a temperature that halves the weight of predictions (chosen on three kinds of tables).
FEW_FEATURES_WEIGHT, FEW_FEATURES_TEMPERATURE = 0.75, 0.2
# Over a pretrained network: the weight of a likelihood ratio, below 1 because features are not
# Gaussian, and a high temperature, because the prediction for one input is weak evidence.
RATIO_WEIGHT, RATIO_TEMPERATURE = 0.25, 1.0
# The log odds of "unknown" if the distance exceeds its limit by 1 in units of `exceeded_by`.
UNKNOWN_SLOPE = 3.0


@dataclass(frozen=True)
class TaskGuess:
    """The inferred task of a batch of unlabelled inputs.

    - best: the most likely task.
    - posterior: task -> probability. These and `unknown_probability` add up to 1. With "alpha" all
      but the best 16 tasks have probability 0.
    - unknown_probability: the probability that the inputs belong to none of the tasks.
    - method: the method that found the task.
    - mixture: for "alpha" the optimised mixture, or the best task itself if it fits better.
    - class_index: for a single input and a class map, the index of its class in the best task.
    """

    best: str
    posterior: dict[str, float]
    unknown_probability: float
    method: str
    mixture: TaskView | None = field(default=None, repr=False)
    class_index: int | None = field(default=None, repr=False)

    @property
    def unknown(self) -> bool:
        """Whether "none of the tasks" is more likely than the best task."""
        return self.unknown_probability > self.posterior[self.best]

    @property
    def task(self) -> str | None:
        """The most likely task, or None if unknown."""
        return None if self.unknown else self.best

    @property
    def entropy(self) -> float:
        """The entropy in nats of the probabilities of all tasks and of "unknown"."""
        hypotheses = [*self.posterior.values(), self.unknown_probability]
        return -sum(each * math.log(each) for each in hypotheses if each > 0)

    @property
    def margin(self) -> float:
        """The probability of the best task minus the next highest one, "unknown" included."""
        others = self.posterior | {self.best: self.unknown_probability}
        return self.posterior[self.best] - max(others.values())

    def known(self) -> str:
        """The most likely task. Raises UnknownTaskError if the inputs look like none."""
        if self.unknown:
            raise UnknownTaskError(
                f"the inputs look like none of the tasks: {self.summary()}; name the task, or "
                "infer each input's own task with per_input=True if they come from several"
            )
        return self.best

    def summary(self) -> str:
        """One line of text with both probabilities."""
        return (
            f"best match {self.best!r} with probability {self.posterior[self.best]:.2f}, "
            f"unknown with {self.unknown_probability:.2f}"
        )


class FeatureEvidence(NamedTuple):
    """How well inputs fit each task, judged by their features in the frozen network.

    - features: the inputs with their features; None if no task recognises inputs by features.
    - log_likelihoods: task -> (n,), or (n, K) with a class map, up to a constant; empty if
      `features` is None.
    - foreign: task -> (n,), how much each input differs from the task's own inputs.
    """

    features: Features | None
    log_likelihoods: Mapping[str, Tensor]
    foreign: Mapping[str, Tensor]


@torch.no_grad()
def feature_evidence(
    backbone: Backbone,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    space: FeatureSpace | None,
    frozen: TaskView | None,
    class_map: ClassMap | None,
) -> FeatureEvidence:
    """The evidence in inputs (n, ...); arguments as in `guess_task`."""
    names, foreign = [task.name for task in tasks], dict[str, Tensor]()
    known = {} if class_map is None else class_map.codes
    # An update may have added classes that the map does not have.
    lacking = sum(known.get(task.name, (0,))[0] != task.num_classes for task in tasks)
    if known and lacking:
        line = f"it lacks {lacking} of {len(tasks)} tasks or some of their classes"
        warn_caller(f"the class map is not used, because {line}; pass their data to tell_apart")
    profiled = any(isinstance(task.profile, FeatureProfile) for task in tasks)
    if frozen is None or (lacking and not profiled):
        return FeatureEvidence(None, {}, foreign)
    if not isinstance(inputs, Features):
        backbone.check_inputs(inputs)
    values = frozen_features(backbone, frozen, inputs)
    keys, behind = frozen.feature_keys or (), inputs_behind(inputs)
    features = Features(values, behind, backbone.identity, keys, {})
    # A task without a feature profile gets likelihood ratio 1.
    log_ratios = dict.fromkeys(names, values.new_zeros(len(values)))
    if space is not None:
        coordinates = space.coordinates(values)
        central = space.distances(coordinates)
        for task in tasks:
            check_wanted()
            if isinstance(task.profile, FeatureProfile):
                weights = task.view().weights
                means = task.profile.means_of(space, backbone, weights, task.num_classes)
                relative = space.relative(torch.cdist(coordinates, means).square(), central)
                log_ratios[task.name] = -RATIO_WEIGHT / 2 * relative  # relative is -2 log ratio
                foreign[task.name] = task.profile.scores(relative, central)
    if class_map is not None and not lacking:
        log_ratios = dict(zip(names, class_map.scores(values, names), strict=True))
    return FeatureEvidence(features, log_ratios, foreign)


# inference_mode(False) also turns gradients on, whatever mode the caller is in.
@torch.inference_mode(False)
@clear_calls
def guess_task(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    method: InferenceMethod = "auto",
    *,
    objective: Literal["information", "entropy"] = "information",
    recipe: Recipe | Mapping[str, Any] = ALPHA_RECIPE,
    penalty: float = 1.0,
    shared: Statistics | None = None,
    space: FeatureSpace | None = None,
    frozen: TaskView | None = None,
    class_map: ClassMap | None = None,
    seed: int = 0,
) -> TaskGuess:
    """Finds the task of a batch of inputs (n, ...), n >= 1, all of one task.

    - tasks: the possible tasks. "exhaustive" loads one after another, other methods load all.
    - inputs: unlabelled inputs in the form that the network takes.
    - method: "auto" is "exhaustive" here.
    - objective: the loss of the superposed network. "entropy", from both papers, is the mean
      entropy of the predictions. "information" subtracts the entropy of the mean prediction. Over
      weights of gain 2 (see `create_backbone`) "information" ranks tasks far better. Over some
      networks it keeps "alpha" from predicting one class for all inputs. But for 100 permuted
      tasks "alpha" found the right one more often with "entropy".
    - recipe, seed: for "alpha". The recipe is a `Recipe` or a mapping of entries to change.
    - penalty: for "alpha", λ of the paper's eq. 2.
    - shared: norm statistics that all tasks share.
    - space, frozen: for tasks with feature profiles, the coordinates of these profiles, and the
      frozen network, which computes the features.
    - class_map: "exhaustive" uses it in place of the profiles if it has all tasks.

    Raises InputError for no task, no input and an unknown method. "one_shot" and "alpha" raise it
    for tasks that cannot be superposed: with own head, tuned norms or biases, or start="network".
    """
    check_choice("method", method, get_args(InferenceMethod))
    check_choice("objective", objective, OBJECTIVES)
    recipe, penalty = ALPHA_RECIPE.changed(recipe), check_number("penalty", penalty, 0.0)
    _check_not_empty(tasks, inputs)
    sample = spread_rows(inputs, JUDGED_INPUTS)
    if method in ("auto", "exhaustive"):
        evidence = feature_evidence(backbone, tasks, sample, space, frozen, class_map)
        return _judge(backbone, bank, tasks, sample, evidence, len(sample))[0]
    tasks = list(tasks)
    weights = [_superposable(backbone, task, method) for task in tasks]
    num_classes = max(task.num_classes for task in tasks)
    superposition = Superposition(backbone, bank, weights, num_classes, shared)
    loss = OBJECTIVES[objective]
    names = [task.name for task in tasks]
    if method == "one_shot":
        # One exponentiated-gradient step of size 1 turns equal shares into the posterior. No task
        # is run, so "unknown" has probability 0.
        slopes = superposition.one_shot(inputs, loss)
        likely = dict(zip(names, (-slopes.double()).softmax(dim=0).tolist(), strict=True))
        return TaskGuess(names[int(slopes.argmin())], likely, 0.0, method)
    mixture, order = superposition.alpha(inputs, loss, recipe, penalty, seed)
    # Judge sixteen, because the order of the shares is unreliable for small batches.
    shortlist = [tasks[place] for place in order[:16]]
    no_features = FeatureEvidence(None, {}, {})  # tasks that can be superposed have no own heads
    (guess,) = _judge(backbone, bank, shortlist, sample, no_features, len(sample))
    posterior = dict.fromkeys(names, 0.0) | guess.posterior
    # The mixture may fit worse than the best task's own weights: keep the better of the two.
    best = next(task.view() for task in shortlist if task.name == guess.best)
    losses = [
        information_maximisation(view.logits(backbone, sample)) / largest_entropy(view.num_classes)
        for view in (mixture, best)
    ]
    chosen = mixture if losses[0] <= losses[1] else best
    return replace(guess, posterior=posterior, method=method, mixture=chosen)


@torch.no_grad()
@clear_calls
def guess_tasks(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    space: FeatureSpace | None = None,
    frozen: TaskView | None = None,
    class_map: ClassMap | None = None,
) -> list[TaskGuess]:
    """Finds the task of each input separately: inputs (n, ...), n >= 1, may be of several tasks.

    Equal to `guess_task` with "exhaustive" for each input, but runs a task on many inputs at once.
    Arguments and errors are the same.
    """
    _check_not_empty(tasks, inputs)
    guesses: list[TaskGuess] = []
    # If norms use the statistics of the batch, inputs must be run in batches of one.
    at_once = 1 if backbone.normalises_by_batch else JUDGED_INPUTS
    for part in inputs.split(even_parts(len(inputs), at_once)):
        evidence = feature_evidence(backbone, tasks, part, space, frozen, class_map)
        guesses += _judge(backbone, bank, tasks, part, evidence, 1)
    return guesses


def _check_not_empty(tasks: Collection[KnownTask], inputs: Tensor | Inputs) -> None:
    if not tasks:
        raise InputError("the learner has no task to choose from; learn one first")
    if len(inputs) == 0:
        raise InputError("the data hold no example")


def check_task_names(tasks: Any, count: int) -> list[str]:
    """The task names of a batch, one per input. Raises InputError unless there are `count`."""
    if isinstance(tasks, str):
        return [tasks] * count
    names = list(tasks) if isinstance(tasks, Iterable) else [tasks]
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"task must be a name, one name per input, or None, got {name!r}")
    if len(names) != count:
        line = f"{count} inputs came with {len(names)} task names; give one string for all of them"
        raise InputError(f"{line}, or a list of {count}")
    return names


def _superposable(
    backbone: Backbone, task: KnownTask, method: str
) -> Coefficients | Mapping[str, Tensor]:
    """A task as `Superposition` takes it. Raises InputError for tasks that it cannot add up."""
    weights = task.mixture() if task.mixture else task.view().weights
    if isinstance(weights, Coefficients):
        fits = not weights.residual
    else:
        fits = weights.keys() == backbone.weights.keys()
    if fits and backbone.own_head is None:
        return weights
    raise InputError(
        "tasks that start at the network, tune norms or have their own heads cannot be superposed "
        f"for {method!r}; use method='exhaustive'"
    )


def _judge(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    evidence: FeatureEvidence,
    size: int,
) -> list[TaskGuess]:
    """A guess for each batch of `size` inputs, by running every task ("exhaustive")."""
    names, positions, parts = [task.name for task in tasks], list[int](), []
    for part in outputs_of_tasks(backbone, bank, tasks, inputs, evidence.features):
        positions += part.positions
        parts.append(_losses_and_log_odds(backbone, part, inputs, evidence, size))
    order = np.argsort(positions)
    columns = [torch.cat(each)[order].T for each in zip(*parts, strict=True)]
    guesses = []
    for loss, log_odds, classes in zip(*columns, strict=True):
        best = int(loss.argmin())
        # At the best task's threshold log odds are 0: "unknown" is then as likely as this task.
        unknown_score = log_odds[best] - loss[best]
        *likely, unknown = torch.cat([-loss, unknown_score[None]]).softmax(dim=0).tolist()
        posterior = dict(zip(names, likely, strict=True))
        index = int(classes[best]) if classes[best] >= 0 else None
        guesses.append(TaskGuess(names[best], posterior, unknown, "exhaustive", None, index))
    return guesses


def _losses_and_log_odds(
    backbone: Backbone, part: Outputs, inputs: Tensor | Inputs, evidence: FeatureEvidence, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(T, batches) each: losses of T tasks, log odds of "unknown" against a task, and classes.

    A task's loss is the sum of two terms. The first is the information objective of its
    predictions, divided by log K and a temperature. The second is the mismatch between the inputs
    and the task's own inputs, because a wrong task may be as certain of a few inputs as the right
    one. Both are multiplied by √size, because the inputs of a batch are not independent. For inputs
    of few values, however, the mismatch is multiplied by size. Over a pretrained network the
    mismatch is the negative log likelihood of the inputs' features. With a class map it includes
    the predictions, and the first term is dropped.

    "unknown" becomes likely if the inputs look foreign to the task, or if the entropy of its
    predictions is above the task's threshold. (The entropy does not count with feature profiles
    or for inputs of few values.) "unknown" is impossible for a task without a profile. The class
    comes from the class map, and is -1 without one and for a batch of several inputs.
    """
    root, tasks = math.sqrt(size), part.tasks
    logits = part.logits.unflatten(1, (-1, size))
    # Dividing by log K makes tasks with many and with few classes comparable.
    largest = largest_entropy(logits.shape[-1])
    # The prior adds two uniform predictions, as the mean of few predictions is mostly noise.
    objective = information_maximisation(logits, prior=2.0).double().cpu() / largest
    entropy = mean_entropy(logits).double().cpu() / largest
    log_odds = torch.full_like(objective, -math.inf)
    described: dict[int, TaskProfile] = {}  # tasks whose profile has statistics of their inputs
    for place, task in enumerate(tasks):
        profile = task.profile
        if isinstance(profile, TaskProfile):
            log_odds[place] = root / TEMPERATURE * (entropy[place] - profile.entropy_threshold)
            if profile.means:
                described[place] = profile
        elif profile is not None and task.name in evidence.foreign:
            away = evidence.foreign[task.name].double().cpu().view(-1, size)
            log_odds[place] = UNKNOWN_SLOPE * exceeded_by(profile.limits, away)
    mismatch, temperature = torch.zeros_like(objective), torch.full((len(tasks), 1), TEMPERATURE)
    classes = torch.full_like(objective, -1).long()
    if described:
        places, profiles = list(described), list(described.values())
        values = signals(backbone, inputs, part.logits[places])
        mismatch[places], foreign = _mismatch(profiles, values, size)
        if profiles[0].has_few_features:
            # "unknown" ignores entropy: linear readouts are often unsure of a task's own rows.
            temperature[places], log_odds[places] = FEW_FEATURES_TEMPERATURE, foreign
        else:
            log_odds[places] = torch.maximum(log_odds[places], foreign)
    if evidence.log_likelihoods:
        # Features of a pretrained network are better evidence than statistics of the inputs.
        temperature = torch.tensor(RATIO_TEMPERATURE)
        likely = torch.stack([evidence.log_likelihoods[task.name] for task in tasks])
        if likely.dim() > 2:
            joint = likely + part.logits.double().cpu().log_softmax(dim=2)
            classes = joint.argmax(dim=2) if size == 1 else classes
            likely, temperature = joint.logsumexp(dim=2), torch.tensor(math.inf)
        mismatch = -root * likely.double().cpu().unflatten(1, (-1, size)).mean(dim=2)
    return root / temperature * objective + mismatch, log_odds, classes


def _mismatch(profiles: list[TaskProfile], values: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(T, batches) each: the mismatch of inputs with T tasks; log odds that they are foreign."""
    away = distances(profiles, values).double().unflatten(1, (-1, size))
    limits = away.new_tensor([profile.limits for profile in profiles]).T[..., None]
    foreign = UNKNOWN_SLOPE * exceeded_by(limits, away)
    # Subtract the mean distance of a task's own inputs, see `distances`.
    excess = away.mean(dim=2) - (2.0 + len(profiles[0].means))
    if not profiles[0].has_few_features:
        return DISTANCE_WEIGHT * math.sqrt(size) * excess, foreign
    # The negative log likelihood, up to a constant, of a Gaussian with one spread for all values:
    # half the squared distance, plus the log of the spread once per value.
    spreads = away.new_tensor([[profile.spread] for profile in profiles]).log()
    return FEW_FEATURES_WEIGHT * size * (excess / 2 + values.shape[-1] * spreads), foreign
