"""Processes that work on a store, and one small store to copy, for all tests of the store."""

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from storekit import reports, small_learner
from worker_jobs import run


class Workers:
    """Processes of one thread that run a job of `worker_jobs`, and can be killed at any moment."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["warm", "worker_jobs"])

    def start(self, job: str, out: Path, **arguments: Any) -> BaseProcess:
        """The process that runs a job, which reports to a file."""
        process = self.context.Process(target=run, args=(job, out, arguments))
        process.start()
        return process

    def reported(self, process: BaseProcess, out: Path) -> list[Any]:
        """What a process reported that must have ended well."""
        process.join()
        assert process.exitcode == 0, reports(out)[-1]
        return reports(out)

    def learned(self, path: Path, *outs: Path, **how: Any) -> list[list[Any]]:
        """What processes reported that learned into a store at the same time."""
        started = []
        for out in outs:
            started.append(self.start("learn", out, path=path, **{"prefix": out.name} | how))
        return [self.reported(*pair)[1:] for pair in zip(started, outs, strict=True)]


@pytest.fixture(scope="session")
def pool() -> Workers:
    """Starts processes that work on a store."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # what is forked must have no threads
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        workers = Workers()
        workers.context.Process().start()
    return workers


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store of `small_learner`."""
    path = tmp_path_factory.mktemp("small") / "small.impress"
    small_learner().save(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, small_store: bytes) -> Path:
    """A store of tasks basis-0, basis-1 and first, over four masks."""
    place = tmp_path / "a.impress"
    place.write_bytes(small_store)
    return place
