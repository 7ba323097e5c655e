"""The routes of a server, who may ask them, and their documentation; `service` has the answers."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jinja2
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from impresslearn import __version__
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import open_store
from impresslearn.serve import schemas
from impresslearn.serve.bodies import JSON, NPY, media_type
from impresslearn.serve.errors import add_error_handlers
from impresslearn.serve.limits import RequestLimits, ServeSettings
from impresslearn.serve.service import Service

DESCRIPTION = (
    "Predictions of many tasks that share one frozen network. Inputs come as JSON numbers, or as "
    'an .npy file with its options in the query. Every error is one line: {"error": "…"}.'
)
PROBLEMS = {
    400: "A body that is no JSON or no .npy file, or that ended early.",
    401: "The bearer token is missing or wrong.",
    404: "No task of that name; the line names close ones.",
    408: "The body took too long to arrive.",
    413: "A larger body, or more rows, than the server allows.",
    415: "Another Content-Type, or a compressed body.",
    421: "The Host header names a host that the server does not serve.",
    422: "A query, field, shape or number that cannot be used.",
    500: "The server failed; its log says why.",
    503: "The store cannot be read now, or the server is busy.",
}
NPY_SCHEMA = {
    "type": "string",
    "format": "binary",
    "description": "An .npy file of real numbers, one input a row; options in the query.",
}
BEARER = HTTPBearer(auto_error=False, description="The token that the server was given.")


def create_app(
    source: str | os.PathLike | ImpressLearner, settings: ServeSettings | None = None
) -> FastAPI:
    """The server of a store, or of a learner, which must not learn meanwhile.

    A store is opened for reading, unless changes are allowed, and closed when the app shuts down;
    tasks that other processes learn into it are served at once. Raises StoreError for one that
    cannot be opened.
    """
    settings = settings or ServeSettings()
    opened = None
    if not isinstance(source, ImpressLearner):
        source = opened = open_store(source, readonly=not settings.allow_changes, progress=False)
    service = Service(source, settings)
    # So many threads, and so many views of the network; looking things up never waits for them.
    pool = ThreadPoolExecutor(settings.threads, "predict")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        pool.shutdown(cancel_futures=True)  # waits for what is being computed
        if opened is not None:
            opened.close()

    app = FastAPI(
        title="ImpressLearn",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        dependencies=[Depends(_check_host)] if settings.hosts else None,
        responses=_problems(500, 503, *([421] if settings.hosts else [])),
    )
    app.state.settings = settings
    add_error_handlers(app)
    app.add_middleware(RequestLimits, settings=settings)
    app.add_api_route("/health", service.health)
    guarded = APIRouter()
    if settings.token is not None:
        guarded = APIRouter(dependencies=[Depends(_check_token)], responses=_problems(401))
    guarded.add_api_route("/tasks", service.tasks, responses=_problems(422))
    for route, answer in (("/task", service.task), ("/versions", service.versions)):
        guarded.add_api_route(route, answer, responses=_problems(404, 422))
    for route, change in (("/restore", service.restore), ("/remove", service.remove)):
        if settings.allow_changes:
            guarded.add_api_route(route, change, methods=["POST"], responses=_problems(404, 422))
    _add_predictions(guarded, service, pool)
    _add_documentation(guarded, app)
    app.include_router(guarded)
    return app


async def _check_host(request: Request) -> None:
    """Lets requests in whose Host header names one of the server's hosts."""
    given = request.headers.get("host", "")
    served = {host.lower() for host in request.app.state.settings.hosts}
    if re.sub(r":\d*$", "", given).lower() not in served:
        name = f"the host {given!r}" if given else "a request without a host"
        line = f"{name} is not served; start the server with --allow-host to serve another"
        raise HTTPException(421, line)


async def _check_token(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
) -> None:
    """Lets requests in that bring the server's token; compares in constant time."""
    token = request.app.state.settings.token.encode()
    if given is None or not hmac.compare_digest(given.credentials.encode(), token):
        line = "a valid token is needed: Authorization: Bearer TOKEN"
        raise HTTPException(401, line, {"WWW-Authenticate": "Bearer"})


def _add_predictions(router: APIRouter, service: Service, pool: ThreadPoolExecutor) -> None:
    async def compute(
        request: Request, read: Callable[[str, bytes], Any], answer: Callable[[Any], BaseModel]
    ) -> Response:
        """answer(read(media type, body)), computed and written by one of the pool's threads."""
        kind, body = media_type(request.headers), await request.body()

        def work() -> bytes:
            return answer(read(kind, body)).model_dump_json().encode()

        content = await asyncio.get_running_loop().run_in_executor(pool, work)
        request.state.hold(len(body) + len(content))
        return Response(content, media_type=JSON)

    problems = _problems(400, 404, 408, 413, 415, 422)
    body = _body(schemas.PredictRequest)

    @router.post(
        "/predict", response_model=schemas.Predictions, responses=problems, openapi_extra=body
    )
    async def predict(
        request: Request, query: Annotated[schemas.PredictQuery, Query()]
    ) -> Response:
        """Labels, and on request logits, of inputs whose tasks are known."""
        read = partial(schemas.PredictRequest.read, query)
        return await compute(request, read, service.predict)

    body = _body(schemas.InferRequest)

    @router.post("/infer", response_model=schemas.Inference, responses=problems, openapi_extra=body)
    async def infer(request: Request, query: Annotated[schemas.InferQuery, Query()]) -> Response:
        """Which task inputs belong to, and its predictions; all rows must be of one task."""
        return await compute(request, partial(schemas.InferRequest.read, query), service.infer)


def _add_documentation(router: APIRouter, app: FastAPI) -> None:
    template = Path(__file__).with_name("docs.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True)
    environment.filters["pretty"] = partial(json.dumps, indent=2, ensure_ascii=False)
    page = environment.from_string(template)

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page.render(app.openapi()))

    @router.get("/openapi.json", include_in_schema=False)
    async def document() -> JSONResponse:
        return JSONResponse(app.openapi())


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {each: {"model": schemas.Problem, "description": PROBLEMS[each]} for each in statuses}


def _body(model: type[BaseModel]) -> dict[str, Any]:
    """The request body of a route that reads it itself."""
    content = {JSON: model.model_json_schema(), **dict.fromkeys(NPY, NPY_SCHEMA)}
    schemas_by_kind = {kind: {"schema": schema} for kind, schema in content.items()}
    return {"requestBody": {"required": True, "content": schemas_by_kind}}
