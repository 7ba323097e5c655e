"""The stand-in of a hub and the processes that talk to it, started once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_processes import Worker
from hub_stand_in import Hub


@pytest.fixture(scope="session")
def running() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture
def hub(running: Hub) -> Hub:
    running.reset()
    return running


@pytest.fixture(scope="session")
def workers(running: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Worker]]:
    """The first pushes, the second loads, the third looks for a hub where there is none."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    urls = {"sender": running.url, "receiver": running.url, "lost": "http://127.0.0.1:9"}
    started = [Worker(url, tmp_path_factory.mktemp(name)) for name, url in urls.items()]
    yield started
    for worker in started:
        worker.close()


@pytest.fixture
def sender(workers: list[Worker]) -> Worker:
    return workers[0]


@pytest.fixture
def receiver(workers: list[Worker], tmp_path: Path) -> Worker:
    """The second process; from_hub uses a cache that is new for each test."""
    workers[1].run(f"cache = {str(tmp_path)!r}")
    return workers[1]
