"""`advise`: the most accurate way to learn tasks in so many bytes, found by short trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torch import Tensor

from impresslearn.checks import check_integer
from impresslearn.data import Examples, Preprocessing, as_examples
from impresslearn.errors import InputError
from impresslearn.learner.candidates import Data, LearnerFactory
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.search import Search, Trial, share_learned
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.statistics import Summary, summarise
from impresslearn.tables import ABSENT, Table, percent, size, size_of, table_of
from impresslearn.training.progress import ProgressChoice, progress_for

MOST_BASIS = 5
ALIKE, KNOWN = 0.5, 2.0
"""Points that a cheaper way may be behind the best one to be offered beside it, and half the
interval of that at most."""


@dataclass(frozen=True)
class Advice:
    """What `advise` found: the best of the trials that fit, and how to go on with it.

    best: the trial that is recommended; trials: all, the smallest first; budget: bytes a task;
    basis: basis tasks of the recommended learner, without those whose masks no task uses. price: of
    a bit, when no example is held back: the trial's, raised as the examples are more, so that bits
    weigh against the loss as they did and tasks take as many. cheaper: the way of the fewest bytes,
    at most half as many, that these trials do not show to be worse, and that is at most half a
    point behind; None where there is none.
    """

    best: Trial
    price: float
    trials: tuple[Trial, ...]
    budget: int
    basis: tuple[str, ...]
    factory: LearnerFactory = field(repr=False)
    cheaper: Advice | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments for `ImpressLearner.from_preset` with the preset of the candidate."""
        return {
            **self.best.candidate.settings,
            "bit_price": self.price,
            "max_bytes": self.budget,
        }

    def create_learner(self, progress: ProgressChoice = "auto") -> ImpressLearner:
        """A learner with these settings and masks, which has learned the basis tasks, if any."""
        chosen = self.best.candidate
        return self.factory.finished(chosen, self.price, self.budget, self.basis, progress)

    def options(self) -> list[str]:
        """The options of `impresslearn learn` that make such a store, the basis tasks' apart."""
        chosen = self.best.candidate
        found = ["--preset", chosen.preset, "--bit-price", f"{self.price:.3g}"]
        found += ["--max-bytes", str(self.budget)]
        found += ["--backbone", chosen.backbone] if chosen.backbone else []
        for name, value in chosen.settings.items():
            found += [f"--{name.replace('_', '-')}", str(value)]
        if chosen.masks:
            found += ["--random-masks", str(chosen.masks), "--mask-source", chosen.source]
        return found + (["--features"] if chosen.features else [])

    def table(self) -> Table:
        """The trials, one a row, the recommended one marked.

        points behind: what it is ahead of a trial that fits, in accuracy on the cases of both, with
        half the 95% t interval; a smaller lead may be chance.
        """
        return table_of([self._row(trial) for trial in self.trials])

    def _row(self, trial: Trial) -> dict[str, Any]:
        row = {"": "→" if trial == self.best else "", **trial.row(), "points behind": ABSENT}
        del row["seconds"]
        if trial.bytes > self.budget:
            return row | {"points behind": "over budget"}
        if trial != self.best:
            row["points behind"] = _points(_behind(trial, self.best))
        return row

    def chart(self) -> Any:
        """Accuracy against bytes of all trials, as an Altair chart."""
        from impresslearn.plotting import line_chart, styled  # Altair takes a second to import

        title = f"Trials on held-out examples; the budget is {size(self.budget)}"
        rows = [trial.row() for trial in self.trials]
        settings: Any = {"x_label": "bytes per task", "joined": False, "log_x": True}
        chart = line_chart(rows, "bytes", "accuracy", "candidate", **settings)
        return styled(chart, title)

    def summary(self) -> str:
        """The recommendation in a line."""
        best = self.best
        line = f"{best.candidate.name}, preset {best.candidate.preset!r}, "
        line += f"price {self.price:.3g} for whole tasks"
        found = f"{percent(best.accuracy)} on examples held back, {size(round(best.bytes))} a task"
        return f"{line}: {found} (budget {size(self.budget)})"

    def summary_of_cheaper(self) -> str:
        """The cheaper way in a line; empty where there is none."""
        if self.cheaper is None:
            return ""
        points = _points(_behind(self.cheaper.best, self.best))
        return f"Cheaper, {points} points behind: {self.cheaper.summary()}"

    def __repr__(self) -> str:
        return "\n\n".join(filter(None, (*self._lines(), self.table().text())))

    def _repr_html_(self) -> str:
        lines = (f"<p>{line}</p>" for line in self._lines() if line)
        return "".join(lines) + self.table().html()

    def _lines(self) -> tuple[str, str]:
        return self.summary(), self.summary_of_cheaper()


def advise(
    tasks: Mapping[str, Any],
    budget: int | str,
    *,
    backbone: Backbone | None = None,
    basis: int | Sequence[str] | None = None,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    progress: ProgressChoice = "auto",
) -> Advice:
    """Which way to learn tasks like these is the most accurate in `budget` bytes a task.

    tasks: labelled data by name, as `learn_task` takes them, typical of those to come; a fifth of
    each is held back in a trial. budget: bytes, or "2kB" (of 1,000 bytes), that a task takes in the
    mean. backbone: the network; by default `lenet_300_100` is made for the data. basis: the tasks
    that masks are trained on, or how many of those with the most examples; by default a third of
    the tasks, at most five; 0 for none. Their masks, kept once for all tasks, are not counted.
    preprocessing, progress: as of `ImpressLearner`. Raises InputError where all are basis tasks,
    for a task too small to hold examples back, and where nothing fits the budget.
    """
    limit = size_of(budget) if isinstance(budget, str) else check_integer("budget", budget, 1)
    if not isinstance(tasks, Mapping) or not tasks:
        raise InputError(f"tasks must map names to labelled data, got {type(tasks).__name__}")
    data = {name: as_examples(each) for name, each in tasks.items()}
    if backbone is None:
        _check_sizes(data)
    chosen = basis_of(data, basis)
    factory = LearnerFactory(
        None if backbone is None else check_backbone(backbone),
        data,
        chosen,
        preprocessing,
        check_integer("seed", seed, 0),
    )
    pilots = {name: each for name, each in data.items() if name not in chosen}
    search = Search(factory, pilots, limit)
    with progress_for(progress).titled("advice").track(search.steps()) as advance:
        best = search.best(advance)
    trials = search.trials()

    def advice(trial: Trial, cheaper: Advice | None = None) -> Advice:
        masks = chosen if trial.candidate.basis else ()
        used = tuple(name for name in masks if name not in trial.unused)
        price = trial.price / share_learned(search.cases)
        return Advice(trial, price, trials, limit, used, factory, cheaper)

    cheaper = _cheaper(best, trials)
    return advice(best, None if cheaper is None else advice(cheaper))


def _cheaper(best: Trial, trials: Sequence[Trial]) -> Trial | None:
    """The trial of the fewest bytes, half those of the best at most, that is not shown worse.

    Tried on the same cases, and without basis masks, which cost more, where the best has none.
    """

    def alike(trial: Trial) -> bool:
        behind = _behind(trial, best)
        half = behind.half_width
        return half is not None and half <= KNOWN and behind.mean <= min(ALIKE, half)

    small = (
        trial
        for trial in trials
        if 2 * trial.bytes <= best.bytes
        and trial.cases == best.cases
        and (best.candidate.basis or not trial.candidate.basis)
    )
    return min(filter(alike, small), key=lambda trial: trial.bytes, default=None)


def _behind(trial: Trial, best: Trial) -> Summary:
    """Points of accuracy that a trial is behind the best on the cases of both."""
    pairs = zip(best.accuracies, trial.accuracies, strict=False)
    return summarise([100 * (one - other) for one, other in pairs], "case")


def _points(behind: Summary) -> str:
    """A difference with half its interval; absent where there is none."""
    if behind.half_width is None:
        return ABSENT
    mean = round(behind.mean, 1) or 0.0  # never −0.0
    return f"{mean:.1f}\u00a0±\u00a0{behind.half_width:.1f}".replace("-", "−")


def _check_sizes(tasks: Mapping[str, Data]) -> None:
    """Raises InputError where a table has more columns than another: one network takes both."""
    tables = [
        (name, each.inputs.shape[1])
        for name, each in tasks.items()
        if isinstance(each, Examples) and isinstance(each.inputs, Tensor) and each.inputs.dim() == 2
    ]
    for (first, expected), (name, count) in pairwise(tables):
        if count != expected:
            raise InputError(
                f"task {name!r} has {count} values an input, task {first!r} {expected}; tasks over "
                "one network have inputs of one size, so ask for advice on each apart"
            )


def basis_of(data: Mapping[str, Data], basis: int | Sequence[str] | None) -> tuple[str, ...]:
    """The names of the basis tasks. Raises InputError for unknown ones, and for no task besides."""
    if basis is None:
        basis = min(MOST_BASIS, len(data) // 3)
    if isinstance(basis, Sequence):
        names = list(dict.fromkeys([basis] if isinstance(basis, str) else basis))
        if unknown := [name for name in names if name not in data]:
            raise InputError(f"basis names {unknown[0]!r}, which is none of the tasks")
    else:
        count = check_integer("basis", basis, 0)
        names = sorted(data, key=lambda name: -len(data[name]))[:count]
    if len(names) >= len(data):
        raise InputError(
            f"all {len(data)} tasks are basis tasks; leave one at least to try candidates on"
        )
    return tuple(names)
