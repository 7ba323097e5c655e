"""Jobs that judge trained masks: on other tasks, on tasks without a name, and by their overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.jobs import JobContext, Outcome
from benchmarks.work.inputs import load_backbone, load_bank, load_task, statistics_of
from impresslearn.coefficients.masks import (
    masked_weights,
    mixture_of,
)
from impresslearn.data import Examples, StreamedExamples, classes_of, to_batches
from impresslearn.inference import KnownTask, Mixture, guess_task
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics, TaskView

Settings = Mapping[str, Any]


def judge_foreign_mask(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """X: the needed mask alone on another task, nothing learned. Values: task, accuracy."""
    backbone, task = load_backbone(settings, place), load_task(settings, place)
    classes = len(classes_of(task.test.labels))
    statistics = statistics_of(backbone, needs[0])
    view = _basis_task(backbone, load_bank(backbone, needs), 0, classes, statistics).view()
    return Outcome({"task": task.name, "accuracy": _accuracy(view, backbone, task.test)})


def compare_masks(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """Pairwise Jaccard overlap of the needed masks, and of independent masks of their densities.

    Values: measured and expected, means over pairs; by_layer and expected_by_layer likewise.
    """
    overlap = load_bank(load_backbone(settings, place), needs).overlap()
    pairs = ~torch.eye(len(needs), dtype=torch.bool)

    def over_pairs(values: torch.Tensor) -> float:
        return float(values[pairs].mean())

    return Outcome(
        {
            "measured": over_pairs(overlap.measured),
            "expected": over_pairs(overlap.expected),
            "by_layer": [over_pairs(layer) for layer in overlap.by_layer],
            "expected_by_layer": [over_pairs(layer) for layer in overlap.expected_by_layer],
        }
    )


def infer_task(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """One of the bank's tasks without its name: found or not, and the accuracy that follows.

    Settings: stream, task (its position in the stream), position (in the bank), backbone, method
    (of `guess_task`), method_settings, inputs (unlabelled examples of the task that
    are looked at, from the test set). Values: task, found (1.0 or 0.0), accuracy on the whole test
    set, known_accuracy with the right mask.
    """
    backbone = load_backbone(settings, place)
    bank = load_bank(backbone, needs)
    name, _, test = load_task(settings, place)
    assert isinstance(test, Examples)
    classes = len(classes_of(test.labels))
    choices = [
        _basis_task(backbone, bank, position, classes, statistics_of(backbone, outcome))
        for position, outcome in enumerate(needs)
    ]
    count = min(settings["inputs"], len(test))
    chosen = np.random.default_rng(0).choice(len(test), count, replace=False)
    how = settings.get("method_settings", {})
    guess = guess_task(backbone, bank, choices, test.inputs[chosen], settings["method"], **how)
    best, right = int(guess.best), settings["position"]
    return Outcome(
        {
            "task": name,
            "found": float(best == right),
            "accuracy": _accuracy(guess.mixture or choices[best].view(), backbone, test),
            "known_accuracy": _accuracy(choices[right].view(), backbone, test),
        }
    )


def _basis_task(
    backbone: Backbone, bank: MaskBank, position: int, classes: int, statistics: Statistics | None
) -> KnownTask:
    """The task of the mask at a position of the bank."""
    name = bank.names[position]

    def mixture() -> Mixture:
        alone = torch.zeros(len(bank), device=backbone.device)
        alone[position] = 1
        return Mixture(mixture_of(alone, bank.layers).alpha)

    def view() -> TaskView:
        return TaskView(masked_weights(bank, backbone.weights, name), statistics, classes)

    return KnownTask(str(position), classes, view, None, mixture, is_mask=True)


def _accuracy(view: TaskView, backbone: Backbone, test: Examples | StreamedExamples) -> float:
    return view.accuracy(backbone, to_batches(test, classes_of(test.labels), backbone.device))
