"""`impresslearn learn`: data files become tasks of a store."""

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from impresslearn.cli import shared
from impresslearn.cli.shared import AsJson, Data, Device, LabelColumn, Module, Store, echo, option
from impresslearn.errors import (
    InputError,
    MissingDataError,
    NotLearnedWarning,
    TasksFailedError,
    TrainingError,
    UnknownTaskError,
)
from impresslearn.tables import duration, size
from impresslearn.training.progress import progress_for

if TYPE_CHECKING:
    from impresslearn.data import Examples, StreamedExamples
    from impresslearn.learner import ImpressLearner


def learn(
    store: Store,
    data: Data,
    basis: Annotated[bool, option(None, "Train a mask for each task.", "--basis")] = False,
    features: Annotated[
        bool, option(None, "Then learn features for readouts.", "--features")
    ] = False,
    update: Annotated[bool, option(None, "Learn existing tasks further.", "--update")] = False,
    workers: Annotated[
        int | None, option("N", "Learn new tasks in this number of processes.", min=1)
    ] = None,
    ray: Annotated[
        str | None, option("ADDRESS", "Learn new tasks on a Ray cluster; auto for this one.")
    ] = None,
    min_accuracy: Annotated[
        float,
        option("SHARE", "Keep no task below this accuracy on a held-out fifth.", min=0.0, max=1.0),
    ] = 0.0,
    only_if_better: Annotated[
        bool, option(None, "With --update: nor below its present version.", "--only-if-better")
    ] = False,
    label_column: LabelColumn = None,
    module: Module = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Learn tasks into a store.

    Each task is on disk when its line appears. A task that the store has already learned from the
    same data is skipped, so you can interrupt the command and run it again. If one of several tasks
    cannot be learned, the others are still learned and the exit status is 3. With --json each line
    is an object.

    Example: impresslearn learn shops.impress shops/*.csv
    """
    paths = shared.task_paths(data)
    several = len(paths) > 1  # they have one bar; a single task has a bar of its steps
    bar = progress_for(several and "auto").titled("tasks")
    opened = shared.open_learner(store, module, device=device, progress=not several and "auto")
    with opened as learner, bar.track(len(paths)) as advance:
        if features and learner.settings.granularity != "readout":
            raise InputError("--features needs a store made by `new --preset few_labels`")
        if only_if_better and not update:
            raise InputError("--only-if-better compares with present versions: add --update")
        if (workers or ray) and (basis or features or update or min_accuracy):
            line = "leave out --basis, --features, --update, --min-accuracy"
            raise InputError(f"--workers and --ray learn new tasks: {line}")
        # A new reader for each task, as the first task sets the order of columns.
        reader = partial(shared.reader_for, learner, label_column)
        work = Learning(learner, as_json, basis, update, min_accuracy, only_if_better, advance)
        if workers or ray:
            from impresslearn.learner.parallel import learn_in_parallel

            for _ in paths.keys() & learner.tasks_:  # they are not reported
                advance()
            tasks = ((name, partial(reader().examples, path)) for name, path in paths.items())
            if ray is not None:
                os.environ["RAY_ADDRESS"] = ray  # the address that Ray connects to
            places = "ray" if ray else workers or 1
            try:
                learn_in_parallel(learner, tasks, places, _note, work.report)
            except TasksFailedError as failure:
                for name, failed in failure.errors.items():
                    work.report_failure(name, failed)
        else:
            for name, path in paths.items():
                try:
                    work.report(name, work.learn(name, reader().examples(path)))
                except (InputError, MissingDataError, TrainingError, UnknownTaskError) as failure:
                    # An error in the data of one task: other tasks can still be learned.
                    if len(paths) == 1:
                        raise
                    work.report_failure(name, failure)
        if features and len(work.failures) < len(paths):
            # Read the files again, as the examples of all tasks may not fit in memory together.
            learned = [path for name, path in paths.items() if name not in work.failures]
            learner.learn_features(*map(reader().examples, learned))
    if work.failures:
        count, names = len(work.failures), ", ".join(work.failures[:20])
        names += ", …" * (count > 20)
        others = f"{work.learned} learned, {len(paths) - count - work.learned} already there"
        shared.error(f"{count} of {len(paths)} tasks failed: {names} ({others})")
        raise typer.Exit(TasksFailedError.exit_status)


@dataclass
class Learning:
    """Learns tasks with the options of the command, and reports the result of each."""

    learner: "ImpressLearner"
    as_json: bool
    basis: bool
    update: bool
    least: float  # --min-accuracy
    only_if_better: bool
    advance: Callable[[], None]  # called after each task
    apart: "ImpressLearner | None" = None  # learns trial tasks
    failures: list[str] = field(default_factory=list)
    learned: int = 0  # the number of tasks learned or updated

    def learn(self, name: str, examples: "Examples | StreamedExamples") -> str:
        """Learns or updates a task, unless it was learned from the same data; returns a status."""
        note, learner = _note(examples), self.learner
        if name not in learner.tasks_:
            if self.update:
                line = f"no task {name!r} to update; learn it first, without --update"
                raise UnknownTaskError(line)
            self._check_accuracy(name, examples)
            learn_new = learner.learn_basis if self.basis else learner.learn_task
            learn_new(name, examples, note=note)
            return "learned"
        for version in learner.versions(name):
            # Compare with the data of former versions too: learning them again would undo updates.
            former = version.history.get("metrics", {}).get("note") or {}
            if former.get("data") == note["data"]:
                return "known"
        if not self.update:
            line = f"the store has a task {name!r} from other data; learn it further with --update"
            line += ", choose another name with NAME=PATH, or remove the task first"
            raise InputError(line)
        self._check_accuracy(name, examples)
        learner.update_task(name, examples, note=note)
        return "updated"

    def _check_accuracy(self, name: str, examples: "Examples | StreamedExamples") -> None:
        """Learns a task without a fifth of its examples, and measures the accuracy on this fifth.

        Raises TrainingError if the accuracy is too low, as it is with random labels.
        """
        from impresslearn.learner.advice import folds
        from impresslearn.learner.parallel import copy_apart

        learner, least = self.learner, self.least
        if not least and not self.only_if_better:
            return
        _, kept, held = folds({name: examples}, seed=0)[0]
        if self.apart is None or not self.apart.tasks_:
            self.apart = copy_apart(learner)
        apart = self.apart
        if name in apart.tasks_:
            apart.remove_task(name)
        with warnings.catch_warnings():  # they would say that the task is stored
            warnings.simplefilter("ignore", NotLearnedWarning)
            trial = apart.learn_basis if self.basis and not self.update else apart.learn_task
            accuracy = trial(name, kept).score(held, name)
        apart.remove_task(name)
        if self.only_if_better and name in learner.tasks_:
            # Examples of new classes count as errors of the present version.
            classes = set(learner.tasks_[name].classes)
            known = [place for place, label in enumerate(held.labels.tolist()) if label in classes]
            if known:
                right = len(known) * learner.score(held.subset(known), name)
                least = max(least, right / len(held))
        if accuracy < least:
            line = f"{accuracy:.1%} of {len(held):,} held-out examples are right"
            raise TrainingError(f"{line}, at least {least:.1%} must be; nothing was kept")

    def report(self, name: str, status: str = "learned") -> None:
        """Reports a task. status: "learned", "updated" or "known"."""
        self.advance()
        self.learned += status != "known"
        task = self.learner.tasks_[name]
        if self.as_json:
            echo(json.dumps(task.row() | {"status": status}))
        elif status == "known":
            echo(f"{name}: already learned from these data")
        else:
            verb = "learned" if status == "learned" else f"updated to version {task.version}"
            facts = task.history["metrics"]
            verb += f" in {duration(facts['seconds'])} from {facts['examples']:,} examples"
            echo(f"{name}: {verb}, {len(task.classes)} classes, {size(task.bytes)}")

    def report_failure(self, name: str, failure: Exception) -> None:
        self.advance()
        self.failures.append(name)
        if self.as_json:
            echo(json.dumps({"task": name, "status": "failed", "error": str(failure)}))
        else:
            shared.error(failure, name)


def _note(examples: "Examples | StreamedExamples") -> dict[str, str]:
    """A note for a task's history that identifies the data."""
    from impresslearn.data.examples import data_fingerprint

    return {"data": data_fingerprint(examples)[:32]}
