"""Trains masks and coefficients: data checked, numbers optimised, the result committed.

Nothing is committed unless it was learned to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

from torch import Tensor

from impresslearn.coefficients.learning import learn_coefficients, priced_weights
from impresslearn.coefficients.parameters import trainable_coefficients
from impresslearn.data import Examples, TensorBatches, to_batches
from impresslearn.data.preprocessing import Prepared
from impresslearn.errors import InputError
from impresslearn.learner.batched import Problem, SharedTraining, side_by_side, solve
from impresslearn.masks import MaskTraining, PopupScores, train_masks_in_turn
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks.inputs import TrainingData, training_examples
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.loop import FitResult
from impresslearn.optimisation.progress import Progress
from impresslearn.state.settings import LearnerSettings
from impresslearn.state.state import LearnerState, TrainingRun
from impresslearn.validation import check_name, check_seed, plain_json

Note = Mapping[str, Any]
"""What a caller wants to keep in a task's history: JSON values."""


@dataclass(frozen=True)
class Trainer:
    """Trains masks and coefficients by a learner's settings and commits them to its state."""

    state: LearnerState
    settings: LearnerSettings

    def learn_masks(
        self,
        names: Sequence[str],
        data: Any,
        progress: Progress,
        *,
        seeds: Sequence[int] | None = None,
        batched: bool | None = False,
        note: Note | None = None,
    ) -> None:
        """Trains a mask from each seed on one task; the first mask is the task's own."""
        state, settings, backbone = self.state, self.settings, self.state.backbone
        names = [check_name(name) for name in names]
        state.check_new_masks(names)
        first = self._next_seed()
        chosen = list(range(first, first + len(names)) if seeds is None else map(check_seed, seeds))
        if not len(chosen) == len(set(chosen)) == len(names):
            raise InputError(f"{len(names)} masks need as many distinct seeds, got {chosen}")
        examples, classes = training_examples(backbone, data, settings.preprocessing)
        phase = TrainingPhase.begin(backbone, state.shared)
        watch = Stopwatch(len(examples), note)
        masks, result = self._trained_masks(
            (examples, classes), chosen, phase, progress, side_by_side(backbone, batched)
        )
        state.commit_basis(
            dict(zip(names, masks, strict=True)),
            dict(zip(names, map(settings.mask_recipe, chosen), strict=True)),
            TrainingRun(examples, classes, phase, watch.metrics(result)),
        )

    def _trained_masks(
        self,
        prepared: TrainingData,
        seeds: Sequence[int],
        phase: TrainingPhase,
        progress: Progress,
        batched: bool,
    ) -> tuple[list[dict[str, Tensor]], FitResult | None]:
        """A mask from each seed, and how the first training ended where they ran in turn."""
        backbone, settings = self.state.backbone, self.settings
        examples, classes = prepared
        source = to_batches(examples, classes, backbone.device)
        ones = ones_per_layer(backbone.layers, settings.sparsity, settings.allocation)
        recipe, rule = settings.basis_recipe, settings.score_rule

        def in_turn(some: Sequence[int]) -> list[Any]:
            task = MaskTraining(backbone, source, len(classes), recipe, phase, progress)
            return train_masks_in_turn(task, ones, some, rule)

        if len(seeds) == 1 or not batched or not isinstance(source, TensorBatches):
            trained = in_turn(seeds)
            return [each.mask for each in trained], trained[0].fit

        def problem(seed: int) -> Problem:
            scores = PopupScores.create(backbone.layers, ones, seed, rule, backbone.device)
            return Problem(
                scores.tensors,
                lambda: (scores.weights(backbone.weights), 0.0),
                source,
                seed,
                scores.masks,
            )

        shared = SharedTraining(backbone, phase, len(classes), recipe, progress)
        masks: list[dict[str, Tensor]] = []
        for some, found in solve(shared, seeds, problem):
            masks += [each.mask for each in in_turn(some)] if found is None else found
        return masks, None

    def learn_task(
        self,
        name: str,
        data: Any,
        progress: Progress,
        *,
        seed: int | None = None,
        note: Note | None = None,
    ) -> None:
        """Learns one task's coefficients."""
        state, settings, backbone = self.state, self.settings, self.state.backbone
        name = check_name(name)
        state.check_new_task(name)
        examples, classes = training_examples(backbone, data, settings.preprocessing)
        seed = self._next_seed() if seed is None else check_seed(seed)
        phase, watch = TrainingPhase.begin(backbone, state.shared), Stopwatch(len(examples), note)
        coefficients, result = learn_coefficients(
            backbone,
            state.bank,
            to_batches(examples, classes, backbone.device),
            len(classes),
            settings.coefficient_training,
            seed=seed,
            phase=phase,
            progress=progress,
        )
        run = TrainingRun(examples, classes, phase, watch.metrics(result))
        recipe = settings.task_history(seed)
        state.commit_learned(name, coefficients, settings.precision, recipe, run)

    def learn_tasks(
        self,
        tasks: Mapping[str, Any],
        batched: bool | None,
        progress: Callable[[str], Progress],
    ) -> None:
        """Learns several tasks' coefficients; `batched`: those of one size side by side."""
        tasks = {check_name(name): data for name, data in tasks.items()}
        for name in tasks:
            self.state.check_new_task(name)
        backbone, preprocessing = self.state.backbone, self.settings.preprocessing
        prepared = {
            name: training_examples(backbone, data, preprocessing) for name, data in tasks.items()
        }
        seeds = dict(zip(tasks, count(self._next_seed()), strict=False))
        beside = side_by_side(backbone, batched)
        for names in _of_one_size(prepared) if beside else [[name] for name in tasks]:
            self._learn_batch({name: prepared[name] for name in names}, seeds, progress)

    def _learn_batch(
        self,
        tasks: Mapping[str, TrainingData],
        seeds: Mapping[str, int],
        progress: Callable[[str], Progress],
    ) -> None:
        """Tasks of the same sizes side by side, as far as that gives what one by one gives."""
        state, settings, backbone = self.state, self.settings, self.state.backbone
        examples, classes = next(iter(tasks.values()))
        phase, watch = TrainingPhase.begin(backbone, state.shared), Stopwatch(len(examples))
        training = settings.coefficient_training
        bar = progress(f"{len(tasks)} tasks")
        shared = SharedTraining(backbone, phase, len(classes), training.recipe, bar)

        def problem(name: str) -> Problem:
            source = to_batches(*tasks[name], backbone.device)
            assert isinstance(source, TensorBatches)
            trained = trainable_coefficients(state.bank, backbone.weights, training.spec)
            return Problem(
                trained.parameters,
                lambda: priced_weights(backbone, state.bank, trained, training, len(source)),
                source,
                seeds[name],
                trained.result,
            )

        for names, found in solve(shared, list(tasks), problem):
            for name, coefficients in zip(names, found or repeat(None), strict=False):
                if coefficients is None:
                    data, bar = Prepared(tasks[name][0]), progress(f"task {name}")
                    self.learn_task(name, data, bar, seed=seeds[name])
                    continue
                run = TrainingRun(*tasks[name], phase, watch.metrics())
                recipe = settings.task_history(seeds[name])
                state.commit_learned(name, coefficients, settings.precision, recipe, run)

    def _next_seed(self) -> int:
        return self.settings.seed + self.state.trained()


def _of_one_size(prepared: Mapping[str, TrainingData]) -> list[list[str]]:
    """Names in groups of the same sizes, held in memory; others alone."""
    groups: dict[object, list[str]] = {}
    for name, (examples, classes) in prepared.items():
        key: object = name
        if isinstance(examples, Examples):
            key = len(classes), examples.inputs.shape, examples.inputs.dtype
        groups.setdefault(key, []).append(name)
    return list(groups.values())


class Stopwatch:
    """Measures a training for the task's history: examples, seconds, steps and final loss.

    note: kept with these. Raises InputError for one that cannot be written as JSON.
    """

    def __init__(self, examples: int, note: Note | None = None) -> None:
        self.examples = examples
        if note is not None and not isinstance(note, Mapping):
            raise InputError(f"a note must be a mapping of JSON values, got {type(note).__name__}")
        self.note = None if note is None else plain_json(dict(note), "a note")
        self._started = time.perf_counter()

    def metrics(self, result: FitResult | None = None) -> dict[str, Any]:
        """examples, seconds so far, where known the steps and the final loss (nats), the note."""
        seconds = float(f"{time.perf_counter() - self._started:.3g}")
        found: dict[str, Any] = {"examples": self.examples, "seconds": seconds}
        if result is not None and result.steps:
            found |= {"steps": result.steps, "loss": float(f"{result.final_loss:.4g}")}
        return found | ({"note": self.note} if self.note else {})
