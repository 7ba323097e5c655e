"""A hub in memory, a cache of the client's that is new for every test, and a learner to push."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import impresslearn as il
from toys import QUICK, blobs, quick_learner

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

from hub_stand_in import Hub
from huggingface_hub import constants


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # The client waits up to 20 seconds before it gives up.
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with Hub().connected() as connected:
        yield connected


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    learner = quick_learner(output_scale=True, precision="int5")
    learner.learn_basis("first", blobs(0)).learn_basis("second", blobs(1))
    path = tmp_path_factory.mktemp("hub") / "learner.impress"
    learner.learn_task("new", blobs(2)).save(path)
    return path


@pytest.fixture
def learner(store: Path) -> il.ImpressLearner:
    return il.load(store, task_recipe=QUICK, progress=False)
