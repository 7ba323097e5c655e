"""Runs jobs in processes of this machine, one thread each, as many as there are cores.

One thread a process is fastest for small networks, and makes results independent of how many cores
there are. Processes are started afresh, not forked: torch's threads do not survive a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from impresslearn.errors import TrainingError
from impresslearn.experiments.cache import Cache, work_on
from impresslearn.experiments.jobs import Job, Outcome, Place, in_order, kept_outcome

Report = Callable[[Job, Outcome], object]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_locally(
    jobs: Iterable[Job],
    cache: Cache,
    place: Place,
    processes: int | None = None,
    report: Report | None = None,
) -> list[Outcome]:
    """The outcomes of the jobs, in their order; what is in the cache is not run again.

    processes: as many as cores that this process may use by default; 1 runs everything in this one.
    report: called after each job that ran. Raises what a job raised, after the others that were
    running have been kept.
    """
    jobs = list(jobs)
    waiting = [job for job in in_order(jobs) if job not in cache]
    count = min(processes or _cores(), len(waiting))
    if count <= 1:
        for job in waiting:
            outcome = _alone(job, cache, place)
            if report is not None:
                report(job, outcome)
    else:
        _in_processes(waiting, cache, place, count, report)
    return [kept_outcome(job, cache.get(job)) for job in jobs]


def _in_processes(
    waiting: Sequence[Job], cache: Cache, place: Place, count: int, report: Report | None
) -> None:
    todo = {job.key: job for job in waiting}
    running: dict[Future[Outcome], Job] = {}
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))  # read by the new processes as they import
    try:
        with ProcessPoolExecutor(count, get_context("spawn"), initializer=_one_thread) as pool:
            try:
                while todo or running:
                    for job in _ready(todo, running, 2 * count):
                        running[pool.submit(work_on, job, cache, place)] = job
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        job = running[future]
                        outcome = future.result()
                        del running[future], todo[job.key]
                        if report is not None:
                            report(job, outcome)
            except BrokenProcessPool:
                raise TrainingError(
                    "a worker process died, perhaps for want of memory; what was finished is kept, "
                    "run again with fewer processes"
                ) from None
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _ready(todo: dict[str, Job], running: dict[Future[Outcome], Job], room: int) -> list[Job]:
    """Jobs whose needs are done, in their order, as many as there is room for."""
    busy = {job.key for job in running.values()}
    free = (
        job
        for key, job in todo.items()
        if key not in busy and not any(need.key in todo for need in job.needs)
    )
    return [job for job, _ in zip(free, range(max(0, room - len(running))), strict=False)]


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _alone(job: Job, cache: Cache, place: Place) -> Outcome:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return work_on(job, cache, place)
    finally:
        torch.set_num_threads(threads)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
