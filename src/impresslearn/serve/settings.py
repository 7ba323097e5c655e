"""Settings of a server: limits of size, time and threads, and who may ask."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from impresslearn.errors import InputError
from impresslearn.serve.errors import first_problem

Count = Annotated[int, Field(ge=1, strict=True)]
Seconds = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Host = Annotated[str, Field(pattern=r"^([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])$")]
Token = Annotated[str, Field(pattern=r"^[!-~]+$")]  # what may stand in a header, without spaces


class ServeSettings(BaseModel):
    """Limits of a server; InputError for one that cannot be kept.

    token: what requests must bring as `Authorization: Bearer TOKEN`, except for /health; None lets
    everybody ask. hosts: what a request's Host header may name, ports aside; `run_server` adds the
    names of this machine where it listens on loopback, and none at all means any elsewhere.
    max_bytes: of a request's body. max_rows: inputs in one request. max_tasks: that one mixed batch
    may name. max_candidates: tasks that one inference may choose among. max_memory: bytes that a
    request's activations, its logits, or the tasks of an inference may each take, as estimated
    beforehand. max_peer_connections: that one address (of IPv6: one /64 network) may hold at a
    time, of 256 in all; a reverse proxy is one address, so give it as many as it may open. threads:
    predictions that are computed at a time; each has its own view of the network. body_seconds,
    answer_seconds: in which a request's body must have arrived, and an answer must have been read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: Token | None = Field(default=None, repr=False)
    hosts: tuple[Host, ...] = ()
    max_bytes: Count = 16 * 1024**2
    max_rows: Count = 4096
    max_tasks: Count = 256
    max_candidates: Count = 10_000
    max_memory: Count = 4 * 1024**3
    max_peer_connections: Count = 64
    threads: Count = 2
    body_seconds: Seconds = 30.0
    answer_seconds: Seconds = 30.0

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(first_problem(error.errors())) from None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all bodies and unread answers that are held at one moment: of eight requests of
        the largest size beside those that are computed."""
        return (8 + self.threads) * self.max_bytes
