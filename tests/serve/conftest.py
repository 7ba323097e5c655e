"""A small store, the learner that wrote it, and an app that serves it, shared by the tests here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toys import blobs, quick_learner

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from fastapi.testclient import TestClient

from impresslearn import ImpressLearner
from impresslearn.serve import create_app

WORDS = ("cat", "dog", "äöü")
INPUTS = blobs(50)[0][:7]


def request(task: str = "new 0", **more: Any) -> dict[str, Any]:
    """The body of a request for predictions."""
    return {"inputs": INPUTS.tolist(), "task": task, **more}


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
    """Asks an app of that store, without a socket."""
    with TestClient(create_app(store), raise_server_exceptions=False) as asking:
        yield asking


def problem(answer: Any, status: int) -> str:
    """The line of an error, after checking its form."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    line = answer.json()["error"]
    assert line.isprintable()
    assert "Traceback" not in line
    return line
