"""Outcomes on disk, by the key of their job: written whole or not at all, never written twice.

Any number of processes and machines may share a folder. A job is claimed by a lock while it runs,
so that two runs do not do the same work; a process that dies lets go of its locks. Outcomes of
other versions of torch or on another kind of device are kept apart, for their numbers may differ.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import torch

from benchmarks.jobs import Job, Outcome, Place, kept_outcome, run_job
from impresslearn.errors import InputError
from impresslearn.files import new_file, reason_of

Run = Callable[[Job, Sequence[Outcome], Place], Outcome]


class Cache:
    """A folder of outcomes for one kind of device; made when the first one is kept.

    Raises InputError for a device that is not there, and later where it cannot write.
    """

    def __init__(self, folder: str | os.PathLike, device: str = "cpu") -> None:
        self.folder = Path(folder) / _surroundings(device)

    def __contains__(self, job: Job) -> bool:
        return self.get(job) is not None

    def get(self, job: Job) -> Outcome | None:
        """The outcome of a job, or None. One that is damaged counts as missing."""
        kept = self._read(job)
        if kept is None:
            return None
        try:
            blob = self._path(job, "bin").read_bytes() if kept["blob"] is not None else None
        except OSError:
            return None
        if kept["blob"] != _digest(blob):
            return None
        return Outcome(kept["values"], blob, kept["seconds"])

    def seconds(self, jobs: Iterable[Job]) -> float:
        """How long the kept ones among the jobs ran, together."""
        return sum(kept["seconds"] for kept in map(self._read, jobs) if kept is not None)

    def put(self, job: Job, outcome: Outcome) -> None:
        """Keeps an outcome."""
        kept = {
            "kind": job.kind,
            "settings": dict(job.settings),
            "needs": [need.key for need in job.needs],
            "values": dict(outcome.values),
            "seconds": outcome.seconds or 0.0,
            "blob": _digest(outcome.blob),
            "checksum": _checksum(outcome.values),
        }
        text = json.dumps(kept, allow_nan=False)
        if outcome.blob is not None:
            self._write(self._path(job, "bin"), outcome.blob)
        self._write(self._path(job, "json"), text.encode())

    @contextmanager
    def claim(self, job: Job, timeout: float = -1) -> Iterator[None]:
        """Waits until no other process works on the job, and keeps others from it.

        Raises filelock.Timeout after so many seconds; negative: waits as long as it takes.
        """
        lock = filelock.FileLock(self.folder / "locks" / job.key)
        with self._writing():
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=timeout)
        try:
            yield
        finally:
            lock.release()

    def _read(self, job: Job) -> dict[str, Any] | None:
        """What the file of values says, if it is sound."""
        try:
            kept = json.loads(self._path(job, "json").read_text(encoding="utf-8"))
            sound = kept["checksum"] == _checksum(kept["values"]) and kept["seconds"] >= 0
            sound = sound and (kept["blob"] is None or isinstance(kept["blob"], str))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return kept if sound else None

    def _path(self, job: Job, suffix: str) -> Path:
        return self.folder / job.key[:2] / f"{job.key}.{suffix}"

    def _write(self, path: Path, content: bytes) -> None:
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as temporary:
                temporary.write_bytes(content)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except filelock.Timeout:  # an OSError too
            raise
        except OSError as error:
            raise InputError(
                f"cannot write to the cache {self.folder}: {reason_of(error)}"
            ) from None


def work_on(
    job: Job, cache: Cache, place: Place, run: Run = run_job, timeout: float = -1
) -> Outcome:
    """The outcome of a job whose needs are in the cache: the kept one, or else worked out now.

    run: what works it out, as `run_job` does; timeout: of the claim.
    """
    with cache.claim(job, timeout):
        kept = cache.get(job)
        if kept is not None:
            return kept
        needs = [kept_outcome(need, cache.get(need)) for need in job.needs]
        outcome = run(job, needs, place)
        cache.put(job, outcome)
        return outcome


def _surroundings(device: str) -> str:
    """A name for what the numbers depend on besides a job's settings."""
    try:
        name = torch.device(device).type
        if name == "cuda":
            name = torch.cuda.get_device_name(device).replace(" ", "-")
        else:
            torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        line = str(error).split("\n", 1)[0]
        raise InputError(f"device {device!r} cannot be used: {line}") from None
    return f"torch-{torch.__version__.split('+')[0]}-{name}"


def _digest(blob: bytes | None) -> str | None:
    return None if blob is None else hashlib.sha256(blob).hexdigest()


def _checksum(values: Mapping[str, Any]) -> str:
    text = json.dumps(dict(values), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
