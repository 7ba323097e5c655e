"""How long would it take? Steps of the jobs that are missing, times a measured step of each kind.

A step is timed on random inputs of the benchmark's shape, on the network and with the number of
masks that the job has. Making the data and judging a task come on top, as a share of the steps.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch

from impresslearn.experiments.bench.steps import coefficient_step, popup_step
from impresslearn.experiments.executors import cores
from impresslearn.experiments.jobs import Job, Place
from impresslearn.experiments.reproduce import Run, missing_jobs
from impresslearn.experiments.targets import Target
from impresslearn.experiments.work.inputs import load_backbone
from impresslearn.inference.task_inference import ALPHA_RECIPE
from impresslearn.masks import random_bank
from impresslearn.optimisation.loop import Recipe

TRAIN_SIZES = {"digits": 1348, "mnist": 60_000, "cifar100": 600, "imagenet": 1000}
"""Training examples of a task, by what the stream's name holds; a subset's for the images."""
OVERHEAD = 1.4
"""Time of a whole job over that of its steps: an assumption, not a measurement."""
OTHER_SECONDS = 0.5
"""A job without training."""
SIZES = {"cifar100": 32, "imagenet": 224}
"""Height of a stream's images, where its settings do not say."""
SMALL, FEW = 32, (2, 6)
"""Height of the images that a step is timed on, and how many."""
MOST_MASKS = 8
"""Masks that a step is timed with, at most; more add little to it."""
REPEATS = 2


def estimate(targets: Iterable[Target], run: Run) -> dict[str, Any]:
    """Target -> number of missing jobs by kind, and minutes on this machine's cores."""
    cache = run.open_cache()
    seen: set[str] = set()
    found = {}
    for target in targets:
        jobs = [job for job in missing_jobs(target.plan(run.scale), cache) if job.key not in seen]
        seen.update(job.key for job in jobs)
        seconds = sum(_seconds(job) for job in jobs) / (run.processes or cores())
        kinds = Counter(job.kind for job in jobs)
        found[target.name] = {"jobs": dict(kinds), "minutes": round(seconds / 60, 1)}
    return found


def _seconds(job: Job) -> float:
    settings = job.settings
    if job.kind == "stream":
        return _stream_seconds(settings)
    if job.kind not in ("mask", "task", "hybrid", "gn", "adapter", "finetuning"):
        return OTHER_SECONDS
    masks = len(job.needs) + settings.get("random", {}).get("count", 0)
    if job.kind == "gn":
        steps = ALPHA_RECIPE.total_steps(settings["inputs"]) if settings["method"] == "alpha" else 8
        return OVERHEAD * steps * _step_seconds("task", settings, masks, ALPHA_RECIPE.batch_size)
    recipe = Recipe(**settings["recipe"])
    examples = settings.get("labels") or _train_size(settings["stream"])
    kind = "task" if job.kind in ("task", "hybrid") else "mask"
    step = _step_seconds(kind, settings, masks, recipe.batch_for(examples))
    return OVERHEAD * recipe.total_steps(examples) * step


def _stream_seconds(settings: Mapping[str, Any]) -> float:
    """Its masks and its coefficients; looking for tasks takes about as long again."""
    examples = settings["labels"] or _train_size(settings["stream"])
    total = 0.0
    parts = (("mask", settings["basis"]), ("coefficients", settings["tasks"] - settings["basis"]))
    for part, tasks in parts:
        recipe = Recipe(**settings[part]["recipe"])
        kind = "mask" if part == "mask" else "task"
        step = _step_seconds(kind, settings, settings["basis"], recipe.batch_for(examples))
        total += tasks * recipe.total_steps(examples) * step
    return 2 * total if settings["searches"] else OVERHEAD * total


def _size(stream: dict[str, Any]) -> int:
    named = (size for key, size in SIZES.items() if key in stream["name"])
    return stream.get("size") or next(named, 0)


def _train_size(stream: dict[str, Any]) -> int:
    full = 1
    if "cifar" in stream["name"] and not stream.get("subset"):
        full = 4
    elif "imagenet" in stream["name"] and "size" not in stream:
        full = 13
    return full * next(size for key, size in TRAIN_SIZES.items() if key in stream["name"])


def _step_seconds(kind: str, settings: Mapping[str, Any], masks: int, batch: int) -> float:
    """A step on vectors is timed as it is. One on images is timed on a few small ones, for a large
    network on large images takes minutes and more memory than there may be.
    """
    network = json.dumps({**settings["backbone"], "seed": 0}, sort_keys=True)
    masks = 0 if kind == "mask" else max(1, min(masks, MOST_MASKS))
    if "resnet" not in settings["backbone"]["name"]:
        return _timed(kind, network, masks, batch)
    few, more = (_timed(kind, network, 0 if kind == "mask" else MOST_MASKS, n) for n in FEW)
    each = max(0.0, more - few) / (FEW[1] - FEW[0])
    return few + each * max(0.0, batch * (_size(settings["stream"]) / SMALL) ** 2 - FEW[0])


@lru_cache(maxsize=256)
def _timed(kind: str, network: str, masks: int, batch: int) -> float:
    backbone = load_backbone({"backbone": json.loads(network)}, Place())
    shape = tuple(size or SMALL for size in backbone.input_shape or (1,))
    inputs = torch.randn(batch, *shape)
    targets = torch.randint(0, backbone.num_classes, (batch,))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step: Callable[[], object]
        if kind == "mask":
            step = popup_step(backbone, inputs, targets)
        else:
            step = coefficient_step(backbone, random_bank(backbone.layers, masks), inputs, targets)
        return _repeated(step)
    finally:
        torch.set_num_threads(threads)


def _repeated(step: Callable[[], object]) -> float:
    """The quickest of some calls: the first ones may compile, others may be disturbed."""
    step()
    best = math.inf
    for _ in range(REPEATS):
        started = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - started)
    return best
