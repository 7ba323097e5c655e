"""How well a learner finds the tasks of inputs that come without a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from impresslearn.checks import check_integer
from impresslearn.data import Prepared, as_examples, classes_of
from impresslearn.data.paths import users_code
from impresslearn.errors import InputError
from impresslearn.inference.task_inference import TaskGuess
from impresslearn.networks.inputs import checked_examples
from impresslearn.tables import Table, table_of


@dataclass(frozen=True)
class InferenceScores:
    """What came of asking a learner which task inputs belong to, a row for each number of inputs.

    rows: inputs asked with at once; trials; task_accuracy, the share of them whose most likely task
    is right; accuracy of the labels that the most likely tasks predict; stated_accuracy, what the
    posterior said of the most likely task; rejected, the share told to be of no task.
    """

    rows: tuple[Mapping[str, Any], ...]

    def table(self) -> Table:
        """The rows as a table."""
        return table_of(self.rows)

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def score_inference(
    method: Any,
    tasks: Mapping[str, Any],
    *,
    inputs: int | Sequence[int] = (1, 8, 64),
    trials: int = 10,
    seed: int = 0,
    **how: Any,
) -> InferenceScores:
    """Asks a learner, or another method, which task unlabelled inputs belong to.

    method: with `infer_task(inputs)`, which returns a `TaskGuess` or a task's name, and
    `predict(inputs, task)`. tasks: labelled data by name, such as test sets, of tasks that it has
    learned. inputs: how many to ask with at once, or several such numbers. trials: draws of so many
    inputs of each task. how: arguments of `infer_task`, such as among.
    Raises InputError for labels that a task has not seen and for fewer examples than inputs,
    UnknownTaskError for other tasks.
    """
    if not isinstance(tasks, Mapping) or not tasks:
        raise InputError(f"tasks must map names to labelled data, got {type(tasks).__name__}")
    ours, kind = hasattr(method, "preprocessing_"), type(method).__name__
    known = [method.tasks_[name] for name in tasks] if ours else []  # UnknownTaskError for others
    data = {
        name: checked_examples(method.backbone, each, method.preprocessing_)
        if ours
        else as_examples(each)
        for name, each in tasks.items()
    }
    for task in known:
        if unknown := set(classes_of(data[task.name].labels)) - set(task.classes):
            raise InputError(f"label {min(unknown)!r} was never seen by task {task.name!r}")
    inputs = [inputs] if isinstance(inputs, int) else list(inputs)
    if not inputs:
        raise InputError("inputs must be a number of inputs, or several, got none")
    counts = [check_integer("inputs", each, 1, min(map(len, data.values())) + 1) for each in inputs]
    trials, rows = check_integer("trials", trials, 1), []
    generator = np.random.default_rng(check_integer("seed", seed, 0))
    for count in counts:
        asked: list[dict[str, float]] = []
        for name, examples in data.items():
            for _ in range(trials):
                places = np.sort(generator.choice(len(examples), count, replace=False))
                given: Any = examples.inputs_at(places)
                given = Prepared(given) if ours else given
                with users_code(lambda: f"infer_task of {kind}"):
                    guess = method.infer_task(given, **how)
                found = guess.best if isinstance(guess, TaskGuess) else guess
                if not isinstance(found, str):
                    raise InputError(
                        f"infer_task of {kind} must return a task's name, or a TaskGuess, "
                        f"got {found!r}"
                    )
                with users_code(lambda: f"predict of {kind}"):
                    right = method.predict(given, task=found) == examples.labels[places]
                row = {"task_accuracy": float(found == name), "accuracy": float(np.mean(right))}
                if isinstance(guess, TaskGuess):
                    row["stated_accuracy"] = guess.posterior[found]
                    row["rejected"] = float(guess.unknown)
                asked.append(row)
        means = {key: fmean(each[key] for each in asked) for key in asked[0]}
        rows.append({"inputs": count, "trials": len(asked), **means})
    return InferenceScores(tuple(rows))
