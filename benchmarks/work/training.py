"""Jobs that learn by masks: a mask, a task by coefficients, a whole stream.

Settings of a job on one task: stream, task, backbone, seed, and labels (see `load_task`). Values:
task, accuracy, bytes_per_task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmarks.jobs import JobContext, Outcome
from benchmarks.work.inputs import (
    TaskData,
    load_backbone,
    load_bank,
    load_task,
    mask_blob,
)
from impresslearn.data import Examples
from impresslearn.learner import ImpressLearner
from impresslearn.training.loop import Recipe

Settings = Mapping[str, Any]
COEFFICIENTS = ("granularity", "output_scale", "precision", "bit_price", "penalty")
MOST_INPUTS = 1000  # test inputs a task whose logits are compared at the end of a stream


def train_mask(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """One dedicated mask (SupSup; a basis task): sparsity, allocation, recipe, rule.

    precision: of its norm statistics, by default float32. Further values: ones of
    each layer, loss, mask_bytes; the blob is the mask.
    """
    task = load_task(settings, place)
    learner = ImpressLearner(
        load_backbone(settings, place),
        sparsity=settings["sparsity"],
        allocation=settings["allocation"],
        basis_recipe=Recipe(**settings["recipe"]),
        score_rule=settings["rule"],
        precision=settings.get("precision", "float32"),
        progress=False,
    )
    learner.learn_basis(task.name, task.train, seed=settings["seed"])
    info, mask = learner.tasks_[task.name], learner.bank_.infos[0]
    values = {
        "ones": list(mask.ones),
        "loss": info.history["metrics"].get("loss"),
        "mask_bytes": info.breakdown["mask"],
    }
    blob = mask_blob(mask.coded or b"", learner.statistics_of(task.name))
    return judged(learner, task, values, blob)


def learn_task(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """Coefficients over the needed masks, or over random ones (`random`, see `load_bank`).

    Settings: recipe, and settings of the learner in COEFFICIENTS. A further value: numbers learned.
    """
    backbone, task = load_backbone(settings, place), load_task(settings, place)
    learner = ImpressLearner(
        backbone,
        bank=load_bank(backbone, needs, settings.get("random")),
        task_recipe=Recipe(**settings["recipe"]),
        progress=False,
        **{key: settings[key] for key in COEFFICIENTS if key in settings},
    )
    learner.learn_task(task.name, task.train, seed=settings["seed"])
    return judged(learner, task, {"numbers": learner.coefficients_[task.name].numel})


def learn_stream(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
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


def judged(
    method: Any, task: TaskData, more: Mapping[str, Any] | None = None, blob: bytes | None = None
) -> Outcome:
    """The outcome of a job whose task a method has learned: its accuracy, its bytes, and more."""
    values = {
        "task": task.name,
        "accuracy": method.score(task.test, task.name),
        "bytes_per_task": method.tasks_[task.name].bytes,
    }
    return Outcome({**values, **(more or {})}, blob)
