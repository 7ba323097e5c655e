"""What the parts of a run found: as kept outcomes, as rows of its record, for TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isnan, nan
from pathlib import Path
from typing import Any

from impresslearn.errors import MissingDependencyError
from impresslearn.experiments.targets.tables import filled, read_tables
from impresslearn.methods import Evaluation, average_accuracy

VALUES = ("tasks", "roles", "added_bytes", "matrix")
"""What a kept outcome says; see `stored`."""


@dataclass(frozen=True)
class Trial:
    """What the method of a label did on one seed."""

    method: str
    seed: int
    evaluation: Evaluation

    @classmethod
    def restored(cls, row: Mapping[str, Any]) -> Trial:
        """The trial of a row with method, seed and a kept outcome's values."""
        tasks = tuple(row["tasks"])
        sizes, roles = (
            {task: value for task, value in zip(tasks, row[name], strict=True) if value is not None}
            for name in ("added_bytes", "roles")
        )
        matrix = tuple(tuple(nan if v is None else v for v in each) for each in row["matrix"])
        return cls(row["method"], row["seed"], Evaluation(tasks, matrix, sizes, roles, 0.0))

    def measures(self) -> dict[str, float | None]:
        """The measures by name, and the mean of the bytes that a task added."""
        found = self.evaluation.summary()
        del found["seconds"]
        return found


def stored(found: Evaluation) -> dict[str, Any]:
    """Plain values: tasks in the order they were learned, the accuracy matrix, and per task the
    bytes that learning it added and how it is kept; None for what is not known.
    """
    return {
        "tasks": list(found.tasks),
        "roles": [found.roles.get(task) for task in found.tasks],
        "added_bytes": [found.bytes.get(task) for task in found.tasks],
        "matrix": [[None if isnan(value) else value for value in row] for row in found.matrix],
    }


def summaries(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """{method, seeds, and each measure's mean over them}, a method an entry."""
    found = []
    for method in dict.fromkeys(trial.method for trial in trials):
        each = [trial.measures() for trial in trials if trial.method == method]
        means = {key: _mean([one[key] for one in each]) for key in each[0]}
        found.append({"method": method, "seeds": len(each), **means})
    return found


def figures(methods: Sequence[str]) -> list[dict[str, Any]]:
    """How a run's record is drawn; `targets.toml` has the tables beside them."""
    entry = read_tables("targets.toml")["run"]
    maps = [filled(entry["map"], "method", method) for method in methods]
    return [entry["line"] | {"order": list(methods)}, entry["bar"], *maps]


def rows_of_trials(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a run's record, of three kinds, from one a trial.

    `learned` tasks so far (0 to T), the task evaluated and its `place` (1 to T), whether it is
    `seen`, and its accuracy where it is known; a task's role, bytes and final accuracy; the
    measures of a trial.
    """
    return [found for row in rows for found in _rows(Trial.restored(row))]


def _rows(trial: Trial) -> Iterator[dict[str, Any]]:
    whose = {"method": trial.method, "seed": trial.seed}
    found = trial.evaluation
    places = list(enumerate(found.tasks, start=1))
    for learned, row in enumerate(found.matrix):
        for (place, task), accuracy in zip(places, row, strict=True):
            where = {"learned": learned, "task": task, "place": place, "seen": place <= learned}
            if not isnan(accuracy):
                yield {**whose, **where, "accuracy": accuracy}
    for place, task in places:
        kept = {"role": found.roles.get(task), "bytes": found.bytes.get(task)}
        known = {key: value for key, value in kept.items() if value is not None}
        final = {"final_accuracy": found.matrix[-1][place - 1]}
        yield {**whose, "task": task, "place": place, **known, **final}
    yield whose | {key: value for key, value in trial.measures().items() if value is not None}


def summary_writer() -> Any:
    """TensorBoard's writer of events. Raises MissingDependencyError where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingDependencyError(
            "[run]: tensorboard needs a package: pip install 'impresslearn[tensorboard]'"
        ) from None
    return SummaryWriter


def write_events(folder: Path, keys: Sequence[str], trials: Sequence[Trial]) -> None:
    """A run of TensorBoard's for each trial, by tasks learned; those that are there are left alone.

    keys: of the trials' jobs.
    """
    writer_class = summary_writer()
    for key, trial in zip(keys, trials, strict=True):
        label = re.sub(r"[^A-Za-z0-9._-]", "_", trial.method)
        target = folder / label / f"seed-{trial.seed}-{key[:8]}"
        if target.exists():
            continue
        found = trial.evaluation
        with writer_class(str(target)) as writer:
            for learned in range(1, len(found.tasks) + 1):
                average = average_accuracy(found.matrix, learned)
                writer.add_scalar("average_accuracy", average, learned)
                for task, value in zip(found.tasks[:learned], found.matrix[learned], strict=False):
                    writer.add_scalar(f"accuracy/{task}", value, learned)
            for name, measure in trial.measures().items():
                if measure is not None:
                    writer.add_scalar(f"final/{name}", measure, len(found.tasks))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if len(known) == len(values) else None
