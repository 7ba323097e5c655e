"""The routes of a server and their documentation; `desk` does what they ask for."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from impresslearn import __version__
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import open_store
from impresslearn.serve.bodies import JSON, NPY
from impresslearn.serve.errors import RequestError, add_refusals
from impresslearn.serve.handlers import Desk
from impresslearn.serve.limits import Lingering
from impresslearn.serve.page import page_of
from impresslearn.serve.queries import infer_asked, predict_asked
from impresslearn.serve.schemas import (
    Health,
    Inference,
    InferQuery,
    InferRequest,
    PageQuery,
    Predictions,
    PredictQuery,
    PredictRequest,
    Problem,
    TaskDetails,
    TaskPage,
    TaskQuery,
)
from impresslearn.serve.settings import ServeSettings

DESCRIPTION = (
    "Predictions of many tasks that share one frozen network. Inputs come as JSON numbers, or as "
    'an .npy file with its options in the query. Every error is one line: {"error": "…"}.'
)
PROBLEMS = {
    400: "A body that is no JSON or no .npy file, or that ended early.",
    401: "The bearer token is missing or wrong.",
    421: "The Host header names a host that the server does not serve.",
    404: "No task of that name; the line names close ones.",
    408: "The body took too long to arrive.",
    413: "A larger body, or more rows, than the server allows.",
    415: "Another Content-Type, or a compressed body.",
    422: "A query, field, shape or number that cannot be used.",
    500: "The server failed; its log says why.",
    503: "The store cannot be read now, or the server is busy.",
}


def create_app(
    source: str | os.PathLike | ImpressLearner, settings: ServeSettings | None = None
) -> FastAPI:
    """The server of a store, or of a learner, which must not learn meanwhile.

    A store is opened for reading and closed when the app shuts down; tasks that other processes
    learn into it are served at once. Raises StoreError for one that cannot be opened.
    """
    settings = settings or ServeSettings()
    opened = None
    if isinstance(source, ImpressLearner):
        learner = source
    else:
        learner = opened = open_store(source, readonly=True, progress=False)
    desk = Desk(learner, settings)
    app = FastAPI(
        title="ImpressLearn",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=partial(_lifespan, desk, opened),
    )
    add_refusals(app)
    app.add_middleware(Lingering)
    anyone, guarded = _routers(settings)
    _add_health(anyone, desk)
    _add_lookups(guarded, desk)
    _add_predictions(guarded, desk)
    _add_documentation(guarded, app)
    for router in (anyone, guarded):
        app.include_router(router)
    return app


def _routers(settings: ServeSettings) -> tuple[APIRouter, APIRouter]:
    """Routes for anyone who names one of the server's hosts, and for those who have its token."""
    guards, problems = [], [500, 503]
    if settings.hosts:
        guards.append(Depends(_host_guard(settings.hosts)))
        problems.append(421)
    anyone = APIRouter(dependencies=guards, responses=_problems(*problems))
    if settings.token is not None:
        guards = [*guards, Depends(_token_guard(settings.token))]
        problems.append(401)
    return anyone, APIRouter(dependencies=guards, responses=_problems(*sorted(problems)))


def _host_guard(hosts: Sequence[str]) -> Callable[..., Awaitable[None]]:
    """A dependency that lets requests in whose Host header names one of the hosts."""
    served = {host.lower() for host in hosts}

    async def check(request: Request) -> None:
        given = request.headers.get("host", "")
        if re.sub(r":\d*$", "", given).lower() not in served:
            name = f"the host {given!r}" if given else "a request without a host"
            line = f"{name} is not served; start the server with --allow-host to serve another"
            raise RequestError(421, line)

    return check


_BEARER = HTTPBearer(auto_error=False, description="The token that the server was given.")


def _token_guard(token: str) -> Callable[..., Awaitable[None]]:
    """A dependency that lets requests in that bring the token."""
    wanted = token.encode()

    async def check(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    ) -> None:
        if given is None or not hmac.compare_digest(given.credentials.encode(), wanted):
            line = "a valid token is needed: Authorization: Bearer TOKEN"
            raise RequestError(401, line, {"WWW-Authenticate": "Bearer"})

    return check


def _add_health(router: APIRouter, desk: Desk) -> None:
    @router.get("/health", response_model=Health)
    async def health() -> Response:
        """What is served, and that its store can be read."""
        return await desk.look_up(desk.service.health)


def _add_lookups(router: APIRouter, desk: Desk) -> None:
    service = desk.service

    @router.get("/tasks", response_model=TaskPage, responses=_problems(422))
    async def tasks(query: Annotated[PageQuery, Query()]) -> Response:
        """The tasks, page by page, in the order they were learned."""
        return await desk.look_up(partial(service.tasks, query.offset, query.limit))

    @router.get("/task", response_model=TaskDetails, responses=_problems(404, 422))
    async def task(query: Annotated[TaskQuery, Query()]) -> Response:
        """One task. Its name stands in the query, because a path does not carry every name."""
        return await desk.look_up(partial(service.task, query.name))


def _add_predictions(router: APIRouter, desk: Desk) -> None:
    service, rows = desk.service, desk.settings.max_rows
    problems = _problems(400, 404, 408, 413, 415, 422)

    @router.post(
        "/predict",
        response_model=Predictions,
        responses=problems,
        openapi_extra=_body(PredictRequest),
    )
    async def predict(request: Request, query: Annotated[PredictQuery, Query()]) -> Response:
        """Labels, and on request logits, of inputs whose tasks are known."""

        def work(body: bytearray, kind: str) -> BaseModel:
            return service.predict(predict_asked(body, kind, query, rows))

        return await desk.with_body(request, work)

    @router.post(
        "/infer", response_model=Inference, responses=problems, openapi_extra=_body(InferRequest)
    )
    async def infer(request: Request, query: Annotated[InferQuery, Query()]) -> Response:
        """Which task inputs belong to, and its predictions; all rows must be of one task."""

        def work(body: bytearray, kind: str) -> BaseModel:
            return service.infer(infer_asked(body, kind, query, rows))

        return await desk.with_body(request, work)


@asynccontextmanager
async def _lifespan(desk: Desk, opened: ImpressLearner | None, _: FastAPI) -> AsyncIterator[None]:
    try:
        yield
    finally:
        desk.close()
        if opened is not None:
            opened.close()


def _add_documentation(router: APIRouter, app: FastAPI) -> None:
    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page_of(app.openapi()))

    @router.get("/openapi.json", include_in_schema=False)
    async def document() -> JSONResponse:
        return JSONResponse(app.openapi())


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {each: {"model": Problem, "description": PROBLEMS[each]} for each in statuses}


def _body(model: type[BaseModel]) -> dict[str, Any]:
    """The request body of a route that reads it itself."""
    array = {
        "type": "string",
        "format": "binary",
        "description": "An .npy file of real numbers, one input a row; options in the query.",
    }
    content = {JSON: {"schema": model.model_json_schema()}} | {
        kind: {"schema": array} for kind in NPY
    }
    return {"requestBody": {"required": True, "content": content}}
