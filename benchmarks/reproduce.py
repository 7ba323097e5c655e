"""From a target's name to its record: plan, jobs, rows, file."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cache import Cache
from benchmarks.code import code_of_all
from benchmarks.executors import (
    JOB_THREADS,
    Executor,
    Report,
    Workers,
    run_jobs,
)
from benchmarks.jobs import Job, Place, in_order
from benchmarks.ray_executor import RayWorkers
from benchmarks.record import check_folder, make_record, write_record
from benchmarks.targets import Plan, Target
from benchmarks.work.inputs import check_inputs
from impresslearn.errors import InputError

CUSTOM = "custom"
"""The scale of one's own runs, whose rows stay one a line for other readers."""
EXECUTORS = {"local": Workers, "ray": RayWorkers}


@dataclass(frozen=True)
class Run:
    """How targets are run.

    out: where TARGET.json goes; cache: where outcomes are kept, by default out/cache; executor:
    "local" or "ray"; processes: at a time, as many as cores by default.
    """

    scale: str
    place: Place
    out: Path
    cache: Path | None = None
    executor: str = "local"
    processes: int | None = None

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise InputError(f"executor must be {' or '.join(EXECUTORS)}, got {self.executor!r}")

    def open_cache(self) -> Cache:
        """The folder of outcomes."""
        return Cache(self.out / "cache" if self.cache is None else self.cache, self.place.device)

    def open_executor(self) -> Any:
        """What runs the jobs; a context, which ends it."""
        return EXECUTORS[self.executor](self.processes)


def reproduce(
    target: Target, run: Run, executor: Executor, report: Report | None = None
) -> dict[str, Any]:
    """Runs what is missing of a target and writes its record, which is returned.

    executor: of `run.open_executor`; several targets may share it.
    """
    plan = target.plan(run.scale)
    started = time.perf_counter()
    cache = run.open_cache()
    check_folder(run.out)
    jobs = [planned.job for planned in plan.planned]
    outcomes = run_jobs(jobs, cache, run.place, executor, report)
    rows = [
        planned.row(outcome.values) for planned, outcome in zip(plan.planned, outcomes, strict=True)
    ]
    if plan.finish is not None:
        rows = [_without_nan(row) for row in plan.finish(rows)]
    figures, tables = plan.shown(rows)
    content = {
        "target": target.name,
        "scale": run.scale,
        "title": target.title,
        "claim": target.claim,
        "data": plan.data,
        "settings": dict(plan.settings),
        "seeds": list(plan.seeds),
        "figures": figures,
        "tables": tables,
        "rows": rows,
    }
    spent = time.perf_counter() - started, cache.seconds(in_order(jobs))
    code = code_of_all(job.function for job in in_order(jobs))
    record = make_record(content, run.place.device, *spent, threads=JOB_THREADS, code=code)
    write_record(record, run.out / f"{target.name}.json", fold=run.scale != CUSTOM)
    return record


def check_data(target: Target, run: Run, download: bool = False) -> None:
    """Raises MissingDataError where data of jobs that are still to run cannot be had.

    Jobs that run on other machines need them there alone: then only a download is done here.
    """
    if run.executor == "local" or download:
        jobs = missing_jobs(target.plan(run.scale), run.open_cache())
        check_inputs(jobs, run.place, download)


def missing_jobs(plan: Plan, cache: Cache) -> list[Job]:
    """The jobs that a run would have to do, in their order."""
    jobs = in_order(planned.job for planned in plan.planned)
    return [job for job in jobs if job not in cache]


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """A derived number that is not defined, like the p-value of two constants, is null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }
