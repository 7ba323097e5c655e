"""`impresslearn learn`, `evaluate` and `predict`: data files into a store, and labels out of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli.arguments import (
    AsJson,
    Data,
    Device,
    LabelColumn,
    Module,
    Quiet,
    Store,
    open_learner,
    option,
    reader_for,
    task_paths,
)
from impresslearn.cli.output import echo, error, info, print_json, print_table
from impresslearn.errors import InputError, MissingDataError, TrainingError, UnknownTaskError
from impresslearn.tables import duration, percent, size

if TYPE_CHECKING:
    from impresslearn.data import Examples, StreamedExamples
    from impresslearn.inference import TaskGuess
    from impresslearn.learner import ImpressLearner

TASK_ERRORS = (InputError, MissingDataError, TrainingError, UnknownTaskError)
"""Errors of one task's data, after which the next task can still be learned."""
LIKELIEST = 5
"""Tasks of a guess that are printed."""


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
    label_column: LabelColumn = None,
    module: Module = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Learn tasks into a store.

    Each task is on disk when its line appears. A task that the store has already learned from the
    same data is skipped, so you can interrupt the command and run it again. If one of several tasks
    cannot be learned, the others are still learned and the exit status is 1.

    Example: impresslearn learn shops.impress shops/*.csv
    """
    paths = task_paths(data)
    failed = []
    with open_learner(store, module, device=device, progress=not quiet) as learner:
        for name, path in paths.items():
            try:
                line = _learn_one(learner, name, path, label_column, basis, update)
            except TASK_ERRORS as failure:
                if len(paths) == 1:
                    raise
                error(failure, name)
                failed.append(name)
                continue
            if not quiet:
                echo(line)
        if features:
            inputs = []
            for name, path in paths.items():
                if name not in failed:
                    inputs.append(reader_for(learner, label_column).examples(path))
            learner.learn_features(*inputs)
    if failed:
        raise InputError(f"{len(failed)} of {len(paths)} tasks failed: {', '.join(failed)}")


def _learn_one(
    learner: "ImpressLearner",
    name: str,
    path: Path,
    label_column: str | None,
    basis: bool,
    update: bool,
) -> str:
    """Learns or updates a task, unless it was learned from these data; returns a line about it."""
    from impresslearn.data import data_fingerprint

    examples = reader_for(learner, label_column).examples(path)
    fingerprint = data_fingerprint(examples)[:32]
    note = {"data": fingerprint}
    known = learner.tasks_.get(name)
    if known is None and update:
        raise UnknownTaskError(f"no task {name!r} to update; learn it first, without --update")
    if known is None and basis:
        learner.learn_basis(name, examples, note=note)
    elif known is None:
        learner.learn_task(name, examples, note=note)
    elif fingerprint in _data_of(learner, name):
        # Data of a former version count too: learning them again would undo what came after.
        return f"{name}: already learned from these data"
    elif not update:
        raise InputError(
            f"the store has a task {name!r} from other data than {path}; learn it further with "
            "--update, choose another name with NAME=PATH, or remove the task first"
        )
    else:
        learner.update_task(name, examples, note=note)
    return _line(learner, name, examples)


def _data_of(learner: "ImpressLearner", name: str) -> set[str | None]:
    """The fingerprints of the data that the versions of a task were learned from."""
    fingerprints: set[str | None] = set()
    for version in learner.versions(name):
        note = version.history.get("metrics", {}).get("note") or {}
        fingerprints.add(note.get("data"))
    return fingerprints


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


def evaluate(
    store: Store,
    data: Data,
    label_column: LabelColumn = None,
    module: Module = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Print the accuracy of tasks on labelled examples.

    The name of a file, or NAME, says which task it tests.

    Example: impresslearn evaluate shops.impress tests/*.csv
    """
    rows: list[dict[str, Any]] = []
    with open_learner(store, module, readonly=True, device=device, progress=False) as learner:
        for name, path in task_paths(data).items():
            learner.tasks_.learned(name)  # an unknown name fails before its file is read
            examples = reader_for(learner, label_column).examples(path)
            accuracy = learner.score(examples, name)
            rows.append({"task": name, "accuracy": accuracy, "examples": len(examples)})
    if as_json:
        print_json(rows)
        return
    cells = [[row["task"], percent(row["accuracy"]), f"{row['examples']:,}"] for row in rows]
    if len(rows) > 1:
        mean = sum(row["accuracy"] for row in rows) / len(rows)
        cells.append(["mean", percent(mean), f"{sum(row['examples'] for row in rows):,}"])
    print_table(("task", "accuracy", "examples"), cells)


def predict(
    store: Store,
    inputs: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="A .csv, .npy, .npz, an image or a folder of images."),
    ],
    task: Annotated[
        str | None, option("NAME", "The task; by default the inputs are matched to one.")
    ] = None,
    proba: Annotated[
        bool, option(None, "Print the probability of every class.", "--proba")
    ] = False,
    label_column: LabelColumn = None,
    module: Module = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predict labels for the inputs of a file or folder.

    Prints a line per input: its name or row number, the label and the label's probability, with
    tabs between. Give raw inputs, like the examples that the task was learned from. Without --task
    all inputs must belong to one task, which the command finds and names on standard error.

    Example: impresslearn predict shops.impress new.csv --task oslo
    """
    from impresslearn.data import Prepared

    guess = None
    with open_learner(store, module, readonly=True, device=device, progress=False) as learner:
        named = reader_for(learner, label_column).inputs(inputs)
        values: Any = named.inputs
        if learner.preprocessing_ is not None:
            values = learner.preprocessing_.prepare(named.inputs, named.pixels)
        if task is None:
            guess = learner.infer_task(Prepared(values))
            task = _known(guess)
        classes = learner.tasks_[task].classes
        logits = learner.logits(Prepared(values), task)[:, : len(classes)]
    rows = []
    for name, likely in zip(named.names, logits.float().softmax(dim=1).tolist(), strict=True):
        highest = max(likely)
        row = {"name": name, "label": classes[likely.index(highest)], "probability": highest}
        if proba:
            row["probabilities"] = likely
        rows.append(row)
    if as_json:
        posterior = None if guess is None else dict(guess.posterior)
        result = {"task": task, "posterior": posterior, "classes": list(classes), "rows": rows}
        print_json(result)
        return
    for row in rows:
        cells = [row["name"], str(row["label"]), f"{row['probability']:.4f}"]
        for label, probability in zip(classes, row.get("probabilities", ()), strict=False):
            cells.append(f"{label}={probability:.4f}")
        echo(*cells)


def _known(guess: "TaskGuess") -> str:
    """The task of a guess, named on standard error. Raises UnknownTaskError if it is none."""
    ranked = sorted(guess.posterior.items(), key=lambda item: -item[1])[:LIKELIEST]
    likely = ", ".join(f"{name} {probability:.2f}" for name, probability in ranked)
    if guess.unknown:
        raise UnknownTaskError(
            f"the inputs look like none of the tasks (nearest: {likely}); name one with --task"
        )
    info(f"task {guess.best} (posterior: {likely})")
    return guess.best
