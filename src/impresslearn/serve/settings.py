"""What a server allows: sizes, threads, and who may ask."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from math import isfinite

from impresslearn.errors import InputError

_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)


@dataclass(frozen=True)
class ServeSettings:
    """Limits of a server; InputError for one that cannot be kept.

    token: what requests must bring as `Authorization: Bearer TOKEN`; None lets everybody ask.
    max_bytes: of a request's body. max_rows: inputs in one request. max_candidates: tasks that one
    inference may choose among. threads: predictions that are computed at a time; each has its own
    view of the network. body_seconds: in which a request's body must have arrived.
    """

    token: str | None = field(default=None, repr=False)
    max_bytes: int = 16 * 1024**2
    max_rows: int = 4096
    max_candidates: int = 10_000
    threads: int = 2
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_rows", "max_candidates", "threads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be an integer of at least 1, got {value!r}")
        if not self.body_seconds > 0 or not isfinite(self.body_seconds):
            raise InputError(f"body_seconds must be more than 0, got {self.body_seconds!r}")
        if self.token is not None and not (self.token and _TOKEN_LETTERS.issuperset(self.token)):
            raise InputError("the token must be printable ASCII characters without spaces")

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all bodies that are held at one moment: of eight requests of the largest size
        beside those that are computed."""
        return (8 + self.threads) * self.max_bytes
