"""The job of class-incremental learning: every method over the same features of one network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.jobs import JobContext, Outcome
from benchmarks.rivals.incremental import INCREMENTAL
from benchmarks.work.inputs import load_backbone, load_task
from benchmarks.work.learning import shared_bytes
from impresslearn.learner import ImpressLearner
from impresslearn.methods import class_incremental


def tasks_of_single_inputs(
    settings: Mapping[str, Any], needs: Sequence[Outcome], place: JobContext
) -> Outcome:
    """Ours with and without a class map, and rivals, each on single inputs after all tasks.

    Settings: stream, backbone, tasks, labels, balanced, size and featured (see `load_task`),
    preset, learner (changes of the preset), and rivals, names of `INCREMENTAL`.
    Values: rows, one per method: method, class_il, task_il, task_accuracy and unknown of
    `class_incremental`; bytes that predict, and state_bytes, with those to learn on.
    """
    learner = ImpressLearner.from_preset(
        load_backbone(settings, place), settings["preset"], progress=False, **settings["learner"]
    )
    tasks = {}
    for number in settings["tasks"]:
        name, *parts = load_task({**settings, "task": number}, place)
        tasks[name] = tuple(parts)
    rows = []
    for rival in settings["rivals"]:
        method = INCREMENTAL[rival]()
        result = class_incremental(method, tasks).summary()
        sizes = {"bytes": method.bytes, "state_bytes": method.state_bytes}
        rows.append({"method": rival, **_known(result), **sizes})
    for setting in ("without a map", "with a class map"):
        if setting == "with a class map":
            for name, (train, _) in tasks.items():  # in turn, as the rivals learn
                learner.tell_apart({name: train})
        result = class_incremental(learner, tasks).summary()
        kept_bytes = sum(info.bytes for info in learner.tasks_.values()) + shared_bytes(learner)
        kept_bytes += learner.class_map_.nbytes if learner.class_map_ else 0
        sizes = {"bytes": kept_bytes, "state_bytes": kept_bytes}
        rows.append({"method": "ImpressLearn", "setting": setting, **_known(result), **sizes})
    return Outcome({"rows": rows})


def _known(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if value is not None}
