"""From a target's name to its record: plan, jobs, rows, file."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impresslearn.errors import InputError
from impresslearn.experiments.cache import Cache
from impresslearn.experiments.executors import Executor, Report, Workers, run_jobs
from impresslearn.experiments.jobs import Job, Outcome, Place, in_order
from impresslearn.experiments.ray_executor import RayWorkers
from impresslearn.experiments.record import check_folder, record_of, write_record
from impresslearn.experiments.targets import Plan, Target

EXECUTORS = ("local", "ray")


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

    def open_executor(self) -> Workers | RayWorkers:
        """What runs the jobs; a context, which ends it."""
        return RayWorkers(self.processes) if self.executor == "ray" else Workers(self.processes)


def reproduce(
    target: Target, run: Run, report: Report | None = None, workers: Executor | None = None
) -> dict[str, Any]:
    """Runs what is missing of a target and writes its record, which is returned.

    workers: processes that several targets share; their own by default.
    """
    plan = target.plan(run.scale)
    started = time.perf_counter()
    cache = run.open_cache()
    check_folder(run.out)
    jobs = [planned.job for planned in plan.planned]
    outcomes = execute(jobs, run, cache, report, workers)
    seconds = time.perf_counter() - started
    spent = cache.seconds(in_order(jobs))
    record = record_of(target, plan, run.scale, outcomes, seconds, spent, run.place.device)
    write_record(record, run.out / f"{target.name}.json")
    return record


def execute(
    jobs: Iterable[Job],
    run: Run,
    cache: Cache,
    report: Report | None = None,
    workers: Executor | None = None,
) -> list[Outcome]:
    """The jobs' outcomes, through the executor that the run names."""
    if workers is not None:
        return run_jobs(jobs, cache, run.place, workers, report)
    with run.open_executor() as executor:
        return run_jobs(jobs, cache, run.place, executor, report)


def missing_jobs(plan: Plan, cache: Cache) -> list[Job]:
    """The jobs that a run would have to do, in their order."""
    jobs = in_order(planned.job for planned in plan.planned)
    return [job for job in jobs if job not in cache]
