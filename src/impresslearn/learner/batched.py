"""The verbs: coefficients of many tasks, and many masks of one, learned side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from impresslearn.coefficients.learning import priced_weights
from impresslearn.coefficients.mixing import Coefficients, CoefficientSpec
from impresslearn.coefficients.parameters import unknowns
from impresslearn.data import Examples, TensorBatches, to_batches
from impresslearn.learner.batched_problems import Problem, SideBySide, Weights, stacked
from impresslearn.learner.batched_trial import how_many
from impresslearn.masks import PopupScores, train_masks_in_turn
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import TrainingData
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.loop import Recipe, fit
from impresslearn.optimisation.objectives import cross_entropy
from impresslearn.optimisation.progress import Progress, silent

Key = TypeVar("Key")


def wanted(backbone: Backbone, batched: bool | None) -> bool:
    """Whether to run problems side by side where that is possible: by default on a GPU only."""
    return backbone.device.type == "cuda" if batched is None else batched


def alike(prepared: Mapping[str, TrainingData]) -> list[list[str]]:
    """Names in groups of the same sizes, held in memory; others alone."""
    groups: dict[object, list[str]] = {}
    for name, (examples, classes) in prepared.items():
        key: object = name
        if isinstance(examples, Examples):
            key = len(classes), examples.inputs.shape, examples.inputs.dtype
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def learn_coefficients_together(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Mapping[str, TrainingData],
    spec: CoefficientSpec | None,
    recipe: Recipe,
    penalty: float,
    seeds: Mapping[str, int],
    phase: TrainingPhase,
    progress: Progress = silent,
) -> Iterator[tuple[Sequence[str], list[Coefficients] | None]]:
    """What `learn_coefficients` gives for tasks of the same sizes, up to rounding.

    Yields names and their coefficients, as many at a time as the memory holds; None for tasks that
    have to be learned one by one.
    """

    def problem(name: str) -> Problem:
        examples, classes = tasks[name]
        source = to_batches(examples, classes, backbone.device)
        assert isinstance(source, TensorBatches)
        unknown = unknowns(bank, backbone.weights, spec)
        rest = (bank, unknown, spec, penalty, len(source))
        return Problem(
            unknown.parameters,
            lambda: priced_weights(backbone, *rest),
            source,
            seeds[name],
            unknown.result,
        )

    num_classes = len(next(iter(tasks.values()))[1])
    return _solved(backbone, phase, list(tasks), problem, num_classes, recipe, progress)


def train_masks_together(
    backbone: Backbone,
    source: TensorBatches,
    num_classes: int,
    ones: Sequence[int],
    recipe: Recipe,
    seeds: Sequence[int],
    rule: str,
    phase: TrainingPhase,
    progress: Progress = silent,
) -> list[Weights]:
    """The masks of `train_masks_in_turn`, up to rounding near the threshold."""

    def problem(seed: int) -> Problem:
        scores = PopupScores.create(backbone.layers, ones, seed, rule, backbone.device)
        return Problem(
            scores.tensors,
            lambda: (scores.weights(backbone.weights), 0.0),
            source,
            seed,
            scores.masks,
        )

    how = (backbone, source, num_classes, ones, recipe)
    masks: list[Weights] = []
    for some, found in _solved(backbone, phase, seeds, problem, num_classes, recipe, progress):
        if found is None:
            trained = train_masks_in_turn(*how, some, rule, phase, progress)
            found = [each.mask for each in trained]
        masks += found
    return masks


def _solved(
    backbone: Backbone,
    phase: TrainingPhase,
    keys: Sequence[Key],
    problem: Callable[[Key], Problem],
    num_classes: int,
    recipe: Recipe,
    progress: Progress,
) -> Iterator[tuple[Sequence[Key], list[Any] | None]]:
    """Keys and the results of their problems, as many at a time as fit; None: one by one."""
    most = 1
    gathers = phase.mode == "train" and phase.statistics is not None
    if len(keys) > 1 and not gathers:
        # In a thread of its own: that has its own views of the network, with whatever they count.
        with ThreadPoolExecutor(1) as thread:
            pair = [problem(key) for key in keys[:2]]
            most = thread.submit(how_many, backbone, phase, pair, recipe).result()
    while most > 1 and len(keys) > 1:
        some, found = keys[:most], None
        problems = [problem(key) for key in some]
        try:
            found = _run(problems, backbone, phase, num_classes, recipe, progress)
        except torch.OutOfMemoryError:
            most = len(some) // 2
            continue
        except Exception:  # one by one says which of them fails, and why
            pass
        keys = keys[len(some) :]
        yield some, found
    if keys:
        yield keys, None


def _run(
    problems: Sequence[Problem],
    backbone: Backbone,
    phase: TrainingPhase,
    num_classes: int,
    recipe: Recipe,
    progress: Progress,
) -> list[Any]:
    def own_loss(weights: Weights, inputs: Tensor, targets: Tensor) -> Tensor:
        logits = phase.forward(backbone, weights, inputs)[:, :num_classes]
        return cross_entropy(logits, targets, recipe.label_smoothing)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        made = [problem.weights() for problem in problems]
        weights = stacked([weights for weights, _ in made])
        own = torch.vmap(own_loss, in_dims=(0, 1, 1))(weights, inputs, targets)
        return own.sum() + sum(price for _, price in made)

    parameters = [tensor for problem in problems for tensor in problem.parameters]
    fit(parameters, loss, SideBySide(problems), recipe, problems[0].seed, progress)
    return [problem.result() for problem in problems]
