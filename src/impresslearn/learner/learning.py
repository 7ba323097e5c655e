"""Trains masks and coefficients: data checked, numbers optimised, the result committed.

Nothing is committed unless it was learned to its end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, cast

from impresslearn.checks import check_name, check_seed, plain_json
from impresslearn.coefficients.learning import trainable_numbers
from impresslearn.coefficients.mixing import Coefficients
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
from impresslearn.masks import PopupScores, trainable_scores
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks.inputs import TrainingData, are_pixels, training_examples
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.state.settings import HIGHEST_PRICE, LearnerSettings
from impresslearn.state.state import LearnerState
from impresslearn.state.tasks import TaskTable
from impresslearn.state.training_run import TrainingRun
from impresslearn.training.batched import Problem, side_by_side, solve
from impresslearn.training.loop import FitResult, TaskTraining, with_head
from impresslearn.training.progress import Progress

MOST_PRICES = 8
"""How often the price of bits is raised for a task that takes more than it may."""
LEAST_RISE = 1.15
"""Of the price at the first time; each further time it rises by the square of that."""
Note = Mapping[str, Any]
"""What a caller wants to keep in a task's history: JSON values."""


def preprocessing_of(settings: LearnerSettings, tasks: TaskTable) -> Preprocessing | None:
    """What raw inputs go through: that of the settings, or what is known of the first task's.

    Without this, uint8 inputs of a task that was learned from the same numbers as floats would be
    scaled to [0, 1] without a word, or the reverse.
    """
    first = None if settings.preprocessing else tasks.first()
    pixels = None if first is None else first.history.get("metrics", {}).get("pixels")
    return settings.preprocessing if pixels is None else ImpliedPreprocessing(pixels=pixels)


@dataclass(frozen=True)
class Trainer:
    """Trains masks and coefficients by a learner's settings and commits them to its state.

    progress: that of a training with a title. dearer: how often the price of bits was raised for a
    task that takes more than `max_bytes`; spent: the seconds that took.
    """

    state: LearnerState
    settings: LearnerSettings
    progress: Callable[[str], Progress]
    dearer: int = 0
    spent: float = 0.0

    @property
    def preprocessing(self) -> Preprocessing | None:
        """As `preprocessing_of`."""
        return preprocessing_of(self.settings, self.state.tasks)

    def learn_masks(
        self,
        names: Sequence[str],
        data: Any,
        *,
        seeds: Sequence[int] | int | None = None,
        batched: bool | None = False,
        note: Note | None = None,
    ) -> None:
        """Trains a mask from each seed on one task; the first mask is the task's own."""
        state, settings, backbone = self.state, self.settings, self.state.backbone
        names = [check_name(name) for name in names]
        state.check_new_masks(names)
        chosen = self._seeds(len(names), seeds)
        if not len(chosen) == len(set(chosen)) == len(names):
            raise InputError(f"{len(names)} masks need as many distinct seeds, got {chosen}")
        note = _checked_note(note)
        examples, classes = training_examples(backbone, data, self.preprocessing)
        pixels = self._pixels(data, examples)
        source = to_batches(examples, classes, backbone.device)
        ones = ones_per_layer(backbone.layers, settings.sparsity, settings.allocation)
        first = TrainingPhase.begin(backbone, state.shared)
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

        started = time.perf_counter()
        solved = solve(chosen, problem, side_by_side(backbone, batched), progress)
        found, fits = zip(
            *((trained.result(), fit) for _, (_, trained), fit in solved), strict=True
        )
        masks, heads = zip(*found, strict=True)
        metrics = self._metrics(examples, started, fits[0], note, pixels)
        run = TrainingRun(examples, classes, first, metrics)
        recipes = map(settings.mask_recipe, chosen)
        state.commit_basis(
            dict(zip(names, masks, strict=True)),
            dict(zip(names, recipes, strict=True)),
            run,
            heads[0],
            settings.precision,
        )
        warn_if_at_chance(state, settings, names[0], (examples, classes), fits[0])

    def learn_tasks(
        self,
        tasks: Mapping[str, Any],
        *,
        seeds: Sequence[int] | int | None = None,
        batched: bool | None = False,
        note: Note | None = None,
    ) -> None:
        """Learns tasks' coefficients; `batched`: those of one size side by side."""
        state, settings, backbone = self.state, self.settings, self.state.backbone
        if not isinstance(tasks, Mapping):
            kind = type(tasks).__name__
            raise InputError(f"tasks must map names to labelled data, got {kind}")
        tasks = {check_name(name): data for name, data in tasks.items()}
        for name in tasks:
            state.check_new_task(name)
        seed_of = dict(zip(tasks, self._seeds(len(tasks), seeds), strict=True))
        note = _checked_note(note)
        prepared, pixels, how = dict[str, TrainingData](), None, self.preprocessing
        bank = state.bank.serial
        for name, data in tasks.items():
            prepared[name] = training_examples(backbone, data, how)
            if len(prepared) == 1:
                pixels = self._pixels(data, prepared[name][0])
                how = how if pixels is None or how else ImpliedPreprocessing(pixels=pixels)
        large: dict[str, tuple[int, float]] = {}
        if settings.granularity == "readout":
            large = self._learn_readouts(prepared, seed_of, note, pixels)
            prepared = {}

        def problem(name: str) -> Problem:
            return self._problem(name, prepared[name], seed_of[name])

        beside = side_by_side(backbone, batched)
        for names in _of_one_size(prepared) if beside else [list(prepared)]:
            started, shown = time.perf_counter(), self.progress(f"{len(names)} tasks")
            for name, (task, trained), fit in solve(names, problem, beside, shown):
                examples, classes = prepared[name]
                metrics = self._metrics(examples, started, fit, note, pixels)
                size = state.commit_learned(
                    name,
                    trained.result(),
                    settings.precision,
                    settings.task_history(task.seed),
                    TrainingRun(examples, classes, task.phase, metrics),
                    bank,
                    most=settings.max_bytes,
                )
                if size is None:
                    warn_if_at_chance(state, settings, name, prepared[name], fit)
                else:
                    large[name] = size, metrics["seconds"]
                started = time.perf_counter() if fit else started
        for name, (size, seconds) in large.items():
            again = self._dearer(name, size, seconds)
            again.learn_tasks({name: tasks[name]}, seeds=seed_of[name], note=note)

    def update_task(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> None:
        """Learns a task further from its present numbers, as its next version."""
        state, settings, backbone = self.state, self.settings, self.state.backbone
        state.backend.check_writable()
        task, note = state.tasks.learned(name), _checked_note(note)
        if task.role == "basis":
            raise InputError(
                f"{name!r} is a basis task: its mask is one that other tasks combine and never "
                "changes; learn the new data as a task of another name"
            )
        (seed,) = self._seeds(1, seed)
        examples, found = training_examples(backbone, data, self.preprocessing)
        classes = grown_classes(task.classes, found, backbone.most_classes)
        started, fitted, bank = time.perf_counter(), None, state.bank.serial
        phase = TrainingPhase.begin(backbone, state.shared, state.statistics(task))
        if settings.granularity == "readout":
            source = to_batches(examples, classes, backbone.device)
            numbers = learn_readout(state, settings, source, len(classes))
        else:
            present = state.coefficients(task)
            training, trained = self._problem(name, (examples, classes), seed, present)
            fitted = replace(training, phase=phase).fit(trained)
            numbers = trained.result()
        pixels = self._pixels(data, examples)
        metrics = self._metrics(examples, started, fitted, note, pixels)
        run = TrainingRun(examples, classes, phase, metrics)
        history, most = settings.task_history(seed), settings.max_bytes
        size = state.commit_learned(
            name, numbers, settings.precision, history, run, bank, replaced=task, most=most
        )
        if size is None:
            warn_if_at_chance(state, settings, name, (examples, classes), fitted, numbers)
        else:
            again = self._dearer(name, size, metrics["seconds"])
            again.update_task(name, data, seed=seed, note=note)

    def _dearer(self, name: str, size: int, spent: float) -> Trainer:
        """One with a price at which a task should fit that takes so many bytes at the present one.

        spent: seconds on the task so far. Raises InputError after several.
        """
        settings, most = self.settings, cast(int, self.settings.max_bytes)
        if self.dearer == MOST_PRICES:
            raise InputError(
                f"task {name!r} takes {size} bytes even at a bit_price of "
                f"{settings.bit_price:.3g}; max_bytes is {most}, raise it"
            )
        rise = 2**self.dearer * math.log(max(LEAST_RISE, (size / most) ** 2))
        price = settings.bit_price * math.exp(min(rise, 50.0))
        dearer = replace(settings, bit_price=min(price, HIGHEST_PRICE))
        return replace(self, settings=dearer, dearer=self.dearer + 1, spent=spent)

    def _problem(
        self, name: str, data: TrainingData, seed: int, present: Coefficients | None = None
    ) -> Problem:
        """The optimisation of a task's coefficients; present: those that it starts from."""
        state, backbone, training = (
            self.state,
            self.state.backbone,
            self.settings.coefficient_training,
        )
        examples, classes = data
        source = to_batches(examples, classes, backbone.device)
        numbers = trainable_numbers(
            backbone, state.bank, training, len(source), len(classes), seed, present
        )
        return TaskTraining(
            backbone,
            source,
            len(classes),
            training.recipe,
            TrainingPhase.begin(backbone, state.shared),
            seed,
            self.progress(f"task {name}"),
            training.fold_after,
        ), numbers

    def learn_features(self, data: Sequence[Any], dimensions: int) -> None:
        """Learns the projection of features that later readouts use."""
        state, settings = self.state, self.settings
        state.backend.check_writable()
        prepared = [training_examples(state.backbone, each, self.preprocessing) for each in data]
        bank = state.bank.serial
        found = learn_projection(state, settings, prepared, dimensions)
        state.commit_projection(found, bank)

    def _learn_readouts(
        self,
        prepared: Mapping[str, TrainingData],
        seed_of: Mapping[str, int],
        note: Any,
        pixels: bool | None,
    ) -> dict[str, tuple[int, float]]:
        """Those that take more than `max_bytes` and were not kept: their bytes, and seconds."""
        large, most = dict[str, tuple[int, float]](), self.settings.max_bytes
        bank = self.state.bank.serial
        state, settings, backbone = self.state, self.settings, self.state.backbone
        for name, (examples, classes) in prepared.items():
            started = time.perf_counter()
            source = to_batches(examples, classes, backbone.device)
            found = learn_readout(state, settings, source, len(classes))
            history = settings.task_history(seed_of[name])
            phase = TrainingPhase.begin(backbone, state.shared)
            metrics = self._metrics(examples, started, None, note, pixels)
            run = TrainingRun(examples, classes, phase, metrics)
            size = state.commit_learned(
                name, found, settings.precision, history, run, bank, most=most
            )
            if size is None:
                warn_if_at_chance(state, settings, name, (examples, classes), None, found)
            else:
                large[name] = size, metrics["seconds"]
        return large

    def _pixels(self, data: Any, examples: Examples | StreamedExamples) -> bool | None:
        """Whether a task's inputs are pixels, for its history: as the first task's, or its own.

        None where a preprocessing or the first task left it open, and of a first task whose inputs
        were prepared.
        """
        if self.settings.preprocessing is not None:
            return None
        if self.state.tasks.first() is None and not isinstance(data, Prepared):
            return are_pixels(self.state.backbone, examples)
        return None if self.preprocessing is None else self.preprocessing.pixels

    def _metrics(
        self,
        examples: Sized,
        started: float,
        fit: FitResult | None,
        note: Note | None,
        pixels: bool | None,
    ) -> dict[str, Any]:
        """For a task's history: examples, seconds, where known pixels, steps, final loss, note.

        The seconds are those of all attempts to fit the task into `max_bytes`; the loss is in nats.
        """
        seconds = float(f"{self.spent + time.perf_counter() - started:.3g}")
        found: dict[str, Any] = {"examples": len(examples), "seconds": seconds}
        found |= {} if pixels is None else {"pixels": pixels}
        if fit is not None and fit.steps:
            found |= {"steps": fit.steps, "loss": float(f"{fit.final_loss:.4g}")}
        return found | ({"note": note} if note else {})

    def _seeds(self, number: int, given: Sequence[int] | int | None) -> list[int]:
        """Those given, or the next ones that no mask of the bank was trained with."""
        if given is None:
            first = self.settings.seed + self.state.trained()
            trained = (info for info in self.state.bank.infos if info.source == "edge_popup")
            used = {info.recipe.get("seed") for info in trained}
            return list(islice((seed for seed in count(first) if seed not in used), number))
        return list(map(check_seed, given if isinstance(given, Iterable) else [given]))


def _of_one_size(prepared: Mapping[str, TrainingData]) -> list[list[str]]:
    """Names in groups of the same sizes, held in memory; others alone."""
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
