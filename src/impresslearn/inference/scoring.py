"""How well a learner finds the tasks of inputs that come without a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from impresslearn.checks import check_integer
from impresslearn.data import (
    Examples,
    Prepared,
    StreamedExamples,
    as_examples,
    classes_of,
)
from impresslearn.data.conversion import users_code
from impresslearn.errors import InputError
from impresslearn.inference.task_inference import TaskGuess
from impresslearn.networks.inputs import checked_examples
from impresslearn.tables import Table, table_of


@dataclass(frozen=True)
class InferenceScores:
    """How well a learner infers the task of inputs, a row for each number of inputs.

    - `rows`: mappings with inputs, asked with at once; trials; task_accuracy, the share of trials
      whose most likely task is right; accuracy of the labels that the most likely tasks predict;
      stated_accuracy, the posterior of the most likely task; rejected, the share called unknown.
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

    - `method`: has `infer_task(inputs)`, which returns a `TaskGuess` or a task's name, and
      `predict(inputs, task)`.
    - `tasks`: labelled data by name, such as test sets, of tasks that it has learned.
    - `inputs`: how many to ask with at once, or several such numbers.
    - `trials`: draws of inputs from each task.
    - `seed`: draws the inputs.
    - `how`: arguments of `infer_task`, such as `among`.

    Raises InputError for labels that a task has not seen and for fewer examples than inputs, and
    UnknownTaskError for other tasks.
    """
    if not isinstance(tasks, Mapping) or not tasks:
        raise InputError(f"tasks must map names to labelled data, got {type(tasks).__name__}")
    data = _examples(method, tasks)
    counts = [inputs] if isinstance(inputs, int) else list(inputs)
    if not counts:
        raise InputError("inputs must be a number of inputs, or several, got none")
    fewest = min(map(len, data.values()))
    for count in counts:
        check_integer("inputs", count, 1, fewest + 1)
    trials = check_integer("trials", trials, 1)
    generator = np.random.default_rng(check_integer("seed", seed, 0))
    rows = []
    for count in counts:
        answers = []
        for name, examples in data.items():
            for _ in range(trials):
                places = np.sort(generator.choice(len(examples), count, replace=False))
                answers.append(_ask(method, name, examples, places, how))
        means = {key: fmean(answer[key] for answer in answers) for key in answers[0]}
        rows.append({"inputs": count, "trials": len(answers), **means})
    return InferenceScores(tuple(rows))


def _is_learner(method: Any) -> bool:
    return hasattr(method, "preprocessing_")


def _examples(method: Any, tasks: Mapping[str, Any]) -> dict[str, Examples | StreamedExamples]:
    """The data of each task, for a learner checked against what it has learned."""
    if not _is_learner(method):
        return {name: as_examples(data) for name, data in tasks.items()}
    learned = {name: method.tasks_[name] for name in tasks}  # UnknownTaskError for others
    checked = {}
    for name, data in tasks.items():
        checked[name] = checked_examples(method.backbone, data, method.preprocessing_)
        if unknown := set(classes_of(checked[name].labels)) - set(learned[name].classes):
            raise InputError(f"label {min(unknown)!r} was never seen by task {name!r}")
    return checked


def _ask(
    method: Any,
    name: str,
    examples: Examples | StreamedExamples,
    places: np.ndarray,
    how: Mapping[str, Any],
) -> dict[str, float]:
    """One trial: how the method answers for the examples of a task at these places."""
    kind = type(method).__name__
    inputs: Any = examples.inputs_at(places)
    inputs = Prepared(inputs) if _is_learner(method) else inputs
    with users_code(lambda: f"infer_task of {kind}"):
        guess = method.infer_task(inputs, **how)
    best = guess.best if isinstance(guess, TaskGuess) else guess
    if not isinstance(best, str):
        raise InputError(
            f"infer_task of {kind} must return a task's name, or a TaskGuess, got {best!r}"
        )
    with users_code(lambda: f"predict of {kind}"):
        right = method.predict(inputs, task=best) == examples.labels[places]
    answer = {"task_accuracy": float(best == name), "accuracy": float(np.mean(right))}
    if isinstance(guess, TaskGuess):
        answer["stated_accuracy"] = guess.posterior[best]
        answer["rejected"] = float(guess.unknown)
    return answer
