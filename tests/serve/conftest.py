"""A small store, the learner that wrote it, and an app that serves it, shared by the tests here."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Server, serving

from toys import blobs, quick_learner

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from fastapi.testclient import TestClient

from impresslearn import ImpressLearner
from impresslearn.serve import create_app

TOKEN = "s3cret"
WORDS = ("cat", "dog", "äöü")


@pytest.fixture(scope="session")
def direct() -> ImpressLearner:
    """Three basis tasks and three learned ones; the last one's labels are words."""
    learner = quick_learner(precision="int5", output_scale=True)
    for number in range(3):
        learner.learn_basis(f"basis {number}", blobs(number))
    for number in range(2):
        learner.learn_task(f"new {number}", blobs(number + 50))
    inputs, labels = blobs(60)
    return learner.learn_task("pets/at home?", (inputs, [WORDS[label] for label in labels]))


@pytest.fixture(scope="session")
def store(direct: ImpressLearner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of those tasks; nobody writes to it."""
    path = tmp_path_factory.mktemp("serve") / "tasks.store"
    direct.save(path)
    return path


@pytest.fixture(scope="session")
def client(store: Path) -> Iterator[TestClient]:
    """Asks an app of that store, with no socket between."""
    with TestClient(create_app(store), raise_server_exceptions=False) as asking:
        yield asking


@pytest.fixture(scope="session")
def server(store: Path) -> Iterator[Server]:
    """A process that serves that store to whoever has the token, up to 100,000 bytes a request."""
    options = ("--max-bytes", "100000", "--log-level", "warning")
    with serving(store, *options, IMPRESSLEARN_TOKEN=TOKEN) as running:
        yield running
        running.ends_well(signal.SIGTERM)
