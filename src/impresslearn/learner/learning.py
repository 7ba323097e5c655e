"""What the learning verbs do: data checked, numbers optimised, the result committed.

A `LearnerState` is what has been learned so far, `LearnerSettings` how; nothing is committed
unless it was learned to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, repeat
from typing import Any

from impresslearn.coefficients.learning import learn_coefficients
from impresslearn.data import TensorBatches, to_batches
from impresslearn.data.preprocessing import Prepared
from impresslearn.errors import InputError
from impresslearn.learner.batched import (
    alike,
    learn_coefficients_together,
    train_masks_together,
    wanted,
)
from impresslearn.learner.history import Note, Stopwatch
from impresslearn.masks import train_masks_in_turn
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks.inputs import TrainingData, training_examples
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.progress import Progress
from impresslearn.state.settings import LearnerSettings
from impresslearn.state.state import LearnerState
from impresslearn.validation import check_name, check_seed


def learn_masks(
    state: LearnerState,
    settings: LearnerSettings,
    names: Sequence[str],
    data: Any,
    seeds: Sequence[int] | None,
    batched: bool | None,
    note: Note | None,
    progress: Progress,
) -> None:
    """Trains a mask from each seed on one task; the first is the mask of the task of its name."""
    names = [check_name(name) for name in names]
    state.refuse_taken(names)
    first, backbone = _next_seed(state, settings), state.backbone
    chosen = list(range(first, first + len(names)) if seeds is None else map(check_seed, seeds))
    if not len(chosen) == len(set(chosen)) == len(names):
        raise InputError(f"{len(names)} masks need as many distinct seeds, got {chosen}")
    examples, classes = training_examples(backbone, data, settings.preprocessing)
    source = to_batches(examples, classes, backbone.device)
    phase = TrainingPhase.begin(backbone, state.shared)
    watch = Stopwatch(len(examples), note)
    ones = ones_per_layer(backbone.layers, settings.sparsity, settings.allocation)
    how = (ones, settings.basis_recipe, chosen, settings.score_rule, phase, progress)
    beside = len(names) > 1 and wanted(backbone, batched)
    if beside and isinstance(source, TensorBatches):
        masks = train_masks_together(backbone, source, len(classes), *how)
        metrics = watch.metrics()
    else:
        trained = train_masks_in_turn(backbone, source, len(classes), *how)
        masks, metrics = [each.mask for each in trained], watch.metrics(trained[0].fit)
    state.commit_basis(
        dict(zip(names, masks, strict=True)),
        dict(zip(names, map(settings.mask_recipe, chosen), strict=True)),
        (examples, classes),
        phase,
        metrics,
    )


def learn_task(
    state: LearnerState,
    settings: LearnerSettings,
    name: str,
    data: Any,
    seed: int | None,
    note: Note | None,
    progress: Progress,
) -> None:
    """Learns one task's coefficients."""
    name = check_name(name)
    state.refuse_task(name)
    backbone = state.backbone
    examples, classes = training_examples(backbone, data, settings.preprocessing)
    seed = _next_seed(state, settings) if seed is None else check_seed(seed)
    phase, watch = TrainingPhase.begin(backbone, state.shared), Stopwatch(len(examples), note)
    source = to_batches(examples, classes, backbone.device)
    how = (settings.spec, settings.task_recipe, settings.penalty, seed, phase, progress)
    coefficients, result = learn_coefficients(backbone, state.bank, source, len(classes), *how)
    recipe, metrics = settings.task_history(seed), watch.metrics(result)
    prepared = (examples, classes)
    state.commit_learned(name, coefficients, settings.precision, prepared, phase, recipe, metrics)


def learn_tasks(
    state: LearnerState,
    settings: LearnerSettings,
    tasks: Mapping[str, Any],
    batched: bool | None,
    progress: Callable[[str], Progress],
) -> None:
    """Learns several tasks' coefficients, where `batched` wants it many of one size in one loop."""
    tasks = {check_name(name): data for name, data in tasks.items()}
    for name in tasks:
        state.refuse_task(name)
    prepared = {
        name: training_examples(state.backbone, data, settings.preprocessing)
        for name, data in tasks.items()
    }
    seeds = dict(zip(tasks, count(_next_seed(state, settings)), strict=False))
    beside = wanted(state.backbone, batched)
    for names in alike(prepared) if beside else [[name] for name in tasks]:
        _learn_alike(state, settings, {name: prepared[name] for name in names}, seeds, progress)


def _learn_alike(
    state: LearnerState,
    settings: LearnerSettings,
    tasks: Mapping[str, TrainingData],
    seeds: Mapping[str, int],
    progress: Callable[[str], Progress],
) -> None:
    """Tasks of the same sizes side by side, as far as that gives what one by one gives."""
    phase = TrainingPhase.begin(state.backbone, state.shared)
    watch = Stopwatch(len(next(iter(tasks.values()))[0]))
    how = (settings.spec, settings.task_recipe, settings.penalty, seeds, phase)
    bar = progress(f"{len(tasks)} tasks")
    parts = learn_coefficients_together(state.backbone, state.bank, tasks, *how, bar)
    for names, found in parts:
        for name, coefficients in zip(names, found or repeat(None), strict=False):
            if coefficients is None:
                data, bar = Prepared(tasks[name][0]), progress(f"task {name}")
                learn_task(state, settings, name, data, seeds[name], None, bar)
                continue
            recipe, metrics = settings.task_history(seeds[name]), watch.metrics()
            state.commit_learned(
                name, coefficients, settings.precision, tasks[name], phase, recipe, metrics
            )


def _next_seed(state: LearnerState, settings: LearnerSettings) -> int:
    return settings.seed + state.trained()
