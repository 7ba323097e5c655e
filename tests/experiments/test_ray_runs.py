"""The executor ray: the same numbers as the local one, also when a machine is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import PATIENCE, outcomes, record, run
from odd_targets import target_of

from impresslearn.errors import MissingDependencyError
from impresslearn.experiments.jobs import Place, in_order
from impresslearn.experiments.reproduce import Run

JOBS = len(in_order(planned.job for planned in target_of("tiny").plan("smoke").planned))
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture(autouse=True)
def own_cluster(monkeypatch):
    """No cluster that happens to be running."""
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")


@needs_ray
@pytest.mark.slow
def test_ray_gives_the_same_numbers(tmp_path, undisturbed):
    arguments = ("tiny", "--out", tmp_path, "--executor", "ray", "--processes", 2)
    status, out, _ = run(*arguments)
    assert (status, out.split(",")[1]) == (0, f" {JOBS} jobs run")
    assert record(tmp_path / "tiny.json") == undisturbed
    status, out, _ = run("tiny", "--out", tmp_path, "--processes", 2)
    assert (status, out.split(",")[1]) == (0, " 0 jobs run")


@needs_ray
@pytest.mark.slow
def test_a_lost_machine_changes_nothing(tmp_path, undisturbed):
    script = Path(__file__).with_name("losing_a_node.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reported").read_text() == f"{JOBS} jobs, 1 node left"
    assert record(tmp_path / "tiny.json") == undisturbed
    assert outcomes(tmp_path / "cache") == JOBS


@needs_ray
@pytest.mark.slow
def test_an_address_without_a_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "1")
    status, _, err = run("tiny", "--out", tmp_path, "--executor", "ray")
    assert status == 2
    assert "RAY_ADDRESS" in err.splitlines()[-1]


def test_without_ray_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'impresslearn\[ray\]'"):
        Run("smoke", Place(), tmp_path, executor="ray").open_executor()
