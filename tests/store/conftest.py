"""One process that forks workers, for all tests of the store."""

import os
from collections.abc import Iterator

import pytest
from storekit import Workers


@pytest.fixture(scope="session")
def pool() -> Iterator[Workers]:
    """Forks processes that work on a store."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    made = Workers()
    yield made
    made.close()
