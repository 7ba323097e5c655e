"""Jobs that learn a new task over masks, and judge it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from impresslearn.experiments.jobs import Outcome, Place, job_kind
from impresslearn.experiments.work.material import (
    backbone_of,
    bank_of,
    recipe_of,
    task_of,
    train_and_test,
)
from impresslearn.learner import ImpressLearner
from impresslearn.methods import Adapter, FineTuning, Hybrid


@job_kind("task")
def learn_a_task(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """Coefficients over the needed masks, or over random ones (`random`, see `bank_of`).

    Settings: stream, task, backbone, granularity, output_scale, input_scale, precision, bit_price,
    recipe, penalty, seed, labels. Values: task, accuracy, bytes_per_task, numbers.
    """
    backbone = backbone_of(settings["backbone"], place)
    bank = bank_of(backbone, needs, settings.get("random"))
    train, test = train_and_test(settings, place)
    learner = ImpressLearner(
        backbone,
        bank=bank,
        granularity=settings.get("granularity", "layer"),
        output_scale=settings.get("output_scale", False),
        input_scale=settings.get("input_scale", False),
        precision=settings.get("precision", "float32"),
        bit_price=settings.get("bit_price", 1.0),
        penalty=settings.get("penalty", 0.0),
        task_recipe=recipe_of(settings["recipe"]),
        progress=False,
    )
    name = task_of(settings, place).name
    learner.learn_task(name, train, seed=settings["seed"])
    return Outcome(
        {
            "task": name,
            "accuracy": learner.score(test, name),
            "bytes_per_task": learner.tasks_[name].bytes,
            "numbers": learner.coefficients_[name].numel,
        }
    )


@job_kind("hybrid", version=2)
def learn_a_hybrid(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """Coefficients for the body and a trained mask for the head; settings as of "task", and
    sparsity and allocation of the head's mask.
    """
    backbone = backbone_of(settings["backbone"], place)
    hybrid = Hybrid(
        backbone,
        bank_of(backbone, needs, settings.get("random")),
        sparsity=settings["sparsity"],
        allocation=settings["allocation"],
        recipe=recipe_of(settings["recipe"]),
        seed=settings["seed"],
        progress=False,
    )
    return _learned(hybrid, settings, place)


@job_kind("finetuning", version=2)
def fine_tune(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """All weights of the network trained on one task: the upper bound. Values as of "task"."""
    tuned = FineTuning(
        backbone_of(settings["backbone"], place),
        recipe=recipe_of(settings["recipe"]),
        seed=settings["seed"],
        progress=False,
    )
    return _learned(tuned, settings, place)


@job_kind("adapter")
def learn_an_adapter(
    settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place
) -> Outcome:
    """A low-rank adapter of PEFT: kind, rank, precision, recipe, seed. Values as of "task"."""
    adapter = Adapter(
        backbone_of(settings["backbone"], place),
        kind=settings["kind"],
        rank=settings["rank"],
        precision=settings["precision"],
        recipe=recipe_of(settings["recipe"]),
        seed=settings["seed"],
        progress=False,
    )
    return _learned(adapter, settings, place)


def _learned(
    method: Adapter | FineTuning | Hybrid, settings: Mapping[str, Any], place: Place
) -> Outcome:
    """The job's task, learned by a baseline and judged."""
    train, test = train_and_test(settings, place)
    name = task_of(settings, place).name
    method.learn_task(name, train)
    return Outcome(
        {
            "task": name,
            "accuracy": method.score(test, name),
            "bytes_per_task": method.tasks_[name].bytes,
        }
    )
