"""How well a learner finds the tasks of inputs that come without a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from impresslearn.data import Prepared, classes_of
from impresslearn.errors import InputError
from impresslearn.networks.inputs import checked_examples
from impresslearn.report.cells import Cells, cells_of
from impresslearn.validation import check_integer


@dataclass(frozen=True)
class InferenceScores:
    """What came of asking a learner which task inputs belong to, a row for each number of inputs.

    rows: inputs asked with at once; trials; task_accuracy, the share of them whose most likely task
    is right; stated_accuracy, what the posterior said of that task; rejected, the share told to be
    of no task; accuracy of the labels that the most likely tasks predict.
    """

    rows: tuple[Mapping[str, Any], ...]

    def table(self) -> Cells:
        """The rows as a table."""
        return cells_of(self.rows)

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def score_inference(
    learner: Any,
    tasks: Mapping[str, Any],
    *,
    inputs: int | Sequence[int] = (1, 8, 64),
    trials: int = 10,
    seed: int = 0,
    **how: Any,
) -> InferenceScores:
    """Asks a learner which task unlabelled inputs belong to, and how often it is right.

    tasks: labelled data by name, such as test sets, of tasks that the learner has. inputs: how many
    to ask with at once, or several such numbers. trials: draws of so many inputs of each task. how:
    arguments of `learner.infer_task`, such as method and among.
    Raises InputError for labels that a task has not seen and for fewer examples than inputs,
    UnknownTaskError for other tasks.
    """
    if not isinstance(tasks, Mapping) or not tasks:
        raise InputError(f"tasks must map names to labelled data, got {type(tasks).__name__}")
    for name in tasks:
        learner.tasks_[name]  # UnknownTaskError for one that it does not have
    data = {
        name: checked_examples(learner.backbone, each, learner.preprocessing_)
        for name, each in tasks.items()
    }
    for name, examples in data.items():
        if unknown := set(classes_of(examples.labels)) - set(learner.tasks_[name].classes):
            raise InputError(f"label {min(unknown)!r} was never seen by task {name!r}")
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
                given = Prepared(examples.inputs_at(places))
                guess = learner.infer_task(given, **how)
                predicted = learner.predict(given, task=guess.best)
                asked.append(
                    {
                        "task_accuracy": float(guess.best == name),
                        "stated_accuracy": guess.posterior[guess.best],
                        "rejected": float(guess.unknown),
                        "accuracy": float(np.mean(predicted == examples.labels[places])),
                    }
                )
        means = {key: fmean(each[key] for each in asked) for key in asked[0]}
        rows.append({"inputs": count, "trials": len(asked), **means})
    return InferenceScores(tuple(rows))
