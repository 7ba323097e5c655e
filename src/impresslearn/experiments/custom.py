"""A run of one's own: the configuration's methods on its stream and network, for each seed.

Each method and seed is one job of `jobs`, so a run that was stopped goes on with those that are
missing, and an entry that is changed is the only one to run again. A seed gives the network's
weights, the order of the tasks and all that a method draws.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from impresslearn.data import Examples, StreamedExamples
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.experiments.cache import Cache
from impresslearn.experiments.configuration import Configuration, Entry, placed
from impresslearn.experiments.executors import Report
from impresslearn.experiments.jobs import Job, Outcome, Place, job_function
from impresslearn.experiments.measures import Trial, average_accuracy, shown, summary_of
from impresslearn.experiments.methods import contender
from impresslearn.experiments.record import FORMAT, hardware, versions, write_record
from impresslearn.experiments.reproduce import Run, execute
from impresslearn.experiments.sources import (
    data_digest,
    make_backbone,
    make_stream,
    one_input,
    with_absolute_root,
)
from impresslearn.experiments.user_code import digest_of
from impresslearn.streams import Stream, Task

HELD_BYTES = 1024**3
"""Test inputs that a job keeps in memory; beyond, they are made anew at each evaluation."""


@dataclass(frozen=True)
class Part:
    """One method on one seed."""

    label: str
    seed: int
    job: Job


@dataclass(frozen=True)
class OwnPlan:
    """What a configuration asks for, checked against its stream and network."""

    configuration: Configuration
    stream: Stream
    parts: tuple[Part, ...]
    device: str

    @property
    def cache_folder(self) -> Path:
        """Where finished parts are kept."""
        return self.configuration.out / "cache"

    @property
    def record_path(self) -> Path:
        """Where the record goes."""
        return self.configuration.out / f"{self.configuration.name}.json"

    def missing(self) -> list[Part]:
        """The parts that a run would have to do; nothing is written."""
        if not self.cache_folder.is_dir():
            return list(self.parts)
        cache = Cache(self.cache_folder, self.device)
        return [part for part in self.parts if part.job not in cache]


@dataclass(frozen=True)
class Finished:
    """A run's record as it was written, and the trials that it shows."""

    record: Mapping[str, Any]
    trials: tuple[Trial, ...]


def plan_run(
    configuration: Configuration, device: str = "cpu", *, download: bool = True
) -> OwnPlan:
    """Makes the stream and every method's network once, and the jobs; learns nothing.

    Raises InputError naming the file and the table for what does not fit together.
    """
    with placed(str(configuration.path)):
        if configuration.tensorboard is not None:
            _summary_writer()
        settings = with_absolute_root(configuration.stream, configuration.folder)
        with placed("[stream]"):
            stream = make_stream(settings, configuration.folder, download=download)
            if len(stream) < 2:
                raise InputError(f"a run needs at least two tasks, {stream.name!r} has 1")
            digest = data_digest(settings, stream)
            data = {} if digest is None else {"data": digest}
        for entry in configuration.entries:
            _check_entry(entry, configuration, stream, device)
        modules = {
            each["module"]: digest_of(configuration.folder, each["module"])
            for each in (configuration.stream, configuration.backbone)
            if "module" in each
        }
    shared = {"stream": settings, "order": configuration.order, "modules": modules} | data
    parts = [
        Part(
            entry.label,
            seed,
            Job(
                run_part,
                shared
                | {
                    "backbone": {**configuration.backbone, **entry.backbone},
                    "method": dict(entry.method),
                    "seed": seed,
                },
            ),
        )
        for entry in configuration.entries
        for seed in configuration.seeds
    ]
    return OwnPlan(configuration, stream, tuple(parts), device)


def run_plan(plan: OwnPlan, processes: int | None = None, report: Report | None = None) -> Finished:
    """Runs the missing parts, and writes the record and, where asked for, TensorBoard's files."""
    started = time.perf_counter()
    configuration = plan.configuration
    place = Place(str(configuration.folder), plan.device)
    run = Run("small", place, configuration.out, plan.cache_folder, processes=processes)
    outcomes = execute((part.job for part in plan.parts), run, run.open_cache(), report)
    trials = tuple(
        Trial(part.label, part.seed, **outcome.values)
        for part, outcome in zip(plan.parts, outcomes, strict=True)
    )
    record = {
        "format": FORMAT,
        "target": configuration.name,
        "scale": "small",
        "title": configuration.name,
        "claim": "says nothing about this run, which is one's own",
        "data": f"{plan.stream.name}, {len(plan.stream)} tasks in {configuration.order} order",
        "settings": {
            "stream": dict(configuration.stream),
            "backbone": dict(configuration.backbone),
            "order": configuration.order,
            "methods": {
                entry.label: {**entry.method, "backbone": dict(entry.backbone)}
                for entry in configuration.entries
            },
        },
        "seeds": list(configuration.seeds),
        "versions": versions(),
        "hardware": hardware(plan.device),
        "seconds": round(time.perf_counter() - started, 1),
        "job_seconds": round(sum(outcome.seconds or 0.0 for outcome in outcomes), 1),
        **shown(trials),
    }
    write_record(record, plan.record_path)
    if configuration.tensorboard is not None:
        _write_events(configuration.tensorboard / configuration.name, plan.parts, trials)
    return Finished(record, trials)


@job_function("own", version=2)
def run_part(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """One method on one seed: the accuracy on every task before the first and after each.

    Values: tasks, in the order they were learned; roles; added_bytes; matrix (see `measures`).
    """
    folder, seed = Path(place.data), settings["seed"]
    stream = make_stream(settings["stream"], folder)
    tasks = in_order(stream, seed, settings["order"])
    backbone = make_backbone(settings["backbone"], stream, seed, folder).to(place.device)
    method = contender(settings["method"], backbone, seed * 10_000)
    tests = _TestSets()

    def row() -> list[float]:
        return [method.accuracy(task, tests.of(task)) for task in tasks]

    matrix = [row()]
    for task in tasks:
        with placed(f"{settings['method']['name']}, seed {seed}, task {task.name!r}"):
            method.learn(task)
        matrix.append(row())
    return Outcome(
        {
            "tasks": [task.name for task in tasks],
            "roles": [method.role_of(task) for task in tasks],
            "added_bytes": [method.bytes_of(task) for task in tasks],
            "matrix": matrix,
        }
    )


def in_order(stream: Stream, seed: int, order: str) -> list[Task]:
    """The stream's tasks as they are given, or shuffled by the seed (numpy's RandomState)."""
    if order == "given":
        return list(stream)
    return [stream[int(i)] for i in np.random.RandomState(seed).permutation(len(stream))]


class _TestSets:
    """Test examples, kept as long as there is room."""

    def __init__(self) -> None:
        self._kept: dict[str, Examples] = {}
        self._bytes = 0

    def of(self, task: Task) -> Examples | StreamedExamples:
        if task.name in self._kept:
            return self._kept[task.name]
        test = task.test
        if isinstance(test, Examples):
            size = test.inputs.numel() * test.inputs.element_size()
            if self._bytes + size <= HELD_BYTES:
                self._kept[task.name] = test
                self._bytes += size
        return test


def _check_entry(entry: Entry, configuration: Configuration, stream: Stream, device: str) -> None:
    method, place = entry.method, f"[[method]] {entry.label!r}"
    if method.get("basis", 0) >= len(stream):
        raise InputError(
            f"{place}: basis = {method['basis']} leaves no task to learn, the stream has "
            f"{len(stream)}"
        )
    seed, settings = configuration.seeds[0], {**configuration.backbone, **entry.backbone}
    with placed("[backbone]"):
        backbone = make_backbone(settings, stream, seed, configuration.folder).to(device)
        largest = max(stream, key=lambda task: len(task.classes))
        if len(largest.classes) > backbone.num_classes:
            raise InputError(
                f"num_classes = {backbone.num_classes}, but task {largest.name!r} has "
                f"{len(largest.classes)} classes"
            )
        with torch.no_grad():
            one = one_input(stream)[None].to(backbone.device, backbone.dtype)
            backbone.forward({}, torch.cat([one, one]))
    with placed(place):
        empty = {"random_masks": 0} if "random_masks" in method else {}
        contender({**method, **empty}, backbone, seed)


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingDependencyError(
            "[run]: tensorboard needs a package: pip install 'impresslearn[tensorboard]'"
        ) from None
    return SummaryWriter


def _write_events(folder: Path, parts: Sequence[Part], trials: Sequence[Trial]) -> None:
    """A run a part, by tasks learned; one that was written before is left as it is."""
    kind = _summary_writer()
    for part, trial in zip(parts, trials, strict=True):
        label = re.sub(r"[^A-Za-z0-9._-]", "_", part.label)
        target = folder / label / f"seed-{part.seed}-{part.job.key[:8]}"
        if target.exists():
            continue
        with kind(str(target)) as writer:
            for learned in range(1, len(trial.tasks) + 1):
                writer.add_scalar(
                    "average_accuracy", average_accuracy(trial.matrix, learned), learned
                )
                for place in range(learned):
                    value = trial.matrix[learned][place]
                    writer.add_scalar(f"accuracy/{trial.tasks[place]}", value, learned)
            for name, value in summary_of(trial).items():
                writer.add_scalar(f"final/{name}", value, len(trial.tasks))
