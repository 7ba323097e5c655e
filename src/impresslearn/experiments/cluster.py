"""Runs jobs on a Ray cluster: the same jobs, the same cache, on more than one machine.

Outcomes travel through Ray and only the driver writes the cache, so machines need no common folder
but the data sets, at the same path. A job whose machine dies is run again elsewhere. A job takes
one core, or a fraction of a GPU, and one thread, so numbers are those of the local executor. Set
RAY_ADDRESS to use a running cluster; without it Ray starts one on this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from impresslearn.errors import ImpressLearnError, MissingDependencyError, TrainingError
from impresslearn.experiments.cache import Cache
from impresslearn.experiments.jobs import Job, Outcome, Place, in_order, kept_outcome, run_job
from impresslearn.experiments.local import Report
from impresslearn.experiments.schedule import Schedule

JOBS_PER_GPU = 4
RETRIES = 5
AHEAD = 2
"""Jobs submitted for each core, so that none waits for the driver."""
PATIENCE = 1.0
"""Seconds between looks at jobs that another run works on."""


def run_on_ray(
    jobs: Iterable[Job],
    cache: Cache,
    place: Place,
    processes: int | None = None,
    report: Report | None = None,
) -> list[Outcome]:
    """As `run_locally`, on a Ray cluster. processes: at most so many jobs at a time."""
    jobs = list(jobs)
    waiting = [job for job in in_order(jobs) if job not in cache]
    if waiting:
        place = replace(place, data=os.path.abspath(place.data))  # workers start in other folders
        driver = _Driver(_connected(), cache, place, processes)
        try:
            driver.run(waiting, report)
        finally:
            driver.let_go()
    return [kept_outcome(job, cache.get(job)) for job in jobs]


def _connected() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "executor ray needs Ray: pip install 'impresslearn[ray]'"
        ) from None
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            line = str(error).split("\n", 1)[0]
            raise ImpressLearnError(
                f"Ray does not start, or RAY_ADDRESS is wrong: {line}"
            ) from None
    return ray


class _Driver:
    """Submits jobs and keeps their outcomes; holds the claim of a job from submission till then."""

    def __init__(self, ray: Any, cache: Cache, place: Place, processes: int | None) -> None:
        share = {"num_gpus": 1 / JOBS_PER_GPU} if place.device.startswith("cuda") else {}
        self.ray, self.cache, self.place, self.processes = ray, cache, place, processes
        self.remote = ray.remote(num_cpus=1, max_retries=RETRIES, **share)(_work)
        self.references: dict[str, Any] = {}  # outcomes in Ray's store: sent to a machine once
        self.running: dict[Any, Job] = {}
        self.claims: dict[str, Any] = {}
        self.elsewhere: list[Job] = []

    def run(self, waiting: Sequence[Job], report: Report | None) -> None:
        schedule = Schedule(waiting)
        while schedule:
            again, self.elsewhere = self.elsewhere, []
            finished = [found for job in again if (found := self._begin(job)) is not None]
            room = self._room()
            while len(self.running) < room and (job := schedule.take()) is not None:
                if (found := self._begin(job)) is not None:
                    finished.append(found)
            for job, outcome in finished + ([] if finished else self._finished()):
                schedule.done(job)
                if report is not None:
                    report(job, outcome)

    def let_go(self) -> None:
        """Stops what is running, and lets others have it."""
        for reference in self.running:
            self.ray.cancel(reference, force=True)
        for claim in self.claims.values():
            claim.release()

    def _room(self) -> int:
        return self.processes or AHEAD * max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def _begin(self, job: Job) -> tuple[Job, Outcome] | None:
        """Submits a job; its outcome where another run has kept it meanwhile."""
        claim = self.cache.try_claim(job)
        if claim is None:
            self.elsewhere.append(job)
            return None
        kept = self.cache.get(job)
        if kept is not None:
            claim.release()
            return job, kept
        self.claims[job.key] = claim
        needed = [self._reference(need) for need in job.needs]
        self.running[self.remote.remote(job, needed, self.place)] = job
        return None

    def _finished(self) -> list[tuple[Job, Outcome]]:
        """What has come, after waiting for something."""
        timeout = PATIENCE if self.elsewhere else None
        if not self.running:
            time.sleep(PATIENCE)
            return []
        done, _ = self.ray.wait(list(self.running), num_returns=1, timeout=timeout)
        found = []
        for reference in done:
            job = self.running.pop(reference)
            outcome = _result(self.ray, reference, job)
            self.cache.put(job, outcome)
            self.claims.pop(job.key).release()
            found.append((job, outcome))
        return found

    def _reference(self, need: Job) -> Any:
        if need.key not in self.references:
            kept = kept_outcome(need, self.cache.get(need))
            self.references[need.key] = self.ray.put(kept)
        return self.references[need.key]


def _result(ray: Any, reference: Any, job: Job) -> Outcome:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ImpressLearnError):
            raise error.cause from None
        raise TrainingError(f"{job} failed: {error.cause!r}") from error
    except ray.exceptions.RayError as error:
        line = str(error).split("\n", 1)[0]
        raise TrainingError(f"{job} failed {RETRIES + 1} times: {line}") from None


def _work(job: Job, references: Sequence[Any], place: Place) -> Outcome:
    """Runs on a machine of the cluster."""
    import ray
    import torch

    torch.set_num_threads(1)
    return run_job(job, ray.get(list(references)), place)
