"""Runs that are killed, interrupted, lose a worker or a machine: nothing kept is lost, nothing
lingers, and the numbers are those of an undisturbed run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from commands import ODD, REAL, finish, marks, members, outcomes, record, run, start, wait_until
from odd_targets import target_of

from impresslearn.experiments.jobs import in_order

JOBS = len(in_order(planned.job for planned in target_of("tiny").plan("smoke").planned))
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs signals and process groups"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of the target `tiny` from two processes that nobody disturbed."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert run("tiny", "--out", out, "--processes", 2)[::2] == (0, "")
    return record(out / "tiny.json")


def kill_somewhere(process: subprocess.Popen[str], cache: Path, more: int, whole: bool) -> None:
    """Kills the run once it has kept so many more outcomes, and waits for the workers' end."""
    wanted = outcomes(cache) + more
    wait_until(lambda: outcomes(cache) >= wanted or process.poll() is not None, "outcomes")
    time.sleep(random.random() / 5)
    if whole:
        with suppress(ProcessLookupError):  # it was done, and nothing of it was left to kill
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    wait_until(lambda: not members(process.pid), "the end of the workers", 30)
    finish(process)


def test_one_process_gives_the_same_numbers(tmp_path, undisturbed):
    assert run("tiny", "--out", tmp_path, "--processes", 1)[0] == 0
    assert record(tmp_path / "tiny.json") == undisturbed


@pytest.mark.parametrize("end", ["kill", "interrupt", "interrupt while processes start"])
def test_kept_outcomes_are_not_worked_out_again(tmp_path, end):
    arguments = ("marks", "--out", tmp_path, "--data", tmp_path, "--processes", 2)
    process, cache = start(*arguments), tmp_path / "cache"
    if end == "kill":
        kill_somewhere(process, cache, 8, whole=True)
    else:
        early = end != "interrupt"
        wait_until(
            lambda: len(members(process.pid)) > 2 if early else outcomes(cache) >= 3, "workers"
        )
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all of the group
        kept = "what is finished is kept; run the same command again to carry on\n"
        assert finish(process)[::2] == (130, kept)
        wait_until(lambda: not members(process.pid), "the end of the workers", 10)
    before, kept = marks(tmp_path), outcomes(cache)
    assert kept < 24
    assert run(*arguments)[0] == 0
    again = marks(tmp_path)[len(before) :]
    assert sorted(set(before) | set(again)) == list(range(24))
    assert len(again) == 24 - kept


@pytest.mark.parametrize(
    ("target", "says"), [("missing", "MNIST is not in "), ("killed", "a worker process died")]
)
def test_a_job_that_cannot_be_done(tmp_path, target, says):
    arguments = (target, "--out", tmp_path, "--data", tmp_path, "--processes", 2)
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {says}")
    assert err.count("\n") == 1
    before, kept = len(marks(tmp_path)), outcomes(tmp_path / "cache")
    assert not (tmp_path / f"{target}.json").exists()
    (tmp_path / "repaired").touch()
    assert run(*arguments)[0] == 0
    assert len(marks(tmp_path)) - before == 8 - kept


def test_two_runs_share_a_cache_and_the_work(tmp_path):
    common = ("--cache", tmp_path / "cache", "--data", tmp_path, "--processes", 2)
    both = [start("marks", "--out", tmp_path / name, *common) for name in ("one", "two")]
    assert [finish(process)[::2] for process in both] == [(0, ""), (0, "")]
    assert sorted(marks(tmp_path)) == list(range(24)), "each job ran once"
    assert record(tmp_path / "one" / "marks.json") == record(tmp_path / "two" / "marks.json")


def test_ten_kills_of_a_real_target(tmp_path):
    arguments = ("split-imagenet", "--scale", "smoke", "--processes", 2)
    assert run(*arguments, "--out", tmp_path / "quiet", program=REAL)[0] == 0
    out = tmp_path / "killed"
    for kill in range(10):
        process = start(*arguments, "--out", out, program=REAL)
        kill_somewhere(process, out / "cache", random.randrange(4), whole=bool(kill % 2))
    assert run(*arguments, "--out", out, program=REAL)[::2] == (0, "")
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    quiet, killed = (record(path / "split-imagenet.json") for path in (tmp_path / "quiet", out))
    assert killed == quiet


@pytest.fixture
def no_cluster(monkeypatch):
    """No cluster that happens to be running."""
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")


@needs_ray
def test_ray_gives_the_same_numbers(tmp_path, no_cluster, undisturbed):
    for executor, ran in (("ray", JOBS), ("local", 0)):
        arguments = ("tiny", "--out", tmp_path, "--executor", executor, "--processes", 2)
        status, out, _ = run(*arguments)
        assert (status, out.split(",")[1]) == (0, f" {ran} jobs run")
        assert record(tmp_path / "tiny.json") == undisturbed


@needs_ray
def test_a_lost_machine_changes_nothing(tmp_path, no_cluster, undisturbed):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*ODD, "lose", str(tmp_path)], check=True, timeout=300, env=environment)
    assert (tmp_path / "reported").read_text() == f"{JOBS} jobs, 1 node left"
    assert record(tmp_path / "tiny.json") == undisturbed
    assert outcomes(tmp_path / "cache") == JOBS


@needs_ray
def test_an_address_without_a_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "1")
    status, _, err = run("tiny", "--out", tmp_path, "--executor", "ray")
    assert status == 2
    assert "RAY_ADDRESS" in err.splitlines()[-1]
