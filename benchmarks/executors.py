"""Runs jobs in the order that their needs allow, in this process or in several of this machine.

Every executor is a context that takes a job and gives a future of its outcome; `run_jobs` decides
what is next. Processes have one thread each, which is fastest for small networks and makes results
independent of how many cores there are. They are started afresh, not forked: torch's threads do not
survive a fork. They end with the process that started them, however it ends.
"""

from __future__ import annotations

import heapq
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from graphlib import TopologicalSorter
from multiprocessing import connection, get_context
from typing import Protocol

import torch

from benchmarks.cache import Cache, work_on
from benchmarks.jobs import Job, Outcome, Place, in_order, kept_outcome
from impresslearn.errors import InputError, TrainingError

Report = Callable[[Job, Outcome], object]
JOB_THREADS = 1
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Executor(Protocol):
    """Runs jobs whose needs are in the cache, and keeps their outcomes there."""

    @property
    def capacity(self) -> int:
        """How many jobs it should hold at a time, so that none waits for the next."""

    def submit(self, job: Job, cache: Cache, place: Place) -> Future[Outcome]:
        """The outcome of a job to come."""


def run_jobs(
    jobs: Iterable[Job],
    cache: Cache,
    place: Place,
    executor: Executor,
    report: Report | None = None,
) -> list[Outcome]:
    """The outcomes of the jobs, in their order; what is in the cache is not run again.

    report: called after each job that ran. Raises what a job raised, after the others that were
    running have been kept.
    """
    jobs = list(jobs)
    waiting = [job for job in in_order(jobs) if job not in cache]
    if waiting:
        _run_all(waiting, cache, place, executor, report)
    return [kept_outcome(job, cache.get(job)) for job in jobs]


def _run_all(
    waiting: Sequence[Job], cache: Cache, place: Place, executor: Executor, report: Report | None
) -> None:
    """Always runs the first job, in the order given, whose needs are all done."""
    positions = {job.key: position for position, job in enumerate(waiting)}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for job in waiting:
        needs = {positions[need.key] for need in job.needs if need.key in positions}
        sorter.add(positions[job.key], *needs)
    sorter.prepare()
    ready: list[int] = []
    running: dict[Future[Outcome], int] = {}
    try:
        while sorter.is_active():
            for position in sorter.get_ready():
                heapq.heappush(ready, position)
            while ready and len(running) < executor.capacity:
                position = heapq.heappop(ready)
                running[executor.submit(waiting[position], cache, place)] = position
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                outcome, position = future.result(), running.pop(future)
                sorter.done(position)
                if report is not None:
                    report(waiting[position], outcome)
    except BrokenProcessPool:
        raise TrainingError(
            "a worker process died, perhaps for want of memory; what was finished is kept, "
            "run again with fewer processes"
        ) from None
    except Exception:  # what is running still ends, and is kept
        wait(future for future in running if not future.cancel())
        raise


class Workers:
    """An executor of processes that wait for jobs; started as they are needed.

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

    @property
    def capacity(self) -> int:
        """Two jobs a process; one where everything runs in this one."""
        return 1 if self.count == 1 else 2 * self.count

    def submit(self, job: Job, cache: Cache, place: Place) -> Future[Outcome]:
        """The outcome of a job to come; with one process it has come already."""
        if self.count == 1:
            return _run_here(job, cache, place)
        if self._pool is None:
            context = get_context("spawn")
            ours, self._lifeline = context.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(self.count, context, _begin_process, (ours,))
        with _interrupts_wait(), _settings_of_new_processes():
            return self._pool.submit(work_on, job, cache, place)

    def _cut(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()


def _run_here(job: Job, cache: Cache, place: Place) -> Future[Outcome]:
    future: Future[Outcome] = Future()
    threads = torch.get_num_threads()
    torch.set_num_threads(JOB_THREADS)
    try:
        future.set_result(work_on(job, cache, place))
    except Exception as error:
        future.set_exception(error)
    finally:
        torch.set_num_threads(threads)
    return future


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Raises an interrupt at the end: in between it would leave a process half started.

    Blocking the signal is not enough, since any other thread may receive it for the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if caught:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _settings_of_new_processes() -> Iterator[None]:
    """New processes read the number of threads as they import, and leave Ctrl-C to this one."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(JOB_THREADS)))
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


def _begin_process(lifeline: connection.Connection) -> None:
    """The first thing in a new process: one thread, and an end when its starter ends."""
    torch.set_num_threads(JOB_THREADS)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: connection.Connection) -> None:
    connection.wait([lifeline])  # readable once the other end is closed, or its process is dead
    os._exit(1)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
