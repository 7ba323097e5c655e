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

from impresslearn.checks import check_integer, check_number, check_seed, clear_calls
from impresslearn.data import Examples, Preprocessing, StreamedExamples, as_examples, classes_of
from impresslearn.data.examples import one_tensor
from impresslearn.errors import InputError, NotLearnedWarning, TrainingError
from impresslearn.learner.creation import create_learner
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.presets import CANDIDATES, Candidate
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
    - preset, settings: for `ImpressLearner.from_preset`.
    - basis: the basis tasks of the recommended method, by name.
    """

    best: Trial
    trials: tuple[Trial, ...]
    skipped: Mapping[str, str]
    preset: str
    settings: Mapping[str, Any]
    basis: Mapping[str, Data] = field(repr=False)
    _common: Mapping[str, Any] = field(repr=False)

    def learner(self, progress: ProgressChoice = "auto") -> ImpressLearner:
        """A new learner with these settings and masks, which has learned the basis tasks."""
        settings = {**self._common, **self.settings, "progress": progress}
        return _new_learner(self.best.candidate, self.basis, settings)

    def table(self) -> Table:
        """The trials, an arrow at the recommended one, and what was not tried."""
        rows = []
        for trial in self.trials:
            row: dict[str, Any] = {"": "→" if trial is self.best else ""}
            row |= {"method": trial.candidate.name, "preset": trial.candidate.preset}
            row |= {"accuracy": trial.accuracy, "bytes": trial.bytes}
            row |= {"tasks": len(trial.accuracies), "bit_price": float(f"{trial.bit_price:.3g}")}
            rows.append(row)
        skipped = [f"{name} ({reason})" for name, reason in self.skipped.items()]
        return table_of(rows, note=f"not tried: {'; '.join(skipped)}" if skipped else "")

    def __repr__(self) -> str:
        accuracy, size_of_task = percent(self.best.accuracy), size(round(self.best.bytes))
        line = f"{self.best.candidate.name} (preset {self.preset!r}): "
        line += f"{accuracy} on examples held back, {size_of_task} per task"
        return f"{line}\n\n{self.table().text()}"


@clear_calls
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
    if isinstance(tasks, list) and all(isinstance(each, tuple) for each in tasks):
        raise InputError(f"tasks must be a dictionary {{name: data}}, got a list of {len(tasks)}")
    labelled = tasks if isinstance(tasks, Mapping) else {"task": tasks}
    data = {name: as_examples(of) for name, of in labelled.items()}
    largest_first = sorted(data, key=lambda name: -len(data[name]))
    count = check_integer("basis", min(5, len(data) // 3) if basis is None else basis, 0)
    if count >= len(data):
        raise InputError(f"basis={count} needs more than {count} tasks, got {len(data)}")
    pilots = {name: data[name] for name in largest_first[count:]}
    cases = _cases(pilots, check_seed(seed))
    network = None if backbone is None else check_backbone(backbone)
    basis_tasks = {name: data[name] for name in largest_first[:count]}
    common: dict[str, Any] = {"preprocessing": preprocessing, "seed": seed, "shape": ()}
    if network is None:  # one is made for the data
        inputs = next(iter(data.values())).inputs_at(np.array([0]))
        common["shape"] = one_tensor(inputs)[0].shape
        common["classes"] = max(len(classes_of(task.labels)) for task in data.values())
    else:
        common |= {"backbone": network, "classes": network.num_classes}

    def check_time(*_: Any) -> None:
        if time.monotonic() > ends:
            raise TimeoutError("max_seconds were over")

    # Trials call it as their log, which ends a long training too.
    in_time = {**common, "progress": check_time}
    banks: dict[str, MaskBank] = {}
    candidates = [method for method in CANDIDATES if method.suits(network, count > 0)]
    steps = len(candidates) + FINALISTS * (len(cases) - 1)
    trials: list[Trial] = []
    skipped: dict[str, str] = {}
    with progress_for(progress).titled("advice").track(steps) as advance:
        for candidate in candidates:
            try:
                check_time()
                settings = {**in_time, **candidate.settings, "max_bytes": max_bytes}
                if candidate.basis:
                    # Presets train equal masks, but their networks may differ in the head.
                    made_for = candidate.preset if network is None else "network"
                    if made_for not in banks:
                        banks[made_for] = _new_learner(candidate, basis_tasks, in_time).bank_
                    settings["bank"] = banks[made_for]
                trials.append(_best_trial(candidate, cases[0], basis_tasks, settings))
            except (InputError, TrainingError, TimeoutError) as error:
                skipped[candidate.name] = str(error)
            advance()
        if not trials:
            raise InputError(f"no method could be tried: {next(iter(skipped.values()))}")
        finalists = sorted(trials, key=Trial.rank)[:FINALISTS]
        with suppress(TimeoutError):
            for case in cases[1:]:
                for trial in finalists:
                    check_time()
                    trial.learn(*case)
                    advance()
    learned_by_all = min(len(trial.accuracies) for trial in finalists)
    for trial in finalists:  # compared on the same tasks
        del trial.accuracies[learned_by_all:], trial.sizes[learned_by_all:]
    best = min(finalists, key=Trial.rank)
    by_size = tuple(sorted(trials, key=lambda trial: trial.bytes))
    # The loss sums over more examples when none is held back, so the price rises with it.
    price = float(f"{best.bit_price * FOLDS / (FOLDS - 1):.3g}")
    settings = {**best.candidate.settings, "bit_price": price}
    if max_bytes is not None:
        settings["max_bytes"] = max_bytes
    for trial in trials:  # the log is of this call alone
        trial.learner.progress = False
    used = basis_tasks if best.candidate.basis else {}
    return Advice(best, by_size, skipped, best.candidate.preset, settings, used, common)


def _best_trial(
    candidate: Candidate, case: Case, basis: Mapping[str, Data], settings: Mapping[str, Any]
) -> Trial:
    """The candidate on a task, and once more at a lower price if it leaves bytes unused."""
    max_bytes = settings["max_bytes"]
    price = candidate.price * len(case[1]) / 1000
    if max_bytes is not None:  # bytes fall about as the square root of the price
        price *= (candidate.bytes / (AIM * max_bytes)) ** 2
    trials: list[Trial] = []
    while True:
        learner = _new_learner(candidate, basis, {**settings, "bit_price": price})
        trial = Trial(candidate, price, learner)
        trial.learn(*case)
        trials.append(trial)
        if max_bytes is None or 2 * trial.bytes > max_bytes or len(trials) == 2:
            return min(trials, key=Trial.rank)
        price = trial.bit_price * (trial.bytes / (AIM * max_bytes)) ** 2


def _new_learner(
    candidate: Candidate, basis: Mapping[str, Data], settings: Mapping[str, Any]
) -> ImpressLearner:
    """A learner with the masks of the candidate, trained here if the settings name no bank."""
    arguments = {"backbone": candidate.backbone, **settings}
    learner = create_learner(preset=candidate.preset, **arguments)
    if candidate.basis and "bank" not in settings:
        for name, data in basis.items():
            learner.learn_basis(name, data)
    if candidate.masks:
        learner.add_masks(candidate.masks, source="disjoint")
    if candidate.features:
        learner.learn_features(*basis.values())
    return learner


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
