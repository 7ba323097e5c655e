"""The job of a custom run: one method on one seed, and its evaluation as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from impresslearn.errors import error_prefix
from impresslearn.experiments.jobs import Outcome, Place, job_function
from impresslearn.experiments.sources import (
    call_user_function,
    make_backbone,
    make_stream,
)
from impresslearn.inference import score_inference
from impresslearn.methods.evaluation import Evaluation, Method, evaluate
from impresslearn.methods.registry import create_method, method_settings
from impresslearn.networks import Backbone
from impresslearn.streams import Stream

INFERENCE = ("task_inference_accuracy", "unnamed_accuracy")
VALUES = ("tasks", "roles", "added_bytes", "matrix", *INFERENCE)
"""What a kept outcome says; see `stored` and `inferred`."""
TRIALS = 10
"""Draws of inputs of each task, for which the task is inferred."""


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


def inferred(method: Method, stream: Stream, inputs: int) -> dict[str, float]:
    """How often the task of so many test inputs is found, and how many labels are right with it.

    Empty for a method that has no `infer_task`.
    """
    if not hasattr(method, "infer_task"):
        return {}
    tests = {task.name: task.test for task in stream}
    (row,) = score_inference(method, tests, inputs=inputs, trials=TRIALS).rows
    return {"task_inference_accuracy": row["task_accuracy"], "unnamed_accuracy": row["accuracy"]}


@job_function("own")
def run_part(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """One method on one seed: the accuracy on every task before the first and after each.

    Values: see `stored`; where the settings have `task_inference`, also those of `inferred`.
    """
    folder, seed = Path(place.data), settings["seed"]
    stream = in_order(make_stream(settings["stream"], folder), seed, settings["order"])
    if "validation" in settings:
        stream = stream.for_validation(settings["validation"])
    backbone = make_backbone(settings["backbone"], stream, seed, folder).to(place.device)
    described = settings["method"]
    with error_prefix(f"{described.get('name', described.get('module'))}, seed {seed}"):
        method = make_method(described, backbone, seed, folder)
        found = stored(evaluate(method, stream, basis=described.get("basis", 0)))
        if "task_inference" in settings:
            found |= inferred(method, stream, settings["task_inference"])
    return Outcome(found)


def in_order(stream: Stream, seed: int, order: str) -> Stream:
    """The stream's tasks as they are given, or shuffled by the seed (numpy's RandomState)."""
    if order == "given":
        return stream
    places = np.random.RandomState(seed).permutation(len(stream))
    return Stream(stream.name, tuple(stream[int(i)] for i in places))


def make_method(
    described: Mapping[str, Any], backbone: Backbone, seed: int, folder: Path
) -> Method:
    """The method of a key, with nothing learned: the library's, or what the user's function
    returns, which is called with `backbone` and `seed` if it names them.
    """
    if "module" in described:
        offered = {"backbone": backbone, "seed": seed}
        return call_user_function(folder, described["module"], described["settings"], offered)
    settings = restored_settings(described)
    return create_method(described["name"], backbone, seed=seed * 10_000, **settings)


def restored_settings(method: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `create_method` behind what stands in a key."""
    kept = ("basis_recipe", "task_recipe", "random_masks")
    found = dict(method.get("settings", {})) | {key: method[key] for key in kept if key in method}
    if "recipe" in method_settings(method["name"]):
        found["recipe"] = found.pop("task_recipe")
    return found
