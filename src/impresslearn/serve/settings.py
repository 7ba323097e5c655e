"""What a server allows: sizes, threads, and who may ask."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from math import inf

from impresslearn.errors import InputError

_HOST = re.compile(r"[\w.-]+|\[[\da-fA-F:.]+\]", re.ASCII)
_COUNTS = (
    "max_bytes",
    "max_rows",
    "max_tasks",
    "max_candidates",
    "max_memory",
    "max_peer_connections",
    "threads",
)
_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)


@dataclass(frozen=True)
class ServeSettings:
    """Limits of a server; InputError for one that cannot be kept.

    token: what requests must bring as `Authorization: Bearer TOKEN`, except for /health; None lets
    everybody ask. hosts: what a request's Host header may name, ports aside; `run_server` adds the
    names of this machine where it listens on loopback, and none at all means any elsewhere.
    max_bytes: of a request's body. max_rows: inputs in one request. max_tasks: that one mixed batch
    may name. max_candidates: tasks that one inference may choose among. max_memory: bytes that a
    request's activations, its logits, or an inference's candidates may each take, as estimated
    beforehand. max_peer_connections: that one address (of IPv6: one /64 network) may hold at a
    time, of 256 in all; a reverse proxy is one address, so give it as many as it may open. threads:
    predictions that are computed at a time; each has its own view of the network. body_seconds,
    answer_seconds: in which a request's body must have arrived, and an answer must have been read.
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    max_bytes: int = 16 * 1024**2
    max_rows: int = 4096
    max_tasks: int = 256
    max_candidates: int = 10_000
    max_memory: int = 4 * 1024**3
    max_peer_connections: int = 64
    threads: int = 2
    body_seconds: float = 30.0
    answer_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be an integer of at least 1, got {value!r}")
        for name in ("body_seconds", "answer_seconds"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value < inf:
                raise InputError(f"{name} must be a number of more than 0, got {value!r}")
        if isinstance(self.hosts, str) or not all(
            _HOST.fullmatch(str(each)) for each in self.hosts
        ):
            raise InputError(f"hosts must be names or addresses without ports, got {self.hosts!r}")
        if self.token is not None and not (self.token and _TOKEN_LETTERS.issuperset(self.token)):
            raise InputError("the token must be printable ASCII characters without spaces")

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all bodies and unread answers that are held at one moment: of eight requests of
        the largest size beside those that are computed."""
        return (8 + self.threads) * self.max_bytes
