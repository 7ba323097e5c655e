"""Jobs, the pieces of work of a target: runs them, and caches their results in files."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from joblib import cpu_count

import impresslearn
from impresslearn.errors import NotLearnedWarning, TrainingError
from impresslearn.files import write_file
from impresslearn.methods.comparing import in_processes

NAMED = ("task", "sparsity", "seed", "labels", "method")  # settings by which errors name a job
HERE = Path(__file__).parent
# The code on which results depend.
SOURCES = (Path(impresslearn.__file__).parent, HERE / "work", HERE / "rivals", HERE / "streams")


@dataclass(frozen=True)
class JobContext:
    """The folder of data sets, and the device that a job runs on."""

    data: str = "data"
    device: str = "cpu"


@dataclass(frozen=True)
class Outcome:
    """The result of a job.

    - values: finite JSON values
    - blob: the mask or network, if the job trains one
    - seconds: how long the job ran
    """

    values: Mapping[str, Any]
    blob: bytes | None = None
    seconds: float = 0.0


JobFunction = Callable[[Mapping[str, Any], Sequence[Outcome], JobContext], Outcome]


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work, done by a function of `benchmarks.work`.

    - function: takes the settings, the outcomes of `needs` in order, and a `JobContext`
    - settings: JSON values
    - needs: the jobs whose outcomes it needs, which run before it
    """

    function: JobFunction
    settings: Mapping[str, Any]
    needs: tuple[Job, ...] = ()

    @cached_property
    def key(self) -> str:
        """32 hex digits for the function's name, the settings and the keys of the needed jobs."""
        # Equal jobs of different figures have the same key, so each mask is trained only once.
        needs = [need.key for need in self.needs]
        content = [self.function.__name__, dict(self.settings), needs]
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __str__(self) -> str:
        named = [f"{name} {self.settings[name]}" for name in NAMED if name in self.settings]
        stream = self.settings.get("stream", {}).get("name", "no stream")
        return f"{self.function.__name__} ({', '.join([stream, *named])})"


class Cache:
    """A folder with one JSON file per finished job.

    - folder: created with the first result
    - device: each device has its own sub-folder, for each version of torch and of the code
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        kind = torch.device(device).type
        torch_version = torch.__version__.partition("+")[0]
        self.folder = folder / f"torch-{torch_version}-{kind}-{source_hash()[:8]}"

    def load(self, job: Job) -> Outcome | None:
        """The outcome of a job; None if its file is missing or damaged."""
        try:
            content = json.loads(self._path(job).read_text(encoding="utf-8"))
            coded = content["blob"]
            blob = None if coded is None else base64.b64decode(coded)
            return Outcome(content["values"], blob, content["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, job: Job, outcome: Outcome) -> None:
        """Saves an outcome.

        Raises TrainingError, which names the job, if a result is not finite, and InputError if the
        file cannot be written.
        """
        content = {"job": str(job), "settings": dict(job.settings), **asdict(outcome)}
        if outcome.blob is not None:
            content["blob"] = base64.b64encode(outcome.blob).decode()
        try:
            text = json.dumps(content, allow_nan=False)
        except ValueError:
            raise TrainingError(f"{job}: a result is not finite; nothing is kept") from None
        write_file(self._path(job), text, folders=True)

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs that have no outcome yet."""
        return [job for job in jobs if self.load(job) is None]

    def _path(self, job: Job) -> Path:
        return self.folder / job.key[:2] / f"{job.key}.json"


def source_hash() -> str:
    """A hash of `SOURCES`, so that results of other code are not reused."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """The jobs and all jobs that they need, each once, in an order in which they can run."""
    ordered: dict[str, Job] = {}

    def add(job: Job) -> None:
        if job.key not in ordered:
            for need in job.needs:
                add(need)
            ordered[job.key] = job

    for job in jobs:
        add(job)
    return list(ordered.values())


def run_jobs(
    jobs: Iterable[Job],
    cache: Cache,
    place: JobContext,
    workers: int | None = None,
    backend: str = "loky",
    advance: Callable[[], None] = lambda: None,
) -> None:
    """Runs jobs and the jobs that they need, unless they are in the cache, and saves the outcomes.

    - workers: the number of jobs that run at the same time; by default one per core
    - backend: "loky" for processes on this machine, "ray" for a Ray cluster
    - advance: called after each job

    If a job raises an error, it is raised here; outcomes saved before stay in the cache.
    """
    waiting, workers = cache.missing(in_order(jobs)), workers or cpu_count()
    while waiting:
        keys = {job.key for job in waiting}
        # Jobs whose needed jobs are done.
        ready = [job for job in waiting if keys.isdisjoint(need.key for need in job.needs)]
        # Send the needed outcomes with the job, so that machines need no common folder.
        calls = ((job, list(map(cache.load, job.needs)), place) for job in ready)
        by_key = {job.key: job for job in ready}
        for key, outcome in in_processes(run_job, calls, workers, backend):
            # Save at once, so that a killed run loses only running jobs.
            cache.save(by_key[key], outcome)
            advance()
        waiting = [job for job in waiting if job.key not in by_key]


def run_job(job: Job, needs: Sequence[Outcome], place: JobContext) -> tuple[str, Outcome]:
    """Runs a job on one thread. Returns its key (jobs finish in any order) and its outcome.

    Raises the errors of the job.
    """
    started, threads = time.perf_counter(), torch.get_num_threads()
    # Use one thread, because results must not depend on the number of cores.
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotLearnedWarning)  # the record shows it
            outcome = job.function(job.settings, needs, place)
    except TrainingError as error:
        raise TrainingError(f"{job}: {error}") from error
    finally:
        torch.set_num_threads(threads)
    return job.key, replace(outcome, seconds=round(time.perf_counter() - started, 3))
