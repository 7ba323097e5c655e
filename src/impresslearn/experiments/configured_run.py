"""Runs a configuration: its methods on its stream and network, for each seed.

Each method and seed is one job, a part, so a run that was stopped goes on with those that are
missing, and an entry that is changed is the only one to run again. A seed gives the network's
weights, the order of the tasks and all that a method draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from impresslearn.errors import InputError
from impresslearn.experiments.configuration import (
    Configuration,
    Entry,
    error_prefix,
    restored_settings,
)
from impresslearn.experiments.executors import Report, Workers, cores
from impresslearn.experiments.jobs import Job, Outcome, Place, job_function, kept_outcome
from impresslearn.experiments.reproduce import Run, reproduce
from impresslearn.experiments.sources import (
    data_digest,
    make_backbone,
    make_stream,
    one_input,
    with_absolute_root,
)
from impresslearn.experiments.targets import Plan, Planned, Target
from impresslearn.experiments.targets.tables import read_tables
from impresslearn.experiments.trials import (
    VALUES,
    Trial,
    figures,
    rows_of_trials,
    stored,
    summary_writer,
    write_events,
)
from impresslearn.experiments.user_code import call_user_function, digest_of
from impresslearn.methods import Method, create_method, evaluate
from impresslearn.networks import Backbone
from impresslearn.streams import Stream


@dataclass(frozen=True)
class RunPlan:
    """What a configuration asks for, checked against its stream and network.

    parts: a method on a seed each.
    """

    configuration: Configuration
    stream: Stream
    parts: tuple[Planned, ...]
    device: str

    @property
    def run(self) -> Run:
        """Where the record and finished parts are kept."""
        configuration = self.configuration
        place = Place(str(configuration.folder), self.device)
        return Run("custom", place, configuration.out)

    @property
    def record_path(self) -> Path:
        """Where the record goes."""
        return self.configuration.out / f"{self.configuration.name}.json"

    def missing(self) -> list[Planned]:
        """The parts that a run would have to do; nothing is written."""
        cache = self.run.open_cache()
        return [part for part in self.parts if part.job not in cache]

    def target(self) -> Target:
        """The run as a target that `reproduce` takes."""
        configuration, stream = self.configuration, self.stream
        methods = {
            entry.label: {**entry.method, "backbone": dict(entry.backbone)}
            for entry in configuration.entries
        }
        plan = Plan(
            self.parts,
            data=f"{stream.name}, {len(stream)} tasks in {configuration.order} order",
            settings={
                "stream": dict(configuration.stream),
                "backbone": dict(configuration.backbone),
                "order": configuration.order,
                "methods": methods,
            },
            seeds=configuration.seeds,
            figures=figures(list(methods)),
            tables=read_tables("targets.toml")["run"]["tables"],
            finish=rows_of_trials,
        )
        name = configuration.name
        return Target(name, name, claim="", expects="", cost="", plan=lambda scale: plan)


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
            Planned(
                Job(run_part, shared | _part(entry, sources, seed, folder)),
                {"method": entry.label, "seed": seed},
                VALUES,
            )
            for entry in configuration.entries
            for seed in configuration.seeds
        ]
    return RunPlan(configuration, stream, tuple(parts), device)


def run_plan(
    plan: RunPlan, processes: int | None = None, report: Report | None = None
) -> RunResult:
    """Runs the missing parts, and writes the record and, where asked for, TensorBoard's files."""
    configuration, run = plan.configuration, plan.run
    with Workers(min(processes or cores(), max(1, len(plan.missing())))) as workers:
        record = reproduce(plan.target(), run, workers, report)
    cache = run.open_cache()
    trials = tuple(
        Trial.restored(part.row(kept_outcome(part.job, cache.get(part.job)).values))
        for part in plan.parts
    )
    if configuration.tensorboard is not None:
        keys = [part.job.key for part in plan.parts]
        write_events(configuration.tensorboard / configuration.name, keys, trials)
    return RunResult(record, trials)


@job_function("own", version=2)
def run_part(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """One method on one seed: the accuracy on every task before the first and after each.

    Values: tasks, in the order they were learned; roles; added_bytes; matrix; see `stored`.
    """
    folder, seed = Path(place.data), settings["seed"]
    stream = in_order(make_stream(settings["stream"], folder), seed, settings["order"])
    backbone = make_backbone(settings["backbone"], stream, seed, folder).to(place.device)
    described = settings["method"]
    with error_prefix(f"{described.get('name', described.get('module'))}, seed {seed}"):
        method = make_method(described, backbone, seed, folder)
        found = evaluate(method, stream, basis=described.get("basis", 0))
    return Outcome(stored(found))


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
