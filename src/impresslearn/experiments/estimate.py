"""Estimates a run's time: steps of the jobs that are missing, times a measured step of each kind.

A step is timed on random inputs of the benchmark's shape and the job's network and number of masks.
Making the data and judging a task come on top, as a share of the steps.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod
from typing import Any

import torch

from impresslearn.experiments.bench.measuring import seconds_of
from impresslearn.experiments.bench.steps import coefficient_step, popup_step
from impresslearn.experiments.executors import cores
from impresslearn.experiments.jobs import Job, Place
from impresslearn.experiments.reproduce import Run, missing_jobs
from impresslearn.experiments.targets import Target
from impresslearn.experiments.work.inputs import load_backbone
from impresslearn.inference.task_inference import ALPHA_RECIPE
from impresslearn.masks import random_bank
from impresslearn.training.loop import Recipe

STREAMS = {
    "digits": (1348, 8), "mnist": (60_000, 28), "cifar100": (2400, 32), "imagenet": (13_000, 224),
}  # fmt: skip
"""Training examples of a task and the images' height, by what the stream's name holds."""
SMALLER = {"subset": 4, "size": 13}
"""What these settings of a stream divide the number of examples by."""
OVERHEAD = 1.4
"""Time of a whole job over that of its steps: an assumption, not a measurement."""
OTHER_SECONDS = 0.5
"""A job without training."""
SMALL, FEW = 32, (2, 6)
"""Height of the images that a step is timed on, and how many."""
MOST_MASKS = 8
"""Masks that a step is timed with, at most; more add little to it."""
REPEATS = 2

Settings = Mapping[str, Any]


def estimate(targets: Iterable[Target], run: Run) -> dict[str, Any]:
    """Target -> number of missing jobs by kind, and minutes on this machine's cores."""
    cache = run.open_cache()
    seen: set[str] = set()
    found = {}
    for target in targets:
        jobs = [job for job in missing_jobs(target.plan(run.scale), cache) if job.key not in seen]
        seen.update(job.key for job in jobs)
        seconds = sum(map(_seconds, jobs)) / (run.processes or cores())
        kinds = Counter(job.kind for job in jobs)
        found[target.name] = {"jobs": dict(kinds), "minutes": round(seconds / 60, 1)}
    return found


def _seconds(job: Job) -> float:
    settings, masks = job.settings, len(job.needs)
    masks += settings.get("random", {}).get("count", 0)
    if job.kind == "stream":  # its masks and its coefficients; searches take about as long again
        basis, others = settings["basis"], settings["tasks"] - settings["basis"]
        masks_take = basis * _training(settings, settings["mask"]["recipe"], 0)
        tasks_take = others * _training(settings, settings["coefficients"]["recipe"], basis)
        return (2 if settings["searches"] else OVERHEAD) * (masks_take + tasks_take)
    if job.kind == "gn":
        steps = ALPHA_RECIPE.total_steps(settings["inputs"]) if settings["method"] == "alpha" else 8
        return OVERHEAD * steps * _step(settings, max(1, masks), ALPHA_RECIPE.batch_size)
    given = settings.get("tasks", 1)
    tasks = given if isinstance(given, int) else len(given)
    if "recipe" not in settings or settings.get("learner", {}).get("granularity") == "readout":
        return OTHER_SECONDS * tasks
    masks = max(1, masks) if job.kind in ("task", "hybrid", "learner") else 0
    return OVERHEAD * tasks * _training(settings, settings["recipe"], masks)


def _training(settings: Settings, recipe: Settings, masks: int) -> float:
    """All steps of a recipe: of coefficients over masks, or of scores where there are none."""
    chosen, stream = Recipe(**recipe), settings["stream"]
    fewer = [divisor for key, divisor in SMALLER.items() if stream.get(key)]
    examples = settings.get("labels") or _size(stream)[0] // prod(fewer)
    return chosen.total_steps(examples) * _step(settings, masks, chosen.batch_for(examples))


def _step(settings: Settings, masks: int, batch: int) -> float:
    """A step on vectors is timed as it is. One on images is timed on a few small ones, for a large
    network on large images takes minutes and more memory than there may be.
    """
    given = {key: value for key, value in settings["backbone"].items() if key != "weights"}
    network = json.dumps({**given, "seed": 0}, sort_keys=True)
    if "resnet" not in settings["backbone"]["name"]:
        return _timed(network, min(masks, MOST_MASKS), batch)
    few, more = (_timed(network, MOST_MASKS if masks else 0, count) for count in FEW)
    height = settings["stream"].get("size") or _size(settings["stream"])[1]
    each = max(0.0, more - few) / (FEW[1] - FEW[0])
    return few + each * max(0.0, batch * (height / SMALL) ** 2 - FEW[0])


def _size(stream: Settings) -> tuple[int, int]:
    return next(value for key, value in STREAMS.items() if key in stream["name"])


@lru_cache(maxsize=256)
def _timed(network: str, masks: int, batch: int) -> float:
    """The quickest of some steps: the first ones may compile, others may be disturbed."""
    backbone = load_backbone({"backbone": json.loads(network)}, Place())
    shape = tuple(size or SMALL for size in backbone.input_shape or (1,))
    data = torch.randn(batch, *shape), torch.randint(0, backbone.num_classes, (batch,))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if masks:
            step = coefficient_step(backbone, random_bank(backbone.layers, masks), *data)
        else:
            step = popup_step(backbone, *data)
        step()
        return min(seconds_of(step) for _ in range(REPEATS))
    finally:
        torch.set_num_threads(threads)
