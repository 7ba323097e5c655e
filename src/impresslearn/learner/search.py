"""The search behind `advise`: candidates priced to meet a budget, compared by successive halving.

Some of each task's examples are held back. A candidate's price is found on a first task, and raised
where others take more. The best third is tried on more tasks, and the best of it is recommended
(successive halving by three: Jamieson and Talwalkar, 2016).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, log
from statistics import fmean
from typing import Any

import numpy as np

from impresslearn.coefficients.mixing import Coefficients
from impresslearn.errors import InputError, NotLearnedWarning, TrainingError
from impresslearn.learner.candidates import CANDIDATES, Candidate, Data, LearnerFactory
from impresslearn.learner.learner import ImpressLearner
from impresslearn.masks.bank import MaskBank
from impresslearn.tables import size

FOLDS = 5
"""Parts of a task's examples, of which one is held back."""
ENOUGH = (200, 500)
"""Examples held back that each round sees at least, if there are as many."""
KEPT = 3
"""One of so many candidates goes on to the next round; two of them at least."""
MOST_CASES = 30
MOST_PRICES = 4
"""Prices at which a candidate is tried to meet the budget."""
CLOSE = 0.75
"""A trial that uses this share of the budget meets it; the middle of these is aimed at."""
AIM = (1 + CLOSE) / 2
PRICES = 1e-6, 1e6


@dataclass(frozen=True)
class Trial:
    """What a candidate came to at a price on the cases that were tried: tasks, or folds of them.

    accuracies: in [0, 1], of each case, on examples held back; bytes: of a task in the mean;
    seconds: of all together; unused: basis masks whose coefficients were all zero.
    """

    candidate: Candidate
    price: float
    accuracies: tuple[float, ...]
    bytes: float
    seconds: float
    unused: frozenset[str] = frozenset()

    @property
    def accuracy(self) -> float:
        """The mean of `accuracies`."""
        return fmean(self.accuracies)

    @property
    def cases(self) -> int:
        """How many cases were tried."""
        return len(self.accuracies)

    def row(self) -> dict[str, Any]:
        """The trial as plain values."""
        return {
            "candidate": self.candidate.name,
            "price": float(f"{self.price:.3g}"),
            "bytes": self.bytes,
            "accuracy": self.accuracy,
            "cases": self.cases,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Case:
    """A task, or a fold of it: what to learn from, and what is held back."""

    name: str
    train: Data
    held_back: Data


@dataclass
class Run:
    """A candidate at a price, and what came of the cases that it was tried on so far."""

    candidate: Candidate
    price: float
    learner: ImpressLearner
    accuracies: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def try_on(self, cases: Sequence[Case]) -> None:
        """Learns the cases that it has not been tried on yet, in order."""
        for number in range(len(self.accuracies), len(cases)):
            started, case = time.perf_counter(), cases[number]
            with warnings.catch_warnings():  # the price may be too high
                warnings.simplefilter("ignore", NotLearnedWarning)
                self.learner.learn_task(case.name, case.train, seed=number)
            self.accuracies.append(self.learner.score(case.held_back, case.name))
            self.sizes.append(self.learner.tasks_[case.name].bytes)
            self.seconds += time.perf_counter() - started

    @property
    def accuracy(self) -> float:
        return fmean(self.accuracies)

    @property
    def bytes(self) -> float:
        return fmean(self.sizes)

    def trial(self) -> Trial:
        learner, mixed = self.learner, self.candidate.basis
        mixed = mixed and learner.settings.granularity in ("layer", "unit")
        unused = unused_masks(learner.bank_, learner.coefficients_.values()) if mixed else ()
        seen = tuple(self.accuracies)
        return Trial(self.candidate, self.price, seen, self.bytes, self.seconds, frozenset(unused))


def unused_masks(bank: MaskBank, tasks: Iterable[Coefficients]) -> list[str]:
    """The masks that have a coefficient of zero everywhere in all of these tasks."""
    used: set[int] = set()
    for alpha in (layer for task in tasks for layer in task.alpha):
        used |= set(alpha.reshape(len(alpha), -1).any(dim=1).nonzero()[:, 0].tolist())
    return [name for place, name in enumerate(bank.names) if place not in used]


class Search:
    """Rounds over candidates, each at the price that meets the budget."""

    def __init__(self, factory: LearnerFactory, pilots: Mapping[str, Data], budget: int) -> None:
        self.factory = factory
        self.cases = cases_of(pilots, factory.seed, ENOUGH[-1])
        self.budget = budget
        self.candidates = [
            each for each in CANDIDATES if each.suits(factory.backbone, bool(factory.basis))
        ]
        self.runs: list[Run] = []
        self.errors: list[Exception] = []
        held = np.cumsum([len(each.held_back) for each in self.cases])
        counts = (int(np.searchsorted(held, enough)) + 1 for enough in ENOUGH)
        self.rounds = [min(count, len(self.cases)) for count in counts]

    def best(self, advance: Callable[[], None]) -> Trial:
        """The best of the candidates that are left when one is, or after the last round.

        advance: called after each step of at most `steps`. Raises InputError where nothing fits.
        """
        tried = [self._fitted(each, advance) for each in self.candidates]
        left = [run for run in tried if run is not None]
        for count in self.rounds:
            for run in left:
                run.try_on(self.cases[:count])
                advance()
            compared = self._that_fit(left) or left
            compared.sort(key=lambda run: run.accuracy, reverse=True)
            left = compared[: max(ceil(len(compared) / KEPT), 2)]
            if len(left) == 1:
                break
        fitting = [run for run in compared if run.bytes <= self.budget]
        if not self.runs and self.errors:
            raise self.errors[0]
        if not fitting:
            least = size(min((run.bytes for run in self.runs), default=0))
            line = f"no candidate fits {size(self.budget)} a task"
            raise InputError(f"{line}; the smallest that was tried took {least}")
        return max(fitting, key=lambda run: run.accuracy).trial()

    def trials(self) -> tuple[Trial, ...]:
        """All trials so far, the smallest first."""
        found = map(Run.trial, self.runs)
        return tuple(sorted(found, key=lambda trial: trial.bytes))

    def steps(self) -> int:
        """How often `best` advances at most."""
        return len(self.candidates) * (MOST_PRICES + len(self.rounds))

    def _run(self, candidate: Candidate, price: float) -> Run | None:
        """A candidate tried on the first case; None where it cannot learn it."""
        try:
            run = Run(candidate, price, self.factory.learner(candidate, price))
            run.try_on(self.cases[:1])
        except (InputError, TrainingError) as error:
            self.errors.append(error)
            return None
        self.runs.append(run)
        return run

    def _fitted(self, candidate: Candidate, advance: Callable[[], None]) -> Run | None:
        """The candidate at the price that uses up most of the budget, where one fits."""
        tried: list[Run] = []
        price = candidate.start(AIM * self.budget, len(self.cases[0].train.labels))
        for _ in range(MOST_PRICES):
            run = self._run(candidate, price)
            advance()
            if run is None:
                break
            tried.append(run)
            price = self._next_price(tried)
            if CLOSE * self.budget <= run.bytes <= self.budget or self._is_hopeless(tried):
                break
        fitting = [run for run in tried if run.bytes <= self.budget]
        return max(fitting, key=lambda run: (run.bytes, run.accuracy), default=None)

    def _that_fit(self, runs: Sequence[Run]) -> list[Run]:
        """The runs that fit the budget, and at a price at which they do, those ahead of these."""
        fitting = [run for run in runs if run.bytes <= self.budget]
        most = max((run.accuracy for run in fitting), default=0.0)
        dearer = (
            self._fitting(run)
            for run in runs
            if run.bytes > self.budget and run.accuracy + self._margin(run) > most
        )
        return fitting + [run for run in dearer if run is not None]

    def _margin(self, run: Run) -> float:
        """A standard error, or more, of a run's accuracy."""
        return 0.5 / sum(len(case.held_back) for case in self.cases[: len(run.accuracies)]) ** 0.5

    def _is_hopeless(self, tried: Sequence[Run]) -> bool:
        """Whether another price would not help: no bytes more come, or others do with fewer."""
        run = tried[-1]
        if len(tried) > 1 and run.bytes <= self.budget:
            changed = abs(log(run.bytes / tried[-2].bytes)) > 0.1
            if not changed and abs(log(run.price / tried[-2].price)) > 0.3:
                return True
        fitting = (each.accuracies[0] for each in self.runs if each.bytes <= self.budget)
        most = max(fitting, default=0.0)
        return run.bytes > self.budget and run.accuracy + self._margin(run) < most

    def _next_price(self, tried: Sequence[Run]) -> float:
        """Where the line through the last two trials, in logarithms, meets the budget.

        Between a price that was too low and one that was high enough, if there are both.
        """
        run, slope = tried[-1], -tried[-1].candidate.slope
        if len(tried) > 1:
            sizes = log(run.bytes / tried[-2].bytes)
            prices = log(run.price / tried[-2].price)
            slope = min(max(prices / sizes, -4.0), -0.5) if sizes * prices < 0 else -4.0
        price = run.price * exp(slope * log(AIM * self.budget / run.bytes))
        low = max((each.price for each in tried if each.bytes > self.budget), default=PRICES[0])
        high = min((each.price for each in tried if each.bytes <= self.budget), default=PRICES[1])
        return price if low < price < high else (low * high) ** 0.5

    def _fitting(self, run: Run) -> Run | None:
        """The run, or one at a higher price on the same cases, that fits the budget in the mean."""
        for _ in range(MOST_PRICES):
            if run.bytes <= self.budget:
                return run
            again = self._run(run.candidate, self._next_price([run]))
            if again is None:
                return None
            again.try_on(self.cases[: len(run.accuracies)])
            run = again
        return None


def share_learned(cases: Sequence[Case]) -> float:
    """The share of their examples that trials learn from; the others are held back."""
    learned = sum(len(case.train) for case in cases)
    return learned / (learned + sum(len(case.held_back) for case in cases))


def cases_of(pilots: Mapping[str, Data], seed: int, enough: int) -> list[Case]:
    """Tasks in turn, and further folds of them, until so many examples are held back.

    A task of the middle size comes first, as prices are fitted to it.
    """
    found: list[Case] = []
    by_size = sorted(pilots, key=lambda name: len(pilots[name]))
    middle = by_size[(len(by_size) - 1) // 2]
    ordered = {middle: pilots[middle], **pilots}
    for fold in range(FOLDS):
        for name, data in ordered.items():
            held = sum(len(each.held_back) for each in found)
            if len(found) >= MOST_CASES or (held >= enough and len(found) >= 3):
                return found
            title = name if fold == 0 else f"{name} ({fold + 1})"
            found.append(Case(title, *_split(data, fold, seed, name)))
    return found


def _split(data: Data, fold: int, seed: int, name: str) -> tuple[Data, Data]:
    """A fold of the data: what to learn from and what is held back, by class.

    Of each class the first example in a random order is never held back. Raises InputError where
    nothing could be.
    """
    generator = np.random.default_rng(seed)
    held = np.zeros(len(data.labels), dtype=bool)
    for label in np.unique(data.labels):
        places = generator.permutation(np.flatnonzero(data.labels == label))[1:]
        held[places[fold::FOLDS]] = True
    if not held.any():
        raise InputError(f"task {name!r} has too few examples to hold some back")
    return data.subset(np.flatnonzero(~held)), data.subset(np.flatnonzero(held))
