"""Jobs that find the task of unlabelled inputs (GN) among the tasks of a bank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from impresslearn.coefficients.mixing import mixed_weights, one_hot_coefficients
from impresslearn.data import Examples, classes_of, to_batches
from impresslearn.experiments.jobs import Outcome, Place, job_kind
from impresslearn.experiments.work.material import (
    backbone_of,
    bank_of,
    statistics_of,
    task_of,
    train_and_test,
)
from impresslearn.inference import Candidate, guess_task
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics, TaskView


@job_kind("gn", version=2)
def infer_a_task(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """One of the bank's tasks without its name: found or not, and the accuracy that follows.

    Settings: stream, task (its position in the stream), position (in the bank), backbone, method
    ("alpha", "one_shot", "halving"), method_settings, inputs (unlabelled examples of the task that
    are looked at, from the test set), trials. Values: task, found (share of the trials), accuracy
    on the whole test set, known_accuracy with the right mask.
    """
    backbone = backbone_of(settings["backbone"], place)
    bank = bank_of(backbone, needs)
    _, test = train_and_test(settings, place)
    assert isinstance(test, Examples)
    classes = len(classes_of(test.labels))
    candidates = [
        _candidate(backbone, bank, position, classes, statistics_of(backbone, outcome))
        for position, outcome in enumerate(needs)
    ]
    trials = []
    rng = np.random.default_rng(settings.get("seed", 0))
    for _ in range(settings.get("trials", 1)):
        chosen = rng.choice(len(test), min(settings["inputs"], len(test)), replace=False)
        guess = guess_task(
            backbone, bank, candidates, test.inputs[chosen], settings["method"],
            **settings.get("method_settings", {}),
        )  # fmt: skip
        best = int(guess.best)
        view = guess.mixture or candidates[best].view()
        trials.append((float(best == settings["position"]), _accuracy(view, backbone, test)))
    known = _accuracy(candidates[settings["position"]].view(), backbone, test)
    return Outcome(
        {
            "task": task_of(settings, place).name,
            "found": mean(found for found, _ in trials),
            "accuracy": mean(accuracy for _, accuracy in trials),
            "known_accuracy": known,
        }
    )


def _candidate(
    backbone: Backbone,
    bank: MaskBank,
    position: int,
    num_classes: int,
    statistics: Statistics | None,
) -> Candidate:
    """The basis task of the mask at a position of the bank."""
    hot = one_hot_coefficients(bank.layers, position, len(bank), backbone.device)

    def view() -> TaskView:
        return TaskView(mixed_weights(bank, backbone.weights, hot), statistics, num_classes)

    return Candidate(str(position), num_classes, hot, view, None)


def _accuracy(view: TaskView, backbone: Backbone, test: Examples) -> float:
    classes = classes_of(test.labels)
    return view.accuracy(backbone, to_batches(test, classes, backbone.device))
