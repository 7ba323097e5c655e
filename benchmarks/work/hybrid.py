"""The job that learns a task by the hybrid of combined masks and a head's mask of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.jobs import Outcome, Place, job_function
from benchmarks.work.inputs import load_backbone, load_bank, load_task
from benchmarks.work.training import judged
from impresslearn.methods.hybrid import Hybrid
from impresslearn.training.loop import Recipe


@job_function("hybrid")
def learn_hybrid(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """As "task" with a trained mask for the head, of the given sparsity and allocation."""
    backbone, task = load_backbone(settings, place), load_task(settings, place)
    method = Hybrid(
        backbone,
        bank=load_bank(backbone, needs, settings.get("random")),
        sparsity=settings["sparsity"],
        allocation=settings["allocation"],
        recipe=Recipe(**settings["recipe"]),
        seed=settings["seed"],
        progress=False,
    )
    method.learn_task(task.name, task.train)
    return judged(method, task)
