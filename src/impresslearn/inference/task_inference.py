"""Which task is this? Task inference without labels or a task name (SupSup's GN setting).

`exhaustive` runs every task and judges it by its predictions and its profile; a class map, if there
is one, judges alone. It was at least as accurate as the others in all measurements, so "auto" uses
it, and of very many tasks it runs the nearest. The others follow the tasks' superposition:
`one_shot` takes the task of the most negative gradient at equal shares (Wortsman et al. 2020);
`alpha` optimises the shares per layer (the ImpressLearn paper), runs the best sixteen tasks, and
also returns the mixture it found. A judged task competes with "unknown" (no task), by the entropy
and distance thresholds in its profile.
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
# Tasks that are run after α-optimisation: its shares are unreliable for small batches.
ALPHA_SHORTLIST = 16
JUDGED_INPUTS = 256
# The loss of predictions is divided by this. Mean posterior / accuracy with 4 rotated digits is
# then 0.68 / 0.82, with 8 0.74 / 0.77, with 16 0.79 / 0.80, and with 64 0.84 / 0.80.
TEMPERATURE = 0.1
# Uniform predictions added to a judged batch: with two to eight inputs the entropy of the mean is
# mostly noise (the accuracy with 4 rotated digits is 83%, without these predictions 66%).
PRIOR = 2.0
# The weight of a squared distance. A Gaussian's is 0.5, but the six parts of a distance are not
# independent. 0.5 is 1 to 3 points better on digits, 10 worse on single sentences (78, not 88%).
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
    """

    best: str
    posterior: dict[str, float]
    unknown_probability: float
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


class SeenFeatures(NamedTuple):
    """Inputs as tasks see them in the features of the frozen network.

    - features: the inputs with these features; None if no task recognises inputs by them.
    - evidence: task -> (n,) weighted log likelihood of each input, up to a constant.
    - foreign: task -> (n,) distance of each input from the task's own inputs.
    - temperature: of the predictions, when added to this evidence.
    """

    features: Features | None
    evidence: Mapping[str, Tensor]
    foreign: Mapping[str, Tensor]
    temperature: float


@torch.no_grad()
def seen_features(
    backbone: Backbone,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    space: FeatureSpace | None,
    frozen: TaskView | None,
    class_map: ClassMap | None,
) -> SeenFeatures:
    """Inputs (n, ...) as these tasks see them; arguments as `guess_task`."""
    names, foreign = [task.name for task in tasks], dict[str, Tensor]()
    is_mapped = class_map is not None and set(names) <= set(class_map.codes)
    profiled = any(isinstance(task.profile, FeatureProfile) for task in tasks)
    if frozen is None or not (is_mapped or profiled):
        return SeenFeatures(None, {}, foreign, TEMPERATURE)
    if not isinstance(inputs, Features):
        backbone.check_inputs(inputs)
    features = frozen_features(backbone, frozen, inputs)
    keys, behind = frozen.feature_keys or (), inputs_behind(inputs)
    seen = Features(features, behind, backbone.identity, keys, {})
    # A task without a feature profile has ratio 1: log ratio 0.
    evidence = dict.fromkeys(names, features.new_zeros(len(features)))
    if space is not None:
        coordinates = space.coordinates(features)
        central = space.distances(coordinates)
        for task in tasks:
            check_wanted()
            if isinstance(task.profile, FeatureProfile):
                head = head_of(backbone, task.view().weights)
                means = task.profile.means(space.directions(head, task.num_classes))
                away = torch.cdist(coordinates, means).square()
                relative = space.relative(away, central)
                evidence[task.name] = -RATIO_WEIGHT / 2 * relative
                foreign[task.name] = task.profile.scores(relative, central)
    if class_map is not None and is_mapped:
        columns = class_map.evidence(features, names).unbind(dim=1)
        return SeenFeatures(seen, dict(zip(names, columns, strict=True)), foreign, math.inf)
    return SeenFeatures(seen, evidence, foreign, RATIO_TEMPERATURE)


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

    - tasks: read one after another under "exhaustive", and held all at once by the others.
    - inputs: unlabelled inputs, as the network takes them.
    - method: "auto" is "exhaustive" here.
    - objective: the loss of the superposition. "information" is the mean entropy minus the
      entropy of the mean; it ranks tasks far better and keeps "alpha" from collapsing. The
      papers use "entropy".
    - recipe: for "alpha", a `Recipe` or a mapping of entries to change.
    - penalty: for "alpha", λ of the paper's eq. 2.
    - shared: norm statistics that all tasks share.
    - space, frozen: the coordinates of features in which tasks recognise inputs, and the frozen
      network, which computes the features.
    - class_map: if it has all tasks, "exhaustive" judges them by it and not by their predictions.
    - seed: for "alpha".

    Raises InputError for no task, no input, an unknown method, and, unless "exhaustive", for
    tasks that cannot be superposed: with own heads, tuned norms or biases, or start="network".
    """
    check_choice("method", method, METHODS)
    check_choice("objective", objective, OBJECTIVES)
    recipe, penalty = ALPHA_RECIPE.changed(recipe), check_number("penalty", penalty, 0.0)
    _check_not_empty(tasks, inputs)
    some = spread_rows(inputs, JUDGED_INPUTS)
    seen = seen_features(backbone, tasks, some, space, frozen, class_map)
    if method in ("auto", "exhaustive"):
        outputs = outputs_of_tasks(backbone, bank, tasks, some, seen.features)
        return _judge(backbone, outputs, some, "exhaustive", seen, len(some))[0]
    tasks = list(tasks)
    parts = [_superposed(backbone, task, method) for task in tasks]
    num_classes = max(task.num_classes for task in tasks)
    superposition = Superposition(backbone, bank, parts, num_classes, shared)
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
    outputs = outputs_of_tasks(backbone, bank, shortlist, some, seen.features)
    (guess,) = _judge(backbone, outputs, some, method, seen, len(some))
    posterior = dict.fromkeys(names, 0.0) | guess.posterior
    # The mixture may fit worse than the judged task's own weights; keep the better one.
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
        seen = seen_features(backbone, tasks, part, space, frozen, class_map)
        outputs = outputs_of_tasks(backbone, bank, tasks, part, seen.features)
        guesses += _judge(backbone, outputs, part, "exhaustive", seen, 1)
    return guesses


def _check_not_empty(tasks: Collection[KnownTask], inputs: Tensor | Inputs) -> None:
    if not tasks:
        raise InputError("the learner has no task to choose from; learn one first")
    if len(inputs) == 0:
        raise InputError("the data hold no example")


def _superposed(
    backbone: Backbone, task: KnownTask, method: str
) -> Coefficients | Mapping[str, Tensor]:
    """A task as a superposition takes it. Raises InputError for one that cannot be superposed."""
    part = task.mixture() if task.mixture else task.view().weights
    if backbone.own_head is None:
        if isinstance(part, Coefficients):
            if not part.residual:
                return part
        elif part.keys() == backbone.weights.keys():
            return part
    raise InputError(
        "tasks that start at the network, tune norms or have their own heads cannot be superposed "
        f"for {method!r}; use method='exhaustive'"
    )


def _judge(
    backbone: Backbone,
    outputs: Iterable[Outputs],
    inputs: Tensor | Inputs,
    method: str,
    seen: SeenFeatures,
    size: int,
) -> list[TaskGuess]:
    """The verdict on each batch of `size` of these inputs, one after the other.

    "None of the tasks" is as likely as the best task at that task's threshold.
    """
    places: list[int] = []
    names: list[str] = []
    parts = []
    for part in outputs:
        places += part.positions
        names += [task.name for task in part.tasks]
        parts.append(_losses_and_log_odds(backbone, part, inputs, seen, size))
    order = np.argsort(places)
    names = [names[place] for place in order]
    losses, all_log_odds = (torch.cat(each)[order] for each in zip(*parts, strict=True))
    guesses = []
    for loss, log_odds in zip(losses.T, all_log_odds.T, strict=True):
        best = int(loss.argmin())
        none = log_odds[best : best + 1] - loss[best]
        *likely, unknown = torch.cat([-loss, none]).softmax(dim=0).tolist()
        posterior = dict(zip(names, likely, strict=True))
        guesses.append(TaskGuess(names[best], posterior, unknown, method))
    return guesses


def _losses_and_log_odds(
    backbone: Backbone, part: Outputs, inputs: Tensor | Inputs, seen: SeenFeatures, size: int
) -> tuple[Tensor, Tensor]:
    """(T, batches) the loss of each task, and the log odds of "none" against it.

    A task's loss is the information objective of its predictions, divided by log K and by a
    temperature, plus the mismatch of the inputs with the task's own: a wrong task may be as certain
    of a few inputs as the right one. Both are multiplied by √size, as a batch's inputs are not
    independent; with few features the mismatch is multiplied as `_mismatch` says.

    Evidence for "none": the inputs look foreign, or the task's entropy on them is above its
    threshold. Without a profile, "none" is impossible.
    """
    root, tasks = math.sqrt(size), part.tasks
    logits = part.logits.unflatten(1, (-1, size))
    # Divided by log K: tasks of many classes are compared with tasks of few.
    largest = largest_entropy(logits.shape[-1])
    objective = information_maximisation(logits, PRIOR).double().cpu() / largest
    entropy = mean_entropy(logits).double().cpu() / largest
    log_odds = torch.full_like(objective, -math.inf)
    described: dict[int, TaskProfile] = {}  # by statistics of their inputs
    for place, task in enumerate(tasks):
        profile = task.profile
        if isinstance(profile, TaskProfile):
            log_odds[place] = root / TEMPERATURE * (entropy[place] - profile.entropy_threshold)
            if profile.means:
                described[place] = profile
        elif profile is not None and task.name in seen.foreign:
            away = seen.foreign[task.name].double().cpu().view(-1, size)
            log_odds[place] = UNKNOWN_SLOPE * exceeded_by(profile.limits, away)
    mismatch, temperature = torch.zeros_like(objective), torch.full((len(tasks), 1), TEMPERATURE)
    if described:
        places, profiles = list(described), list(described.values())
        values = signals(backbone, inputs, part.logits[places])
        mismatch[places], foreign = _mismatch(profiles, values, size)
        if profiles[0].has_few_features:
            # Entropy does not count as evidence: linear readouts are often unsure of a task's rows.
            temperature[places], log_odds[places] = FEW_FEATURES_TEMPERATURE, foreign
        else:
            log_odds[places] = torch.maximum(log_odds[places], foreign)
    if seen.evidence:
        # Features of a pretrained network are better evidence than statistics of the inputs.
        temperature = torch.tensor(seen.temperature)
        evidence = torch.stack([seen.evidence[task.name] for task in tasks]).double().cpu()
        mismatch = -root * evidence.unflatten(1, (-1, size)).mean(dim=2)
    return root / temperature * objective + mismatch, log_odds


def _mismatch(profiles: list[TaskProfile], values: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(T, batches) how badly inputs fit each of T tasks, and the log odds that they are foreign."""
    away = distances(profiles, values).double().unflatten(1, (-1, size))
    limits = away.new_tensor([profile.limits for profile in profiles]).T[..., None]
    foreign = UNKNOWN_SLOPE * exceeded_by(limits, away)
    # Less what own inputs have on average, see `distances`.
    excess = away.mean(dim=2) - (2.0 + len(profiles[0].means))
    if not profiles[0].has_few_features:
        return DISTANCE_WEIGHT * math.sqrt(size) * excess, foreign
    # The negative log likelihood of a Gaussian with one spread for all values, up to a constant:
    # half the squared distance, and for each value the log of the spread.
    spreads = away.new_tensor([[profile.spread] for profile in profiles]).log()
    return FEW_FEATURES_WEIGHT * size * (excess / 2 + values.shape[-1] * spreads), foreign
