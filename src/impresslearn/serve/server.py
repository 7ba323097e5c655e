"""The HTTP server: `create_app` makes the FastAPI application, and `run_server` runs it."""

import copy
import errno
import gc
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, partial, wraps
from hmac import compare_digest
from socket import AF_INET, AF_INET6, create_server
from typing import Annotated, Any

import numpy as np
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.routing import request_response
from torch import Tensor
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from impresslearn import __version__
from impresslearn.checks import check_integer, clear_calls
from impresslearn.data import Inputs, Prepared
from impresslearn.data.preprocessing import shown_settings
from impresslearn.errors import InputError, StoreReplacedError, UnknownTaskError
from impresslearn.files import reason_of
from impresslearn.inference.task_inference import check_task_names
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import open_store
from impresslearn.networks import list_backbones
from impresslearn.serve.pools import QUICK_BYTES, Batches, BoundedPool, Metrics
from impresslearn.serve.requests import (
    ERRORS,
    JSON,
    NPY,
    Inference,
    InferRequest,
    InputsRequest,
    Predictions,
    PredictRequest,
    TaskName,
    answer_error,
    parse,
    read_body,
)
from impresslearn.store.mixed_batch import mixed_logits

logger = logging.getLogger("impresslearn.serve")

BEARER = HTTPBearer(auto_error=False)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BYTES = 16 * 1024**2  # the largest body of a request
MAX_CONNECTIONS = 128
MAX_UNREAD = 16 * 1024  # bytes of headers that arrive in parts, or of trailers
MAX_AHEAD = 16  # requests that a connection may send before the first is answered
# Threads for predictions, threads for inferences, and inferences that may wait for a thread.
THREADS, INFER_THREADS, MAX_WAITING = 2, 1, 16
MOST_AMONG = 2000  # task names in one inference, which runs every task named
GRACE_SECONDS = 8
COLLECT_EVERY = 20_000  # allocations between garbage collections; Python's default is 700 to 2,000
Answer = dict[str, Any]
Item = tuple[int, Callable[[], Any]]  # a body's size in bytes, and a function that parses it
Limit = Annotated[int, Query(ge=1, le=1000, description="The size of a page.")]
Offset = Annotated[int, Query(ge=0, le=2**31, description="The number of tasks to skip.")]
# Names are in the query, because they may contain slashes, which a path cannot carry.
Name = Annotated[TaskName, Query(description="The name of a task.")]


def _of_present_file(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: if another file has replaced the store, opens it and answers from it."""

    @wraps(answer)
    def answered(self: "Service", *given: Any, **named: Any) -> Any:
        present = copy.copy(self)  # keeps its learner if another thread opens the new file
        learner = present.learner
        try:
            return answer(present, *given, **named)
        except StoreReplacedError:
            with self.reopening:
                if self.learner is learner:  # unless another thread was faster
                    spec, module = learner.backbone.spec, learner.backbone.module
                    self.learner = open_store(
                        str(learner._store.database.path),
                        module=None if spec and spec["name"] in list_backbones() else module,
                        device=learner.backbone.device,
                        cache_bytes=learner.cache_bytes,
                        readonly=True,
                        progress=False,
                    )
            return answer(copy.copy(self), *given, **named)

    return answered


class Service:
    """Answers the requests of all routes from one learner."""

    def __init__(self, learner: ImpressLearner) -> None:
        self.learner = learner
        self.reopening = threading.Lock()

    @_of_present_file
    def gauges(self) -> dict[str, int]:
        """Numbers of the store for `Metrics`."""
        cache, database = self.learner._store.cache, self.learner._store.database
        written = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'tasks'"
        return {
            "store_version": database.rows(written)[0][0],
            "tasks": len(self.learner.tasks_),
            "masks": len(self.learner.bank_),
            "cache_hits_total": cache.hits,
            "cache_misses_total": cache.misses,
            "cache_bytes": cache.nbytes,
        }

    # A coroutine, so that the event loop answers a probe without a thread.
    async def health(self) -> Answer:
        """Answers while the process runs; does not read the store."""
        return self._about()

    def _about(self) -> Answer:
        backbone = self.learner.backbone
        about = {"network": backbone.name, "input_shape": backbone.input_shape}
        return {"status": "ok", "version": __version__, **about}

    @_of_present_file
    def ready(self) -> Answer:
        """The network, the preprocessing, and the numbers of tasks and masks; reads the store."""
        learner, preprocessing = self.learner, self.learner.preprocessing_
        settings = None if preprocessing is None else shown_settings(preprocessing.settings())
        counts = {"tasks": len(learner.tasks_), "masks": len(learner.bank_)}
        return {**self._about(), "preprocessing": settings, **counts}

    @_of_present_file
    def tasks(self, limit: Limit = 100, offset: Offset = 0) -> Answer:
        """The tasks, page by page, in the order they were learned."""
        table = self.learner.tasks_
        total, end, tasks = len(table), offset + limit, []
        for name in table.page(offset, limit):
            with suppress(UnknownTaskError):  # another process has removed it since
                info = table[name]
                summary = {"name": name, "role": info.role, "num_classes": len(info.classes)}
                tasks.append(summary | {"bytes": info.bytes, "version": info.version})
        following = end if end < total else None
        return {"total": total, "offset": offset, "next": following, "tasks": tasks}

    @_of_present_file
    def task(self, name: Name) -> Answer:
        """One task in full."""
        return dict(vars(self.learner.tasks_[name]))

    @_of_present_file
    def predict(self, request: PredictRequest) -> Predictions:
        """Labels, and logits on request, of inputs whose tasks are known."""
        inputs = self._prepared(request)
        names = check_task_names(request.task, len(inputs))
        predictions = self._predictions(inputs, names, request.logits)
        if request.unknown:
            flags = [False] * len(names)
            for name in dict.fromkeys(names):
                rows = [row for row, task in enumerate(names) if task == name]
                guesses = self.learner.infer_tasks(Prepared(inputs[rows]), among=[name])
                for row, guess in zip(rows, guesses, strict=True):
                    flags[row] = guess.unknown
            predictions.unknown = flags
        return predictions

    def kind(self, request: PredictRequest) -> Hashable:
        """A key that is equal for requests that one pass can answer; None: answer it alone.

        Requests that would fail are kept apart, so that others do not fail with them.
        """
        inputs, names = request.inputs, request.task
        named = [names] if isinstance(names, str) else names
        known = all(name in self.learner.tasks_ for name in named)
        # If norms use the statistics of the batch, other requests' rows would change the answer.
        alone = self.learner.backbone.normalises_by_batch
        if alone or not known or not isinstance(inputs, np.ndarray):
            return None
        finite = inputs.dtype == object or bool(np.isfinite(inputs).all())
        # One large integer decides whether all integers of a batch are pixels to scale.
        scaled = inputs.dtype.kind in "iu" and bool(inputs.max() > 1)
        form = inputs.dtype, inputs.shape[1:], finite, scaled
        return *form, request.prepared, request.logits, request.unknown

    def predict_together(self, requests: Sequence[PredictRequest]) -> list[Predictions]:
        """The answers to requests of one kind, in one pass."""
        counts = [len(request.inputs) for request in requests]
        names: list[str] = []
        for request, count in zip(requests, counts, strict=True):
            names += check_task_names(request.task, count)
        inputs = np.concatenate([request.inputs for request in requests])
        joint = self.predict(requests[0].model_copy(update={"inputs": inputs, "task": names}))
        lists = vars(joint) | {"versions": [joint.versions[name] for name in names]}
        answers, first = [], 0
        for count in counts:
            rows = slice(first, first + count)
            part = {field: values and values[rows] for field, values in lists.items()}
            part["versions"] = dict(zip(names[rows], part["versions"], strict=True))
            answers.append(Predictions(**part))
            first += count
        return answers

    @_of_present_file
    def infer(self, request: InferRequest) -> Inference:
        """The task that the inputs belong to, and its predictions for them."""
        inputs, among = self._prepared(request), request.among
        if isinstance(among, str) and among not in ("all", "basis", "learned"):
            among = [among]
        if isinstance(among, list) and len(among) > MOST_AMONG:
            line = f"among takes at most {MOST_AMONG:,} names, got {len(among):,}"
            raise InputError(f"{line}; leave it out to choose among all tasks")
        guess = self.learner.infer_task(Prepared(inputs), among=among)
        labels = logits = None
        if not guess.unknown:
            predictions = self._predictions(inputs, [guess.best] * len(inputs), request.logits)
            labels, logits = predictions.labels, predictions.logits
        ranked = sorted(guess.posterior.items(), key=lambda item: -item[1])
        names = ("task", "unknown", "entropy", "margin")
        properties = {name: getattr(guess, name) for name in names}
        changed = {"posterior": dict(ranked[: request.top]), "labels": labels, "logits": logits}
        return Inference(**(vars(guess) | properties | changed))

    def _prepared(self, request: InputsRequest) -> Tensor | Inputs:
        """The inputs as the network takes them."""
        inputs = Prepared(request.inputs) if request.prepared else request.inputs
        prepared = self.learner.prepare(inputs)
        # Matrix products of arrays with different alignment may differ in the last bit. A body may
        # have any alignment in memory; its copy has the alignment that torch always uses.
        return prepared.map(Tensor.clone) if isinstance(prepared, Inputs) else prepared.clone()

    def _predictions(
        self, inputs: Tensor | Inputs, names: list[str], with_logits: bool
    ) -> Predictions:
        """Predictions for inputs; names: the task of each row."""
        count, versions = len(names), {}
        labels: list[Any] = [None] * count
        confidences, logits = [0.0] * count, [[0.0]] * count
        for part in mixed_logits(self.learner._store, inputs, names):
            best = part.logits.float().softmax(dim=1).max(dim=1)
            places, numbers = best.indices.tolist(), part.logits.double().tolist()
            about = zip(part.rows, part.tasks, places, best.values.tolist(), numbers, strict=True)
            for row, task, place, probability, own in about:
                logits[row] = own
                labels[row], versions[task.name] = task.classes[place], task.version
                confidences[row] = round(probability, 4)
        shown = logits if with_logits else None
        return Predictions(labels=labels, confidences=confidences, versions=versions, logits=shown)


@clear_calls
def create_app(
    source: str | os.PathLike | ImpressLearner,
    *,
    token: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> FastAPI:
    """An application that serves a store or a learner.

    - source: the path of a store, or a learner. A store is opened for reading, and closed when the
      application shuts down; tasks that other processes learn are served at once. A learner must
      not learn while it is served.
    - token: if given, requests need the header `Authorization: Bearer TOKEN`, except for /health,
      /ready and /docs; None (default) lets everybody send requests.
    - max_bytes: the largest body of a request; default 16 MiB (4096 inputs of 1024 float32 values).

    Raises InputError for a setting out of range, and StoreError if the store cannot be opened.
    """
    check_integer("max_bytes", max_bytes, 1)
    # A header cannot carry other characters.
    if token is not None and not (isinstance(token, str) and re.fullmatch("[!-~]+", token)):
        raise InputError("token must be one or more printable ASCII characters without spaces")
    learner = source
    if not isinstance(learner, ImpressLearner):
        learner = open_store(learner, readonly=True, progress=False)
    service, secret = Service(learner), (token or "").encode()
    # Large predictions and inferences run in their own threads: /health and /tasks do not wait for
    # them, and predictions do not wait for inferences.
    predicting = BoundedPool("predict", THREADS, MAX_CONNECTIONS)
    idle = threading.Event()
    idle.set()
    inferring = BoundedPool("infer", INFER_THREADS, MAX_WAITING, idle)
    metrics = Metrics(service.gauges)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Collecting all garbage stops answers for 0.2 s, so leave out objects that exist by now.
        thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
        gc.freeze()
        gc.set_threshold(COLLECT_EVERY)
        # With Python's default, a computing thread keeps the event loop waiting five times as long.
        sys.setswitchinterval(0.001)
        yield
        # The process may go on without this application.
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
        predicting.shutdown()
        inferring.shutdown()
        if learner is not source:
            service.learner.close()

    async def check_token(
        sent: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
    ) -> None:
        # Compare in constant time, so that the time does not tell how much of a guess is right.
        if sent is None or not compare_digest(sent.credentials.encode(), secret):
            line = "a valid token is needed: Authorization: Bearer TOKEN"
            raise HTTPException(401, line, {"WWW-Authenticate": "Bearer"})

    app = FastAPI(
        title="ImpressLearn",
        version=__version__,
        description='Every error is one line of JSON: {"error": "…"}.',
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(ERRORS, answer_error),
    )
    guarded = APIRouter(dependencies=[Depends(check_token)] if token else [])
    app.add_middleware(metrics.counting)

    def counts() -> PlainTextResponse:
        """Requests, their seconds, tasks and cached weights, for Prometheus."""
        return PlainTextResponse(metrics.text())

    for router, path, answer in (
        (app, "/health", service.health),
        (app, "/ready", service.ready),
        (guarded, "/metrics", counts),
        (guarded, "/tasks", service.tasks),
        (guarded, "/task", service.task),
    ):
        router.add_api_route(path, answer)
        # Health checks may ask by HEAD, which FastAPI does not answer by itself.
        router.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)

    def add_predictions(
        path: str, model: Any, answer: Any, compute: Any, compute_all: Any = None
    ) -> None:
        """Adds a route. The threads of a pool parse, compute and encode its requests."""

        def alone(item: Item) -> str:
            return compute(item[1]()).model_dump_json()

        def together(items: Sequence[Item]) -> list[str | None]:
            if sum(size for size, _ in items) > max_bytes:
                return [None] * len(items)
            kinds: dict[Hashable, list[int]] = {}
            for number, (_, parsed) in enumerate(items):
                with suppress(InputError):
                    kinds.setdefault(service.kind(parsed()), []).append(number)
            kinds.pop(None, None)
            answers: list[str | None] = [None] * len(items)
            for numbers in kinds.values():
                with suppress(Exception):  # after an error each is computed alone
                    shared = compute_all([items[number][1]() for number in numbers])
                    for number, answer in zip(numbers, shared, strict=True):
                        answers[number] = answer.model_dump_json()
            return answers

        batches = Batches(predicting, alone, together, idle)

        async def route(request: Request) -> Response:
            if token:
                await check_token(await BEARER(request))
            body = await read_body(request, max_bytes)
            # Requests that cannot share a pass are computed one by one, but not parsed again.
            item = len(body), cache(partial(parse, model, request, body))
            if compute_all is None:
                content = await inferring.run(request, lambda: alone(item))
            else:
                is_small = False
                if len(body) <= QUICK_BYTES:
                    asked = item[1]()
                    is_small = isinstance(asked.task, str) and not asked.unknown
                content = await batches.run(request, is_small, item)
            return Response(content, media_type=JSON)

        # OpenAPI's description of the body, which FastAPI does not see: the route reads it.
        rows = "One input per row; the other fields of the JSON body go in the query."
        npy = {"type": "string", "format": "binary", "description": rows}
        content = {JSON: {"schema": model.model_json_schema()}, NPY: {"schema": npy}}
        guarded.add_api_route(
            path,
            route,
            methods=["POST"],
            response_model=answer,
            description=compute.__doc__,
            openapi_extra={"requestBody": {"required": True, "content": content}},
        )
        # Skip FastAPI's own steps, such as dependencies: they take as long as a prediction.
        guarded.routes[-1].app = request_response(route)  # type: ignore[attr-defined]

    together = service.predict_together
    add_predictions("/predict", PredictRequest, Predictions, service.predict, together)
    add_predictions("/infer", InferRequest, Inference, service.infer)
    # Predictions are found first. An included router takes longer to find its routes.
    app.router.routes[:0] = sorted(
        guarded.routes, key=lambda route: "POST" not in getattr(route, "methods", ())
    )
    return app


class LimitedProtocol(HttpToolsProtocol):
    """Answers 400 to endless headers and too many pipelined requests; httptools has no limits."""

    _unread = 0  # bytes received since the last complete headers or part of a body

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MAX_UNREAD and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        self._unread = 0
        if len(self.pipeline) >= MAX_AHEAD:
            raise ValueError("too many requests sent ahead")  # which answers 400, too
        if len(self.tasks) >= MAX_CONNECTIONS:
            # uvicorn also counts answered requests, until the event loop's next turn.
            self.tasks.difference_update([task for task in self.tasks if task.done()])
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)


def run_server(
    source: str | os.PathLike | ImpressLearner,
    *,
    token: str | None = None,
    max_bytes: int = MAX_BYTES,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    app: str | None = None,
) -> None:
    """Serves a store or a learner until the process is stopped.

    - source, token, max_bytes: as in `create_app`.
    - host: the address to listen on; by default only this machine can connect.
    - port: default 8000; 0 takes a free port, which the log names.
    - workers: the number of processes, default 1. Each has its own weights and its own /metrics.
    - app: needed for several workers: "MODULE:FUNCTION" names a function that makes a worker's
      application. `source` is then opened once, only to check it.

    After SIGTERM or Ctrl-C the server finishes requests under way, for up to eight seconds. Raises
    InputError if the address or port cannot be used, and StoreError if the store cannot be opened.
    """
    check_integer("port", port, 0, 2**16)
    if check_integer("workers", workers, 1) > 1 and app is None:
        raise InputError('several workers need app="MODULE:FUNCTION", which makes an application')
    own = create_app(source, token=token, max_bytes=max_bytes)
    try:  # uvicorn itself tries the port only after the application has started
        create_server((host, port), family=AF_INET6 if ":" in host else AF_INET).close()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        line = f"port {port} is in use; choose another with --port"
        raise InputError(line if taken else f"cannot listen: {reason_of(error)}") from None
    if token is None and host not in LOOPBACK:
        line = "no token is set: everybody who reaches %s:%d can ask; set IMPRESSLEARN_TOKEN"
        logger.warning(line, host, port)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # closing the terminal does not end it
    uvicorn.run(
        own if workers == 1 else str(app),
        factory=workers > 1,
        workers=workers,
        host=host,
        port=port,
        http=LimitedProtocol,
        ws="none",
        lifespan="on",
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        access_log=False,  # the middleware logs every request with its duration
    )
