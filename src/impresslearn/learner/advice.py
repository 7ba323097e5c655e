"""`advise`: measures the accuracy of your tasks at several sizes in bytes, recommends settings."""

import math
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from impresslearn.checks import check_integer, check_mapping, check_number, check_seed, clear_calls
from impresslearn.data import Examples, Preprocessing, StreamedExamples, as_examples, classes_of
from impresslearn.data.examples import Inputs
from impresslearn.errors import InputError, NotLearnedWarning, TrainingError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.loading import create_learner
from impresslearn.learner.presets import CANDIDATES, Candidate
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.tables import Table, percent, size, table_of
from impresslearn.training.progress import ProgressChoice, progress_for

Data = Examples | StreamedExamples
Case = tuple[str, Data, Data]  # name, examples to learn, examples held back

BUDGETS = (150, 300, 500, 1000, 2000)
FOLDS = 5  # one fold is held back
FINALISTS = 3  # methods at each budget that learn further tasks
MOST_BASIS = 5  # the largest number of basis tasks
MAX_CASES, ENOUGH_HELD_BACK = 10, 500  # a case is a task, or another fold of a task


@dataclass(eq=False)  # one trial may be the best at several budgets
class Trial:
    """The results of a method at one budget, on the tasks that it learned.

    - accuracies: in [0, 1], one per task, on held-back examples; held_back: their numbers.
    - sizes: the bytes of each task in a store.
    - seconds: the time of each training.
    """

    candidate: Candidate
    budget: int
    bit_price: float
    learner: ImpressLearner = field(repr=False)
    accuracies: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    held_back: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The mean accuracy over tasks."""
        return fmean(self.accuracies)

    @property
    def error(self) -> float:
        """The standard error of the accuracy, from the number of held-back examples."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / sum(self.held_back))

    @property
    def bytes(self) -> float:
        """The mean size over tasks."""
        return fmean(self.sizes)

    def rank(self) -> tuple[float, float]:
        """A key to sort by: the most accurate trial first, and the smallest of equal ones."""
        return -self.accuracy, self.bytes

    def learn(self, name: str, train: Data, held_back: Data) -> None:
        """Learns the next task and measures its accuracy."""
        started = time.monotonic()
        with warnings.catch_warnings():  # a budget may be too small, which the accuracy shows
            warnings.simplefilter("ignore", NotLearnedWarning)
            self.learner.learn_task(name, train, seed=len(self.accuracies))
        self.seconds.append(time.monotonic() - started)
        self.accuracies.append(self.learner.score(held_back, name))
        self.sizes.append(self.learner.tasks_[name].bytes)
        self.held_back.append(len(held_back))


@dataclass(frozen=True)
class Advice:
    """The result of `advise`: the best method at each budget, and a recommendation.

    - points: budget -> the best trial within it, the smallest budget first.
    - budget: the recommended budget: the smallest within a standard error of the best accuracy.
    - trials: all trials, the smallest first.
    - skipped: methods that were not tried -> the reason.
    - basis: the basis tasks of the recommended method, by name.
    """

    points: Mapping[int, Trial]
    budget: int
    trials: tuple[Trial, ...]
    skipped: Mapping[str, str]
    basis: Mapping[str, Data] = field(repr=False)
    _common: Mapping[str, Any] = field(repr=False)

    @property
    def best(self) -> Trial:
        """The trial of the recommended budget."""
        return self.points[self.budget]

    @property
    def preset(self) -> str:
        """The recommended preset."""
        return self.best.candidate.preset

    @property
    def settings(self) -> dict[str, Any]:
        """The recommended settings, for `ImpressLearner.from_preset`."""
        # The loss sums over more examples when none is held back, so the price must rise too.
        price = float(f"{self.best.bit_price * FOLDS / (FOLDS - 1):.3g}")
        return {**self.best.candidate.settings, "bit_price": price, "max_bytes": self.budget}

    def learner(self, progress: ProgressChoice = "auto") -> ImpressLearner:
        """A new learner with the recommended settings and masks, after learning basis tasks."""
        settings = {**self._common, **self.settings, "progress": progress}
        return _new_learner(self.best.candidate, self.basis, settings)

    def table(self) -> Table:
        """A table with a row per budget, an arrow at the recommended one, and skipped methods."""
        rows = []
        for budget, trial in self.points.items():
            row: dict[str, Any] = {"": "→" if budget == self.budget else "", "budget": budget}
            row |= {"accuracy": trial.accuracy, "bytes": round(trial.bytes)}
            row |= {"method": trial.candidate.name, "tasks": len(trial.accuracies)}
            rows.append(row | {"seconds": round(fmean(trial.seconds), 1)})
        skipped = [f"{name} ({reason})" for name, reason in self.skipped.items()]
        return table_of(rows, note=f"not tried: {'; '.join(skipped)}" if skipped else "")

    def chart(self) -> Any:
        """An Altair chart of the accuracy on held-back examples by bytes per task."""
        from impresslearn.plotting import line_chart, styled  # Altair takes a second to import

        rows = []
        for trial in dict.fromkeys(self.points.values()):
            row = {"bytes": trial.bytes, "accuracy": trial.accuracy, "curve": "the best method"}
            limits = {"low": trial.accuracy - trial.error, "high": trial.accuracy + trial.error}
            rows.append(row | limits)
        title = "Accuracy by bytes per task, on examples held back"
        return styled(line_chart(rows, "bytes", "accuracy", "curve", log_x=True, title=title))

    def __repr__(self) -> str:
        accuracy, size_of_task = percent(self.best.accuracy), size(round(self.best.bytes))
        line = f"{self.best.candidate.name} (preset {self.preset!r})\n"
        line += f"{accuracy} on examples held back, {size_of_task} per task"
        return f"{line}\n\n{self.table().text()}"


@clear_calls
def advise(
    tasks: Any,
    backbone: Backbone | None = None,
    *,
    budgets: Collection[int] = BUDGETS,
    max_seconds: float = 300.0,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    progress: ProgressChoice = "auto",
) -> Advice:
    """Finds the most accurate method for tasks of each size in bytes, and recommends settings.

    Every method learns the same examples at each budget that it can fill, and is scored on the same
    held-back examples. The best methods of each budget then learn further tasks.

    - tasks: name -> labelled data as in `learn_task`, typical of your later tasks; or the data of
      one task. A fifth of the examples of each class is held back. A third of the tasks, at most
      the five with the most examples, are basis tasks to train masks on.
    - backbone: the network; by default a `lenet_300_100` is created for the data.
    - budgets: numbers of bytes per task, without the masks of basis tasks.
    - max_seconds: time limit. The result has what was tried within it; `skipped` names the rest.
    - preprocessing, progress: as in `ImpressLearner`. seed: of the split, network and trainings.

    Raises InputError if a task has too few examples to hold some back, or if no method fits a
    budget or finishes in `max_seconds`.
    """
    ends = time.monotonic() + check_number("max_seconds", max_seconds, 0.0)
    if not isinstance(budgets, Collection) or isinstance(budgets, str) or not len(budgets):
        raise InputError(f"budgets must be numbers of bytes such as [300, 1000], got {budgets!r}")
    sizes = sorted({check_integer("a budget", budget, 1) for budget in budgets})
    labelled: Any = tasks if isinstance(tasks, (Mapping, list)) else {"task": tasks}
    check_mapping("tasks", labelled, "{name: data}")
    data = {name: as_examples(of, layout=preprocessing) for name, of in labelled.items()}
    largest_first = sorted(data, key=lambda name: -len(data[name]))
    # No method trains masks over a pretrained network.
    count = 0 if getattr(backbone, "pretrained", False) else min(MOST_BASIS, len(data) // 3)
    basis = {name: data[name] for name in largest_first[:count]}
    cases = folds({name: data[name] for name in largest_first[count:]}, check_seed(seed))
    common: dict[str, Any] = {"preprocessing": preprocessing, "seed": seed, "shape": ()}
    if backbone is None:  # it is created later, for the data
        common["shape"], common["classes"] = sizes_of(data, preprocessing)
    else:
        common |= {"backbone": check_backbone(backbone), "classes": backbone.num_classes}

    def check_time(*_: Any) -> None:
        if time.monotonic() > ends:
            raise TimeoutError("max_seconds were over")

    # Trials use this function as their log, so that it also ends a long training.
    in_time = {**common, "progress": check_time}
    banks: dict[str, MaskBank] = {}

    def learner_of(candidate: Candidate, **settings: Any) -> ImpressLearner:
        check_time()
        settings = {**in_time, **candidate.settings, **settings}
        if candidate.basis:
            # All presets train the same masks, but their networks may have different heads.
            made_for = candidate.preset if backbone is None else "network"
            if made_for not in banks:
                banks[made_for] = _new_learner(candidate, basis, in_time).bank_
            settings["bank"] = banks[made_for]
        return _new_learner(candidate, basis, settings)

    candidates = [method for method in CANDIDATES if method.suits(backbone, count > 0)]
    trials: list[Trial] = []
    skipped: dict[str, str] = {}
    with progress_for(progress).titled("advice").track(len(candidates)) as advance:
        for candidate in candidates:
            try:
                trials.extend(_trials(candidate, cases[0], sizes, learner_of))
            except (InputError, TrainingError, TimeoutError) as error:
                skipped[candidate.name] = str(error)
            advance()

    def finalists() -> list[Trial]:
        chosen: list[Trial] = []
        for limit in sizes:
            fitting = [trial for trial in trials if trial.sizes[0] <= limit]
            best = sorted(fitting, key=lambda trial: (-trial.accuracies[0], trial.sizes[0]))
            chosen += best[:FINALISTS]
        return list(dict.fromkeys(chosen))

    with suppress(TimeoutError):
        for number in range(1, len(cases)):
            while left := [trial for trial in finalists() if len(trial.sizes) <= number]:
                check_time()
                try:
                    left[0].learn(*cases[len(left[0].sizes)])
                except (InputError, TrainingError) as error:  # the next best takes its place
                    trials.remove(left[0])
                    skipped[f"{left[0].candidate.name} in {left[0].budget} bytes"] = str(error)
    if not trials:
        raise InputError(f"no method could be tried: {next(iter(skipped.values()))}")
    compared = finalists()
    learned_by_all = min(len(trial.sizes) for trial in compared)
    for trial in compared:  # on the same tasks
        for values in (trial.accuracies, trial.sizes, trial.seconds, trial.held_back):
            del values[learned_by_all:]
    points = {}
    for limit in sizes:
        if fitting := [trial for trial in compared if max(trial.sizes) <= limit]:
            points[limit] = min(fitting, key=Trial.rank)
    for trial in trials:  # stop using the log of this call
        trial.learner.progress = False
    top = min(points.values(), key=Trial.rank)
    budget = min(size for size in points if points[size].accuracy >= top.accuracy - top.error)
    used = basis if points[budget].candidate.basis else {}
    by_size = tuple(sorted(trials, key=lambda trial: trial.bytes))
    return Advice(points, budget, by_size, skipped, used, common)


def sizes_of(
    tasks: Mapping[str, Data], preprocessing: Preprocessing | None
) -> tuple[Sequence[int], int]:
    """The shape of one prepared input, as in `create_learner`, and the most classes of any task."""
    inputs = next(iter(tasks.values())).inputs_at(np.array([0]))
    shape = preprocessing.shape if preprocessing is not None else None
    most = max(len(classes_of(task.labels)) for task in tasks.values())
    has_words = preprocessing is not None and preprocessing.tokenizer is not None
    if has_words or isinstance(inputs, Inputs):
        return (), most
    return shape or inputs[0].shape, most


def _trials(
    candidate: Candidate, case: Case, sizes: Sequence[int], learner_of: Callable[..., Any]
) -> Iterator[Trial]:
    """Tries a method at ever smaller budgets, except budgets that the previous trial fits."""
    needed = math.inf
    for budget in reversed(sizes):
        if needed <= budget:
            continue
        # Bytes are about proportional to 1 / √price, so this price should fill the budget. Training
        # can only raise it; from half of it, integers per weight lose half a point, from a tenth 4.
        price = candidate.price * len(case[1]) / 1000 * (candidate.bytes / budget) ** 2
        learner = learner_of(candidate, max_bytes=budget, bit_price=price)
        trial = Trial(candidate, budget, price, learner)
        trial.learn(*case)
        needed = trial.bytes
        yield trial


def _new_learner(
    candidate: Candidate, basis: Mapping[str, Data], settings: Mapping[str, Any]
) -> ImpressLearner:
    """A learner with the masks of the candidate, which it trains unless settings have a bank."""
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


def folds(pilots: Mapping[str, Data], seed: int) -> list[Case]:
    """A fold of each task, then further folds until enough examples are held back."""
    cases, total = list[Case](), 0
    for fold in range(FOLDS):
        for name, data in pilots.items():
            if len(cases) == MAX_CASES or total >= ENOUGH_HELD_BACK:
                return cases
            generator = np.random.default_rng(seed % 2**64)
            held = np.zeros(len(data.labels), dtype=bool)
            for label in np.unique(data.labels):
                of_class = generator.permutation(np.flatnonzero(data.labels == label))
                # The first example is never held back, so that every class has an example to learn.
                held[of_class[1:][fold::FOLDS]] = True
            if not held.any():
                if fold:  # small tasks have fewer folds
                    continue
                raise InputError(f"task {name!r} needs two examples of a class; one is held back")
            title = name if fold == 0 else f"{name} ({fold + 1})"
            held_back = data.subset(np.flatnonzero(held))
            cases.append((title, data.subset(np.flatnonzero(~held)), held_back))
            total += len(held_back)
    return cases
