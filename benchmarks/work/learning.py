"""Jobs that learn: a mask, tasks by ours with any settings, tasks by a method's name, a stream.

Settings of all: stream, backbone, seed, labels (see `load_task`), and task, or tasks that one
method learns in turn. Values of a task, or of each of the rows: task, accuracy, bytes_per_task;
prediction_bytes: those without what the task is recognised by, which few methods keep; seconds:
processor time of learning alone; and of rows shared_bytes: what all tasks read beside the network.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import impresslearn as il
from benchmarks.jobs import JobContext, Outcome
from benchmarks.rivals import create_method
from benchmarks.work.inputs import load_backbone, load_bank, load_task, mask_blob
from impresslearn.learner import ImpressLearner
from impresslearn.networks import Backbone
from impresslearn.training.loop import Recipe

Settings = Mapping[str, Any]
OF_THE_INPUTS = ("stream", "backbone", "size", "featured")  # without how many labels
MOST_INPUTS = 1000  # test inputs a task whose logits are compared at the end of a stream


def train_mask(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """One dedicated mask (SupSup; a basis task): sparsity, allocation, recipe, rule.

    The blob is the mask, with norm statistics.
    """
    learner = ImpressLearner(
        load_backbone(settings, place),
        sparsity=settings["sparsity"],
        allocation=settings["allocation"],
        basis_recipe=Recipe(**settings["recipe"]),
        score_rule=settings["rule"],
        progress=False,
    )
    name, train, test = load_task(settings, place)
    learner.learn_basis(name, train, seed=settings["seed"])
    coded = learner.bank_.infos[0].coded
    values = {"task": name, "accuracy": learner.score(test, name)}
    values["bytes_per_task"] = learner.tasks_[name].bytes
    return Outcome(values, mask_blob(coded or b"", learner.statistics_of(name)))


def adapt_network(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """A network trained once on the tasks of `tasks` (`adapt_to` with `recipe`), as the blob."""
    parts = [load_task({**settings, "task": task}, place).train for task in settings["tasks"]]
    inputs = torch.cat([part.inputs for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    together = replace(parts[0], inputs=inputs, labels=labels)
    backbone = load_backbone(settings, place)
    adapted = il.adapt_to(backbone, together, recipe=settings["recipe"], progress=False)
    return Outcome({"examples": len(together)}, pickle.dumps(adapted))


def _backbone_and_masks(
    settings: Settings, needs: Sequence[Outcome], place: JobContext
) -> tuple[Backbone, Sequence[Outcome]]:
    """The network, with `adapted` as the first needed job trained it, and the other needs."""
    if not settings.get("adapted"):
        return load_backbone(settings, place), needs
    return pickle.loads(needs[0].blob or b"").to(place.device), needs[1:]


def learn_by_settings(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """Ours over the needed masks, or random ones (`random`, see `load_bank`), or none.

    learner: settings of `ImpressLearner` as plain values; recipe: its task_recipe; features: the
    tasks from whose training examples the features that all tasks share are learned.
    """
    backbone, needs = _backbone_and_masks(settings, needs, place)
    learner = ImpressLearner(
        backbone,
        bank=load_bank(backbone, needs, settings.get("random")),
        task_recipe=Recipe(**settings["recipe"]),
        seed=settings["seed"],
        progress=False,
        **settings["learner"],
    )
    return _learned(learner, settings, place)


def learn_by_name(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """A method of `create_method`: its name as method; recipe, and options, its other settings.

    It gets the needed masks, or random ones, as its bank. features: as of ours; Share learns its
    shared directions from these tasks.
    """
    backbone, needs = _backbone_and_masks(settings, needs, place)
    options = dict(settings["options"])
    if needs or "random" in settings:
        options["bank"] = load_bank(backbone, needs, settings.get("random"))
    if settings["method"] == "share":
        options["earlier"] = _earlier(settings, place)
    recipe, seed = settings["recipe"], settings["seed"]
    method = create_method(settings["method"], backbone, seed=seed, recipe=recipe, **options)
    reader = None
    if settings.get("adapted") and settings["method"] == "classifier":
        reader = ImpressLearner.from_preset(backbone, "few_labels", progress=False)
    return _learned(method, settings, place, reader)


def _earlier(settings: Settings, place: JobContext) -> list[Any]:
    """The training examples of the tasks of `features`."""
    # Without the job's labels: those who came before had more examples.
    where = {key: settings[key] for key in OF_THE_INPUTS if key in settings}
    return [load_task({**where, "task": task}, place).train for task in settings["features"]]


def _learned(
    method: Any, settings: Settings, place: JobContext, reader: ImpressLearner | None = None
) -> Outcome:
    """The rows of a method; it gets the features that `reader` computes, if any, as its inputs."""
    if "features" in settings and settings.get("method") != "share":
        method.learn_features(*_earlier(settings, place))
    if "task" in settings:
        return Outcome(_row(method, settings, place, reader))
    rows = [_row(method, {**settings, "task": task}, place, reader) for task in settings["tasks"]]
    return Outcome({"rows": [row | {"shared_bytes": shared_bytes(method)} for row in rows]})


def shared_bytes(method: Any) -> int:
    """The bytes of a projection of features that all tasks of a method share."""
    if not isinstance(method, ImpressLearner):
        return getattr(method, "shared_bytes", 0)
    _, projection = method._store.rows.last_projection()
    return 0 if projection is None else 2 * projection.matrix.numel()


def _row(
    method: Any, settings: Settings, place: JobContext, reader: ImpressLearner | None
) -> dict[str, Any]:
    name, train, test = load_task(settings, place)
    if reader is not None:
        train = replace(train, inputs=reader.features(train.inputs))
        test = replace(test, inputs=reader.features(test.inputs))
    # Processor time on one thread is what it takes on a machine that does nothing else.
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


def learn_stream(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """The tasks of a stream in order, the first `basis` of them as masks, the others as numbers.

    Settings: stream, backbone, mask (allocation, rule, recipe), coefficients (recipe, penalty),
    sparsity, granularity, basis, tasks, seed; labels: examples a task, all by default; searches:
    [method, inputs, positions] each, the tasks there being looked for among all.
    Values: rows, one for each task: task, role, accuracy and bytes_per_task when it was learned,
    accuracy_at_end, identical (whether its logits at the end are the same bits), and of each search
    whether it found the task, "found by METHOD from INPUTS" -> 1.0 or 0.0.
    """
    mask, coefficients = settings["mask"], settings["coefficients"]
    learner = ImpressLearner(
        load_backbone(settings, place),
        sparsity=settings["sparsity"],
        granularity=settings["granularity"],
        allocation=mask["allocation"],
        score_rule=mask["rule"],
        basis_recipe=Recipe(**mask["recipe"]),
        task_recipe=Recipe(**coefficients["recipe"]),
        penalty=coefficients["penalty"],
        progress=False,
        cache_bytes=0,  # weights that were kept would hide a change of what they are made of
    )
    rows, before = [], []
    for number in range(settings["tasks"]):
        name, train, test = load_task({**settings, "task": number}, place)
        learn = learner.learn_basis if number < settings["basis"] else learner.learn_task
        learn(name, train, seed=settings["seed"])
        info = learner.tasks_[name]
        before.append(learner.logits(test.inputs[:MOST_INPUTS], name))
        row = {"task": name, "role": info.role, "accuracy": learner.score(test, name)}
        rows.append({**row, "bytes_per_task": info.bytes})
    for number, (row, logits) in enumerate(zip(rows, before, strict=True)):
        # Loaded again: the test sets of all tasks would fill the memory.
        name, _, test = load_task({**settings, "task": number}, place)
        row["accuracy_at_end"] = learner.score(test, name)
        row["identical"] = torch.equal(logits, learner.logits(test.inputs[:MOST_INPUTS], name))
        for method, inputs, positions in settings["searches"]:
            if number in positions:
                guess = learner.infer_task(test.inputs[:inputs], method=method)
                row[f"found by {method} from {inputs}"] = float(guess.best == name)
    return Outcome({"rows": rows})
