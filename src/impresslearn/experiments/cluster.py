"""Runs jobs on a Ray cluster: the same jobs, the same cache, on more than one machine.

Outcomes travel through Ray and only the driver writes the cache, so machines need no common folder
but the data sets. A job whose machine dies is run again elsewhere. A job takes one core, or a
fraction of a GPU, and one thread, so numbers are those of the local executor. Set RAY_ADDRESS to
use a running cluster; without it Ray starts one on this machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from impresslearn.errors import ImpressLearnError, MissingDependencyError, TrainingError
from impresslearn.experiments.cache import Cache
from impresslearn.experiments.jobs import Job, Outcome, Place, in_order, kept_outcome, run_job
from impresslearn.experiments.local import Report

JOBS_PER_GPU = 4
RETRIES = 5
AHEAD = 2
"""Jobs submitted for each core, so that none waits for the driver."""


def run_on_ray(
    jobs: Iterable[Job],
    cache: Cache,
    place: Place,
    processes: int | None = None,
    report: Report | None = None,
) -> list[Outcome]:
    """As `run_locally`, on a Ray cluster. processes: at most so many jobs at a time."""
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "executor ray needs Ray: pip install 'impresslearn[ray]'"
        ) from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, configure_logging=False)
    jobs = list(jobs)
    waiting = {job.key: job for job in in_order(jobs) if job not in cache}
    if waiting:
        _run_all(ray, waiting, cache, place, processes, report)
    return [kept_outcome(job, cache.get(job)) for job in jobs]


def _run_all(
    ray: Any,
    todo: dict[str, Job],
    cache: Cache,
    place: Place,
    processes: int | None,
    report: Report | None,
) -> None:
    share = {"num_gpus": 1 / JOBS_PER_GPU} if place.device.startswith("cuda") else {}
    remote = ray.remote(num_cpus=1, max_retries=RETRIES, **share)(_work)
    references: dict[str, Any] = {}  # outcomes in Ray's store: sent to a machine once
    running: dict[Any, Job] = {}
    while todo or running:
        room = processes or AHEAD * int(ray.cluster_resources().get("CPU", 1))
        for job in itertools.islice(_ready(todo, running), max(0, room - len(running))):
            needed = [_reference(ray, need, cache, references) for need in job.needs]
            running[remote.remote(job, needed, place)] = job
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            job = running.pop(reference)
            outcome = _result(ray, reference, job)
            cache.put(job, outcome)
            del todo[job.key]
            if report is not None:
                report(job, outcome)


def _ready(todo: dict[str, Job], running: dict[Any, Job]) -> Iterable[Job]:
    busy = {job.key for job in running.values()}
    return (
        job
        for key, job in todo.items()
        if key not in busy and not any(need.key in todo for need in job.needs)
    )


def _reference(ray: Any, need: Job, cache: Cache, references: dict[str, Any]) -> Any:
    if need.key not in references:
        references[need.key] = ray.put(kept_outcome(need, cache.get(need)))
    return references[need.key]


def _result(ray: Any, reference: Any, job: Job) -> Outcome:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ImpressLearnError):
            raise error.cause from None
        raise TrainingError(f"{job} failed: {error.cause!r}") from None
    except ray.exceptions.RayError as error:
        line = str(error).split("\n", 1)[0]
        raise TrainingError(f"{job} failed {RETRIES + 1} times: {line}") from None


def _work(job: Job, references: Sequence[Any], place: Place) -> Outcome:
    """Runs on a machine of the cluster."""
    import ray
    import torch

    torch.set_num_threads(1)
    return run_job(job, ray.get(list(references)), place)
