"""Jobs: the small, independent pieces of work that an experiment is made of.

A job is a function, plain settings and the jobs whose results it needs. Its key is a hash of all of
that and of the function's code, so the same mask is trained once whichever figures ask for it, on
whatever machine, and anew where the code is another. Functions are deterministic, so a run that was
killed resumes with the numbers that it would have had.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import CodeType
from typing import Any, Protocol, cast

from benchmarks.code import code_hash
from impresslearn.errors import (
    ImpressLearnError,
    InputError,
    NotLearnedWarning,
    TrainingError,
)

NAMED = ("task", "sparsity", "seed", "labels", "method")
"""The settings that an error names a job by."""


@dataclass(frozen=True)
class Place:
    """Where a job runs. Nothing here changes its result; what does belongs into its settings."""

    data: str = "data"
    device: str = "cpu"


@dataclass(frozen=True)
class Outcome:
    """A job's result: plain values, and bytes where it made something larger (a mask, a model).

    seconds: how long it ran; None until it is kept.
    """

    values: Mapping[str, Any]
    blob: bytes | None = None
    seconds: float | None = None


class JobFunction(Protocol):
    """A function that jobs run; see `job_function`. kind: part of their keys."""

    kind: str
    __code__: CodeType

    def __call__(
        self, settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place, /
    ) -> Outcome:
        """The outcome of a job with these settings, from the outcomes of the jobs that it needs."""


def job_function(kind: str) -> Callable[[Callable[..., Outcome]], JobFunction]:
    """Decorates a module's function as the work of one kind of job."""

    def decorate(function: Callable[..., Outcome]) -> JobFunction:
        decorated = cast(JobFunction, function)
        decorated.kind = kind
        return decorated

    return decorate


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work. needs: jobs that run before it, and whose outcomes it is given."""

    function: JobFunction
    settings: Mapping[str, Any]
    needs: tuple[Job, ...] = ()

    @property
    def kind(self) -> str:
        """The name of what it does."""
        return self.function.kind

    @cached_property
    def code(self) -> str:
        """The hash of the code that it asks for, which goes with it to other processes."""
        return code_hash(self.function)

    @cached_property
    def key(self) -> str:
        """32 hex digits over the kind, its code, the settings and the needed jobs' keys."""
        needs = [need.key for need in self.needs]
        content = [self.kind, self.code, dict(self.settings), needs]
        text = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __str__(self) -> str:
        named = [self._stream_name] if self._stream_name else []
        named += [f"{word} {self.settings[word]}" for word in NAMED if word in self.settings]
        return f"{self.kind} job {self.key[:8]} ({', '.join(named) or 'no settings named'})"

    @property
    def _stream_name(self) -> str:
        stream = self.settings.get("stream")
        return str(stream.get("name", "")) if isinstance(stream, Mapping) else ""


def run_job(job: Job, needs: Sequence[Outcome], place: Place) -> Outcome:
    """Works the job out, with the outcomes that it needs, and takes the time.

    Raises what the job raises, TrainingError for a result that is not finite, and InputError for
    files that cannot be read and for code that is not that of the job's key; these name the job.
    """
    if code_hash(job.function) != job.code:
        raise InputError(
            f"{job}: the code here is not the one that asked for it; give all machines the same "
            "impresslearn, leave it as it is during a run, and start again"
        )
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotLearnedWarning)  # the record tells every accuracy
            outcome = job.function(job.settings, needs, place)
    except TrainingError as error:
        raise TrainingError(f"{job}: {error}") from error
    except OSError as error:
        if isinstance(error, ImpressLearnError):
            raise
        raise InputError(f"{job}: {error}") from error
    for name, value in outcome.values.items():
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            raise TrainingError(
                f"{job}: its {name} must be finite, got {value}; nothing is kept"
            ) from None
    return replace(outcome, seconds=round(time.perf_counter() - started, 3))


def kept_outcome(job: Job, kept: Outcome | None) -> Outcome:
    """The outcome, which must be there. Raises ImpressLearnError where it is not."""
    if kept is None:  # deleted or damaged meanwhile
        raise ImpressLearnError(f"the outcome of {job} is gone from the cache; run again")
    return kept


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """The jobs and all that they need, each once, needed ones first."""
    found: dict[str, Job] = {}
    seen: dict[int, Job] = {}
    for job in jobs:
        path = [job]
        while path:  # a chain of needs may be longer than Python's stack is deep
            last = path[-1]
            fresh = [need for need in reversed(last.needs) if id(need) not in seen]
            if fresh:
                path += fresh
            else:
                seen[id(last)] = path.pop()
                found.setdefault(last.key, last)
    return list(found.values())
