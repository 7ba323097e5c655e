"""Answers every error with a status and one line of JSON: {"error": "..."}."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from impresslearn.errors import InputError, StoreError, UnknownTaskError, visible

logger = logging.getLogger("impresslearn.serve")

STATUS = {UnknownTaskError: 404, InputError: 422, StoreError: 503, ClientDisconnect: 400}


def add_error_handlers(app: FastAPI) -> None:
    """Makes an app answer every error, foreseen or not, with {"error": one line}."""
    for kind in (*STATUS, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer)


def first_problem(problems: Sequence[Mapping[str, Any]]) -> str:
    """One line about the most specific of pydantic's complaints."""
    problem = max(problems, key=lambda complaint: len(complaint["loc"]))
    # The location also names the types that were tried, as in "constrained-str".
    places = [str(part) for part in problem["loc"] if part not in ("query", "body")]
    where = ".".join(part for part in places if part.isidentifier() or part.isdecimal())
    return f"{where or 'request'}: {problem['msg'].removeprefix('Value error, ')}"


async def _answer(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, HTTPException):
        status, line = error.status_code, error.detail
        if status in (404, 405):
            line = f"there is no {request.method} {request.url.path}; see /docs"
    elif isinstance(error, RequestValidationError):
        status, line = 422, first_problem(error.errors())
    elif type(error) in STATUS:
        status, line = STATUS[type(error)], str(error)
    else:
        # uvicorn logs it. A message from below may show paths or data of the server.
        status, line = 500, "the server failed on this request; its log has the reason"
    line = visible(" ".join(line.split()))
    if isinstance(error, StoreError):
        logger.error("%s: %s", request.url.path, line)
    return JSONResponse({"error": line}, status, headers=getattr(error, "headers", None))
