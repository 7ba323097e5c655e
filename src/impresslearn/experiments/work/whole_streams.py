"""Jobs that learn a whole stream in one learner, and look back at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from impresslearn.data import Examples
from impresslearn.experiments.jobs import Outcome, Place, job_kind
from impresslearn.experiments.work.material import backbone_of, recipe_of, stream_of, train_and_test
from impresslearn.learner import ImpressLearner
from impresslearn.streams import Task

MOST_INPUTS = 1000
"""Test inputs a task whose logits are compared."""


@job_kind("stream", version=2)
def learn_a_stream(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """The tasks of a stream in order, the first `basis` of them as masks, the others as numbers.

    Settings: stream, backbone, mask (allocation, rule, recipe), coefficients (recipe, penalty),
    sparsity, granularity, basis, tasks, seed; labels: examples a task, all by default; searches:
    [method, inputs, positions] each, the tasks there being looked for among all.
    Values: rows, one for each task: task, role, accuracy and bytes_per_task when it was learned,
    accuracy_at_end, identical (whether its logits at the end are the same bits), and of each search
    whether it found the task.
    """
    backbone = backbone_of(settings["backbone"], place)
    mask, own = settings["mask"], settings["coefficients"]
    learner = ImpressLearner(
        backbone,
        sparsity=settings["sparsity"],
        granularity=settings["granularity"],
        allocation=mask["allocation"],
        score_rule=mask["rule"],
        basis_recipe=recipe_of(mask["recipe"]),
        task_recipe=recipe_of(own["recipe"]),
        penalty=own["penalty"],
        progress=False,
        cache_bytes=0,  # weights that were kept would hide a change of what they are made of
    )
    stream = stream_of(settings["stream"], place)
    tasks = [stream[number] for number in range(settings["tasks"])]
    rows, before = [], []
    for number, task in enumerate(tasks):
        train, test = train_and_test({**settings, "task": number}, place)
        assert isinstance(test, Examples)
        learn = learner.learn_basis if number < settings["basis"] else learner.learn_task
        learn(task.name, train, seed=settings["seed"])
        info = learner.tasks_[task.name]
        before.append(learner.logits(test.inputs[:MOST_INPUTS], task.name))
        row = {"task": task.name, "role": info.role, "accuracy": learner.score(test, task.name)}
        rows.append({**row, "bytes_per_task": info.bytes})
    for number, (task, row, logits) in enumerate(zip(tasks, rows, before, strict=True)):
        _, test = train_and_test({**settings, "task": number}, place)
        assert isinstance(test, Examples)
        after = learner.logits(test.inputs[:MOST_INPUTS], task.name)
        row["accuracy_at_end"] = learner.score(test, task.name)
        row["identical"] = torch.equal(logits, after)
        row |= _found(learner, task, test, settings["searches"], number)
    return Outcome({"rows": rows})


def _found(
    learner: ImpressLearner, task: Task, test: Examples, searches: Sequence, number: int
) -> dict[str, float]:
    """ "found by METHOD from INPUTS" -> 1.0 or 0.0."""
    found = {}
    for method, inputs, positions in searches:
        if number in positions:
            guess = learner.infer_task(test.inputs[:inputs], method=method)
            found[f"found by {method} from {inputs}"] = float(guess.best == task.name)
    return found
