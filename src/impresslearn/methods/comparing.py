"""`compare` evaluates several methods on the same stream, over several seeds.

A run is one method with one combination of its settings and one seed. Runs are independent.
"""

import inspect
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impresslearn.checks import (
    check_choice,
    check_integer,
    check_mapping,
    check_name,
    check_seed,
    clear_calls,
    imported,
    shown,
)
from impresslearn.errors import InputError, error_prefix, print_line, warn_caller
from impresslearn.methods.comparison import Comparison, Run, label_of
from impresslearn.methods.evaluation import (
    MEASURES,
    Evaluation,
    Tasks,
    check_method,
    check_tasks,
    evaluate,
    images_of,
)
from impresslearn.methods.run_cache import digest, load_run, save_run
from impresslearn.streams import Task
from impresslearn.tables import duration, percent

BACKENDS = ("loky", "ray")
RESULT_COLUMNS = ("method", "seed", "task", "phase", "learned", "bytes", *MEASURES)
EQUAL = 1.05  # up to this ratio of training images, methods count as trained equally

Factory = Callable[..., Any]
Entry = Factory | tuple[Factory, Mapping[str, Any]]
StreamSource = Tasks | Callable[[int], Tasks]


@dataclass(frozen=True)
class PlannedRun:
    """A run to do: how to make its method, and the tasks to learn."""

    method: str
    factory: Factory
    settings: Mapping[str, Any]
    seed: int
    tasks: Sequence[Task]
    num_basis: int

    @property
    def label(self) -> str:
        """The name of the run in messages."""
        return f"{label_of(self.method, self.settings)}, seed {self.seed}"

    def file(self, cache: str | os.PathLike) -> Path:
        """The result's file; its name has a digest of everything that the result depends on."""
        from impresslearn import __version__

        made_by = (self.factory, dict(self.settings), self.seed, list(self.tasks), self.num_basis)
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.method)[:60]
        key = digest(__version__, *made_by)
        return Path(cache).resolve() / f"{name}-seed{self.seed}-{key}.json"

    def make(self) -> Any:
        """A new method, which has learned nothing. Raises InputError for unsuitable settings."""
        seed = {}
        with suppress(ValueError):  # a subclass of a built-in such as dict has no signature
            for each in inspect.signature(self.factory).parameters.values():
                if each.name == "seed" or each.kind is each.VAR_KEYWORD:
                    seed = {"seed": self.seed}
        with error_prefix(self.label):
            try:
                method = self.factory(**seed | dict(self.settings))
            except TypeError as error:
                line = str(error).replace("got an unexpected keyword argument", "has no argument")
                raise InputError(f"cannot be made: {line}") from error
        check_method(method)
        if hasattr(method, "progress"):
            method.progress = False  # `compare` prints its own progress
        return method


@clear_calls
def compare(
    methods: Mapping[str, Entry],
    stream: StreamSource,
    *,
    seeds: int | Sequence[int] = 1,
    basis: int | Mapping[str, int] = 0,
    evaluate_on: Sequence[str] | None = None,
    workers: int = 1,
    backend: str = "loky",
    cache: str | os.PathLike | None = None,
    progress: bool = True,
) -> Comparison:
    """Evaluates methods on a stream, each over the same seeds.

    - methods: label -> maker, or label -> (maker, settings). A maker is a class or function that
      makes the method. It is called with the settings, and with `seed` if it has this parameter or
      `**settings`. If settings are lists, every combination of their values is tried
    - stream: a `Stream`, {task name: (train, test)}, or a function that takes a seed and returns a
      stream, so that each seed has its own order or its own tasks
    - seeds: the seeds, or their number n for the seeds 0 to n - 1; default 1. At least five seeds
      are needed for intervals and tests
    - basis: how many tasks at the start of the stream are basis tasks, learned by `learn_basis`:
      one number for all methods (default 0), or label -> number (0 if left out). The new tasks of
      every method are the tasks after the largest of these numbers
    - evaluate_on: the names of the new tasks. They then stay the same whatever `basis` is, and
      basis tasks are taken from the start of the other tasks
    - workers: the number of runs done at the same time, in as many processes; default 1
    - backend: "loky" (default) for processes on this machine, "ray" for a Ray cluster
    - cache: a folder for the results of runs, which a repeated call reads instead of doing the runs
      again; default None. A run is done again if its method's code or settings, the stream or the
      version of this package has changed
    - progress: whether to print a line before each task and after each run; default True

    Warns if methods train on different numbers of images per task. Raises InputError, which names
    the method, if a method cannot be made or evaluated.
    """
    check_integer("workers", workers, 1)
    check_choice("backend", backend, BACKENDS)
    if cache is not None and not isinstance(cache, (str, os.PathLike)):
        raise InputError(f"cache must be the path of a folder, got {shown(cache)}")
    chosen = range(check_integer("seeds", seeds, 1)) if isinstance(seeds, int) else seeds
    checked = [check_seed(seed) for seed in chosen]
    if not checked or len(set(checked)) < len(checked):
        raise InputError(f"seeds must be a number or different seeds, got {seeds!r}")
    planned = _planned_runs(methods, stream, checked, basis, evaluate_on)
    evaluations: dict[int, Evaluation] = {}
    jobs = []
    files: dict[int, Path] = {}
    for number, run in enumerate(planned):
        if cache is not None:
            files[number] = run.file(cache)
            if finished := load_run(files[number]):
                evaluations[number] = finished
                continue
        place = f"[{number + 1}/{len(planned)}] {run.label}"
        jobs.append((number, run, place if progress else ""))
    if progress:
        in_cache = f", {len(evaluations)} of them in {cache}" if cache is not None else ""
        line = f"compare: {len(planned)} runs{in_cache}"
        print_line(f"{line}; {min(workers, len(planned))} at a time")
    _check_training(planned[:: len(checked)], progress)  # the first seed of each
    begun = time.monotonic()
    results = in_processes(_do, jobs, min(workers, len(jobs)), backend)
    for done, (number, evaluation) in enumerate(results, 1):
        evaluations[number], run = evaluation, planned[number]
        if number in files:
            about = {"method": run.method, "settings": dict(run.settings), "seed": run.seed}
            save_run(files[number], about, evaluation)
        if progress:
            line = f"[{number + 1}/{len(planned)}] {run.label}: accuracy "
            line += f"{percent(evaluation.accuracy)}, {duration(evaluation.seconds)}; "
            line += f"{len(evaluations)} of {len(planned)} done"
            if done < len(jobs):
                elapsed = time.monotonic() - begun
                left = duration((len(jobs) - done) * elapsed / done)
                line += f" after {duration(elapsed)}, {left} left"
            print_line(line)
    runs = []
    for number, run in enumerate(planned):
        runs.append(Run(run.method, dict(run.settings), run.seed, evaluations[number]))
    return Comparison(tuple(runs))


def _planned_runs(
    methods: Mapping[str, Entry],
    stream: StreamSource,
    seeds: Sequence[int],
    basis: int | Mapping[str, int],
    evaluate_on: Sequence[str] | None,
) -> list[PlannedRun]:
    check_mapping("methods", methods, "{label: class or function}, such as {'mine': Mine}")
    for label in methods:
        check_name(label, "a method's label")
    counts = basis if isinstance(basis, Mapping) else dict.fromkeys(methods, basis)
    for label, count in counts.items():
        check_choice("a method's label in basis", label, methods)
        check_integer("basis", count, 0)
    largest = max(counts.values(), default=0)
    streams = {}
    for seed in seeds:
        tasks = check_tasks(stream(seed) if callable(stream) else stream)
        others, evaluated = _split(tasks, largest, evaluate_on)
        if largest > len(others) or not evaluated:
            line = f"basis = {largest} leaves no task to learn; the stream has {len(tasks)}"
            raise InputError(f"{line}, {len(evaluate_on or ())} of them in evaluate_on")
        streams[seed] = others, evaluated
    planned, groups = [], set[str]()
    for label, entry in methods.items():
        factory, grid = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, {})
        if not callable(factory) or not isinstance(grid, Mapping):
            raise InputError(
                f"{label}: give a class or a function that makes the method, as each seed needs a "
                f"new one, or (function, settings); got {type(factory).__name__}"
            )
        if taken := [name for name in grid if name in RESULT_COLUMNS]:
            raise InputError(f"{label}: {taken[0]!r} is a column of the results, not a setting")
        lists = [value if isinstance(value, list) else [value] for value in grid.values()]
        if [] in lists:
            raise InputError(f"{label}: a setting has an empty list of values")
        num_basis = counts.get(label, 0)
        for values in itertools.product(*lists):
            settings = dict(zip(grid, values, strict=True))
            if (group := label_of(label, settings)) in groups:
                line = f"two methods are called {shown(group)} in the results"
                raise InputError(f"{line}; give each an entry with its own label")
            groups.add(group)
            for seed in seeds:
                others, evaluated = streams[seed]
                learned = [*others[:num_basis], *evaluated]
                planned.append(PlannedRun(label, factory, settings, seed, learned, num_basis))
    return planned


def _split(
    tasks: Sequence[Task], largest: int, evaluate_on: Sequence[str] | None
) -> tuple[Sequence[Task], Sequence[Task]]:
    """Splits tasks into those that may be basis tasks, and the new tasks of every method."""
    if evaluate_on is None:
        return tasks[:largest], tasks[largest:]
    by_name = {task.name: task for task in tasks}
    for name in evaluate_on:
        if name not in by_name:
            raise InputError(f"evaluate_on has {name!r}, but the stream has no task of this name")
    if len(set(evaluate_on)) < len(evaluate_on):
        raise InputError(f"evaluate_on must name each task once, got {shown(evaluate_on)}")
    others = [task for task in tasks if task.name not in evaluate_on]
    return others, [by_name[name] for name in evaluate_on]


def _check_training(first_runs: Sequence[PlannedRun], progress: bool) -> None:
    """Makes each method once, so that errors come first; warns if training lengths differ."""
    images: dict[str, int] = {}
    for run in first_runs:
        label = label_of(run.method, run.settings)
        count = images_of(run.make(), len(run.tasks[run.num_basis].train))
        if count is not None:
            images[label] = count
            if progress:
                print_line(f"{label}: {count:,} training images per task (steps × batch)")
    if images and max(images.values()) > EQUAL * min(images.values()):
        counts = ", ".join(f"{label} {count:,}" for label, count in images.items())
        warn_caller(
            f"methods train on different numbers of images per task (steps × batch): {counts}; "
            "give them recipes with the same epochs, min_steps, batch_size and batch_fraction"
        )


def in_processes(
    call: Callable[..., Any], jobs: Iterable[Sequence[Any]], workers: int, backend: str
) -> Iterator[Any]:
    """Calls a function with the arguments of each job; yields each result when it is finished.

    With one worker all calls are made in this process.
    """
    from joblib import Parallel, delayed

    calls = (delayed(call)(*job) for job in jobs)
    if workers < 2:
        yield from itertools.starmap(call, jobs)
    elif backend == "loky":  # yields results in the order in which they finish
        yield from Parallel(workers, backend, return_as="generator_unordered", batch_size=1)(calls)
    else:
        imported("ray.util.joblib", "backend='ray' needs Ray", "ray").register_ray()
        with Parallel(workers, backend, batch_size=1) as parallel:
            # Ray returns the results of a batch together. If it is small, a kill loses few runs.
            while batch := list(itertools.islice(calls, workers)):
                yield from parallel(batch)


def _do(number: int, run: PlannedRun, place: str) -> tuple[int, Evaluation]:
    """Does one run, in any process. place: the start of each line of progress, "" for no lines."""
    method = run.make()
    with error_prefix(run.label):
        return number, evaluate(method, run.tasks, basis=run.num_basis, progress=place)
