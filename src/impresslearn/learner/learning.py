"""Learns masks, coefficients and readouts: data checked, numbers optimised, the result committed.

Nothing is committed unless it was learned to its end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

from impresslearn.checks import check_flag, check_name, check_seed, plain_json
from impresslearn.coefficients.learning import trainable_numbers
from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.data import (
    Examples,
    Inputs,
    Preprocessing,
    StreamedExamples,
    grown_classes,
    to_batches,
)
from impresslearn.data.preprocessing import ImpliedPreprocessing, Prepared
from impresslearn.errors import InputError
from impresslearn.learner.chance import warn_if_at_chance
from impresslearn.learner.readouts import learn_projection, learn_readout
from impresslearn.learner.settings import HIGHEST_PRICE, LearnerSettings
from impresslearn.masks import PopupScores, trainable_scores
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks.inputs import TrainingData, are_pixels, training_examples
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.store import LearnedTask, Store, TaskTable
from impresslearn.store.store import TrainingRun
from impresslearn.training.batched import Problem, solve
from impresslearn.training.loop import FitResult, TaskTraining, with_head
from impresslearn.training.progress import Progress

MAX_PRICE_TRIALS = 8
"""How often the price of bits is raised for a task that takes more than `max_bytes`."""
LEAST_RISE = 1.15
"""The price rises at least by this factor; each further time by the square of the last factor."""
Note = Mapping[str, Any]
"""What a caller wants to keep in a task's history: JSON values."""


@dataclass(frozen=True)
class Fitted:
    """What a training gave: numbers, norm statistics, and how it ended (None: not known)."""

    coefficients: Coefficients
    phase: TrainingPhase
    result: FitResult | None


@dataclass(frozen=True)
class Lesson:
    """All that goes into the history of a task beside how it was trained.

    - pixels: whether its raw inputs are pixels; None where that was left open.
    - note: the caller's own JSON values.
    - started: when its training began (seconds).
    """

    pixels: bool | None
    note: Any
    started: float

    def metrics(self, examples: Sized, result: FitResult | None) -> dict[str, Any]:
        """Number of examples, seconds, steps, final loss (nats), pixels and note."""
        seconds = float(f"{time.perf_counter() - self.started:.3g}")
        metrics: dict[str, Any] = {"examples": len(examples), "seconds": seconds}
        if self.pixels is not None:
            metrics["pixels"] = self.pixels
        if result is not None and result.steps:
            metrics |= {"steps": result.steps, "loss": float(f"{result.final_loss:.4g}")}
        if self.note:
            metrics["note"] = self.note
        return metrics


def preprocessing_of(settings: LearnerSettings, tasks: TaskTable) -> Preprocessing | None:
    """What raw inputs go through: the settings' preprocessing, or what the first task implies.

    Without the latter, uint8 inputs of a task that was learned from the same numbers as floats
    would be scaled to [0, 1] without a warning, or the reverse.
    """
    first = None if settings.preprocessing else tasks.first()
    pixels = None if first is None else first.history.get("metrics", {}).get("pixels")
    return settings.preprocessing if pixels is None else ImpliedPreprocessing(pixels=pixels)


@dataclass(frozen=True)
class Trainer:
    """Learns by a learner's settings and commits to its store.

    - progress: gives the progress of a training with a title.
    """

    store: Store
    settings: LearnerSettings
    progress: Callable[[str], Progress]

    def learn_masks(
        self,
        names: Sequence[str],
        data: Any,
        *,
        seeds: Sequence[int] | int | None = None,
        batched: bool = False,
        note: Note | None = None,
    ) -> None:
        """Trains a mask from each seed on one task; the first mask becomes the task's own."""
        store, settings, backbone = self.store, self.settings, self.store.backbone
        names = [check_name(name) for name in names]
        store.check_new_masks(names)
        chosen = self._seeds(len(names), seeds)
        if not len(chosen) == len(set(chosen)) == len(names):
            raise InputError(f"{len(names)} masks need {len(names)} distinct seeds, got {chosen}")
        note = _checked_note(note)
        examples, classes = training_examples(backbone, data, self._preprocessing)
        lesson = Lesson(self._pixels(data, examples), note, time.perf_counter())
        source = to_batches(examples, classes, backbone.device)
        ones = ones_per_layer(backbone.layers, settings.sparsity, settings.allocation)
        first = TrainingPhase.begin(backbone, store.shared)
        title = f"basis {names[0]}" if len(names) == 1 else f"{len(names)} masks of {names[0]}"
        recipe, progress = settings.basis_recipe, self.progress(title)

        def problem(seed: int) -> Problem:
            # Where all tasks share norm statistics, the others use those that the first gathered.
            phase = first if seed == chosen[0] else TrainingPhase.begin(backbone, first.statistics)
            training = TaskTraining(backbone, source, len(classes), recipe, phase, seed, progress)
            scores = PopupScores.create(
                backbone.layers, ones, seed, settings.score_rule, backbone.device
            )
            return training, with_head(trainable_scores(scores, backbone), backbone, len(classes))

        masks, recipes, heads, fits = {}, {}, [], []
        solved = solve(chosen, problem, check_flag("batched", batched), progress)
        for name, (seed, (_, trained), result) in zip(names, solved, strict=True):
            masks[name], head = trained.result()
            recipes[name] = settings.mask_recipe(seed)
            heads.append(head)
            fits.append(result)
        run = TrainingRun(examples, classes, first, lesson.metrics(examples, fits[0]))
        store.commit_basis(masks, recipes, run, heads[0], settings.precision)
        warn_if_at_chance(store, settings, names[0], (examples, classes), fits[0])

    def learn_tasks(
        self,
        tasks: Mapping[str, Any],
        *,
        seeds: Sequence[int] | int | None = None,
        batched: bool = False,
        note: Note | None = None,
    ) -> None:
        """Learns new tasks; `batched`: those of one size side by side."""
        store, backbone = self.store, self.store.backbone
        if not isinstance(tasks, Mapping):
            kind = type(tasks).__name__
            raise InputError(f"tasks must map names to labelled data, got {kind}")
        tasks = {check_name(name): data for name, data in tasks.items()}
        for name in tasks:
            store.check_new_task(name)
        chosen = dict(zip(tasks, self._seeds(len(tasks), seeds), strict=True))
        note = _checked_note(note)
        prepared: dict[str, TrainingData] = {}
        pixels, how = None, self._preprocessing
        for name, data in tasks.items():
            prepared[name] = training_examples(backbone, data, how)
            if len(prepared) == 1:
                # The first task decides how raw inputs of all the others are taken.
                pixels = self._pixels(data, prepared[name][0])
                how = how if pixels is None or how else ImpliedPreprocessing(pixels=pixels)
        if check_flag("batched", batched) and not self._closed_form:
            self._learn_side_by_side(prepared, chosen, pixels, note)
            return
        for name, data in prepared.items():
            lesson = Lesson(pixels, note, time.perf_counter())
            self._learn_one(name, data, chosen[name], lesson)

    def update_task(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> None:
        """Learns a task further from its present numbers, as its next version."""
        store, backbone = self.store, self.store.backbone
        store.database.check_writable()
        task, note = store.tasks.learned(name), _checked_note(note)
        if task.role == "basis":
            raise InputError(
                f"{name!r} is a basis task: its mask is one that other tasks combine and never "
                "changes; learn the new data as a task of another name"
            )
        (chosen,) = self._seeds(1, seed)
        examples, seen = training_examples(backbone, data, self._preprocessing)
        classes = grown_classes(task.classes, seen, backbone.most_classes)
        lesson = Lesson(self._pixels(data, examples), note, time.perf_counter())
        self._learn_one(name, (examples, classes), chosen, lesson, replaced=task)

    def learn_features(self, data: Sequence[Any], dimensions: int) -> None:
        """Learns the projection of features that later readouts use."""
        store = self.store
        store.database.check_writable()
        prepared = [training_examples(store.backbone, each, self._preprocessing) for each in data]
        projection = learn_projection(store, self.settings, prepared, dimensions)
        store.commit_projection(projection)

    def _learn_one(
        self,
        name: str,
        data: TrainingData,
        seed: int,
        lesson: Lesson,
        replaced: LearnedTask | None = None,
        fitted: Fitted | None = None,
    ) -> None:
        """Learns and commits a task, at rising prices of bits until it fits into max_bytes.

        - replaced: the version that is learned further.
        - fitted: a training that was done already, at the settings' price.
        """
        settings = self.settings
        for raises in count():
            fitted = fitted or self._fit(name, data, seed, settings, replaced)
            examples, classes = data
            metrics = lesson.metrics(examples, fitted.result)
            size = self.store.commit_learned(
                name,
                fitted.coefficients,
                settings.precision,
                settings.task_history(seed),
                TrainingRun(examples, classes, fitted.phase, metrics),
                replaced=replaced,
                max_bytes=settings.max_bytes,
            )
            if size is None:
                # Readouts have no loss to look at: theirs are zero where nothing was learned.
                numbers = fitted.coefficients if self._closed_form else None
                warn_if_at_chance(self.store, settings, name, data, fitted.result, numbers)
                return
            settings = _at_higher_price(settings, name, size, raises)
            fitted = None

    def _fit(
        self,
        name: str,
        data: TrainingData,
        seed: int,
        settings: LearnerSettings,
        replaced: LearnedTask | None,
    ) -> Fitted:
        examples, classes = data
        store, backbone = self.store, self.store.backbone
        if self._closed_form:
            source = to_batches(examples, classes, backbone.device)
            numbers = learn_readout(store, settings, source, len(classes))
            return Fitted(numbers, TrainingPhase.begin(backbone, store.shared), None)
        training, trained = self._problem(name, data, seed, settings, replaced)
        result = training.fit(trained)
        return Fitted(trained.result(), training.phase, result)

    def _problem(
        self,
        name: str,
        data: TrainingData,
        seed: int,
        settings: LearnerSettings,
        replaced: LearnedTask | None = None,
    ) -> Problem:
        """The optimisation of a task's numbers."""
        store, backbone, (examples, classes) = self.store, self.store.backbone, data
        how = settings.coefficient_training
        source = to_batches(examples, classes, backbone.device)
        present = statistics = None
        if replaced is not None:
            present, statistics = store.coefficients(replaced), store.statistics(replaced)
        numbers = trainable_numbers(
            backbone, store.bank, how, len(source), len(classes), seed, present
        )
        training = TaskTraining(
            backbone,
            source,
            len(classes),
            how.recipe,
            TrainingPhase.begin(backbone, store.shared, statistics),
            seed,
            self.progress(f"task {name}"),
            how.fold_after,
        )
        return training, numbers

    def _learn_side_by_side(
        self,
        prepared: Mapping[str, TrainingData],
        seeds: Mapping[str, int],
        pixels: bool | None,
        note: Any,
    ) -> None:
        def problem(name: str) -> Problem:
            return self._problem(name, prepared[name], seeds[name], self.settings)

        for names in _of_one_size(prepared):
            lesson = Lesson(pixels, note, time.perf_counter())
            progress = self.progress(f"{len(names)} tasks")
            for name, (training, trained), result in solve(names, problem, True, progress):
                fitted = Fitted(trained.result(), training.phase, result)
                self._learn_one(name, prepared[name], seeds[name], lesson, fitted=fitted)

    @property
    def _preprocessing(self) -> Preprocessing | None:
        return preprocessing_of(self.settings, self.store.tasks)

    @property
    def _closed_form(self) -> bool:
        return self.settings.coefficient_training.spec.parametrisation.closed_form

    def _pixels(self, data: Any, examples: Examples | StreamedExamples) -> bool | None:
        """Whether a task's inputs are pixels, for its history: as the first task's, or its own.

        None where a preprocessing or the first task left it open, and of a first task whose inputs
        were prepared.
        """
        if self.settings.preprocessing is not None:
            return None
        if self.store.tasks.first() is None and not isinstance(data, Prepared):
            return are_pixels(self.store.backbone, examples)
        return None if self._preprocessing is None else self._preprocessing.pixels

    def _seeds(self, number: int, given: Sequence[int] | int | None) -> list[int]:
        """The given seeds, or the next ones that no mask of the bank was trained with."""
        if given is not None:
            return [check_seed(s) for s in (given if isinstance(given, Iterable) else [given])]
        first = self.settings.seed + self.store.trainings()
        infos = [info for info in self.store.bank.infos if info.source == "edge_popup"]
        used = {info.recipe.get("seed") for info in infos}
        return list(islice((seed for seed in count(first) if seed not in used), number))


def _at_higher_price(
    settings: LearnerSettings, name: str, size: int, raises: int
) -> LearnerSettings:
    """Settings at a price at which a task of this size should fit into max_bytes."""
    most = settings.max_bytes
    assert most is not None
    if raises == MAX_PRICE_TRIALS:
        raise InputError(
            f"task {name!r} takes {size} bytes even at a bit_price of {settings.bit_price:.3g}; "
            f"max_bytes is {most}, raise it"
        )
    rise = 2**raises * math.log(max(LEAST_RISE, (size / most) ** 2))
    price = settings.bit_price * math.exp(min(rise, 50.0))
    return replace(settings, bit_price=min(price, HIGHEST_PRICE))


def _of_one_size(prepared: Mapping[str, TrainingData]) -> list[list[str]]:
    """Names in groups of equal sizes; data that are not one tensor are groups of their own."""
    groups: dict[object, list[str]] = {}
    for name, (examples, classes) in prepared.items():
        key: object = name
        if isinstance(examples, Examples) and not isinstance(examples.inputs, Inputs):
            key = len(classes), examples.inputs.shape, examples.inputs.dtype
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def _checked_note(note: Note | None) -> Any:
    """The note as JSON values. Raises InputError for one that cannot be written as such."""
    if note is not None and not isinstance(note, Mapping):
        raise InputError(f"a note must be a mapping of JSON values, got {type(note).__name__}")
    return note and plain_json(dict(note), "a note")
