"""`impresslearn learn`: data files become tasks of a store."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from impresslearn.cli.shared import (
    Data,
    Device,
    LabelColumn,
    Module,
    Store,
    echo,
    error,
    open_learner,
    option,
    reader_for,
    task_paths,
)
from impresslearn.errors import (
    InputError,
    MissingDataError,
    TasksFailedError,
    TrainingError,
    UnknownTaskError,
)
from impresslearn.tables import duration, size

if TYPE_CHECKING:
    from impresslearn.data import Examples, StreamedExamples
    from impresslearn.data.file_reader import FileReader
    from impresslearn.learner import ImpressLearner

# Errors of one task's data, after which the next task can still be learned.
TASK_ERRORS = (InputError, MissingDataError, TrainingError, UnknownTaskError)


def learn(
    store: Store,
    data: Data,
    basis: Annotated[
        bool, option(None, "Train a mask for each task and add it to the bank.", "--basis")
    ] = False,
    features: Annotated[
        bool,
        option(None, "Then learn features for readouts from them (few_labels).", "--features"),
    ] = False,
    update: Annotated[
        bool, option(None, "Learn existing tasks further; old versions are kept.", "--update")
    ] = False,
    workers: Annotated[
        int | None, option("N", "Learn new tasks in this number of processes.", min=1)
    ] = None,
    ray: Annotated[
        str | None, option("ADDRESS", "Learn new tasks on a Ray cluster; auto for this one.")
    ] = None,
    label_column: LabelColumn = None,
    module: Module = None,
    device: Device = "cpu",
) -> None:
    """Learn tasks into a store.

    Each task is on disk when its line appears. A task that the store has already learned from the
    same data is skipped, so you can interrupt the command and run it again. If one of several tasks
    cannot be learned, the others are still learned and the exit status is 1.

    Example: impresslearn learn shops.impress shops/*.csv
    """
    paths = task_paths(data)
    learned = []
    failed = []
    with open_learner(store, module, device=device) as learner:
        if features and learner.settings.granularity != "readout":
            raise InputError("--features needs a store made by `new --preset few_labels`")
        reader = reader_for(learner, label_column)
        if workers or ray:
            if basis or features or update:
                raise InputError(
                    "--workers and --ray learn new tasks: leave out --basis, --features, --update"
                )
            _learn_side_by_side(learner, reader, paths, workers or 1, ray)
            return
        for name, path in paths.items():
            try:
                examples = reader.examples(path)
                echo(_learn_one(learner, name, examples, basis, update))
            except TASK_ERRORS as failure:
                if len(paths) == 1:
                    raise
                error(failure, name)
                failed.append(name)
            else:
                learned.append(path)
        if features:
            # Read again: the examples of all tasks at once may not fit into memory.
            learner.learn_features(*map(reader.examples, learned))
    if failed:
        raise InputError(f"{len(failed)} of {len(paths)} tasks failed: {', '.join(failed)}")


def _learn_side_by_side(
    learner: "ImpressLearner",
    reader: "FileReader",
    paths: Mapping[str, Path],
    workers: int,
    ray: str | None,
) -> None:
    """Learns new tasks in several processes; tasks that the store has are left out."""
    from impresslearn.learner.parallel import learn_in_parallel

    new = {name: partial(reader.examples, path) for name, path in paths.items()}
    known = sum(name in learner.tasks_ for name in new)
    if known:
        echo(f"{known:,} of {len(new):,} tasks are in the store already")
    if ray is not None:
        os.environ["RAY_ADDRESS"] = ray  # where Ray connects to

    def committed(name: str) -> None:
        task = learner.tasks_[name]
        echo(f"{name}: learned, {len(task.classes)} classes, {size(task.bytes)}")

    try:
        learn_in_parallel(learner, new, "ray" if ray else workers, _note, committed)
    except TasksFailedError as failure:
        for name, failed in failure.errors.items():
            error(failed, name)
        raise InputError(f"{len(failure.errors)} of {len(new)} tasks failed") from None


def _note(examples: "Examples | StreamedExamples") -> dict[str, str]:
    """Marks a task by the data that it was learned from."""
    from impresslearn.data import data_fingerprint

    return {"data": data_fingerprint(examples)[:32]}


def _learn_one(
    learner: "ImpressLearner",
    name: str,
    examples: "Examples | StreamedExamples",
    basis: bool,
    update: bool,
) -> str:
    """Learns or updates a task, unless it was learned from these data; returns a line about it."""
    note = _note(examples)
    if name not in learner.tasks_:
        if update:
            raise UnknownTaskError(f"no task {name!r} to update; learn it first, without --update")
        learn_new = learner.learn_basis if basis else learner.learn_task
        learn_new(name, examples, note=note)
        return _line(learner, name, examples)
    for version in learner.versions(name):
        # Data of a former version count too: learning them again would undo what came after.
        former = version.history.get("metrics", {}).get("note") or {}
        if former.get("data") == note["data"]:
            return f"{name}: already learned from these data"
    if not update:
        raise InputError(
            f"the store has a task {name!r} from other data; learn it further with --update, "
            "choose another name with NAME=PATH, or remove the task first"
        )
    learner.update_task(name, examples, note=note)
    return _line(learner, name, examples)


def _line(learner: "ImpressLearner", name: str, examples: "Examples | StreamedExamples") -> str:
    """What was learned, and which classes of the task the new data do not show."""
    from impresslearn.data import classes_of

    task = learner.tasks_[name]
    seconds = task.history.get("metrics", {}).get("seconds", 0.0)
    verb = "learned" if task.version == 1 else f"updated to version {task.version}"
    line = f"{name}: {verb} in {duration(seconds)} from {len(examples):,} examples"
    line += f", {len(task.classes)} classes, {size(task.bytes)}"
    seen = classes_of(examples.labels)
    absent = [str(label) for label in task.classes if label not in seen]
    if absent:
        line += f"; no example of {', '.join(absent[:5])}: the task may have lost these classes"
    return line
