"""`BoundedPool`: the server's threads, with a bounded queue. `Metrics`: counts for Prometheus."""

import asyncio
import logging
import os
import re
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from weakref import WeakKeyDictionary

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from impresslearn.errors import visible
from impresslearn.inference.exhaustive import stopping

logger = logging.getLogger("uvicorn.error")
REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
MOST_TOGETHER = 32  # requests in one pass of a thread; with more, the first would wait long
# The event loop itself computes small requests: handing one to a thread costs as much. But
# threads take over while requests need at least QUICK_SECONDS of processor time on average, and
# after a pass that took longer than STALL_SECONDS, for example because it waited for a lock.
QUICK_BYTES, QUICK_SECONDS, STALL_SECONDS = 16 * 1024, 0.003, 0.1
YIELD_SECONDS = 0.005  # how long each call of `stopping` lets predictions go first
LOOK_SECONDS = 0.5  # how often a waiting request checks whether its client has disconnected
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class BoundedPool:
    """Threads with a bounded queue.

    - threads: how many requests are computed at the same time.
    - waiting: how many requests may wait for a thread; further requests are answered 503 at once.
    - idle: is set while the event loop computes nothing. Each time work calls `stopping`, it waits
      until `idle` is set, for at most YIELD_SECONDS. With `idle`, threads have a lower priority.
    """

    def __init__(
        self, name: str, threads: int, waiting: int, idle: threading.Event | None = None
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, name, initializer=_low_priority if idle else None)
        self._idle = idle
        self._free = threading.BoundedSemaphore(threads + waiting)
        self.ended = threading.Event()

    async def run(self, request: Request, work: Callable[[], Any], answer: Any = None) -> Any:
        """The result of work in a thread. If the client disconnects, work is dropped or stopped."""
        if not self._free.acquire(blocking=False):
            line = "too many requests of this kind are waiting; ask again later"
            raise HTTPException(503, line, {"Retry-After": "1"})
        gone, context = threading.Event(), copy_context()

        def unwanted() -> bool:
            if self._idle is not None:
                self._idle.wait(YIELD_SECONDS)
            return gone.is_set() or self.ended.is_set()

        context.run(stopping.set, unwanted)
        future: Future[Any] = self._pool.submit(context.run, work)
        future.add_done_callback(lambda _: self._free.release())
        waiter = asyncio.wrap_future(answer or future)  # if `answer` is given, work resolves it
        try:
            while not waiter.done():
                await asyncio.wait({waiter}, timeout=LOOK_SECONDS)
                if not waiter.done() and await request.is_disconnected():
                    raise ClientDisconnect
            return waiter.result()
        finally:
            gone.set()  # stops work that is running
            waiter.cancel()
            future.cancel()  # nobody waits, or another thread answered

    def shutdown(self) -> None:
        """Drops waiting requests; a running inference ends after its current task."""
        self.ended.set()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _low_priority() -> None:
    """Lowers this thread's priority, on Linux only: elsewhere it would lower the process's."""
    if sys.platform == "linux":
        os.nice(10)


class Batches:
    """Computes in one pass the requests that wait together.

    - pool: its threads compute large requests, and all requests if the network is slow.
    - alone: item -> its result.
    - together: items -> one result per item. An item whose result is None is passed to `alone`.
    - idle: this object clears it while the event loop computes.
    """

    def __init__(
        self,
        pool: BoundedPool,
        alone: Callable[..., Any],
        together: Callable[..., Any],
        idle: threading.Event,
    ) -> None:
        self._pool, self._alone, self._together, self._idle = pool, alone, together, idle
        # (is_small, item, future) of each request; quick requests are kept per event loop.
        self._waiting: deque[tuple[bool, Any, Future[Any]]] = deque()
        self._quick: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Any]] = WeakKeyDictionary()
        self._taking = threading.Lock()
        # A moving average of the processor time of a small request. It begins high, so that
        # threads compute the first requests.
        self._seconds = 10 * QUICK_SECONDS

    async def run(self, request: Request, is_small: bool, item: Any) -> Any:
        """The result of a request's item; is_small: whether the event loop may compute it."""
        if is_small and self._seconds < QUICK_SECONDS:
            loop = asyncio.get_running_loop()
            waiter, quick = loop.create_future(), self._quick.setdefault(loop, [])
            if not quick:
                # The loop first reads the other requests that have arrived; they join this pass.
                loop.call_soon(self._compute_quick, loop, quick)
                self._idle.clear()
            quick.append((is_small, item, waiter))
            return await waiter
        answer: Future[Any] = Future()
        waiting = is_small, item, answer
        self._waiting.append(waiting)

        def take() -> None:
            stopping.set(self._pool.ended.is_set)  # a client that leaves must not stop it
            with self._taking:
                count = min(len(self._waiting), MOST_TOGETHER)
                taken = [self._waiting.popleft() for _ in range(count)]
            self._compute([each for each in taken if each[-1].set_running_or_notify_cancel()])

        try:
            return await self._pool.run(request, take, answer)
        finally:
            answer.cancel()
            # If no thread has taken it, later requests must not wait behind it.
            with self._taking, suppress(ValueError):
                self._waiting.remove(waiting)

    def _compute_quick(
        self, loop: asyncio.AbstractEventLoop, quick: list[Any], seen: int = 0
    ) -> None:
        if seen < len(quick) < MOST_TOGETHER:
            # Requests still arrive: wait one more turn, as a pass of eight costs little more than
            # a pass of two.
            loop.call_soon(self._compute_quick, loop, quick, len(quick))
            return
        taken = [each for each in quick if not each[-1].cancelled()]
        quick.clear()
        started = time.perf_counter()
        self._compute(taken)
        if time.perf_counter() - started > STALL_SECONDS:
            self._seconds = 10 * QUICK_SECONDS  # threads compute the next requests
        # The loop first resumes the routes of these requests, which send the answers.
        loop.call_soon(self._rest, quick)

    def _rest(self, quick: list[Any]) -> None:
        if not quick:
            self._idle.set()

    def _compute(self, taken: Sequence[tuple[bool, Any, Any]]) -> None:
        """Computes items and puts the results into their futures."""
        started = time.thread_time()
        results: list[Any] = [None] * len(taken)
        if len(taken) > 1:
            with suppress(Exception):  # then all are computed alone, and only the faulty one fails
                results = self._together([item for _, item, _ in taken])
        for result, (_, item, future) in zip(results, taken, strict=True):
            try:
                future.set_result(self._alone(item) if result is None else result)
            except StopIteration:  # futures reject it
                future.set_exception(RuntimeError("the network raised StopIteration"))
            except Exception as error:
                future.set_exception(error)
        if taken and all(is_small for is_small, *_ in taken):
            seconds = (time.thread_time() - started) / len(taken)
            self._seconds += 0.1 * (seconds - self._seconds)


class Metrics:
    """Counts requests and their seconds; Prometheus reads them as `text`.

    gauges: a function that returns further numbers by name; names of counters end in "total".
    """

    def __init__(self, gauges: Callable[[], Mapping[str, float]]) -> None:
        self._gauges = gauges
        self._requests: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Counts one request."""
        name = "impresslearn_request_seconds"
        with self._lock:
            self._requests[f'impresslearn_requests_total{{path="{path}",status="{status}"}}'] += 1
            for bound in BUCKETS:
                self._seconds[f'{name}_bucket{{path="{path}",le="{bound}"}}'] += seconds <= bound
            self._seconds[f'{name}_bucket{{path="{path}",le="+Inf"}}'] += 1
            self._seconds[f'{name}_sum{{path="{path}"}}'] += seconds
            self._seconds[f'{name}_count{{path="{path}"}}'] += 1

    def text(self) -> str:
        """Everything in Prometheus's text format."""
        lines = ["# TYPE impresslearn_requests_total counter"]
        with self._lock:
            lines += [f"{name} {count}" for name, count in self._requests.items()]
            lines.append("# TYPE impresslearn_request_seconds histogram")
            lines += [f"{name} {value:.10g}" for name, value in self._seconds.items()]
        for name, value in self._gauges().items():
            kind = "counter" if name.endswith("total") else "gauge"
            lines += [f"# TYPE impresslearn_{name} {kind}", f"impresslearn_{name} {value}"]
        return "\n".join(lines) + "\n"

    def counting(self, app: ASGIApp) -> ASGIApp:
        """An application that counts and logs every HTTP request, and puts an id on its answer.

        The id is the client's X-Request-ID, if there is one.
        """

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            started, status = time.perf_counter(), 500
            sent = Headers(scope=scope).get("x-request-id", "")
            number = sent if REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex[:16]

            async def noting(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    MutableHeaders(scope=message)["x-request-id"] = number
                await send(message)

            try:
                await app(scope, receive, noting)
            finally:
                seconds = time.perf_counter() - started
                # All unknown paths are counted together.
                self.add(getattr(scope.get("route"), "path", "other"), status, seconds)
                about = scope["method"], visible(scope["path"]), status, 1000 * seconds, number
                task = visible(str(scope.get("task", "-")))[:80]
                logger.info("%s %s %d %.1f ms id=%s task=%s", *about, task)

        return counted
