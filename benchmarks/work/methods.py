"""Jobs that learn a task by any method: ours with any settings, one by name, a classical model.

Settings of all: stream, backbone, seed, labels (see `load_task`), and task, or tasks that one
method learns in turn. Values of a task, or of each of the rows: task, accuracy, bytes_per_task;
prediction_bytes: those without what the task is recognised by, which few methods keep; and seconds:
processor time of learning alone, which is what it takes on one thread of a machine that does
nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.jobs import JobContext, Outcome
from benchmarks.rivals import BestMask, SklearnClassifier, create_method
from benchmarks.work.inputs import load_backbone, load_bank, load_task
from benchmarks.work.training import judged
from impresslearn.learner import ImpressLearner
from impresslearn.methods.hybrid import Hybrid
from impresslearn.training.loop import Recipe

Settings = Mapping[str, Any]


def learn_by_settings(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """Ours over the needed masks, or random ones (`random`, see `load_bank`), or none.

    learner: settings of `ImpressLearner` as plain values; recipe: its task_recipe; features: the
    tasks whose training examples readouts' features are learned from.
    """
    backbone = load_backbone(settings, place)
    bank = load_bank(backbone, needs, settings.get("random"))
    learner = ImpressLearner(
        backbone,
        bank=bank,
        task_recipe=Recipe(**settings["recipe"]),
        seed=settings["seed"],
        progress=False,
        **settings["learner"],
    )
    if "features" in settings:
        where = {"stream": settings["stream"]}
        tasks = [load_task({**where, "task": task}, place) for task in settings["features"]]
        learner.learn_features(*(task.train for task in tasks))
    return _learned(learner, settings, place)


def learn_by_name(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """A method of `create_method`: its name as method; recipe, and options, its other settings."""
    backbone, options = load_backbone(settings, place), settings["options"]
    recipe, seed = settings["recipe"], settings["seed"]
    method = create_method(settings["method"], backbone, seed=seed, recipe=recipe, **options)
    return _learned(method, settings, place)


def fit_classifier(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """A `SklearnClassifier`: estimator, features (under each needed mask, if any), precision."""
    backbone = load_backbone(settings, place)
    bank = load_bank(backbone, needs) if needs else None
    names = ("estimator", "features", "seed", "precision")
    chosen = {key: settings[key] for key in names if key in settings}
    return _learned(SklearnClassifier(backbone, bank=bank, **chosen), settings, place)


def choose_mask(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """The needed mask that is right on most training examples."""
    backbone = load_backbone(settings, place)
    return _learned(BestMask(backbone, load_bank(backbone, needs)), settings, place)


def learn_hybrid(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
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


def _learned(method: Any, settings: Settings, place: JobContext) -> Outcome:
    if "task" in settings:
        return Outcome(_row(method, settings, place))
    rows = [_row(method, {**settings, "task": task}, place) for task in settings["tasks"]]
    return Outcome({"rows": rows})


def _row(method: Any, settings: Settings, place: JobContext) -> dict[str, Any]:
    name, train, test = load_task(settings, place)
    started = time.process_time()
    method.learn_task(name, train)
    seconds, info = time.process_time() - started, method.tasks_[name]
    return {
        "task": name,
        "seconds": round(seconds, 4),
        "accuracy": method.score(test, name),
        "bytes_per_task": info.bytes,
        "prediction_bytes": info.bytes - info.breakdown.get("profile", 0),
    }
