"""Answers every error with a status and one line: {"error": "..."}.

What this package refuses itself is an HTTPException. The library's errors keep their line and get
the status of their kind; anything unforeseen is logged and answered with 500 and no detail.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from impresslearn.errors import ImpressLearnError, InputError, StoreError, UnknownTaskError, visible

logger = logging.getLogger("impresslearn.serve")

LONGEST_LINE = 500


def add_error_handlers(app: FastAPI) -> None:
    """Makes an app answer every error with {"error": one line}."""
    foreseen = (HTTPException, RequestValidationError, ImpressLearnError, ClientDisconnect)
    for kind in (*foreseen, Exception):
        app.add_exception_handler(kind, _answer)


def first_problem(problems: Sequence[Mapping[str, Any]]) -> str:
    """One line about the most exact of pydantic's complaints."""
    problem = max(problems, key=lambda each: len(each["loc"]))
    parts = [str(part) for part in problem["loc"] if part not in ("query", "body")]
    # What is no name and no position says which of several types was tried.
    where = ".".join(part for part in parts if part.isidentifier() or part.isdecimal())
    return f"{where or 'request'}: {problem['msg'].removeprefix('Value error, ')}"


async def _answer(request: Request, error: Exception) -> JSONResponse:
    status, line = _status_and_line(request, error)
    line = visible(" ".join(line.split()))
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE - 1]}…"
    if isinstance(error, ImpressLearnError) and status >= 500:  # the others uvicorn logs
        logger.error("%s: %s", request.url.path, line, exc_info=error if status == 500 else None)
    return JSONResponse({"error": line}, status, headers=getattr(error, "headers", None))


def _status_and_line(request: Request, error: Exception) -> tuple[int, str]:
    match error:
        case HTTPException(status_code=404):
            return 404, f"there is no {request.method} {request.url.path}; see /docs"
        case HTTPException(status_code=405):
            return 405, f"{request.method} {request.url.path} is not allowed; see /docs"
        case HTTPException():
            return error.status_code, error.detail
        case RequestValidationError():
            return 422, first_problem(error.errors())
        case UnknownTaskError():
            return 404, str(error)
        case InputError():
            return 422, str(error)
        case StoreError():
            return 503, str(error)
        case ClientDisconnect():
            return 400, "the connection ended before the body did"  # nobody reads it
        case _:
            return 500, "the server failed on this request; its log says why"
