"""Runs a configuration: its methods on its stream and network, for each seed.

Each method and seed is one job, a part, so a run that was stopped goes on with those that are
missing, and an entry that is changed is the only one to run again. A seed gives the network's
weights, the order of the tasks and all that a method draws.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from impresslearn.errors import InputError
from impresslearn.experiments.cache import Cache
from impresslearn.experiments.configuration import (
    Configuration,
    Entry,
    error_prefix,
    restored_settings,
)
from impresslearn.experiments.executors import Report, Workers, cores, run_jobs
from impresslearn.experiments.jobs import Job, Outcome, Place, job_function
from impresslearn.experiments.record import make_record, write_record
from impresslearn.experiments.sources import (
    data_digest,
    make_backbone,
    make_stream,
    one_input,
    with_absolute_root,
)
from impresslearn.experiments.trials import Trial, shown_trials, summary_writer, write_events
from impresslearn.experiments.user_code import call_user_function, digest_of
from impresslearn.methods import Method, create_method, evaluate
from impresslearn.networks import Backbone
from impresslearn.streams import Stream


@dataclass(frozen=True)
class Part:
    """One method on one seed."""

    label: str
    seed: int
    job: Job


@dataclass(frozen=True)
class RunPlan:
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
class RunResult:
    """A run's record as it was written, and the trials that it shows."""

    record: Mapping[str, Any]
    trials: tuple[Trial, ...]


def plan_run(
    configuration: Configuration, device: str = "cpu", *, download: bool = True
) -> RunPlan:
    """Makes the stream and every method's network once, and the jobs; learns nothing.

    Raises InputError naming the file and the table for what does not fit together.
    """
    with error_prefix(str(configuration.path)):
        if configuration.tensorboard is not None:
            summary_writer()
        folder = configuration.folder
        settings = with_absolute_root(configuration.stream, folder)
        with error_prefix("[stream]"):
            stream = make_stream(settings, folder, download=download)
            if len(stream) < 2:
                raise InputError(f"a run needs at least two tasks, {stream.name!r} has 1")
            digest = data_digest(settings, stream)
        for entry in configuration.entries:
            _check_entry(entry, configuration, stream, device)
        shared: dict[str, Any] = {"stream": settings, "order": configuration.order}
        if digest is not None:
            shared["data"] = digest
        sources = (configuration.stream, configuration.backbone)
        parts = [
            Part(entry.label, seed, Job(run_part, shared | _part(entry, sources, seed, folder)))
            for entry in configuration.entries
            for seed in configuration.seeds
        ]
    return RunPlan(configuration, stream, tuple(parts), device)


def run_plan(
    plan: RunPlan, processes: int | None = None, report: Report | None = None
) -> RunResult:
    """Runs the missing parts, and writes the record and, where asked for, TensorBoard's files."""
    started = time.perf_counter()
    configuration = plan.configuration
    place = Place(str(configuration.folder), plan.device)
    cache, jobs = Cache(plan.cache_folder, plan.device), [part.job for part in plan.parts]
    with Workers(min(processes or cores(), max(1, len(plan.missing())))) as workers:
        outcomes = run_jobs(jobs, cache, place, workers, report)
    trials = tuple(
        Trial.restored(part.label, part.seed, outcome.values)
        for part, outcome in zip(plan.parts, outcomes, strict=True)
    )
    described = {
        "target": configuration.name,
        "scale": "custom",
        "title": configuration.name,
        "claim": "",
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
    }
    spent = time.perf_counter() - started, cache.seconds(jobs)
    record = make_record(described, shown_trials(trials), plan.device, *spent)
    write_record(record, plan.record_path)
    if configuration.tensorboard is not None:
        keys = [part.job.key for part in plan.parts]
        write_events(configuration.tensorboard / configuration.name, keys, trials)
    return RunResult(record, trials)


@job_function("own", version=2)
def run_part(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """One method on one seed: the accuracy on every task before the first and after each.

    Values: tasks, in the order they were learned; roles; added_bytes; matrix; see `Trial`.
    """
    folder, seed = Path(place.data), settings["seed"]
    stream = in_order(make_stream(settings["stream"], folder), seed, settings["order"])
    backbone = make_backbone(settings["backbone"], stream, seed, folder).to(place.device)
    described = settings["method"]
    with error_prefix(f"{described.get('name', described.get('module'))}, seed {seed}"):
        method = make_method(described, backbone, seed, folder)
        found = evaluate(method, stream, basis=described.get("basis", 0))
    return Outcome(Trial("", seed, found).stored())


def make_method(
    described: Mapping[str, Any], backbone: Backbone, seed: int, folder: Path
) -> Method:
    """The method of an entry, with nothing learned: the library's, or what the user's function
    returns, which is called with `backbone` and `seed` if it names them.
    """
    if "module" in described:
        offered = {"backbone": backbone, "seed": seed}
        return call_user_function(folder, described["module"], described["settings"], offered)
    settings = restored_settings(described)
    return create_method(described["name"], backbone, seed=seed * 10_000, **settings)


def in_order(stream: Stream, seed: int, order: str) -> Stream:
    """The stream's tasks as they are given, or shuffled by the seed (numpy's RandomState)."""
    if order == "given":
        return stream
    places = np.random.RandomState(seed).permutation(len(stream))
    return Stream(stream.name, tuple(stream[int(i)] for i in places))


def _part(
    entry: Entry, sources: Sequence[Mapping[str, Any]], seed: int, folder: Path
) -> dict[str, Any]:
    """What is special to one entry and seed among the settings of jobs."""
    named = [each["module"] for each in (*sources, entry.method) if "module" in each]
    return {
        "modules": {reference: digest_of(folder, reference) for reference in named},
        "backbone": {**sources[1], **entry.backbone},
        "method": dict(entry.method),
        "seed": seed,
    }


def _check_entry(entry: Entry, configuration: Configuration, stream: Stream, device: str) -> None:
    method, place = entry.method, f"[[method]] {entry.label!r}"
    if method.get("basis", 0) >= len(stream):
        raise InputError(
            f"{place}: basis = {method['basis']} leaves no task to learn, the stream has "
            f"{len(stream)}"
        )
    seed, settings = configuration.seeds[0], {**configuration.backbone, **entry.backbone}
    with error_prefix("[backbone]"):
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
    with error_prefix(place):
        empty = {"random_masks": 0} if "random_masks" in method else {}
        make_method({**method, **empty}, backbone, seed, configuration.folder)
