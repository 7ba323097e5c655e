"""What the tests of the experiments share."""

from __future__ import annotations

from typing import Any

import pytest
from commands import record, run


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of the target `tiny` from two processes that nobody disturbed."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert run("tiny", "--out", out, "--processes", 2)[::2] == (0, "")
    return record(out / "tiny.json")
