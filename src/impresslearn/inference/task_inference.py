"""Which task is this? Task inference without labels or a task name (SupSup's GN setting).

"exhaustive" runs every task and judges it by its predictions and its profile. A class map of all
tasks takes the place of the profiles. "exhaustive" was at least as accurate as the others in all
measurements, so "auto" is the same, except that among many tasks over a pretrained network a
learner passes only the nearest. The other methods search in the weighted sum of all tasks' weights,
their superposition. "one_shot" starts at equal shares and takes the task whose share has the most
negative gradient (Wortsman et al. 2020). "alpha" optimises the shares per layer (the ImpressLearn
paper), judges the best sixteen tasks, and also returns the mixture it found. A judged task competes
with "unknown", by the thresholds in its profile.
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
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.class_map import ClassMap
from impresslearn.inference.exhaustive import KnownTask, Outputs, check_wanted, outputs_of_tasks
from impresslearn.inference.feature_scores import (
    FeatureProfile,
    FeatureSpace,
    frozen_features,
    head_of,
)
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
METHODS = get_args(InferenceMethod)
ObjectiveName = Literal["information", "entropy"]
OBJECTIVES = {"entropy": mean_entropy, "information": information_maximisation}
ALPHA_RECIPE = Recipe(
    optimizer="rmsprop", lr=0.01, schedule="constant", epochs=0, min_steps=400, batch_size=128
)
# "alpha" judges this number of tasks: the order of its shares is unreliable for small batches.
ALPHA_SHORTLIST = 16
JUDGED_INPUTS = 256  # of a batch, at most
# The loss of predictions is divided by this, calibrated on rotated digits.
TEMPERATURE = 0.1
# The number of uniform predictions added to a judged batch. Without them the entropy of the mean of
# few predictions is mostly noise.
PRIOR = 2.0
# The weight of a squared distance. For a Gaussian it would be 0.5, but the six squares that are
# summed (of two moments and four group means) are dependent.
# 0.5 is 1 to 3 points better on digits, but 10 worse on single sentences (78, not 88%).
DISTANCE_WEIGHT = 0.25
# For inputs of few values: the share of a Gaussian's evidence that counts, as values correlate,
# and a temperature that halves the weight of predictions (chosen on three kinds of tables).
FEW_FEATURES_WEIGHT, FEW_FEATURES_TEMPERATURE = 0.75, 0.2
# Over a pretrained network: the share of a likelihood ratio that counts, as features are not
# Gaussian, and a temperature that gives predictions little weight: for one input they say little.
RATIO_WEIGHT, RATIO_TEMPERATURE = 0.25, 1.0
# Log odds of "unknown" for a distance one width above its limit, see `exceeded_by`.
UNKNOWN_SLOPE = 3.0


@dataclass(frozen=True)
class TaskGuess:
    """The verdict on a batch of unlabelled inputs.

    - best: the most likely task.
    - posterior: task -> probability; with `unknown_probability` they add up to 1. With "alpha" all
      but the best 16 have 0.
    - unknown_probability: that the inputs belong to none of the tasks.
    - method: how it was found.
    - mixture: for method "alpha" the optimised mixture, or the best task itself if it fits better.
    - class_index: of a single input, its class among those of the task, by a class map; or None.
    """

    best: str
    posterior: dict[str, float]
    unknown_probability: float
    method: str
    mixture: TaskView | None = field(default=None, repr=False)
    class_index: int | None = field(default=None, repr=False)

    @property
    def unknown(self) -> bool:
        """Whether being none of the tasks is the most likely explanation."""
        return self.unknown_probability > self.posterior[self.best]

    @property
    def task(self) -> str | None:
        """The most likely task, or None if unknown."""
        return None if self.unknown else self.best

    @property
    def entropy(self) -> float:
        """The entropy of all these probabilities, in nats."""
        hypotheses = [*self.posterior.values(), self.unknown_probability]
        return -sum(each * math.log(each) for each in hypotheses if each > 0)

    @property
    def margin(self) -> float:
        """Probability of the best minus probability of the next hypothesis, unknown included."""
        others = self.posterior | {self.best: self.unknown_probability}
        return self.posterior[self.best] - max(others.values())

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


class FeatureEvidence(NamedTuple):
    """How well inputs fit each task, judged by their features in the frozen network.

    - features: the inputs with these features; None if no task recognises inputs by them.
    - log_likelihoods: task -> (n,), or (n, K) with a class map, up to a constant; empty
      if `features` is None.
    - foreign: task -> (n,) how unlike the task's own inputs each input is.
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
    """The evidence in inputs (n, ...); arguments as `guess_task`."""
    names, foreign = [task.name for task in tasks], dict[str, Tensor]()
    is_mapped = class_map is not None and set(names) <= set(class_map.codes)
    profiled = any(isinstance(task.profile, FeatureProfile) for task in tasks)
    if frozen is None or not (is_mapped or profiled):
        return FeatureEvidence(None, {}, foreign)
    if not isinstance(inputs, Features):
        backbone.check_inputs(inputs)
    values = frozen_features(backbone, frozen, inputs)
    keys, behind = frozen.feature_keys or (), inputs_behind(inputs)
    features = Features(values, behind, backbone.identity, keys, {})
    # A task without a feature profile has likelihood ratio 1.
    log_ratios = dict.fromkeys(names, values.new_zeros(len(values)))
    if space is not None:
        coordinates = space.coordinates(values)
        central = space.distances(coordinates)
        for task in tasks:
            check_wanted()
            if isinstance(task.profile, FeatureProfile):
                head = head_of(backbone, task.view().weights)
                means = task.profile.means(space.directions(head, task.num_classes))
                away = torch.cdist(coordinates, means).square()
                relative = space.relative(away, central)
                log_ratios[task.name] = -RATIO_WEIGHT / 2 * relative
                foreign[task.name] = task.profile.scores(relative, central)
    if class_map is not None and is_mapped:
        scores = dict(zip(names, class_map.scores(values, names), strict=True))
        return FeatureEvidence(features, scores, foreign)
    return FeatureEvidence(features, log_ratios, foreign)


# Disabling it also turns gradients on, whatever mode the caller is in.
@torch.inference_mode(False)
@clear_calls
def guess_task(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    method: InferenceMethod = "auto",
    *,
    objective: ObjectiveName = "information",
    recipe: Recipe | Mapping[str, Any] = ALPHA_RECIPE,
    penalty: float = 1.0,
    shared: Statistics | None = None,
    space: FeatureSpace | None = None,
    frozen: TaskView | None = None,
    class_map: ClassMap | None = None,
    seed: int = 0,
) -> TaskGuess:
    """Finds the task of a batch of inputs (n, ...), n >= 1, all of one task.

    - tasks: "exhaustive" reads one after another, the other methods hold all at once.
    - inputs: unlabelled inputs, as the network takes them.
    - method: "auto" is "exhaustive" here.
    - objective: the loss of the superposition's predictions. "information" is their mean entropy
      minus the entropy of their mean; it ranks tasks far better than the papers' "entropy", and
      keeps "alpha" from collapsing.
    - recipe: for "alpha", a `Recipe` or a mapping of entries to change.
    - penalty: for "alpha", λ of the paper's eq. 2.
    - shared: norm statistics that all tasks share.
    - space, frozen: the coordinates in which feature profiles of tasks recognise inputs, and the
      frozen network, which computes the features.
    - class_map: if it has all tasks, "exhaustive" judges them by it and what classes they predict.
    - seed: for "alpha".

    Raises InputError for no task, no input, an unknown method, and, unless "exhaustive", for
    tasks that cannot be superposed: with own heads, tuned norms or biases, or start="network".
    """
    check_choice("method", method, METHODS)
    check_choice("objective", objective, OBJECTIVES)
    recipe, penalty = ALPHA_RECIPE.changed(recipe), check_number("penalty", penalty, 0.0)
    _check_not_empty(tasks, inputs)
    judged = spread_rows(inputs, JUDGED_INPUTS)
    evidence = feature_evidence(backbone, tasks, judged, space, frozen, class_map)
    if method in ("auto", "exhaustive"):
        outputs = outputs_of_tasks(backbone, bank, tasks, judged, evidence.features)
        (guess,) = _judge(backbone, outputs, judged, "exhaustive", evidence, len(judged))
        return guess
    tasks = list(tasks)
    weights = [_superposable(backbone, task, method) for task in tasks]
    num_classes = max(task.num_classes for task in tasks)
    superposition = Superposition(backbone, bank, weights, num_classes, shared)
    loss = OBJECTIVES[objective]
    names = [task.name for task in tasks]
    if method == "one_shot":
        # The posterior: equal shares after one exponentiated-gradient step of size 1.
        # No task is run, so "unknown" has probability 0.
        slopes = superposition.one_shot(inputs, loss)
        likely = dict(zip(names, (-slopes.double()).softmax(dim=0).tolist(), strict=True))
        return TaskGuess(names[int(slopes.argmin())], likely, 0.0, method)
    mixture, order = superposition.alpha(inputs, loss, recipe, penalty, seed)
    shortlist = [tasks[place] for place in order[:ALPHA_SHORTLIST]]
    outputs = outputs_of_tasks(backbone, bank, shortlist, judged, evidence.features)
    (guess,) = _judge(backbone, outputs, judged, method, evidence, len(judged))
    posterior = dict.fromkeys(names, 0.0) | guess.posterior
    # The mixture may fit worse than the judged task's own weights; keep the better one.
    best = next(task.view() for task in shortlist if task.name == guess.best)
    losses = [information_maximisation(view.logits(backbone, judged)) for view in (mixture, best)]
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
    class_map: ClassMap | None = None,
) -> list[TaskGuess]:
    """The task of each input, judged by itself: inputs (n, ...), n >= 1, may be of several tasks.

    Equals `guess_task` with "exhaustive" on each input, but runs each task on many inputs at once.
    Same arguments and errors.
    """
    _check_not_empty(tasks, inputs)
    guesses: list[TaskGuess] = []
    # Where norms use a batch's statistics, an input alone is a batch of one.
    at_once = 1 if backbone.normalises_by_batch else JUDGED_INPUTS
    for part in inputs.split(even_parts(len(inputs), at_once)):
        evidence = feature_evidence(backbone, tasks, part, space, frozen, class_map)
        outputs = outputs_of_tasks(backbone, bank, tasks, part, evidence.features)
        guesses += _judge(backbone, outputs, part, "exhaustive", evidence, 1)
    return guesses


def _check_not_empty(tasks: Collection[KnownTask], inputs: Tensor | Inputs) -> None:
    if not tasks:
        raise InputError("the learner has no task to choose from; learn one first")
    if len(inputs) == 0:
        raise InputError("the data hold no example")


def _superposable(
    backbone: Backbone, task: KnownTask, method: str
) -> Coefficients | Mapping[str, Tensor]:
    """A task as a superposition takes it. Raises InputError for one that cannot be superposed."""
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
    outputs: Iterable[Outputs],
    inputs: Tensor | Inputs,
    method: str,
    evidence: FeatureEvidence,
    size: int,
) -> list[TaskGuess]:
    """The verdict on each batch of `size` of the inputs; outputs: of all tasks, in any order."""
    positions: list[int] = []
    names: list[str] = []
    parts = []
    for part in outputs:
        positions += part.positions
        names += [task.name for task in part.tasks]
        parts.append(_losses_and_log_odds(backbone, part, inputs, evidence, size))
    order = np.argsort(positions)
    names = [names[place] for place in order]
    columns = [torch.cat(each)[order].T for each in zip(*parts, strict=True)]
    guesses = []
    for loss, log_odds, classes in zip(*columns, strict=True):
        best = int(loss.argmin())
        # Log odds are 0 at the best task's threshold: "unknown" is then as likely as this task.
        unknown_score = log_odds[best] - loss[best]
        *likely, unknown = torch.cat([-loss, unknown_score[None]]).softmax(dim=0).tolist()
        posterior = dict(zip(names, likely, strict=True))
        index = int(classes[best]) if classes[best] >= 0 else None
        guesses.append(TaskGuess(names[best], posterior, unknown, method, None, index))
    return guesses


def _losses_and_log_odds(
    backbone: Backbone, part: Outputs, inputs: Tensor | Inputs, evidence: FeatureEvidence, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(T, batches) the loss of each task, the log odds of "unknown" against it, and the class.

    A task's loss is the information objective of its predictions, divided by log K and by a
    temperature, plus the mismatch of the inputs with the task's own: a wrong task may be as certain
    of a few inputs as the right one. Both are multiplied by √size, not by size, as a batch's inputs
    are not independent. Only with few features the mismatch is multiplied by size.

    Over a pretrained network the mismatch is the negative log likelihood of the inputs' features.
    By a class map, predictions count in it and the information objective does not.

    Two things speak for "unknown": the inputs look foreign to the task, or its entropy on them is
    above its threshold. Without a profile, "unknown" is impossible. The class is the map's for a
    batch of one, otherwise -1.
    """
    root, tasks = math.sqrt(size), part.tasks
    logits = part.logits.unflatten(1, (-1, size))
    # Divided by log K, so that tasks of many classes can be compared with tasks of few.
    largest = largest_entropy(logits.shape[-1])
    objective = information_maximisation(logits, PRIOR).double().cpu() / largest
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
            # Entropy does not count: linear readouts are often unsure of a task's own rows.
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
    """(T, batches) how badly inputs fit each of T tasks, and the log odds that they are foreign."""
    away = distances(profiles, values).double().unflatten(1, (-1, size))
    limits = away.new_tensor([profile.limits for profile in profiles]).T[..., None]
    foreign = UNKNOWN_SLOPE * exceeded_by(limits, away)
    # The mean distance of own inputs is subtracted, see `distances`.
    excess = away.mean(dim=2) - (2.0 + len(profiles[0].means))
    if not profiles[0].has_few_features:
        return DISTANCE_WEIGHT * math.sqrt(size) * excess, foreign
    # The negative log likelihood of a Gaussian with one spread for all values, up to a constant:
    # half the squared distance, and for each value the log of the spread.
    spreads = away.new_tensor([[profile.spread] for profile in profiles]).log()
    return FEW_FEATURES_WEIGHT * size * (excess / 2 + values.shape[-1] * spreads), foreign
