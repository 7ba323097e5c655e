"""`advise`: the most accurate way to learn tasks like yours in a number of bytes.

Every method learns the same examples and is scored on the same examples held back; the best go on
to further tasks. Test data play no part.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from impresslearn.checks import check_integer, check_number, check_seed
from impresslearn.data import Examples, Preprocessing, StreamedExamples, as_examples, classes_of
from impresslearn.data.examples import one_tensor
from impresslearn.errors import InputError, NotLearnedWarning, TrainingError
from impresslearn.learner.creation import create_learner
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.presets import CANDIDATES, Candidate
from impresslearn.learner.presets import preset as find_preset
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.tables import Table, percent, size, table_of
from impresslearn.training.progress import ProgressChoice, progress_for

Data = Examples | StreamedExamples
Case = tuple[str, Data, Data]  # name, examples to learn, examples held back

FOLDS = 5  # one of them is held back
FINALISTS = 4
MAX_CASES, ENOUGH_HELD_BACK = 10, 500  # cases are tasks, or further folds of them
AIM = 0.9  # the share of max_bytes that the price of a trial aims at


@dataclass
class Trial:
    """What a method came to on the tasks that it was tried on.

    - accuracies: in [0, 1], one per task, on examples held back.
    - sizes: bytes that each task takes in a store.
    """

    candidate: Candidate
    bit_price: float
    learner: ImpressLearner = field(repr=False)
    accuracies: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The mean over tasks."""
        return fmean(self.accuracies)

    @property
    def bytes(self) -> float:
        """The mean over tasks."""
        return fmean(self.sizes)

    def rank(self) -> tuple[float, float]:
        """For sorting: the most accurate first, of equals the smallest."""
        return -self.accuracy, self.bytes

    def learn(self, name: str, train: Data, held_back: Data) -> None:
        """Learns the next task and scores it."""
        with warnings.catch_warnings():  # the price may be too high; the accuracy shows it
            warnings.simplefilter("ignore", NotLearnedWarning)
            self.learner.learn_task(name, train, seed=len(self.accuracies))
        self.accuracies.append(self.learner.score(held_back, name))
        task = self.learner.tasks_[name]
        self.sizes.append(task.bytes)
        # A learner with max_bytes raises the price of a task that would take more.
        self.bit_price = task.history["recipe"].get("bit_price", self.bit_price)


@dataclass(frozen=True)
class Advice:
    """What `advise` recommends.

    - best: the trial of the recommended method.
    - trials: one per method that was tried, the smallest first.
    - skipped: the names of the other methods, and why they were not tried.
    - max_bytes: the limit that was given.
    - basis: the basis tasks of the recommended method.
    """

    best: Trial
    trials: tuple[Trial, ...]
    skipped: Mapping[str, str]
    max_bytes: int | None
    basis: tuple[str, ...]
    _workshop: _Workshop = field(repr=False)

    @property
    def preset(self) -> str:
        """The preset of the recommended method."""
        return self.best.candidate.preset

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `ImpressLearner.from_preset`, beside the preset's name."""
        # The loss sums over more examples when none is held back, so the price rises with it.
        price = float(f"{self.best.bit_price * FOLDS / (FOLDS - 1):.3g}")
        settings = {**self.best.candidate.settings, "bit_price": price}
        return settings if self.max_bytes is None else settings | {"max_bytes": self.max_bytes}

    def learner(self, progress: ProgressChoice = "auto") -> ImpressLearner:
        """A new learner with these settings and masks, which has learned the basis tasks."""
        return self._workshop.learner(self.best.candidate, self.settings, progress, self.basis)

    def table(self) -> Table:
        """The trials, an arrow at the recommended one, and what was not tried."""
        rows = []
        for trial in self.trials:
            row: dict[str, Any] = {
                "": "→" if trial is self.best else "",
                "method": trial.candidate.name,
            }
            row |= {"preset": trial.candidate.preset, "accuracy": trial.accuracy}
            row |= {"bytes": trial.bytes, "tasks": len(trial.accuracies)}
            rows.append(row | {"bit_price": float(f"{trial.bit_price:.3g}")})
        skipped = [f"{name} ({reason})" for name, reason in self.skipped.items()]
        return table_of(rows, note=f"not tried: {'; '.join(skipped)}" if skipped else "")

    def __repr__(self) -> str:
        accuracy, size_of_task = percent(self.best.accuracy), size(round(self.best.bytes))
        line = f"{self.best.candidate.name} (preset {self.preset!r}): "
        line += f"{accuracy} on examples held back, {size_of_task} per task"
        return f"{line}\n\n{self.table().text()}"


def advise(
    tasks: Any,
    backbone: Backbone | None = None,
    *,
    max_bytes: int | None = None,
    max_seconds: float = 300.0,
    basis: int | None = None,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    progress: ProgressChoice = "auto",
) -> Advice:
    """Tries the presets and their variations, and recommends the most accurate one.

    - tasks: name -> labelled data as `learn_task` takes them, typical of the tasks to come; or the
      data of one task. A fifth of the examples of each class is held back.
    - backbone: the network; by default `lenet_300_100` is made for the data.
    - max_bytes: the most bytes per task; None for no limit. Masks of basis tasks are not counted.
    - max_seconds: when they are over, the best method so far is recommended and `skipped` names
      the methods that were not tried.
    - basis: how many tasks masks are trained on, those with the most examples; by default a third
      of the tasks, at most five.
    - preprocessing, progress: as in `ImpressLearner`.
    - seed: of the split, the network and the trainings.

    Raises InputError if all tasks are basis tasks, a task has too few examples to hold some back,
    no method fits `max_bytes` or none finishes in `max_seconds`.
    """
    ends = time.monotonic() + check_number("max_seconds", max_seconds, 0.0)
    if max_bytes is not None:
        check_integer("max_bytes", max_bytes, 1)
    labelled = tasks if isinstance(tasks, Mapping) else {"task": tasks}
    data = {name: as_examples(of) for name, of in labelled.items()}
    largest_first = sorted(data, key=lambda name: -len(data[name]))
    count = check_integer("basis", min(5, len(data) // 3) if basis is None else basis, 0)
    if count >= len(data):
        raise InputError(f"advise needs a task besides {count} basis tasks, got {len(data)} in all")
    pilots = {name: data[name] for name in largest_first[count:]}
    cases = _cases(pilots, check_seed(seed))
    network = None if backbone is None else check_backbone(backbone)
    basis_tasks = {name: data[name] for name in largest_first[:count]}
    workshop = _Workshop(network, data, basis_tasks, preprocessing, seed, ends)
    candidates = [method for method in CANDIDATES if method.suits(network, count > 0)]
    steps = len(candidates) + FINALISTS * (len(cases) - 1)
    trials: list[Trial] = []
    skipped: dict[str, str] = {}
    with progress_for(progress).titled("advice").track(steps) as advance:
        for candidate in candidates:
            try:
                trials.append(workshop.best_trial(candidate, cases[0], max_bytes))
            except (InputError, TrainingError, TimeoutError) as error:
                skipped[candidate.name] = str(error)
            advance()
        if not trials:
            raise InputError(f"no method could be tried: {next(iter(skipped.values()))}")
        finalists = sorted(trials, key=Trial.rank)[:FINALISTS]
        with suppress(TimeoutError):
            for case in cases[1:]:
                for trial in finalists:
                    workshop.check_time()
                    trial.learn(*case)
                    advance()
    common = min(len(trial.accuracies) for trial in finalists)
    for trial in finalists:  # compared on the tasks that all of them learned
        del trial.accuracies[common:], trial.sizes[common:]
    best = min(finalists, key=Trial.rank)
    by_size = tuple(sorted(trials, key=lambda trial: trial.bytes))
    used = tuple(basis_tasks) if best.candidate.basis else ()
    return Advice(best, by_size, skipped, max_bytes, used, workshop)


@dataclass
class _Workshop:
    """Makes learners; networks and the masks of basis tasks are made once for all trials."""

    backbone: Backbone | None
    tasks: Mapping[str, Data]
    basis: Mapping[str, Data]
    preprocessing: Preprocessing | None
    seed: int
    ends: float
    networks: dict[Any, Any] = field(default_factory=dict)
    banks: dict[Backbone, MaskBank] = field(default_factory=dict)

    def check_time(self, *_: Any) -> None:
        """Raises TimeoutError. Trials call it as their log, which ends a long training too."""
        if time.monotonic() > self.ends:
            raise TimeoutError("max_seconds were over")

    def best_trial(self, candidate: Candidate, case: Case, max_bytes: int | None) -> Trial:
        """The candidate on a task, and once more at a lower price if it leaves bytes unused."""
        self.check_time()
        price = candidate.price * len(case[1]) / 1000
        if max_bytes is not None:  # bytes fall about as the square root of the price
            price *= (candidate.bytes / (AIM * max_bytes)) ** 2
        trials: list[Trial] = []
        while True:
            settings = {**candidate.settings, "bit_price": price, "max_bytes": max_bytes}
            if candidate.basis:
                settings["bank"] = self.bank(candidate)
            trial = Trial(candidate, price, self.learner(candidate, settings, self.check_time))
            trial.learn(*case)
            trials.append(trial)
            if max_bytes is None or 2 * trial.bytes > max_bytes or len(trials) == 2:
                return min(trials, key=Trial.rank)
            price = trial.bit_price * (trial.bytes / (AIM * max_bytes)) ** 2

    def learner(
        self,
        candidate: Candidate,
        settings: Mapping[str, Any],
        progress: ProgressChoice,
        basis: tuple[str, ...] = (),
    ) -> ImpressLearner:
        """A learner with the masks of the candidate, which has learned the tasks in `basis`."""
        backbone, preprocessing = self.network(candidate)
        common = {"preprocessing": preprocessing, "seed": self.seed, "progress": progress}
        learner = ImpressLearner.from_preset(backbone, candidate.preset, **common, **settings)
        for name in basis:
            learner.learn_basis(name, self.basis[name])
        if candidate.masks:
            learner.add_masks(candidate.masks, source="disjoint")
        if candidate.features:
            learner.learn_features(*self.basis.values())
        return learner

    def network(self, candidate: Candidate) -> tuple[Backbone, Preprocessing | None]:
        """The network that was given, or one made for the data by the candidate's preset."""
        if self.backbone is not None:
            return self.backbone, self.preprocessing
        kind = candidate.backbone, find_preset(candidate.preset).own_head
        if kind not in self.networks:
            classes = max(len(classes_of(data.labels)) for data in self.tasks.values())
            data = next(iter(self.tasks.values()))
            shape = one_tensor(data.inputs_at(np.array([0])))[0].shape
            learner = create_learner(
                shape,
                classes,
                preset=candidate.preset,
                backbone=candidate.backbone,
                preprocessing=self.preprocessing,
                seed=self.seed,
            )
            self.networks[kind] = learner.backbone, learner.settings.preprocessing
        return self.networks[kind]

    def bank(self, candidate: Candidate) -> MaskBank:
        """The masks of the basis tasks for the candidate's network."""
        backbone, _ = self.network(candidate)
        if backbone not in self.banks:
            trainer = self.learner(candidate, {"bank": None}, self.check_time, tuple(self.basis))
            self.banks[backbone] = trainer.bank_
        return self.banks[backbone]


def _cases(pilots: Mapping[str, Data], seed: int) -> list[Case]:
    """A fold of each task, and further folds while too few examples are held back."""
    cases: list[Case] = []
    total = 0
    for fold in range(FOLDS):
        for name, data in pilots.items():
            if len(cases) == MAX_CASES or total >= ENOUGH_HELD_BACK:
                return cases
            generator = np.random.default_rng(seed)
            held = np.zeros(len(data.labels), dtype=bool)
            for label in np.unique(data.labels):
                of_class = generator.permutation(np.flatnonzero(data.labels == label))
                # The first example is never held back, so that every class is learned.
                held[of_class[1:][fold::FOLDS]] = True
            if not held.any():
                raise InputError(f"task {name!r} has too few examples to hold some back")
            title = name if fold == 0 else f"{name} ({fold + 1})"
            held_back = data.subset(np.flatnonzero(held))
            cases.append((title, data.subset(np.flatnonzero(~held)), held_back))
            total += len(held_back)
    return cases
