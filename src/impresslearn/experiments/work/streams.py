"""A job that learns a whole stream in one learner, and looks at every task again at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from impresslearn.data import Examples
from impresslearn.experiments.jobs import Outcome, Place, job_function
from impresslearn.experiments.work.inputs import load_backbone, load_task
from impresslearn.learner import ImpressLearner
from impresslearn.optimisation.loop import Recipe

MOST_INPUTS = 1000
"""Test inputs a task whose logits are compared."""


@job_function("stream", version=2)
def learn_stream(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """The tasks of a stream in order, the first `basis` of them as masks, the others as numbers.

    Settings: stream, backbone, mask (allocation, rule, recipe), coefficients (recipe, penalty),
    sparsity, granularity, basis, tasks, seed; labels: examples a task, all by default; searches:
    [method, inputs, positions] each, the tasks there being looked for among all.
    Values: rows, one for each task: task, role, accuracy and bytes_per_task when it was learned,
    accuracy_at_end, identical (whether its logits at the end are the same bits), and of each search
    whether it found the task, "found by METHOD from INPUTS" -> 1.0 or 0.0.
    """
    mask, coefficients = settings["mask"], settings["coefficients"]
    learner = ImpressLearner(
        load_backbone(settings, place),
        sparsity=settings["sparsity"],
        granularity=settings["granularity"],
        allocation=mask["allocation"],
        score_rule=mask["rule"],
        basis_recipe=Recipe(**mask["recipe"]),
        task_recipe=Recipe(**coefficients["recipe"]),
        penalty=coefficients["penalty"],
        progress=False,
        cache_bytes=0,  # weights that were kept would hide a change of what they are made of
    )
    rows, before = [], []
    for number in range(settings["tasks"]):
        name, train, test = load_task({**settings, "task": number}, place)
        assert isinstance(test, Examples)
        learn = learner.learn_basis if number < settings["basis"] else learner.learn_task
        learn(name, train, seed=settings["seed"])
        info = learner.tasks_[name]
        before.append(learner.logits(test.inputs[:MOST_INPUTS], name))
        row = {"task": name, "role": info.role, "accuracy": learner.score(test, name)}
        rows.append({**row, "bytes_per_task": info.bytes})
    for number, (row, logits) in enumerate(zip(rows, before, strict=True)):
        name, _, test = load_task({**settings, "task": number}, place)
        assert isinstance(test, Examples)
        row["accuracy_at_end"] = learner.score(test, name)
        row["identical"] = torch.equal(logits, learner.logits(test.inputs[:MOST_INPUTS], name))
        for method, inputs, positions in settings["searches"]:
            if number in positions:
                guess = learner.infer_task(test.inputs[:inputs], method=method)
                row[f"found by {method} from {inputs}"] = float(guess.best == name)
    return Outcome({"rows": rows})
