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
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from impresslearn.errors import visible
from impresslearn.inference.exhaustive import stopping

logger = logging.getLogger("uvicorn.error")
REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
MOST_TOGETHER = 32  # requests in one pass; with more, the first would wait long
LOOK_SECONDS = 0.5  # how often a waiting request checks whether its client has disconnected
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def _give_way() -> None:
    """Lowers the priority of this thread."""
    if sys.platform == "linux":  # elsewhere threads share one priority
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class BoundedPool:
    """Threads with a bounded queue.

    - threads: how many requests are computed at the same time.
    - waiting: how many requests may wait for a thread; further requests are answered 503 at once.
    - in_background: whether these threads have a lower priority than others (on Linux).
    """

    def __init__(self, name: str, threads: int, waiting: int, in_background: bool = False) -> None:
        self._pool = ThreadPoolExecutor(threads, name, _give_way if in_background else None)
        self._free = threading.BoundedSemaphore(threads + waiting)
        self._ended = threading.Event()
        self._items: deque[tuple[Any, Future[Any]]] = deque()
        self._taking = threading.Lock()

    async def run(self, request: Request, work: Callable[[], Any], answer: Any = None) -> Any:
        """The result of work in a thread. If the client disconnects, work is dropped or stopped."""
        if not self._free.acquire(blocking=False):
            line = "too many requests of this kind are waiting; ask again later"
            raise HTTPException(503, line, {"Retry-After": "1"})
        gone, context = threading.Event(), copy_context()
        context.run(stopping.set, lambda: gone.is_set() or self._ended.is_set())
        future: Future[Any] = self._pool.submit(context.run, work)
        future.add_done_callback(lambda _: self._free.release())
        waiter = asyncio.wrap_future(answer or future)  # if there is an answer, work fills it
        try:
            while not waiter.done():
                await asyncio.wait({waiter}, timeout=LOOK_SECONDS)
                if not waiter.done() and await request.is_disconnected():
                    raise ClientDisconnect
            return waiter.result()
        finally:
            gone.set()  # stops work that is running
            waiter.cancel()
            future.cancel()  # if another thread gave the answer, or nobody waits for it

    async def run_together(
        self, request: Request, item: Any, alone: Callable[..., Any], together: Callable[..., Any]
    ) -> Any:
        """Like `run`, for work that `alone` or `together` does for an item.

        A thread passes all waiting items to `together`, which gives one result per item. An item
        whose result is None is then passed to `alone`.
        """
        answer: Future[Any] = Future()
        self._items.append((item, answer))

        def take() -> None:
            stopping.set(self._ended.is_set)  # one client's leaving must not stop it
            with self._taking:
                count = min(len(self._items), MOST_TOGETHER)
                taken = [self._items.popleft() for _ in range(count)]
            taken = [each for each in taken if each[1].set_running_or_notify_cancel()]
            results: list[Any] = [None] * len(taken)
            if len(taken) > 1:
                with suppress(Exception):  # computed one by one, only the faulty item fails
                    results = together([item for item, _ in taken])
            for result, (item, future) in zip(results, taken, strict=True):
                try:
                    future.set_result(alone(item) if result is None else result)
                except Exception as error:
                    future.set_exception(error)

        try:
            return await self.run(request, take, answer)
        finally:
            answer.cancel()  # if no thread has taken it

    def shutdown(self) -> None:
        """Drops waiting requests; running inferences stop after their present task."""
        self._ended.set()
        self._pool.shutdown(wait=False, cancel_futures=True)


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
