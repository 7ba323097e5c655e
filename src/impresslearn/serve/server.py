"""The FastAPI application: its settings, its routes and who may call them; `run_server` runs it."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from impresslearn import __version__
from impresslearn.checks import check_integer, check_kind, clear_calls
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import open_store
from impresslearn.serve.pools import BoundedPool, Metrics, MetricsMiddleware
from impresslearn.serve.requests import (
    ERRORS,
    JSON,
    NPY,
    InferRequest,
    PredictRequest,
    answer_error,
    parse,
    read_body,
)
from impresslearn.serve.service import Inference, Predictions, Service

logger = logging.getLogger("impresslearn.serve")

BEARER = HTTPBearer(auto_error=False)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_CONNECTIONS = 128
GRACE_SECONDS = 8


@clear_calls
@dataclass(frozen=True)
class ServeSettings:
    """The token and the limits of a server.

    - token: requests need the header `Authorization: Bearer TOKEN`, except for /health, /ready and
      /docs; None lets everybody ask.
    - max_bytes: of a request's body; 16 MiB hold 4096 inputs of 1024 float32 numbers.
    - max_rows: inputs in one request.
    - threads: predictions computed at the same time; others wait.
    - infer_threads: inferences of tasks, which take longer, computed at the same time.
    - max_waiting: inferences that may wait; further ones are answered 503 with Retry-After.

    Raises InputError for a setting out of range.
    """

    token: str | None = field(default=None, repr=False)
    max_bytes: int = 16 * 1024**2
    max_rows: int = 4096
    threads: int = 2
    infer_threads: int = 1
    max_waiting: int = 16

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_rows", "threads", "infer_threads", "max_waiting"):
            check_integer(name, getattr(self, name), 1)
        if self.token is None:
            return
        # A header cannot carry other characters.
        if not isinstance(self.token, str) or not re.fullmatch("[!-~]+", self.token):
            raise InputError("token must be one or more printable ASCII characters without spaces")


def create_app(
    source: str | os.PathLike | ImpressLearner, settings: ServeSettings | None = None
) -> FastAPI:
    """An application that serves a store or a learner.

    - source: the path of a store, which is opened for reading and closed when the
      application shuts down; tasks that other processes learn into it are served at once. Or a
      learner, which must not learn meanwhile.
    - settings: the defaults of `ServeSettings` if None.

    Raises StoreError for a store that cannot be opened.
    """
    settings = settings or ServeSettings()
    check_kind("settings", settings, ServeSettings)
    opened = None
    if not isinstance(source, ImpressLearner):
        source = opened = open_store(source, readonly=True, progress=False)
    service = Service(source, settings.max_rows)
    token = (settings.token or "").encode()
    # Predictions have their own threads, so that /health and /tasks never wait for them, and they
    # do not wait for inferences.
    predicting = BoundedPool("predict", settings.threads, MAX_CONNECTIONS)
    inferring = BoundedPool("infer", settings.infer_threads, settings.max_waiting)
    metrics = Metrics(service.gauges)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        predicting.shutdown()
        inferring.shutdown()
        if opened is not None:
            opened.close()

    async def check_token(
        sent: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
    ) -> None:
        # Compared in constant time, so that answers do not leak how much of a guess is right.
        if sent is None or not compare_digest(sent.credentials.encode(), token):
            line = "a valid token is needed: Authorization: Bearer TOKEN"
            raise HTTPException(401, line, {"WWW-Authenticate": "Bearer"})

    app = FastAPI(
        title="ImpressLearn",
        version=__version__,
        description='Every error is one line of JSON: {"error": "…"}.',
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    for kind in ERRORS:
        app.add_exception_handler(kind, answer_error)
    guarded = APIRouter(dependencies=[Depends(check_token)] if token else [])
    app.add_middleware(MetricsMiddleware, metrics=metrics)

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
    for path, request_model, answer_model, compute, pool in (
        ("/predict", PredictRequest, Predictions, service.predict, predicting),
        ("/infer", InferRequest, Inference, service.infer, inferring),
    ):
        guarded.add_api_route(
            path,
            _prediction(request_model, compute, settings.max_bytes, pool),
            methods=["POST"],
            response_model=answer_model,
            description=compute.__doc__,
            openapi_extra=_documented_body(request_model),
        )
    app.include_router(guarded)
    return app


def run_server(
    source: str | os.PathLike | ImpressLearner,
    settings: ServeSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    app: str | None = None,
) -> None:
    """Serves a store or a learner until the process is stopped.

    - source: as in `create_app`.
    - settings: limits and the token; the defaults of `ServeSettings` if None.
    - host: the address to listen on; by default only this machine can connect.
    - port: 0 takes a free port, which the log names.
    - workers: processes that answer, each with its own weights in memory and its own /metrics.
    - app: with several workers, "MODULE:FUNCTION" of what makes their application; `source` is
      then only opened once to check it.

    On SIGTERM and Ctrl-C requests under way are finished first, for up to eight seconds. Raises
    InputError for a port that cannot be used and StoreError for a store that cannot be opened;
    where uvicorn cannot listen it logs one line and exits with status 1.
    """
    check_integer("port", port, 0, 2**16)
    if check_integer("workers", workers, 1) > 1 and app is None:
        raise InputError('several workers need app="MODULE:FUNCTION", which makes an application')
    settings = settings or ServeSettings()
    own = create_app(source, settings)
    if settings.token is None and host not in LOOPBACK:
        line = "no token is set: everybody who reaches %s:%d can ask; set IMPRESSLEARN_TOKEN"
        logger.warning(line, host, port)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that closes ends no server
    uvicorn.run(
        own if workers == 1 else str(app),
        factory=workers > 1,
        workers=workers,
        host=host,
        port=port,
        http="h11",  # it bounds the bytes of a request's headers, httptools does not
        ws="none",
        lifespan="on",
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        access_log=False,  # the middleware logs every request with its duration
    )


def _prediction(
    model: type[BaseModel],
    compute: Callable[[Any], BaseModel],
    max_bytes: int,
    pool: BoundedPool,
) -> Callable[..., Any]:
    """A route whose requests are parsed, computed and written by the threads of the pool."""

    async def route(request: Request) -> Response:
        body = await read_body(request, max_bytes)

        def work() -> str:
            return compute(parse(model, request, body)).model_dump_json()

        content = await pool.run(request, work)
        return Response(content, media_type=JSON)

    return route


def _documented_body(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI entry of a body that the route reads itself."""
    rows = "One input per row; the other fields of the JSON body go in the query."
    npy = {"type": "string", "format": "binary", "description": rows}
    content = {JSON: {"schema": model.model_json_schema()}, NPY: {"schema": npy}}
    return {"requestBody": {"required": True, "content": content}}
