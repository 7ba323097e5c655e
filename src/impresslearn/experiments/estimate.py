"""How long would it take? Steps of the jobs that are missing, times a measured step of each kind.

A step is timed on random inputs of the benchmark's shape, on the network and with the number of
masks that the job has. Making the data and judging a task come on top, as a share of the steps.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch

from impresslearn.bench.steps import coefficient_step, popup_step
from impresslearn.experiments.jobs import Job, Place
from impresslearn.experiments.local import _cores
from impresslearn.experiments.reproduce import Run, missing_jobs
from impresslearn.experiments.targets import Target
from impresslearn.experiments.work.material import backbone_of, recipe_of
from impresslearn.inference import ALPHA_RECIPE
from impresslearn.sources import random_bank

TRAIN_SIZES = {"digits": 1348, "mnist": 60_000, "cifar100": 600, "imagenet": 1000}
"""Training examples of a task, by what the stream's name holds; a subset's for the images."""
OVERHEAD = 1.4
"""Time of a whole job over that of its steps, measured on rotated MNIST."""
OTHER_SECONDS = 0.5
"""A job without training."""


def estimate(targets: Iterable[Target], run: Run) -> dict[str, Any]:
    """Target -> number of missing jobs by kind, and minutes on this machine's cores."""
    cache = run.open_cache()
    seen: set[str] = set()
    found = {}
    for target in targets:
        jobs = [job for job in missing_jobs(target.plan(run.scale), cache) if job.key not in seen]
        seen.update(job.key for job in jobs)
        seconds = sum(_seconds(job) for job in jobs) / (run.processes or _cores())
        kinds = Counter(job.kind for job in jobs)
        found[target.name] = {"jobs": dict(kinds), "minutes": round(seconds / 60, 1)}
    return found


def _seconds(job: Job) -> float:
    settings = job.settings
    if job.kind not in ("mask", "task", "hybrid", "gn"):
        return OTHER_SECONDS
    masks = len(job.needs) + settings.get("random", {}).get("count", 0)
    network = json.dumps(settings["backbone"], sort_keys=True)
    if job.kind == "gn":
        steps = ALPHA_RECIPE.total_steps(settings["inputs"]) if settings["method"] == "alpha" else 8
        return OVERHEAD * steps * _step_seconds("task", network, masks, ALPHA_RECIPE.batch_size)
    recipe = recipe_of(settings["recipe"])
    examples = settings.get("labels") or _train_size(settings["stream"])
    kind = "mask" if job.kind == "mask" else "task"
    step = _step_seconds(kind, network, masks, recipe.batch_for(examples))
    return OVERHEAD * recipe.total_steps(examples) * step


def _train_size(stream: dict[str, Any]) -> int:
    full = 4 if "cifar" in stream["name"] and not stream.get("subset") else 1
    return full * next(size for key, size in TRAIN_SIZES.items() if key in stream["name"])


@lru_cache(maxsize=256)
def _step_seconds(kind: str, network: str, masks: int, batch: int) -> float:
    backbone = backbone_of(json.loads(network), Place())
    shape = tuple(size or 32 for size in backbone.input_shape or (1,))
    inputs = torch.randn(batch, *shape)
    targets = torch.randint(0, backbone.num_classes, (batch,))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step: Callable[[], object]
        if kind == "mask":
            step = popup_step(backbone, inputs, targets)
        else:
            bank = random_bank(backbone.layers, max(1, min(masks, 16)))
            step = coefficient_step(backbone, bank, inputs, targets)
        return _timed(step)
    finally:
        torch.set_num_threads(threads)


def _timed(step: Callable[[], object], repeats: int = 5) -> float:
    step()
    started = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - started) / repeats
