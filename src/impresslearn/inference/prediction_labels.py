"""The accuracy of task inference, and the names of the tasks of a batch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from impresslearn.checks import check_integer, check_mapping
from impresslearn.data import Prepared, as_examples, encode_labels
from impresslearn.errors import InputError
from impresslearn.inference.task_inference import TaskGuess
from impresslearn.networks.inputs import checked_examples
from impresslearn.tables import table_of


def check_task_names(tasks: Any, count: int) -> list[str]:
    """The task names of a batch, one per input. Raises InputError unless there are `count`."""
    if isinstance(tasks, str):
        return [tasks] * count
    names = list(tasks) if isinstance(tasks, Iterable) else [tasks]
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"task must be a name, one name per input, or None, got {name!r}")
    if len(names) != count:
        line = f"{count} inputs came with {len(names)} task names; give one string for all of them"
        raise InputError(f"{line}, or a list of {count}")
    return names


@dataclass(frozen=True)
class InferenceScores:
    """How well a learner infers the task of inputs.

    - rows: one per number of inputs: inputs, asked with at once; trials; task_accuracy, the share
      of trials whose most likely task is right; accuracy of the labels that the most likely tasks
      predict; stated_accuracy, the posterior of the most likely task; rejected, the share called
      unknown.
    """

    rows: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        return table_of(self.rows).text()

    def _repr_html_(self) -> str:
        return table_of(self.rows).html()


def score_inference(
    method: Any,
    tasks: Mapping[str, Any],
    *,
    inputs: int | Sequence[int] = (1, 8, 64),
    trials: int = 10,
    seed: int = 0,
    **settings: Any,
) -> InferenceScores:
    """Asks a learner, or another method, which task unlabelled inputs belong to.

    - method: has `infer_task(inputs)`, which returns a `TaskGuess` or a task's name, and
      `predict(inputs, task)`.
    - tasks: labelled data by name, such as test sets, of tasks that it has learned.
    - inputs: how many to ask with at once, or several such numbers.
    - trials: draws of inputs from each task.
    - seed: draws the inputs.
    - settings: arguments of `infer_task`, such as `among`.

    Raises InputError for labels that a task has not seen and for fewer examples than inputs, and
    UnknownTaskError for other tasks.
    """
    check_mapping("tasks", tasks, "{name: (inputs, labels)}")
    is_learner = hasattr(method, "preprocessing_")
    data = {}
    for name, labelled in tasks.items():
        if is_learner:
            data[name] = checked_examples(method.backbone, labelled, method.preprocessing_)
            encode_labels(data[name].labels, method.tasks_[name].classes)  # raises for others
        else:
            data[name] = as_examples(labelled)
    counts = [inputs] if isinstance(inputs, int) else list(inputs)
    fewest = min(map(len, data.values()))
    if not counts:
        raise InputError("inputs must be numbers of inputs, such as [1, 8], got none")
    for count in counts:
        check_integer("inputs, at most a task's examples,", count, 1, fewest + 1)
    names = np.repeat(list(data), check_integer("trials", trials, 1)).tolist()
    generator = np.random.default_rng(check_integer("seed", seed, 0))
    rows = []
    for count in counts:
        answers = []
        for name in names:
            places = np.sort(generator.choice(len(data[name]), count, replace=False))
            batch: Any = data[name].inputs_at(places)
            batch = Prepared(batch) if is_learner else batch
            guess = method.infer_task(batch, **settings)
            best = guess.best if isinstance(guess, TaskGuess) else guess
            correct = method.predict(batch, task=best) == data[name].labels[places]
            answer = {"task_accuracy": float(best == name), "accuracy": float(correct.mean())}
            if isinstance(guess, TaskGuess):
                answer["stated_accuracy"] = guess.posterior[best]
                answer["rejected"] = float(guess.unknown)
            answers.append(answer)
        means = {key: fmean(answer[key] for answer in answers) for key in answers[0]}
        rows.append({"inputs": count, "trials": len(answers), **means})
    return InferenceScores(tuple(rows))
