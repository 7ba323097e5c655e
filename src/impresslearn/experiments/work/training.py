"""Jobs that train a mask, or learn one task by coefficients, an adapter or all weights.

Settings of all: stream, task, backbone, seed, and labels (see `load_task`). Values of all: task,
accuracy, bytes_per_task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from impresslearn.experiments.jobs import Outcome, Place, job_function
from impresslearn.experiments.work.inputs import load_backbone, load_bank, load_task, mask_blob
from impresslearn.learner import ImpressLearner
from impresslearn.methods import Adapter, FineTuning, Hybrid
from impresslearn.optimisation.loop import Recipe

Settings = Mapping[str, Any]
COEFFICIENTS = {
    "granularity": "layer",
    "output_scale": False,
    "input_scale": False,
    "precision": "float32",
    "bit_price": 1.0,
    "penalty": 0.0,
}
"""What "task" jobs mean where they do not say; part of what their keys stand for."""


@job_function("mask")
def train_mask(settings: Settings, needs: Sequence[Outcome], place: Place) -> Outcome:
    """One dedicated mask (SupSup; a basis task): sparsity, allocation, recipe, rule.

    Further values: ones of each layer, loss, mask_bytes; the blob is the mask.
    """
    task = load_task(settings, place)
    learner = ImpressLearner(
        load_backbone(settings, place),
        sparsity=settings["sparsity"],
        allocation=settings["allocation"],
        basis_recipe=Recipe(**settings["recipe"]),
        score_rule=settings["rule"],
        progress=False,
    )
    learner.learn_basis(task.name, task.train, seed=settings["seed"])
    info, mask = learner.tasks_[task.name], learner.bank_.infos[0]
    values = {
        "task": task.name,
        "accuracy": learner.score(task.test, task.name),
        "ones": list(mask.ones),
        "loss": info.history["metrics"].get("loss"),
        "mask_bytes": info.breakdown["mask"],
        "bytes_per_task": info.bytes,
    }
    return Outcome(values, mask_blob(mask.coded or b"", learner.statistics_of(task.name)))


@job_function("task")
def learn_task(settings: Settings, needs: Sequence[Outcome], place: Place) -> Outcome:
    """Coefficients over the needed masks, or over random ones (`random`, see `load_bank`).

    recipe, and what is in COEFFICIENTS. A further value: how many numbers were learned.
    """
    backbone = load_backbone(settings, place)
    learner = ImpressLearner(
        backbone,
        bank=load_bank(backbone, needs, settings.get("random")),
        task_recipe=Recipe(**settings["recipe"]),
        progress=False,
        **{key: settings.get(key, default) for key, default in COEFFICIENTS.items()},
    )
    task = load_task(settings, place)
    learner.learn_task(task.name, task.train, seed=settings["seed"])
    return Outcome(
        {
            "task": task.name,
            "accuracy": learner.score(task.test, task.name),
            "bytes_per_task": learner.tasks_[task.name].bytes,
            "numbers": learner.coefficients_[task.name].numel,
        }
    )


@job_function("hybrid", version=2)
def learn_hybrid(settings: Settings, needs: Sequence[Outcome], place: Place) -> Outcome:
    """As "task" with a trained mask for the head, of the given sparsity and allocation."""
    backbone = load_backbone(settings, place)
    hybrid = Hybrid(
        backbone,
        load_bank(backbone, needs, settings.get("random")),
        sparsity=settings["sparsity"],
        allocation=settings["allocation"],
        **_common(settings),
    )
    return _learned(hybrid, settings, place)


@job_function("finetuning", version=2)
def fine_tune(settings: Settings, needs: Sequence[Outcome], place: Place) -> Outcome:
    """All weights of the network trained on one task, the upper bound: recipe."""
    return _learned(
        FineTuning(load_backbone(settings, place), **_common(settings)), settings, place
    )


@job_function("adapter")
def learn_adapter(settings: Settings, needs: Sequence[Outcome], place: Place) -> Outcome:
    """A low-rank adapter of PEFT: kind, rank, precision, recipe."""
    given = {key: settings[key] for key in ("kind", "rank", "precision")}
    adapter = Adapter(load_backbone(settings, place), **given, **_common(settings))
    return _learned(adapter, settings, place)


def _common(settings: Settings) -> dict[str, Any]:
    return {
        "recipe": Recipe(**settings["recipe"]), "seed": settings["seed"], "progress": False
    }  # fmt: skip


def _learned(method: Adapter | FineTuning | Hybrid, settings: Settings, place: Place) -> Outcome:
    """The job's task, learned by a baseline and judged."""
    task = load_task(settings, place)
    method.learn_task(task.name, task.train)
    return Outcome(
        {
            "task": task.name,
            "accuracy": method.score(task.test, task.name),
            "bytes_per_task": method.tasks_[task.name].bytes,
        }
    )
