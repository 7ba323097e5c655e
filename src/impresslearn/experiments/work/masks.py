"""Jobs that train masks, judge them on other tasks, and compare them with one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from impresslearn.coefficients.mixing import mixed_weights, one_hot_coefficients
from impresslearn.data import classes_of, to_batches
from impresslearn.experiments.jobs import Outcome, Place, job_kind
from impresslearn.experiments.work.material import (
    backbone_of,
    bank_of,
    mask_blob,
    recipe_of,
    statistics_of,
    task_of,
    train_and_test,
)
from impresslearn.learner import ImpressLearner
from impresslearn.networks.prediction import TaskView


@job_kind("mask")
def train_a_mask(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """One dedicated mask (SupSup; a basis task): stream, task, backbone, sparsity, allocation,
    recipe, rule, seed. Values: task, accuracy, ones, seconds of training, bytes of the task.
    """
    backbone = backbone_of(settings["backbone"], place)
    train, test = train_and_test(settings, place)
    learner = ImpressLearner(
        backbone,
        sparsity=settings["sparsity"],
        allocation=settings["allocation"],
        basis_recipe=recipe_of(settings["recipe"]),
        score_rule=settings["rule"],
        progress=False,
    )
    name = task_of(settings, place).name
    learner.learn_basis(name, train, seed=settings["seed"])
    info = learner.tasks_[name]
    mask = learner.bank_.infos[0]
    blob = mask_blob(mask.coded or b"", learner.statistics_of(name))
    values = {
        "task": name,
        "accuracy": learner.score(test, name),
        "ones": list(mask.ones),
        "loss": info.history["metrics"].get("loss"),
        "mask_bytes": info.breakdown["mask"],
        "bytes_per_task": info.bytes,
    }
    return Outcome(values, blob)


@job_kind("foreign")
def judge_a_foreign_mask(
    settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place
) -> Outcome:
    """X: the needed mask alone on another task, nothing learned. Values: task, accuracy."""
    backbone = backbone_of(settings["backbone"], place)
    bank = bank_of(backbone, needs)
    _, test = train_and_test(settings, place)
    classes = classes_of(test.labels)
    hot = one_hot_coefficients(bank.layers, 0, 1, backbone.device)
    weights = mixed_weights(bank, backbone.weights, hot)
    view = TaskView(weights, statistics_of(backbone, needs[0]), len(classes))
    accuracy = view.accuracy(backbone, to_batches(test, classes, backbone.device))
    return Outcome({"task": task_of(settings, place).name, "accuracy": accuracy})


@job_kind("overlap")
def compare_masks(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """Pairwise Jaccard overlap of the needed masks, and of independent masks of their densities.

    Values: measured and expected, means over pairs; by_layer and expected_by_layer likewise.
    """
    backbone = backbone_of(settings["backbone"], place)
    overlap = bank_of(backbone, needs).overlap()
    pairs = ~_diagonal(len(needs))
    return Outcome(
        {
            "measured": float(overlap.measured[pairs].mean()),
            "expected": float(overlap.expected[pairs].mean()),
            "by_layer": [float(layer[pairs].mean()) for layer in overlap.by_layer],
            "expected_by_layer": [
                float(layer[pairs].mean()) for layer in overlap.expected_by_layer
            ],
        }
    )


def _diagonal(size: int) -> Any:
    import torch

    return torch.eye(size, dtype=torch.bool)
