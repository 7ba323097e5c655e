"""Runs methods on a stream over seeds: `compare`.

A run is one method with one combination of its settings on one seed. Runs are independent: each is
kept in a file of its own as soon as it is finished, in whichever process that was, so a call that
was stopped goes on with the runs that are missing.
"""

from __future__ import annotations

import inspect
import itertools
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from impresslearn.checks import check_choice, check_integer, check_name, check_seed
from impresslearn.errors import ImpressLearnError, InputError, MissingDependencyError, warn_caller
from impresslearn.methods.comparison import Comparison, Run, label_of
from impresslearn.methods.evaluation import (
    Chosen,
    Evaluation,
    Tasks,
    check_method,
    images_of,
    ordered_tasks,
    run_evaluation,
)
from impresslearn.methods.run_cache import RunCache, digest
from impresslearn.methods.run_progress import RunProgress, task_writer
from impresslearn.streams import Stream, Task, from_arrays
from impresslearn.tables import duration, percent

BACKENDS = ("loky", "ray")
EQUAL = 1.05  # ratio of training images below which methods count as trained equally

Factory = Callable[..., Any]
Entry = Factory | tuple[Factory, Mapping[str, Any]]
StreamSource = Tasks | Callable[[int], Tasks]


@dataclass(frozen=True)
class PlannedRun:
    """A run to do: how to make its method, and the tasks to learn.

    - settings: passed to the factory, `basis` apart
    """

    method: str
    factory: Factory
    settings: Mapping[str, Any]
    seed: int
    stream: Sequence[Task]
    tasks: Sequence[Task]
    num_basis: int

    @property
    def label(self) -> str:
        """What the run is called."""
        return f"{label_of(self.method, self.settings)}, seed {self.seed}"

    def key(self) -> str:
        """What its result depends on."""
        given = {name: value for name, value in self.settings.items() if name != "basis"}
        return digest(_version(), self.factory, given, self.seed, list(self.tasks), self.num_basis)

    def make(self) -> Any:
        """The method, with nothing learned. Raises InputError where the factory refuses."""
        given = {name: value for name, value in self.settings.items() if name != "basis"}
        given |= _offered(self.factory, self.seed, self.stream, given)
        try:
            method = self.factory(**given)
        except ImpressLearnError as error:
            raise type(error)(f"{self.label}: {error}") from error
        except TypeError as error:
            raise InputError(f"{self.label}: cannot be made: {error}") from error
        check_method(method)
        if hasattr(method, "progress"):
            method.progress = False  # the comparison shows its own
        return method


def compare(
    methods: Mapping[str, Entry],
    stream: StreamSource,
    *,
    seeds: int | Sequence[int] = 1,
    basis: int | Mapping[str, int] = 0,
    evaluate_on: Chosen | None = None,
    workers: int = 1,
    backend: str = "loky",
    cache: str | os.PathLike | None = None,
    progress: bool = True,
) -> Comparison:
    """Evaluates methods on a stream, each over the same seeds.

    - methods: label -> a class or function that makes the method, or a pair of it and its settings.
      It is called with its settings, and with `seed` and `stream` where it has parameters of these
      names (a `**settings` parameter gets `seed` too). A list among the settings is a grid: every
      combination of the values of all lists is tried. The setting `basis` sets that argument
    - stream: a `Stream`, {task name: (train, test)}, or a function of the seed that returns one,
      for other orders or tasks with each seed
    - seeds: how many, from 0, or which ones; five or more give intervals and tests
    - basis: how many basis tasks come first, for all methods or by label (others: none)
    - evaluate_on: the tasks that are learned after the basis tasks and that the figures are over,
      as in `evaluate`; by default those after the largest number of basis tasks of any method
    - workers: processes that work at the same time
    - backend: "loky", processes on this machine, or "ray", a Ray cluster
    - cache: a folder for finished runs, from which the same call goes on; by default none are kept.
      A change of a method's code or settings, of the stream or of this package's version makes new
      runs of what it concerns
    - progress: whether lines or a bar show method, seed, task and how many runs are done

    Warns where methods train on different numbers of images per task. Raises InputError that names
    the method for what cannot be made or evaluated.
    """
    check_integer("workers", workers, 1)
    check_choice("backend", backend, BACKENDS)
    planned = _planned_runs(methods, stream, _checked_seeds(seeds), basis, evaluate_on)
    folder = None if cache is None else RunCache(Path(cache).resolve())
    keys = [run.key() if folder else "" for run in planned]
    finished: dict[int, Evaluation] = {}
    if folder is not None:
        for number, (run, key) in enumerate(zip(planned, keys, strict=True)):
            kept = folder.load(folder.path(run.method, run.seed, key), key)
            if kept is not None:
                finished[number] = kept
    missing = [number for number in range(len(planned)) if number not in finished]
    with RunProgress(len(planned), len(finished), progress) as display:
        kept_in = f", {len(finished)} of them in {cache}" if finished else ""
        display.say(
            f"compare: {len(planned)} runs{kept_in}; {min(workers, len(planned))} at a time"
        )
        for line in _check_first(planned, missing):
            display.say(line)
        jobs = [
            (number, planned[number], keys[number], folder, display.file_of(number))
            for number in missing
        ]
        for number, evaluation in _work(jobs, workers, backend):
            finished[number] = evaluation
            score, seconds = percent(evaluation.accuracy), duration(evaluation.seconds)
            display.finish(number, f"{planned[number].label}: accuracy {score}, {seconds}")
    runs = [
        Run(run.method, dict(run.settings), run.seed, finished[number])
        for number, run in enumerate(planned)
    ]
    compared = Comparison(tuple(runs))
    _warn_of_unequal_training(compared)
    return compared


def _planned_runs(
    methods: Mapping[str, Entry],
    stream: StreamSource,
    seeds: Sequence[int],
    basis: int | Mapping[str, int],
    evaluate_on: Chosen | None,
) -> list[PlannedRun]:
    if not isinstance(methods, Mapping) or not methods:
        raise InputError("methods must map labels to classes or functions, as in {'mine': Mine}")
    if isinstance(basis, Mapping):
        for label in basis:
            check_choice("a label of basis", label, methods)
    chosen = []
    for label, entry in methods.items():
        check_name(label, "a method's label")
        factory, grid = entry if isinstance(entry, tuple) else (entry, {})
        if not callable(factory) or not isinstance(grid, Mapping):
            raise InputError(
                f"{label}: give a class or a function that makes the method, as each seed needs a "
                f"new one, or (function, settings); got {type(factory).__name__}"
            )
        count = basis.get(label, 0) if isinstance(basis, Mapping) else basis
        for settings in _combinations(grid):
            number = check_integer("basis", settings.get("basis", count), 0)
            chosen.append((label, factory, settings, number))
    largest = max(number for *_, number in chosen)
    planned = []
    streams = {seed: _stream_of(stream, seed) for seed in seeds}
    for label, factory, settings, number in chosen:
        for seed in seeds:
            tasks = streams[seed]
            new_tasks = evaluate_on
            if new_tasks is None:
                # The same tasks for all, however few basis tasks a method has.
                new_tasks = max(1, len(tasks) - largest)
                if largest >= len(tasks):
                    raise InputError(
                        f"basis = {largest} leaves no task to learn; the stream has {len(tasks)}"
                    )
            ordered, num_basis = ordered_tasks(tasks, number, new_tasks)
            planned.append(PlannedRun(label, factory, settings, seed, tasks, ordered, num_basis))
    return planned


def _combinations(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Settings for each combination of the lists in a grid."""
    lists = [value if isinstance(value, list) else [value] for value in grid.values()]
    for values in itertools.product(*lists):
        yield dict(zip(grid, values, strict=True))


def _checked_seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        return list(range(check_integer("seeds", seeds, 1)))
    checked = [check_seed(seed) for seed in seeds]
    if not checked or len(set(checked)) < len(checked):
        raise InputError(f"seeds must be a number or different seeds, got {seeds!r}")
    return checked


def _stream_of(stream: StreamSource, seed: int) -> Sequence[Task]:
    tasks: Any = stream(seed) if callable(stream) else stream
    if isinstance(tasks, Mapping):
        tasks = from_arrays(tasks)
    if not isinstance(tasks, Stream):
        tasks, _ = ordered_tasks(tasks, 0, None)
    return tasks


def _offered(
    factory: Factory, seed: int, stream: Sequence[Task], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments beside its settings that a factory has parameters for."""
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # some classes written in C have none
        return {}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    offered: dict[str, Any] = {}
    if "seed" in parameters or takes_any:
        offered["seed"] = seed
    if "stream" in parameters:
        offered["stream"] = stream
    return {name: value for name, value in offered.items() if name not in given}


def _check_first(planned: Sequence[PlannedRun], missing: Sequence[int]) -> Iterator[str]:
    """Makes each method that is to run once, so that errors come first; says how long it trains."""
    checked = set()
    for number in missing:
        run = planned[number]
        label = label_of(run.method, run.settings)
        if label in checked:
            continue
        checked.add(label)
        images = images_of(run.make(), len(run.tasks[run.num_basis].train))
        if images is not None:
            yield f"{label}: {images:,} training images per task (steps × batch)"


def _work(
    jobs: Sequence[tuple[Any, ...]], workers: int, backend: str
) -> Iterator[tuple[int, Evaluation]]:
    """Does the jobs; gives each result as soon as it is there."""
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield _do(*job)
        return
    from joblib import Parallel, delayed

    if backend == "ray":
        try:
            from ray.util.joblib import register_ray
        except ImportError:
            raise MissingDependencyError(
                "backend='ray' needs Ray: pip install 'impresslearn[ray]'"
            ) from None
        register_ray()
    parallel = Parallel(
        n_jobs=workers, backend=backend, return_as="generator_unordered", batch_size=1
    )
    yield from parallel(delayed(_do)(*job) for job in jobs)


def _do(
    number: int, run: PlannedRun, key: str, cache: RunCache | None, status: Path
) -> tuple[int, Evaluation]:
    """One run, in any process."""
    before = task_writer(status, run.label, len(run.tasks))
    method = run.make()
    try:
        evaluation = run_evaluation(method, run.tasks, run.num_basis, before=before)
    except ImpressLearnError as error:
        raise type(error)(f"{run.label}: {error}") from error
    if cache is not None:
        about = {
            "method": run.method,
            "settings": dict(run.settings),
            "seed": run.seed,
            "versions": {"impresslearn": _version(), "torch": torch.__version__},
            "machine": platform.platform(),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        cache.save(cache.path(run.method, run.seed, key), key, about, evaluation)
    return number, evaluation


def _warn_of_unequal_training(compared: Comparison) -> None:
    images: dict[str, float] = {}
    for run in compared.runs:
        if run.evaluation.images_per_task is not None:
            images[run.label] = run.evaluation.images_per_task
    if images and max(images.values()) > EQUAL * min(images.values()):
        counts = ", ".join(f"{label} {count:,.0f}" for label, count in images.items())
        warn_caller(
            f"methods train on different numbers of images per task (steps × batch): {counts}; "
            "give them recipes with the same epochs, min_steps, batch_size and batch_fraction"
        )


def _version() -> str:
    import impresslearn

    return impresslearn.__version__
