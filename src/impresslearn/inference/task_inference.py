"""Which task is this? Task inference without labels and without a task name (the GN regime).

`exhaustive` runs every task on the inputs and judges it by its own predictions; tasks that share
something are run together (`many_tasks`). The others follow what the tasks' superposition predicts:
`one_shot` takes the task of the most negative gradient at equal shares, as published (Wortsman et
al. 2020); `shortlist` judges the best few of that ranking; `halving` superposes pairs and drops the
worse of each until one is left; `alpha` optimises the shares per layer (the paper) and also returns
the mixture it found. The best few of the last two are judged as well. A judged task competes with
"unknown": that the inputs belong to none, by what the task showed on its own and on foreign ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import TypedDict

from impresslearn.checks import check_choice, check_number
from impresslearn.data import Inputs
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.known_task import KnownTask
from impresslearn.inference.many_tasks import outputs_of_tasks
from impresslearn.inference.profiles import (
    InputStatistics,
    TaskProfile,
    distances,
    largest_entropy,
    signals,
)
from impresslearn.inference.search import Search
from impresslearn.inference.superposition import Superposition
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import spread_rows
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.tables import table_of
from impresslearn.training.loop import Recipe
from impresslearn.training.objectives import information_maximisation, mean_entropy

InferenceMethod = Literal["auto", "exhaustive", "one_shot", "shortlist", "halving", "alpha"]
METHODS = get_args(InferenceMethod)
Objective = Literal["information", "entropy"]
OBJECTIVES: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": mean_entropy,
    "information": information_maximisation,
}
ALPHA_RECIPE = Recipe(
    optimizer="rmsprop", lr=0.01, schedule="constant", epochs=0, min_steps=400, batch_size=128
)
SHOWN = 10
"""Tasks in the table of a notebook."""
SHORTLIST = 16
"""Tasks that are run for real after a search."""
JUDGED_INPUTS = 256
TEMPERATURE = 0.1
"""Calibrated on rotated digits and permuted MNIST (docs/decisions.md)."""
PRIOR = 2.0
"""Uniform predictions beside those of a judged batch (chosen on digits; docs/decisions.md)."""
CLOSENESS = 0.25
"""Of a squared distance, whose six parts are not independent: half of what a Gaussian's would count
(chosen on digits and sentences; docs/decisions.md)."""
NARROW_CLOSENESS, NARROW_TEMPERATURE = 0.75, 0.2
"""Of narrow inputs: the share of a Gaussian's evidence that counts, as values depend on each other,
and a temperature at which predictions say half (chosen on tables; docs/decisions.md)."""
SHARPNESS = 3.0
"""The odds of "unknown" at one width beyond its threshold, as a logarithm."""


class InferenceSettings(TypedDict, total=False):
    """The settings of `guess_task` that its method and objective take."""

    objective: Objective
    recipe: Recipe | Mapping[str, Any]
    penalty: float
    seed: int


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
            raise UnknownTaskError(f"the inputs look like none of the tasks: {self.summary()}")
        return self.best

    def _repr_html_(self) -> str:
        ranked = sorted(self.posterior.items(), key=lambda pair: -pair[1])[:SHOWN]
        rows = [{"task": name, "probability": f"{chance:.3f}"} for name, chance in ranked]
        rows.append({"task": "none of them", "probability": f"{self.unknown_probability:.3f}"})
        return table_of(rows).html()

    def summary(self) -> str:
        """One line for a person."""
        return (
            f"best match {self.best!r} with probability {self.posterior[self.best]:.2f}, "
            f"unknown with {self.unknown_probability:.2f}"
        )


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
    seed: int = 0,
) -> TaskGuess:
    """Finds the task of a batch of inputs (n, ...), n >= 1, all of one task.

    method: "auto" is "exhaustive", which was as right as any other, or more so, and faster than
    halving wherever it was measured (docs/decisions.md). tasks: read one after another under
    "exhaustive", and held all at once by the others. objective: what the superposition minimises:
    "information" (mean entropy minus entropy of the mean; by far the better ranking, and "alpha"
    does not collapse), or plain
    "entropy" as in the papers. recipe, a `Recipe` or a mapping of entries to change, penalty (λ of
    eq. 2) and seed belong to "alpha". shared: norm statistics of all tasks. Raises InputError for
    no task, no input, an unknown method, and for another than "exhaustive" where tasks cannot be
    superposed: with heads of their own, tuned norms or biases, or a start at the network itself.
    """
    check_choice("method", method, METHODS)
    check_choice("objective", objective, OBJECTIVES)
    recipe, penalty = ALPHA_RECIPE.changed(recipe), check_number("penalty", penalty, 0.0)
    if not tasks:
        raise InputError("there is no task to choose from; learn one first")
    if len(inputs) == 0:
        raise InputError("the data hold no example")
    some = spread_rows(inputs, JUDGED_INPUTS)
    if method in ("auto", "exhaustive"):
        return _judge(backbone, bank, tasks, some, "exhaustive")
    tasks = list(tasks)
    mixtures = [task.load() for task in tasks]
    plain = not any(each.residual or each.small is not None for each in mixtures)
    if not plain or backbone.own_head is not None:
        raise InputError(
            "tasks that start at the network, tune norms or have heads of their own are told by "
            f'"exhaustive", not {method!r}'
        )
    search = Search(
        Superposition(backbone, bank, mixtures),
        OBJECTIVES[objective],
        max(task.num_classes for task in tasks),
        shared,
    )
    if method == "one_shot":
        return _ranked(tasks, search.gradient(inputs))
    if method == "alpha":
        mixture, order = search.optimise(inputs, recipe, penalty, seed)
    else:
        order = search.halving(inputs) if method == "halving" else search.one_shot(inputs)
    shortlist = [tasks[i] for i in order[:SHORTLIST]]
    guess = _judge(backbone, bank, shortlist, some, method)
    guess = replace(
        guess, posterior=dict.fromkeys((task.name for task in tasks), 0.0) | guess.posterior
    )
    if method != "alpha":
        return guess
    # The optimum may lie at another task than the judged one; then that task's own weights serve.
    own = next(task.view() for task in shortlist if task.name == guess.best)
    losses = [information_maximisation(view.logits(backbone, some)) for view in (mixture, own)]
    return replace(guess, mixture=mixture if losses[0] <= losses[1] else own)


def _ranked(tasks: Sequence[KnownTask], slopes: Tensor) -> TaskGuess:
    """The task of the most negative gradient; its posterior is no more than that ranking.

    It is what equal shares become by one exponentiated-gradient step of size 1. Nothing is run, so
    that nothing speaks for "unknown".
    """
    likely = (-slopes.double()).softmax(dim=0)
    best = int(slopes.argmin())
    rivals = [0.0, *likely.tolist()[:best], *likely.tolist()[best + 1 :]]
    return TaskGuess(
        best=tasks[best].name,
        posterior=dict(zip((task.name for task in tasks), likely.tolist(), strict=True)),
        unknown_probability=0.0,
        entropy=float(torch.special.entr(likely).sum()),
        margin=float(likely[best]) - max(rivals),
        method="one_shot",
    )


def _judge(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    method: str,
) -> TaskGuess:
    """Runs the tasks: the posterior over them and over "none of them".

    What speaks against a task is the information objective of its own predictions, over log K and
    a temperature, times the root of the number of inputs, which are not independent evidence; and
    how unlike its own the inputs are, as predictions of few inputs tell little: a wrong task may be
    as sure of them. "None" is as likely as the best task where that task's profile has its
    threshold.
    """
    strength = math.sqrt(len(inputs))
    judged: list[tuple[int, str, float]] = []
    leader: tuple[float, int, Tensor, KnownTask] | None = None
    for positions, members, logits in outputs_of_tasks(backbone, bank, tasks, inputs):
        most = largest_entropy(members[0].num_classes)
        found = information_maximisation(logits, PRIOR).double().cpu() / most
        narrow = found.new_tensor([_is_narrow(task) for task in members], dtype=torch.bool)
        found = found / torch.where(narrow, NARROW_TEMPERATURE, TEMPERATURE)
        found = strength * found + _unlikeness(backbone, members, inputs, logits)
        names = (task.name for task in members)
        judged += zip(positions, names, found.tolist(), strict=True)
        place = int(found.argmin())
        this = float(found[place]), positions[place]
        if leader is None or this < leader[:2]:
            leader = *this, logits[place].clone(), members[place]
    if leader is None:
        raise InputError("the tasks were removed meanwhile")
    _, found_names, losses = zip(*sorted(judged), strict=True)
    lowest, best, logits, winner = leader
    odds = unknown_odds(backbone, winner.profile, inputs, logits)
    levels = torch.tensor([*losses, lowest - odds], dtype=torch.float64)
    *likely, unknown = (-levels).softmax(dim=0).tolist()
    rivals = [unknown, *likely[:best], *likely[best + 1 :]]
    return TaskGuess(
        best=winner.name,
        posterior=dict(zip(found_names, likely, strict=True)),
        unknown_probability=unknown,
        entropy=float(torch.special.entr(levels.new_tensor([*likely, unknown])).sum()),
        margin=likely[best] - max(rivals),
        method=method,
    )


def _is_narrow(task: KnownTask) -> bool:
    """Whether the task knows the level of each value of its inputs."""
    kept = None if task.profile is None else task.profile.inputs
    return kept is not None and kept.is_narrow


def _unlikeness(
    backbone: Backbone, tasks: Sequence[KnownTask], inputs: Tensor | Inputs, logits: Tensor
) -> Tensor:
    """(T,) how unlike each task's own ones the inputs are, in nats; 0 for one that cannot tell.

    By squared distances, times `CLOSENESS` and the root of the number of inputs. Of narrow inputs
    all levels are known: a Gaussian's evidence, all of it independent, times `NARROW_CLOSENESS`.
    """
    found = torch.zeros(len(tasks), dtype=torch.float64)
    by_kind: dict[bool, dict[int, InputStatistics]] = {True: {}, False: {}}
    for place, task in enumerate(tasks):
        if task.profile is not None and (kept := task.profile.inputs) is not None:
            by_kind[_is_narrow(task)][place] = kept
    for narrow, known in by_kind.items():
        if known:
            places = list(known)
            seen = signals(backbone, inputs, logits[places])
            away = (
                distances(list(known.values()), seen).mean(dim=1).double() - known[places[0]].usual
            )
            if narrow:
                spreads = away.new_tensor([each.spread for each in known.values()]).log()
                away = away / 2 + seen.shape[-1] * spreads
                found[places] = NARROW_CLOSENESS * len(inputs) * away
            else:
                found[places] = CLOSENESS * math.sqrt(len(inputs)) * away
    return found


def unknown_odds(
    backbone: Backbone, profile: TaskProfile | None, inputs: Tensor | Inputs, logits: Tensor
) -> float:
    """The logarithm of how much likelier no task is than the best one, whose logits these are.

    The inputs may look foreign, or the task may be unsure of them: halfway between what it shows on
    its own and on foreign ones. (Narrow inputs tell all by themselves; a readout is often unsure of
    its own.) Without a profile, "none" is impossible.
    """
    if profile is None:
        return -math.inf
    uncertain = float(mean_entropy(logits)) / largest_entropy(logits.shape[1])
    unsure = math.sqrt(len(inputs)) / TEMPERATURE * (uncertain - profile.doubtful)
    if profile.inputs is None:
        return unsure
    foreign = SHARPNESS * profile.inputs.excess(signals(backbone, inputs, logits))
    return foreign if profile.inputs.is_narrow else max(unsure, foreign)
