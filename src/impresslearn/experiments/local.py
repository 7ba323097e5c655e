"""Runs jobs in processes of this machine, one thread each, as many as there are cores.

One thread a process is fastest for small networks, and makes results independent of how many cores
there are. Processes are started afresh, not forked: torch's threads do not survive a fork. They end
with the process that started them, however it ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context

from impresslearn.errors import InputError, TrainingError
from impresslearn.experiments.cache import Cache, work_on
from impresslearn.experiments.jobs import Job, Outcome, Place, in_order, kept_outcome
from impresslearn.experiments.schedule import Schedule

Report = Callable[[Job, Outcome], object]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Workers:
    """Processes that wait for jobs; started as they are needed, ended on leaving the context.

    count: as many as cores that this process may use by default; 1 runs everything in this one.
    """

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise InputError(f"processes must be at least 1, got {count}")
        self.count = count or cores()
        self._pool: ProcessPoolExecutor | None = None
        self._lifeline: connection.Connection | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None and not issubclass(kind, Exception):  # interrupted: do not wait
            self._cut()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._cut()
        self._pool = None

    def submit(self, job: Job, cache: Cache, place: Place) -> Future[Outcome]:
        """The outcome of a job to come."""
        if self._pool is None:
            context = get_context("spawn")
            ours, self._lifeline = context.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(self.count, context, _begin, (ours,))
        with _for_new_processes():
            return self._pool.submit(work_on, job, cache, place)

    def _cut(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()


def run_locally(
    jobs: Iterable[Job],
    cache: Cache,
    place: Place,
    workers: Workers,
    report: Report | None = None,
) -> list[Outcome]:
    """The outcomes of the jobs, in their order; what is in the cache is not run again.

    report: called after each job that ran. Raises what a job raised, after the others that were
    running have been kept.
    """
    jobs = list(jobs)
    waiting = [job for job in in_order(jobs) if job not in cache]
    _run_all(waiting, cache, place, workers, report)
    return [kept_outcome(job, cache.get(job)) for job in jobs]


def _run_all(
    waiting: Sequence[Job], cache: Cache, place: Place, workers: Workers, report: Report | None
) -> None:
    if min(workers.count, len(waiting)) <= 1:
        for job in waiting:
            outcome = _alone(job, cache, place)
            if report is not None:
                report(job, outcome)
        return
    schedule = Schedule(waiting)
    running: dict[Future[Outcome], Job] = {}
    try:
        while schedule:
            while len(running) < 2 * workers.count and (ready := schedule.take()) is not None:
                running[workers.submit(ready, cache, place)] = ready
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                outcome = future.result()
                schedule.done(job)
                if report is not None:
                    report(job, outcome)
    except BrokenProcessPool:
        raise TrainingError(
            "a worker process died, perhaps for want of memory; what was finished is kept, "
            "run again with fewer processes"
        ) from None
    except Exception:  # what is running still ends, and is kept
        wait(future for future in running if not future.cancel())
        raise


@contextmanager
def _for_new_processes() -> Iterator[None]:
    """New processes read the number of threads as they import, and leave Ctrl-C to this one."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    masked = hasattr(signal, "pthread_sigmask")
    if masked:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        if masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin(lifeline: connection.Connection) -> None:
    """The first thing in a new process."""
    _one_thread()
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: connection.Connection) -> None:
    connection.wait([lifeline])  # readable once the other end is closed, or its process is dead
    os._exit(1)


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


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
