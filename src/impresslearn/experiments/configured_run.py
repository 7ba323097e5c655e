"""Runs a configuration: its methods on its stream and network, for each seed.

Each method and seed is one job, a part, so a run that was stopped goes on with those that are
missing, and an entry that is changed is the only one to run again. A seed gives the network's
weights, the order of the tasks and all that a method draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from impresslearn.errors import InputError, error_prefix
from impresslearn.experiments.configuration import Configuration, MethodTable
from impresslearn.experiments.executors import Report, Workers, cores
from impresslearn.experiments.jobs import Job, Place
from impresslearn.experiments.reproduce import CUSTOM, Run, reproduce
from impresslearn.experiments.sources import (
    data_digest,
    make_backbone,
    make_stream,
    one_input,
    user_file,
    with_absolute_root,
)
from impresslearn.experiments.targets import Plan, Planned, Target
from impresslearn.experiments.targets.plan import filled, read_tables
from impresslearn.experiments.trials import rows_of_trials, summary_writer, write_events
from impresslearn.experiments.work.custom import INFERENCE, VALUES, make_method, run_part
from impresslearn.methods.results import MEASURES
from impresslearn.streams import Stream


@dataclass(frozen=True)
class RunPlan:
    """What a configuration asks for, checked against its stream and network.

    parts: a method on a seed each; run: where the record and finished parts are kept.
    """

    configuration: Configuration
    stream: Stream
    parts: tuple[Planned, ...]
    run: Run

    @property
    def name(self) -> str:
        """The record's name: that of the file."""
        return self.configuration.path.stem

    @property
    def record_path(self) -> Path:
        """Where the record goes."""
        return self.run.out / f"{self.name}.json"

    def missing(self) -> list[Planned]:
        """The parts that a run would have to do; nothing is written."""
        cache = self.run.open_cache()
        return [part for part in self.parts if part.job not in cache]

    def target(self) -> Target:
        """The run as a target that `reproduce` takes."""
        file, shown = self.configuration, read_tables("targets.toml")["run"]
        methods = {
            each.label: {**each.in_keys(), "backbone": each.backbone.written()}
            for each in file.method
        }
        maps = [filled(shown["map"], "method", label) for label in methods]
        tested = file.run.validation is None or file.run.reference is not None
        pairs = [shown["pairs"]] if tested and len(methods) > 1 < len(file.run.seeds) else []
        data = f"{self.stream.name}, {len(self.stream)} tasks in {file.run.order} order"
        if file.run.validation is not None:
            data += "; scored on validation examples"
        plan = Plan(
            self.parts,
            data=data,
            settings={
                "stream": file.stream.written(),
                "backbone": file.backbone.written(),
                "order": file.run.order,
                "methods": methods,
            },
            seeds=file.run.seeds,
            figures=[shown["line"] | {"order": list(methods)}, shown["bar"], *maps],
            tables=[*shown["tables"], *pairs],
            finish=partial(rows_of_trials, reference=file.run.reference),
            optional=(*MEASURES, *INFERENCE, "bytes_per_task", "bytes", "role"),
        )
        return Target(self.name, self.name, claim="", expects="", cost="", plan=lambda scale: plan)


def plan_run(
    configuration: Configuration, device: str = "cpu", *, download: bool = True
) -> RunPlan:
    """Makes the stream and every method's network once, and the jobs; learns nothing.

    Raises InputError naming the file and the table for what does not fit together.
    """
    folder = configuration.path.parent
    with error_prefix(str(configuration.path)):
        if configuration.run.tensorboard is not None:
            summary_writer()
        with error_prefix("[stream]"):
            settings = with_absolute_root(configuration.stream.written(), folder)
            stream = make_stream(settings, folder, download=download)
            if len(stream) < 2:
                raise InputError(f"a run needs at least two tasks, {stream.name!r} has 1")
            digest = data_digest(settings, stream)
        held_out = configuration.run.validation
        if held_out is not None:
            stream = stream.for_validation(held_out)
        asked = configuration.run.task_inference
        fewest = min(len(task.test) for task in stream)
        if asked is not None and asked > fewest:
            raise InputError(
                f"[run]: task_inference = {asked}, but a task has {fewest} examples to be scored on"
            )
        for method in configuration.method:
            _check_method(method, configuration, stream, device)
        shared: dict[str, Any] = {"stream": settings, "order": configuration.run.order}
        if digest is not None:
            shared["data"] = digest
        if held_out is not None:
            shared["validation"] = held_out
        if asked is not None:
            shared["task_inference"] = asked
        parts = tuple(_parts(configuration, shared))
    run = Run(CUSTOM, Place(str(folder), device), configuration.out)
    return RunPlan(configuration, stream, parts, run)


def run_plan(
    plan: RunPlan, processes: int | None = None, report: Report | None = None
) -> dict[str, Any]:
    """Runs the missing parts, and writes the record, which is returned, and, where asked for,
    TensorBoard's files.
    """
    with Workers(min(processes or cores(), max(1, len(plan.missing())))) as workers:
        record = reproduce(plan.target(), plan.run, workers, report)
    tensorboard = plan.configuration.run.tensorboard
    if tensorboard is not None:
        folder = plan.configuration.path.parent / tensorboard / plan.name
        write_events(folder, plan.parts, record["rows"])
    return record


def _parts(configuration: Configuration, shared: Mapping[str, Any]) -> Iterator[Planned]:
    """Each method on each seed. shared: settings of all jobs."""
    for method in configuration.method:
        sources = (configuration.stream, configuration.backbone, method)
        files = {
            each.module: user_file(configuration.path.parent, each.module)
            for each in sources
            if each.module is not None
        }
        settings = {
            **shared,
            "modules": {
                reference: hashlib.sha256(file.read_bytes()).hexdigest()
                for reference, file in files.items()
            },
            "backbone": configuration.backbone.written() | method.backbone.written(),
            "method": method.in_keys(),
        }
        for seed in configuration.run.seeds:
            job = Job(run_part, {**settings, "seed": seed})
            yield Planned(job, {"method": method.label, "seed": seed}, VALUES)


def _check_method(
    method: MethodTable, configuration: Configuration, stream: Stream, device: str
) -> None:
    """Makes the method and its network, and passes two inputs through."""
    place, folder = f"[[method]] {method.label!r}", configuration.path.parent
    if method.basis >= len(stream):
        raise InputError(
            f"{place}: basis = {method.basis} leaves no task to learn, the stream has {len(stream)}"
        )
    seed = configuration.run.seeds[0]
    settings = configuration.backbone.written() | method.backbone.written()
    with error_prefix("[backbone]"):
        backbone = make_backbone(settings, stream, seed, folder).to(device)
        largest = max(stream, key=lambda task: len(task.classes))
        if len(largest.classes) > (backbone.most_classes or len(largest.classes)):
            raise InputError(
                f"num_classes = {backbone.num_classes}, but task {largest.name!r} has "
                f"{len(largest.classes)} classes"
            )
        with torch.no_grad():
            one = one_input(stream)[None].to(backbone.device, backbone.input_dtype)
            backbone.forward({}, torch.cat([one, one]))
    with error_prefix(place):
        described = method.in_keys()
        empty = {"random_masks": 0} if "random_masks" in described else {}
        make_method({**described, **empty}, backbone, seed, folder)
