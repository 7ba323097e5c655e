"""The demo: rotated 8x8 digits, 5 basis tasks, then 10 new tasks at unseen angles.

All angles are 22 degrees apart at least, so that which task unlabelled digits belong to is a fair
question. A new task learns 15 coefficients (5 masks x 3 layers) and a scale per output unit, kept
in 5 bits. Expected on two CPU cores, in 15 to 30 s: 92 to 94% on the new tasks in 0.3 kB each,
against 98% for a dedicated mask of several kB; every task found; forgetting exactly zero.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from importlib.resources import files
from statistics import fmean
from typing import Any

import torch

from impresslearn.experiments.code import code_hash
from impresslearn.experiments.record import make_record
from impresslearn.learner import ImpressLearner
from impresslearn.learner.presets import preset
from impresslearn.methods import Evaluation, SupSup, evaluate, single_mask_accuracy
from impresslearn.networks import create_backbone
from impresslearn.streams import Stream, rotated_digits

BASIS_TASKS = 5
NEW_TASKS = 10
INFERENCE_BATCH = 64
"""Unlabelled test inputs whose task is looked for, among all tasks."""
FOREIGN = "single mask of another task (X)"


def run_demo(seed: int = 0, progress: bool = False) -> dict[str, Any]:
    """The demo's result record, which `impresslearn report` draws like every other."""
    started = time.perf_counter()
    stream = rotated_digits(tasks=BASIS_TASKS + NEW_TASKS, seed=seed)
    new, settings = stream[BASIS_TASKS:], preset("default")
    backbone = create_backbone(
        "lenet_300_100", 10, seed=seed, in_features=64, **settings.backbone_settings()
    )
    coefficients: dict[str, Any] = {"output_scale": True, "precision": "int5"}
    # No weights are kept between predictions, so forgetting is measured on weights mixed anew.
    learner = ImpressLearner.from_preset(
        backbone, "default", **coefficients, seed=seed, progress=False, cache_bytes=0
    )
    supsup = SupSup(backbone, **settings.mask_settings(), seed=seed, progress=False)
    ours = evaluate(learner, stream, basis=BASIS_TASKS, progress=progress)
    dedicated = evaluate(supsup, new, progress=progress)
    foreign = {task.name: single_mask_accuracy(learner, stream[0].name, task.test) for task in new}
    rows = [*_rows(ours, dedicated, foreign), *_coefficients(learner, new)]
    tests: dict[str, Any] = {task.name: task.test for task in stream}
    found = [
        learner.infer_task(test.inputs[:INFERENCE_BATCH]).best == name
        for name, test in tests.items()
    ]
    summary = {
        "forgetting": ours.forgetting,
        "task_inference_accuracy": fmean(found),
        "seconds": round(time.perf_counter() - started, 2),
    }
    used = {
        "stream": stream.name,
        "backbone": backbone.spec,
        "preset": "default",
        "coefficients": "layer, with output scales, in int5",
        "sparsity": learner.settings.sparsity,
    }
    content = json.loads(files(__package__).joinpath("demo.json").read_text(encoding="utf-8"))
    content |= {"settings": used, "seeds": [seed], "rows": [*rows, summary]}
    spent, threads = summary["seconds"], torch.get_num_threads()
    return make_record(content, "cpu", spent, spent, threads=threads, code=code_hash(run_demo))


def _rows(
    ours: Evaluation, dedicated: Evaluation, foreign: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """A row a task and method; those of ImpressLearn have the other methods' accuracies beside."""
    masks = {row["task"]: row for row in dedicated.rows()}
    for row in ours.rows():
        task, role = row["task"], "new" if row["task"] in foreign else "basis"
        mask = masks.get(task, row)  # a basis task has a mask of its own, as with SupSup
        yield {
            "method": f"ImpressLearn, {role} task",
            "task": task,
            "role": role,
            "accuracy": row["accuracy"],
            "bytes": row["bytes"],
            "supsup_accuracy": mask["accuracy"],
            "x_accuracy": foreign.get(task),
        }
        kept = {key: mask[key] for key in ("task", "accuracy", "bytes")}
        yield {"method": "SupSup"} | kept
        yield {"method": FOREIGN, "task": task, "accuracy": foreign.get(task)}


def _coefficients(learner: ImpressLearner, new: Stream) -> Iterator[dict[str, Any]]:
    for task in new.names:
        matrix = learner.coefficients_[task].matrix().tolist()
        for mask, values in zip(learner.bank_.names, matrix, strict=True):
            for layer, value in zip(learner.backbone.layers, values, strict=True):
                yield {"task": task, "mask": mask, "layer": layer.name, "coefficient": value}
