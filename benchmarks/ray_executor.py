"""Runs jobs on a Ray cluster: the same jobs, the same cache, on more than one machine.

Outcomes travel through Ray and only the driver writes the cache, so machines need no common folder
but the data sets, at the same path. A job whose machine dies is run again elsewhere. A job takes
one core, or a fraction of a GPU, and one thread, so numbers are those of other executors. Set
RAY_ADDRESS to use a running cluster; without it Ray starts one on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import filelock
import torch

from benchmarks.cache import Cache, work_on
from benchmarks.executors import JOB_THREADS
from benchmarks.jobs import Job, Outcome, Place, run_job
from impresslearn.errors import ImpressLearnError, MissingDependencyError, TrainingError

JOBS_PER_GPU = 4
RETRIES = 5
AHEAD = 2
"""Jobs submitted for each core, so that none waits for the driver."""
PATIENCE = 1.0
"""Seconds between looks at whether the run has ended, while another run works on a job."""


class RayWorkers:
    """An executor on Ray. A thread of this process follows each job that runs on the cluster.

    count: at most so many jobs at a time.
    """

    def __init__(self, count: int | None = None) -> None:
        self.ray, self.count = _connected(), count
        self._threads = ThreadPoolExecutor(self.capacity)
        self._sent: dict[str, Any] = {}  # outcomes in Ray's store: sent to a machine once
        self._running: set[Any] = set()
        self._ended = False

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        """Stops what is running, and lets other runs have it."""
        self._ended = True
        for reference in list(self._running):
            self.ray.cancel(reference, force=True)
        self._threads.shutdown(cancel_futures=True)

    @property
    def capacity(self) -> int:
        """As many jobs as were asked for, else two a core."""
        return self.count or AHEAD * max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def submit(self, job: Job, cache: Cache, place: Place) -> Future[Outcome]:
        """The outcome of a job to come."""
        place = replace(place, data=os.path.abspath(place.data))  # workers start in other folders
        return self._threads.submit(self._follow, job, cache, place)

    def _follow(self, job: Job, cache: Cache, place: Place) -> Outcome:
        while not self._ended:
            with suppress(filelock.Timeout):  # another run works on it
                return work_on(job, cache, place, self._run, PATIENCE)
        raise CancelledError

    def _run(self, job: Job, needs: Sequence[Outcome], place: Place) -> Outcome:
        ray = self.ray
        share = {"num_gpus": 1 / JOBS_PER_GPU} if place.device.startswith("cuda") else {}
        remote = ray.remote(num_cpus=1, max_retries=RETRIES, **share)(_run_on_cluster)
        for need, outcome in zip(job.needs, needs, strict=True):
            if need.key not in self._sent:
                self._sent[need.key] = ray.put(outcome)
        reference = remote.remote(job, [self._sent[need.key] for need in job.needs], place)
        self._running.add(reference)
        try:
            if self._ended:
                ray.cancel(reference, force=True)
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ImpressLearnError):
                raise error.cause from None
            raise TrainingError(f"{job} failed: {error.cause!r}") from error
        except ray.exceptions.RayError as error:
            line = str(error).split("\n", 1)[0]
            raise TrainingError(f"{job} failed {RETRIES + 1} times: {line}") from None
        finally:
            self._running.discard(reference)


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


def _run_on_cluster(job: Job, references: Sequence[Any], place: Place) -> Outcome:
    import ray

    torch.set_num_threads(JOB_THREADS)
    return run_job(job, ray.get(list(references)), place)
