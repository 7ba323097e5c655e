"""Parses the server's requests (JSON or .npy); every error is an HTTP status and one line."""

import io
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from impresslearn.errors import InputError, StoreError, UnknownTaskError, visible

JSON, NPY = "application/json", "application/x-npy"
MAX_LISTS = 250_000
MAX_TEXTS = 1000  # each text takes as much memory as the longest
logger = logging.getLogger("impresslearn.serve")
STATUS = {UnknownTaskError: 404, InputError: 422, StoreError: 503, ClientDisconnect: 400}
ERRORS = (*STATUS, HTTPException, RequestValidationError, Exception)


def as_array(values: Any) -> Any:
    """Nested lists or an .npy file as an array (n, ...) of real numbers in native byte order.

    Inputs of several tensors are a JSON object, name -> lists. A list of texts becomes an array of
    objects. Raises InputError for other values, and for rows of different lengths.
    """
    if isinstance(values, bytes):
        try:
            values = np.load(io.BytesIO(values), allow_pickle=False)
        except Exception:  # any error: a header may ask for more than all memory
            line = "must be a readable .npy file of numbers"
            raise InputError(f'{line}; write it by np.save, of array.astype("float32")') from None
    if isinstance(values, list) and values and all(isinstance(each, str) for each in values):
        if len(values) > MAX_TEXTS:
            raise InputError(f"takes at most {MAX_TEXTS:,} texts; send them in parts")
        return np.array(values, dtype=object)  # NumPy's str takes as much as the longest
    if isinstance(values, dict) and values:
        arrays = {name: as_array(rows) for name, rows in values.items()}
        if len({len(array) for array in arrays.values()}) > 1:
            raise InputError("must have the same number of rows under every name")
        return arrays
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError("must be lists of numbers, all rows of one length") from None
    # NumPy accepts strings and objects too, and torch does not accept float128.
    if array.dtype.kind not in "iuf" or array.itemsize > 8:
        raise InputError("must be real numbers of up to 64 bits, or a list of texts")
    if not array.ndim or not array.size:
        raise InputError(f"must be rows (n, ...) of numbers, got shape {array.shape}")
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


TaskName = Annotated[str, Field(min_length=1, max_length=1024)]
TaskNames = Annotated[list[TaskName], Field(min_length=1)]
Rows = Annotated[Any, PlainValidator(as_array), WithJsonSchema({"type": ["array", "object"]})]
Model = TypeVar("Model", bound=BaseModel)
Label = int | str


class InputsRequest(BaseModel):
    """Inputs, one per row, with the shape that the network takes."""

    model_config = ConfigDict(extra="forbid")

    inputs: Rows
    logits: bool = Field(default=False, description="Whether to answer the logits too.")
    prepared: bool = Field(default=False, description="Whether the inputs are prepared, not raw.")


class PredictRequest(InputsRequest):
    """Inputs of one task, or of several in one batch."""

    task: TaskName | TaskNames = Field(description="The task, or one task per row.")
    unknown: bool = Field(
        default=False, description="Whether to answer if each row looks like none of its task's."
    )


class InferRequest(InputsRequest):
    """Inputs that all belong to one task, which is not known."""

    among: TaskName | TaskNames = Field(
        default="all", description="Names of tasks, or one of all, basis and learned."
    )
    top: int = Field(default=20, ge=1, description="The number of tasks in the posterior.")


class Predictions(BaseModel):
    """One label per row and, if asked for, one row of logits with one number per class."""

    labels: list[Label]
    confidences: list[float] = Field(description="The probability of each row's label.")
    versions: dict[str, int] = Field(description="The version of each task that answered.")
    logits: list[list[float]] | None = None
    unknown: list[bool] | None = Field(
        default=None, description="Whether each row looks unlike its task's inputs; on request."
    )


class Inference(BaseModel):
    """The inferred task of the inputs and its predictions for them."""

    task: str | None = Field(description="The task, or null if the inputs look like no task.")
    best: str = Field(description="The most likely task, even if unknown.")
    unknown: bool
    unknown_probability: float
    entropy: float = Field(description="Of the posterior with unknown, in nats.")
    margin: float = Field(description="Probability of the best minus the next hypothesis's.")
    posterior: dict[str, float] = Field(description="Probabilities, the most likely task first.")
    labels: list[Label] | None = Field(description="One label per row; null if unknown.")
    logits: list[list[float]] | None


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body. Raises HTTPException: 415 for another media type, 413 above `max_bytes`."""
    if "content-encoding" in request.headers:
        raise HTTPException(415, "send the body uncompressed, without Content-Encoding")
    kind = media_type(request)
    if kind not in (JSON, NPY):
        raise HTTPException(415, f"Content-Type must be {JSON} or {NPY}, got {kind or 'none'}")
    body = bytearray()
    # Bytes are counted as they arrive: Content-Length may be wrong or, with chunks, missing.
    async for piece in request.stream():
        body += piece
        if len(body) > max_bytes:
            raise HTTPException(413, f"the body is larger than the limit of {max_bytes:,} bytes")
    return bytes(body)


def media_type(request: Request) -> str:
    """The Content-Type of a request, without parameters such as a charset."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse(model: type[Model], request: Request, body: bytes) -> Model:
    """A body as a request model. With an .npy body the other fields are in the query."""
    query = request.query_params
    try:
        if media_type(request) == JSON:
            # Otherwise an option in the query would silently have no effect.
            if query:
                raise InputError("a JSON body holds all options itself; remove them from the query")
            # An empty list has three bytes in a body, and a hundred times as many in memory.
            if body.count(b"[") + body.count(b"{") > MAX_LISTS:
                raise InputError(f"more than {MAX_LISTS:,} lists in a body; send inputs as .npy")
            made = model.model_validate_json(body, strict=True)
        else:
            fields: dict[str, Any] = {"inputs": body}
            for name in query:
                values = query.getlist(name)
                fields[name] = values[0] if len(values) == 1 else values
            made = model.model_validate(fields)
    except ValidationError as error:
        line = first_problem(error.errors())
        if media_type(request) == NPY:
            line = line.replace("Field required", "Field required in the query, as in ?task=NAME")
        raise InputError(line) from None
    request.scope["task"] = getattr(made, "task", None) or getattr(made, "among", None)
    return made


def first_problem(problems: Sequence[Mapping[str, Any]]) -> str:
    """One line about the most specific of pydantic's complaints."""
    problem = max(problems, key=lambda complaint: len(complaint["loc"]))
    # The location also has the names of types that were tried, such as "constrained-str".
    places = [str(part) for part in problem["loc"] if part not in ("query", "body")]
    where = ".".join(part for part in places if part.isidentifier() or part.isdecimal())
    line = problem["msg"].removeprefix("Value error, ")
    return f"{where or 'request'}: {line.replace('expected ident', 'expected a value')}"


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Answers an error, foreseen or not, with {"error": one line}."""
    if isinstance(error, HTTPException):
        status, line = error.status_code, error.detail
        if status in (404, 405):
            line = f"there is no {request.method} {request.url.path}; see /docs"
    elif isinstance(error, RequestValidationError):
        status, line = 422, first_problem(error.errors())
    elif isinstance(error, tuple(STATUS)):
        status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
        line = str(error)
    else:
        # uvicorn logs the error. Its own message could reveal paths or data of the server.
        status, line = 500, "the server failed on this request; its log has the reason"
    line = visible(" ".join(line.split()))
    if isinstance(error, StoreError):
        logger.error("%s: %s", request.url.path, line)
    return JSONResponse({"error": line}, status, headers=getattr(error, "headers", None))
