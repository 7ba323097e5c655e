"""One process that forks workers, and one small store to copy, for all tests of the store."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from storekit import Workers, small_learner


@pytest.fixture(scope="session")
def pool() -> Iterator[Workers]:
    """Forks processes that work on a store."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    with Workers() as made:
        yield made


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
