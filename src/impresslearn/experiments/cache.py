"""Outcomes on disk, by the key of their job: written whole or not at all, never written twice.

Any number of processes and machines may share a folder. A job is claimed by a lock while it runs,
so that two runs do not do the same work; a process that dies lets go of its locks. Outcomes of
other versions of torch or on another kind of device are kept apart, for their numbers may differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import torch

from impresslearn.errors import InputError
from impresslearn.experiments.jobs import Job, Outcome, Place, kept_outcome, run_job


class Cache:
    """A folder of outcomes for one kind of device."""

    def __init__(self, folder: str | os.PathLike, device: str = "cpu") -> None:
        self.folder = Path(folder) / _surroundings(device)
        try:
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {folder}: {error.strerror or error}") from None

    def __contains__(self, job: Job) -> bool:
        return self._values(job).exists()

    def get(self, job: Job) -> Outcome | None:
        """The outcome of a job, or None. One that is damaged counts as missing."""
        try:
            kept = json.loads(self._values(job).read_text(encoding="utf-8"))
            blob = self._blob(job).read_bytes() if kept["blob"] else None
        except (OSError, ValueError, KeyError):
            return None
        if kept["blob"] != _digest(blob) or kept["checksum"] != _checksum(kept["values"]):
            return None
        return Outcome(kept["values"], blob, kept["seconds"])

    def put(self, job: Job, outcome: Outcome) -> None:
        """Keeps an outcome."""
        if outcome.blob is not None:
            self._write(self._blob(job), outcome.blob)
        kept = {
            "kind": job.kind,
            "settings": dict(job.settings),
            "needs": [need.key for need in job.needs],
            "values": dict(outcome.values),
            "seconds": outcome.seconds,
            "blob": _digest(outcome.blob),
            "checksum": _checksum(outcome.values),
        }
        text = json.dumps(kept, allow_nan=False, ensure_ascii=False)
        self._write(self._values(job), text.encode())

    @contextmanager
    def claim(self, job: Job) -> Iterator[None]:
        """Waits until no other process works on the job, and keeps others from it."""
        with filelock.FileLock(self.folder / "locks" / job.key):
            yield

    def _values(self, job: Job) -> Path:
        return self.folder / job.key[:2] / f"{job.key}.json"

    def _blob(self, job: Job) -> Path:
        return self.folder / job.key[:2] / f"{job.key}.bin"

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def work_on(job: Job, cache: Cache, place: Place) -> Outcome:
    """The outcome of a job whose needs are in the cache: the kept one, or else worked out now."""
    with cache.claim(job):
        kept = cache.get(job)
        if kept is not None:
            return kept
        needs = [kept_outcome(need, cache.get(need)) for need in job.needs]
        outcome = run_job(job, needs, place)
        cache.put(job, outcome)
        return outcome


def _surroundings(device: str) -> str:
    name = torch.device(device).type
    if name == "cuda":
        name = torch.cuda.get_device_name(device).replace(" ", "-")
    return f"torch-{torch.__version__.split('+')[0]}-{name}"


def _digest(blob: bytes | None) -> str | None:
    return None if blob is None else hashlib.sha256(blob).hexdigest()


def _checksum(values: Any) -> str:
    text = json.dumps(dict(values), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
