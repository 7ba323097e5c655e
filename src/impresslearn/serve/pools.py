"""Bounded work for the server's threads, and counts of what it did."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
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
LOOK_SECONDS = 0.5  # how often a waiting request looks whether its client has gone
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class BoundedPool:
    """Threads with a bounded queue.

    - threads: requests that are computed at the same time.
    - waiting: requests that may wait for them; further ones are answered 503 at once.
    """

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._free = threading.BoundedSemaphore(threads + waiting)
        self._ended = threading.Event()

    async def run(self, request: Request, work: Callable[[], Any]) -> Any:
        """The result of work in a thread; once its client has gone it is not begun, or stopped."""
        if not self._free.acquire(blocking=False):
            line = "too many requests of this kind are waiting; ask again later"
            raise HTTPException(503, line, {"Retry-After": "1"})
        gone, context = threading.Event(), copy_context()
        context.run(stopping.set, lambda: gone.is_set() or self._ended.is_set())
        future: Future[Any] = self._pool.submit(context.run, work)
        future.add_done_callback(lambda _: self._free.release())
        waiter = asyncio.wrap_future(future)
        while not waiter.done():
            await asyncio.wait({waiter}, timeout=LOOK_SECONDS)
            if not waiter.done() and await request.is_disconnected():
                future.cancel()
                gone.set()  # where it runs already
                waiter.cancel()
                raise ClientDisconnect
        return waiter.result()

    def shutdown(self) -> None:
        """Drops what waits; inferences that run end after their present task."""
        self._ended.set()
        self._pool.shutdown(wait=False, cancel_futures=True)


class Metrics:
    """Counts requests and their seconds; `text` is what Prometheus reads.

    - paths: of the routes. Requests of all others are counted together.
    - gauges: gives further numbers by name; a name that ends in "total" only ever grows.
    """

    def __init__(self, paths: tuple[str, ...], gauges: Callable[[], Mapping[str, float]]) -> None:
        self._paths, self._gauges = paths, gauges
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Counts one request."""
        path = path if path in self._paths else "other"
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]
            counts = self._buckets.setdefault(path, [0] * (len(BUCKETS) + 1))
            counts[bisect_left(BUCKETS, seconds)] += 1

    def text(self) -> str:
        """Everything in Prometheus's text format."""
        with self._lock:
            lines = list(self._lines())
        for name, value in self._gauges().items():
            kind = "counter" if name.endswith("total") else "gauge"
            lines += [f"# TYPE impresslearn_{name} {kind}", f"impresslearn_{name} {value}"]
        return "\n".join(lines) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# TYPE impresslearn_requests_total counter"
        for (path, status), count in self._requests.items():
            yield f'impresslearn_requests_total{{path="{path}",status="{status}"}} {count}'
        name = "impresslearn_request_seconds"
        yield f"# TYPE {name} histogram"
        for path, counts in self._buckets.items():
            total = 0
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                yield f'{name}_bucket{{path="{path}",le="{bound}"}} {total}'
            yield f'{name}_sum{{path="{path}"}} {self._seconds[path]:.6f}'
            yield f'{name}_count{{path="{path}"}} {total}'


class MetricsMiddleware:
    """Counts and logs every HTTP request of an application, and gives its answer an id.

    A client's own X-Request-ID is kept.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
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
            await self._app(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.add(scope["path"], status, seconds)
            method, path = scope["method"], visible(scope["path"])
            logger.info("%s %s %d %.1f ms id=%s", method, path, status, 1000 * seconds, number)
